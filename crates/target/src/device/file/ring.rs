//! The ring: the one place where the kernel is handed addresses.
#![allow(unsafe_code)] // Submission entries point into buffers.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use super::super::Pool;
use super::kernel::{Call, Kernel};

/// Pools that can be registered.
const REGIONS: u32 = 4;

/// An instance of io_uring on a file. Threads take turns with it, so neither `SINGLE_ISSUER` nor
/// `DEFER_TASKRUN`; completions then reach it whichever thread it has moved to.
pub(super) struct Ring {
    ring: IoUring,
    file: Arc<File>,
    /// What is registered; a clone of the pool keeps its addresses from being given to others.
    regions: Vec<Pool>,
    sparse: bool,
}

impl Ring {
    pub(super) fn new(entries: u32, file: Arc<File>) -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(entries)?;
        Ok(Self { ring, file, regions: Vec::new(), sparse: false })
    }

    /// Sends what is queued and waits for one completion, no longer than `limit`.
    pub(super) fn wait_for(&mut self, limit: Duration) -> io::Result<()> {
        let limit = types::Timespec::from(limit);
        let args = types::SubmitArgs::new().timespec(&limit);
        self.ring.submitter().submit_with_args(1, &args).map(|_| ())
    }

    /// The registered pool that holds this address.
    fn region(&self, address: *const u8) -> Option<u16> {
        let at = self.regions.iter().position(|pool| {
            let (base, bytes) = pool.memory();
            (base as usize..base as usize + bytes).contains(&(address as usize))
        });
        at.map(|at| at as u16)
    }
}

impl Kernel for Ring {
    /// If the limits allow; without, the kernel pins per request.
    fn register(&mut self, pool: &Pool) {
        let index = self.regions.len() as u32;
        if index == REGIONS || self.region(pool.memory().0).is_some() {
            return;
        }
        let submitter = self.ring.submitter();
        self.sparse = self.sparse || submitter.register_buffers_sparse(REGIONS).is_ok();
        let (base, bytes) = pool.memory();
        let part = [libc::iovec { iov_base: base.cast(), iov_len: bytes }];
        // SAFETY: the pool's memory stays mapped while `regions` holds a clone of it.
        if self.sparse && unsafe { submitter.register_buffers_update(index, &part, None) }.is_ok() {
            self.regions.push(pool.clone());
        }
    }

    fn push(&mut self, tag: u64, call: Call, offset: u64, length: u64, data: &mut [u8]) -> bool {
        let fd = types::Fd(self.file.as_raw_fd());
        let region = self.region(data.as_ptr());
        let entry = entry(fd, call, (offset, length), data, region).user_data(tag);
        // SAFETY: the descriptor is ours; the memory is in the mapping of a buffer's pool. The
        // channel owns us and the buffer, and gives up neither before it saw this tag's
        // completion, not even when dropped.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.ring.submit().map(|_| ())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.ring.submit_and_wait(1).map(|_| ())
    }

    fn next(&mut self) -> Option<(u64, i32)> {
        self.ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
    }

    /// The ring's own descriptor, which needs no draining as an eventfd would.
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn entry(
    fd: types::Fd,
    call: Call,
    (offset, length): (u64, u64),
    data: &mut [u8],
    region: Option<u16>,
) -> squeue::Entry {
    let (address, bytes) = (data.as_mut_ptr(), data.len() as u32);
    let flags = |durable: bool| if durable { libc::RWF_DSYNC } else { 0 };
    match (call, region) {
        (Call::Read, Some(region)) => {
            opcode::ReadFixed::new(fd, address, bytes, region).offset(offset).build()
        }
        (Call::Read, None) => opcode::Read::new(fd, address, bytes).offset(offset).build(),
        (Call::Write { durable }, Some(region)) => {
            let write = opcode::WriteFixed::new(fd, address, bytes, region);
            write.offset(offset).rw_flags(flags(durable)).build()
        }
        (Call::Write { durable }, None) => {
            let write = opcode::Write::new(fd, address, bytes);
            write.offset(offset).rw_flags(flags(durable)).build()
        }
        (Call::Sync, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        (Call::ZeroRange, _) => opcode::Fallocate::new(fd, length)
            .offset(offset)
            .mode(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
            .build(),
        (Call::PunchHole, _) => opcode::Fallocate::new(fd, length)
            .offset(offset)
            .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
            .build(),
    }
}
