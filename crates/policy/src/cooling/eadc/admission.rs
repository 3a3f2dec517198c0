//! Admission by QoS class and thermal state (§VI-B): "Under high core temperatures, EADC policy
//! admits high priority requests that need disk IO thus satisfying their SLA first. Allowing CPU
//! intensive requests will only worsen the thermal profile [...] During non-thermal peaks (zone
//! Z1) the policy admits most requests".
//!
//! What a request will need is not told in advance ("does not need prior I/O characteristics to
//! be self-reported"); what its class has used so far stands for it. Ours:
//!
//! | state | entered | admitted |
//! |---|---|---|
//! | cool | below the set point, nothing throttled | all |
//! | warm | above the set point, or jobs are throttled | Critical; Vital while its jobs use disks |
//! | hot | at the emergency threshold | Critical |
//!
//! A class that has waited for half of its recovery time objective (Table I) is admitted unless
//! it is hot: an objective missed for the temperature's sake is still missed.

use crate::cooling::eadc::disks::Disks;
use crate::cooling::{EMERGENCY, LAG, QUANTUM, SET_POINT, weight};
use crate::{Controls, QosClass, Signals};

/// Half of the recovery time objectives of Table I, in seconds: 30 min, 2 h, 12 h, 1 day.
const PATIENCE: [f64; 4] = [900.0, 3600.0, 21_600.0, 43_200.0];
/// Time constant of what a class uses, in seconds.
const HISTORY: f64 = 300.0;

/// The thermal state, as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Heat {
    #[default]
    Cool,
    Warm,
    Hot,
}

/// Decides who may start.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    heat: Heat,
    /// Seconds since the state would have been a cooler one.
    calm: f64,
    /// Seconds for which a job of each class has been waiting.
    waited: [f64; 4],
    /// Disk bytes per second of a job of each class, once one was seen.
    used: [Option<f64>; 4],
}

impl Admission {
    /// One interval of `dt` seconds, with `hot` degrees; `throttled` when jobs are held back.
    pub fn decide(
        &mut self,
        (signals, disks, dt): (&Signals, &Disks, f64),
        (hot, throttled): (f64, bool),
        controls: &mut Controls,
    ) {
        self.judge(hot, throttled, dt);
        self.learn(signals, disks, dt);
        for class in QosClass::ALL {
            let (admit, reason) = self.admits(class);
            controls.set_admit(class, admit, reason);
        }
    }

    /// Hotter at once, cooler only after one sensor lag.
    fn judge(&mut self, hot: f64, throttled: bool, dt: f64) {
        let now = if hot >= EMERGENCY.0 {
            Heat::Hot
        } else if throttled || hot > SET_POINT.0 + 2.0 * QUANTUM {
            Heat::Warm
        } else {
            Heat::Cool
        };
        self.calm = if now < self.heat { self.calm + dt } else { 0.0 };
        if now > self.heat || self.calm >= LAG.seconds() {
            (self.heat, self.calm) = (now, 0.0);
        }
    }

    fn learn(&mut self, signals: &Signals, disks: &Disks, dt: f64) {
        for class in QosClass::ALL {
            let of = || signals.jobs.iter().enumerate().filter(move |(_, job)| job.class == class);
            let waits = of().any(|(_, job)| job.present && job.waiting);
            let waited = &mut self.waited[class as usize];
            *waited = if waits { *waited + dt } else { 0.0 };
            let running = || of().filter(|(_, job)| job.present && !job.waiting);
            let count = running().count() as f64;
            if count > 0.0 {
                let rate = running().map(|(slot, _)| disks.of_job(slot)).sum::<f64>() / count;
                let used = self.used[class as usize].get_or_insert(rate);
                *used += (rate - *used) * weight(dt, HISTORY);
            }
        }
    }

    fn admits(&self, class: QosClass) -> (bool, &'static str) {
        let aged = self.waited[class as usize] >= PATIENCE[class as usize];
        match self.heat {
            Heat::Cool => (true, "eadc:cool"),
            _ if class == QosClass::Critical => (true, "eadc:critical"),
            Heat::Hot => (false, "eadc:hot"),
            Heat::Warm if aged => (true, "eadc:objective-near"),
            Heat::Warm if class == QosClass::Vital && self.needs_disk(class) => {
                (true, "eadc:needs-disk")
            }
            Heat::Warm => (false, "eadc:warm"),
        }
    }

    /// Whether jobs of the class use the disks no less than the average class; yes for a class
    /// that was never seen.
    fn needs_disk(&self, class: QosClass) -> bool {
        let Some(own) = self.used[class as usize] else { return true };
        let seen = || self.used.iter().flatten();
        own > 0.0 && own >= seen().sum::<f64>() / seen().count().max(1) as f64
    }
}
