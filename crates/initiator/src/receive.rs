//! What comes from the target: framing, checks, data into its command's buffer.

use std::io::{ErrorKind, IoSliceMut};
use std::time::Instant;

use ebb_nvme::Status;
use ebb_nvme::pdu::{CapsuleResp, Common, DIGEST, Fatal, Frame, Kind, Terminate, Transfer, flag};
use zerocopy::FromBytes;

use super::slot::{Asked, Completion};
use super::{Direction, Error, Queue, Violation};

/// Bytes taken from the socket at once, besides what goes straight to a command's buffer.
const STAGE: usize = 64 << 10;

/// Bytes received and not yet understood.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    state: State,
}

/// What comes next.
#[derive(Debug, Clone, Copy)]
enum State {
    /// A header.
    Header,
    /// Data of a command.
    Data(Incoming),
    /// The digest of that data.
    Digest(Incoming),
    /// Bytes of no interest: the PDU that a terminate request complains of.
    Terminated(Terminate),
}

/// Data on its way into a command's buffer.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    slot: u16,
    /// Where the next byte goes.
    at: usize,
    /// Where the last one goes, plus one.
    end: usize,
    /// Digest of what has come; `None` without digests.
    crc: Option<u32>,
    /// No response capsule will follow.
    success: bool,
}

