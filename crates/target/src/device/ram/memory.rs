//! Memory that several threads read and write at once.
//!
//! Soundness. Threads race on these bytes by design, which no Rust reference and no `memcpy`
//! allows. So the mapping is only ever touched through raw pointers and only by copies that have
//! the meaning of relaxed atomic accesses: string instructions in inline assembly on x86-64,
//! `AtomicU64` elsewhere. What a racing reader got is thrown away when the page's version moved.
#![allow(unsafe_code)] // The mapping and the copies between it and buffers.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Unit of versions and of giving memory back.
pub(super) const PAGE: u64 = 4096;
/// Versions; pages share them modulo this. A power of two.
const VERSIONS: u64 = 1024;
/// Looks at a version before giving up the core: its writer may have been descheduled.
const SPINS: u32 = 200;

/// Anonymous memory with a sequence lock per page.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    bytes: u64,
    /// Odd while somebody writes a page that shares it.
    versions: Box<[AtomicU32]>,
}

// SAFETY: the mapping belongs to no thread; see the module's note on racing accesses.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no borrow outlives `self`. It can only
        // fail for arguments that were never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

impl Memory {
    pub(super) fn new(bytes: u64, huge: bool) -> std::io::Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE);
        let length = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes, so nothing is mapped over.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags)? };
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let versions = (0..VERSIONS).map(|_| AtomicU32::new(0)).collect();
        let memory = Self { base, bytes, versions };
        if huge {
            // SAFETY: our own mapping; the advice keeps its content. A kernel without huge pages
            // refuses, which costs speed only.
            let _ = unsafe { madvise(base.as_ptr().cast(), length, Advice::LinuxHugepage) };
        }
        Ok(memory)
    }

    /// Size in bytes: whole pages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where `range` starts.
    pub(super) fn at(&self, range: &Range<u64>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} is outside");
        // SAFETY: inside the mapping, checked above.
        unsafe { self.base.as_ptr().add(range.start as usize) }
    }

    fn version(&self, page: u64) -> &AtomicU32 {
        &self.versions[(page % VERSIONS) as usize]
    }

    /// Copies from `start` on; every page as it was at one moment.
    pub(super) fn read(&self, start: u64, to: &mut [u8]) {
        let end = start + to.len() as u64;
        for piece in pages(start..end) {
            let version = self.version(piece.start / PAGE);
            let to = &mut to[(piece.start - start) as usize..(piece.end - start) as usize];
            let from = self.at(&piece);
            let mut wait = Wait::default();
            loop {
                let before = version.load(Ordering::Acquire);
                if before.is_multiple_of(2) {
                    // SAFETY: both sides are valid for the length; `to` is exclusively ours.
                    unsafe { copy(to.as_mut_ptr(), from, to.len(), Shared::From) };
                    fence(Ordering::Acquire);
                    if version.load(Ordering::Relaxed) == before {
                        break;
                    }
                }
                wait.once();
            }
        }
    }

    /// Stores from `start` on, page by page.
    pub(super) fn write(&self, start: u64, from: &[u8]) {
        let end = start + from.len() as u64;
        for piece in pages(start..end) {
            let from = &from[(piece.start - start) as usize..(piece.end - start) as usize];
            let to = self.at(&piece);
            self.lock(piece.start / PAGE);
            // SAFETY: both sides are valid for the length; nobody writes to `from`.
            unsafe { copy(to, from.as_ptr(), from.len(), Shared::To) };
            self.unlock(piece.start / PAGE);
        }
    }

    /// Makes `range` zeros; gives whole pages back where there are `give_back` bytes or more.
    pub(super) fn zero(&self, range: Range<u64>, give_back: u64) {
        let whole = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
        if whole.is_empty() || whole.end - whole.start < give_back {
            return self.fill(range);
        }
        self.fill(range.start..whole.start);
        let mut start = whole.start;
        while start < whole.end {
            // At most one turn of the versions, each locked in the order of the table: two calls
            // cannot wait for each other.
            let end = ((start / PAGE / VERSIONS + 1) * VERSIONS * PAGE).min(whole.end);
            self.release(start..end);
            start = end;
        }
        self.fill(whole.end..range.end);
    }

    fn fill(&self, range: Range<u64>) {
        const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        for piece in pages(range) {
            self.write(piece.start, &ZEROS[..(piece.end - piece.start) as usize]);
        }
    }

    fn release(&self, range: Range<u64>) {
        let numbers = range.start / PAGE..range.end / PAGE;
        numbers.clone().for_each(|page| self.lock(page));
        let length = (range.end - range.start) as usize;
        // SAFETY: whole pages of our own private anonymous mapping, which read as zeros
        // afterwards.
        let given =
            unsafe { madvise(self.at(&range).cast::<c_void>(), length, Advice::LinuxDontNeed) };
        numbers.for_each(|page| self.unlock(page));
        if given.is_err() {
            self.fill(range); // Locked memory cannot be given back.
        }
    }

    fn lock(&self, page: u64) {
        let version = self.version(page);
        let mut wait = Wait::default();
        loop {
            let now = version.load(Ordering::Relaxed);
            let odd = now.wrapping_add(1);
            if now.is_multiple_of(2)
                && version
                    .compare_exchange_weak(now, odd, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // The stores that follow must not be seen before the odd version.
                return fence(Ordering::Release);
            }
            wait.once();
        }
    }

    fn unlock(&self, page: u64) {
        self.version(page).fetch_add(1, Ordering::Release);
    }
}

