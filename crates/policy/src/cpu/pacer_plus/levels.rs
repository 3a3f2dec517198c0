//! What requests take natively, with everything on, by load.
//!
//! Requests queue the more the heavier the load is, and idle cores sleep the deeper the lighter it
//! is, whatever is saved. So the native latency is kept by *level*, by requests and bytes per
//! second, of reads and writes apart: a load that comes back is known at once.

use crate::units::Nanos;
use crate::{IoSignals, Signals};

/// Levels that are kept; the oldest gives way to a new one.
const LEVELS: usize = 32;

/// What came in a period, and what it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    pub now: Nanos,
    /// Requests, and what they took on average, in ns.
    pub n: f64,
    pub l: f64,
    /// The same of reads and of writes, where they are known apart.
    ops: [(f64, f64); 2],
    /// Requests and bytes per second. What arrives and has to wait counts.
    load: [f64; 2],
    /// Capacity that was there, as a share of all.
    pub capacity: f64,
}

impl Period {
    /// `None` if nothing was completed.
    pub fn of(signals: &Signals, capacity: f64) -> Option<Self> {
        let IoSignals { completed: Some(n @ 1..), mean_latency: Some(l), .. } = signals.io else {
            return None;
        };
        let op = |n: Option<u64>, l: Option<Nanos>| match (n, l) {
            (Some(n), Some(l)) => (n as f64, l.0 as f64),
            _ => (0.0, 0.0),
        };
        let io = &signals.io;
        let count = [io.completed.max(io.arrived), io.bytes].map(|n| n.unwrap_or(0) as f64);
        Some(Self {
            now: signals.now,
            n: n as f64,
            l: l.0 as f64,
            ops: [io.reads, io.writes].map(|of| op(of.completed, of.mean_latency)),
            load: count.map(|n| n / signals.period.seconds()),
            capacity,
        })
    }
}

/// A load and its latency.
#[derive(Debug, Clone, Copy)]
struct Level {
    load: [f64; 2],
    /// Mean latency in ns, of all requests and of reads and writes; 0 where it is not known.
    all: f64,
    ops: [f64; 2],
    /// Periods with everything on that it is of; none if it is only a bound.
    periods: usize,
    at: Nanos,
}

impl Level {
    /// By how much the load differs from another, as a logarithm.
    fn apart(&self, load: &[f64; 2]) -> f64 {
        let apart = |i: usize| (self.load[i].max(1.0) / load[i].max(1.0)).ln().abs();
        apart(0).max(apart(1))
    }

    /// The latency of such a mix of reads and writes.
    fn mixed(&self, of: &Period) -> f64 {
        let [(reads, _), (writes, _)] = of.ops;
        let apart = |op: usize| of.ops[op].0 == 0.0 || self.ops[op] > 0.0;
        match reads + writes > 0.0 && apart(0) && apart(1) {
            true => (reads * self.ops[0] + writes * self.ops[1]) / (reads + writes),
            false => self.all,
        }
    }

    fn take(&mut self, period: &Period, weight: f64) {
        self.all += (period.l - self.all) * weight;
        for (own, (n, l)) in self.ops.iter_mut().zip(period.ops) {
            if n > 0.0 {
                *own += (l - *own) * if *own > 0.0 { weight } else { 1.0 };
            }
        }
    }
}

/// The levels.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    levels: Vec<Level>,
    /// As a logarithm, how far loads may be apart to be the same.
    same: f64,
    /// Periods by which a level is known, and for how long.
    periods: usize,
    age: Nanos,
}

impl Levels {
    pub fn new(same: f64, periods: usize, age: Nanos) -> Self {
        Self { levels: Vec::with_capacity(LEVELS), same: (1.0 + same).ln(), periods, age }
    }

