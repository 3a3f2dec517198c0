//! The event queue: a calendar of the near future, and a heap for the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens at an event's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The core finished what it runs.
    CoreDone(u32),
    /// The hard disk finished the command of this I/O.
    DiskDone(u16, u32),
    /// A closed-loop slot sends its next request.
    Slot(u32),
    /// Steady background work has accrued.
    Background,
    /// The power state last written to this drive is in force.
    PowerState(u16),
    /// An access to the media of this hard disk ended.
    Access(u16),
    /// A job finished what it had to compute before its next I/O.
    Burst(u32),
    /// Jobs share the cores anew.
    Slice,
    /// This I/O has come to the server.
    Arrived(u32),
    /// The rate limit of its drive lets this I/O pass.
    Admitted(u32),
    /// The drives are done with this I/O, or with those of its parts whose end they knew.
    Served(u32),
    /// A command of this SSD ends while others wait for a place in its queue.
    Room(u16),
    /// The governor looks at the cores.
    Governor,
    /// The host's watcher looks whether cores are crowded.
    Watch,
    /// The packages keep a new limit of their power.
    PowerLimit,
    /// The rate of work that nobody waits for lets the next in.
    BestEffort,
    /// The rate of what is read (0) from or written (1) to this drive lets the next pass.
    Rated(u16, u8),
}

impl Event {
    /// In [`PACKED`] bits.
    fn pack(self) -> u64 {
        match self {
            Self::CoreDone(core) => u64::from(core),
            Self::DiskDone(drive, io) => 1 << 48 | u64::from(drive) << 32 | u64::from(io),
            Self::Slot(slot) => 2 << 48 | u64::from(slot),
            Self::Background => 3 << 48,
            Self::PowerState(drive) => 4 << 48 | u64::from(drive),
            Self::Access(drive) => 5 << 48 | u64::from(drive),
            Self::Burst(job) => 6 << 48 | u64::from(job),
            Self::Slice => 7 << 48,
            Self::Arrived(io) => 8 << 48 | u64::from(io),
            Self::Admitted(io) => 9 << 48 | u64::from(io),
            Self::Served(io) => 10 << 48 | u64::from(io),
            Self::Room(drive) => 11 << 48 | u64::from(drive),
            Self::Governor => 12 << 48,
            Self::Watch => 13 << 48,
            Self::PowerLimit => 14 << 48,
            Self::BestEffort => 15 << 48 | 1 << 32,
            Self::Rated(drive, way) => 15 << 48 | u64::from(way) << 16 | u64::from(drive),
        }
    }
    fn unpack(bits: u64) -> Self {
        let low = bits as u32;
        match bits >> 48 {
            0 => Self::CoreDone(low),
            1 => Self::DiskDone((bits >> 32) as u16, low),
            2 => Self::Slot(low),
            3 => Self::Background,
            4 => Self::PowerState(low as u16),
            5 => Self::Access(low as u16),
            6 => Self::Burst(low),
            7 => Self::Slice,
            8 => Self::Arrived(low),
            9 => Self::Admitted(low),
            10 => Self::Served(low),
            11 => Self::Room(low as u16),
            12 => Self::Governor,
            13 => Self::Watch,
            14 => Self::PowerLimit,
            _ if bits & 1 << 32 != 0 => Self::BestEffort,
            _ => Self::Rated(low as u16, (low >> 16) as u8),
        }
    }
}

/// Bits of a packed event.
const PACKED: u32 = 52;
/// A bucket of the calendar is 32 ns wide,
const BUCKET_SHIFT: u32 = 5;
/// and a turn of it has 256 x 64 buckets, half a millisecond: nearly all events come sooner.
const WORDS: usize = 256;
const BUCKETS: usize = 64 * WORDS;
/// Most entries of a bucket that are searched for the first; more may come at one instant.
const CROWD: usize = 16;
/// No entry.
const NONE: u32 = u32::MAX;

/// A pending event; those of a bucket are linked in any order.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Time from the bucket's start, above the packed event.
    key: u64,
    next: u32,
}

