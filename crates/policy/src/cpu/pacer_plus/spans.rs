//! What spans of five seconds take, each by itself.
//!
//! The account keeps the mean. `plf` is kept by a verdict where few spans of 5 s are above it, too
//! (`ebb-record`, `verdict.rs`). As for the account, what a span takes more than natively is taken
//! to be in proportion to `1 / s − 1` at a share `s` of the capacity.

use crate::units::Nanos;

/// How long a span is, and the share of them that may be above `plf`: half of what a verdict
/// allows.
const SPAN: Nanos = Nanos::from_secs(5);
const ABOVE: f64 = 0.025;
/// How far one span moves what is kept for all.
const STEP: f64 = 0.5;

/// The share of the capacity with which all but a fortieth of the spans keep `plf`.
#[derive(Debug, Clone)]
pub(super) struct Spans {
    long: Nanos,
    /// Nanoseconds of all requests, and what they take natively: at most, and at least.
    taken: f64,
    natively: [f64; 2],
    capacity: f64,
    /// What a span takes of `plf` were half of the capacity left: all but a fortieth take less.
    most: f64,
}

impl Spans {
    pub fn new() -> Self {
        Self { long: Nanos::ZERO, taken: 0.0, natively: [0.0; 2], capacity: 1.0, most: 0.0 }
    }

    /// A period in which requests took `taken` ns in all, natively `most` or `least`, at a
    /// `capacity`. Returns whether a span ends with it that may have been above `plf` and may not.
    pub fn add(
        &mut self,
        period: Nanos,
        (taken, [most, least]): (f64, [f64; 2]),
        capacity: f64,
        plf: f64,
    ) -> bool {
        self.long += period;
        self.taken += taken;
        self.natively[0] += most;
        self.natively[1] += least;
        self.capacity = self.capacity.min(capacity);
        if self.long < SPAN {
            return false;
        }
        let [over, may_be] = self.natively.map(|natively| (self.taken / natively - 1.0) / plf);
        if self.capacity < 1.0 {
            let halved = (1.0 / self.capacity - 1.0).recip();
            // Where far more was there than is kept, this span is all that is known.
            let is_known = 2.0 * self.most > halved;
            let up = if is_known { self.most * (STEP * (1.0 - ABOVE)).exp() } else { f64::MAX };
            self.most = match over > 1.0 {
                true => self.most.max((over * halved).min(up)),
                false => self.most * (-STEP * ABOVE).exp(),
            };
        }
        *self = Self { most: self.most, ..Self::new() };
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
        add(&mut spans, 9, 1.5, 1.0);
        assert_eq!(spans.reserve(), 0.0, "nothing was saved");
        // Half more than is allowed at a fifth of the capacity: as much as is allowed at 0.27.
        add(&mut spans, 1, 1.5, 0.2);
        assert!((spans.reserve() - 3.0 / 11.0).abs() < 1e-9, "{}", spans.reserve());
        let before = spans.reserve();
        for _ in 0..9 {
            add(&mut spans, 1, 9.0, 0.2);
            add(&mut spans, 39, 0.5, 0.2);
        }
        assert!(
            (spans.reserve() - before).abs() < 0.1 * before,
            "one in forty: {}",
            spans.reserve()
        );
        add(&mut spans, 399, 0.5, 0.2);
        assert!(spans.reserve() < 0.1 * before);
        // However long ago that was.
        add(&mut spans, 1, 1.5, 0.2);
        assert!((spans.reserve() - before).abs() < 1e-9, "{}", spans.reserve());
    }
}
