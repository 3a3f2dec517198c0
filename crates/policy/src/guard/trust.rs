//! Whether the signals can be believed. An absent value is honest and left to the policies; an
//! impossible one means that a sensor, a driver or the collector lies, and then nothing else it
//! says is used either.

use crate::guard::Limits;
use crate::signals::{DriveSignals, GroupSignals, IoSignals};
use crate::topology::{DriveSpec, Topology};
use crate::units::{Celsius, Hertz, Nanos, Watts};
use crate::{PowerSignals, Signals};

/// Averages over a period may overshoot 1 by the jitter of its two ends.
const MAX_UTILISATION: f64 = 1.05;
/// Boost clocks may exceed the highest settable frequency, by less than this factor.
const MAX_FREQUENCY_FACTOR: f64 = 2.0;
/// A mean over a whole period above this multiple of `MP(0)` is not a drive's power.
const MAX_DRIVE_POWER_FACTOR: f64 = 3.0;
/// Twice what the largest single servers are supplied with.
const MAX_SERVER_POWER: Watts = Watts(20_000.0);
/// Composite temperatures outside are conversion errors (0 K means "not reported").
const TEMPERATURES: std::ops::RangeInclusive<f64> = -40.0..=150.0;

/// Why a policy is not followed at present, by what is taken out of its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distrust {
    /// Cores, frequency and background work: what I/O counters steer.
    pub cores: Option<&'static str>,
    /// Drive caps. They are steered by the drives' own power (PACMAN §V-A), so that missing I/O
    /// counters do not concern them: a management controller has none.
    pub drives: Option<&'static str>,
}

/// Watches the signals over time.
#[derive(Debug, Clone)]
pub struct Trust {
    patience: u32,
    last: Option<Nanos>,
    /// Periods in a row in which time did not move on.
    clock_stopped: u32,
    /// Periods in a row without the required I/O counters.
    io_missing: u32,
    signals: Latch,
    io: Latch,
}

impl Trust {
    pub fn new(limits: &Limits) -> Self {
        let latch = Latch { recovery: limits.recovery_periods, fault: None, good: 0 };
        Self {
            patience: limits.patience_periods.max(1),
            last: None,
            clock_stopped: 0,
            io_missing: 0,
            signals: latch.clone(),
            io: latch,
        }
    }

    /// One period: whether, and why, native must be in force in it.
    pub fn judge(&mut self, topology: &Topology, signals: &Signals) -> Distrust {
        let stopped = self.last.is_some_and(|last| signals.now <= last);
        self.last = Some(signals.now);
        self.clock_stopped = in_a_row(self.clock_stopped, stopped);
        let missing = io_missing(&signals.io);
        self.io_missing = in_a_row(self.io_missing, missing);

        let late = (self.clock_stopped >= self.patience).then_some("guard:clock-stopped");
        let drives = self.signals.update(absurd(topology, signals).or(late), stopped);
        let blind = (self.io_missing >= self.patience).then_some("guard:io-missing");
        let cores = drives.or(self.io.update(blind, missing));
        Distrust { cores, drives }
    }
}

/// Periods in a row in which `so` held.
pub fn in_a_row(before: u32, so: bool) -> u32 {
    if so { before.saturating_add(1) } else { 0 }
}

/// Holds a fault until enough good periods have followed it.
#[derive(Debug, Clone)]
struct Latch {
    recovery: u32,
    fault: Option<&'static str>,
    good: u32,
}

impl Latch {
    /// One period; a `doubtful` one is neither a fault yet nor good. Returns the fault in force.
    fn update(&mut self, fault: Option<&'static str>, doubtful: bool) -> Option<&'static str> {
        self.good = in_a_row(self.good, fault.is_none() && !doubtful);
        if fault.is_some() {
            self.fault = fault;
        } else if self.good >= self.recovery.max(1) {
            self.fault = None;
        }
        self.fault
    }
}

/// Latency-steered policies cannot judge a loss without these (PACER §IV-B and C).
fn io_missing(io: &IoSignals) -> bool {
    let IoSignals { arrived, completed, mean_latency, .. } = io;
    arrived.is_none() || completed.is_none_or(|n| n > 0 && mean_latency.is_none())
}

/// The first impossible value, as a reason.
fn absurd(topology: &Topology, signals: &Signals) -> Option<&'static str> {
    if signals.groups.len() != topology.groups.len()
        || signals.drives.len() != topology.drives.len()
        || signals.cooling.sockets.len() != usize::from(topology.sockets)
        || signals.cooling.fans.len() != topology.fans.len()
        || signals.jobs.len() != usize::from(topology.jobs)
    {
        return Some("guard:wrong-shape");
    }
    let PowerSignals { total, cpu, ssd, fans } = signals.power;
    if [total, cpu, ssd, fans].iter().flatten().any(|p| !is_power(*p, MAX_SERVER_POWER)) {
        return Some("guard:absurd-power");
    }
    let highest = topology.max_frequency();
    let mut groups = signals.groups.iter().zip(&topology.groups);
    let mut drives = signals.drives.iter().zip(&topology.drives);
    groups
        .find_map(|(group, spec)| absurd_group(group, spec.cores, highest))
        .or_else(|| drives.find_map(|(drive, spec)| absurd_drive(drive, spec)))
}

fn absurd_group(group: &GroupSignals, cores: u16, highest: Hertz) -> Option<&'static str> {
    let GroupSignals { active, utilisation, busiest, frequency } = *group;
    let share = |u: f64| (0.0..=MAX_UTILISATION).contains(&u);
    let clock = |f: Hertz| (0.0..=highest.0 * MAX_FREQUENCY_FACTOR).contains(&f.0);
    if active > cores {
        Some("guard:absurd-core-count")
    } else if !utilisation.is_none_or(share) || !busiest.is_none_or(share) {
        Some("guard:absurd-utilisation")
    } else if !frequency.is_none_or(clock) {
        Some("guard:absurd-frequency")
    } else {
        None
    }
}

fn absurd_drive(drive: &DriveSignals, spec: &DriveSpec) -> Option<&'static str> {
    let most = spec.cap(0) * MAX_DRIVE_POWER_FACTOR;
    let warm = |t: Celsius| TEMPERATURES.contains(&t.0);
    if !drive.power.is_none_or(|p| is_power(p, most)) {
        Some("guard:absurd-drive-power")
    } else if !drive.temperature.is_none_or(warm) {
        Some("guard:absurd-temperature")
    } else {
        None
    }
}

/// NaN is in no range.
fn is_power(power: Watts, most: Watts) -> bool {
    (0.0..=most.0).contains(&power.0)
}