/// Pending events. Those of one instant come in the order of their packed form, so that the
/// order never depends on how they were inserted.
///
/// A calendar queue (Brown, CACM 31:10, 1988) of one turn: adding and taking an event cost the
/// same however many are pending, and hardly a branch depends on how their times compare. The
/// few events beyond the turn wait in a heap.
#[derive(Debug)]
pub(super) struct Events {
    /// Key of the first of all: time in the high half, packed event in the low half.
    next: u128,
    /// First entry of each bucket.
    heads: Box<[u32; BUCKETS]>,
    /// Whether a bucket has entries, bit by bit, and whether a word has buckets that have.
    full: [u64; WORDS],
    full_words: [u64; WORDS / 64],
    /// How many entries the calendar has.
    near: usize,
    entries: Vec<Entry>,
    /// First unused entry.
    unused: u32,
    /// Bucket of the event last taken, counted from the start: the turn begins here.
    today: u64,
    /// Events that lay beyond the turn when they were added, or in a crowd.
    far: BinaryHeap<Reverse<u128>>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            next: NEVER,
            heads: Box::new([NONE; BUCKETS]),
            full: [0; WORDS],
            full_words: [0; WORDS / 64],
            near: 0,
            entries: Vec::new(),
            unused: NONE,
            today: 0,
            far: BinaryHeap::new(),
        }
    }

    /// Adds an event that does not come before the one last taken.
    #[inline(always)] // Packing an event costs nothing where its kind is known.
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.add(u128::from(at) << 64 | u128::from(event.pack()));
    }
    #[inline(never)]
    fn add(&mut self, key: u128) {
        self.next = self.next.min(key);
        let day = day(key);
        if day - self.today >= BUCKETS as u64 {
            return self.far.push(Reverse(key));
        }
        let bucket = day as usize % BUCKETS;
        let entry = Entry { key: in_day(key), next: self.heads[bucket] };
        let word = bucket / 64;
        self.full[word] |= 1 << (bucket % 64);
        self.full_words[word / 64] |= 1 << (word % 64);
        self.near += 1;
        if let Some(unused) = self.entries.get_mut(self.unused as usize) {
            self.heads[bucket] = self.unused;
            self.unused = unused.next;
            *unused = entry;
        } else {
            self.heads[bucket] = self.entries.len() as u32;
            self.entries.push(entry);
        }
    }

    /// The time of the next event; the end of time when there is none.
    #[inline]
    pub(super) fn next_time(&self) -> u64 {
        (self.next >> 64) as u64
    }
    #[inline(always)] // Unpacking an event is choosing what handles it.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let key = self.next;
        if self.next_time() == u64::MAX {
            return None;
        }
        self.today = day(key);
        if !self.remove(self.today as usize % BUCKETS, in_day(key)) {
            self.far.pop();
        }
        self.next = self.first();
        Some(Event::unpack(key as u64))
    }
    /// Takes an entry out of its bucket, if it is there.
    #[inline(always)]
    fn remove(&mut self, bucket: usize, key: u64) -> bool {
        let (mut before, mut index) = (NONE, self.heads[bucket]);
        while let Some(entry) = self.entries.get_mut(index as usize) {
            if entry.key == key {
                let next = std::mem::replace(&mut entry.next, self.unused);
                self.unused = index;
                self.near -= 1;
                if let Some(before) = self.entries.get_mut(before as usize) {
                    before.next = next;
                } else {
                    self.heads[bucket] = next;
                    if next == NONE {
                        let word = bucket / 64;
                        self.full[word] &= !(1 << (bucket % 64));
                        let empty = u64::from(self.full[word] == 0);
                        self.full_words[word / 64] &= !(empty << (word % 64));
                    }
                }
                return true;
            }
            (before, index) = (index, entry.next);
        }
        false
    }
    /// The first event of all.
    #[inline]
    fn first(&mut self) -> u128 {
        let far = self.far.peek().map_or(NEVER, |far| far.0);
        if self.near == 0 {
            return far;
        }
        let bucket = self.today as usize % BUCKETS;
        let (mut word, bit) = (bucket / 64, bucket % 64);
        let mut bits = self.full[word] >> bit << bit;
        if bits == 0 {
            let mut part = word / 64;
            let mut words = self.full_words[part] & u64::MAX << (word % 64) << 1;
            while words == 0 {
                part = (part + 1) % self.full_words.len();
                words = self.full_words[part];
            }
            word = part * 64 + words.trailing_zeros() as usize % 64;
            bits = self.full[word];
        }
        let first = word * 64 + bits.trailing_zeros() as usize % 64;
        let day = self.today + (first.wrapping_sub(bucket) % BUCKETS) as u64;
        let (mut key, mut index) = (u64::MAX, self.heads[first]);
        let mut count = 0;
        while let Some(entry) = self.entries.get(index as usize) {
            key = key.min(entry.key);
            index = entry.next;
            count += 1;
        }
        if count > CROWD {
            return self.disperse(day);
        }
        whole(day, key).min(far)
    }
    /// Has the heap put a crowd in order; returns the first event of all.
    #[cold]
    fn disperse(&mut self, day: u64) -> u128 {
        let bucket = day as usize % BUCKETS;
        while let Some(entry) = self.entries.get(self.heads[bucket] as usize) {
            let key = entry.key;
            self.far.push(Reverse(whole(day, key)));
            self.remove(bucket, key);
        }
        self.first()
    }
}

