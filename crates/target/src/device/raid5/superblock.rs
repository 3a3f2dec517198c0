//! What each member says about the array it belongs to.
//!
//! Two copies, written in turn, so that a write cut short leaves the one before. What is said
//! last, by the number of `events`, holds for all members, and tells which of them are outdated:
//! see [`Superblock::vouches`].

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::layout::{Layout, MOST, PAGE};

const MAGIC: [u8; 8] = *b"ebbraid5";
const VERSION: u32 = 4;
/// More than an array sees that is assembled every second for 68 years; counting on is safe.
const MOST_EVENTS: u64 = 1 << 63;

/// Identifies an array, or one run of it.
pub(super) type Uuid = [u8; 16];

/// When a superblock was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// Drawn by each assembly, so that an array that went on in two ways is found out.
    pub(super) run: Uuid,
    /// Grows with every change: in the upper half by assemblies, in the lower by changes.
    pub(super) events: u64,
}

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
    pub(super) now: Moment,
    /// Every member in use had a superblock of this moment, or a later one, before this one was
    /// written to any.
    pub(super) known: Moment,
    pub(super) layout: Layout,
    /// Stopped in order: the journal holds nothing.
    pub(super) clean: bool,
    /// Transactions of this run before this one are durable in place.
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
    run: Uuid,
    events: U64,
    known_run: Uuid,
    known_events: U64,
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
    /// A superblock as another version of Ebb writes it.
    Version(u32),
    /// Nothing but zeros.
    Blank,
    /// Something else: data, or a superblock that cannot be read.
    Other,
}

impl Superblock {
    /// Which of the two copies this one goes to, in bytes from the start.
    pub(super) fn place(&self) -> u64 {
        self.now.events % 2 * PAGE as u64
    }

    /// Whether the member that says `other` has all that was promised until this superblock, the
    /// latest one, was written.
    ///
    /// A change is written to all members in use twice, and only then relied on. So a member that
    /// is older than what the latest superblock knows all of them to have is a copy of old, or
    /// was left out: a loss of power while superblocks are written does not leave such a one. Nor
    /// does it leave one of another run.
    pub(super) fn vouches(&self, other: &Self) -> bool {
        [self.now.run, self.known.run].contains(&other.now.run)
            && other.now.events >= self.known.events
    }

    /// All members in use have this superblock; the next one says so.
    pub(super) fn told(&mut self) {
        self.known = self.now;
    }

    /// A new run: what the journal of the ones before says no longer counts.
    pub(super) fn assembled(&mut self, run: Uuid) {
        let events = self.now.events;
        let events = ((events >> 32) + 1) << 32 | (events + 1) & u64::from(u32::MAX);
        self.now = Moment { run, events };
        self.tail = 0;
    }

