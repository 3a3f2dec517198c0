//! Work that nobody waits for: it enters the server as its rate lets it, before it takes a core.

use ebb_policy::BestEffortSignals;
use ebb_trace::LoadPart;

use super::Engine;
use super::events::Event;
use super::io::Io;
use super::rate::Rate;

/// Such work of a load.
#[derive(Debug)]
pub(super) struct BestEffort {
    parts: Vec<LoadPart>,
    rate: Rate,
    /// What of it completed in the period.
    done: BestEffortSignals,
}

impl BestEffort {
    /// That of a load with these parts, if any is of that kind.
    pub(super) fn of(parts: Vec<LoadPart>) -> Option<Self> {
        let any = parts.iter().any(|part| part.best_effort);
        let done = BestEffortSignals { requests: Some(0), bytes: Some(0) };
        any.then(|| Self { parts, rate: Rate::default(), done })
    }

    /// Whether the stream is of that kind.
    pub(super) fn has(&self, stream: u32) -> bool {
        let after = self.parts.partition_point(|part| part.first <= stream);
        after.checked_sub(1).is_some_and(|part| self.parts[part].best_effort)
    }

    /// `io` was answered.
    pub(super) fn completed(&mut self, io: &Io) {
        if io.best_effort {
            let BestEffortSignals { requests, bytes } = &mut self.done;
            *requests = requests.map(|count| count + 1);
            *bytes = bytes.map(|sum| sum + u64::from(io.op.data(io.bytes)));
        }
    }

    /// What of it completed since this was last asked.
    pub(super) fn sense(&mut self) -> BestEffortSignals {
        let none = BestEffortSignals { requests: Some(0), bytes: Some(0) };
        std::mem::replace(&mut self.done, none)
    }
}

impl Engine<'_> {
    /// `io` has come to the server.
    pub(super) fn enter(&mut self, io: u32) {
        match &mut self.best_effort {
            Some(work) if self.ios[io].best_effort && work.rate.limits() => {
                work.rate.hold(&mut self.ios, io);
                self.best_effort_enters();
            }
            _ => self.dispatch(io),
        }
    }

    /// Lets in what its rate lets pass by now, and has an event tell of the next.
    pub(super) fn best_effort_enters(&mut self) {
        while let Some(work) = &mut self.best_effort
            && let Some(io) = work.rate.next(&self.ios, self.now)
        {
            // Nobody senses how long it was held back.
            self.ios[io].sent = self.now;
            self.dispatch(io);
        }
        if let Some(at) = self.best_effort.as_mut().and_then(|work| work.rate.tell()) {
            self.events.push(at, Event::BestEffort);
        }
    }

    /// So many bytes of it may come in a second from now on.
    pub(super) fn limit_best_effort(&mut self, limit: Option<f64>) {
        if let Some(work) = &mut self.best_effort
            && work.rate.change(self.now, limit)
        {
            self.best_effort_enters();
        }
    }
}
