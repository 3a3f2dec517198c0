//! What is durable in the journals and could not go to its place: a member had no room for it, or
//! the array stopped writing.
//!
//! The next assembly carries it out, or the keeper does when there is room. Until then reads see it
//! as if it were in place, for the other members already hold what follows from it. It keeps its
//! slot of the journal, so whatever fails meanwhile finds the change there whole.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rows that a member is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Debt {
    pub(super) role: usize,
    pub(super) stripe: u64,
    pub(super) start: usize,
    pub(super) bytes: Vec<u8>,
    /// The transaction of the journal that holds them.
    pub(super) seq: u64,
}

impl Debt {
    pub(super) fn rows(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }

    /// What is left of it without `rows`.
    fn without(self, rows: &Range<usize>) -> impl Iterator<Item = Self> {
        let own = self.rows();
        let before = own.start..own.end.min(rows.start);
        let after = own.start.max(rows.end)..own.end;
        [before, after].into_iter().filter(|part| part.start < part.end).map(move |part| Self {
            start: part.start,
            bytes: self.bytes[part.start - own.start..part.end - own.start].to_vec(),
            ..self
        })
    }
}

/// In no order; those of one member and stripe do not overlap.
#[derive(Debug, Default)]
pub(super) struct Owed {
    debts: Mutex<Vec<Debt>>,
    /// How many there are, for those who need no more.
    count: AtomicUsize,
}

impl Owed {
    fn debts(&self) -> MutexGuard<'_, Vec<Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `change`; returns the transactions that hold nothing owed any more.
    fn change(&self, change: impl FnOnce(&mut Vec<Debt>)) -> Vec<u64> {
        let mut debts = self.debts();
        let seqs = |debts: &[Debt]| debts.iter().map(|debt| debt.seq).collect::<BTreeSet<_>>();
        let before = seqs(&debts);
        change(&mut debts);
        self.count.store(debts.len(), Ordering::Release);
        before.difference(&seqs(&debts)).copied().collect()
    }

    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// In the place of what was owed of the same rows. Returns the transactions that are done with.
    pub(super) fn add(&self, debt: Debt) -> Vec<u64> {
        let rows = debt.rows();
        self.change(|debts| {
            cut(debts, debt.role, debt.stripe, &rows);
            debts.push(debt);
        })
    }

    /// These rows are in place now, as they were owed or newer. Returns the transactions that are
    /// done with.
    pub(super) fn cut(&self, role: usize, stripe: u64, rows: &Range<usize>) -> Vec<u64> {
        if !self.any() {
            return Vec::new();
        }
        self.change(|debts| cut(debts, role, stripe, rows))
    }

    /// The member is not used any more. Returns the transactions that are done with.
    pub(super) fn forget(&self, role: usize) -> Vec<u64> {
        if !self.any() {
            return Vec::new();
        }
        self.change(|debts| debts.retain(|debt| debt.role != role))
    }

    /// All that is owed of a stripe is in transaction `seq`, too. Returns the transactions that are
    /// done with.
    pub(super) fn moved(&self, stripe: u64, seq: u64) -> Vec<u64> {
        self.change(|debts| {
            let of = debts.iter_mut().filter(|debt| debt.stripe == stripe);
            of.for_each(|debt| debt.seq = seq);
        })
    }

    /// Of one stripe.
    pub(super) fn of(&self, stripe: u64) -> Vec<Debt> {
        self.debts().iter().filter(|debt| debt.stripe == stripe).cloned().collect()
    }

    /// The stripes of transactions before `end`.
    pub(super) fn stripes(&self, end: u64) -> BTreeSet<u64> {
        let debts = self.debts();
        debts.iter().filter(|debt| debt.seq < end).map(|debt| debt.stripe).collect()
    }

    /// The transactions.
    pub(super) fn seqs(&self) -> BTreeSet<u64> {
        self.debts().iter().map(|debt| debt.seq).collect()
    }

    /// The members, one bit each.
    pub(super) fn roles(&self) -> u32 {
        self.debts().iter().fold(0, |roles, debt| roles | 1 << debt.role)
    }

