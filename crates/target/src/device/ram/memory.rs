//! Memory that several threads read and write at once.
//!
//! Soundness. Threads race on these bytes by design, which no Rust reference and no `memcpy`
//! allows. So the mapping is only ever touched through raw pointers and only by copies that have
//! the meaning of relaxed atomic accesses: string instructions in inline assembly on x86-64,
//! `AtomicU64` elsewhere. What a racing reader got is thrown away when the page's version moved.
//! References exist only to pages that are pinned, which nobody writes: see [`super::pins`].
#![allow(unsafe_code)] // The mapping and the copies between it and buffers.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};
use rustix::process::{Resource, getrlimit};

/// The least unit of versions: what the system gives and takes memory by.
pub(super) const PAGE: u64 = 4096;
/// Address space kept for growing, at least; four times its size is kept of a larger device.
const ROOM_TO_GROW: usize = 1 << 38;
/// Versions; units share them modulo this. A power of two.
const VERSIONS: u64 = 1024;
/// Looks at a version before giving up the core: its writer may have been descheduled.
const SPINS: u32 = 200;

/// A mapping that may not be touched yet.
fn reserve(length: usize) -> std::io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping where the kernel likes, so nothing is mapped over.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), flags)? };
    NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory.into())
}

/// Anonymous memory with a sequence lock per page, or per block where that is larger.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    /// Of the mapping, only the first of which may be touched.
    reserved: usize,
    bytes: AtomicU64,
    /// Blocks that hosts see.
    blocks: AtomicU64,
    /// Bytes that a guard is for, as a power of two: dividing costs as much as a lock.
    unit: u32,
    guards: Box<[Guard]>,
}

/// What readers and writers of the pages that share it tell each other.
#[derive(Debug, Default)]
struct Guard {
    /// Odd while somebody writes.
    version: AtomicU32,
    /// How many read in place: [`super::pins`].
    pins: AtomicU32,
}

// SAFETY: the mapping belongs to no thread; see the module's note on racing accesses.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no borrow outlives `self`. It can only
        // fail for arguments that were never mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.reserved) };
    }
}

impl Memory {
    /// Of so many `bytes`, in blocks that are read and written whole.
    pub(super) fn new(bytes: u64, block: u32, huge: bool) -> std::io::Result<Self> {
        let unit = PAGE.max(block.into()).ilog2();
        let bytes = bytes.next_multiple_of(1 << unit);
        let length = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        // Address space costs nothing where nobody limits it.
        let is_limited = getrlimit(Resource::As).current.is_some();
        let more = length.saturating_mul(4).max(ROOM_TO_GROW);
        let (base, reserved) = match if is_limited { None } else { reserve(more).ok() } {
            Some(base) => (base, more),
            None => (reserve(length)?, length),
        };
        let guards = (0..VERSIONS).map(|_| Guard::default()).collect();
        let (blocks, none) = (AtomicU64::new(0), AtomicU64::new(0));
        let memory = Self { base, reserved, bytes: none, blocks, unit, guards };
        memory.open(bytes, huge)?;
        Ok(memory)
    }

    /// Lets the first `bytes` of what is reserved be touched.
    fn open(&self, bytes: u64, huge: bool) -> std::io::Result<()> {
        let from = self.bytes();
        let length = bytes.saturating_sub(from) as usize;
        if bytes > self.reserved as u64 {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        // SAFETY: inside our own mapping, beyond what anybody touches; with the protection below
        // it may be touched like the rest.
        unsafe {
            let start = self.base.as_ptr().add(from as usize).cast();
            mprotect(start, length, MprotectFlags::READ | MprotectFlags::WRITE)?;
            if huge {
                // It keeps the content. A kernel without huge pages refuses: it costs speed only.
                let _ = madvise(start, length, Advice::LinuxHugepage);
            }
        }
        self.bytes.fetch_max(bytes, Ordering::Release);
        Ok(())
    }

    /// Makes room for `bytes`, which nobody sees yet.
    pub(super) fn extend(&self, bytes: u64, huge: bool) -> std::io::Result<()> {
        self.open(bytes.next_multiple_of(1 << self.unit).max(self.bytes()), huge)
    }

    /// Shows so many blocks from now on.
    pub(super) fn show(&self, blocks: u64) {
        self.blocks.fetch_max(blocks, Ordering::Release);
    }

    /// Blocks that hosts see.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Size in bytes: whole pages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Where `range` starts.
    pub(super) fn at(&self, range: &Range<u64>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes(), "{range:?} is outside");
        // SAFETY: inside the mapping, checked above.
        unsafe { self.base.as_ptr().add(range.start as usize) }
    }

    /// That of the unit which holds byte `at`.
    fn guard(&self, at: u64) -> &Guard {
        &self.guards[((at >> self.unit) % VERSIONS) as usize]
    }

