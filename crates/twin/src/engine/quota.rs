//! CPU time that the stages have together: their threads run until a period's share is used up,
//! then all stand still to the end of the period (`cpu.max` of a control group).

use crate::profile::Cpu;

/// Length of a period, ns: the kernel's default.
const PERIOD: u64 = 100_000_000;

/// The share of each period in which the cores of the stages run.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    /// Core time in a period; `None` is no limit.
    time: Option<f64>,
    /// Time after a stop in which cores serve at half their pace.
    resume: u64,
    /// How long cores run in each period.
    run: u64,
    /// Service that is lost by the slow beginning of it.
    lost: u64,
}

impl Quota {
    pub(super) fn new(cpu: &Cpu) -> Self {
        let time = cpu.quota.map(|cores| cores * PERIOD as f64);
        Self { time, resume: cpu.resume.0, run: PERIOD, lost: 0 }
    }

    /// Whether there is any limit.
    pub(super) const fn limits(&self) -> bool {
        self.time.is_some()
    }

    /// So many cores run from now on.
    pub(super) fn share(&mut self, cores: usize) {
        let Some(time) = self.time else { return };
        self.run = ((time / cores.max(1) as f64) as u64).clamp(2, PERIOD);
        // What is not used up does not stop.
        self.lost = if self.run == PERIOD { 0 } else { self.resume.min(self.run) / 2 };
    }

    /// When work of `service` ns that may start at `from` ends.
    pub(super) fn end(&self, from: u64, service: u64) -> u64 {
        if self.run == PERIOD {
            return from + service;
        }
        let served = self.run - self.lost;
        let place = (from % PERIOD).min(self.run);
        let before = place - (place / 2).min(self.lost);
        let last = (before + service).saturating_sub(1);
        let (periods, rest) = (last / served, last % served + 1);
        ((from / PERIOD + periods) * PERIOD + rest + rest.min(self.lost)).max(from + service)
    }

    /// How long cores run between two times.
    pub(super) fn running(&self, from: u64, to: u64) -> u64 {
        let until = |at: u64| at / PERIOD * self.run + (at % PERIOD).min(self.run);
        until(to) - until(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_goes_on_in_the_share_of_each_period_that_is_left() {
        // A quarter of a core's time on one core; the first 6 ms of each 25 serve as much as 3.
        let mut quota =
            Quota { time: Some(25.0 * MS as f64), resume: 6 * MS, run: PERIOD, lost: 0 };
        quota.share(1);
        assert_eq!(quota.end(10 * MS, 5 * MS), 15 * MS);
        assert_eq!(quota.end(2 * MS, 4 * MS), 8 * MS, "2 ms of it at half the pace");
        assert_eq!(quota.end(24 * MS, 2 * MS), 102 * MS, "1 ms before and 1 ms after the stop");
        assert_eq!(quota.end(60 * MS, MS), 102 * MS, "waits for the next period");
        assert_eq!(quota.end(0, 44 * MS), 125 * MS, "two whole runs");
        assert_eq!(quota.running(20 * MS, 110 * MS), 15 * MS);
        // Two cores use it up in half the time.
        quota.share(2);
        assert_eq!(quota.running(0, PERIOD), 25 * MS / 2);
        // Enough for both: no stop.
        let mut ample = Quota { time: Some(2.0 * PERIOD as f64), ..quota };
        ample.share(2);
        assert_eq!(ample.end(95 * MS, 10 * MS), 105 * MS);
        assert_eq!(ample.running(95 * MS, 105 * MS), 10 * MS);
    }
}
