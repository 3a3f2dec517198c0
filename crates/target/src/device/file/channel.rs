//! Requests in flight on one open file.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebb_nvme::Status;
use rustix::io::Errno;

use super::super::{Buffer, Channel, Done, Geometry, Io, Op, Pool};
use super::errno;
use super::kernel::{Call, Kernel};

/// Requests the kernel has at most; the others wait in order.
pub(super) const DEPTH: u32 = 256;
/// Bytes of zeros written at once where the file system cannot zero a range itself.
const ZEROS: usize = 128 << 10;
/// Attempts of a request that the kernel says may work later, or that moves less than a block.
const ATTEMPTS: u8 = 100;

/// What all channels of a file share.
#[derive(Debug)]
pub struct Medium {
    block_size: u32,
    /// Grows, never shrinks.
    blocks: AtomicU64,
    /// What was to become durable may not be, and never will: see [`trust`].
    lost: AtomicBool,
}

impl Medium {
    /// A file of this size.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        let Geometry { block_size, blocks } = geometry;
        Self { block_size, blocks: AtomicU64::new(blocks), lost: AtomicBool::new(false) }
    }

    pub(super) fn geometry(&self) -> Geometry {
        let blocks = self.blocks.load(Ordering::Relaxed);
        Geometry { block_size: self.block_size, blocks }
    }

    pub(super) fn grow(&self, blocks: u64) {
        self.blocks.fetch_max(blocks, Ordering::Relaxed);
    }
}

/// One thread's way to a file, through a `K` of its own.
pub struct FileChannel<K: Kernel> {
    kernel: K,
    medium: Arc<Medium>,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    waiting: VecDeque<Io>,
    done: Vec<Done>,
}

/// A request and how far it is.
struct Flight {
    io: Io,
    step: Step,
    /// Where its bytes begin in the file, and how many there are.
    start: u64,
    bytes: u64,
    /// Bytes done.
    filled: u64,
    block: u64,
    attempts: u8,
    zeros: Option<Buffer>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The request itself.
    Main,
    /// Zeros by writing them.
    Zeros,
    /// What was zeroed becomes durable.
    Sync,
    /// What is to be read does, first.
    SyncFirst,
}

impl Flight {
    fn new(io: Io, start: u64, bytes: u64, block: u32) -> Self {
        // NVM 3.2.4, FUA: commit the blocks to the medium, then read them from there.
        let first = io.op == (Op::Read { durable: true });
        let step = if first { Step::SyncFirst } else { Step::Main };
        Self { io, step, start, bytes, filled: 0, block: block.into(), attempts: 0, zeros: None }
    }

    fn call(&self) -> Call {
        match (self.step, self.io.op) {
            (Step::Sync | Step::SyncFirst, _) | (_, Op::Flush) => Call::Sync,
            (Step::Zeros, _) => Call::Write { durable: false },
            (Step::Main, Op::Read { .. }) => Call::Read,
            (Step::Main, Op::Write { durable }) => Call::Write { durable },
            (Step::Main, Op::WriteZeroes { .. }) => Call::ZeroRange,
            (Step::Main, Op::Deallocate) => Call::PunchHole,
        }
    }

    /// What follows a call that returned `result`: its end, or another call.
    fn next(&mut self, result: i32) -> Option<Status> {
        if let Some(error) = (result < 0).then(|| Errno::from_raw_os_error(-result)) {
            return self.failed(error);
        }
        match self.call() {
            Call::Read | Call::Write { .. } => {
                let moved = result as u64;
                if moved == 0 {
                    // The file ends here, though it was longer when opened.
                    return Some(errno::status(Errno::IO, self.io.op));
                }
                if self.filled + moved < self.bytes {
                    // Direct I/O goes on from a whole block.
                    let whole = moved / self.block * self.block;
                    self.filled += whole;
                    return if whole == 0 { self.failed(Errno::AGAIN) } else { None };
                }
            }
            Call::Sync if self.step == Step::SyncFirst => {
                self.step = Step::Main;
                return None;
            }
            Call::Sync | Call::PunchHole => return Some(Status::SUCCESS),
            Call::ZeroRange => {}
        }
        if self.io.op == (Op::WriteZeroes { durable: true }) {
            self.step = Step::Sync;
            return None;
        }
        Some(Status::SUCCESS)
    }

