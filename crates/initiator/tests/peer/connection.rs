//! One connection of the peer: framing, data transfers, I/O commands and the faults.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use ebb_nvme::command::{FABRICS, fabrics, io as opcode, sgl};
use ebb_nvme::pdu::{
    self, CapsuleCmd, CapsuleResp, Common, DIGEST, Digests, Frame, Initialize, Kind, Terminate,
    Transfer, flag,
};
use ebb_nvme::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::admin::Controller;
use super::{Fault, Shared};

struct Connection<'a> {
    shared: &'a Shared,
    stream: TcpStream,
    digests: Digests,
    alignment: usize,
    /// Queue, known from Connect.
    queue: u32,
    controller: Controller,
    /// Commands that came while data was waited for.
    early: VecDeque<(Sqe, Vec<u8>)>,
    next_tag: u16,
}

/// Serves one connection until it ends.
pub fn serve(shared: &Shared, stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut connection = Connection {
        shared,
        stream,
        digests: Digests::default(),
        alignment: 4,
        queue: 0,
        controller: Controller::default(),
        early: VecDeque::new(),
        next_tag: 1,
    };
    let ended = connection.initialize().and_then(|()| connection.commands());
    // Whatever a host does to its connection ends only this one.
    drop(ended);
    let _ = connection.stream.shutdown(std::net::Shutdown::Both);
}

