//! Requests in flight on one ring.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::{Buffer, Channel, Done, Geometry, Io, Op, Pool};
use super::errno;
use super::ring::{Call, Ring};
use crate::wire::Status;

/// Requests the kernel has at most; the others wait in order.
const DEPTH: u32 = 256;
/// Bytes of zeros written at once where the file system cannot zero a range itself.
const ZEROS: usize = 128 << 10;
/// Attempts of a request that the kernel says may work later.
const ATTEMPTS: u8 = 100;
/// What short transfers are rounded down to: direct I/O goes on from a whole sector.
const SECTOR: u64 = 512;

/// One thread's ring on a file.
pub(super) struct FileChannel {
    ring: Ring,
    file: Arc<File>,
    geometry: Geometry,
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
    fn new(io: Io, start: u64, bytes: u64) -> Self {
        // NVM 3.2.4, FUA: commit the blocks to the medium, then read them from there.
        let first = io.op == (Op::Read { durable: true });
        let step = if first { Step::SyncFirst } else { Step::Main };
        Self { io, step, start, bytes, filled: 0, attempts: 0, zeros: None }
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
                let all = self.filled + moved >= self.bytes;
                self.filled += if all { moved } else { moved / SECTOR * SECTOR };
                if !all {
                    // Nothing moved: the file ends here, though it was longer when opened.
                    return (moved < SECTOR).then(|| errno::status(Errno::IO, self.io.op));
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
            Call::PunchHole => Some(Status::SUCCESS), // A hint.
            Call::ZeroRange if errno::unsupported(error) => {
                self.step = Step::Zeros;
                None
            }
            _ => Some(errno::status(error, self.io.op)),
        }
    }
}

impl FileChannel {
    pub(super) fn new(file: Arc<File>, geometry: Geometry) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::new(DEPTH)?,
            file,
            geometry,
            flights: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).rev().collect(),
            waiting: VecDeque::new(),
            done: Vec::new(),
        })
    }

    fn start(&mut self, slot: u32, io: Io) {
        let (start, bytes) = match io.range(self.geometry) {
            Ok(range) if io.op == Op::Flush || !range.is_empty() => {
                (range.start, range.end - range.start)
            }
            end => {
                self.free.push(slot);
                self.done.push(io.done(end.err().unwrap_or(Status::SUCCESS)));
                return;
            }
        };
        let flight = Flight::new(io, start, bytes);
        self.flights[slot as usize] = Some(flight);
        self.push(slot);
    }

    /// Queues the next call of the request in `slot`. A slot has one call at a time and the queue
    /// holds as many as there are slots, so there is room.
    fn push(&mut self, slot: u32) {
        let Some(flight) = &mut self.flights[slot as usize] else { return };
        if flight.step == Step::Zeros && flight.zeros.is_none() {
            flight.zeros = Pool::new(1, ZEROS).take(ZEROS); // A fresh pool is zeros.
        }
        let call = flight.call();
        let place = (flight.start + flight.filled, flight.bytes - flight.filled);
        let buffer = match flight.step {
            Step::Main => flight.io.buffer.as_mut().map(|buffer| (buffer, flight.filled as usize)),
            Step::Zeros => flight.zeros.as_mut().map(|zeros| (zeros, 0)),
            Step::Sync | Step::SyncFirst => None,
        };
        let pushed = self.ring.push(slot.into(), &self.file, call, place, buffer);
        if !pushed {
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
        while let Some((tag, result)) = self.ring.next() {
            let slot = tag as u32;
            let flight = self.flights.get_mut(slot as usize).and_then(Option::as_mut);
            let Some(flight) = flight else { continue };
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

impl Channel for FileChannel {
    fn submit(&mut self, io: Io) {
        match self.free.pop() {
            Some(slot) => self.start(slot, io),
            None => self.waiting.push_back(io),
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        // A refusal here passes (no memory for requests now); what is queued stays queued.
        let _ = self.ring.submit();
        self.reap();
        let _ = self.ring.submit();
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }

    fn register(&mut self, pool: &Pool) {
        self.ring.register(pool);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.fd())
    }
}

impl Drop for FileChannel {
    fn drop(&mut self) {
        self.waiting.clear();
        // The kernel may still write to the buffers: they must not go back before it is done.
        while self.free.len() < DEPTH as usize {
            if let Err(error) = self.ring.wait()
                && error.kind() != io::ErrorKind::Interrupted
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
        let mut flight = Flight::new(io, 0, 4096);
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
        let mut flight = Flight::new(io, 0, 4096);
        assert_eq!(flight.next(-Errno::IO.raw_os_error()), Some(Status::UNRECOVERED_READ));
    }
}
