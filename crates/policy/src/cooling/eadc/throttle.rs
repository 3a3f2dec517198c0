//! "Progressively throttling the workloads with lower disk access rates to meet thermal
//! constraints" (§VI-B). The CPU cap is one number, as in Kim et al. (DATE 2014): the share of
//! all jobs' time that may be used. It is taken from those that use the disks least first, down to
//! `MIN_JOB_SHARE`, then from the next. Jobs that use the disks about alike, within a factor of
//! two, give up the same: if one of several gave up everything, all would wait for it in the end.

use crate::cooling::eadc::disks::{Disks, NEGLIGIBLE};
use crate::cooling::pi::dead_zone;
use crate::cooling::{MIN_JOB_SHARE, SET_POINT};
use crate::{Controls, JobSignals, Signals};

/// `K_p` per kelvin and `K_i` per kelvin and second, as for the fans (`pi.rs`) with `G` = 40 K
/// for all of the jobs' time, which is about what full load warms a socket by.
const K_P: f64 = 60.0 / (40.0 * 39.0);
const K_I: f64 = K_P / 60.0;

/// The local controller of the CPU cap.
#[derive(Debug, Clone)]
pub struct Throttle {
    /// CPU cap in force, `MIN_JOB_SHARE` to 1.
    cap: f64,
    before: Option<f64>,
    /// Slots, the one that uses the disks least first.
    order: Vec<usize>,
}

impl Throttle {
    /// For `jobs` slots.
    pub fn new(jobs: u16) -> Self {
        Self { cap: 1.0, before: None, order: Vec::with_capacity(usize::from(jobs)) }
    }

    /// The cap in force.
    pub fn cap(&self) -> f64 {
        self.cap
    }

    /// Whether no job can be throttled further.
    pub fn exhausted(&self, signals: &Signals) -> bool {
        self.cap <= MIN_JOB_SHARE || !signals.jobs.iter().any(running)
    }

    /// What this controller alone would set the cap to, with `hot` degrees after `dt` seconds.
    pub fn propose(&self, hot: f64, dt: f64) -> f64 {
        let error = dead_zone(hot - SET_POINT.0);
        if self.cap >= 1.0 && error <= 0.0 {
            return 1.0;
        }
        let change = error - self.before.unwrap_or(error);
        let moved = K_P * change + K_I * error * dt;
        // Nobody is throttled below the set point, nor let go above it, for a toggling digit.
        let moved = if error > 0.0 { moved.max(0.0) } else { moved.min(0.0) };
        let cap = if error == 0.0 { self.cap } else { self.cap - moved };
        cap.clamp(MIN_JOB_SHARE, 1.0)
    }

    /// Puts `cap` in force. A proposal that was not let through leaves its error to be answered.
    pub fn settle(&mut self, cap: f64, hot: f64) {
        if cap != self.cap || cap >= 1.0 {
            self.before = Some(dead_zone(hot - SET_POINT.0));
        }
        self.cap = cap;
    }

    /// Deals the cap out.
    pub fn apply(&mut self, disks: &Disks, signals: &Signals, controls: &mut Controls) {
        let slots = signals.jobs.len().min(controls.job_shares().len());
        let rate = |slot: &usize| disks.of_job(*slot);
        self.order.clear();
        self.order.extend((0..slots).filter(|slot| running(&signals.jobs[*slot])));
        self.order.sort_unstable_by(|a, b| rate(a).total_cmp(&rate(b)));
        let mut cut = (1.0 - self.cap) * self.order.len() as f64;
        let alike = |a: &usize, b: &usize| rate(b) <= NEGLIGIBLE.max(2.0 * rate(a));
        let mut rest = &self.order[..];
        while let Some(least) = rest.first() {
            let (tier, above) = rest.split_at(rest.partition_point(|slot| alike(least, slot)));
            let each = (cut / tier.len() as f64).min(1.0 - MIN_JOB_SHARE);
            cut -= each * tier.len() as f64;
            for slot in tier {
                let share = (1.0 - each).max(MIN_JOB_SHARE);
                controls.set_job_share(*slot, share, "eadc:uses-disks-least");
            }
            rest = above;
        }
        for slot in (0..slots).filter(|slot| !running(&signals.jobs[*slot])) {
            controls.set_job_share(slot, 1.0, "eadc:no-job");
        }
    }
}

fn running(job: &JobSignals) -> bool {
    job.present && !job.waiting
}
