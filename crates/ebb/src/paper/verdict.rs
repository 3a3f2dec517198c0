//! The rule by which a stated number and a range are compared (studies/README.md); `ebb-lab` has
//! the same in `lab/src/ebb_lab/fitting/verdicts.py`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::span::Span;

/// A range that is wider than this share of the stated number does not identify it. A narrower one
/// that holds a ratio of 1.12 or 0.9 does not hold 1, no effect; and the twin's watts of measured
/// servers are off by about as much, ± 6 %.
const WIDTH: f64 = 0.1;

/// Where a stated number is, seen from the range found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within it.
    #[serde(alias = "inside the range")]
    Inside,
    /// Not within it.
    Outside,
    /// Within it, but so would much else be: the baseline leaves open what decides it.
    #[serde(alias = "not identified by the baseline")]
    NotIdentified,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
            Self::NotIdentified => "not identified",
        }
    }
}

/// What a stated number can be the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// "Within", "at most".
    Most,
    /// "At least".
    Least,
}

/// How a text writes a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As a ratio, or in a unit.
    Plain,
    /// In percent less: judged by what remains, 0.15 where 85 % are saved.
    Less,
    /// In percent more.
    More,
}

impl Form {
    /// How a quantity is written: percent "saved" or "below" something are less than it, percent
    /// "over" something are more, and others are shares of it.
    pub fn of(quantity: &str) -> Self {
        let says = |word: &str| quantity.contains(word);
        match says(", %") && !says("share of") {
            true if says(" saved") || says(" below ") => Self::Less,
            true if says(" over ") => Self::More,
            _ => Self::Plain,
        }
    }

    /// By how much more or less of the ratio was found than is stated; `None` where none is stated
    /// to remain.
    pub fn deviation(self, paper: f64, found: f64) -> Option<f64> {
        let [paper, found] = [paper, found].map(|number| self.ratio(Span::exact(number)).middle);
        (paper != 0.0).then(|| found / paper - 1.0)
    }

    /// A number of this form as a ratio.
    pub fn ratio(self, number: Span) -> Span {
        match self {
            Self::Plain => number,
            Self::Less => number.map(|percent| 1.0 - percent / 100.0),
            Self::More => number.map(|percent| 1.0 + percent / 100.0),
        }
    }

    /// Where a stated number with what rounds to it is, seen from `found`.
    pub fn judge(self, paper: Span, found: Span) -> Verdict {
        let (paper, found) = (self.ratio(paper), self.ratio(found));
        if !found.meets(paper) {
            Verdict::Outside
        } else if found.high - found.low > WIDTH * paper.middle.abs() {
            Verdict::NotIdentified
        } else {
            Verdict::Inside
        }
    }
}

impl Bound {
    /// The same of a number that is a bound: inside where all of `found` keeps it.
    pub fn judge(self, paper: Span, found: Span) -> Verdict {
        let keeps = |value: f64| match self {
            Self::Most => value <= paper.high,
            Self::Least => value >= paper.low,
        };
        match (keeps(found.low), keeps(found.high)) {
            (true, true) => Verdict::Inside,
            (false, false) => Verdict::Outside,
            _ => Verdict::NotIdentified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(low: f64, high: f64) -> Span {
        Span { middle: low.midpoint(high), low, high }
    }

    #[test]
    fn a_range_is_compared_with_what_rounds_to_the_stated_number() {
        let paper = Span::stated(1.19, 0.005);
        let of = |low, high| Form::Plain.judge(paper, between(low, high));
        assert_eq!(of(1.168, 1.1851), Verdict::Inside);
        assert_eq!(of(1.168, 1.1849), Verdict::Outside);
        assert_eq!(of(1.12, 1.23), Verdict::Inside);
        assert_eq!(of(1.10, 1.23), Verdict::NotIdentified);
    }

    #[test]
    fn percent_are_judged_by_what_remains() {
        let paper = Span::stated(85.0, 0.5);
        assert_eq!(Form::Plain.judge(paper, between(83.0, 87.0)), Verdict::Inside);
        assert_eq!(Form::Less.judge(paper, between(83.0, 87.0)), Verdict::NotIdentified);
        assert_eq!(Form::Less.judge(paper, between(84.3, 85.7)), Verdict::Inside);
        assert_eq!(Form::More.judge(Span::stated(25.0, 0.5), between(20.0, 32.0)), Verdict::Inside);
    }

    #[test]
    fn deviations_are_of_what_remains() {
        for (quantity, paper, found, deviation) in [
            ("drive power over SSPC, %", 5.0, -2.02, 0.9798 / 1.05 - 1.0),
            ("power saved by PACER, bert, %", 22.0, 5.33, 0.9467 / 0.78 - 1.0),
            ("power below the PC's, writes, %, from reads", 50.0, 40.0, 0.2),
            ("share of that which it saves over a day, %", 50.0, 40.0, -0.2),
            ("throughput left at full PWM, %", 50.0, 40.0, -0.2),
            ("mean latency of PACER, x", 1.25, 1.0, -0.2),
        ] {
            let own = Form::of(quantity).deviation(paper, found).unwrap();
            assert!((own - deviation).abs() < 1e-9, "{quantity}: {own}");
        }
        assert_eq!(Form::Less.deviation(100.0, 90.0), None);
    }

    #[test]
    fn a_bound_is_kept_or_not() {
        let of = |low, high| Bound::Most.judge(Span::stated(1.15, 0.005), between(low, high));
        assert_eq!(of(0.9, 1.154), Verdict::Inside);
        assert_eq!(of(0.9, 1.16), Verdict::NotIdentified);
        assert_eq!(of(1.16, 1.17), Verdict::Outside);
        let least = Bound::Least.judge(Span::exact(2.0), between(2.0, 2.5));
        assert_eq!(least, Verdict::Inside);
    }
}
