//! The journal that closes the write hole.
//!
//! Before a stripe's data and parity are touched, each member gets its part of the change in a
//! slot of its own journal, durably. The parts of all members form a stripe themselves: any one
//! of them follows from the others. See [`super::recover`] for what is made of that.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::layout::PAGE;
use super::mailbox::{LOOK, Mailbox};
use super::superblock::Uuid;

const MAGIC: [u8; 8] = *b"ebbjrnl1";

/// What a slot's header says of one member's part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Transactions are numbered from zero in each run.
    pub(super) run: Uuid,
    /// The transaction; its slot is this modulo the number of slots.
    pub(super) seq: u64,
    pub(super) stripe: u64,
    /// The rows that the transaction changes in some chunk.
    pub(super) rows: Range<usize>,
    /// The rows of this member in the slot.
    pub(super) own: Range<usize>,
    /// The members with a part, one bit each.
    pub(super) parts: u16,
    pub(super) role: usize,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Stored {
    magic: [u8; 8],
    run: Uuid,
    seq: U64,
    stripe: U64,
    rows: [U32; 2],
    own: [U32; 2],
    /// CRC32C of this structure, with zero here, and of the rows that follow the header.
    checksum: U32,
    parts: U16,
    role: u8,
    reserved: u8,
}

impl Piece {
    /// Writes the header before the rows that stand in `slot` from [`PAGE`] on.
    pub(super) fn encode(&self, slot: &mut [u8]) {
        let pair = |range: &Range<usize>| [range.start, range.end].map(|at| (at as u32).into());
        let mut stored = Stored {
            magic: MAGIC,
            run: self.run,
            seq: self.seq.into(),
            stripe: self.stripe.into(),
            rows: pair(&self.rows),
            own: pair(&self.own),
            checksum: 0.into(),
            parts: self.parts.into(),
            role: self.role as u8,
            reserved: 0,
        };
        let (header, rows) = slot.split_at_mut(PAGE);
        let sum = crc32c::crc32c_append(crc32c::crc32c(stored.as_bytes()), rows);
        stored.checksum = sum.into();
        header.fill(0);
        header[..size_of::<Stored>()].copy_from_slice(stored.as_bytes());
    }

    /// Whether its rows are whole blocks, as all that arrays write are.
    pub(super) fn is_in_blocks(&self, block: u32) -> bool {
        let ends = [self.rows.start, self.rows.end, self.own.start, self.own.end];
        ends.iter().all(|end| end.is_multiple_of(block as usize))
    }

    /// From a whole slot; `None` when nothing was written or not all of it.
    pub(super) fn decode(slot: &[u8], chunk: u64) -> Option<Self> {
        let (stored, _) = Stored::read_from_prefix(slot).ok()?;
        let pair = |pair: [U32; 2]| pair[0].get() as usize..pair[1].get() as usize;
        let piece = Self {
            run: stored.run,
            seq: stored.seq.get(),
            stripe: stored.stripe.get(),
            rows: pair(stored.rows),
            own: pair(stored.own),
            parts: stored.parts.get(),
            role: stored.role.into(),
        };
        let inside = piece.rows.start <= piece.own.start
            && piece.own.start <= piece.own.end
            && piece.own.end <= piece.rows.end
            && piece.rows.end as u64 <= chunk;
        if stored.magic != MAGIC || !inside {
            return None;
        }
        let rows = slot.get(PAGE..PAGE + piece.own.len())?;
        let head = crc32c::crc32c(Stored { checksum: 0.into(), ..stored }.as_bytes());
        (crc32c::crc32c_append(head, rows) == stored.checksum.get()).then_some(piece)
    }
}

/// Hands out the slots, in order, and knows which transactions are in place.
#[derive(Debug)]
pub(super) struct Journal {
    slots: u64,
    state: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// Transactions before this one are durable in place; their slots may be used again.
    tail: u64,
    /// From the tail on, whether each transaction handed out is in place.
    placed: VecDeque<bool>,
    /// Who waits for a slot.
    waiting: Vec<Arc<Mailbox>>,
    /// The keeper has been asked to move the tail.
    asked: bool,
}

impl Slots {
    /// The first transaction that is not in place.
    fn head(&self) -> u64 {
        self.tail + self.placed.iter().take_while(|placed| **placed).count() as u64
    }

