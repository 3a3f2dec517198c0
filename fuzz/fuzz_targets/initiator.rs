//! What a target sends to an initiator's queue between its commands: whatever that is, no command
//! ends twice or with another's buffer, no read succeeds without its data, and an error is the end.
//!
//! The first byte chooses digests; then come steps, each a byte and what it takes.

#![no_main]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use ebb_initiator::{Completion, Op, Queue, Request};
use ebb_nvme::pdu::{self, COMMON, CapsuleResp, Common, Digests, Frame, Kind, Transfer, flag};
use ebb_nvme::{Cqe, Status};
use libfuzzer_sys::fuzz_target;
use zerocopy::{FromBytes, IntoBytes};

const DEPTH: usize = 4;
const BLOCK: usize = 512;
/// Data of writes up to this goes in the capsule.
const IN_CAPSULE: usize = 1024;

/// A command on its way.
struct Expected {
    op: Op,
    length: usize,
    /// Bytes of its data that were sent to it in order.
    sent: usize,
}

struct Fuzz {
    queue: Queue,
    /// The target's end.
    far: UnixStream,
    digests: Digests,
    /// Bytes of any kind were sent, so data may have come that is not counted.
    raw: bool,
    /// Identifiers that commands went out with, by tag; the latest last.
    cids: Vec<u16>,
    expected: BTreeMap<u64, Expected>,
    next: u64,
    /// What came from the queue and is not yet a whole PDU.
    from_queue: Vec<u8>,
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(choice) = input.byte() else { return };
    let digests = Digests::from_byte(choice & 3);
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    // The queue only reads, writes and shuts it down: any stream socket will do.
    let near = TcpStream::from(OwnedFd::from(near));
    let queue = Queue::over(near, digests, DEPTH, IN_CAPSULE).unwrap();
    let mut fuzz = Fuzz {
        queue,
        far,
        digests,
        raw: false,
        cids: Vec::new(),
        expected: BTreeMap::new(),
        next: 0,
        from_queue: Vec::new(),
    };
    while let Some(step) = input.byte() {
        if fuzz.step(step, &mut input).is_none() || !fuzz.poll() {
            break;
        }
    }
    let left: Vec<u64> = fuzz.queue.abandon().map(|(tag, _)| tag).collect();
    assert_eq!(left.len(), fuzz.expected.len(), "commands were lost");
    assert!(left.iter().all(|tag| fuzz.expected.contains_key(tag)));
});

impl Fuzz {
    fn step(&mut self, step: u8, input: &mut Input<'_>) -> Option<()> {
        match step % 8 {
            0 => self.submit(Op::Read, input.byte()?),
            1 => self.submit(Op::Write { durable: step & 8 != 0 }, input.byte()?),
            2 => self.submit(if step & 8 != 0 { Op::Flush } else { Op::WriteZeroes }, 1),
            3 => self.submit(if step & 8 != 0 { Op::Deallocate } else { Op::Compare }, 1),
            4 => {
                let count = input.byte()?;
                self.raw = true;
                self.send(input.bytes(count.into()));
            }
            5 => self.data(input)?,
            6 => self.response(input)?,
            _ => self.transfer(Kind::R2t, 0, input)?,
        }
        Some(())
    }