/// The end of time: after every event.
const NEVER: u128 = u128::MAX;

/// The bucket of a key's time, counted from the start.
fn day(key: u128) -> u64 {
    (key >> (64 + BUCKET_SHIFT)) as u64
}
/// A key within its bucket.
fn in_day(key: u128) -> u64 {
    ((key >> 64) as u64 % (1 << BUCKET_SHIFT)) << PACKED | key as u64
}
/// The key of one within its bucket.
fn whole(day: u64, key: u64) -> u128 {
    let at = day << BUCKET_SHIFT | key >> PACKED;
    u128::from(at) << 64 | u128::from(key % (1 << PACKED))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_survive_packing() {
        let all = [
            Event::CoreDone(u32::MAX),
            Event::DiskDone(u16::MAX, u32::MAX),
            Event::Slot(7),
            Event::Background,
            Event::PowerState(1023),
            Event::Access(1023),
            Event::Burst(9),
            Event::Slice,
            Event::Arrived(u32::MAX),
            Event::Admitted(5),
            Event::Served(u32::MAX),
            Event::Room(1023),
            Event::Governor,
            Event::Watch,
            Event::PowerLimit,
            Event::Rated(1023, 1),
            Event::BestEffort,
        ];
        for event in all {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }

    proptest! {
        #[test]
        fn events_come_out_in_time_order(
            steps in prop::collection::vec(
                prop::option::weighted(0.6, (
                    prop_oneof![0u64..600, 0u64..3_000_000],
                    prop_oneof![30 => Just(1_usize), 1 => 1..3 * CROWD],
                )),
                0..900,
            ),
        ) {
            let mut events = Events::new();
            let mut sorted = BTreeSet::new();
            let mut now = 0;
            let mut slots = (0_u32..).map(u32::reverse_bits);
            for step in steps {
                if let Some((delay, count)) = step {
                    for slot in slots.by_ref().take(count) {
                        events.push(now + delay, Event::Slot(slot));
                        sorted.insert((now + delay, slot));
                    }
                } else {
                    let first = sorted.pop_first();
                    prop_assert_eq!(events.next_time(), first.map_or(u64::MAX, |(at, _)| at));
                    prop_assert_eq!(events.pop(), first.map(|(_, slot)| Event::Slot(slot)));
                    now = first.map_or(now, |(at, _)| at);
                }
            }
            while let Some((_, slot)) = sorted.pop_first() {
                prop_assert_eq!(events.pop(), Some(Event::Slot(slot)));
            }
            prop_assert_eq!(events.pop(), None);
        }
    }
}
