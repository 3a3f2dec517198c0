//! What the first requests after a silence take.
//!
//! The account pays for a burst out of what others left. The seconds of that burst are judged by
//! themselves: what it takes on the cores that a silence has left must be within `plf`, too. As for
//! the account, that is taken to be in proportion to `1 / s − 1` at a share `s` of the capacity.

/// The burst that took most of what it was allowed, were half of the capacity left.
#[derive(Debug, Clone, Default)]
pub(super) struct Wakes {
    worst: f64,
}

impl Wakes {
    /// The first requests after a silence took `more` than natively, as a share of what they may,
    /// at this `capacity`.
    pub fn add(&mut self, more: f64, capacity: f64) {
        if capacity < 1.0 {
            self.worst = self.worst.max(more / (1.0 / capacity - 1.0));
        }
    }

    pub fn fade(&mut self, by: f64) {
        self.worst *= by;
    }

    /// The share of the capacity with which such a burst keeps `plf`.
    pub fn reserve(&self) -> f64 {
        self.worst / (1.0 + self.worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_burst_as_bad_keeps_plf() {
        let mut wakes = Wakes::default();
        assert_eq!(wakes.reserve(), 0.0);
        // Twice what is allowed at a fifth of the capacity: as much as is allowed at a third.
        wakes.add(2.0, 0.2);
        assert!((wakes.reserve() - 1.0 / 3.0).abs() < 1e-9, "{}", wakes.reserve());
        for (more, capacity) in [(0.5, 0.4), (-1.0, 0.1), (5.0, 1.0)] {
            wakes.add(more, capacity);
            assert!((wakes.reserve() - 1.0 / 3.0).abs() < 1e-9, "{more} at {capacity}");
        }
        wakes.fade(0.5);
        assert!((wakes.reserve() - 0.2).abs() < 1e-9);
    }
}
