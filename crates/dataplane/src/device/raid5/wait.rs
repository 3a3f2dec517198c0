//! Members one request at a time, for assembling, recovering and rebuilding.

use std::io;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::{Buffer, Channel, Device, Done, Io, Op, Pool};
use super::layout::PAGE;
use crate::wire::Status;

/// A member and memory of its own to move data through.
pub(super) struct Member {
    channel: Box<dyn Channel>,
    pool: Pool,
    block: u64,
    done: Vec<Done>,
}

impl Member {
    /// Moves up to `most` bytes at a time.
    pub(super) fn open(device: &Arc<dyn Device>, most: usize) -> io::Result<Self> {
        Ok(Self {
            channel: device.open()?,
            pool: Pool::new(1, most.max(2 * PAGE)),
            block: device.geometry().block_size.into(),
            done: Vec::new(),
        })
    }

    fn run(&mut self, op: Op, at: u64, bytes: u64, buffer: Option<Buffer>) -> Done {
        let io =
            Io { tag: 0, op, lba: at / self.block, blocks: (bytes / self.block) as u32, buffer };
        self.channel.submit(io);
        loop {
            self.channel.poll(&mut self.done);
            if let Some(done) = self.done.pop() {
                return done;
            }
            match self.channel.wake_fd() {
                // The time limit covers requests that the kernel would not take at once.
                Some(fd) => {
                    let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
                }
                None => std::thread::yield_now(),
            }
        }
    }

    fn check(done: &Done) -> Result<(), Status> {
        if done.status.is_success() { Ok(()) } else { Err(done.status) }
    }

    /// Reads into `to`.
    pub(super) fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Status> {
        let buffer = self.pool.take(to.len());
        let done = self.run(Op::Read { durable: false }, at, to.len() as u64, buffer);
        Self::check(&done)?;
        to.copy_from_slice(done.buffer.as_deref().ok_or(Status::INTERNAL_ERROR)?);
        Ok(())
    }

    pub(super) fn write(&mut self, at: u64, from: &[u8], durable: bool) -> Result<(), Status> {
        let mut buffer = self.pool.take(from.len());
        if let Some(buffer) = &mut buffer {
            buffer.copy_from_slice(from);
        }
        Self::check(&self.run(Op::Write { durable }, at, from.len() as u64, buffer))
    }

    pub(super) fn zero(&mut self, mut at: u64, end: u64) -> Result<(), Status> {
        while at < end {
            let bytes = (end - at).min(1 << 30);
            Self::check(&self.run(Op::WriteZeroes { durable: false }, at, bytes, None))?;
            at += bytes;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Status> {
        Self::check(&self.run(Op::Flush, 0, 0, None))
    }
}
