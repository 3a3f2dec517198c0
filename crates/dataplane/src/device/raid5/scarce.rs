//! Which members have no room left, and what waits for some.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::locks::Claim;

/// A transaction to be taken out of the journals: not all of it could be put there.
#[derive(Debug, Clone)]
pub(super) struct Void {
    pub(super) seq: u64,
    /// The members whose journals took their part, one bit each.
    pub(super) roles: u32,
    /// Its rows, if whoever began it does not wait any more.
    pub(super) claim: Option<Claim>,
}

/// A member and rows that it refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) role: usize,
    pub(super) stripe: u64,
    pub(super) rows: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Scarce {
    /// The first that each member refused since it last had room.
    refusals: Mutex<Vec<Refusal>>,
    /// Their members, one bit each.
    short: AtomicU32,
    /// The keeper itself had no room for what others wait for.
    stalled: AtomicBool,
    voids: Mutex<Vec<Void>>,
}

impl Scarce {
    fn refusals_now(&self) -> MutexGuard<'_, Vec<Refusal>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn voids_now(&self) -> MutexGuard<'_, Vec<Void>> {
        self.voids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members that refused something and have not shown room since, one bit each.
    pub(super) fn short(&self) -> u32 {
        self.short.load(Ordering::Acquire)
    }

    pub(super) fn refused(&self, role: usize, stripe: u64, rows: Range<usize>) {
        let mut refusals = self.refusals_now();
        if refusals.iter().all(|refusal| refusal.role != role) {
            refusals.push(Refusal { role, stripe, rows });
        }
        self.short.fetch_or(1 << role, Ordering::AcqRel);
    }

    pub(super) fn refusals(&self) -> Vec<Refusal> {
        self.refusals_now().clone()
    }

    /// The member has room for what it refused, or is not used any more.
    pub(super) fn has_room(&self, role: usize) {
        let mut refusals = self.refusals_now();
        refusals.retain(|refusal| refusal.role != role);
        self.short.fetch_and(!(1 << role), Ordering::AcqRel);
    }

    /// Who would have to wait for the keeper is refused instead.
    pub(super) fn stalled(&self) -> bool {
        self.stalled.load(Ordering::Acquire)
    }

    /// Returns what it was.
    pub(super) fn stall(&self, stalled: bool) -> bool {
        self.stalled.swap(stalled, Ordering::AcqRel)
    }

    /// The keeper is to void a transaction.
    pub(super) fn void(&self, seq: u64, roles: u32) {
        self.voids_now().push(Void { seq, roles, claim: None });
    }

    pub(super) fn is_voiding(&self, seq: u64) -> bool {
        self.voids_now().iter().any(|void| void.seq == seq)
    }

    /// Keeps the rows of a transaction until it is void. False when it is already.
    pub(super) fn keep(&self, seq: u64, claim: &Claim) -> bool {
        let mut voids = self.voids_now();
        let void = voids.iter_mut().find(|void| void.seq == seq);
        void.map(|void| void.claim = Some(claim.clone())).is_some()
    }

    /// All that are to be voided.
    pub(super) fn voids(&self) -> Vec<Void> {
        self.voids_now().clone()
    }

    /// Only `roles` still have their part of a transaction. Returns the rows to give up when nobody
    /// has.
    pub(super) fn voided(&self, seq: u64, roles: u32) -> Option<Claim> {
        let mut voids = self.voids_now();
        let at = voids.iter().position(|void| void.seq == seq)?;
        voids[at].roles = roles;
        if roles == 0 { voids.swap_remove(at).claim } else { None }
    }
}
