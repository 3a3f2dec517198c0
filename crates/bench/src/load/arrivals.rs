//! The open loop: when requests are due, whatever the target does.

use ebb_cli::random::Random;
use ebb_policy::units::Nanos;

use super::args::{Arrival, Burst};

/// How long a burst counts as just begun.
const ONSET: f64 = 10e6;
/// Steps in which a ramp rises.
const STEPS: f64 = 100.0;

/// Requests per second over time.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Between bursts, of all connections together.
    pub rate: f64,
    /// Bursts.
    pub burst: Option<Burst>,
    /// How long the rate takes to rise.
    pub ramp: Nanos,
    /// Kind of gaps.
    pub arrival: Arrival,
}

/// Which part of a schedule a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No burst.
    Between,
    /// The first 10 ms of a burst.
    Onset,
    /// The rest of a burst.
    Burst,
}

/// A time of constant rate.
struct Segment {
    /// Requests per nanosecond.
    rate: f64,
    /// When it ends, in nanoseconds.
    until: f64,
    phase: Phase,
}

impl Schedule {
    fn segment(&self, at: f64) -> Segment {
        let (mut rate, mut until, mut phase) = (self.rate, f64::INFINITY, Phase::Between);
        let ramp = self.ramp.0 as f64;
        if at < ramp {
            let step = (at / ramp * STEPS).floor() + 1.0;
            rate *= step / STEPS;
            until = ramp * step / STEPS;
        }
        if let Some(burst) = self.burst {
            let (length, period) = (burst.length.0 as f64, burst.period.0 as f64);
            let start = (at / period).floor() * period;
            let begins = start + period - length;
            if at < begins {
                until = until.min(begins);
            } else {
                let young = at < begins + ONSET.min(length);
                phase = if young { Phase::Onset } else { Phase::Burst };
                until = if young { begins + ONSET.min(length) } else { start + period };
                rate = burst.rate.0;
            }
        }
        // Rounding must not make a segment end where it begins.
        Segment { rate: rate * 1e-9, until: until.max(at + 1.0), phase }
    }
}

/// One thread's share of a schedule.
#[derive(Debug)]
pub struct Arrivals {
    schedule: Schedule,
    /// Of all requests.
    share: f64,
    random: Random,
    /// When the next request is due, in nanoseconds since the start.
    at: f64,
    phase: Phase,
}

impl Arrivals {
    /// The share of thread `index` of `of`.
    pub fn new(schedule: &Schedule, index: usize, of: usize, seed: u64) -> Self {
        let mut this = Self {
            schedule: schedule.clone(),
            share: 1.0 / of as f64,
            random: Random::new(seed, 0x100 + index as u64),
            at: 0.0,
            phase: Phase::Between,
        };
        // Equal gaps of several threads interleave.
        let first = match schedule.arrival {
            Arrival::Poisson => this.random.gap(),
            Arrival::Constant => (index + 1) as f64 / of as f64,
        };
        this.advance(first);
        this
    }

    /// When the next request is due, since the start, and the part of the schedule it is in.
    pub fn next(&self) -> (Nanos, Phase) {
        (Nanos(self.at as u64), self.phase)
    }

    /// Goes on to the one after.
    pub fn step(&mut self) {
        let gap = match self.schedule.arrival {
            Arrival::Poisson => self.random.gap(),
            Arrival::Constant => 1.0,
        };
        self.advance(gap);
    }

    /// A gap is an amount of load, used up faster where the rate is higher: exact across changes.
    fn advance(&mut self, mut gap: f64) {
        loop {
            let Segment { rate, until, phase } = self.schedule.segment(self.at);
            let rate = rate * self.share;
            let room = if rate > 0.0 { (until - self.at) * rate } else { 0.0 };
            if gap < room {
                self.at += gap / rate;
                self.phase = phase;
                return;
            }
            if until == f64::INFINITY {
                self.at = u64::MAX as f64; // No more.
                return;
            }
            gap -= room;
            self.at = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::args::Rate;

    fn all(schedule: &Schedule, of: usize, until: Nanos) -> Vec<(Nanos, Phase)> {
        let mut all = Vec::new();
        for index in 0..of {
            let mut arrivals = Arrivals::new(schedule, index, of, 7);
            while arrivals.next().0 < until {
                all.push(arrivals.next());
                arrivals.step();
            }
        }
        all.sort_by_key(|(at, _)| *at);
        all
    }

    #[test]
    fn constant_gaps_of_several_threads_interleave() {
        let schedule =
            Schedule { rate: 1000.0, burst: None, ramp: Nanos::ZERO, arrival: Arrival::Constant };
        let times = all(&schedule, 4, Nanos::from_secs(1));
        assert!((999..=1000).contains(&times.len()), "{}", times.len());
        for pair in times.windows(2) {
            assert!((pair[1].0.0 - pair[0].0.0).abs_diff(1_000_000) <= 2, "{pair:?}");
        }
    }

    #[test]
    fn bursts_come_at_the_end_of_each_period_and_rates_hold() {
        let burst = Burst {
            length: Nanos::from_millis(100),
            period: Nanos::from_secs(1),
            rate: Rate(50_000.0),
        };
        let schedule = Schedule {
            rate: 2000.0,
            burst: Some(burst),
            ramp: Nanos::ZERO,
            arrival: Arrival::Poisson,
        };
        let times = all(&schedule, 3, Nanos::from_secs(10));
        for (at, phase) in &times {
            let in_period = at.0 % 1_000_000_000;
            let expected = match in_period {
                0..900_000_000 => Phase::Between,
                900_000_000..910_000_000 => Phase::Onset,
                _ => Phase::Burst,
            };
            assert_eq!(*phase, expected, "{at}");
        }
        let count = |phase| times.iter().filter(|(_, p)| *p == phase).count() as f64;
        assert!((count(Phase::Between) / 18_000.0 - 1.0).abs() < 0.05);
        assert!((count(Phase::Onset) / 5000.0 - 1.0).abs() < 0.08);
        assert!((count(Phase::Burst) / 45_000.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_ramp_rises_and_a_lone_burst_ends() {
        let ramp = Nanos::from_secs(1);
        let schedule = Schedule { rate: 10_000.0, burst: None, ramp, arrival: Arrival::Constant };
        let times = all(&schedule, 1, Nanos::from_secs(2));
        let early = times.iter().filter(|(at, _)| *at < Nanos::from_secs(1)).count();
        assert!((5000..=5100).contains(&early), "{early}");
        assert!((9_900..=10_100).contains(&(times.len() - early)));
    }
}