impl Inbox {
    pub fn new() -> Self {
        let bytes = vec![0; STAGE].into_boxed_slice();
        Self { bytes, start: 0, end: 0, state: State::Header }
    }
    fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

impl Queue {
    /// Receives once; returns whether anything came.
    pub(super) fn receive(&mut self) -> Result<bool, Error> {
        let Self { link, slots, inbox, .. } = self;
        if inbox.start > 0 {
            // Less than a header is left, so this is cheap.
            inbox.bytes.copy_within(inbox.start..inbox.end, 0);
            (inbox.start, inbox.end) = (0, inbox.end - inbox.start);
        }
        let stage = &mut inbox.bytes[inbox.end..];
        let straight = match &mut inbox.state {
            State::Data(incoming) if inbox.end == 0 => Some(incoming),
            _ => None,
        };
        let received = match &straight {
            Some(Incoming { slot, at, end, .. }) => {
                let data = &mut slots.at(*slot).buffer[*at..*end];
                let mut into = [IoSliceMut::new(data), IoSliceMut::new(stage)];
                link.stream.read_vectored(&mut into)
            }
            None => link.stream.read_vectored(&mut [IoSliceMut::new(stage)]),
        };
        let mut count = match received {
            Ok(0) => return Err(Error::Closed),
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(incoming) = straight {
            let taken = count.min(incoming.end - incoming.at);
            let from = incoming.at;
            incoming.at += taken;
            if let Some(crc) = &mut incoming.crc {
                let data = &slots.at(incoming.slot).buffer[from..incoming.at];
                *crc = crc32c::crc32c_append(*crc, data);
            }
            count -= taken;
        }
        inbox.end += count;
        Ok(true)
    }

    /// Understands all that was received.
    pub(super) fn parse(&mut self, done: &mut Vec<Completion>) -> Result<(), Error> {
        loop {
            match self.inbox.state {
                State::Header => {
                    if !self.header(done)? {
                        return Ok(());
                    }
                }
                State::Data(incoming) => {
                    if !self.data(incoming, done)? {
                        return Ok(());
                    }
                }
                State::Digest(incoming) => {
                    let Some(received) = self.inbox.waiting().first_chunk::<DIGEST>() else {
                        return Ok(());
                    };
                    let received = u32::from_le_bytes(*received);
                    self.inbox.start += DIGEST;
                    let expected = incoming.crc.unwrap_or(received);
                    if received != expected {
                        let cid = self.slots.at(incoming.slot).cid;
                        let wrong = Violation::DataDigest { cid, expected, received };
                        return Err(wrong.into());
                    }
                    self.arrived(incoming, done)?;
                }
                State::Terminated(request) => {
                    let (status, information) = (request.status.get(), request.information.get());
                    return Err(Error::Terminated { status, information });
                }
            }
        }
    }

    /// Understands a header; returns whether it was all there.
    fn header(&mut self, done: &mut Vec<Completion>) -> Result<bool, Error> {
        let waiting = self.inbox.waiting();
        let Ok((common, _)) = Common::read_from_prefix(waiting) else { return Ok(false) };
        let frame =
            Frame::of(&common, self.link.agreed.digests, usize::MAX).map_err(Violation::from)?;
        let Some(head) = waiting.get(..frame.data_start) else { return Ok(false) };
        frame.check_header(head).map_err(Violation::from)?;
        let sequence = || Violation::Frame(Fatal::Sequence);
        // The frame's kind says that the header is long enough.
        match frame.kind {
            Kind::C2hData => {
                let (transfer, _) = Transfer::read_from_prefix(head).map_err(|_| sequence())?;
                self.inbox.start += frame.data_start;
                self.expect_data(&frame, &transfer)?;
            }
            Kind::CapsuleResp => {
                let (response, _) = CapsuleResp::read_from_prefix(head).map_err(|_| sequence())?;
                self.inbox.start += frame.data_start;
                self.answered(&response, done)?;
            }
            Kind::R2t => {
                let (transfer, _) = Transfer::read_from_prefix(head).map_err(|_| sequence())?;
                self.inbox.start += frame.data_start;
                self.asked_for(&transfer)?;
            }
            Kind::C2hTermReq => {
                let (request, _) = Terminate::read_from_prefix(head).map_err(|_| sequence())?;
                self.inbox.state = State::Terminated(request);
            }
            _ => return Err(sequence().into()),
        }
        Ok(true)
    }

    fn expect_data(&mut self, frame: &Frame, transfer: &Transfer) -> Result<(), Violation> {
        let cid = transfer.cid.get();
        let (index, slot) = self.slots.find(cid)?;
        if slot.direction != Direction::In {
            return Err(Violation::Direction(cid));
        }
        let (offset, length) = (transfer.offset.get() as usize, transfer.length.get() as usize);
        if offset != slot.moved {
            return Err(Violation::Offset { cid, expected: slot.moved, found: offset });
        }
        let total = slot.buffer.len();
        if length == 0 || length != frame.data_length || length > total - offset {
            return Err(Violation::Length { cid, offset, length, total });
        }
        let success = frame.flags & flag::SUCCESS != 0;
        if success && frame.flags & flag::LAST == 0 {
            return Err(Fatal::InvalidHeaderField(1).into());
        }
        self.inbox.state = State::Data(Incoming {
            slot: index,
            at: offset,
            end: offset + length,
            crc: frame.data_digest.then_some(0),
            success,
        });
        Ok(())
    }

    /// Takes data out of the inbox; returns whether all of it was there.
    fn data(
        &mut self,
        mut incoming: Incoming,
        done: &mut Vec<Completion>,
    ) -> Result<bool, Violation> {
        let Self { slots, inbox, .. } = self;
        let waiting = inbox.waiting();
        let here = waiting.len().min(incoming.end - incoming.at);
        let (from, to) = (&waiting[..here], incoming.at..incoming.at + here);
        slots.at(incoming.slot).buffer[to].copy_from_slice(from);
        incoming.crc = incoming.crc.map(|crc| crc32c::crc32c_append(crc, from));
        incoming.at += here;
        inbox.start += here;
        if incoming.at < incoming.end {
            inbox.state = State::Data(incoming);
            return Ok(false);
        }
        if incoming.crc.is_some() {
            inbox.state = State::Digest(incoming);
        } else {
            self.arrived(incoming, done)?;
        }
        Ok(true)
    }

    /// All data of a PDU is there and right.
    fn arrived(&mut self, incoming: Incoming, done: &mut Vec<Completion>) -> Result<(), Violation> {
        self.inbox.state = State::Header;
        let slot = self.slots.at(incoming.slot);
        slot.moved = incoming.end;
        if incoming.success {
            slot.check_whole()?;
            self.finish(incoming.slot, Status::SUCCESS, 0, done);
        }
        Ok(())
    }

    fn answered(
        &mut self,
        response: &CapsuleResp,
        done: &mut Vec<Completion>,
    ) -> Result<(), Violation> {
        let cqe = &response.cqe;
        let (index, slot) = self.slots.find(cqe.cid.get())?;
        slot.check_sent()?;
        if cqe.status().is_success() {
            slot.check_whole()?;
        }
        self.finish(index, cqe.status(), cqe.result.get(), done);
        Ok(())
    }

    fn finish(&mut self, index: u16, status: Status, result: u64, done: &mut Vec<Completion>) {
        let now: Instant = self.heard;
        done.push(self.slots.finish(index, status, result, now));
    }

    fn asked_for(&mut self, transfer: &Transfer) -> Result<(), Violation> {
        let cid = transfer.cid.get();
        let (index, slot) = self.slots.find(cid)?;
        if slot.direction != Direction::Out {
            return Err(Violation::Direction(cid));
        }
        if slot.asked.is_some() {
            return Err(Violation::TooManyRequests(cid));
        }
        let (offset, length) = (transfer.offset.get() as usize, transfer.length.get() as usize);
        if offset != slot.moved {
            return Err(Violation::Offset { cid, expected: slot.moved, found: offset });
        }
        let total = slot.buffer.len();
        if length == 0 || length > total - offset {
            return Err(Violation::Length { cid, offset, length, total });
        }
        let end = offset + length;
        slot.moved = end;
        slot.asked = Some(Asked { tag: transfer.tag.get(), at: offset, end });
        self.asked.push_back(index);
        Ok(())
    }
}