    fn failed(&mut self, error: Errno) -> Option<Status> {
        self.attempts += 1;
        if errno::passing(error) && self.attempts < ATTEMPTS {
            return None;
        }
        match self.call() {
            // A hint that cannot be taken does no harm; one that failed may have.
            Call::PunchHole if errno::unsupported(error) => Some(Status::SUCCESS),
            Call::ZeroRange if errno::unsupported(error) => {
                self.step = Step::Zeros;
                None
            }
            _ => Some(errno::status(error, self.io.op)),
        }
    }
}

impl<K: Kernel> FileChannel<K> {
    /// A way to the file of `medium` through `kernel`, which has it open.
    pub fn new(kernel: K, medium: Arc<Medium>) -> Self {
        Self {
            kernel,
            medium,
            flights: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).rev().collect(),
            waiting: VecDeque::new(),
            done: Vec::new(),
        }
    }

    fn start(&mut self, slot: u32, io: Io) {
        let geometry = self.medium.geometry();
        let (start, bytes) = match io.range(geometry) {
            Ok(range) if io.op == Op::Flush || !range.is_empty() => {
                (range.start, range.end - range.start)
            }
            end => {
                self.free.push(slot);
                self.done.push(io.done(end.err().unwrap_or(Status::SUCCESS)));
                return;
            }
        };
        let flight = Flight::new(io, start, bytes, geometry.block_size);
        self.flights[slot as usize] = Some(flight);
        self.push(slot);
    }

    /// Queues the next call of the request in `slot`. A slot has one call at a time and the queue
    /// holds as many as there are slots, so there is room.
    fn push(&mut self, slot: u32) {
        let Some(flight) = &mut self.flights[slot as usize] else { return };
        if flight.step == Step::Zeros && flight.zeros.is_none() {
            // A fresh pool is zeros.
            flight.zeros = Pool::new(1, ZEROS).ok().and_then(|pool| pool.take(ZEROS));
            if flight.zeros.is_none() {
                return self.finish(slot, Status::INTERNAL_ERROR);
            }
        }
        let call = flight.call();
        let (offset, length) = (flight.start + flight.filled, flight.bytes - flight.filled);
        let data = match flight.step {
            Step::Main => flight.io.buffer.as_mut().map(|data| &mut data[flight.filled as usize..]),
            Step::Zeros => flight.zeros.as_mut().map(|zeros| {
                let bytes = zeros.len().min(usize::try_from(length).unwrap_or(usize::MAX));
                &mut zeros[..bytes]
            }),
            Step::Sync | Step::SyncFirst => None,
        };
        if !self.kernel.push(slot.into(), call, offset, length, data.unwrap_or_default()) {
            self.finish(slot, Status::INTERNAL_ERROR);
        }
    }

    fn finish(&mut self, slot: u32, status: Status) {
        if let Some(flight) = self.flights[slot as usize].take() {
            self.done.push(flight.io.done(status));
            self.free.push(slot);
        }
    }

    fn reap(&mut self) {
        while let Some((tag, result)) = self.kernel.next() {
            let slot = tag as u32;
            let flight = self.flights.get_mut(slot as usize).and_then(Option::as_mut);
            let Some(flight) = flight else { continue };
            let result = trust(&self.medium, flight.call(), result);
            match flight.next(result) {
                Some(status) => self.finish(slot, status),
                None => self.push(slot),
            }
        }
        while !self.waiting.is_empty()
            && let Some(slot) = self.free.pop()
            && let Some(io) = self.waiting.pop_front()
        {
            self.start(slot, io);
        }
    }
}

/// The result of a call, or an error where it promises what the medium cannot keep.
///
/// The kernel tells once that cached data could not be stored, to whoever syncs next, and then
/// takes it for clean (fsync(2)). A host would try its flush again, succeed, and believe all to be
/// safe; so after one such error nothing is called synced until the file is opened anew.
fn trust(medium: &Medium, call: Call, result: i32) -> i32 {
    let error = (result < 0).then(|| Errno::from_raw_os_error(-result));
    let lost = match call {
        Call::Sync => error.is_some_and(|error| !errno::passing(error)),
        Call::Write { durable: true } => error.is_some_and(errno::medium),
        _ => false,
    };
    if lost {
        medium.lost.store(true, Ordering::Release);
    }
    if call == Call::Sync && result >= 0 && medium.lost.load(Ordering::Acquire) {
        return -Errno::IO.raw_os_error();
    }
    result
}