    /// Whether some of these rows are owed.
    pub(super) fn meets(&self, role: usize, stripe: u64, rows: &Range<usize>) -> bool {
        let meets = |debt: &Debt| {
            let own = debt.rows();
            (debt.role, debt.stripe) == (role, stripe)
                && own.start < rows.end
                && rows.start < own.end
        };
        self.any() && self.debts().iter().any(meets)
    }

    /// Puts what is owed to a member into `data`, these rows as they were read from it.
    pub(super) fn patch(&self, role: usize, stripe: u64, rows: &Range<usize>, data: &mut [u8]) {
        if !self.any() {
            return;
        }
        let debts = self.debts();
        for debt in debts.iter().filter(|debt| (debt.role, debt.stripe) == (role, stripe)) {
            let own = debt.rows();
            let (from, to) = (own.start.max(rows.start), own.end.min(rows.end));
            if from < to {
                data[from - rows.start..to - rows.start]
                    .copy_from_slice(&debt.bytes[from - own.start..to - own.start]);
            }
        }
    }
}

/// What goes on from the journal of the run before.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub(super) owed: Owed,
    /// The next transaction's number, if something is owed.
    pub(super) next: u64,
}

fn cut(debts: &mut Vec<Debt>, role: usize, stripe: u64, rows: &Range<usize>) {
    let all = std::mem::take(debts);
    let (of, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|debt| (debt.role, debt.stripe) == (role, stripe));
    debts.extend(others);
    debts.extend(of.into_iter().flat_map(|debt| debt.without(rows)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(role: usize, stripe: u64, rows: Range<usize>, byte: u8, seq: u64) -> Debt {
        Debt { role, stripe, start: rows.start, bytes: vec![byte; rows.len()], seq }
    }

    fn read(owed: &Owed, role: usize, stripe: u64, rows: Range<usize>) -> Vec<u8> {
        let mut data = vec![0; rows.len()];
        owed.patch(role, stripe, &rows, &mut data);
        data
    }

    #[test]
    fn what_is_owed_covers_what_was_read() {
        let owed = Owed::default();
        assert!(!owed.any() && owed.add(debt(1, 7, 4..8, 9, 0)).is_empty() && owed.any());
        assert_eq!(read(&owed, 1, 7, 2..6), [0, 0, 9, 9]);
        assert_eq!(read(&owed, 1, 7, 6..10), [9, 9, 0, 0]);
        assert_eq!(read(&owed, 1, 7, 5..7), [9, 9]);
        let others = [(0, 7, 4..6), (1, 8, 4..6), (1, 7, 8..10)];
        for (role, stripe, rows) in others {
            assert!(!owed.meets(role, stripe, &rows));
            assert_eq!(read(&owed, role, stripe, rows), [0, 0]);
        }
        assert!(owed.meets(1, 7, &(7..9)));
    }

    #[test]
    fn a_transaction_is_done_with_when_nothing_of_it_is_owed() {
        let owed = Owed::default();
        owed.add(debt(1, 7, 0..8, 1, 10));
        owed.add(debt(2, 7, 0..8, 2, 10));
        // Newer rows in the midst of older ones.
        assert!(owed.add(debt(1, 7, 2..4, 3, 11)).is_empty());
        assert_eq!(read(&owed, 1, 7, 0..8), [1, 1, 3, 3, 1, 1, 1, 1]);
        assert!(owed.cut(2, 7, &(0..8)).is_empty());
        assert!(owed.cut(1, 7, &(0..2)).is_empty());
        assert_eq!(owed.cut(1, 7, &(3..9)), [10]);
        assert_eq!((read(&owed, 1, 7, 0..4), owed.roles()), (vec![0, 0, 3, 0], 2));
        assert_eq!(owed.moved(7, 20), [11]);
        assert_eq!((owed.stripes(20).len(), owed.stripes(21).len()), (0, 1));
        assert_eq!(owed.forget(1), [20]);
        assert!(!owed.any());
    }
}