    fn submit(&mut self, op: Op, blocks: u8) {
        let blocks = u32::from(blocks % 9);
        let length = match op {
            Op::Read | Op::Write { .. } | Op::Compare => blocks as usize * BLOCK,
            _ => 0,
        };
        let (tag, from) = (self.next, Instant::now());
        let buffer = vec![tag as u8; length];
        let request = Request { op, nsid: 1, lba: 7, blocks, buffer, tag, from };
        if self.queue.submit(request).is_ok() {
            self.next += 1;
            let length = if op == Op::Deallocate { 16 } else { length };
            self.expected.insert(tag, Expected { op, length, sent: 0 });
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let _ = self.far.write(bytes); // What does not fit is cut off: bytes like any others.
    }

    /// The identifier of a command that went out, mostly.
    fn cid(&self, choice: u8) -> u16 {
        let at = usize::from(choice);
        match self.cids.len() {
            count if count > 0 && choice < 0xf0 => self.cids[count - 1 - at % count],
            _ => at as u16,
        }
    }

    fn transfer(&mut self, kind: Kind, data: usize, input: &mut Input<'_>) -> Option<()> {
        let cid = self.cid(input.byte()?);
        let choice = input.byte()?;
        let flags = choice & (flag::LAST | flag::SUCCESS);
        let offset = u32::from(input.byte()?) * 128;
        let length = match (kind, choice & 0x80) {
            (Kind::C2hData, 0) => data as u32,
            _ => u32::from(input.byte()?) * 128,
        };
        let header = Transfer {
            common: pdu::common(kind, flags, self.digests, data, 4),
            cid: cid.into(),
            tag: u16::from(choice).into(),
            offset: offset.into(),
            length: length.into(),
            reserved: 0.into(),
        };
        let mut out = Vec::new();
        pdu::put_header(&mut out, header.as_bytes());
        if data > 0 {
            let data = vec![choice; data];
            out.extend_from_slice(&data);
            if self.digests.data {
                // Now and then a wrong one.
                let wrong = u32::from(choice & 0x40 != 0);
                out.extend_from_slice(&(crc32c::crc32c(&data) ^ wrong).to_le_bytes());
            }
        }
        self.note(cid, kind, offset as usize, data);
        self.send(&out);
        Some(())
    }

    /// Which data a command was sent, by slot: the low bits of its identifier.
    fn note(&mut self, cid: u16, kind: Kind, offset: usize, data: usize) {
        let tag = self.cids.iter().rposition(|other| *other == cid);
        if let (Kind::C2hData, Some(tag)) = (kind, tag)
            && let Some(expected) = self.expected.get_mut(&(tag as u64))
            && offset == expected.sent
        {
            expected.sent += data;
        }
    }

    fn data(&mut self, input: &mut Input<'_>) -> Option<()> {
        let data = usize::from(input.byte()?) * 128;
        self.transfer(Kind::C2hData, data, input)
    }

    fn response(&mut self, input: &mut Input<'_>) -> Option<()> {
        let cid = self.cid(input.byte()?);
        let status = if input.byte()? < 0xc0 { Status::SUCCESS } else { Status::INVALID_FIELD };
        let common = pdu::common(Kind::CapsuleResp, 0, self.digests, 0, 4);
        let mut out = Vec::new();
        let response = CapsuleResp { common, cqe: Cqe::new(cid, status, 0, 0) };
        pdu::put_header(&mut out, response.as_bytes());
        self.send(&out);
        Some(())
    }

    /// Polls twice, for what one receive leaves; false once the queue has failed.
    fn poll(&mut self) -> bool {
        for _ in 0..2 {
            let mut done = Vec::new();
            let polled = self.queue.poll(&mut done);
            done.into_iter().for_each(|completion| self.completed(completion));
            self.drain();
            if polled.is_err() {
                assert!(self.queue.poll(&mut Vec::new()).is_err(), "it goes on after an error");
                return false;
            }
            assert_eq!(self.queue.outstanding(), self.expected.len());
        }
        true
    }

    fn completed(&mut self, completion: Completion) {
        let expected = self.expected.remove(&completion.tag).expect("it ended twice");
        assert_eq!(completion.buffer.len(), expected.length, "another's buffer");
        if !self.raw && expected.op == Op::Read && completion.status.is_success() {
            assert_eq!(expected.sent, expected.length, "a read without its data");
        }
    }

    /// What the queue sends are whole PDUs; its commands' identifiers are kept.
    fn drain(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.far.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => self.from_queue.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => break,
            }
        }
        while self.from_queue.len() >= COMMON {
            let (common, _) = Common::read_from_prefix(&self.from_queue).unwrap();
            let frame = Frame::of(&common, self.digests, 1 << 20).expect("no PDU");
            if self.from_queue.len() < frame.total {
                break;
            }
            let pdu: Vec<u8> = self.from_queue.drain(..frame.total).collect();
            frame.check_header(&pdu[..frame.data_start]).expect("a wrong header");
            if frame.kind == Kind::CapsuleCmd {
                let cid = u16::from_le_bytes([pdu[COMMON + 2], pdu[COMMON + 3]]);
                self.cids.push(cid);
            }
        }
    }
}