fn ended(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

impl Connection<'_> {
    fn initialize(&mut self) -> io::Result<()> {
        let (frame, bytes) = self.receive()?;
        assert_eq!(frame.kind, Kind::IcReq);
        let request = Initialize::read_from_bytes(&bytes).unwrap();
        let config = &self.shared.config;
        let wanted = Digests::from_byte(request.digests);
        let digests = Digests {
            header: wanted.header && config.digests.header,
            data: wanted.data && config.digests.data,
        };
        let response = Initialize {
            common: pdu::common(Kind::IcResp, 0, Digests::default(), 0, 4),
            version: 0.into(),
            alignment: config.alignment,
            digests: digests.to_byte(),
            limit: config.max_h2c.into(),
            reserved: [0; 112],
        };
        self.stream.write_all(response.as_bytes())?;
        self.digests = digests;
        self.alignment = (usize::from(request.alignment) + 1) * 4;
        Ok(())
    }

    /// The next PDU; its digests are checked.
    fn receive(&mut self) -> io::Result<(Frame, Vec<u8>)> {
        let mut bytes = vec![0; pdu::COMMON];
        self.stream.read_exact(&mut bytes)?;
        let common = Common::read_from_bytes(&bytes).unwrap();
        let frame = Frame::of(&common, self.digests, 1 << 20).unwrap();
        bytes.resize(frame.total, 0);
        self.stream.read_exact(&mut bytes[pdu::COMMON..])?;
        frame.check_header(&bytes).unwrap();
        if frame.data_digest {
            let (data, digest) = bytes[frame.data_start..].split_at(frame.data_length);
            assert_eq!(crc32c::crc32c(data).to_le_bytes(), digest);
        }
        let wanted = (usize::from(self.shared.config.alignment) + 1) * 4;
        let aligned = frame.data_length == 0 || frame.data_start.is_multiple_of(wanted);
        assert!(aligned || frame.kind == Kind::H2cTermReq, "{frame:?}");
        Ok((frame, bytes))
    }

    fn commands(&mut self) -> io::Result<()> {
        let mut held = Vec::new();
        loop {
            let command = match self.early.pop_front() {
                Some(command) => command,
                None => self.capsule()?,
            };
            held.push(command);
            if self.shared.config.reorder && held.len() < 8 && self.more_is_here() {
                continue;
            }
            for (sqe, data) in held.drain(..).rev() {
                self.execute(&sqe, data)?;
            }
        }
    }

    fn more_is_here(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !self.early.is_empty() || !matches!(peeked, Err(e) if e.kind() == ErrorKind::WouldBlock)
    }

    fn capsule(&mut self) -> io::Result<(Sqe, Vec<u8>)> {
        let (frame, bytes) = self.receive()?;
        if frame.kind == Kind::H2cTermReq {
            return Err(ended("the host ended the connection"));
        }
        assert_eq!(frame.kind, Kind::CapsuleCmd);
        let (capsule, _) = CapsuleCmd::read_from_prefix(&bytes).unwrap();
        let data = bytes[frame.data_start..][..frame.data_length].to_vec();
        Ok((capsule.sqe, data))
    }

    fn execute(&mut self, sqe: &Sqe, data: Vec<u8>) -> io::Result<()> {
        if sqe.opcode == FABRICS && sqe.fabrics_type() == fabrics::CONNECT {
            self.queue = sqe.cdw(10) >> 16;
        }
        if self.queue == 0 || sqe.opcode == FABRICS {
            let answer = self.controller.answer(self.shared, sqe, &data);
            if answer.status.is_success() && !answer.data.is_empty() {
                self.send_data(sqe, &answer.data, false, None)?;
            }
            return self.respond(sqe.cid.get(), answer.status, answer.result);
        }
        let fault = self.shared.fault();
        match fault {
            Some(Fault::Close) => return Err(ended("closed")),
            Some(Fault::Stall) => {
                let mut rest = Vec::new();
                return self.stream.read_to_end(&mut rest).map(drop);
            }
            Some(Fault::Status(status)) => return self.respond(sqe.cid.get(), status, 0),
            _ => {}
        }
        self.io(sqe, data, fault)
    }

    fn io(&mut self, sqe: &Sqe, data: Vec<u8>, fault: Option<Fault>) -> io::Result<()> {
        let cid = sqe.cid.get();
        let data = match sqe.opcode {
            opcode::WRITE | opcode::COMPARE | opcode::DATASET_MANAGEMENT => {
                self.fetch(sqe, data, fault)?
            }
            _ => data,
        };
        let answer = self.on_disk(sqe, &data, fault);
        self.shared.served.fetch_add(1, Ordering::SeqCst);
        match answer {
            Ok(read) if sqe.opcode == opcode::READ => {
                let success = self.shared.config.success;
                if fault == Some(Fault::Early) {
                    return self.respond(cid, Status::SUCCESS, 0);
                }
                self.send_data(sqe, &read, success, fault)?;
                if success && fault.is_none() {
                    Ok(())
                } else {
                    self.respond(cid, Status::SUCCESS, 0)
                }
            }
            Ok(_) => self.answer_write(cid, fault),
            Err(status) => self.respond(cid, status, 0),
        }
    }

    fn answer_write(&mut self, cid: u16, fault: Option<Fault>) -> io::Result<()> {
        match fault {
            Some(Fault::UnknownCommand) => return self.respond(cid ^ 0x5000, Status::SUCCESS, 0),
            Some(Fault::Twice) => self.respond(cid, Status::SUCCESS, 0)?,
            Some(Fault::DataForWrite) => {
                let transfer = self.transfer(Kind::C2hData, flag::LAST, cid, 0, 0, 4);
                self.send_pdu(transfer.as_bytes(), &[0; 4])?;
            }
            _ => {}
        }
        self.respond(cid, Status::SUCCESS, 0)
    }

    /// Does the command in memory; returns what was read.
    fn on_disk(&self, sqe: &Sqe, data: &[u8], fault: Option<Fault>) -> Result<Vec<u8>, Status> {
        if sqe.opcode == opcode::FLUSH {
            return Ok(Vec::new());
        }
        let mut disks = self.shared.disks.lock().unwrap();
        let disk = disks.get_mut(&sqe.nsid.get()).ok_or(Status::INVALID_NAMESPACE)?;
        let (mut lba, mut blocks) = (sqe.cdw_pair(10), u64::from(sqe.cdw(12) & 0xffff) + 1);
        if sqe.opcode == opcode::DATASET_MANAGEMENT {
            assert_eq!((sqe.cdw(10), sqe.cdw(11), data.len()), (0, 4, 16));
            blocks = u32::from_le_bytes(data[4..8].try_into().unwrap()).into();
            lba = u64::from_le_bytes(data[8..].try_into().unwrap());
        }
        lba += u64::from(fault == Some(Fault::Misdirect));
        let start = (lba as usize).saturating_mul(disk.block_size as usize);
        let length = blocks as usize * disk.block_size as usize;
        let end = start.checked_add(length).ok_or(Status::LBA_OUT_OF_RANGE)?;
        let range = disk.data.get_mut(start..end).ok_or(Status::LBA_OUT_OF_RANGE)?;
        match sqe.opcode {
            opcode::READ => {
                let mut read = range.to_vec();
                read[length / 2] ^= u8::from(fault == Some(Fault::FlipBit));
                return Ok(read);
            }
            opcode::WRITE if data.len() != length => return Err(Status::DATA_SGL_LENGTH_INVALID),
            opcode::WRITE if fault == Some(Fault::LoseWrite) => {}
            opcode::WRITE => range.copy_from_slice(data),
            opcode::COMPARE if range != data => return Err(Status::COMPARE_FAILURE),
            opcode::COMPARE => {}
            opcode::WRITE_ZEROES | opcode::DATASET_MANAGEMENT => range.fill(0),
            _ => return Err(Status::INVALID_OPCODE),
        }
        Ok(Vec::new())
    }

    /// The data of a write: from its capsule, or asked for by R2T.
    fn fetch(&mut self, sqe: &Sqe, data: Vec<u8>, fault: Option<Fault>) -> io::Result<Vec<u8>> {
        let length = sqe.sgl_length.get() as usize;
        if sqe.sgl_identifier == sgl::IN_CAPSULE {
            assert_eq!(data.len(), length);
            assert!(length <= self.shared.config.in_capsule);
            return Ok(data);
        }
        let mut whole = vec![0; length];
        let mut at = 0;
        while at < length {
            let mut piece = self.shared.config.piece.min(length - at);
            piece += if fault == Some(Fault::RequestBeyond) { length } else { 0 };
            self.next_tag = self.next_tag.wrapping_add(1);
            let tag = self.next_tag;
            let cid = sqe.cid.get();
            let mut request = self.transfer(Kind::R2t, 0, cid, at, piece, 0);
            request.tag = tag.into();
            self.send_pdu(request.as_bytes(), &[])?;
            if fault == Some(Fault::TwoRequests) {
                self.send_pdu(request.as_bytes(), &[])?;
            }
            if fault == Some(Fault::RequestBeyond) {
                self.stream.read_to_end(&mut Vec::new())?;
                return Err(ended("misbehaved"));
            }
            self.take_data(tag, at, &mut whole[at..at + piece])?;
            at += piece;
        }
        Ok(whole)
    }

    /// Receives H2CData for one R2T; commands that come between are kept.
    fn take_data(&mut self, tag: u16, from: usize, into: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < into.len() {
            let (frame, bytes) = self.receive()?;
            if frame.kind == Kind::H2cTermReq {
                return Err(ended("the host ended the connection"));
            }
            if frame.kind == Kind::CapsuleCmd {
                let (capsule, _) = CapsuleCmd::read_from_prefix(&bytes).unwrap();
                let data = bytes[frame.data_start..][..frame.data_length].to_vec();
                self.early.push_back((capsule.sqe, data));
                continue;
            }
            assert_eq!(frame.kind, Kind::H2cData);
            let (transfer, _) = Transfer::read_from_prefix(&bytes).unwrap();
            let length = transfer.length.get() as usize;
            assert_eq!((transfer.tag.get(), transfer.offset.get() as usize), (tag, from + at));
            assert!(length == frame.data_length && length <= self.shared.config.max_h2c as usize);
            assert_eq!(frame.flags & flag::LAST != 0, at + length == into.len());
            into[at..at + length].copy_from_slice(&bytes[frame.data_start..][..length]);
            at += length;
        }
        Ok(())
    }

    fn transfer(
        &self,
        kind: Kind,
        flags: u8,
        cid: u16,
        offset: usize,
        length: usize,
        data: usize,
    ) -> Transfer {
        Transfer {
            common: pdu::common(kind, flags, self.digests, data, self.alignment),
            cid: cid.into(),
            tag: 0.into(),
            offset: (offset as u32).into(),
            length: (length as u32).into(),
            reserved: 0.into(),
        }
    }

    fn send_data(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        success: bool,
        fault: Option<Fault>,
    ) -> io::Result<()> {
        let piece = self.shared.config.piece.min(data.len());
        for (number, part) in data.chunks(piece).enumerate() {
            let at = number * piece;
            let last = at + part.len() == data.len();
            let mut flags = if last { flag::LAST } else { 0 };
            flags |= if last && success && fault.is_none() { flag::SUCCESS } else { 0 };
            let cid = sqe.cid.get();
            let mut sent = self.transfer(Kind::C2hData, flags, cid, at, part.len(), part.len());
            match fault {
                Some(Fault::Offset) => sent.offset = (at as u32 + 4).into(),
                Some(Fault::UnknownCommand) => sent.cid = (cid ^ 0x5000).into(),
                Some(Fault::LengthMismatch) => sent.length = (part.len() as u32 - 4).into(),
                Some(Fault::SuccessNotLast) => {
                    sent.common.flags = sent.common.flags & !flag::LAST | flag::SUCCESS;
                }
                Some(Fault::TooLong) => {
                    let long = data.repeat(2);
                    sent = self.transfer(Kind::C2hData, flags, cid, at, long.len(), long.len());
                    return self.send_pdu(sent.as_bytes(), &long);
                }
                Some(fault) if self.broken_pdu(fault, &sent, part)? => {
                    return Err(ended("misbehaved"));
                }
                _ => {}
            }
            self.send_pdu(sent.as_bytes(), part)?;
        }
        Ok(())
    }

    /// Sends what is no proper PDU; returns whether `fault` is of that kind.
    fn broken_pdu(&mut self, fault: Fault, sent: &Transfer, data: &[u8]) -> io::Result<bool> {
        let mut bytes = Vec::new();
        pdu::put_header(&mut bytes, sent.as_bytes());
        let digest = bytes.len();
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&(crc32c::crc32c(data) ^ 1).to_le_bytes());
        match fault {
            Fault::DataDigest => {}
            Fault::HeaderDigest => bytes[digest - DIGEST] ^= 1,
            Fault::UnknownPdu => bytes[0] = 0x33,
            Fault::HostPdu => {
                bytes[0] = Kind::H2cData as u8;
                let crc = crc32c::crc32c(&bytes[..Kind::H2cData.header()]);
                bytes[digest - DIGEST..digest].copy_from_slice(&crc.to_le_bytes());
            }
            Fault::ShortHeader => bytes[2] = 16,
            Fault::CloseInside => bytes.truncate(digest + data.len() / 2),
            Fault::Terminate => {
                let request = Terminate {
                    common: pdu::common(Kind::C2hTermReq, 0, self.digests, 0, 4),
                    status: 2.into(),
                    information: 7.into(),
                    reserved: [0; 10],
                };
                bytes = request.as_bytes().to_vec();
            }
            _ => return Ok(false),
        }
        self.stream.write_all(&bytes)?;
        // Lets the host find it before it finds the connection closed.
        self.stream.shutdown(std::net::Shutdown::Write)?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        Ok(true)
    }

    fn send_pdu(&mut self, header: &[u8], data: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        pdu::put_header(&mut bytes, header);
        bytes.extend_from_slice(data);
        if self.digests.data && !data.is_empty() {
            bytes.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
        self.stream.write_all(&bytes)
    }

    fn respond(&mut self, cid: u16, status: Status, result: u64) -> io::Result<()> {
        let response = CapsuleResp {
            common: pdu::common(Kind::CapsuleResp, 0, self.digests, 0, 4),
            cqe: Cqe::new(cid, status, result, 0),
        };
        self.send_pdu(response.as_bytes(), &[])
    }
}
