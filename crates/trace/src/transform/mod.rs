//! Adapters from one [`Source`] to another: several traces as one, faster or slower, cut, in
//! pieces, folded onto a server. Memory stays flat in all of them.

mod excerpt;
mod fold;
mod merge;
mod repeat;
mod spread;

pub use excerpt::{Load, excerpt, loads};
pub use fold::{fold, within};
pub use merge::{Merge, merge};
pub use repeat::repeat;
pub use spread::spread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_policy::units::Nanos;

use crate::request::{LONGEST, Request, Source, TraceError};

/// A number that an adapter cannot work with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{option} is {given}: {valid}")]
pub struct InvalidOption {
    /// What the number is for.
    pub option: &'static str,
    /// The number as given.
    pub given: String,
    /// What would be valid.
    pub valid: &'static str,
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        (**self).fill(batch)
    }
}

/// What becomes of one request.
enum Step {
    Take(Request),
    Drop,
    End,
}

/// A source through a function of each request.
struct Each<S, F> {
    source: S,
    each: F,
    ended: bool,
}

impl<S, F> Source for Each<S, F>
where
    S: Source,
    F: FnMut(Request) -> Result<Step, TraceError> + Send,
{
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let start = batch.len();
        // A batch of which nothing is left is not the end.
        while !self.ended && batch.len() == start {
            let filled = self.source.fill(batch);
            self.ended = filled.is_err() || batch.len() == start;
            let mut kept = start;
            for index in start..batch.len() {
                match (self.each)(batch[index]) {
                    Ok(Step::Take(request)) => {
                        batch[kept] = request;
                        kept += 1;
                    }
                    Ok(Step::Drop) => {}
                    Ok(Step::End) => {
                        self.ended = true;
                        break;
                    }
                    Err(error) => {
                        self.ended = true;
                        batch.truncate(kept);
                        return Err(error);
                    }
                }
            }
            batch.truncate(kept);
            filled?;
        }
        Ok(())
    }
}

/// Requests come `rate` times as fast: 2 halves every arrival time. Recorded latencies stay.
///
/// # Errors
/// When `rate` is not a number above 0.
pub fn rate(source: impl Source, rate: f64) -> Result<impl Source, InvalidOption> {
    if !(rate.is_finite() && rate > 0.0) {
        let valid = "a factor above 0 is needed, such as 2 for twice as fast";
        return Err(InvalidOption { option: "the rate", given: rate.to_string(), valid });
    }
    let each = move |request: Request| {
        let at = request.at.0 as f64 / rate;
        if at > LONGEST.0 as f64 {
            return Err(TraceError::TooSlow { rate, at: request.at });
        }
        Ok(Step::Take(Request { at: Nanos(at.round() as u64), ..request }))
    };
    Ok(Each { source, each, ended: false })
}

/// Everything comes later by `by`.
pub fn shift(source: impl Source, by: Nanos) -> impl Source {
    let each = move |request: Request| {
        let at = Nanos(request.at.0.saturating_add(by.0));
        Ok(Step::Take(Request { at, ..request }))
    };
    Each { source, each, ended: false }
}

/// Only what arrives from `from` on and before `to`, counted anew from `from`. That nothing does
/// is an error once `source` is read: whoever cuts wants what is there.
///
/// # Errors
/// When `to` is not after `from`.
pub fn cut(source: impl Source, from: Nanos, to: Nanos) -> Result<impl Source, InvalidOption> {
    if to <= from {
        let given = format!("{from} to {to}");
        let valid = "its end must come after its start";
        return Err(InvalidOption { option: "the cut", given, valid });
    }
    let latest = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&latest);
    let each = move |request: Request| {
        seen.fetch_max(request.at.0, Ordering::Relaxed);
        Ok(if request.at >= to {
            Step::End
        } else if request.at < from {
            Step::Drop
        } else {
            Step::Take(Request { at: request.at - from, ..request })
        })
    };
    let source = Each { source, each, ended: false };
    Ok(NotEmpty { source, any: false, from, to, latest })
}

/// What is left of a cut trace, which is something.
struct NotEmpty<S> {
    source: S,
    any: bool,
    from: Nanos,
    to: Nanos,
    /// Latest arrival seen, ns.
    latest: Arc<AtomicU64>,
}

