//! What each member says about the array it belongs to.
//!
//! Two copies, written in turn, so that a write cut short leaves the one before. What is said
//! last, by the number of `events`, holds for all members.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::layout::{Layout, MOST, PAGE};

const MAGIC: [u8; 8] = *b"ebbraid5";
const VERSION: u32 = 1;

/// Identifies an array.
pub(super) type Uuid = [u8; 16];

/// How far a member can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Holds all it should.
    Live,
    /// Missed writes.
    Failed,
    /// Holds what it should below the stripe that the superblock names.
    Rebuilding,
}

/// What all members agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) uuid: Uuid,
    /// Grows with every change: in the upper half by assemblies, in the lower by changes.
    pub(super) events: u64,
    pub(super) layout: Layout,
    /// Stopped in order: the journal holds nothing.
    pub(super) clean: bool,
    /// Transactions before this one are durable in place.
    pub(super) tail: u64,
    /// Stripes that a rebuilding member holds.
    pub(super) rebuilt: u64,
    pub(super) states: [State; MOST],
}

/// As stored; little-endian, within one sector.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Stored {
    magic: [u8; 8],
    version: U32,
    /// CRC32C of this structure with zero here.
    checksum: U32,
    uuid: Uuid,
    events: U64,
    tail: U64,
    rebuilt: U64,
    chunk: U64,
    slots: U64,
    stripes: U64,
    block: U32,
    role: u8,
    members: u8,
    clean: u8,
    reserved: u8,
    states: [u8; MOST],
}

/// What the start of a member holds.
#[derive(Debug)]
pub(super) enum Found {
    /// A superblock and the member's place in the array.
    Member(usize, Box<Superblock>),
    /// Nothing but zeros.
    Blank,
    /// Something else: data, or a superblock that cannot be read.
    Other,
}

impl Superblock {
    /// Which of the two copies this one goes to, in bytes from the start.
    pub(super) fn place(&self) -> u64 {
        self.events % 2 * PAGE as u64
    }

    /// The array was assembled anew: what older assemblies say no longer counts.
    pub(super) fn assembled(&mut self) {
        self.events = ((self.events >> 32) + 1) << 32 | (self.events + 1) & u64::from(u32::MAX);
    }

    pub(super) fn generation(&self) -> u64 {
        self.events >> 32
    }

    pub(super) fn encode(&self, role: usize, page: &mut [u8]) {
        let mut stored = Stored {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            uuid: self.uuid,
            events: self.events.into(),
            tail: self.tail.into(),
            rebuilt: self.rebuilt.into(),
            chunk: self.layout.chunk.into(),
            slots: self.layout.slots.into(),
            stripes: self.layout.stripes.into(),
            block: self.layout.block.into(),
            role: role as u8,
            members: self.layout.members as u8,
            clean: self.clean.into(),
            reserved: 0,
            states: self.states.map(|state| match state {
                State::Live => 0,
                State::Failed => 1,
                State::Rebuilding => 2,
            }),
        };
        stored.checksum = crc32c::crc32c(stored.as_bytes()).into();
        page.fill(0);
        page[..size_of::<Stored>()].copy_from_slice(stored.as_bytes());
    }

    fn decode(page: &[u8]) -> Option<(usize, Self)> {
        let (stored, _) = Stored::read_from_prefix(page).ok()?;
        let sum = crc32c::crc32c(Stored { checksum: 0.into(), ..stored }.as_bytes());
        let members = usize::from(stored.members);
        let known = stored.magic == MAGIC
            && stored.version == VERSION
            && stored.checksum == sum
            && stored.role < stored.members;
        let layout = Layout {
            members,
            chunk: stored.chunk.get(),
            block: stored.block.get(),
            slots: stored.slots.get(),
            stripes: stored.stripes.get(),
        };
        let superblock = Self {
            uuid: stored.uuid,
            events: stored.events.get(),
            layout,
            clean: stored.clean == 1,
            tail: stored.tail.get(),
            rebuilt: stored.rebuilt.get(),
            states: stored.states.map(|state| match state {
                0 => State::Live,
                2 => State::Rebuilding,
                _ => State::Failed,
            }),
        };
        (known && layout.sound()).then_some((usize::from(stored.role), superblock))
    }

    /// From the first two pages of a member.
    pub(super) fn find(pages: &[u8]) -> Found {
        let found = pages.chunks(PAGE).filter_map(Self::decode);
        match found.max_by_key(|(_, superblock)| superblock.events) {
            Some((role, superblock)) => Found::Member(role, Box::new(superblock)),
            None if pages.iter().all(|byte| *byte == 0) => Found::Blank,
            None => Found::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_copies_counts_and_a_torn_one_does_not() {
        let layout = Layout::fit(3, 65536, 4096, 8, 64 << 20);
        let mut superblock = Superblock {
            uuid: [7; 16],
            events: 1 << 32,
            layout,
            clean: false,
            tail: 3,
            rebuilt: 5,
            states: [State::Live; MOST],
        };
        let mut pages = vec![0; 2 * PAGE];
        assert!(matches!(Superblock::find(&pages), Found::Blank));
        superblock.encode(2, &mut pages[..PAGE]);
        let before = superblock.place();
        superblock.assembled();
        superblock.states[1] = State::Failed;
        assert_ne!(superblock.place(), before);
        superblock.encode(2, &mut pages[PAGE..]);
        let Found::Member(2, found) = Superblock::find(&pages) else { panic!("not found") };
        assert_eq!(*found, superblock);
        pages[PAGE + 40] ^= 1;
        let Found::Member(2, found) = Superblock::find(&pages) else { panic!("not found") };
        assert_eq!((found.events, found.states[1]), (1 << 32, State::Live));
        pages[0] ^= 1;
        assert!(matches!(Superblock::find(&pages), Found::Other));
    }
}
