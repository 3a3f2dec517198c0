//! Block devices: what a namespace stands on.
//!
//! A [`Device`] is shared by all cores; each lightweight thread opens its own [`Channel`] to it
//! and is the only one to use that, so a channel needs no lock.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use ebb_policy::units::Bytes;

use ebb_nvme::Status;

mod buffer;
mod error;
mod file;
mod health;
mod instant;
mod null;
mod raid5;
mod ram;
mod room;
mod spec;

pub use buffer::{ALIGNMENT, Buffer, Pool};
pub use error::Error;
pub use file::{Answer, Call, FileChannel, FileDevice, FileOptions, FileQueue, Kernel, Medium};
pub use health::{Failed, Health, Rebuilding};
pub use null::Null;
pub use raid5::{Checked, Fault, Finding, Keeper, Raid5, Raid5Options, Raid5Status};
pub use ram::{Loan, Pinned, Ram};
pub use room::{room, threads};
pub use spec::{Spec, open, open_kept, open_watched};

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

/// The blocks of a device that grows to `bytes`, or why it must not.
fn larger(geometry: Geometry, bytes: u64) -> Result<u64, String> {
    let (now, block) = (Bytes(geometry.bytes()), u64::from(geometry.block_size));
    if bytes < now.0 {
        let reason = "a device does not shrink, as data beyond the end would be lost; remove the \
                      namespace and add one of the size";
        return Err(format!("is {now}: {reason}"));
    }
    if !bytes.is_multiple_of(block) || bytes > 1 << 60 {
        return Err(format!("the size must be a multiple of {} up to 1 EiB", Bytes(block)));
    }
    Ok(bytes / block)
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer.
    Read {
        /// Force unit access: with what would survive a loss of power.
        durable: bool,
    },
    /// Store the buffer.
    Write {
        /// Force unit access: done only when it would survive a loss of power.
        durable: bool,
    },
    /// Make all that was completed before, on any channel, survive a loss of power.
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
///
/// Each block is read and written whole: a read that overlaps a write sees every block as it was
/// before or after (an atomic write unit of one block, AWUN = 0, in NVM 2.1.4). Nothing is
/// promised across blocks.
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

impl Io {
    /// The bytes it touches, or why it cannot be done on a device of this size: what every device
    /// asks again before it turns numbers into addresses.
    ///
    /// # Errors
    /// A range beyond the end, or a buffer of another length than the range.
    pub fn range(&self, geometry: Geometry) -> Result<Range<u64>, Status> {
        if !geometry.contains(self.lba, u64::from(self.blocks)) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let block = u64::from(geometry.block_size);
        let range = self.lba * block..(self.lba + u64::from(self.blocks)) * block;
        let held = self.buffer.as_ref().map(|buffer| buffer.len() as u64);
        match self.op {
            Op::Read { .. } | Op::Write { .. } if held != Some(range.end - range.start) => {
                Err(Status::DATA_SGL_LENGTH_INVALID)
            }
            _ => Ok(range),
        }
    }

    /// The completion of this request.
    #[must_use]
    pub fn done(self, status: Status) -> Done {
        Done { tag: self.tag, status, buffer: self.buffer }
    }
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

    /// One line for people: what it stands on and what it had to do without.
    fn describe(&self) -> String;

    /// What it is known by wherever its members are, where it keeps such a name itself.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// How it is, of a device that can do without a part of itself; else `None`.
    fn health(&self) -> Option<Health> {
        None
    }

    /// Bytes that one request may zero or deallocate without making others wait for long.
    fn slice(&self) -> u64 {
        1 << 20
    }

    /// Grows to `bytes`; channels that are open see the new size. A device never shrinks: what is
    /// beyond the end would be lost.
    ///
    /// # Errors
    /// When it cannot be of that size.
    fn grow(&self, _bytes: u64) -> Result<(), Error> {
        Err(Error::unfit("the device", "keeps its size; add another namespace"))
    }

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

    /// A read that is done by sending from where the bytes are, if the device has them in memory;
    /// `None`: it must be submitted.
    fn lend(&mut self, _lba: u64, _blocks: u32) -> Option<Loan> {
        None
    }

    /// A write of `data`, the blocks from `lba` on, done before this returns, if the device has
    /// them in memory; false: it must be submitted.
    fn store(&mut self, _lba: u64, _data: &[u8]) -> bool {
        false
    }

    /// Names the pool that most buffers will come from, so that a ring can pin it once.
    fn register(&mut self, _pool: &Pool) {}

    /// Becomes readable when [`Channel::poll`] would find something; `None` when completions are
    /// always there after one poll. To be waited for only after a poll that followed the last
    /// submission, for it is polling that sends.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
