//! CPU time that the stages have together: their threads run until a period's share is used up,
//! then all stand still to the end of the period (`cpu.max` of a control group).

use ebb_policy::units::Nanos;

use crate::profile::Cpu;

/// The share of each period in which the cores of the stages run.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    /// Length of a period, ns.
    period: u64,
    /// Core time in a period; `None` is no limit.
    time: Option<f64>,
    /// Service that a stop costs in the long run.
    resume: f64,
    /// How long cores run in each period.
    run: u64,
}

impl Quota {
    pub(super) fn new(cpu: &Cpu) -> Self {
        let period = cpu.quota_period.0;
        let time = cpu.quota.map(|cores| cores * period as f64);
        Self { period, time, resume: cpu.resume.0 as f64, run: period }
    }

    /// So much core time in each `period` from now on, however much of it was used
    /// up; no limit when `None`.
    pub(super) fn set(&mut self, cores: Option<f64>, period: Nanos) {
        self.period = period.0;
        self.time = cores.map(|cores| cores * period.0 as f64);
        self.run = period.0;
    }

    /// Whether there is any limit.
    pub(super) const fn limits(&self) -> bool {
        self.time.is_some()
    }

    /// So many cores run from now on.
    pub(super) fn share(&mut self, cores: usize) {
        let Some(time) = self.time else { return };
        self.run = ((time / cores.max(1) as f64) as u64).clamp(16, self.period);
    }

    /// When work of `service` ns that may start at `from` ends.
    pub(super) fn end(&self, from: u64, service: u64) -> u64 {
        if self.run == self.period {
            return from + service; // What is not used up does not stop.
        }
        let whole = self.served(self.run).max(1);
        let before = self.served((from % self.period).min(self.run)).min(whole);
        let last = (before + service).saturating_sub(1);
        let (periods, rest) = (last / whole, last % whole + 1);
        ((from / self.period + periods) * self.period + self.until(rest)).max(from + service)
    }

    /// What is served of work between two times.
    pub(super) fn between(&self, from: u64, to: u64) -> u64 {
        if self.run == self.period {
            return to - from;
        }
        let whole = self.served(self.run).max(1);
        let until = |at: u64| {
            at / self.period * whole + self.served((at % self.period).min(self.run)).min(whole)
        };
        until(to) - until(from)
    }

    /// Service in the first `time` of a run: a core begins at a quarter of its pace, and what it
    /// has lost by time t comes to `resume` t / (t + 4/3 `resume`).
    fn served(&self, time: u64) -> u64 {
        let time = time as f64;
        (time - self.resume * time / (time + self.resume * 4.0 / 3.0).max(1.0)) as u64
    }

    /// The time of a run by which so much is served: [`Self::served`], solved for the time.
    fn until(&self, served: u64) -> u64 {
        let served = served as f64;
        let half = (served - self.resume / 3.0) / 2.0;
        (half + (half * half + self.resume * 4.0 / 3.0 * served).sqrt()) as u64
    }

    /// How long cores run between two times.
    pub(super) fn running(&self, from: u64, to: u64) -> u64 {
        let until = |at: u64| at / self.period * self.run + (at % self.period).min(self.run);
        until(to) - until(from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn near(got: u64, milliseconds: f64) {
        assert!((got as f64 / 1e6 - milliseconds).abs() < 0.001, "{got} ns of {milliseconds} ms");
    }

    #[test]
    fn work_goes_on_in_the_share_of_each_period_that_is_left() {
        // A quarter of a core's time on one core; a stop costs 6 ms of service in the long run.
        let mut quota =
            Quota { period: 100 * MS, time: Some(25.0 * MS as f64), resume: 6e6, run: 100 * MS };
        quota.share(1);
        near(quota.served(8 * MS), 5.0);
        near(quota.until(5 * MS), 8.0);
        near(quota.served(100), 0.000_025);
        let whole = quota.served(25 * MS);
        near(quota.end(0, 5 * MS), 8.0);
        near(quota.end(8 * MS, whole - 5 * MS), 25.0);
        near(quota.end(8 * MS, whole), 108.0);
        near(quota.end(60 * MS, 5 * MS), 108.0);
        near(quota.end(0, 2 * whole), 125.0);
        assert_eq!(quota.running(20 * MS, 110 * MS), 15 * MS);
        // Two cores use it up in half the time.
        quota.share(2);
        assert_eq!(quota.running(0, 100 * MS), 25 * MS / 2);
        // Enough for both: no stop.
        let mut ample = Quota { time: Some(200.0 * MS as f64), ..quota };
        ample.share(2);
        assert_eq!(ample.end(95 * MS, 10 * MS), 105 * MS);
        assert_eq!(ample.running(95 * MS, 105 * MS), 10 * MS);
    }

    proptest! {
        /// However the quota changes, work ends when cores have run for as long as it takes.
        #[test]
        fn work_takes_the_time_that_was_allowed(
            changes in prop::collection::vec((0.01_f64..1.2, 1_u64..40, 1_u64..90_000_000), 1..30),
            service in 1_u64..300_000_000,
        ) {
            let start = Quota { period: MS, time: None, resume: 0.0, run: MS };
            let (mut quota, mut now, mut ran) = (start, 0, 0);
            let mut end = quota.end(0, service);
            for (cores, period, gap) in changes {
                if now + gap >= end {
                    break;
                }
                ran += quota.running(now, now + gap);
                now += gap;
                let left = quota.between(now, end);
                quota.set(Some(cores), Nanos::from_millis(period));
                quota.share(1);
                end = quota.end(now, left);
            }
            ran += quota.running(now, end);
            prop_assert!(ran.abs_diff(service) <= 64, "ran for {ran} of {service} ns");
        }
    }

    #[test]
    fn work_never_ends_before_it_could_without_a_stop_nor_out_of_order() {
        let mut quota = Quota { period: MS, time: Some(0.3 * MS as f64), resume: 4e4, run: MS };
        quota.share(1);
        for resume in [0.0, 1.0, 4e4, 9e6] {
            quota.resume = resume;
            let mut last = 0;
            for from in (0..3 * MS).step_by(7_919) {
                let end = quota.end(from, 1_000);
                assert!(end >= from + 1_000 && end >= last, "{from}: {end} after {last}");
                last = end;
            }
        }
    }
}
