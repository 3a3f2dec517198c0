//! Burst-Check and Idle-Check of the Workload Analyzer (§IV-B), once per 500 ms period.

use crate::cpu::pacer::PacerParams;
use crate::cpu::pacer::window::{completions, utilisation};
use crate::topology::Topology;
use crate::units::Nanos;
use crate::{IoSignals, Signals};

/// Looks for bursts shorter than the Stability-Check's windows.
#[derive(Debug, Clone)]
pub(super) struct BurstCheck {
    thresh: f64,
    requests: u64,
    utilisation: f64,
    /// Requests were in flight at the end of the last period.
    waiting: bool,
}

impl BurstCheck {
    pub fn new(params: &PacerParams) -> Self {
        Self {
            thresh: params.burst_thresh,
            requests: params.burst_requests,
            utilisation: params.burst_utilisation,
            waiting: false,
        }
    }

    /// The reason, if this period shows a burst. `reference` is the latency to diverge from, in
    /// ns: the most that `plf` allows, so that a change of PACER's own within `plf` is not taken
    /// for a burst. To be called in every period.
    pub fn check(
        &mut self,
        signals: &Signals,
        topology: &Topology,
        reference: f64,
    ) -> Option<&'static str> {
        let waited = std::mem::replace(&mut self.waiting, signals.io.in_flight > Some(0));
        let limit = reference * (1.0 + self.thresh);
        if self.busy(signals, topology) {
            return Some("pacer:burst-utilisation");
        }
        match completions(&signals.io)? {
            // What was in flight has now waited for all of the period.
            (0, _) if waited && signals.period.0 as f64 > limit => Some("pacer:burst-stall"),
            (n, latency) if n >= self.requests.max(1) && latency > limit => {
                Some("pacer:burst-latency")
            }
            _ => None,
        }
    }

    /// The utilisation of a core group that serves I/O surpasses 80 %.
    pub fn busy(&self, signals: &Signals, topology: &Topology) -> bool {
        let groups = topology.io_groups().filter_map(|g| signals.groups.get(g));
        groups.filter_map(utilisation).any(|u| u > self.utilisation)
    }
}

/// Counts the time without user requests.
#[derive(Debug, Clone)]
pub(super) struct IdleCheck {
    after: Nanos,
    quiet: Nanos,
    /// How long it was quiet the last time.
    before: Nanos,
}

impl IdleCheck {
    pub fn new(params: &PacerParams) -> Self {
        Self { after: params.idle_after, quiet: Nanos::ZERO, before: Nanos::ZERO }
    }

    /// True once no request has come for long enough. Only known silence counts.
    pub fn check(&mut self, io: &IoSignals, period: Nanos) -> bool {
        let silent = io.arrived == Some(0) && io.in_flight.is_none_or(|n| n == 0);
        if !silent && self.quiet > Nanos::ZERO {
            self.before = self.quiet;
        }
        self.quiet = if silent { self.quiet + period } else { Nanos::ZERO };
        self.quiet >= self.after
    }

    /// Whether no request has been there for so long, or for a fifth of it after a silence as long.
    pub fn silent(&self, long: Nanos) -> bool {
        self.quiet >= if self.before >= long { Nanos(long.0 / 5) } else { long }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupSignals;
    use crate::topology::{CoreRole, GroupSpec};

    fn topology() -> Topology {
        let role = CoreRole::FrontEnd;
        let group = GroupSpec { role, cores: 8, min_cores: 1, socket: None };
        Topology { groups: vec![group; 2], ..Topology::default() }
    }

    fn signals(completed: Option<u64>, micros: u64, u: f64) -> Signals {
        let mean_latency = completed.filter(|n| *n > 0).map(|_| Nanos::from_micros(micros));
        let group = GroupSignals { utilisation: Some(u), ..GroupSignals::default() };
        Signals {
            period: Nanos::from_millis(500),
            io: IoSignals { completed, mean_latency, ..IoSignals::default() },
            groups: vec![GroupSignals::default(), group],
            ..Signals::default()
        }
    }

    #[test]
    fn latency_or_utilisation_is_a_burst() {
        let mut check = BurstCheck::new(&PacerParams::default());
        let mut reason = |s: Signals| check.check(&s, &topology(), 100_000.0);
        assert_eq!(reason(signals(Some(100), 199, 0.8)), None);
        assert_eq!(reason(signals(Some(100), 201, 0.8)), Some("pacer:burst-latency"));
        assert_eq!(reason(signals(Some(19), 900, 0.1)), None, "too few to tell");
        assert_eq!(reason(signals(Some(100), 100, 0.81)), Some("pacer:burst-utilisation"));
        assert_eq!(reason(signals(None, 0, 0.5)), None);
        assert_eq!(reason(signals(None, 0, 0.9)), Some("pacer:burst-utilisation"));
        assert_eq!(reason(signals(Some(100), 100, f64::NAN)), None);
    }

    #[test]
    fn requests_that_wait_for_a_whole_period_are_a_burst() {
        let mut check = BurstCheck::new(&PacerParams::default());
        let mut stuck = signals(Some(0), 0, 0.1);
        stuck.io.in_flight = Some(3);
        assert_eq!(
            check.check(&stuck, &topology(), 100_000.0),
            None,
            "they may have come just now"
        );
        assert_eq!(check.check(&stuck, &topology(), 100_000.0), Some("pacer:burst-stall"));
        assert_eq!(check.check(&stuck, &topology(), 400e6), None, "slow drives: nothing unusual");
    }

    #[test]
    fn a_silence_is_taken_for_one_sooner_where_the_last_was_one() {
        let mut check = IdleCheck::new(&PacerParams::default());
        let (period, long) = (Nanos::from_millis(500), Nanos::from_secs(5));
        let io = |arrived| IoSignals { arrived: Some(arrived), ..IoSignals::default() };
        let mut after = |periods| {
            check.check(&io(1), period);
            (1..=periods).find(|_| {
                check.check(&io(0), period);
                check.silent(long)
            })
        };
        assert_eq!(after(4), None);
        assert_eq!(after(20), Some(10));
        assert_eq!(after(1), None);
        assert_eq!(after(20), Some(10), "the last was brief");
        assert_eq!(after(20), Some(2));
    }

    #[test]
    fn idle_after_thirty_seconds_of_known_silence() {
        let mut check = IdleCheck::new(&PacerParams::default());
        let period = Nanos::from_millis(500);
        let io = |arrived| IoSignals { arrived, ..IoSignals::default() };
        let after =
            |check: &mut IdleCheck, limit| (1..=limit).find(|_| check.check(&io(Some(0)), period));
        assert_eq!(after(&mut check, 100), Some(60));
        assert!(!check.check(&io(Some(1)), period));
        assert_eq!(after(&mut check, 59), None);
        assert!(!check.check(&io(None), period), "not knowing is not silence");
        assert_eq!(after(&mut check, 100), Some(60));
        let stuck = IoSignals { in_flight: Some(1), ..io(Some(0)) };
        assert!(!check.check(&stuck, period));
    }
}
