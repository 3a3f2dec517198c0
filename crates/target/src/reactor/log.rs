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

    /// Becomes the same as `other` without allocating.
    pub fn copy(&mut self, other: &Self) {
        self.last.clear();
        self.last.extend(other.last.iter());
        self.total = other.total;
    }
}
