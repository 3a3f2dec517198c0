//! The ring: the one place where the kernel is handed addresses.
#![allow(unsafe_code)] // Submission entries point into buffers.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::super::{Buffer, Pool};

/// Pools that can be registered.
const REGIONS: u32 = 4;

/// One operation of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write { durable: bool },
    Sync,
    ZeroRange,
    PunchHole,
}

/// An instance of io_uring. Threads take turns with it, so neither `SINGLE_ISSUER` nor
/// `DEFER_TASKRUN`; completions then reach it whichever thread it has moved to.
pub(super) struct Ring {
    ring: IoUring,
    /// What is registered; a clone of the pool keeps its addresses from being given to others.
    regions: Vec<Pool>,
    sparse: bool,
}

impl Ring {
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(entries)?;
        Ok(Self { ring, regions: Vec::new(), sparse: false })
    }

    /// Pins the pool's memory, if the limits allow; without, the kernel pins per request.
    pub(super) fn register(&mut self, pool: &Pool) {
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

    /// The registered pool that holds this address.
    fn region(&self, address: *const u8) -> Option<u16> {
        let at = self.regions.iter().position(|pool| {
            let (base, bytes) = pool.memory();
            (base as usize..base as usize + bytes).contains(&(address as usize))
        });
        at.map(|at| at as u16)
    }

    /// Queues `call` on the bytes of `file` from `offset` on; `skip` bytes of `buffer` are done.
    /// False when the queue is full. The caller, [`super::channel::FileChannel`], keeps `file`
    /// open and `buffer` unmoved in its pool and untouched until the completion of `tag`.
    pub(super) fn push(
        &mut self,
        tag: u64,
        file: &File,
        call: Call,
        (offset, length): (u64, u64),
        buffer: Option<(&mut Buffer, usize)>,
    ) -> bool {
        let fd = types::Fd(file.as_raw_fd());
        let (address, bytes) = match buffer {
            Some((buffer, skip)) => {
                let rest = &mut buffer[skip..];
                let bytes = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
                (rest.as_mut_ptr(), bytes as u32)
            }
            None => (std::ptr::null_mut(), 0),
        };
        let region = self.region(address);
        let entry = entry(fd, call, (offset, length), (address, bytes), region).user_data(tag);
        // SAFETY: the buffer's memory is in its pool's mapping, the descriptor in the file; the
        // channel owns both and gives up neither before it saw this tag's completion, not even
        // when dropped.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Hands what is queued to the kernel.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.ring.submit().map(|_| ())
    }

    /// Waits for one completion at least.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.ring.submit_and_wait(1).map(|_| ())
    }

    /// The next completion: its tag and result.
    pub(super) fn next(&mut self) -> Option<(u64, i32)> {
        self.ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
    }

    /// Readable while there are completions: the ring's own descriptor, which needs no draining
    /// as an eventfd would.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn entry(
    fd: types::Fd,
    call: Call,
    (offset, length): (u64, u64),
    (address, bytes): (*mut u8, u32),
    region: Option<u16>,
) -> squeue::Entry {
    match (call, region) {
        (Call::Read, Some(region)) => {
            opcode::ReadFixed::new(fd, address, bytes, region).offset(offset).build()
        }
        (Call::Read, None) => opcode::Read::new(fd, address, bytes).offset(offset).build(),
        (Call::Write { durable }, Some(region)) => {
            opcode::WriteFixed::new(fd, address, bytes, region)
                .offset(offset)
                .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
                .build()
        }
        (Call::Write { durable }, None) => opcode::Write::new(fd, address, bytes)
            .offset(offset)
            .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
            .build(),
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
