//! Work that nobody waits for (*best effort*): what it does, and what it may fill.

use super::cpu::Load;
use super::{LARGE, USED_UP, WORTH};
use crate::units::Nanos;

/// For so long best effort leaves a part of what it has filled.
const FULL: Nanos = Nanos::from_secs(300);

/// All of it together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    pub(super) load: Load,
    /// The most that it moved.
    peak: f64,
    /// Whether it moved as much as ever in the last turn, and less than it might.
    fills: bool,
    /// What it may move so that users find room in what it has filled, and until when.
    pub(super) ceiling: f64,
    until: Nanos,
}

impl Default for Rest {
    fn default() -> Self {
        let load = Load { size: LARGE, ..Load::default() };
        let (peak, fills, until) = (0.0, false, Nanos::ZERO);
        Self { load, peak, fills, ceiling: f64::INFINITY, until }
    }
}

impl Rest {
    /// Takes in the requests and bytes of the turn of `span` seconds that ends `now`, in which it
    /// might move `lent` bytes a second; `None` without a limit.
    pub(super) fn learn(&mut self, done: (u64, u64), lent: Option<f64>, span: f64, now: Nanos) {
        self.load.learn(done, span);
        if self.ceiling < f64::INFINITY && now >= self.until {
            (self.peak, self.ceiling) = (0.0, f64::INFINITY);
        }
        // Twice in a row as much as ever, and less than it may: something else than its limit is
        // full, such as the network or a drive, and users wait for that. What has not begun fills
        // nothing.
        let moved = self.load.bytes;
        let most = USED_UP * self.peak..=self.peak / USED_UP;
        let is_most = moved > 0.0 && most.contains(&moved);
        let fills = is_most && lent.is_some_and(|lent| moved < (1.0 - WORTH) * lent);
        if std::mem::replace(&mut self.fills, fills) && fills {
            (self.ceiling, self.until) = (USED_UP * moved, now + FULL);
        }
        self.peak = self.peak.max(moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_fills_it_leaves_a_part_of_for_a_while() {
        let (mut rest, mut now) = (Rest::default(), Nanos::ZERO);
        let mut turn = |lent: f64, moved: f64| {
            now += Nanos::from_millis(500);
            rest.learn((1, (moved / 2.0) as u64), Some(lent), 0.5, now);
            rest.ceiling
        };
        let none = f64::INFINITY;
        assert_eq!([0; 4].map(|_| turn(1e9, 0.0)), [none; 4], "it has not begun");
        // It grows as its limit does, once less than that: nothing is full.
        for (lent, moved) in [(0.0, 1e8), (3e9, 1e9), (2e9, 2e9), (4e9, 4e9), (8e9, 8e9)] {
            assert_eq!(turn(lent, moved), none);
        }
        // What needs less than it did fills nothing.
        assert_eq!((turn(8e9, 1e9), turn(8e9, 1e9), turn(8e9, 8e9)), (none, none, none));
        // No more than 9 GB/s, whatever it may.
        assert_eq!((turn(16e9, 9e9), turn(18e9, 9e9)), (none, none));
        assert_eq!(turn(18e9, 9e9), 0.9 * 9e9);
        for _ in 0..599 {
            assert_eq!(turn(0.9 * 9e9, 0.9 * 9e9), 0.9 * 9e9);
        }
        assert_eq!(turn(0.9 * 9e9, 0.9 * 9e9), none, "after five minutes it tries again");
    }
}
