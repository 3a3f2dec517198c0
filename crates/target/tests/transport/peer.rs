//! A host made by hand: sends any bytes, reads whole PDUs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ebb_nvme::command::{FABRICS, admin, fabrics, io, sgl};
use ebb_nvme::pdu::{
    self, CapsuleCmd, CapsuleResp, Common, DIGEST, Digests, Frame, Initialize, Kind, Terminate,
    Transfer, flag,
};
use ebb_nvme::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::server::{NQN, Server};

/// A PDU as received.
#[derive(Debug, Clone)]
pub struct Pdu {
    pub frame: Frame,
    pub head: Vec<u8>,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn cqe(&self) -> Cqe {
        assert_eq!(self.frame.kind, Kind::CapsuleResp, "{self:?}");
        CapsuleResp::read_from_prefix(&self.head).unwrap().0.cqe
    }
    pub fn transfer(&self) -> Transfer {
        Transfer::read_from_prefix(&self.head).unwrap().0
    }
    /// FES of a terminate request.
    pub fn fatal(&self) -> u16 {
        assert_eq!(self.frame.kind, Kind::C2hTermReq, "{self:?}");
        Terminate::read_from_prefix(&self.head).unwrap().0.status.get()
    }
}

pub const HOST: &str = "nqn.2026-11.org.example:host";

/// Who connects, and to what.
pub struct Host {
    pub name: String,
    pub subsystem: &'static str,
    /// Entries of its queues.
    pub depth: u16,
}

impl Host {
    /// Connects to the subsystem.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), subsystem: NQN, depth: 32 }
    }
}

pub struct Peer {
    pub stream: TcpStream,
    pub digests: Digests,
}

impl Peer {
    /// Connected, and silent so far.
    pub fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, digests: Digests::default() }
    }

    /// After ICReq and ICResp.
    pub fn initialized(server: &Server, digests: Digests) -> Self {
        let mut peer = Self::new(server);
        peer.send(&initialize(digests));
        let pdu = peer.pdu().unwrap();
        assert_eq!(pdu.frame.kind, Kind::IcResp);
        let answer = Initialize::read_from_prefix(&pdu.head).unwrap().0;
        assert_eq!(Digests::from_byte(answer.digests), digests);
        assert!(answer.limit.get() >= 4096);
        peer.digests = digests;
        peer
    }

    /// After Connect: the queue `qid` of controller `id` (FFFFh: a new one), and its controller.
    pub fn joined(server: &Server, qid: u16, id: u16, digests: Digests) -> (Self, u16) {
        Self::joined_as(server, &Host::named(HOST), qid, id, digests)
    }

    /// The same, as another host.
    pub fn joined_as(
        server: &Server,
        host: &Host,
        qid: u16,
        id: u16,
        digests: Digests,
    ) -> (Self, u16) {
        let mut peer = Self::initialized(server, digests);
        let (sqe, data) = connect_as(host, qid, id);
        peer.send(&peer.capsule(sqe, &data));
        let cqe = peer.pdu().unwrap().cqe();
        assert!(cqe.status().is_success(), "{:?}", cqe.status());
        (peer, cqe.result.get() as u16)
    }

    /// An enabled controller: its admin queue and one I/O queue.
    pub fn pair(server: &Server, digests: Digests) -> (Self, Self) {
        let (admin, id) = Self::enabled(server, &Host::named(HOST), digests);
        let (io, _) = Self::joined(server, 1, id, digests);
        (admin, io)
    }

    /// An enabled controller: its admin queue and its number.
    pub fn enabled(server: &Server, host: &Host, digests: Digests) -> (Self, u16) {
        let (mut admin, id) = Self::joined_as(server, host, 0, 0xffff, digests);
        admin.configure(0x0046_0001); // 64 and 16 byte entries, enabled.
        (admin, id)
    }

    /// CAP.
    pub fn capabilities(&mut self) -> u64 {
        let mut get = Sqe::new(FABRICS, 1);
        get.nsid = u32::from(fabrics::PROPERTY_GET).into();
        get.set_cdw(10, 1); // Eight bytes, at offset zero.
        self.roundtrip(get, &[]).cqe().result.get()
    }

    /// Identify: its 4096 bytes.
    pub fn identify(&mut self, kind: u32, nsid: u32) -> Vec<u8> {
        let mut sqe = transfer(admin::IDENTIFY, 2, 0, 8, sgl::TRANSPORT);
        sqe.nsid = nsid.into();
        sqe.set_cdw(10, kind);
        sqe.set_cdw(11, 0);
        let data = self.roundtrip(sqe, &[]).data;
        assert!(self.pdu().unwrap().cqe().status().is_success());
        data
    }

    /// Sets CC.
    pub fn configure(&mut self, value: u32) {
        let mut set = Sqe::new(FABRICS, 1);
        set.nsid = u32::from(fabrics::PROPERTY_SET).into();
        set.set_cdw(11, 0x14); // CC
        set.set_cdw(12, value);
        assert!(self.roundtrip(set, &[]).cqe().status().is_success());
    }

    /// Sends `bytes` until the target takes no more, at most all of them.
    pub fn push(&self, bytes: &[u8]) {
        let mut stream = self.stream.try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut sent, mut refused) = (0, 0);
        while sent < bytes.len() && refused < 3 {
            match stream.write(&bytes[sent..]) {
                Ok(count) => (sent, refused) = (sent + count, 0),
                Err(_) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// A command capsule with `data` in it.
    pub fn capsule(&self, sqe: Sqe, data: &[u8]) -> Vec<u8> {
        let common = pdu::common(Kind::CapsuleCmd, 0, self.digests, data.len(), 4);
        let mut out = Vec::new();
        pdu::put_header(&mut out, CapsuleCmd { common, sqe }.as_bytes());
        self.put_data(&mut out, data);
        out
    }

    /// An H2CData PDU.
    pub fn h2c_data(&self, r2t: &Transfer, offset: u32, data: &[u8], is_last: bool) -> Vec<u8> {
        let flags = if is_last { flag::LAST } else { 0 };
        let header = Transfer {
            common: pdu::common(Kind::H2cData, flags, self.digests, data.len(), 4),
            offset: offset.into(),
            length: (data.len() as u32).into(),
            ..*r2t
        };
        let mut out = Vec::new();
        pdu::put_header(&mut out, header.as_bytes());
        self.put_data(&mut out, data);
        out
    }

    fn put_data(&self, out: &mut Vec<u8>, data: &[u8]) {
        out.extend_from_slice(data);
        if self.digests.data && !data.is_empty() {
            out.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
    }

    /// The next PDU; `None` when the target has closed the connection.
    pub fn pdu(&mut self) -> Option<Pdu> {
        let mut head = vec![0; pdu::COMMON];
        self.fill(&mut head)?;
        let common = Common::read_from_bytes(&head).unwrap();
        let frame = Frame::of(&common, self.digests, 1 << 20).unwrap();
        let mut rest = vec![0; frame.total - head.len()];
        self.fill(&mut rest)?;
        head.extend(rest);
        frame.check_header(&head).unwrap();
        let data = head[frame.data_start..][..frame.data_length].to_vec();
        if frame.data_digest {
            let digest = &head[frame.total - DIGEST..];
            assert_eq!(crc32c::crc32c(&data).to_le_bytes(), digest);
        }
        Some(Pdu { frame, head, data })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the target neither answers nor closes")
            }
            Err(_) => None,
        }
    }

    pub fn roundtrip(&mut self, sqe: Sqe, data: &[u8]) -> Pdu {
        self.send(&self.capsule(sqe, data));
        self.pdu().unwrap()
    }

    /// Reads `blocks` from `lba` on.
    pub fn read(&mut self, cid: u16, lba: u64, blocks: u32) -> Vec<u8> {
        let pdu = self.roundtrip(transfer(io::READ, cid, lba, blocks, sgl::TRANSPORT), &[]);
        assert_eq!(pdu.frame.kind, Kind::C2hData, "{pdu:?}");
        assert_eq!(pdu.transfer().cid.get(), cid);
        assert_eq!(pdu.frame.flags & (flag::LAST | flag::SUCCESS), flag::LAST | flag::SUCCESS);
        pdu.data
    }

    /// Writes whole blocks, which the target asks for.
    pub fn write_when_asked(&mut self, cid: u16, lba: u64, data: &[u8]) -> Status {
        let blocks = data.len() as u32 / 512;
        let r2t = self.roundtrip(transfer(io::WRITE, cid, lba, blocks, sgl::TRANSPORT), &[]);
        self.send(&self.h2c_data(&r2t.transfer(), 0, data, true));
        self.pdu().unwrap().cqe().status()
    }

    /// Writes whole blocks in the capsule.
    pub fn write(&mut self, cid: u16, lba: u64, data: &[u8]) -> Status {
        let blocks = data.len() as u32 / 512;
        self.roundtrip(transfer(io::WRITE, cid, lba, blocks, sgl::IN_CAPSULE), data).cqe().status()
    }

    /// Asserts that the target complains with `fes` and closes.
    pub fn expect_fatal(&mut self, fes: u16) {
        assert_eq!(self.pdu().expect("a terminate request").fatal(), fes);
        assert!(self.pdu().is_none(), "the connection must be closed");
    }
}

