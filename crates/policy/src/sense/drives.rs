//! How hot each drive may be: its last reading, and what it can have warmed by since. And the air
//! that its temperature alone asks for.
//!
//! A drive whose temperature alone is missing warms in the dark. One of which nothing is sensed any
//! more, though its temperature was not all that was, has been pulled out; but if all drives are
//! silent at once, it is whoever asks them that fails.

use crate::sense::QUANTUM;
use crate::sense::air::{duty_of, resistance};
use crate::sense::plausible::is_drive_temperature;
use crate::topology::Topology;
use crate::units::{Celsius, Nanos};
use crate::{DriveSignals, Signals};

/// What a drive that has fallen silent is taken to warm by, in K/s: an SSD of 150 J/K that goes
/// from rest to all the 15 W that it can write with, in air that takes no more than before.
const SLEW: f64 = 0.1;

/// How long nothing is sensed of a drive before it is gone, in seconds: twice as long as Linux
/// waits for the answer to an NVMe admin command (`nvme_core.admin_timeout`, 60 s), during which
/// a drive that hangs may well be hot.
const GONE: f64 = 120.0;

/// Distance that is kept from a drive's limit, in kelvin: its reading and the inlet's are rounded.
pub(crate) const MARGIN: f64 = 2.0 * QUANTUM;
/// Distance from the limit where air by temperature alone begins, in kelvin. All of it is given at
/// [`MARGIN`]: a fifth of `ln r` per kelvin, which Skogestad's rules (`pi.rs`) give for an SSD of
/// 15 W on 150 J/K; a disk changes more slowly.
const BAND: f64 = 8.0;

/// One drive.
#[derive(Debug, Clone, Copy)]
struct Drive {
    limit: f64,
    /// When it last said how hot it is.
    last: Option<(Nanos, f64)>,
    /// Whether more than that was ever sensed of it.
    more: bool,
    /// Seconds for which nothing has been, while other drives spoke.
    silent: f64,
}

/// The drives' temperatures at worst. A drive that has never told its own counts for nothing, and
/// neither does one that is gone.
#[derive(Debug, Clone)]
pub(crate) struct Drives {
    now: Nanos,
    drives: Vec<Drive>,
    /// Resistance to the air with the fans as slow as they may be.
    slow: f64,
}

impl Drives {
    /// For the drives of `topology`, each with the limit given, or else its own.
    pub fn new(topology: &Topology, limit: Option<Celsius>) -> Self {
        let limit = |own: Celsius| limit.unwrap_or(own).0;
        let drives = topology.drives.iter().map(|drive| Drive {
            limit: limit(drive.hottest()),
            last: None,
            more: false,
            silent: 0.0,
        });
        let slow = resistance(topology.min_duty());
        Self { now: Nanos::ZERO, drives: drives.collect(), slow }
    }

    /// Takes one period.
    pub fn update(&mut self, signals: &Signals) {
        self.now = signals.now;
        let nothing = DriveSignals::default();
        let any = signals.drives.iter().any(|signal| *signal != nothing);
        for (drive, signal) in self.drives.iter_mut().zip(&signals.drives) {
            drive.more |= DriveSignals { temperature: None, ..*signal } != nothing;
            if *signal != nothing {
                drive.silent = 0.0;
            } else if any {
                drive.silent += signals.period.seconds();
            }
            if let Some(t) = signal.temperature.filter(|t| is_drive_temperature(*t)) {
                drive.last = Some((signals.now, t.0));
            } else if drive.more && drive.silent >= GONE {
                // What comes in its place may be another.
                (drive.last, drive.more) = (None, false);
            }
        }
    }

    /// Temperature at worst and limit of each drive, °C; `None` for one that never spoke or
    /// is gone.
    pub fn worst(&self) -> impl Iterator<Item = Option<(f64, f64)>> + '_ {
        self.drives.iter().map(|drive| {
            let (at, t) = drive.last?;
            Some((t + SLEW * self.now.saturating_sub(at).seconds(), drive.limit))
        })
    }

    /// How far the worst of them is above its limit, in kelvin; `None` when nothing is known.
    pub fn over(&self) -> Option<f64> {
        self.worst().flatten().map(|(t, limit)| t - limit).reduce(f64::max)
    }

    /// Resistance to the air with the fans as slow as they may be.
    pub fn slow(&self) -> f64 {
        self.slow
    }

    /// The resistance for a drive `over` its limit, in kelvin, of which nothing more is known.
    pub fn by_temperature(&self, over: f64) -> f64 {
        let near = (over + BAND) / (BAND - MARGIN);
        self.slow.powf(1.0 - near.clamp(0.0, 1.0))
    }

    /// The duty that a drive `over` its limit asks for by that alone; 0 when it is not near.
    pub fn duty(&self, over: f64) -> f64 {
        let least = self.by_temperature(over);
        if least < self.slow { duty_of(least) } else { 0.0 }
    }
}
