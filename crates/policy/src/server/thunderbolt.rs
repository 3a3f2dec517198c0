//! Thunderbolt (OSDI'20) as PASS's artifact runs it: CPU time is cut at once near the budget and
//! given back in small steps, at random so that many servers do not do so together.
//!
//! A turn takes 1 s. With `q` the share of the cores' time in percent, 0.5 to 100: above 0.98 of
//! the budget `q` becomes a hundredth, above 0.96 three quarters; else it grows by 2 with
//! probability one half.

use super::{io_cores, release, sensed};
use crate::topology::Topology;
use crate::units::{Nanos, Watts};
use crate::{Policy, Request, Signals};

/// Length of a turn.
const TURN: Nanos = Nanos::from_secs(1);
/// Period of the CPU time.
const CPU_PERIOD: Nanos = Nanos::from_millis(100);
/// Lowest and highest `q`.
const RANGE: (f64, f64) = (0.5, 100.0);

/// The controller.
#[derive(Debug, Clone)]
pub struct Thunderbolt {
    /// Of all cores that serve I/O.
    cores: f64,
    q: f64,
    begun: Option<Nanos>,
    /// Of the random steps; the same in each run.
    random: u64,
}

impl Thunderbolt {
    /// The controller at its start: all of the time.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self { cores: io_cores(topology), q: RANGE.1, begun: None, random: 1 }
    }

    fn turn(&mut self, p: Watts, b: Watts) {
        let q = match p.0 {
            p if p > 0.98 * b.0 => self.q * 0.01,
            p if p > 0.96 * b.0 => self.q * 0.75,
            _ if self.heads() => self.q + 2.0,
            _ => self.q,
        };
        self.q = q.clamp(RANGE.0, RANGE.1);
    }

    /// One of two, by Knuth's multiplier (MMIX).
    fn heads(&mut self) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 63 == 1
    }
}

impl Policy for Thunderbolt {
    fn name(&self) -> &'static str {
        "thunderbolt"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let Some((b, p)) = sensed(signals) else { return release(request) };
        let due = self.begun.is_none_or(|begun| signals.now.saturating_sub(begun) >= TURN);
        if let Some(p) = p.filter(|_| due) {
            self.begun = Some(signals.now);
            self.turn(p, b);
        }
        request.cpu_time.ask(0, self.q / 100.0 * self.cores, "thunderbolt:quota");
        request.cpu_period.ask(0, CPU_PERIOD, "thunderbolt:quota");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::testing::server;

    #[test]
    fn time_is_cut_at_once_and_comes_back_in_steps() {
        let mut this = Thunderbolt::new(&server(1));
        this.turn(Watts(291.0), Watts(300.0));
        assert_eq!(this.q, 75.0);
        this.turn(Watts(295.0), Watts(300.0));
        assert_eq!(this.q, 0.75);
        this.turn(Watts(295.0), Watts(300.0));
        assert_eq!(this.q, 0.5);
        let turns = 200;
        let steps: Vec<f64> = (0..turns)
            .map(|_| {
                let before = this.q;
                this.turn(Watts(200.0), Watts(300.0));
                this.q - before
            })
            .collect();
        assert!(steps.iter().all(|step| [0.0, 2.0].contains(step) || this.q == 100.0));
        let half = steps[..40].iter().filter(|step| **step == 2.0).count();
        assert!((10..30).contains(&half), "{half} of 40");
        assert_eq!(this.q, 100.0);
    }

    #[test]
    fn a_turn_takes_a_second() {
        let topology = server(1);
        let mut this = Thunderbolt::new(&topology);
        let (mut signals, mut request) = (Signals::new(&topology), Request::new(&topology));
        (signals.server_budget, signals.power.total) = (Some(Watts(300.0)), Some(Watts(291.0)));
        let mut times = Vec::new();
        for _ in 0..4 {
            signals.now += Nanos::from_millis(500);
            this.step(&signals, &mut request);
            times.push(request.cpu_time.get(0).unwrap());
        }
        assert_eq!(times, [6.0, 6.0, 4.5, 4.5]);
        assert_eq!(request.cpu_period.get(0), Some(CPU_PERIOD));
        signals.server_budget = None;
        this.step(&signals, &mut request);
        assert_eq!(request, Request::new(&topology));
    }
}
