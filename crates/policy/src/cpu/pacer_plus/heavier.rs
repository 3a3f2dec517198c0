//! What requests take with everything on where the load is heavier than the baseline's.
//!
//! Requests queue the more the heavier the load is, whatever is saved. What a jump of the load took
//! can be told from what the saving took only when the load has jumped with everything on, too.

use super::AGE;
use crate::cpu::pacer::LEARNING_SHARE;
use crate::units::Nanos;

/// Periods that wait for that.
const WAITING: usize = 16;

/// By which share more requests are another load, as where PACER becomes Unstable.
const MORE: f64 = 0.25;

/// A period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    /// Requests, and what they took on average, in ns.
    pub n: f64,
    pub l: f64,
    /// The baseline, and the requests of a period of its load.
    pub l_baseline: f64,
    pub n_baseline: f64,
    /// Capacity that was there, as a share of all.
    pub capacity: f64,
}

impl Period {
    /// Whether the load is heavier than the baseline's.
    pub fn heavier(&self) -> bool {
        self.n > self.n_baseline * (1.0 + MORE)
    }
}

/// Latency under the heavier load, and the periods that are not judged yet.
#[derive(Debug, Clone)]
pub(super) struct Heavier {
    /// Heavier periods with everything on, their requests and the latencies of these, summed.
    periods: f64,
    requests: f64,
    latencies: f64,
    /// Whether all that a saving has left waiting is gone.
    pub clean: bool,
    /// Until when everything stays on for such a load, and when it may again.
    sought: Nanos,
    again: Nanos,
    waiting: Vec<Period>,
}

impl Heavier {
    pub fn new() -> Self {
        let waiting = Vec::with_capacity(WAITING);
        let (sought, again) = (Nanos::ZERO, Nanos::ZERO);
        Self { periods: 0.0, requests: 0.0, latencies: 0.0, clean: true, sought, again, waiting }
    }

    pub fn fade(&mut self, by: f64) {
        self.periods *= by;
        self.requests *= by;
        self.latencies *= by;
    }

    /// A heavier period with everything on and nothing left waiting before it.
    pub fn learn(&mut self, n: f64, l: f64) {
        self.periods += 1.0;
        self.requests += n;
        self.latencies += n * l;
    }

    /// Whether what requests take with everything on is known of such a load.
    pub fn knows(&self, of: &Period) -> bool {
        self.periods > 0.0 || !of.heavier()
    }

    /// Seconds may have been above `plf` for such a load, of which nothing is known: everything
    /// stays on until it has come once more, but no longer than a baseline lives, and a tenth of
    /// the time at most.
    pub fn seek(&mut self, now: Nanos) {
        if now >= self.again {
            (self.sought, self.again) = (now + AGE, now + Nanos(AGE.0 * LEARNING_SHARE));
        }
    }

    /// Whether everything is to stay on for that.
    pub fn is_sought(&self, now: Nanos) -> bool {
        self.periods == 0.0 && now < self.sought
    }

    /// A period under a saving: kept if it is a heavier one that cannot be judged yet. Returns what
    /// must be judged now.
    pub fn wait(&mut self, period: Period) -> Option<Period> {
        if self.knows(&period) {
            return Some(period);
        }
        let first = (self.waiting.len() == WAITING).then(|| self.waiting.remove(0));
        self.waiting.push(period);
        first
    }

    /// A period that has waited and can be judged now.
    pub fn judged(&mut self) -> Option<Period> {
        if self.periods > 0.0 { self.waiting.pop() } else { None }
    }

    pub fn waiting(&self) -> impl Iterator<Item = &Period> {
        self.waiting.iter()
    }

    /// Latency in such a period with everything on; the baseline before that is known. Where the
    /// load lies between the baseline's and the heavier one, so do the requests in flight: the load
    /// has jumped within the period.
    pub fn latency(&self, of: &Period) -> f64 {
        let (n, in_flight) = (self.requests / self.periods, self.latencies / self.periods);
        let base = of.n_baseline * of.l_baseline;
        let share = (of.n - of.n_baseline) / (n - of.n_baseline);
        match of.heavier() && self.periods > 0.0 && n > of.n_baseline {
            false => of.l_baseline,
            true if share < 1.0 => ((base + (in_flight - base) * share) / of.n).max(of.l_baseline),
            true => (in_flight / n).max(of.l_baseline),
        }
    }
}
