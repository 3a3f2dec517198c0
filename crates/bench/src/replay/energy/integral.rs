//! From samples to joules over a window.

use serde::Serialize;

/// A sample: seconds on the replay's clock, and watts, or joules since some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When.
    pub at: f64,
    /// How much.
    pub value: f64,
}

/// Two samples farther apart than so many usual distances have a gap between them.
const GAP: f64 = 3.0;
/// So much of a window has to be covered by samples.
const COVERED: f64 = 0.9;

/// What a meter says, over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Curve {
    /// Power at a time.
    Power(Vec<Point>),
    /// Energy up to a time: a counter with its wraps undone.
    Energy(Vec<Point>),
}

/// The energy of a window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Integral {
    /// Energy; `None` where too little of the window is covered.
    pub joules: Option<f64>,
    /// Length of the window.
    pub seconds: f64,
    /// Part of it that lies between samples, or no farther from one than they usually are apart.
    pub covered_seconds: f64,
    /// Samples in it.
    pub samples: usize,
    /// Stretches without a sample, by their ends on the replay's clock, bridged by a straight line.
    pub gaps: Vec<(f64, f64)>,
}

impl Curve {
    /// All samples.
    pub fn points(&self) -> &[Point] {
        match self {
            Self::Power(points) | Self::Energy(points) => points,
        }
    }

    /// Whether its samples say that nothing is drawn.
    pub fn is_nothing(&self) -> bool {
        self.points().len() > 1
            && match self {
                Self::Power(points) => points.iter().all(|point| point.value == 0.0),
                Self::Energy(points) => points.iter().all(|it| it.value == points[0].value),
            }
    }

    /// The energy from `from` to `to`: of power by trapezoids, of a counter by difference, either
    /// way on straight lines between samples.
    pub fn integral(&self, from: f64, to: f64) -> Integral {
        let points = self.points();
        let inside = |point: &&Point| (from..=to).contains(&point.at);
        let samples = points.iter().filter(inside).count();
        let none = Integral {
            joules: None,
            seconds: to - from,
            covered_seconds: 0.0,
            samples,
            gaps: Vec::new(),
        };
        let usual = usual_distance(points);
        let (Some(first), Some(last), true) = (points.first(), points.last(), to > from) else {
            return none;
        };
        // Beyond its ends a meter is believed for as long as its samples are usually apart.
        let start = if first.at - from <= usual { from } else { first.at };
        let end = if to - last.at <= usual { to } else { last.at };
        let (start, end) = (start.max(from), end.min(to));
        if end <= start {
            return none;
        }
        let covered = end - start;
        let is_gap = |pair: &&[Point]| {
            let (one, other) = (pair[0].at, pair[1].at);
            other - one > GAP * usual && one < to && other > from
        };
        let gaps: Vec<_> =
            points.windows(2).filter(is_gap).map(|pair| (pair[0].at, pair[1].at)).collect();
        let lost: f64 = match self {
            Self::Power(_) => gaps.iter().map(|(a, b)| b.min(end) - a.max(start)).sum(),
            Self::Energy(_) => 0.0, // A counter goes on counting.
        };
        let gaps = if matches!(self, Self::Power(_)) { gaps } else { Vec::new() };
        let covered_seconds = covered - lost;
        let joules = match self {
            Self::Power(points) => trapezoids(points, start, end),
            Self::Energy(points) => value_at(points, end) - value_at(points, start),
        };
        let enough = covered_seconds >= COVERED * (to - from);
        // What is not covered at the ends is taken as the mean of the rest.
        let joules = enough.then(|| joules * (to - from) / covered);
        // Whatever serves requests takes some.
        let joules = joules.filter(|joules| *joules > 0.0);
        Integral { joules, covered_seconds, gaps, ..none }
    }
}

/// Half of the distances are shorter.
fn usual_distance(points: &[Point]) -> f64 {
    let mut distances: Vec<f64> = points.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    distances.sort_by(f64::total_cmp);
    distances.get(distances.len() / 2).copied().unwrap_or(0.0)
}

/// The value at a time, on straight lines between samples and level beyond them.
fn value_at(points: &[Point], at: f64) -> f64 {
    let after = points.partition_point(|point| point.at < at);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some(one), Some(other)) if other.at > one.at => {
            let share = (at - one.at) / (other.at - one.at);
            one.value + share * (other.value - one.value)
        }
        (_, Some(point)) | (Some(point), _) => point.value,
        (None, None) => 0.0,
    }
}

