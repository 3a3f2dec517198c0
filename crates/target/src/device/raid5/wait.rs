//! Members one request at a time, for assembling, recovering and rebuilding.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ebb_nvme::Status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::{Buffer, Channel, Device, Done, Io, Op, Pool};
use super::layout::PAGE;

/// A member and memory of its own to move data through.
pub(super) struct Member {
    channel: Box<dyn Channel>,
    pool: Pool,
    block: u64,
    done: Vec<Done>,
    /// Where to say that it lets its user wait for long: one bit.
    silent: Option<(Arc<AtomicU32>, u32)>,
    /// Looks in vain at a request, 100 ms apart, until that is said.
    patience: u32,
}

impl Member {
    /// Moves up to `most` bytes at a time.
    pub(super) fn open(device: &Arc<dyn Device>, most: usize) -> io::Result<Self> {
        Ok(Self {
            channel: device.open()?,
            pool: Pool::new(1, most.max(2 * PAGE))?,
            block: device.geometry().block_size.into(),
            done: Vec::new(),
            silent: None,
            patience: 50,
        })
    }

    /// From now on, bit `role` of `silent` is set while it lets its user wait for long.
    pub(super) fn watched(&mut self, silent: &Arc<AtomicU32>, role: usize) {
        self.silent = Some((silent.clone(), 1 << role));
    }

    fn run(&mut self, op: Op, at: u64, bytes: u64, buffer: Option<Buffer>) -> Done {
        let io =
            Io { tag: 0, op, lba: at / self.block, blocks: (bytes / self.block) as u32, buffer };
        self.channel.submit(io);
        let mut looks = 0;
        loop {
            self.channel.poll(&mut self.done);
            if let Some(done) = self.done.pop() {
                if let Some((silent, bit)) = self.silent.as_ref().filter(|_| looks >= self.patience)
                {
                    silent.fetch_and(!bit, Ordering::Relaxed);
                }
                return done;
            }
            match self.channel.wake_fd() {
                // The time limit covers requests that the kernel would not take at once.
                Some(fd) => {
                    let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                    let quiet = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
                    looks += u32::from(quiet == Ok(0));
                    if let Some((silent, bit)) =
                        self.silent.as_ref().filter(|_| looks == self.patience)
                    {
                        silent.fetch_or(*bit, Ordering::Relaxed);
                    }
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

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::device::Geometry;

    /// Answers a request when it was polled for it so many times.
    struct Slow(OwnedFd, u32, Option<Io>);

    impl Channel for Slow {
        fn submit(&mut self, io: Io) {
            self.2 = Some(io);
        }
        fn poll(&mut self, done: &mut Vec<Done>) -> usize {
            self.1 -= 1;
            let io = self.2.take_if(|_| self.1 == 0);
            done.extend(io.map(|io| io.done(Status::SUCCESS)));
            done.len()
        }
        fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }

    #[test]
    fn who_lets_the_keeper_wait_for_long_is_named_meanwhile() {
        let geometry = Geometry { block_size: 4096, blocks: 8 };
        let device: Arc<dyn Device> = Arc::new(crate::device::Null::new(geometry));
        let mut member = Member::open(&device, PAGE).unwrap();
        let silent = Arc::<AtomicU32>::default();
        member.watched(&silent, 3);
        let fd = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        (member.patience, member.channel) = (2, Box::new(Slow(fd(), 2, None)));
        member.flush().unwrap();
        assert_eq!(silent.load(Ordering::Relaxed), 0);
        member.channel = Box::new(Slow(fd(), 20, None));
        std::thread::scope(|scope| {
            scope.spawn(|| member.flush().unwrap());
            while silent.load(Ordering::Relaxed) != 1 << 3 {
                std::thread::yield_now();
            }
        });
        assert_eq!(silent.load(Ordering::Relaxed), 0);
    }
}
