//! What spans of five seconds take, each by itself.
//!
//! The account keeps the mean. `plf` is kept by a verdict where few spans of 5 s are above it, too
//! (`ebb-record`, `verdict.rs`). As for the account, what a span takes more than natively is taken
//! to be in proportion to `1 / s − 1` at a share `s` of the capacity.
//!
//! Nobody knows when the spans of a verdict begin: one is looked at each half second.

use crate::units::Nanos;

/// How long a span is, and how many of them begin within one.
const SPAN: Nanos = Nanos::from_secs(5);
const PARTS: usize = 10;
/// The share of them that may be above `plf`: a fifth of what a verdict allows. Of the 36 spans of
/// three minutes one may be above, and then none or one is in 19 of 20 cases.
const ABOVE: f64 = 0.01;
/// How far the spans of five seconds move what is kept for all.
const STEP: f64 = 0.5;

/// The tenth of a span, or a span.
#[derive(Debug, Clone, Copy)]
struct Part {
    long: Nanos,
    /// Nanoseconds of all requests, and what they take natively: at most, and at least.
    taken: f64,
    natively: [f64; 2],
    capacity: f64,
}

impl Part {
    const NONE: Self = Self { long: Nanos::ZERO, taken: 0.0, natively: [0.0; 2], capacity: 1.0 };

    fn and(self, other: Self) -> Self {
        let [[most, least], [other_most, other_least]] = [self.natively, other.natively];
        Self {
            long: self.long + other.long,
            taken: self.taken + other.taken,
            natively: [most + other_most, least + other_least],
            capacity: self.capacity.min(other.capacity),
        }
    }
}

/// The share of the capacity with which all but a hundredth of the spans keep `plf`.
#[derive(Debug, Clone)]
pub(super) struct Spans {
    open: Part,
    parts: [Part; PARTS],
    next: usize,
    /// What a span takes of `plf` were half of the capacity left: all but a hundredth take less.
    most: f64,
    /// Whether that is what the present spans above `plf` take.
    fresh: bool,
}

impl Spans {
    pub fn new() -> Self {
        Self { open: Part::NONE, parts: [Part::NONE; PARTS], next: 0, most: 0.0, fresh: false }
    }

    /// A period in which requests took `taken` ns in all, natively `most` or `least`, at a
    /// `capacity`. Returns whether a span ends with it that may have been above `plf` and may not.
    pub fn add(
        &mut self,
        long: Nanos,
        (taken, natively): (f64, [f64; 2]),
        capacity: f64,
        plf: f64,
    ) -> bool {
        self.open = self.open.and(Part { long, taken, natively, capacity });
        if self.open.long.0 < SPAN.0 / PARTS as u64 {
            return false;
        }
        self.parts[self.next] = std::mem::replace(&mut self.open, Part::NONE);
        self.next = (self.next + 1) % PARTS;
        let span = self.parts.into_iter().fold(Part::NONE, Part::and);
        if span.long < SPAN {
            return false;
        }
        let [over, may_be] = span.natively.map(|natively| (span.taken / natively - 1.0) / plf);
        if span.capacity < 1.0 {
            let halved = (1.0 / span.capacity - 1.0).recip();
            let step = STEP / PARTS as f64;
            // Where far more was there than is kept, these spans are all that is known.
            self.fresh = over > 1.0 && (self.fresh || 2.0 * self.most <= halved);
            self.most = match over > 1.0 {
                true if self.fresh => self.most.max(over * halved),
                true => self.most * (step * (1.0 - ABOVE)).exp(),
                false => self.most * (-step * ABOVE).exp(),
            };
        }
        over <= 1.0 && may_be > 1.0
    }

    pub fn reserve(&self) -> f64 {
        self.most / (1.0 + self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many spans that each take `over` of `plf` more than natively at a share of the capacity.
    fn add(spans: &mut Spans, count: usize, over: f64, capacity: f64) {
        for _ in 0..10 * count {
            let period = Nanos::from_millis(500);
            spans.add(period, (100.0 * (1.0 + 0.2 * over), [100.0; 2]), capacity, 0.2);
        }
    }

    #[test]
    fn a_span_above_plf_asks_for_more_until_few_are() {
        let mut spans = Spans::new();
        add(&mut spans, 9, 0.9, 0.2);
        assert_eq!(spans.reserve(), 0.0, "none was above");
        let mut native = Spans::new();
        add(&mut native, 9, 1.5, 1.0);
        assert_eq!(native.reserve(), 0.0, "nothing was saved");
        // Half more than is allowed at a fifth of the capacity: more than is allowed at 0.27.
        add(&mut spans, 1, 3.0, 0.2);
        assert!(spans.reserve() > 3.0 / 11.0, "{}", spans.reserve());
    }

    /// However little above they are.
    #[test]
    fn one_span_in_a_hundred_stays_above() {
        for over in [1.05, 3.0] {
            let mut spans = Spans::new();
            add(&mut spans, 9, 0.5, 0.2);
            // As deep as the reserve; above whenever the reserve is less than so much.
            let (mut last, mut above, least) = ([1.0; 10], 0, 0.4);
            for period in 0..60_000 {
                let capacity = spans.reserve().max(0.1);
                let bunch = period % 60 < 15 && capacity < least;
                let taken = 1.0 + 0.2 * if bunch { over } else { 0.5 };
                spans.add(Nanos::from_millis(500), (100.0 * taken, [100.0; 2]), capacity, 0.2);
                last[period % 10] = taken;
                above += usize::from(period > 6000 && last.iter().sum::<f64>() > 12.0);
            }
            let share = above as f64 / 54_000.0;
            assert!((0.005..0.015).contains(&share), "{share} at {over}");
        }
    }

    #[test]
    fn what_was_far_deeper_says_at_once_what_is_needed() {
        let mut spans = Spans::new();
        add(&mut spans, 2, 1.5, 0.2);
        let before = spans.reserve();
        add(&mut spans, 2000, 0.5, 0.2);
        assert!(spans.reserve() < 0.1 * before);
        add(&mut spans, 2, 1.5, 0.2);
        assert!((spans.reserve() - before).abs() < 0.01, "{} {before}", spans.reserve());
    }
}
