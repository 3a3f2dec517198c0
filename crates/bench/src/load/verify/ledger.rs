//! What each block must hold, and who is at it.

use std::sync::atomic::{AtomicU64, Ordering};

/// One word per block: the newest generation, how many before it are possible too, whether
/// anything is possible, and the requests in flight.
///
/// | bits | |
/// |---|---|
/// | 0-31 | generation of the last write that was sent; 0 for none |
/// | 32-39 | so many generations before it are possible: writes whose outcome is unknown |
/// | 40 | anything is possible: deallocated |
/// | 41 | a write is in flight |
/// | 42-63 | reads in flight |
///
/// A write excludes all other requests in flight on its blocks, reads exclude writes: what a
/// block holds while a write and another request overlap is up to the target.
#[derive(Debug)]
pub struct Ledger {
    first: u64,
    words: Box<[AtomicU64]>,
}

const SPAN: u64 = 1 << 32;
const MOST_SPAN: u64 = 0xff << 32;
const ANYTHING: u64 = 1 << 40;
const WRITER: u64 = 1 << 41;
const READER: u64 = 1 << 42;
const READERS: u64 = !(READER - 1);

/// What a block may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The last generation that was sent.
    pub newest: u32,
    /// The first that is still possible; 0 stands for what was there before the run.
    pub oldest: u32,
    /// Whether anything is possible.
    pub anything: bool,
}

/// How a write or a deallocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The blocks hold what was written.
    Written,
    /// They hold what was written, or what they held before.
    Unknown,
    /// They may hold anything.
    Anything,
}

impl Ledger {
    /// Nothing is known of `blocks` blocks from `first` on.
    pub fn new(first: u64, blocks: u64) -> Self {
        Self { first, words: (0..blocks).map(|_| AtomicU64::new(0)).collect() }
    }

    fn word(&self, lba: u64) -> &AtomicU64 {
        &self.words[(lba - self.first) as usize]
    }

    /// Takes all of these blocks, or none.
    fn take(&self, lba: u64, blocks: u32, free: u64, add: u64) -> bool {
        for at in lba..lba + u64::from(blocks) {
            let update = |word: u64| (word & free == 0).then(|| word.wrapping_add(add));
            let word = self.word(at);
            if word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).is_err() {
                for taken in lba..at {
                    self.word(taken).fetch_sub(add, Ordering::AcqRel);
                }
                return false;
            }
        }
        true
    }

    /// Holds the blocks for a read, unless a write is in flight on one of them.
    pub fn try_read(&self, lba: u64, blocks: u32) -> bool {
        self.take(lba, blocks, WRITER, READER)
    }

    /// The read is over.
    pub fn end_read(&self, lba: u64, blocks: u32) {
        for at in lba..lba + u64::from(blocks) {
            self.word(at).fetch_sub(READER, Ordering::AcqRel);
        }
    }

    /// Holds the blocks for a write, unless anything is in flight on one of them.
    pub fn try_write(&self, lba: u64, blocks: u32) -> bool {
        self.take(lba, blocks, WRITER | READERS, WRITER)
    }

    /// The generation that a held write gives its block.
    pub fn next(&self, lba: u64) -> u32 {
        (self.word(lba).load(Ordering::Acquire) as u32).wrapping_add(1)
    }

    /// The write or deallocation is over.
    pub fn end_write(&self, lba: u64, blocks: u32, outcome: Outcome) {
        for at in lba..lba + u64::from(blocks) {
            let update = |word: u64| {
                let generation = u64::from((word as u32).wrapping_add(1));
                let (span, anything) = (word & MOST_SPAN, word & ANYTHING);
                Some(match outcome {
                    Outcome::Written => generation,
                    Outcome::Unknown if span == MOST_SPAN => generation | span | ANYTHING,
                    Outcome::Unknown => generation | anything | (span + SPAN),
                    Outcome::Anything => generation | ANYTHING,
                })
            };
            // Nobody else may touch the word of a block that is held for writing.
            let word = self.word(at);
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        }
    }

    /// What a block may hold; it must be held.
    pub fn known(&self, lba: u64) -> Known {
        let word = self.word(lba).load(Ordering::Acquire);
        let (newest, span) = (word as u32, (word >> 32) as u8);
        let oldest = newest.saturating_sub(span.into());
        Known { newest, oldest, anything: word & ANYTHING != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_exclude_everything_and_reads_exclude_writes() {
        let ledger = Ledger::new(100, 10);
        assert!(ledger.try_read(100, 4) && ledger.try_read(102, 4));
        assert!(!ledger.try_write(105, 2), "block 105 is being read");
        assert!(ledger.try_write(106, 4));
        assert!(!ledger.try_read(104, 3), "block 106 is being written");
        ledger.end_read(100, 4);
        ledger.end_read(102, 4);
        assert!(ledger.try_write(100, 6), "the read that was refused holds nothing");
        assert!(!ledger.try_write(100, 1));
    }

    #[test]
    fn generations_follow_the_outcomes() {
        let ledger = Ledger::new(0, 1);
        let known = |newest, oldest, anything| Known { newest, oldest, anything };
        assert_eq!(ledger.known(0), known(0, 0, false));
        let write = |outcome| {
            assert!(ledger.try_write(0, 1));
            let generation = ledger.next(0);
            ledger.end_write(0, 1, outcome);
            assert_eq!(ledger.known(0).newest, generation);
            ledger.known(0)
        };
        assert_eq!(write(Outcome::Unknown), known(1, 0, false));
        assert_eq!(write(Outcome::Written), known(2, 2, false));
        assert_eq!(write(Outcome::Unknown), known(3, 2, false));
        assert_eq!(write(Outcome::Unknown), known(4, 2, false));
        assert_eq!(write(Outcome::Anything), known(5, 5, true));
        assert_eq!(write(Outcome::Unknown), known(6, 5, true));
        assert_eq!(write(Outcome::Written), known(7, 7, false));
        for _ in 0..300 {
            write(Outcome::Unknown);
        }
        assert!(ledger.known(0).anything, "too many to tell");
        assert!(ledger.try_write(0, 1), "nothing is left in flight");
    }

    #[test]
    fn threads_never_hold_the_same_block_for_writing() {
        let ledger = Ledger::new(0, 8);
        let inside: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (ledger, inside) = (&ledger, &inside);
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let lba = (round * 5 + thread * 3) % 7;
                        if ledger.try_write(lba, 2) {
                            for at in lba..lba + 2 {
                                assert_eq!(inside[at as usize].fetch_add(1, Ordering::AcqRel), 0);
                            }
                            for at in lba..lba + 2 {
                                inside[at as usize].fetch_sub(1, Ordering::AcqRel);
                            }
                            ledger.end_write(lba, 2, Outcome::Written);
                        }
                    }
                });
            }
        });
        assert!(ledger.try_write(0, 8));
    }
}
