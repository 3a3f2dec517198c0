//! Requests in memory as a trace: as planned, or as issued with their latencies.

use std::num::NonZeroU64;

use ebb_policy::units::Nanos;
use ebb_trace::{Request, Source, TraceError};

use super::requests::Planned;
use super::tally::Issued;

/// Requests handed on at once.
const BATCH: usize = 8192;

/// All requests, in the order of their times.
pub struct List {
    all: Vec<Request>,
    at: usize,
}

impl List {
    /// At their due times.
    pub fn planned(streams: &[Vec<Planned>]) -> Self {
        Self::new(streams, |planned, _| Some((planned.at, None)))
    }

    /// When they were issued; what was not is left out.
    pub fn issued(streams: &[Vec<Planned>], issued: &[Vec<Issued>]) -> Self {
        Self::new(streams, |_, (stream, index)| {
            let issued = issued.get(stream)?.get(index)?;
            Some((issued.at, issued.latency))
        })
    }

    fn new(
        streams: &[Vec<Planned>],
        when: impl Fn(&Planned, (usize, usize)) -> Option<(u64, Option<NonZeroU64>)>,
    ) -> Self {
        let mut all = Vec::new();
        for (stream, requests) in streams.iter().enumerate() {
            for (index, planned) in requests.iter().enumerate() {
                let Some((at, recorded_latency)) = when(planned, (stream, index)) else { continue };
                all.push(Request {
                    at: Nanos(at),
                    offset: planned.offset,
                    bytes: planned.bytes,
                    device: 0,
                    op: planned.op,
                    stream: stream as u32,
                    recorded_latency,
                });
            }
        }
        all.sort_by_key(|request| request.at);
        Self { all, at: 0 }
    }
}

impl Source for List {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let end = self.all.len().min(self.at + BATCH);
        batch.extend_from_slice(&self.all[self.at..end]);
        self.at = end;
        Ok(())
    }
}
