//! What each core and thread has done, written by its reactor alone and read by anyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use ebb_policy::reactor::Core;
use ebb_policy::units::Nanos;

use super::sync::Padded;

/// A way of being asleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleep {
    /// On a watched cache line.
    Doze,
    /// In the kernel, until I/O or a message.
    Block,
    /// For a time: hybrid polling.
    Nap,
}

impl Sleep {
    /// Every one, in the order of [`CoreTotals::asleep`].
    pub const ALL: [Self; 3] = [Self::Doze, Self::Block, Self::Nap];
}

/// Totals of one core since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreTotals {
    /// Time of polls that found work.
    pub busy: Nanos,
    /// Time of polls that found none, and of the reactor's own affairs.
    pub wasted: Nanos,
    /// Time asleep, by [`Sleep`].
    pub asleep: [Nanos; 3],
    /// Times it fell asleep, by [`Sleep`].
    pub sleeps: [u64; 3],
    /// Files that the kernel would not watch: their threads keep the core polling.
    pub unwatched: u64,
}

impl CoreTotals {
    const WORDS: usize = 9;

    fn words(&self) -> [u64; Self::WORDS] {
        let [doze, block, nap] = self.asleep;
        let [dozes, blocks, naps] = self.sleeps;
        let (busy, wasted) = (self.busy.0, self.wasted.0);
        [busy, wasted, doze.0, block.0, nap.0, dozes, blocks, naps, self.unwatched]
    }

    fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [busy, wasted, doze, block, nap, dozes, blocks, naps, unwatched] = words;
        Self {
            busy: Nanos(busy),
            wasted: Nanos(wasted),
            asleep: [doze, block, nap].map(Nanos),
            sleeps: [dozes, blocks, naps],
            unwatched,
        }
    }

    /// All time asleep.
    #[must_use]
    pub fn all_asleep(&self) -> Nanos {
        self.asleep[0] + self.asleep[1] + self.asleep[2]
    }
}

/// The published totals of a core: a sequence lock, whose writer never waits.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct CoreCounters {
    /// Odd while being written.
    version: AtomicU32,
    /// One more than the index of the way it sleeps now; zero when awake.
    sleeping: AtomicU32,
    /// When it fell asleep.
    since: AtomicU64,
    words: [AtomicU64; CoreTotals::WORDS],
}

impl CoreCounters {
    /// By the core's own reactor.
    pub fn publish(&self, totals: &CoreTotals, sleeping: Option<(Sleep, Nanos)>) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        let (how, since) = sleeping.map_or((0, 0), |(sleep, at)| (sleep as u32 + 1, at.0));
        self.sleeping.store(how, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        for (word, value) in self.words.iter().zip(totals.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// The totals at `now`, the sleep that lasts included, and how it sleeps.
    pub fn read(&self, now: Nanos) -> (CoreTotals, Option<Sleep>) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let how = self.sleeping.load(Ordering::Relaxed);
            let since = Nanos(self.since.load(Ordering::Relaxed));
            let words = std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version % 2 == 1 || version != self.version.load(Ordering::Relaxed) {
                std::hint::spin_loop();
                continue;
            }
            let mut totals = CoreTotals::from_words(words);
            let sleep = Sleep::ALL.into_iter().nth((how as usize).wrapping_sub(1));
            if let Some(sleep) = sleep {
                totals.asleep[sleep as usize] += Nanos(now.0.saturating_sub(since.0));
            }
            return (totals, sleep);
        }
    }
}

/// Requests that a task knows to wait for it: it writes, while it works, and anyone reads.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<Padded<AtomicU32>>);

impl Waiting {
    /// Shows `count`. The line stays with its readers while nothing changes.
    pub fn set(&self, count: u32) {
        if self.get() != count {
            self.0.0.store(count, Ordering::Relaxed);
        }
    }

