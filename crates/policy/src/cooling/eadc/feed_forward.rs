//! Drive-load feed-forward (ours): a heavy write burst raises the airflow before the drives are
//! too warm. A drive takes minutes to warm up, so its power says it first.
//!
//! At rest a drive is `T_drive = T_in + P R`. From slow means of its power and of the duty,
//! `R` is known at that airflow; the power of the last seconds then says where the temperature
//! will end, `T_end = T_in + P_now R`. Where that is too much, `R` must shrink by
//! `(T_limit - T_in) / (T_end - T_in)`, and with it the resistance to the air (`pi.rs`).

use crate::cooling::pi::duty_for;
use crate::cooling::weight;
use crate::topology::Topology;
use crate::{DriveSignals, Signals};

/// What a drive may reach: the operating limit that makers of nearline disks state (60 °C);
/// enterprise SSDs throttle at 70 °C or above.
const LIMIT: f64 = 60.0;
/// Distance that is kept from it, in kelvin.
const MARGIN: f64 = 5.0;
/// Time constants in seconds: of a drive's temperature; of its power, clear of single requests.
const SLOW: f64 = 120.0;
const FAST: f64 = 3.0;
/// Power below which nothing can be said of `R`, in watts.
const LEAST: f64 = 0.5;
/// How fast the floor sinks, in duty per second: one unit within the drives' time constant.
const SINK: f64 = 1.0 / SLOW;

/// A floor under the fan duty for the drives' sake.
#[derive(Debug, Clone)]
pub struct FeedForward {
    /// Slow and fast mean power of each drive, W.
    power: Vec<Option<(f64, f64)>>,
    duty: Option<f64>,
    floor: f64,
}

impl FeedForward {
    /// For the drives of `topology`.
    pub fn new(topology: &Topology) -> Self {
        Self { power: vec![None; topology.drives.len()], duty: None, floor: 0.0 }
    }

    /// Takes one period with the fans at `duty`; returns the floor, and whether a drive is over
    /// its limit already, so that no fan cap may hold the air back.
    pub fn update(&mut self, signals: &Signals, duty: f64) -> (f64, bool) {
        let dt = signals.period.seconds();
        let mean = self.duty.get_or_insert(duty);
        *mean += (duty - *mean) * weight(dt, SLOW);
        let mean = *mean;
        let inlet = signals.cooling.inlet.map(|reading| reading.temperature.0);
        let (mut wanted, mut over) = (0.0_f64, false);
        for (drive, power) in signals.drives.iter().zip(&mut self.power) {
            let DriveSignals { power: Some(watts), temperature: Some(t), .. } = *drive else {
                continue;
            };
            let (slow, fast) = power.get_or_insert((watts.0, watts.0));
            *slow += (watts.0 - *slow) * weight(dt, SLOW);
            *fast += (watts.0 - *fast) * weight(dt, FAST);
            over |= t.0 >= LIMIT;
            let Some(inlet) = inlet.filter(|inlet| *slow > LEAST && t.0 > inlet + 1.0) else {
                continue;
            };
            let end = inlet + (t.0 - inlet) * *fast / *slow;
            let room = LIMIT - MARGIN - inlet;
            if end > LIMIT - MARGIN {
                wanted = wanted.max(duty_for(mean, room.max(1.0) / (end - inlet)));
            }
        }
        self.floor = wanted.max(self.floor - SINK * dt);
        (self.floor, over)
    }
}
