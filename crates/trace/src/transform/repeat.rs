//! A trace again and again.

use ebb_policy::units::Nanos;

use crate::request::{Request, Source, TraceError};

/// Plays `first`, and then what `again` opens, without end. The first request of a pass comes as
/// long after the last one of the pass before as requests of a pass come after each other, in the
/// mean. A pass without time between its requests is not repeated.
pub fn repeat<S, F>(first: S, again: F) -> impl Source
where
    S: Source,
    F: FnMut() -> Result<S, TraceError> + Send,
{
    Repeat { source: first, again, begins: Nanos::ZERO, pass: None }
}

struct Repeat<S, F> {
    source: S,
    again: F,
    /// When this pass begins.
    begins: Nanos,
    pass: Option<Pass>,
}

/// What has come of a pass, in its own time.
struct Pass {
    first: Nanos,
    last: Nanos,
    count: u64,
}

impl Pass {
    fn length(&self) -> Nanos {
        let span = self.last - self.first;
        span + Nanos(span.0.div_ceil(self.count.saturating_sub(1).max(1)))
    }
}

impl<S: Source, F: FnMut() -> Result<S, TraceError> + Send> Source for Repeat<S, F> {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let start = batch.len();
        self.source.fill(batch)?;
        if batch.len() == start {
            let Some(pass) = self.pass.take().filter(|pass| pass.last > pass.first) else {
                return Ok(());
            };
            self.begins += pass.length();
            self.source = (self.again)()?;
            self.source.fill(batch)?;
        }
        for request in &mut batch[start..] {
            let Request { at, .. } = *request;
            let pass = self.pass.get_or_insert(Pass { first: at, last: at, count: 0 });
            (pass.last, pass.count) = (at, pass.count + 1);
            request.at = Nanos(self.begins.0.saturating_add(at.0));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::{all, at, given};

    #[test]
    fn passes_follow_each_other_at_the_pace_of_their_requests() {
        let mut passes = 0;
        let trace = || given([at(10), at(20), at(50)]);
        let mut again = repeat(trace(), || {
            passes += 1;
            Ok(if passes < 3 { trace() } else { given([]) })
        });
        let times: Vec<_> = all(&mut again).unwrap().iter().map(|r| r.at.0 / 1000).collect();
        assert_eq!(times, [10, 20, 50, 70, 80, 110, 130, 140, 170]);
    }

    #[test]
    fn what_takes_no_time_comes_once() {
        let mut again = repeat(given([at(5), at(5)]), || Ok(given([at(5)])));
        assert_eq!(all(&mut again).unwrap().len(), 2);
    }
}
