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
//! | cool | up to 87 °C, nothing throttled | all |
//! | warm | above it, or jobs are throttled | Critical; Vital while its jobs use disks |
//! | hot | at the emergency threshold | Critical |
//!
//! 87 °C are the set point and two steps of the sensor, within which a settled loop moves.
//!
//! A class of which a job has waited for half of what it was promised is admitted unless it is hot:
//! an objective missed for the temperature's sake is still missed. Where the host knows of no
//! promise, the nearer of the class's two objectives (Table I) stands for it, as the job may be a
//! restore or a backup.

use crate::cooling::eadc::disks::Disks;
use crate::sense::thresholds::Thresholds;
use crate::sense::{LAG, QUANTUM, weight};
use crate::units::{Celsius, Nanos};
use crate::{JobSignals, QosClass, Request, Signals};

/// Share of what a job was promised that it may wait to be admitted; the rest is for its work.
const PATIENCE: f64 = 0.5;
/// Distance above the set point from which it is warm.
const WARM: Celsius = Celsius(2.0 * QUANTUM);
/// Time constant of what a class uses, in seconds.
const HISTORY: f64 = 300.0;

/// The thermal state, as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Heat {
    Cool,
    Warm,
    Hot,
}

/// Decides who may start.
#[derive(Debug, Clone)]
pub struct Admission {
    thresholds: Thresholds,
    heat: Heat,
    /// Seconds since the state would have been a cooler one.
    calm: f64,
    /// Whether a job of each class has waited long enough.
    aged: [bool; 4],
    /// Disk bytes per second of a job of each class, once one was seen.
    used: [Option<f64>; 4],
}

impl Admission {
    /// For a server with these thresholds.
    pub fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, heat: Heat::Cool, calm: 0.0, aged: [false; 4], used: [None; 4] }
    }

    /// One interval of `dt` seconds, with `hot` degrees; `throttled` when jobs are held back.
    pub fn decide(
        &mut self,
        (signals, disks, dt): (&Signals, &Disks, f64),
        (hot, throttled): (Celsius, bool),
        request: &mut Request,
    ) {
        self.judge(hot, throttled, dt);
        self.learn(signals, disks, dt);
        for class in QosClass::ALL {
            let (admit, reason) = self.admits(class);
            request.ask_admit(class, admit, reason);
        }
    }

    /// Hotter at once, cooler only after one sensor lag.
    fn judge(&mut self, hot: Celsius, throttled: bool, dt: f64) {
        let now = if hot >= self.thresholds.emergency {
            Heat::Hot
        } else if throttled || hot > self.thresholds.set_point + WARM {
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
            self.aged[class as usize] = of().any(|(_, job)| aged(job));
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
        let aged = self.aged[class as usize];
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

/// Whether a job has waited for as long as its promise allows.
fn aged(job: &JobSignals) -> bool {
    job.waiting && late(job)
}

/// Whether so much of its promise is used up.
pub fn late(job: &JobSignals) -> bool {
    let nearer = |class: QosClass| match class.recovery_point() {
        Some(point) => class.recovery_time().min(point),
        None => class.recovery_time(),
    };
    let promised: Nanos = job.objective.unwrap_or_else(|| nearer(job.class));
    job.present && job.age.seconds() >= PATIENCE * promised.seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn waits(class: QosClass, age: u64, objective: Option<Nanos>) -> JobSignals {
        let age = Nanos::from_secs(age);
        JobSignals { present: true, waiting: true, class, age, objective, ..JobSignals::default() }
    }

    #[test]
    fn half_of_a_promise_is_left_for_the_work() {
        let minutes = |m: u64| Some(Nanos::from_secs(60 * m));
        for (class, promised, patient) in [
            (QosClass::Vital, minutes(15), 450),
            (QosClass::Noncritical, minutes(2), 60),
            // Without a promise the nearer of RTO and RPO: 15 min, 6 h, 24 h.
            (QosClass::Vital, None, 450),
            (QosClass::Sensitive, None, 3 * 3600),
            (QosClass::Noncritical, None, 12 * 3600),
            (QosClass::Critical, None, 900),
        ] {
            assert!(!aged(&waits(class, patient - 1, promised)), "{class:?} {promised:?}");
            assert!(aged(&waits(class, patient, promised)), "{class:?} {promised:?}");
        }
        let runs = JobSignals { waiting: false, ..waits(QosClass::Vital, 10_000, None) };
        assert!(!aged(&runs));
        assert!(!aged(&JobSignals { present: false, ..waits(QosClass::Vital, 10_000, None) }));
    }

    #[test]
    fn what_every_class_is_promised_leaves_its_patience_time() {
        for class in QosClass::ALL {
            for promised in [Some(class.recovery_time()), class.recovery_point()] {
                let Some(promised) = promised else { continue };
                let half = promised.0 / 2_000_000_000;
                for known in [Some(promised), None] {
                    assert!(aged(&waits(class, half, known)), "{class:?} {promised}");
                }
            }
        }
    }

    #[test]
    fn only_up_to_two_steps_above_the_set_point_is_it_cool() {
        let state = |hot, throttled| {
            let mut admission = Admission::new(Thresholds::new(&Topology::default()));
            admission.judge(Celsius(hot), throttled, 1.0);
            admission.heat
        };
        assert_eq!(state(87.0, false), Heat::Cool);
        assert_eq!(state(87.1, false), Heat::Warm);
        assert_eq!(state(50.0, true), Heat::Warm);
        assert_eq!(state(90.0, false), Heat::Hot);
    }
}
