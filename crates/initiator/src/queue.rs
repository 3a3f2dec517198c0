//! One queue on a connection of its own.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ebb_nvme::Sqe;
use ebb_nvme::command::{io, sgl};
use ebb_nvme::pdu::{self, CapsuleCmd, Digests, Kind, Terminate, Transfer, flag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::IntoBytes;

use super::link::{Agreed, Line, Link};
use super::outbox::Outbox;
use super::receive::Inbox;
use super::slot::{Completion, Slots};
use super::{Error, Violation};

/// Pieces of data PDUs made ready ahead of the socket; more wait in their slots.
const AHEAD: usize = 64;
/// Bytes of one Dataset Management range (NVM Figure 41).
const RANGE: usize = 16;
/// Command dword 11 of Dataset Management: deallocate.
const DEALLOCATE: u32 = 1 << 2;
/// Command dword 12: force unit access.
const FUA: u32 = 1 << 30;
/// The most blocks of one command: a 16-bit field, less one.
const MOST_BLOCKS: u32 = 1 << 16;

/// What an I/O command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write {
        /// Done only when it would survive a loss of power.
        durable: bool,
    },
    /// Compare with the buffer.
    Compare,
    /// Make what was completed before survive a loss of power.
    Flush,
    /// Make the range read as zeros.
    WriteZeroes,
    /// The content of the range is no longer needed.
    Deallocate,
}

/// An I/O command to submit.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Namespace.
    pub nsid: u32,
    /// First block.
    pub lba: u64,
    /// Blocks, from 1 to 65,536; ignored by a flush.
    pub blocks: u32,
    /// Data of a read, write or compare: its length is that of the blocks. Scratch for a
    /// deallocate. Comes back with the completion.
    pub buffer: Vec<u8>,
    /// Comes back with the completion.
    pub tag: u64,
    /// What the latency counts from.
    pub from: Instant,
}

/// A request that was not taken.
#[derive(Debug)]
pub enum Refused {
    /// The queue is full: wait for a completion.
    Full(Request),
    /// No blocks, too many, or a buffer that is not so many equal blocks.
    Invalid(Request),
}

/// Which way a command's data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// There is none.
    None,
    /// From the target.
    In,
    /// To the target.
    Out,
}

/// A queue. Nothing blocks except [`Queue::wait`].
#[derive(Debug)]
pub struct Queue {
    pub(super) link: Link,
    /// Most bytes of data in a command capsule.
    in_capsule: usize,
    pub(super) slots: Slots,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    /// Slots with a transfer asked for.
    pub(super) asked: VecDeque<u16>,
    pub(super) heard: Instant,
    failed: bool,
}

impl Queue {
    /// A queue of `depth` commands on a fresh connection.
    pub(super) fn new(link: Link, depth: usize, in_capsule: usize) -> Self {
        let slots = Slots::new(depth);
        let depth = slots.room();
        Self {
            link,
            in_capsule,
            slots,
            outbox: Outbox::with_capacity(depth),
            inbox: Inbox::new(),
            asked: VecDeque::with_capacity(depth),
            heard: Instant::now(),
            failed: false,
        }
    }

