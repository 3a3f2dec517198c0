//! The native latency of reads and of writes by their mean size, as far as it was learned, so that
//! a load whose mix or sizes change is still compared with what *it* takes with everything on.

use crate::cpu::pacer::window::Ops;

/// Sizes that differ by this factor and less are one.
const ALIKE: f64 = 1.5;
/// Sizes that are remembered of reads, and of writes; the oldest goes.
const SIZES: usize = 4;

/// What was learned of reads and of writes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kinds {
    /// Mean latency in ns of all requests, for reads or writes of which nothing is known.
    all: f64,
    sizes: [Sizes; 2],
}

/// Mean sizes in bytes, and the latency in ns of each.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    points: [Option<(f64, f64)>; SIZES],
    oldest: usize,
}

impl Kinds {
    /// With everything on, all requests took `l_avg`, and reads and writes what `ops` says.
    pub fn learn(&mut self, l_avg: f64, ops: &Ops) {
        self.all = l_avg;
        for (op, sizes) in self.sizes.iter_mut().enumerate() {
            if let Some(latency) = ops.mean(op) {
                sizes.learn(ops.size(op), latency);
            }
        }
    }

    /// Whether reads and writes of such sizes were learned, or of smaller and larger ones.
    pub fn knows(&self, ops: &Ops) -> bool {
        (0..2).all(|op| ops.number[op] == 0.0 || self.sizes[op].knows(ops.size(op)))
    }

    /// The mean latency of `ops` with everything on; `None` where reads and writes are not known
    /// apart.
    pub fn expected(&self, ops: &Ops) -> Option<f64> {
        let number = ops.number[0] + ops.number[1];
        let one = |op: usize| {
            let latency = || self.sizes[op].expected(ops.size(op)).unwrap_or(self.all);
            if ops.number[op] > 0.0 { ops.number[op] * latency() } else { 0.0 }
        };
        (number > 0.0 && self.all > 0.0).then(|| (one(0) + one(1)) / number)
    }
}

impl Sizes {
    fn learn(&mut self, size: f64, latency: f64) {
        let is_alike = |point: &&mut (f64, f64)| point.0.max(size) <= ALIKE * point.0.min(size);
        if let Some(point) = self.points.iter_mut().flatten().find(is_alike) {
            *point = (size, latency);
        } else {
            self.points[self.oldest] = Some((size, latency));
            self.oldest = (self.oldest + 1) % SIZES;
        }
    }

    fn knows(&self, size: f64) -> bool {
        let known = || self.points.iter().flatten().map(|point| point.0);
        known().any(|at| at <= ALIKE * size) && known().any(|at| size <= ALIKE * at)
    }

    /// Between two sizes in proportion. Larger ones take no less than the largest known, smaller
    /// ones no less than their share of the smallest: what turns out slower is learned.
    fn expected(&self, size: f64) -> Option<f64> {
        let known = self.points.iter().flatten();
        let below =
            known.clone().filter(|point| point.0 <= size).max_by(|a, b| a.0.total_cmp(&b.0));
        let above = known.filter(|point| point.0 > size).min_by(|a, b| a.0.total_cmp(&b.0));
        match (below, above) {
            (Some(a), Some(b)) => Some(a.1 + (b.1 - a.1) * (size - a.0) / (b.0 - a.0)),
            (Some(point), None) => Some(point.1),
            (None, above) => above.map(|point| point.1 * (ALIKE * size / point.0).min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(reads: (f64, f64, f64), writes: (f64, f64, f64)) -> Ops {
        let of = |f: fn((f64, f64, f64)) -> f64| [f(reads), f(writes)];
        Ops { number: of(|it| it.0), latency: of(|it| it.0 * it.2), bytes: of(|it| it.0 * it.1) }
    }

    #[test]
    fn a_mix_takes_what_its_reads_and_writes_take() {
        let mut kinds = Kinds::default();
        assert_eq!(kinds.expected(&ops((1.0, 4096.0, 0.0), (0.0, 0.0, 0.0))), None);
        kinds.learn(100.0, &ops((30.0, 4096.0, 120.0), (10.0, 4096.0, 40.0)));
        let expected =
            |reads, writes| kinds.expected(&ops((reads, 4096.0, 0.0), (writes, 4096.0, 0.0)));
        assert_eq!(expected(3.0, 1.0), Some(100.0));
        assert_eq!(expected(1.0, 3.0), Some(60.0));
        assert_eq!(kinds.expected(&Ops::default()), None, "not known apart");
    }

    #[test]
    fn sizes_are_told_apart_and_the_unknown_is_taken_for_fast() {
        let mut kinds = Kinds::default();
        let mut learn = |size, latency| {
            kinds.learn(latency, &ops((9.0, size, latency), (0.0, 0.0, 0.0)));
            kinds
        };
        learn(4096.0, 100.0);
        let kinds = learn(65_536.0, 160.0);
        let expected = |size| kinds.expected(&ops((1.0, size, 0.0), (0.0, 0.0, 0.0))).unwrap();
        for (size, latency) in
            [(4096.0, 100.0), (34_816.0, 130.0), (65_536.0, 160.0), (1e6, 160.0), (3000.0, 100.0)]
        {
            assert_eq!(expected(size), latency, "{size}");
        }
        assert!((expected(512.0) - 18.75).abs() < 1e-9);
        let knows = |size| kinds.knows(&ops((1.0, size, 0.0), (0.0, 0.0, 0.0)));
        assert!(knows(3000.0) && knows(4096.0) && knows(34_816.0) && knows(90_000.0));
        assert!(!knows(512.0) && !knows(1e6));
        assert!(!kinds.knows(&ops((1.0, 4096.0, 0.0), (1.0, 4096.0, 0.0))), "writes");
        // Nothing is known of writes.
        assert_eq!(kinds.expected(&ops((0.0, 0.0, 0.0), (1.0, 4096.0, 0.0))), Some(160.0));
    }

    #[test]
    fn a_size_that_is_learned_again_takes_its_own_place() {
        let mut sizes = Sizes::default();
        for (size, latency) in [(1e3, 1.0), (1e4, 2.0), (1.2e4, 3.0), (1e5, 4.0), (1e6, 5.0)] {
            sizes.learn(size, latency);
        }
        assert_eq!(sizes.expected(1e3), Some(1.0));
        assert_eq!(sizes.expected(1.2e4), Some(3.0));
        sizes.learn(1e7, 6.0);
        assert!(sizes.expected(1e3).unwrap() < 1.0, "the oldest has gone");
    }
}