    fn closest(&self, load: &[f64; 2], among: impl Fn(&Level) -> bool) -> Option<usize> {
        let apart = |i: &usize| self.levels[*i].apart(load);
        let found = (0..self.levels.len()).filter(|i| among(&self.levels[*i]));
        found.min_by(|a, b| apart(a).total_cmp(&apart(b)))
    }

    fn find(&self, load: &[f64; 2]) -> Option<usize> {
        self.closest(load, |level| level.apart(load) <= self.same)
    }

    /// The level of this period's load, a new one if there is none.
    fn level(&mut self, period: &Period) -> &mut Level {
        let Period { load, now: at, .. } = *period;
        let i = self.find(&load).unwrap_or_else(|| {
            let ops = period.ops.map(|(_, l)| l);
            let new = Level { load, all: period.l, ops, periods: 0, at };
            if self.levels.len() < LEVELS {
                self.levels.push(new);
                return self.levels.len() - 1;
            }
            let oldest = (0..LEVELS).min_by_key(|i| self.levels[*i].at).unwrap_or(0);
            self.levels[oldest] = new;
            oldest
        });
        &mut self.levels[i]
    }

    /// A period with everything on, and nothing left waiting before it.
    pub fn learn(&mut self, period: &Period) {
        let (age, most) = (self.age, self.periods);
        let level = self.level(period);
        if period.now.saturating_sub(level.at) > age {
            level.periods = 0;
        }
        level.periods = (level.periods + 1).min(most);
        level.at = period.now;
        level.take(period, 1.0 / level.periods as f64);
    }

    /// A period under a saving, which makes no request faster.
    pub fn bound(&mut self, period: &Period) {
        if !self.known(period) && self.latency(period).is_some_and(|l| period.l < l) {
            let weight = 1.0 / self.periods as f64;
            self.level(period).take(period, weight);
        }
    }

    /// Whether the native latency of this load was seen, and lately.
    pub fn known(&self, of: &Period) -> bool {
        self.find(&of.load).map(|i| &self.levels[i]).is_some_and(|level| {
            level.periods >= self.periods && of.now.saturating_sub(level.at) <= self.age
        })
    }

    /// Native latency in ns: of a load that is not known, the lower one of its neighbours'.
    pub fn latency(&self, of: &Period) -> Option<f64> {
        let found = self.find(&of.load).map(|i| self.levels[i].mixed(of));
        found.or_else(|| {
            let sides = [self.beside(of, true), self.beside(of, false)];
            sides.into_iter().flatten().map(|level| level.mixed(of)).reduce(f64::min)
        })
    }

    fn beside(&self, of: &Period, lighter: bool) -> Option<&Level> {
        let side = |level: &Level| (level.load[0] <= of.load[0]) == lighter;
        self.closest(&of.load, side).map(|i| &self.levels[i])
    }

