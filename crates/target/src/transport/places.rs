//! Places for connections, which all groups share.

use std::sync::atomic::{AtomicU64, Ordering};

/// Newcomers that may wait for a place while none is free: each has another connection give way,
/// or is closed.
const NEWCOMERS: u64 = 16;

/// How many connections there may be and are.
#[derive(Debug)]
pub struct Places {
    limit: u64,
    groups: u64,
    taken: AtomicU64,
    /// Newcomers that no group has looked at.
    waiting: AtomicU64,
}

impl Places {
    /// Places for `limit` connections of so many groups.
    #[must_use]
    pub fn new(limit: u32, groups: usize) -> Self {
        let (taken, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { limit: limit.into(), groups: groups.max(1) as u64, taken, waiting }
    }

    /// The most connections there may be at one moment of places for `limit`.
    #[must_use]
    pub const fn most(limit: u32) -> u64 {
        limit as u64 + NEWCOMERS
    }

    /// Connections that have a place.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Places of a group whose connections are as many as those of the others.
    pub(super) fn share(&self) -> u64 {
        self.limit / self.groups
    }

    /// A newcomer waits for a group to look at it; false: too many do.
    #[must_use]
    pub fn wait(&self) -> bool {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let may = self.taken() + waiting < self.limit + NEWCOMERS;
        if !may {
            self.leave();
        }
        may
    }

    /// A newcomer waits no more, and has no place.
    pub fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// A newcomer takes a place, if there is one.
    pub(super) fn take(&self) -> bool {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if took {
            self.leave();
        }
        took
    }

    /// A place is free again.
    pub(super) fn give(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_never_more_than_there_are_and_newcomers_few() {
        let places = Places::new(2, 1);
        let waiting = (0..100).filter(|_| places.wait()).count();
        assert_eq!(waiting as u64, 2 + NEWCOMERS);
        assert!(places.take() && places.take() && !places.take());
        assert!(!places.wait(), "as many wait as may");
        places.give();
        assert!(places.wait() && places.take() && !places.take());
        assert_eq!((places.taken(), places.share()), (2, 2));
        (0..NEWCOMERS).for_each(|_| places.leave());
        assert_eq!((0..100).filter(|_| places.wait()).count() as u64, NEWCOMERS);
    }
}