impl<S: Source> Source for NotEmpty<S> {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let before = batch.len();
        self.source.fill(batch)?;
        self.any |= batch.len() > before;
        if self.any {
            return Ok(());
        }
        let latest = Nanos(self.latest.load(Ordering::Relaxed));
        Err(TraceError::NothingLeft { from: self.from, to: self.to, latest })
    }
}

/// The first `count` requests.
pub fn limit(source: impl Source, count: u64) -> impl Source {
    let mut left = count;
    let each = move |request: Request| {
        if left == 0 {
            return Ok(Step::End);
        }
        left -= 1;
        Ok(Step::Take(request))
    };
    Each { source, each, ended: count == 0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::request::Op;

    /// Requests out of a list, `step` at a time.
    pub(crate) struct Given {
        pub(crate) list: std::vec::IntoIter<Request>,
        pub(crate) step: usize,
    }

    impl Source for Given {
        fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
            batch.extend(self.list.by_ref().take(self.step));
            Ok(())
        }
    }

    pub(crate) fn at(micros: u64) -> Request {
        Request {
            at: Nanos::from_micros(micros),
            offset: 0,
            bytes: 4096,
            device: 0,
            op: Op::Read,
            stream: 0,
            recorded_latency: None,
        }
    }

    pub(crate) fn given(list: impl IntoIterator<Item = Request>) -> Given {
        Given { list: list.into_iter().collect::<Vec<_>>().into_iter(), step: 3 }
    }

    pub(crate) fn all(source: &mut dyn Source) -> Result<Vec<Request>, TraceError> {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            source.fill(&mut all)?;
            if all.len() == before {
                return Ok(all);
            }
        }
    }

    fn micros(mut source: impl Source) -> Vec<u64> {
        all(&mut source).unwrap().iter().map(|request| request.at.0 / 1000).collect()
    }

    fn ten() -> Given {
        given((0..10).map(|number| at(number * 100)))
    }

    #[test]
    fn times_change_as_asked() {
        assert_eq!(micros(rate(ten(), 2.0).unwrap())[..3], [0, 50, 100]);
        assert_eq!(micros(rate(ten(), 0.5).unwrap())[9], 1800);
        assert_eq!(micros(shift(ten(), Nanos::from_micros(7)))[..2], [7, 107]);
        let (from, to) = (Nanos::from_micros(450), Nanos::from_micros(800));
        assert_eq!(micros(cut(ten(), from, to).unwrap()), [50, 150, 250]);
    }

    #[test]
    fn no_request_is_slowed_down_beyond_the_longest_trace() {
        let mut batch = Vec::new();
        let error = rate(ten(), 1e-18).unwrap().fill(&mut batch).unwrap_err().to_string();
        assert!(error.starts_with("at 1e-18 times its rate the request at 100 us"), "{error}");
        assert_eq!(batch.len(), 1, "what comes before is there");
    }

    #[test]
    fn limits_hold_across_batches() {
        for count in 0..12 {
            assert_eq!(micros(limit(ten(), count)).len() as u64, count.min(10));
        }
    }

    /// Hands out two requests together with an error.
    struct Breaking;

    impl Source for Breaking {
        fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
            batch.extend([at(100), at(200)]);
            let reason = "torn".to_owned();
            Err(TraceError::Malformed { file: "t".to_owned(), line: 3, reason })
        }
    }

    #[test]
    fn what_came_before_an_error_is_changed_too() {
        let mut batch = Vec::new();
        let mut source = shift(Breaking, Nanos::from_micros(7));
        assert!(source.fill(&mut batch).is_err_and(|error| error.to_string() == "t:3: torn"));
        assert_eq!(batch.iter().map(|r| r.at.0 / 1000).collect::<Vec<_>>(), [107, 207]);
        assert!(source.fill(&mut batch).is_ok() && batch.len() == 2);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(rate(ten(), factor).is_err_and(|error| error.to_string().contains("rate")));
        }
        let error = cut(ten(), Nanos(5), Nanos(5)).err().unwrap().to_string();
        assert_eq!(error, "the cut is 5 ns to 5 ns: its end must come after its start");
    }
}
