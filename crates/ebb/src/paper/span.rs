//! A number with its range.

use std::ops::{Add, Div, Mul, Sub};

/// The median of what was found, and its least and most; or a stated number and what rounds to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

impl Span {
    /// A number as printed, `half` a unit of its last place to either side.
    pub const fn stated(middle: f64, half: f64) -> Self {
        Self { middle, low: middle - half, high: middle + half }
    }

    /// One without any doubt.
    pub const fn exact(middle: f64) -> Self {
        Self::stated(middle, 0.0)
    }

    /// Median, least and most of `values`, of which there is one at least.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[0], values[values.len() - 1]);
        let half = values.len() / 2;
        let even = values.len().is_multiple_of(2);
        let middle = if even { (values[half - 1] + values[half]) / 2.0 } else { values[half] };
        Self { middle, low, high }
    }

    /// Both ends and the middle through `f`, which rises or falls throughout.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (f(self.low), f(self.high));
        Self { middle: f(self.middle), low: one.min(other), high: one.max(other) }
    }

    /// Whether the ranges have anything in common.
    pub fn meets(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Every combination of the ends of two.
    fn with(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let ends = [self.low, self.high].map(|one| [other.low, other.high].map(|end| f(one, end)));
        let ends = ends.concat();
        let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { middle: f(self.middle, other.middle), low, high }
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.with(other, |one, other| one + other)
    }
}
impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.with(other, |one, other| one - other)
    }
}
impl Mul for Span {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        self.with(other, |one, other| one * other)
    }
}
impl Div for Span {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        self.with(other, |one, other| one / other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_the_median_and_both_ends() {
        assert_eq!(Span::of([3.0, 1.0, 2.0]), Span { middle: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Span::of([4.0, 1.0, 2.0, 3.0]), Span { middle: 2.5, low: 1.0, high: 4.0 });
    }

    #[test]
    fn what_rounding_leaves_open_is_carried_through() {
        let saved = Span::stated(85.0, 0.5).map(|percent| 1.0 - percent / 100.0);
        assert!((saved.low - 0.145).abs() < 1e-12 && (saved.high - 0.155).abs() < 1e-12);
        let ratio = Span::stated(2.0, 0.5) / saved;
        assert!((ratio.low - 1.5 / 0.155).abs() < 1e-9 && (ratio.high - 2.5 / 0.145).abs() < 1e-9);
        assert!(ratio.meets(Span::exact(2.0 / 0.15)) && !ratio.meets(Span::exact(20.0)));
    }
}
