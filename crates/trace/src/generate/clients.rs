//! The closed loop: parts of a workload side by side.

use ebb_policy::units::Nanos;

use super::jobs::Jobs;
use super::readers::Readers;
use super::rocksdb::Rocksdb;
use crate::request::{Closed, LoadPart, Request};

/// One part of a closed workload.
pub(super) enum Part {
    Jobs(Jobs),
    Rocksdb(Rocksdb),
    Readers(Readers),
}

/// All parts, each with its slots.
pub(super) struct Clients {
    parts: Vec<Part>,
    /// Where each has its streams.
    streams: Vec<LoadPart>,
    /// Part of each slot, and its thread or worker there.
    slots: Vec<(u32, u32)>,
    end: u64,
}

impl Clients {
    pub(super) const fn new(end: u64) -> Self {
        Self { parts: Vec::new(), streams: Vec::new(), slots: Vec::new(), end }
    }

    /// Adds a part with its `streams`; `slots` names the thread of each of its slots.
    pub(super) fn add(&mut self, streams: LoadPart, slots: Vec<u32>, part: Part) {
        self.streams.push(streams);
        let index = self.parts.len() as u32;
        self.slots.extend(slots.into_iter().map(|thread| (index, thread)));
        self.parts.push(part);
    }
}

impl Closed for Clients {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let &(part, thread) = self.slots.get(slot as usize)?;
        let request = match &mut self.parts[part as usize] {
            // Arrivals that wait are served after the end as well.
            Part::Jobs(jobs) => jobs.next(thread, now.0)?,
            _ if now.0 >= self.end => return None,
            Part::Rocksdb(instance) => instance.next(now.0)?,
            Part::Readers(readers) => readers.next(thread, now.0),
        };
        (request.at.0 < self.end).then_some(request)
    }

    fn parts(&self) -> Vec<LoadPart> {
        self.streams.clone()
    }
}
