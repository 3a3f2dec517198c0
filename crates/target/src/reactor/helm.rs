//! Changing the scheduler of a runtime at work.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use ebb_policy::reactor::Scheduler;

use super::shared::Shared;

/// Gives a runtime another scheduler, from any thread.
#[derive(Clone)]
pub struct Helm(pub(super) Arc<Shared>);

impl Helm {
    /// Lets `scheduler` take over at the next coarse step, from an even placement as at the start.
    /// One that was given before and did not take over yet never does.
    pub fn give(&self, scheduler: Box<dyn Scheduler>) {
        let before = self.next().replace(scheduler);
        drop(before); // It may be the one that was at work until the last change.
        self.0.has_next.store(true, Ordering::Release);
    }

    /// Whether the scheduler that was given last has taken over.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        !self.0.has_next.load(Ordering::Acquire)
    }

    fn next(&self) -> MutexGuard<'_, Option<Box<dyn Scheduler>>> {
        self.0.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