fn trapezoids(points: &[Point], from: f64, to: f64) -> f64 {
    let inside = points.iter().filter(|point| point.at > from && point.at < to).copied();
    let end = |at| Point { at, value: value_at(points, at) };
    let (mut sum, mut last) = (0.0, end(from));
    for point in inside.chain([end(to)]) {
        sum += (point.at - last.at) * (point.value + last.value) / 2.0;
        last = point;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(all: impl IntoIterator<Item = (f64, f64)>) -> Vec<Point> {
        all.into_iter().map(|(at, value)| Point { at, value }).collect()
    }

    fn close(value: Option<f64>, wanted: f64) -> bool {
        value.is_some_and(|value| (value - wanted).abs() <= 1e-9 * wanted.abs().max(1.0))
    }

    proptest! {
        /// A ramp is integrated exactly, wherever its samples and the window lie.
        #[test]
        fn straight_lines_are_exact(
            mut times in proptest::collection::vec(0.0..100.0_f64, 3..50),
            base in 0.1..500.0_f64, slope in 0.0..5.0_f64, a in 0.0..1.0_f64, b in 0.0..1.0_f64,
        ) {
            times.sort_by(f64::total_cmp);
            times.dedup();
            let (first, last) = (times[0], *times.last().unwrap());
            let at = |share: f64| first + share * (last - first);
            let (from, to) = (at(a.min(b)), at(a.max(b)));
            prop_assume!(to > from);
            let power = Curve::Power(points(times.iter().map(|t| (*t, base + slope * t))));
            let joules = base * (to - from) + slope * (to * to - from * from) / 2.0;
            let found = power.integral(from, to);
            // Irregular samples have gaps; what there is, is right.
            prop_assert!(found.joules.is_none_or(|j| (j - joules).abs() <= 1e-6 * joules.max(1.0)));
            let energy = |t: f64| base * t;
            let counter = Curve::Energy(points(times.iter().map(|t| (*t, energy(*t)))));
            prop_assert!(close(counter.integral(from, to).joules, energy(to) - energy(from)));
        }
    }

    /// An outlet on which nothing hangs, a counter that a virtual machine has.
    #[test]
    fn nothing_is_no_measured_energy() {
        let all = |value| points((0..=20).map(|second| (f64::from(second), value)));
        for nothing in [Curve::Power(all(0.0)), Curve::Energy(all(7.0))] {
            assert_eq!((nothing.integral(0.0, 20.0).joules, nothing.is_nothing()), (None, true));
        }
        assert!(!Curve::Power(all(7.0)).is_nothing() && !Curve::Power(Vec::new()).is_nothing());
    }

    #[test]
    fn a_gap_is_told_and_a_large_one_leaves_no_result() {
        let mut all: Vec<_> = (0..=20).map(|second| (f64::from(second), 50.0)).collect();
        all.drain(10..14);
        let power = Curve::Power(points(all.clone()));
        let found = power.integral(0.0, 20.0);
        assert_eq!((found.joules, found.gaps.clone()), (None, vec![(9.0, 14.0)]));
        assert_eq!(found.covered_seconds, 15.0);
        // The same gap is a small part of a longer window.
        all.extend((21..=100).map(|second| (f64::from(second), 50.0)));
        let found = Curve::Power(points(all)).integral(0.0, 100.0);
        assert!(close(found.joules, 5000.0) && found.gaps.len() == 1, "{found:?}");
    }

    #[test]
    fn a_meter_that_ends_early_covers_less() {
        let power = Curve::Power(points((0..5).map(|second| (f64::from(second), 10.0))));
        let found = power.integral(0.5, 4.9);
        assert!(close(found.joules, 44.0) && found.samples == 4, "{found:?}");
        assert_eq!(power.integral(0.0, 20.0).joules, None);
        assert_eq!(power.integral(30.0, 40.0).joules, None);
        assert_eq!(Curve::Power(Vec::new()).integral(0.0, 1.0).joules, None);
        assert_eq!(Curve::Power(points([(0.5, 3.0)])).integral(0.0, 1.0).joules, None);
    }
}
