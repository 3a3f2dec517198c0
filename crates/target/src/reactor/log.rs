//! The last changes of the placement.

use std::collections::VecDeque;

use ebb_policy::reactor::Shift;
use ebb_policy::units::Nanos;

/// One change of the placement and when it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Time since the start.
    pub at: Nanos,
    /// What changed, and why.
    pub shift: Shift,
}

/// The last [`Log::ROOM`] changes, and how many there were in all.
#[derive(Debug, Clone)]
pub(super) struct Log {
    pub last: VecDeque<Record>,
    pub total: u64,
}

impl Log {
    pub const ROOM: usize = 256;

    pub fn new() -> Self {
        Self { last: VecDeque::with_capacity(Self::ROOM), total: 0 }
    }

    pub fn note(&mut self, record: Record) {
        if self.last.len() == Self::ROOM {
            self.last.pop_front();
        }
        self.last.push_back(record);
        self.total += 1;
    }

    /// Takes over what `newer` has noted and leaves it empty. Does not allocate.
    pub fn take(&mut self, newer: &mut Self) {
        self.total += newer.total - newer.last.len() as u64; // those it had no room to keep
        newer.last.drain(..).for_each(|record| self.note(record));
        newer.total = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_all_are_counted() {
        let record = |at| Record {
            at: Nanos(at),
            shift: Shift::Move { thread: 0, from: 0, to: 1, reason: "test" },
        };
        let (mut log, mut newer) = (Log::new(), Log::new());
        for at in 0..300 {
            newer.note(record(at));
        }
        log.take(&mut newer);
        (300..310).for_each(|at| newer.note(record(at)));
        log.take(&mut newer);
        assert_eq!((log.total, log.last.len(), newer.total), (310, Log::ROOM, 0));
        assert_eq!((log.last[0].at, log.last[Log::ROOM - 1].at), (Nanos(54), Nanos(309)));
    }
}
