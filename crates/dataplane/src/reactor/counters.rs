//! What each core and thread has done, written by its reactor alone and read by anyone.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use ebb_policy::reactor::Core;
use ebb_policy::units::Nanos;

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
    /// When it last began to poll its threads.
    pub polled: Nanos,
    /// Files that the kernel would not watch: their threads keep the core polling.
    pub unwatched: u64,
}

impl CoreTotals {
    const WORDS: usize = 10;

    fn words(&self) -> [u64; Self::WORDS] {
        let [doze, block, nap] = self.asleep;
        let [dozes, blocks, naps] = self.sleeps;
        let (busy, wasted, polled) = (self.busy.0, self.wasted.0, self.polled.0);
        [busy, wasted, doze.0, block.0, nap.0, dozes, blocks, naps, polled, self.unwatched]
    }

    fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [busy, wasted, doze, block, nap, dozes, blocks, naps, polled, unwatched] = words;
        Self {
            busy: Nanos(busy),
            wasted: Nanos(wasted),
            asleep: [doze, block, nap].map(Nanos),
            sleeps: [dozes, blocks, naps],
            polled: Nanos(polled),
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

    /// When the core last began to poll its threads, at most [`super::core::PUBLISH`] old
    /// while it polls.
    pub fn polled(&self) -> Nanos {
        Nanos(self.words[8].load(Ordering::Relaxed))
    }
}

/// What a thread publishes; its owner writes, the hand-over through a ring orders the writers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ThreadCounters {
    pub depth: AtomicU32,
    pub core: AtomicU16,
    pub busy: AtomicU64,
    pub requests: AtomicU64,
    pub moves: AtomicU64,
}

impl ThreadCounters {
    /// Adds to a counter that only the caller writes.
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
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
    fn a_reader_never_sees_half_an_update() {
        let counters = CoreCounters::default();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..50_000 {
                    let totals = CoreTotals {
                        busy: Nanos(n),
                        wasted: Nanos(n),
                        polled: Nanos(n),
                        ..CoreTotals::default()
                    };
                    counters.publish(&totals, None);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let (totals, _) = counters.read(Nanos(0));
                assert!(totals.busy == totals.wasted && totals.busy == totals.polled);
            }
        });
    }
}
