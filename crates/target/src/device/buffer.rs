//! Data on its way between sockets and devices: page-aligned, from a bounded pool.
#![allow(unsafe_code)] // Aligned memory that outlives the pool's borrower.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Alignment of every buffer: what `O_DIRECT` wants of any device.
pub const ALIGNMENT: usize = 4096;

/// A bounded set of equal buffers. Running out is back-pressure, not an error.
///
/// The memory is one piece, so a ring can register it; pages never used are never touched.
#[derive(Debug, Clone)]
pub struct Pool {
    slab: Arc<Slab>,
}

#[derive(Debug)]
struct Slab {
    base: NonNull<u8>,
    bytes: usize,
    chunk: usize,
    book: Mutex<Book>,
}

/// Who holds what.
#[derive(Debug, Default)]
struct Book {
    /// Indices of the chunks that nobody holds; the last used, whose cache lines are warm, on top.
    free: Vec<u32>,
    /// Chunks charged to each account.
    charged: Vec<u32>,
}

/// Of buffers that are charged to nobody.
const NOBODY: u32 = u32::MAX;

// SAFETY: `base` is only reached through `Buffer`s, each of which owns its chunk alone.
unsafe impl Send for Slab {}
// SAFETY: as above; the free list has its lock.
unsafe impl Sync for Slab {}

impl Slab {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: mapped in `Pool::new` with this length; no buffer is left, as each holds an
        // `Arc` of the slab. It can only fail for what was never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Pool {
    /// `count` buffers of `bytes` each, rounded up to whole pages; neither is zero.
    ///
    /// # Errors
    /// When the system has no address space for their product.
    pub fn new(count: u32, bytes: usize) -> io::Result<Self> {
        let chunk = bytes.next_multiple_of(ALIGNMENT);
        let total = chunk.saturating_mul(count as usize);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // Not the allocator: its zeroed memory of such alignment is memory touched.
        // SAFETY: a new mapping where the kernel likes, so nothing is mapped over.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), total, protection, flags) };
        let base = NonNull::new(base?.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let book = Mutex::new(Book { free: (0..count).rev().collect(), charged: Vec::new() });
        Ok(Self { slab: Arc::new(Slab { base, bytes: total, chunk, book }) })
    }

    /// A buffer of `length` bytes with unspecified content, or `None` while all are in use.
    ///
    /// # Panics
    /// When `length` is more than a buffer of this pool holds.
    #[must_use]
    pub fn take(&self, length: usize) -> Option<Buffer> {
        self.take_for(NOBODY, length)
    }

    /// The same, charged to `account` until it comes back, whoever holds it meanwhile.
    ///
    /// # Panics
    /// As [`Pool::take`].
    #[must_use]
    pub fn take_for(&self, account: u32, length: usize) -> Option<Buffer> {
        assert!(length <= self.slab.chunk, "{length} bytes from chunks of {}", self.slab.chunk);
        let mut book = self.slab.book();
        let index = book.free.pop()?;
        if account != NOBODY {
            let account = account as usize;
            if book.charged.len() <= account {
                book.charged.resize(account + 1, 0);
            }
            book.charged[account] += 1;
        }
        drop(book);
        Some(Buffer { slab: self.slab.clone(), index, account, start: 0, length })
    }

    /// Buffers that nobody holds, and those charged to `accounts`, each of which `counts` says
    /// whether it counts.
    #[must_use]
    pub fn charged(&self, accounts: Range<u32>, counts: impl Fn(u32) -> bool) -> (u32, u32) {
        let book = self.slab.book();
        let of = |account: &u32| book.charged.get(*account as usize).copied();
        let charged = accounts.filter(|account| counts(*account)).filter_map(|one| of(&one)).sum();
        (book.free.len() as u32, charged)
    }

    /// Buffers that there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        (self.slab.bytes / self.slab.chunk) as u32
    }

    /// Buffers that nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.slab.book().free.len()
    }

    /// The whole memory, for registration with a ring: address and bytes.
    #[must_use]
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.slab.base.as_ptr(), self.slab.bytes)
    }
}

/// A page-aligned piece of memory; goes back to its pool when dropped.
#[derive(Debug)]
pub struct Buffer {
    slab: Arc<Slab>,
    index: u32,
    account: u32,
    /// Where the visible part begins in the chunk.
    start: usize,
    length: usize,
}

impl Buffer {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: `index` came from the free list, so the chunk lies inside the slab, and `start`
        // inside the chunk.
        unsafe { self.slab.base.add(self.index as usize * self.slab.chunk + self.start) }
    }

    /// Shows `range` of the buffer's whole memory from now on; all content stays.
    ///
    /// # Panics
    /// When `range` goes beyond what a buffer of its pool holds.
    pub fn window(&mut self, range: Range<usize>) {
        let chunk = self.slab.chunk;
        assert!(range.start <= range.end && range.end <= chunk, "{range:?} of {chunk} bytes");
        (self.start, self.length) = (range.start, range.end - range.start);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the chunk is initialised, ours alone while we live, and `length` is within it.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut book = self.slab.book();
        book.free.push(self.index);
        if self.account != NOBODY {
            book.charged[self.account as usize] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_separate_and_come_back() {
        let pool = Pool::new(3, 5000).unwrap();
        let mut held: Vec<_> = (0..3).map(|_| pool.take(5000).unwrap()).collect();
        assert!(pool.take(1).is_none());
        for (index, buffer) in held.iter_mut().enumerate() {
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            buffer.fill(index as u8);
        }
        for (index, buffer) in held.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == index as u8));
        }
        held.pop();
        assert_eq!(pool.available(), 1);
        let mut last = pool.take(1).unwrap();
        last.window(4096..5000);
        last.fill(9);
        last.window(4000..5000);
        assert!(last[..96].iter().all(|byte| *byte != 9) && last[96..].iter().all(|b| *b == 9));
        drop((pool, held));
        last[0] = 1; // The memory lives as long as its last buffer.
    }

    #[test]
    fn what_is_charged_to_an_account_is_its_own_until_it_comes_back() {
        let pool = Pool::new(4, 4096).unwrap();
        let held: Vec<_> = [7, 2, 7].map(|account| pool.take_for(account, 1).unwrap()).into();
        let all = |_| true;
        assert_eq!((pool.charged(7..8, all), pool.charged(0..8, all)), ((1, 2), (1, 3)));
        assert_eq!(pool.charged(0..9, |account| account != 7), (1, 1));
        drop((held, pool.take(1)));
        assert_eq!(pool.charged(0..9, all), (4, 0));
    }

    #[test]
    fn no_address_space_is_an_error() {
        assert!(Pool::new(u32::MAX, usize::MAX / 2).is_err());
    }
}