    /// More than half of them are taken, and the tail can move.
    fn is_due(&self, slots: u64) -> bool {
        self.placed.len() as u64 > slots / 2 && self.placed.front() == Some(&true)
    }
}

impl Journal {
    pub(super) fn new(slots: u64) -> Self {
        let placed = VecDeque::with_capacity(slots as usize);
        let state = Slots { tail: 0, placed, waiting: Vec::new(), asked: false };
        Self { slots, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, Slots> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next transaction, or `None` while all slots are taken: `owner` is told to look when to
    /// try again.
    pub(super) fn begin(&self, owner: &Arc<Mailbox>) -> Option<u64> {
        let mut state = self.state();
        if state.placed.len() as u64 == self.slots {
            if !state.waiting.iter().any(|other| Arc::ptr_eq(other, owner)) {
                state.waiting.push(owner.clone());
            }
            return None;
        }
        state.placed.push_back(false);
        Some(state.tail + state.placed.len() as u64 - 1)
    }

    /// A transaction is in place. True when it is time to move the tail: the caller asks the
    /// keeper.
    pub(super) fn placed(&self, seq: u64) -> bool {
        let mut state = self.state();
        let at = (seq - state.tail) as usize;
        if let Some(placed) = state.placed.get_mut(at) {
            *placed = true;
        }
        let due = !state.asked && state.is_due(self.slots);
        state.asked |= due;
        due
    }

    /// Where the tail may move once the members are flushed, if it should.
    pub(super) fn due(&self) -> Option<u64> {
        let state = self.state();
        state.asked.then(|| state.head())
    }

    /// The first transaction that is not in place.
    pub(super) fn head(&self) -> u64 {
        self.state().head()
    }

    /// All before `tail` is durable in place, and the superblocks say so. True when it should move
    /// again at once.
    pub(super) fn moved(&self, tail: u64) -> bool {
        let mut state = self.state();
        let count = (tail - state.tail) as usize;
        state.placed.drain(..count);
        state.tail = tail;
        state.asked = state.is_due(self.slots);
        for owner in std::mem::take(&mut state.waiting) {
            owner.post(LOOK);
        }
        state.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_only_after_the_tail_moved_past_them() {
        let (journal, owner) = (Journal::new(4), Arc::new(Mailbox::new().unwrap()));
        let begin = || journal.begin(&owner);
        assert_eq!([begin(), begin(), begin(), begin()], [0, 1, 2, 3].map(Some));
        assert_eq!(begin(), None);
        assert!(!journal.placed(1) && journal.due().is_none());
        assert!(journal.placed(0));
        assert_eq!(journal.due(), Some(2));
        assert_eq!(begin(), None);
        journal.moved(2);
        let mut told = Vec::new();
        owner.take(&mut told);
        assert_eq!(told, [LOOK]);
        assert_eq!([begin(), begin(), begin()], [Some(4), Some(5), None]);
    }

    #[test]
    fn no_array_writes_parts_of_blocks() {
        let piece = |own| Piece {
            run: Default::default(),
            seq: 9,
            stripe: 3,
            rows: 0..8192,
            own,
            parts: 5,
            role: 2,
        };
        assert!(piece(512..4096).is_in_blocks(512));
        assert!(!piece(512..4096).is_in_blocks(4096));
        assert!(!piece(512..973).is_in_blocks(512));
    }

    #[test]
    fn a_torn_slot_is_no_piece() {
        let piece = Piece {
            run: [1; 16],
            seq: 9,
            stripe: 3,
            rows: 0..8192,
            own: 512..4096,
            parts: 5,
            role: 2,
        };
        let mut slot = vec![7; PAGE + 3584];
        piece.encode(&mut slot);
        assert_eq!(Piece::decode(&slot, 65536), Some(piece));
        assert_eq!(Piece::decode(&slot, 4096), None);
        for at in [0, 20, 40, 63, PAGE, PAGE + 3583] {
            slot[at] ^= 1;
            assert_eq!(Piece::decode(&slot, 65536), None, "byte {at}");
            slot[at] ^= 1;
        }
        assert_eq!(Piece::decode(&slot[..PAGE + 100], 65536), None);
    }
}
