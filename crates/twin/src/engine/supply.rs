//! Where the next request comes from.

use ebb_policy::units::Nanos;
use ebb_trace::{Closed, Request, Source, TraceError, Workload};

use super::events::{Event, Events};

/// Requests that slots send now, the last one first.
pub(super) type Due = Vec<(u32, Request)>;

/// The workload, one request ahead.
pub(super) enum Supply {
    /// By the clock: a batch, and the place in it.
    Open { source: Box<dyn Source>, batch: Vec<Request>, next: usize },
    /// By completion.
    Closed {
        clients: Box<dyn Closed>,
        /// Each slot's request that lies in the future.
        ahead: Vec<Option<Request>>,
        /// How many there are.
        planned: usize,
    },
}

impl Supply {
    /// Starts the workload; the slots of a closed loop plan their first requests.
    pub(super) fn start(
        workload: Workload,
        until: u64,
        events: &mut Events,
        due: &mut Due,
    ) -> Result<Self, TraceError> {
        match workload {
            Workload::Open(source) => {
                let mut this = Self::Open { source, batch: Vec::new(), next: 0 };
                this.refill()?;
                Ok(this)
            }
            Workload::Closed(clients) => {
                let slots = clients.slots();
                let ahead = vec![None; slots as usize];
                let mut this = Self::Closed { clients, ahead, planned: 0 };
                for slot in 0..slots {
                    this.completed(slot, 0, 0, until, events, due);
                }
                Ok(this)
            }
        }
    }

    /// Gets an open loop's next batch once all of the last one is taken.
    pub(super) fn refill(&mut self) -> Result<(), TraceError> {
        if let Self::Open { source, batch, next } = self
            && *next >= batch.len()
        {
            batch.clear();
            *next = 0;
            source.fill(batch)?;
        }
        Ok(())
    }

    /// When the next request of an open loop comes, if one does before `until`.
    pub(super) fn next_time(&self, until: u64) -> Option<u64> {
        let Self::Open { batch, next, .. } = self else { return None };
        batch.get(*next).map(|request| request.at.0).filter(|at| *at < until)
    }

    /// Whether no request is left that was read.
    pub(super) fn is_used_up(&self) -> bool {
        !matches!(self, Self::Open { batch, next, .. } if *next < batch.len())
    }

    /// The next request of an open loop.
    pub(super) fn take(&mut self) -> Option<Request> {
        let Self::Open { batch, next, .. } = self else { return None };
        let request = batch.get(*next).copied();
        *next += 1;
        request
    }

    /// `slot` has its answer at `answered`: plans its next request, unless it lies past `until`.
    pub(super) fn completed(
        &mut self,
        slot: u32,
        answered: u64,
        now: u64,
        until: u64,
        events: &mut Events,
        due: &mut Due,
    ) {
        let Self::Closed { clients, ahead, planned } = self else { return };
        let Some(request) = clients.next(slot, Nanos(answered)) else { return };
        if request.at.0 >= until {
            return;
        }
        if request.at.0 <= now {
            due.push((slot, request));
        } else {
            ahead[slot as usize] = Some(request);
            *planned += 1;
            events.push(request.at.0, Event::Slot(slot));
        }
    }

    /// Whether a slot of a closed loop has a request that lies in the future.
    pub(super) fn has_planned(&self) -> bool {
        matches!(self, Self::Closed { planned: 1.., .. })
    }

    /// The request that `slot` planned.
    pub(super) fn planned(&mut self, slot: u32) -> Option<Request> {
        match self {
            Self::Closed { ahead, planned, .. } => {
                *planned -= 1;
                ahead[slot as usize].take()
            }
            Self::Open { .. } => None,
        }
    }
}
