//! One I/O queue, from Connect until nothing of it is under way.

use std::sync::Arc;

use ebb_policy::units::Nanos;

use super::association::{Association, Ticket};
use super::ends::Wake;
use super::lock::lock;

/// An I/O queue, from Connect until nothing of it is under way.
#[derive(Debug)]
pub(crate) struct Stay {
    association: Arc<Association>,
    number: u64,
    /// Its thread has seen that it has ended: it begins nothing any more.
    has_ended: bool,
    /// The namespaces whose devices have something of it.
    at: Vec<usize>,
}

impl Stay {
    /// Of a queue that runs by `ticket`; `None` where that is over already.
    pub(super) fn new(association: Arc<Association>, ticket: Ticket) -> Option<Self> {
        let mut stays = lock(&association.stays);
        association.check(ticket)?;
        let number = stays.begin();
        drop(stays);
        Some(Self { association, number, has_ended: false, at: Vec::new() })
    }

    /// Has `wake` called when its controller ends it.
    pub(super) fn wake_with(&self, wake: &Wake) {
        lock(&self.association.stays).wake_with(self.number, wake);
    }

    /// The queue begins nothing any more; the devices of the namespaces `at` have something of it.
    pub(super) fn end(&mut self, mut at: Vec<usize>, now: Nanos) {
        at.sort_unstable();
        at.dedup();
        self.has_ended = true;
        let ends = &self.association.allowance.ends;
        lock(&self.association.stays).see(self.number, ends, &at, now);
        self.at = at;
    }

    /// The device of a namespace has nothing of it any more.
    pub(crate) fn done(&mut self, namespace: usize) {
        self.at.retain(|one| *one != namespace);
        self.association.allowance.ends.done(namespace);
        if self.at.is_empty() {
            lock(&self.association.stays).forget(self.number);
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Vec::new(), Nanos::ZERO);
        }
        while let Some(namespace) = self.at.last().copied() {
            self.done(namespace);
        }
    }
}
