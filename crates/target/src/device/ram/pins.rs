//! Pages that are lent: read in place, by the kernel too, while writers wait.
//!
//! A version per page (see [`super::memory`]) lets a reader notice a write after the fact; the
//! kernel, which sends bytes from where they are, cannot look back. So it gets pages that nobody
//! writes meanwhile:
//!
//! ```text
//! reader: pins += 1; version odd? -> pins -= 1, later again; read; pins -= 1
//! writer: version = odd;  pins > 0? -> wait;                 write; version = even
//! ```
//!
//! All of it is sequentially consistent, so of the two first steps one is seen by the other side.
//! A reader that finds a writer gives up all its pins before it waits, so nobody waits for
//! somebody who waits for him.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::memory::Memory;

/// Bytes of a device in memory, lent to be sent from where they are.
#[derive(Debug)]
pub struct Loan {
    memory: Arc<Memory>,
    range: Range<u64>,
    block: usize,
}

impl Loan {
    /// Lends `range`, which must lie inside, in blocks of `block` bytes.
    pub(super) fn new(memory: Arc<Memory>, range: Range<u64>, block: u32) -> Self {
        memory.prefetch(&range);
        Self { memory, range, block: block as usize }
    }

    /// Bytes lent.
    #[must_use]
    pub fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Bytes of a block: what must be read at one moment.
    #[must_use]
    pub fn block(&self) -> usize {
        self.block
    }

    /// The bytes from `from` on, as they are now and stay while they are pinned; writers wait.
    /// `None` while somebody writes there.
    #[must_use]
    pub fn pin(&self, from: usize) -> Option<Pinned<'_>> {
        let range = self.range.start + from as u64..self.range.end;
        self.memory.pin(&range).then(|| Pinned { memory: &self.memory, range })
    }
}

/// Bytes that nobody writes.
#[derive(Debug)]
pub struct Pinned<'a> {
    memory: &'a Memory,
    range: Range<u64>,
}

impl Deref for Pinned<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.pinned(&self.range)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.memory.unpin(&self.range);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_is_pinned_does_not_change_and_writers_get_their_turn() {
        let memory = Arc::new(Memory::new(64 << 12, 4096, false).unwrap());
        let loan = Loan::new(memory.clone(), 4096..4096 * 9, 4096);
        let (looks, rounds) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while looks.load(Ordering::Relaxed) < 200 || rounds.load(Ordering::Relaxed) < 200 {
                    let round = rounds.fetch_add(1, Ordering::Relaxed);
                    memory.write(4096, &[round as u8; 8 << 12]);
                    if round.is_multiple_of(8) {
                        memory.give_back(0..16 << 12);
                    }
                }
            });
            while looks.load(Ordering::Relaxed) < 200 || rounds.load(Ordering::Relaxed) < 200 {
                let Some(pinned) = loan.pin(4096) else { continue };
                let first = pinned.to_vec();
                assert_eq!(first.len(), 7 << 12);
                std::thread::yield_now();
                assert!(*pinned == *first, "pinned bytes changed");
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(loan.pin(0).is_some());
    }
}