    /// What was last shown.
    #[must_use]
    pub fn get(&self) -> u32 {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// What a thread publishes; its owner writes, the hand-over through a ring orders the writers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ThreadCounters {
    pub waiting: Waiting,
    /// When the last poll began.
    looked: AtomicU64,
    /// Requests that the last poll took up (upper half), and nanoseconds since the one before.
    took: AtomicU64,
    /// End of the last poll that took up or answered requests.
    pub worked: AtomicU64,
    pub core: AtomicU16,
    pub busy: AtomicU64,
    pub requests: AtomicU64,
    pub latency: AtomicU64,
    pub moves: AtomicU64,
}

impl ThreadCounters {
    /// Of a task that shows what waits for it in `waiting`, and is on `core`.
    pub fn new(waiting: Waiting, core: Core) -> Self {
        Self { waiting, core: AtomicU16::new(core), ..Self::default() }
    }

    /// Adds to a counter that only the caller writes.
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// A poll begins, at `now`.
    pub fn look(&self, now: Nanos) {
        self.looked.store(now.0, Ordering::Relaxed);
    }

    /// The poll that began at [`Self::look`] took up so many requests, `gap` after the one before.
    pub fn took(&self, requests: u32, gap: Nanos) {
        let gap = gap.0.clamp(1, u32::MAX.into());
        self.took.store(u64::from(requests) << 32 | gap, Ordering::Relaxed);
    }

    /// Time since the last poll, where anything waits.
    pub fn since_poll(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.looked.load(Ordering::Relaxed)))
    }

    /// Requests that wait at `now`: those that the task knows of, and those that have come since
    /// it looked. To see these would take a system call: as many are assumed as the last poll took
    /// up, in proportion to the time since it began, and no more.
    pub fn depth(&self, now: Nanos) -> u32 {
        let known = self.waiting.get();
        let took = self.took.load(Ordering::Relaxed);
        let (requests, gap) = (took >> 32, took & u64::from(u32::MAX));
        if requests == 0 {
            return known;
        }
        let since = self.since_poll(now).0.min(gap);
        known.saturating_add((requests * since / gap) as u32)
    }

    pub fn owner(&self) -> Core {
        self.core.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_sleep_counts_before_it_ends() {
        let counters = CoreCounters::default();
        let totals = CoreTotals { busy: Nanos(7), sleeps: [0, 1, 0], ..CoreTotals::default() };
        counters.publish(&totals, Some((Sleep::Block, Nanos(100))));
        let (read, sleep) = counters.read(Nanos(150));
        assert_eq!(
            (read.busy, read.asleep, sleep),
            (Nanos(7), [0, 50, 0].map(Nanos), Some(Sleep::Block))
        );
        counters.publish(&totals, None);
        assert_eq!(counters.read(Nanos(200)), (totals, None));
    }

    #[test]
    fn what_waits_is_what_is_known_and_what_has_come_since_the_last_look() {
        let thread = ThreadCounters::default();
        let at = |micros| thread.depth(Nanos::from_micros(micros));
        assert_eq!(at(5), 0);
        thread.waiting.set(3);
        assert_eq!(at(5), 3);
        thread.look(Nanos::from_micros(10));
        thread.took(8, Nanos::from_micros(4));
        assert_eq!([10, 11, 12, 14, 1000].map(at), [3, 5, 7, 11, 11]);
        thread.waiting.set(0);
        thread.look(Nanos::from_micros(20));
        thread.took(0, Nanos::from_micros(10));
        assert_eq!([20, 25, 1000].map(at), [0; 3], "a queue that was found empty is none");
    }

    #[test]
    fn a_reader_never_sees_half_an_update() {
        let counters = CoreCounters::default();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..50_000 {
                    let totals =
                        CoreTotals { busy: Nanos(n), wasted: Nanos(n), ..CoreTotals::default() };
                    counters.publish(&totals, None);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let (totals, _) = counters.read(Nanos(0));
                assert_eq!(totals.busy, totals.wasted);
            }
        });
    }
}
