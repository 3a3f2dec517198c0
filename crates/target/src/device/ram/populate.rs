//! Taking the memory at start, so that no write waits for the kernel to find and clear a page.
#![allow(unsafe_code)] // Advice about the mapping, and touching its pages.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebb_policy::units::Bytes;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use super::memory::{Memory, PAGE};
use crate::device::{Error, room};

/// Taken by one thread at once: large enough to cost nothing, small enough to show progress.
const PIECE: u64 = 64 << 20;

/// Takes `memory` from byte `from` on and calls `taken` with the bytes of each piece; returns how
/// long it took.
/// Content stays.
///
/// # Errors
/// When the system has not got as much: found out before, as running out ends processes.
pub(super) fn populate(
    memory: &Memory,
    from: u64,
    taken: &(dyn Fn(u64) + Sync),
) -> Result<Duration, Error> {
    let start = Instant::now();
    let pieces = (memory.bytes() - from).div_ceil(PIECE);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let next = AtomicU64::new(from);
    let has_failed = AtomicBool::new(false);
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let from = next.fetch_add(PIECE, Ordering::Relaxed);
            if from >= memory.bytes() {
                break;
            }
            let length = PIECE.min(memory.bytes() - from);
            // Asked for each piece: others take memory, too.
            let took = check(memory.bytes() - from, room())
                .and_then(|()| take(memory, from, length).map_err(refused));
            took.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            taken(length);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(pieces)).map(|_| scope.spawn(work)).collect();
        let own = work();
        // A thread that panicked took nothing more; what it left untaken is taken when written.
        others.into_iter().filter_map(|other| other.join().ok()).fold(own, Result::and)
    })?;
    Ok(start.elapsed())
}

fn refused(error: io::Error) -> Error {
    Error::system("ram", "cannot take the memory", "ask for less, or add ',lazy'")(error)
}

/// Refuses what would leave the system without memory.
fn check(needed: u64, room: Option<u64>) -> Result<(), Error> {
    let Some(most) = room.filter(|room| needed > *room) else { return Ok(()) };
    const MIB: u64 = 1 << 20;
    let (needed, most) = (Bytes(needed.next_multiple_of(MIB)), Bytes(most / MIB * MIB));
    Err(Error::unfit(
        "ram",
        format!(
            "{needed} of memory are still to be taken and only {most} can be had; ask for less, \
             free some, or add ',lazy' to take it as it is written"
        ),
    ))
}

fn take(memory: &Memory, from: u64, length: u64) -> io::Result<()> {
    let start = memory.at(&(from..from + length));
    loop {
        // SAFETY: whole pages of our own mapping, checked by `at`; the advice keeps their content.
        match unsafe { madvise(start.cast(), length as usize, Advice::LinuxPopulateWrite) } {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            // Linux before 5.14.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    for page in (0..length).step_by(PAGE as usize) {
        // SAFETY: inside the mapping, checked by `at`; an atomic access, as the module of the
        // memory asks for, that writes what is there.
        unsafe { AtomicU8::from_ptr(start.add(page as usize)) }.fetch_or(0, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the process that are in memory.
    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE
    }

    #[test]
    fn all_of_it_is_there_afterwards_with_its_content() {
        let bytes = 3 * PIECE + PAGE;
        let memory = Memory::new(bytes, 4096, false).unwrap();
        memory.write(PIECE, &[7; PAGE as usize]);
        let (before, taken) = (resident(), AtomicU64::new(0));
        populate(&memory, 0, &|more| _ = taken.fetch_add(more, Ordering::Relaxed)).unwrap();
        assert_eq!(taken.into_inner(), bytes);
        // Other tests of the process come and go, but are small.
        assert!(resident() - before > bytes / 2, "{before} {}", resident());
        let mut page = [0; PAGE as usize];
        memory.read(PIECE, &mut page);
        assert_eq!(page, [7; PAGE as usize]);
    }

    #[test]
    fn more_than_there_is_is_refused_before_it_is_taken() {
        let memory = Memory::new(1 << 45, 4096, false).unwrap();
        let error = populate(&memory, 0, &|_| panic!("took some")).unwrap_err().to_string();
        assert!(error.contains("32 TiB") && error.contains("lazy"), "{error}");
        check(16, Some(16)).unwrap();
        check(1 << 60, None).unwrap();
        let error = check(16 << 20, Some((16 << 20) - 1)).unwrap_err().to_string();
        assert!(error.contains("16 MiB of memory") && error.contains("15 MiB"), "{error}");
    }
}