    /// A queue of `depth` commands over a socket whose ends have agreed on `digests` and nothing
    /// else, with up to `in_capsule` bytes of data in command capsules: what a fuzzer talks to.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn over(
        stream: TcpStream,
        digests: Digests,
        depth: usize,
        in_capsule: usize,
    ) -> Result<Self, Error> {
        stream.set_nonblocking(true)?;
        Ok(Self::new(
            Link { stream: Line::Plain(stream), agreed: Agreed::least(digests) },
            depth,
            in_capsule,
        ))
    }

    /// Sets how much data may go in a capsule from now on.
    pub(super) fn set_in_capsule(&mut self, bytes: usize) {
        self.in_capsule = bytes;
    }
    /// Commands that can be submitted now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.room()
    }
    /// Commands submitted and not answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.slots.busy()
    }
    /// When the target was last heard of.
    #[must_use]
    pub fn heard(&self) -> Instant {
        self.heard
    }
    /// Whether the socket did not take all there was to send.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Takes a command; it goes out with the next [`Queue::flush`] or [`Queue::poll`].
    ///
    /// # Errors
    /// When the queue is full or the request impossible; the request comes back.
    #[allow(clippy::result_large_err)] // Nothing may be allocated here, and refusals are rare.
    pub fn submit(&mut self, mut request: Request) -> Result<(), Refused> {
        let Request { op, nsid, lba, blocks, .. } = request;
        let has_data = matches!(op, Op::Read | Op::Write { .. } | Op::Compare);
        let length = request.buffer.len();
        let in_range = op == Op::Flush || (1..=MOST_BLOCKS).contains(&blocks);
        let whole = !has_data || (length > 0 && length.is_multiple_of(blocks.max(1) as usize));
        if !in_range || !whole {
            return Err(Refused::Invalid(request));
        }
        if self.room() == 0 {
            return Err(Refused::Full(request));
        }
        let (opcode, direction) = match op {
            Op::Read => (io::READ, Direction::In),
            Op::Write { .. } => (io::WRITE, Direction::Out),
            Op::Compare => (io::COMPARE, Direction::Out),
            Op::Flush => (io::FLUSH, Direction::None),
            Op::WriteZeroes => (io::WRITE_ZEROES, Direction::None),
            Op::Deallocate => (io::DATASET_MANAGEMENT, Direction::Out),
        };
        let mut sqe = Sqe::new(opcode, 0);
        sqe.nsid = nsid.into();
        match op {
            Op::Flush => {}
            Op::Deallocate => {
                sqe.set_cdw(11, DEALLOCATE); // One range: dword 10 is 0.
                let mut range = [0; RANGE];
                range[4..8].copy_from_slice(&blocks.to_le_bytes());
                range[8..].copy_from_slice(&lba.to_le_bytes());
                request.buffer.clear();
                request.buffer.extend_from_slice(&range);
            }
            _ => {
                sqe.set_cdw(10, lba as u32);
                sqe.set_cdw(11, (lba >> 32) as u32);
                let durable = op == Op::Write { durable: true };
                sqe.set_cdw(12, (blocks - 1) | if durable { FUA } else { 0 });
            }
        }
        let Request { buffer, tag, from, .. } = request;
        self.command(sqe, direction, buffer, tag, from);
        Ok(())
    }

    /// Takes any command; there must be room. Returns whether there was.
    pub(super) fn command(
        &mut self,
        mut sqe: Sqe,
        direction: Direction,
        buffer: Vec<u8>,
        tag: u64,
        from: Instant,
    ) -> bool {
        let Some((index, slot)) = self.slots.take() else { return false };
        let length = if direction == Direction::None { 0 } else { buffer.len() };
        (slot.direction, slot.buffer, slot.tag, slot.from) = (direction, buffer, tag, from);
        sqe.cid = slot.cid.into();
        sqe.sgl_length = (length as u32).into();
        let in_capsule = direction == Direction::Out && length <= self.in_capsule;
        sqe.sgl_identifier = match (length, in_capsule) {
            (0, _) | (_, false) => sgl::TRANSPORT,
            (_, true) => sgl::IN_CAPSULE,
        };
        let data = if in_capsule { length } else { 0 };
        let agreed = self.link.agreed;
        let common = pdu::common(Kind::CapsuleCmd, 0, agreed.digests, data, agreed.alignment);
        let capsule = CapsuleCmd { common, sqe };
        self.outbox.put(|bytes| pdu::put_header(bytes, capsule.as_bytes()));
        if in_capsule {
            slot.moved = length;
            self.put_data(index, 0, length);
        }
        true
    }

    /// Puts a range of a slot's data into the outbox, with its digest.
    fn put_data(&mut self, index: u16, at: usize, end: usize) {
        if at == end {
            return;
        }
        let slot = self.slots.at(index);
        slot.unsent += 1;
        self.outbox.put_data(index, at, end);
        if self.link.agreed.digests.data {
            let digest = crc32c::crc32c(&slot.buffer[at..end]);
            self.outbox.put(|bytes| bytes.extend_from_slice(&digest.to_le_bytes()));
        }
    }

    /// Answers requests for data in pieces of at most MAXH2CDATA (TCP 3.3.2.2).
    fn put_asked(&mut self) {
        let agreed = self.link.agreed;
        while self.outbox.parts() < AHEAD
            && let Some(index) = self.asked.front().copied()
        {
            let slot = self.slots.at(index);
            let Some(mut asked) = slot.asked else {
                self.asked.pop_front();
                continue;
            };
            let (at, end) = (asked.at, asked.end.min(asked.at + agreed.max_h2c));
            let last = end == asked.end;
            let flags = if last { flag::LAST } else { 0 };
            let data = end - at;
            let transfer = Transfer {
                common: pdu::common(Kind::H2cData, flags, agreed.digests, data, agreed.alignment),
                cid: slot.cid.into(),
                tag: asked.tag.into(),
                offset: (at as u32).into(),
                length: (data as u32).into(),
                reserved: 0.into(),
            };
            asked.at = end;
            slot.asked = (!last).then_some(asked);
            self.outbox.put(|bytes| pdu::put_header(bytes, transfer.as_bytes()));
            self.put_data(index, at, end);
            if last {
                self.asked.pop_front();
            }
        }
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.failed {
            return Err(Error::Closed);
        }
        loop {
            self.put_asked();
            self.outbox.flush(&mut self.link.stream, &mut self.slots)?;
            if !self.outbox.is_empty() || self.asked.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends, receives once, and adds the commands that were answered to `done`.
    ///
    /// # Errors
    /// When the connection is gone or the target broke the protocol; the queue is of no use then.
    /// What was answered before is in `done`.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> Result<(), Error> {
        let polled = self.try_poll(done);
        if let Err(error) = &polled {
            if let Error::Violation(violation) = error {
                self.terminate(*violation);
            }
            self.failed = true;
        }
        polled
    }

    fn try_poll(&mut self, done: &mut Vec<Completion>) -> Result<(), Error> {
        self.flush()?;
        if !self.receive()? {
            return Ok(());
        }
        self.heard = Instant::now();
        self.parse(done)?;
        self.flush()
    }

    /// Says why before the connection is closed (TCP 3.5), as far as the socket takes it.
    fn terminate(&mut self, violation: Violation) {
        let (status, information) = violation.fatal().code();
        let request = Terminate {
            common: pdu::common(Kind::H2cTermReq, 0, self.link.agreed.digests, 0, 4),
            status: status.into(),
            information: information.into(),
            reserved: [0; 10],
        };
        self.outbox.put(|bytes| bytes.extend_from_slice(request.as_bytes()));
        let _ = self.outbox.flush(&mut self.link.stream, &mut self.slots);
        let _ = self.link.stream.socket().shutdown(std::net::Shutdown::Both);
    }

    /// Waits until [`Queue::poll`] has something to do, or `timeout` is over.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        if self.link.stream.has_input() {
            return Ok(());
        }
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.is_sending());
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(self, flags)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Socket(error.into())),
        }
    }

    /// Tags and buffers of the commands that will never be answered; the queue is of no use then.
    pub fn abandon(&mut self) -> impl Iterator<Item = (u64, Vec<u8>)> + '_ {
        self.failed = true;
        self.slots.abandon()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.stream.socket().as_fd()
    }
}