impl<K: Kernel> Channel for FileChannel<K> {
    fn submit(&mut self, io: Io) {
        match self.free.pop() {
            Some(slot) => self.start(slot, io),
            None => self.waiting.push_back(io),
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        // A refusal here passes (no memory for requests now); what is queued stays queued.
        let _ = self.kernel.submit();
        self.reap();
        let _ = self.kernel.submit();
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }

    fn register(&mut self, pool: &Pool) {
        self.kernel.register(pool);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.kernel.fd())
    }
}

impl<K: Kernel> Drop for FileChannel<K> {
    fn drop(&mut self) {
        self.waiting.clear();
        // The kernel may still write to the buffers: they must not go back before it is done.
        while self.free.len() < DEPTH as usize {
            if let Err(error) = self.kernel.wait()
                && !Errno::from_io_error(&error).is_some_and(errno::passing)
            {
                std::mem::forget(std::mem::take(&mut self.flights));
                return;
            }
            self.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls that `op` takes when each succeeds with what it was asked for.
    fn calls(op: Op) -> Vec<Call> {
        let io = Io { tag: 0, op, lba: 0, blocks: 8, buffer: None };
        let mut flight = Flight::new(io, 0, 4096, 512);
        let mut calls = Vec::new();
        loop {
            calls.push(flight.call());
            let moved = matches!(flight.call(), Call::Read | Call::Write { .. });
            if let Some(status) = flight.next(if moved { 4096 } else { 0 }) {
                assert!(status.is_success());
                return calls;
            }
        }
    }

    #[test]
    fn forced_unit_access_goes_through_the_medium() {
        assert_eq!(calls(Op::Read { durable: false }), [Call::Read]);
        assert_eq!(calls(Op::Read { durable: true }), [Call::Sync, Call::Read]);
        assert_eq!(calls(Op::Write { durable: true }), [Call::Write { durable: true }]);
        assert_eq!(calls(Op::WriteZeroes { durable: true }), [Call::ZeroRange, Call::Sync]);
        assert_eq!(calls(Op::Flush), [Call::Sync]);
    }

    #[test]
    fn a_medium_that_cannot_keep_what_was_written_is_not_read_as_if_it_had() {
        let io = Io { tag: 0, op: Op::Read { durable: true }, lba: 0, blocks: 8, buffer: None };
        let mut flight = Flight::new(io, 0, 4096, 512);
        assert_eq!(flight.next(-Errno::IO.raw_os_error()), Some(Status::UNRECOVERED_READ));
    }

    #[test]
    fn a_hint_that_cannot_be_taken_is_no_error_but_one_that_failed_is() {
        let ends = |error: Errno| {
            let io = Io { tag: 0, op: Op::Deallocate, lba: 0, blocks: 8, buffer: None };
            Flight::new(io, 0, 4096, 512).next(-error.raw_os_error())
        };
        assert_eq!(ends(Errno::OPNOTSUPP), Some(Status::SUCCESS));
        assert_eq!(ends(Errno::IO), Some(Status::WRITE_FAULT));
        assert_eq!(ends(Errno::NOSPC), Some(Status::CAPACITY_EXCEEDED));
        assert_eq!(ends(Errno::ROFS), Some(Status::READ_ONLY));
    }

    #[test]
    fn less_than_a_block_is_tried_again_but_not_for_ever() {
        let io = Io { tag: 0, op: Op::Read { durable: false }, lba: 0, blocks: 2, buffer: None };
        let mut flight = Flight::new(io, 0, 8192, 4096);
        assert_eq!((flight.next(6000), flight.filled), (None, 4096));
        let tries = (1..).find(|_| flight.next(512).is_some());
        assert!(tries.is_some_and(|tries| tries <= usize::from(ATTEMPTS)) && flight.filled == 4096);
    }
}
