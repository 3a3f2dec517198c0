//! Block devices: what a namespace stands on.
//!
//! A [`Device`] is shared by all cores; each lightweight thread opens its own [`Channel`] to it
//! and is the only one to use that, so a channel needs no lock.

use std::os::fd::BorrowedFd;

use crate::wire::Status;

mod buffer;

pub use buffer::{Buffer, Pool};

/// Size of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block: a power of two from 512 to 64 Ki.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
}

impl Geometry {
    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
    /// Whether `blocks` from `lba` on exist.
    #[must_use]
    pub fn contains(&self, lba: u64, blocks: u64) -> bool {
        lba.checked_add(blocks).is_some_and(|end| end <= self.blocks)
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write {
        /// Force unit access: done only when it would survive a loss of power.
        durable: bool,
    },
    /// Make all that was completed before survive a loss of power.
    Flush,
    /// Make the range read as zeros.
    WriteZeroes {
        /// As for a write.
        durable: bool,
    },
    /// The range's content is no longer needed: a hint.
    Deallocate,
}

/// One request to a channel. The range has been checked against the geometry.
#[derive(Debug)]
pub struct Io {
    /// Comes back with the completion.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// First block.
    pub lba: u64,
    /// Blocks; none for a flush.
    pub blocks: u32,
    /// The data, `blocks` long, of a read or write.
    pub buffer: Option<Buffer>,
}

/// How a request ended.
#[derive(Debug)]
pub struct Done {
    /// The request's tag.
    pub tag: u64,
    /// [`Status::SUCCESS`] only if all of it was done.
    pub status: Status,
    /// The buffer of the request.
    pub buffer: Option<Buffer>,
}

/// A block device.
pub trait Device: Send + Sync {
    /// Its size.
    fn geometry(&self) -> Geometry;

    /// Opens a way to it for one lightweight thread.
    ///
    /// # Errors
    /// When the system refuses what it needs (a ring, a file).
    fn open(&self) -> std::io::Result<Box<dyn Channel>>;
}

/// One lightweight thread's way to a device.
pub trait Channel: Send {
    /// Takes a request. Never blocks and never fails: errors come as completions. A device with
    /// nothing to wait for may complete it at once, to be seen by the next [`Channel::poll`].
    fn submit(&mut self, io: Io);

    /// Sends what was taken to the device and adds what it has done to `done`; returns how many.
    fn poll(&mut self, done: &mut Vec<Done>) -> usize;

    /// Becomes readable when [`Channel::poll`] would find something; `None` when completions are
    /// always there after one poll.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
