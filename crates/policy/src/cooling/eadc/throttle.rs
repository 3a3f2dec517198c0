//! "Progressively throttling the workloads with lower disk access rates to meet thermal
//! constraints" (§VI-B). What the CPU cap leaves of all jobs' time is taken from those that use
//! the disks least first, down to `MIN_JOB_SHARE`, then from the next. Jobs that use the disks
//! about alike, within a factor of two, give up the same: if one of several gave up everything,
//! all would wait for it in the end.

use crate::cooling::eadc::disks::{Disks, NEGLIGIBLE};
use crate::guard::MIN_JOB_SHARE;
use crate::{JobSignals, Request, Signals};

/// Deals the CPU cap out to jobs.
#[derive(Debug, Clone)]
pub struct Throttle {
    /// Slots, the one that uses the disks least first.
    order: Vec<usize>,
}

impl Throttle {
    /// For `jobs` slots.
    pub fn new(jobs: u16) -> Self {
        Self { order: Vec::with_capacity(usize::from(jobs)) }
    }

    /// Leaves the jobs `cap` of their time in all.
    pub fn apply(&mut self, cap: f64, disks: &Disks, signals: &Signals, request: &mut Request) {
        let slots = signals.jobs.len().min(request.job_share.len());
        let rate = |slot: &usize| disks.of_job(*slot);
        self.order.clear();
        self.order.extend((0..slots).filter(|slot| running(&signals.jobs[*slot])));
        self.order.sort_unstable_by(|a, b| rate(a).total_cmp(&rate(b)));
        let mut cut = (1.0 - cap) * self.order.len() as f64;
        let alike = |a: &usize, b: &usize| rate(b) <= NEGLIGIBLE.max(2.0 * rate(a));
        let mut rest = &self.order[..];
        while let Some(least) = rest.first() {
            let (tier, above) = rest.split_at(rest.partition_point(|slot| alike(least, slot)));
            let each = (cut / tier.len() as f64).min(1.0 - MIN_JOB_SHARE);
            cut -= each * tier.len() as f64;
            for slot in tier {
                let share = (1.0 - each).clamp(MIN_JOB_SHARE, 1.0);
                request.job_share.ask(*slot, share, "eadc:uses-disks-least");
            }
            rest = above;
        }
        for slot in (0..slots).filter(|slot| !running(&signals.jobs[*slot])) {
            request.job_share.ask(slot, 1.0, "eadc:no-job");
        }
    }
}

/// Whether a job is there and may run.
pub fn running(job: &JobSignals) -> bool {
    job.present && !job.waiting
}