pub fn initialize(digests: Digests) -> Vec<u8> {
    let header = Initialize {
        common: pdu::common(Kind::IcReq, 0, Digests::default(), 0, 4),
        version: 0.into(),
        alignment: 0,
        digests: digests.to_byte(),
        limit: 0.into(),
        reserved: [0; 112],
    };
    header.as_bytes().to_vec()
}

/// Connect and its data.
pub fn connect(qid: u16, controller: u16) -> (Sqe, Vec<u8>) {
    connect_as(&Host::named(HOST), qid, controller)
}

pub fn connect_as(host: &Host, qid: u16, controller: u16) -> (Sqe, Vec<u8>) {
    let mut sqe = Sqe::new(FABRICS, 0);
    sqe.nsid = u32::from(fabrics::CONNECT).into();
    sqe.sgl_length = 1024.into();
    sqe.sgl_identifier = sgl::IN_CAPSULE;
    sqe.set_cdw(10, u32::from(qid) << 16);
    sqe.set_cdw(11, u32::from(host.depth - 1) | 1 << 18); // SQSIZE, flow control disabled.
    let mut data = vec![0; 1024];
    data[..16].fill(7); // HOSTID
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + host.subsystem.len()].copy_from_slice(host.subsystem.as_bytes());
    data[512..512 + host.name.len()].copy_from_slice(host.name.as_bytes());
    (sqe, data)
}

/// A command on blocks of 512 bytes.
pub fn transfer(opcode: u8, cid: u16, lba: u64, blocks: u32, identifier: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid);
    sqe.nsid = 1.into();
    sqe.sgl_length = (blocks * 512).into();
    sqe.sgl_identifier = identifier;
    sqe.set_cdw(10, lba as u32);
    sqe.set_cdw(11, (lba >> 32) as u32);
    sqe.set_cdw(12, blocks - 1);
    sqe
}

/// Keep Alive.
pub fn keep_alive(cid: u16) -> Sqe {
    Sqe::new(admin::KEEP_ALIVE, cid)
}