    /// The same in hindsight: a load between two levels is taken for a mixture of both, as in a
    /// period in which it jumped, and so are the requests in flight. `None` if it is heavier than
    /// any that was seen natively.
    pub fn judged(&self, of: &Period) -> Option<f64> {
        if self.find(&of.load).is_some_and(|i| self.levels[i].periods > 0) {
            return self.latency(of);
        }
        let heavier = self.beside(of, false).filter(|level| level.periods > 0)?;
        let Some(lighter) = self.beside(of, true) else { return self.latency(of) };
        let (low, high, rate) = (lighter.load[0], heavier.load[0], of.load[0]);
        let (from, to) = (low * lighter.mixed(of), high * heavier.mixed(of));
        let in_flight = from + (to - from) * (rate - low) / (high - low);
        Some((in_flight / rate).max(self.latency(of)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Nanos = Nanos::from_secs(60);

    /// A period with so many requests of 8 KiB, half of them reads.
    fn period(second: u64, n: u64, micros: f64) -> Period {
        let mut signals = Signals { now: Nanos::from_secs(second), ..Signals::default() };
        signals.period = crate::PERIOD;
        signals.io.completed = Some(n);
        signals.io.bytes = Some(n * 8192);
        signals.io.mean_latency = Some(Nanos::from_seconds(micros * 1e-6));
        for (op, share) in [(&mut signals.io.reads, 1.5), (&mut signals.io.writes, 0.5)] {
            op.completed = Some(n / 2);
            op.mean_latency = Some(Nanos::from_seconds(micros * share * 1e-6));
        }
        Period::of(&signals, 1.0).unwrap()
    }

    fn levels(seen: &[(u64, f64)]) -> Levels {
        let mut levels = Levels::new(0.25, 3, AGE);
        for (n, micros) in seen {
            (0..3).for_each(|_| levels.learn(&period(0, *n, *micros)));
        }
        levels
    }

    #[test]
    fn a_load_that_comes_back_is_known_until_it_is_old() {
        let mut levels = levels(&[(1000, 100.0), (4000, 300.0)]);
        for (n, micros) in [(1000, 100.0), (1200, 100.0), (4000, 300.0)] {
            let back = period(60, n, 0.5);
            assert_eq!((levels.known(&back), levels.latency(&back)), (true, Some(micros * 1e3)));
        }
        assert!(!levels.known(&period(60, 2000, 0.5)));
        assert!(!levels.known(&period(61, 1000, 0.5)));
        levels.learn(&period(61, 1000, 150.0));
        assert!(!levels.known(&period(61, 1000, 0.5)), "to be learned anew");
        assert_eq!(levels.latency(&period(61, 1000, 0.5)), Some(150e3));
    }

    #[test]
    fn larger_requests_are_another_load() {
        let levels = levels(&[(1000, 100.0)]);
        let mut larger = period(0, 1000, 100.0);
        larger.load[1] *= 2.0;
        assert!(!levels.known(&larger));
    }

    #[test]
    fn the_latency_is_that_of_the_present_mix() {
        let levels = levels(&[(1000, 100.0)]);
        let mut reads = period(0, 1000, 100.0);
        reads.ops[1].0 = 0.0;
        assert_eq!(levels.latency(&reads), Some(150e3));
    }

    #[test]
    fn an_unknown_load_has_the_lower_latency_of_its_neighbours_but_is_judged_as_a_mixture() {
        let levels = levels(&[(1000, 300.0), (4000, 200.0)]);
        assert_eq!(levels.latency(&period(0, 2000, 0.5)), Some(200e3));
        let mixed = levels.judged(&period(0, 2000, 0.5)).unwrap();
        assert!((mixed / 233e3 - 1.0).abs() < 0.01, "{mixed}");
        assert_eq!(levels.judged(&period(0, 500, 0.5)), Some(300e3));
        assert_eq!(levels.judged(&period(0, 8000, 0.5)), None, "heavier than any");
    }

    #[test]
    fn a_saving_shows_a_bound_of_an_unknown_load_only() {
        let mut levels = levels(&[(1000, 100.0)]);
        levels.bound(&period(0, 1000, 70.0));
        assert_eq!(levels.latency(&period(0, 1000, 0.5)), Some(100e3));
        levels.bound(&period(0, 2000, 130.0));
        assert_eq!(levels.latency(&period(0, 2000, 0.5)), Some(100e3));
        levels.bound(&period(0, 2000, 70.0));
        assert_eq!(levels.latency(&period(0, 2000, 0.5)), Some(70e3));
        assert!(!levels.known(&period(0, 2000, 0.5)));
    }

    #[test]
    fn the_oldest_level_gives_way() {
        let mut levels = Levels::new(0.25, 3, AGE);
        let size = levels.levels.capacity();
        for second in 0..2 * LEVELS as u64 {
            levels.learn(&period(second, 1.3_f64.powi(second as i32 + 9) as u64, 100.0));
        }
        assert_eq!((levels.levels.len(), levels.levels.capacity()), (LEVELS, size));
    }
}
