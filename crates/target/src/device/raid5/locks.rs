//! Locks on rows of stripes, shared by all channels.
//!
//! A row is a byte offset within the chunks of a stripe; parity binds a row of one chunk to the
//! same row of the others and to nothing else, so writes to different rows need not wait for each
//! other. First come, first served; nobody blocks: a channel is told when its turn has come.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mailbox::Mailbox;

const SHARDS: usize = 64;

/// Rows of a stripe and who wants them.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) stripe: u64,
    pub(super) rows: Range<usize>,
    /// Others may read the same rows meanwhile.
    pub(super) shared: bool,
    /// Told `segment` when the rows are its.
    pub(super) owner: Arc<Mailbox>,
    pub(super) segment: u32,
}

impl Claim {
    fn conflicts(&self, other: &Self) -> bool {
        self.stripe == other.stripe
            && self.rows.start < other.rows.end
            && other.rows.start < self.rows.end
            && !(self.shared && other.shared)
    }
    fn is(&self, other: &Self) -> bool {
        self.segment == other.segment && Arc::ptr_eq(&self.owner, &other.owner)
    }
}

#[derive(Debug, Default)]
struct Shard {
    held: Vec<Claim>,
    waiting: VecDeque<Claim>,
}

/// All locks of an array.
#[derive(Debug)]
pub(super) struct Locks {
    shards: Vec<Mutex<Shard>>,
}

impl Locks {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, stripe: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[(stripe % SHARDS as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when the rows are the claimant's at once; otherwise it will be told.
    pub(super) fn acquire(&self, claim: &Claim) -> bool {
        let mut shard = self.shard(claim.stripe);
        let free = !shard.held.iter().chain(&shard.waiting).any(|other| other.conflicts(claim));
        if free {
            shard.held.push(claim.clone());
        } else {
            shard.waiting.push_back(claim.clone());
        }
        free
    }

    /// Gives rows up, or the place in the queue for them.
    pub(super) fn release(&self, claim: &Claim) {
        let mut shard = self.shard(claim.stripe);
        shard.held.retain(|held| !held.is(claim));
        shard.waiting.retain(|waiting| !waiting.is(claim));
        let mut at = 0;
        while at < shard.waiting.len() {
            let next = &shard.waiting[at];
            let earlier = shard.waiting.iter().take(at);
            if shard.held.iter().chain(earlier).any(|other| other.conflicts(next)) {
                at += 1;
            } else if let Some(next) = shard.waiting.remove(at) {
                next.owner.post(next.segment);
                shard.held.push(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_granted_in_order_and_only_where_they_meet() {
        let (locks, owner) = (Locks::new(), Arc::new(Mailbox::new().unwrap()));
        let claim = |segment, rows, shared| Claim {
            stripe: 5,
            rows,
            shared,
            owner: owner.clone(),
            segment,
        };
        let (a, b, c) = (claim(0, 0..8, false), claim(1, 4..12, true), claim(2, 4..12, true));
        let (d, e) = (claim(3, 8..16, false), claim(4, 16..20, false));
        assert!(locks.acquire(&a));
        assert!(!locks.acquire(&b) && !locks.acquire(&c) && !locks.acquire(&d));
        assert!(locks.acquire(&e));
        let told = || {
            let mut told = Vec::new();
            owner.take(&mut told);
            told
        };
        locks.release(&e);
        assert_eq!(told(), [0; 0]);
        locks.release(&a);
        assert_eq!(told(), [1, 2]);
        locks.release(&b);
        locks.release(&c);
        assert_eq!(told(), [3]);
    }
}