    pub(super) fn encode(&self, role: usize, page: &mut [u8]) {
        let mut stored = Stored {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            uuid: self.uuid,
            run: self.now.run,
            events: self.now.events.into(),
            known_run: self.known.run,
            known_events: self.known.events.into(),
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
            && stored.role < stored.members
            && stored.rebuilt.get() <= stored.stripes.get()
            && stored.events.get() < MOST_EVENTS;
        let layout = Layout {
            members,
            chunk: stored.chunk.get(),
            block: stored.block.get(),
            slots: stored.slots.get(),
            stripes: stored.stripes.get(),
        };
        let superblock = Self {
            uuid: stored.uuid,
            now: Moment { run: stored.run, events: stored.events.get() },
            known: Moment { run: stored.known_run, events: stored.known_events.get() },
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

    /// The version that a page says it is of, if it is a superblock at all.
    fn version(page: &[u8]) -> Option<u32> {
        let (stored, _) = Stored::read_from_prefix(page).ok()?;
        (stored.magic == MAGIC).then(|| stored.version.get())
    }

    /// From the first two pages of a member.
    pub(super) fn find(pages: &[u8]) -> Found {
        let found = pages.chunks(PAGE).filter_map(Self::decode);
        let mut versions = pages.chunks(PAGE).filter_map(Self::version);
        match found.max_by_key(|(_, superblock)| superblock.now.events) {
            Some((role, superblock)) => Found::Member(role, Box::new(superblock)),
            None if pages.iter().all(|byte| *byte == 0) => Found::Blank,
            None => match versions.find(|version| *version != VERSION) {
                Some(version) => Found::Version(version),
                None => Found::Other,
            },
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
            now: Moment { run: [8; 16], events: 1 << 32 },
            known: Moment { run: [8; 16], events: 1 << 32 },
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
        superblock.assembled([9; 16]);
        assert_eq!((superblock.now.run, superblock.tail), ([9; 16], 0));
        superblock.states[1] = State::Failed;
        assert_ne!(superblock.place(), before);
        superblock.encode(2, &mut pages[PAGE..]);
        let Found::Member(2, found) = Superblock::find(&pages) else { panic!("not found") };
        assert_eq!(*found, superblock);
        pages[PAGE + 40] ^= 1;
        let Found::Member(2, found) = Superblock::find(&pages) else { panic!("not found") };
        assert_eq!((found.now.events, found.states[1]), (1 << 32, State::Live));
        pages[0] ^= 1;
        assert!(matches!(Superblock::find(&pages), Found::Other));
    }

    #[test]
    fn a_member_older_than_what_all_have_is_outdated() {
        let moment = |run, events| Moment { run: [run; 16], events };
        let at = |now, known| Superblock {
            uuid: [7; 16],
            now,
            known,
            layout: Layout::fit(3, 65536, 4096, 8, 64 << 20),
            clean: false,
            tail: 0,
            rebuilt: 0,
            states: [State::Live; MOST],
        };
        let latest = at(moment(2, 9), moment(2, 8));
        for (other, current) in [((2, 9), true), ((2, 8), true), ((2, 7), false), ((3, 9), false)] {
            let other = at(moment(other.0, other.1), moment(1, 1));
            assert_eq!(latest.vouches(&other), current, "{:?}", other.now);
        }
        // Power was lost while the first superblock of run 2 was written.
        let opening = at(moment(2, 9), moment(1, 8));
        for (other, current) in [((1, 8), true), ((2, 9), true), ((1, 7), false), ((0, 8), false)] {
            let other = at(moment(other.0, other.1), moment(0, 1));
            assert_eq!(opening.vouches(&other), current, "{:?}", other.now);
        }
    }

    #[test]
    fn another_version_is_told_from_rubbish() {
        let mut page = vec![0; 2 * PAGE];
        page[..8].copy_from_slice(&MAGIC);
        page[8] = 3;
        assert!(matches!(Superblock::find(&page), Found::Version(3)));
        page[8] = VERSION as u8;
        assert!(matches!(Superblock::find(&page), Found::Other));
    }

    #[test]
    fn numbers_that_no_array_comes_to_are_rubbish() {
        let moment = Moment { run: [8; 16], events: MOST_EVENTS - 1 };
        let sound = Superblock {
            uuid: [7; 16],
            now: moment,
            known: moment,
            layout: Layout::fit(3, 65536, 4096, 8, 64 << 20),
            clean: false,
            tail: 0,
            rebuilt: 0,
            states: [State::Live; MOST],
        };
        let found = |superblock: &Superblock| {
            let mut pages = vec![0; 2 * PAGE];
            superblock.encode(0, &mut pages[..PAGE]);
            Superblock::find(&pages)
        };
        assert!(matches!(found(&sound), Found::Member(0, _)));
        let rebuilt = sound.layout.stripes + 1;
        assert!(matches!(found(&Superblock { rebuilt, ..sound.clone() }), Found::Other));
        let now = Moment { events: MOST_EVENTS, ..moment };
        assert!(matches!(found(&Superblock { now, ..sound }), Found::Other));
    }
}
