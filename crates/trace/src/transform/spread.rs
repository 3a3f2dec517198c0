//! Coarse clocks: requests of one tick spread over it.

use ebb_policy::units::Nanos;

use super::InvalidOption;
use crate::request::{Request, Source, TraceError};

/// Requests that may share one tick: what is held in memory.
const MOST: usize = 1 << 20;

/// See [`spread`].
struct Spread<S> {
    source: S,
    name: String,
    tick: u64,
    /// Requests of the current tick, and those behind it that came in the same batch.
    held: Vec<Request>,
    ended: bool,
}

/// Spreads requests that share a tick of a coarse clock evenly over it, in their order. A trace
/// with whole seconds would otherwise be a burst each second that nobody sent. `name` stands in
/// errors.
///
/// # Errors
/// When `tick` is 0; later, when more than a million requests share one.
pub fn spread<S: Source>(
    source: S,
    name: &str,
    tick: Nanos,
) -> Result<impl Source + use<S>, InvalidOption> {
    if tick == Nanos::ZERO {
        let (given, valid) = ("0 s".to_owned(), "the trace's resolution is needed, such as 1 s");
        return Err(InvalidOption { option: "the tick", given, valid });
    }
    Ok(Spread { source, name: name.to_owned(), tick: tick.0, held: Vec::new(), ended: false })
}

impl<S: Source> Spread<S> {
    /// How many of the held requests are of the first one's tick.
    fn of_first_tick(&self) -> usize {
        let Some(first) = self.held.first() else { return 0 };
        let tick = first.at.0 / self.tick;
        self.held.partition_point(|request| request.at.0 / self.tick == tick)
    }
}

impl<S: Source> Source for Spread<S> {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        // The number in a tick is known once something of the next one is there.
        let mut count = self.of_first_tick();
        while !self.ended && count == self.held.len() {
            if count > MOST {
                let reason = format!("more than {MOST} requests within {}", Nanos(self.tick));
                return Err(TraceError::Format { file: self.name.clone(), reason });
            }
            self.source.fill(&mut self.held)?;
            self.ended = self.held.len() == count;
            count = self.of_first_tick();
        }
        for (index, request) in self.held.drain(..count).enumerate() {
            let start = request.at.0 / self.tick * self.tick;
            let within = u128::from(self.tick) * index as u128 / count as u128;
            batch.push(Request { at: Nanos(start + within as u64), ..request });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::{all, at, given};

    #[test]
    fn requests_of_one_second_lie_evenly_in_it() {
        let seconds = [0, 0, 0, 0, 1, 3, 3].map(|second| at(second * 1_000_000));
        let mut spread = spread(given(seconds), "t", Nanos::from_secs(1)).unwrap();
        let times: Vec<_> = all(&mut spread).unwrap().iter().map(|r| r.at.0 / 1_000_000).collect();
        assert_eq!(times, [0, 250, 500, 750, 1000, 3000, 3500]);
    }

    #[test]
    fn a_tick_of_nothing_is_refused() {
        assert!(spread(given([]), "t", Nanos::ZERO).is_err());
    }
}
