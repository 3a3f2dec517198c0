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
}

impl Event {
    fn pack(self) -> u64 {
        match self {
            Self::CoreDone(core) => u64::from(core),
            Self::DiskDone(drive, io) => 1 << 60 | u64::from(drive) << 32 | u64::from(io),
            Self::Slot(slot) => 2 << 60 | u64::from(slot),
            Self::Background => 3 << 60,
            Self::PowerState(drive) => 4 << 60 | u64::from(drive),
            Self::Access(drive) => 5 << 60 | u64::from(drive),
            Self::Burst(job) => 6 << 60 | u64::from(job),
            Self::Slice => 7 << 60,
            Self::Arrived(io) => 8 << 60 | u64::from(io),
            Self::Admitted(io) => 9 << 60 | u64::from(io),
            Self::Served(io) => 10 << 60 | u64::from(io),
            Self::Room(drive) => 11 << 60 | u64::from(drive),
        }
    }
    fn unpack(bits: u64) -> Self {
        let low = bits as u32;
        match bits >> 60 {
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
            _ => Self::Room(low as u16),
        }
    }
}

/// A bucket of the calendar is 128 ns wide,
const BUCKET_SHIFT: u32 = 7;
/// and a turn of it has 64 x 64 buckets, half a millisecond: nearly all events come sooner.
const WORDS: usize = 64;
const BUCKETS: usize = 64 * WORDS;
/// Most entries of a bucket that one is put behind; more may come at one instant.
const CROWD: usize = 32;
/// No entry.
const NONE: u32 = u32::MAX;

/// A pending event; those of a bucket are linked in order.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u128,
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
    full_words: u64,
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
            full_words: 0,
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
        let next = self.heads[bucket];
        if next == NONE {
            self.full[bucket / 64] |= 1 << (bucket % 64);
            self.full_words |= 1 << (bucket / 64);
        } else if self.entries[next as usize].key < key {
            return self.add_after(next, key);
        }
        self.heads[bucket] = self.entry(Entry { key, next });
    }
    /// Adds an entry in its place after `before`; in a crowd the heap finds it sooner.
    #[inline(never)]
    fn add_after(&mut self, mut before: u32, key: u128) {
        for _ in 0..CROWD {
            let next = self.entries[before as usize].next;
            if self.entries.get(next as usize).is_none_or(|next| next.key >= key) {
                let index = self.entry(Entry { key, next });
                self.entries[before as usize].next = index;
                return;
            }
            before = next;
        }
        self.far.push(Reverse(key));
    }
    fn entry(&mut self, entry: Entry) -> u32 {
        let index = self.unused;
        if let Some(unused) = self.entries.get_mut(index as usize) {
            self.unused = unused.next;
            *unused = entry;
            return index;
        }
        self.entries.push(entry);
        (self.entries.len() - 1) as u32
    }

    /// The time of the next event; the end of time when there is none.
    #[inline]
    pub(super) fn next_time(&self) -> u64 {
        (self.next >> 64) as u64
    }
    #[inline(always)] // Unpacking an event is choosing what handles it.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let key = self.next;
        if key == NEVER {
            return None;
        }
        self.today = day(key);
        let bucket = self.today as usize % BUCKETS;
        let index = self.heads[bucket];
        match self.entries.get_mut(index as usize) {
            Some(entry) if entry.key == key => {
                let next = std::mem::replace(&mut entry.next, self.unused);
                self.unused = index;
                self.heads[bucket] = next;
                if next == NONE {
                    let word = &mut self.full[bucket / 64];
                    *word &= !(1 << (bucket % 64));
                    self.full_words &= !(u64::from(*word == 0) << (bucket / 64));
                }
            }
            _ => {
                self.far.pop();
            }
        }
        self.next = self.first();
        Some(Event::unpack(key as u64))
    }
    /// The first event of all.
    fn first(&self) -> u128 {
        let far = self.far.peek().map_or(NEVER, |far| far.0);
        if self.full_words == 0 {
            return far;
        }
        let bucket = self.today as usize % BUCKETS;
        let (mut word, bit) = (bucket / 64, bucket % 64);
        let mut bits = self.full[word] >> bit << bit;
        if bits == 0 {
            let ahead = self.full_words.rotate_right(word as u32 + 1).trailing_zeros();
            word = (word + 1 + ahead as usize) % WORDS;
            bits = self.full[word];
        }
        let head = self.heads[word * 64 + bits.trailing_zeros() as usize % 64];
        self.entries[head as usize].key.min(far)
    }
}

/// The end of time: after every event.
const NEVER: u128 = u128::MAX;

/// The bucket of a key's time, counted from the start.
fn day(key: u128) -> u64 {
    (key >> (64 + BUCKET_SHIFT)) as u64
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
        ];
        for event in all {
            assert_eq!(Event::unpack(event.pack()), event);
        }
    }

    proptest! {
        #[test]
        fn events_come_out_in_time_order(
            steps in prop::collection::vec(
                prop::option::weighted(0.6, prop_oneof![0u64..600, 0u64..3_000_000]), 0..900
            ),
        ) {
            let mut events = Events::new();
            let mut sorted = BTreeSet::new();
            let mut now = 0;
            for (slot, step) in (0u32..).zip(steps) {
                if let Some(delay) = step {
                    events.push(now + delay, Event::Slot(slot));
                    sorted.insert((now + delay, slot));
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
