//! What a file device asks of the kernel: a trait, so that tests can put a kernel below it that
//! loses power, fails and answers late.

use std::io;
use std::os::fd::BorrowedFd;

use super::super::Pool;

/// One operation of the kernel on an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Fill memory from the file.
    Read,
    /// Store memory in the file.
    Write {
        /// Done only when it would survive a loss of power.
        durable: bool,
    },
    /// Make all that was completed before survive a loss of power.
    Sync,
    /// Make the range read as zeros.
    ZeroRange,
    /// Let go of the range's content.
    PunchHole,
}

/// A queue of calls on one open file.
pub trait Kernel: Send {
    /// Names the pool that most memory will come from, so that it can be pinned once.
    fn register(&mut self, _pool: &Pool) {}

    /// Queues `call` on `length` bytes of the file from `offset` on; `data` is the memory of a
    /// read or write, as long, and empty for other calls. False when the queue is full.
    ///
    /// The caller, [`super::FileChannel`], leaves `data` where it is and untouched until it has
    /// the completion of `tag` from [`Kernel::next`].
    fn push(&mut self, tag: u64, call: Call, offset: u64, length: u64, data: &mut [u8]) -> bool;

    /// Hands what is queued to the kernel.
    ///
    /// # Errors
    /// When the kernel takes nothing now; what is queued stays queued.
    fn submit(&mut self) -> io::Result<()>;

    /// As [`Kernel::submit`], and waits for one completion at least.
    ///
    /// # Errors
    /// As for [`Kernel::submit`], and when a signal came first.
    fn wait(&mut self) -> io::Result<()>;

    /// The next completion: its tag, and the bytes moved or an error number, negative.
    fn next(&mut self) -> Option<(u64, i32)>;

    /// Readable while there are completions.
    fn fd(&self) -> BorrowedFd<'_>;
}
