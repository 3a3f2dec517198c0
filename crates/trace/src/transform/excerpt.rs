//! Pieces of a load that are played one after the other, and what of the load comes when.

use std::ops::Range;

use ebb_policy::units::Nanos;

use super::{Each, Step};
use crate::request::{Request, Source, TraceError};

/// Slots that a load is counted in at most.
const MOST_SLOTS: u64 = 10_000_000;

/// What comes in a slot of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Requests.
    pub requests: f64,
    /// Bytes that they read and write.
    pub bytes: f64,
}

/// What `source` brings in each slot of `length`, up to `end` or to its own, and when its last
/// request comes.
///
/// # Errors
/// When `source` fails, or there are more than ten million slots.
pub fn loads(
    source: &mut dyn Source,
    length: Nanos,
    end: Option<Nanos>,
) -> Result<(Vec<Load>, Nanos), TraceError> {
    let (mut all, mut last, mut batch) = (Vec::<Load>::new(), Nanos::ZERO, Vec::new());
    loop {
        batch.clear();
        source.fill(&mut batch)?;
        for request in &batch {
            if end.is_some_and(|end| request.at >= end) {
                return Ok((all, last));
            }
            let slot = request.at.0 / length.0;
            if slot >= MOST_SLOTS {
                return Err(TraceError::Format {
                    file: "the trace".to_owned(),
                    reason: format!(
                        "a request at {} is in slot {slot} of {length}, and {MOST_SLOTS} are told \
                         apart: cut the trace",
                        request.at
                    ),
                });
            }
            if slot >= all.len() as u64 {
                all.resize(slot as usize + 1, Load::default());
            }
            let load = &mut all[slot as usize];
            load.requests += 1.0;
            load.bytes += f64::from(request.data_bytes());
            last = request.at;
        }
        if batch.is_empty() {
            return Ok((all, last));
        }
    }
}

/// Only what comes in `pieces`, which are in order and apart; each follows the one before at once.
pub fn excerpt(source: impl Source, pieces: Vec<Range<Nanos>>) -> impl Source {
    let mut pieces = pieces.into_iter();
    let (mut piece, mut begins) = (pieces.next(), Nanos::ZERO);
    let each = move |request: Request| {
        while let Some(ended) = piece.take_if(|piece| piece.end <= request.at) {
            begins += ended.end - ended.start;
            piece = pieces.next();
        }
        Ok(match &piece {
            None => Step::End,
            Some(piece) if request.at < piece.start => Step::Drop,
            Some(piece) => {
                Step::Take(Request { at: begins + (request.at - piece.start), ..request })
            }
        })
    };
    Each { source, each, ended: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::{all, at, given};

    #[test]
    fn pieces_follow_each_other() {
        let micros = Nanos::from_micros;
        let pieces = vec![micros(100)..micros(300), micros(700)..micros(800)];
        let load = || given((0..10).map(|number| at(number * 100 + 5)));
        let requests = all(&mut excerpt(load(), pieces)).unwrap();
        let times: Vec<_> = requests.iter().map(|request| request.at.0 / 1000).collect();
        assert_eq!(times, [5, 105, 205]);
        let (loads, last) = loads(&mut load(), micros(400), Some(micros(900))).unwrap();
        let requests: Vec<_> = loads.iter().map(|load| load.requests).collect();
        assert_eq!((requests, last), (vec![4.0, 4.0, 1.0], micros(805)));
        assert_eq!(loads[2].bytes, 4096.0);
    }
}