/// The parts of `range` that lie in one page each.
fn pages(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = ((start / PAGE + 1) * PAGE).min(range.end);
        (start < end).then(|| std::mem::replace(&mut start, end)..end)
    })
}

#[derive(Default)]
struct Wait {
    spins: u32,
}

impl Wait {
    fn once(&mut self) {
        self.spins += 1;
        if self.spins.is_multiple_of(SPINS) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The side of a copy that other threads touch.
#[derive(Clone, Copy)]
enum Shared {
    From,
    To,
}

/// Copies `length` bytes; the shared side with the meaning of relaxed atomic accesses.
///
/// # Safety
/// Both sides are valid for `length` bytes and do not overlap; the side that is not shared is not
/// written by others (`Shared::To`) or not touched by others (`Shared::From`).
#[cfg(target_arch = "x86_64")]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize, _shared: Shared) {
    // SAFETY: as the caller promises; the direction flag is clear on entry to any assembly.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// As above.
///
/// # Safety
/// As above; also, both sides and `length` are multiples of eight.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize, shared: Shared) {
    use std::sync::atomic::AtomicU64;
    for offset in (0..length).step_by(8) {
        // SAFETY: inside both sides and aligned, as the caller promises.
        unsafe {
            let (to, from) = (to.add(offset).cast::<u64>(), from.add(offset).cast::<u64>());
            match shared {
                Shared::From => {
                    to.write(AtomicU64::from_ptr(from.cast_mut()).load(Ordering::Relaxed));
                }
                Shared::To => AtomicU64::from_ptr(to).store(from.read(), Ordering::Relaxed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_each_page_whole_and_zeroes_give_back() {
        let memory = Memory::new(64 * PAGE, false).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..4000u32 {
                    memory.write(PAGE, &[round as u8; 2 * PAGE as usize]);
                    if round % 16 == 0 {
                        memory.zero(0..16 * PAGE, 0);
                    }
                }
            });
            let mut page = [0; PAGE as usize];
            while !writer.is_finished() {
                memory.read(2 * PAGE, &mut page);
                assert!(page.iter().all(|byte| *byte == page[0]), "a page was torn");
            }
        });
    }

    #[test]
    fn pieces_stay_inside_pages() {
        let got: Vec<_> = pages(512..9000).collect();
        assert_eq!(got, [512..4096, 4096..8192, 8192..9000]);
        assert_eq!(pages(4096..4096).count(), 0);
    }
}