    /// The parts of `range` that lie in one unit each.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        pieces(range, self.unit)
    }

    /// Copies from `start` on; every page as it was at one moment.
    pub(super) fn read(&self, start: u64, to: &mut [u8]) {
        let end = start + to.len() as u64;
        for piece in self.pieces(start..end) {
            let version = &self.guard(piece.start).version;
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
        for piece in self.pieces(start..end) {
            let from = &from[(piece.start - start) as usize..(piece.end - start) as usize];
            let to = self.at(&piece);
            self.lock(piece.start);
            // SAFETY: both sides are valid for the length; nobody writes to `from`.
            unsafe { copy(to, from.as_ptr(), from.len(), Shared::To) };
            self.unlock(piece.start);
        }
    }

    /// Makes `range` zeros and gives what it can of it back to the system.
    pub(super) fn give_back(&self, range: Range<u64>) {
        let unit = 1_u64 << self.unit;
        let whole = range.start.next_multiple_of(unit)..range.end / unit * unit;
        if whole.is_empty() {
            return self.fill(range);
        }
        self.fill(range.start..whole.start);
        let mut start = whole.start;
        while start < whole.end {
            // At most one turn of the versions, each locked in the order of the table: two calls
            // cannot wait for each other.
            let end = ((start / unit / VERSIONS + 1) * VERSIONS * unit).min(whole.end);
            self.release(start..end);
            start = end;
        }
        self.fill(whole.end..range.end);
    }

    /// Stores zeros.
    pub(super) fn fill(&self, range: Range<u64>) {
        const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        for piece in self.pieces(range) {
            self.lock(piece.start);
            for page in pieces(piece.clone(), PAGE.ilog2()) {
                let length = (page.end - page.start) as usize;
                // SAFETY: both sides are valid for the length; nobody writes to the zeros.
                unsafe { copy(self.at(&page), ZEROS.as_ptr(), length, Shared::To) };
            }
            self.unlock(piece.start);
        }
    }

    fn release(&self, range: Range<u64>) {
        let units = || self.pieces(range.clone()).map(|piece| piece.start);
        units().for_each(|unit| self.lock(unit));
        let length = (range.end - range.start) as usize;
        // SAFETY: whole pages of our own private anonymous mapping, which read as zeros
        // afterwards.
        let given =
            unsafe { madvise(self.at(&range).cast::<c_void>(), length, Advice::LinuxDontNeed) };
        units().for_each(|unit| self.unlock(unit));
        if given.is_err() {
            self.fill(range); // Locked memory cannot be given back.
        }
    }

    fn lock(&self, at: u64) {
        let Guard { version, pins } = self.guard(at);
        let mut wait = Wait::default();
        loop {
            let now = version.load(Ordering::Relaxed);
            let odd = now.wrapping_add(1);
            if now.is_multiple_of(2)
                && version
                    .compare_exchange_weak(now, odd, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            {
                break;
            }
            wait.once();
        }
        while pins.load(Ordering::SeqCst) > 0 {
            wait.once();
        }
        // The stores that follow must not be seen before the odd version.
        fence(Ordering::Release);
    }

    fn unlock(&self, at: u64) {
        self.guard(at).version.fetch_add(1, Ordering::Release);
    }
}

impl Memory {
    /// Keeps writers from the pages of `range`; false, and no pin left, while one writes there.
    pub(super) fn pin(&self, range: &Range<u64>) -> bool {
        for piece in self.pieces(range.clone()) {
            let Guard { version, pins } = self.guard(piece.start);
            pins.fetch_add(1, Ordering::SeqCst);
            if !version.load(Ordering::SeqCst).is_multiple_of(2) {
                self.unpin(&(range.start..piece.end));
                return false;
            }
        }
        true
    }

    /// Takes back what [`Memory::pin`] did.
    pub(super) fn unpin(&self, range: &Range<u64>) {
        for piece in self.pieces(range.clone()) {
            self.guard(piece.start).pins.fetch_sub(1, Ordering::Release);
        }
    }

    /// The bytes of `range`, all of which the caller has pinned for as long as it borrows them:
    /// only [`super::pins::Pinned`] calls this.
    pub(super) fn pinned(&self, range: &Range<u64>) -> &[u8] {
        let length = (range.end - range.start) as usize;
        // SAFETY: inside the mapping, which `at` checks; while every page is pinned, writers wait,
        // so nobody writes to these bytes.
        unsafe { std::slice::from_raw_parts(self.at(range), length) }
    }

    /// Has the first lines of `range` on their way to the cache when they are needed: the hardware
    /// fetches on from there. More would wait for room among the loads under way.
    pub(super) fn prefetch(&self, range: &Range<u64>) {
        const LINES: u64 = 8 * 64;
        let first = range.start..range.end.min(range.start + LINES);
        let base = self.at(&first);
        for line in (0..first.end - first.start).step_by(64) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: inside the mapping; a prefetch changes nothing and cannot fault.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(base.add(line as usize).cast::<i8>());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (base, line);
        }
    }
}

/// The parts of `range` that lie in one unit of so many bytes, as a power of two, each.
fn pieces(range: Range<u64>, unit: u32) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = (((start >> unit) + 1) << unit).min(range.end);
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
        let memory = Memory::new(64 * PAGE, 512, false).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..4000u32 {
                    memory.write(PAGE, &[round as u8; 2 * PAGE as usize]);
                    if round % 16 == 0 {
                        memory.give_back(0..16 * PAGE);
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
    fn blocks_larger_than_a_page_are_whole_too() {
        const BLOCK: usize = 16 * PAGE as usize;
        let memory = Memory::new(4 * BLOCK as u64, BLOCK as u32, false).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..1000u32 {
                    memory.write(BLOCK as u64, &[round as u8; BLOCK]);
                    if round % 16 == 0 {
                        memory.fill(0..2 * BLOCK as u64);
                    }
                }
            });
            let mut block = vec![0; BLOCK];
            while !writer.is_finished() {
                memory.read(BLOCK as u64, &mut block);
                assert!(block.iter().all(|byte| *byte == block[0]), "a block was torn");
            }
        });
    }

    #[test]
    fn pieces_stay_inside_pages() {
        let got: Vec<_> = pieces(512..9000, 12).collect();
        assert_eq!(got, [512..4096, 4096..8192, 8192..9000]);
        assert_eq!(pieces(4096..4096, 12).count(), 0);
    }
}
