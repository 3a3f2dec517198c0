//! Where things are on the members: left-symmetric RAID-5 behind superblocks and a journal.
//!
//! ```text
//! byte 0      4 KiB       1 MiB                        data
//! | superblock | superblock | … | journal: slots of 4 KiB + chunk | chunks, one per stripe … |
//! ```

use std::ops::Range;

/// Bytes of a superblock, and of the header of a journal slot.
pub(super) const PAGE: usize = 4096;
/// Where the journal starts on each member.
const JOURNAL: u64 = 1 << 20;
/// What the data area is aligned to.
const ALIGN: u64 = 1 << 20;
/// The most members.
pub(super) const MOST: usize = 16;

/// The largest chunk.
pub(super) const MOST_CHUNK: u64 = 1 << 20;
/// The most bytes of stripes on a member: no place on it, nor in the array, is beyond 64 bits.
const MOST_BYTES: u64 = 1 << 58;

/// The fixed shape of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) members: usize,
    /// Bytes of a stripe on one member.
    pub(super) chunk: u64,
    /// Bytes in a block of the array and of each member.
    pub(super) block: u32,
    /// Slots of the journal.
    pub(super) slots: u64,
    pub(super) stripes: u64,
}

impl Layout {
    /// As many stripes as members of `bytes` hold.
    pub(super) fn fit(members: usize, chunk: u64, block: u32, slots: u64, bytes: u64) -> Self {
        let empty = Self { members, chunk, block, slots, stripes: 0 };
        Self { stripes: bytes.saturating_sub(empty.data()) / chunk, ..empty }
    }

    /// Whether it is one that the code can work with.
    pub(super) fn sound(&self) -> bool {
        (3..=MOST).contains(&self.members)
            && self.chunk.is_power_of_two()
            && (PAGE as u64..=MOST_CHUNK).contains(&self.chunk)
            && self.block.is_power_of_two()
            && (512..=PAGE).contains(&(self.block as usize))
            && (1..=1 << 20).contains(&self.slots)
            && (1..=MOST_BYTES / self.chunk).contains(&self.stripes)
    }

    /// Where the data starts on each member.
    fn data(&self) -> u64 {
        (JOURNAL + self.slots * self.slot_bytes()).next_multiple_of(ALIGN)
    }
    fn slot_bytes(&self) -> u64 {
        PAGE as u64 + self.chunk
    }
    /// Bytes of a member that are used.
    pub(super) fn member_bytes(&self) -> u64 {
        self.data() + self.stripes * self.chunk
    }
    /// Where the slot of transaction `seq` starts on each member.
    pub(super) fn slot(&self, seq: u64) -> u64 {
        JOURNAL + seq % self.slots * self.slot_bytes()
    }
    /// Where a stripe's chunk starts on each member.
    pub(super) fn chunk_at(&self, stripe: u64) -> u64 {
        self.data() + stripe * self.chunk
    }
    /// Bytes of client data in a stripe.
    pub(super) fn stripe_bytes(&self) -> u64 {
        (self.members as u64 - 1) * self.chunk
    }
    /// The member with the stripe's parity: the last for the first stripe, then leftwards.
    pub(super) fn parity(&self, stripe: u64) -> usize {
        self.members - 1 - (stripe % self.members as u64) as usize
    }
    /// The member with the stripe's data chunk `index`: the one after the parity has the first.
    pub(super) fn data_member(&self, stripe: u64, index: usize) -> usize {
        (self.parity(stripe) + 1 + index) % self.members
    }
    /// The part of data chunk `index`, as rows, in the client bytes `range` of a stripe.
    pub(super) fn rows_of(&self, index: usize, range: &Range<u64>) -> Range<usize> {
        let start = index as u64 * self.chunk;
        let clip = |at: u64| (at.clamp(start, start + self.chunk) - start) as usize;
        clip(range.start)..clip(range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sound_layout_has_places_beyond_64_bits() {
        let layout = |stripes| Layout {
            members: MOST,
            chunk: MOST_CHUNK,
            block: 512,
            slots: 1 << 20,
            stripes,
        };
        let most = layout(MOST_BYTES / MOST_CHUNK);
        assert!(most.sound() && most.member_bytes().checked_mul(MOST as u64).is_some());
        assert!([0, most.stripes + 1, 1 << 44, u64::MAX].iter().all(|all| !layout(*all).sound()));
        assert!(!Layout { chunk: 0, ..most }.sound());
    }

    #[test]
    fn left_symmetric_as_linux_md_numbers_it() {
        let layout = Layout::fit(4, 4096, 512, 8, 8 << 20);
        let table: Vec<Vec<usize>> = (0..4)
            .map(|stripe| (0..3).map(|index| layout.data_member(stripe, index)).collect())
            .collect();
        assert_eq!(table, [[0, 1, 2], [3, 0, 1], [2, 3, 0], [1, 2, 3]]);
        assert_eq!((0..4).map(|stripe| layout.parity(stripe)).collect::<Vec<_>>(), [3, 2, 1, 0]);
        assert!(layout.member_bytes() <= 8 << 20);
        assert_eq!(layout.rows_of(1, &(4000..5000)), 0..904);
        assert!(layout.rows_of(2, &(4000..5000)).is_empty());
    }
}
