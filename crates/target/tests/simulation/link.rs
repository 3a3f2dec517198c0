//! A host's end of one connection: PDUs out, PDUs in.

use std::sync::Arc;

use ebb_nvme::Sqe;
use ebb_nvme::pdu::{
    self, COMMON, CapsuleCmd, Common, DIGEST, Digests, Frame, Initialize, Kind, Transfer, flag,
};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use zerocopy::{FromBytes, IntoBytes};

use super::network::Pipe;

/// Most data in a PDU that a host here takes.
const MOST: usize = 1 << 20;

/// A PDU as received.
pub struct Pdu {
    pub frame: Frame,
    pub head: Vec<u8>,
    pub data: Vec<u8>,
}

pub struct Link {
    pub pipe: Arc<Pipe>,
    /// The group that serves it.
    pub group: usize,
    pub digests: Digests,
    /// How the host wants data aligned, bytes.
    pub alignment: usize,
    /// One bit in so many bytes sent is wrong; zero for none.
    pub mangles: u32,
    out: Vec<u8>,
    input: Vec<u8>,
    taken: usize,
}

impl Link {
    pub fn new((pipe, group): (Arc<Pipe>, usize)) -> Self {
        Self {
            pipe,
            group,
            digests: Digests::default(),
            alignment: 4,
            mangles: 0,
            out: Vec::new(),
            input: Vec::new(),
            taken: 0,
        }
    }

    /// Asks for `digests` and data aligned to `alignment` bytes.
    pub fn greet(&mut self, digests: Digests, alignment: usize) {
        self.alignment = alignment;
        let header = Initialize {
            common: pdu::common(Kind::IcReq, 0, Digests::default(), 0, 4),
            version: 0.into(),
            alignment: (alignment / 4 - 1) as u8,
            digests: digests.to_byte(),
            limit: 0.into(),
            reserved: [0; 112],
        };
        self.out.extend_from_slice(header.as_bytes());
    }

    pub fn command(&mut self, sqe: Sqe, in_capsule: &[u8]) {
        let common = pdu::common(Kind::CapsuleCmd, 0, self.digests, in_capsule.len(), 4);
        self.put(CapsuleCmd { common, sqe }.as_bytes(), in_capsule);
    }

    /// H2CData that answers `request` with `data` at `offset`.
    pub fn data(&mut self, request: &Transfer, offset: u32, data: &[u8], is_last: bool) {
        let flags = if is_last { flag::LAST } else { 0 };
        let header = Transfer {
            common: pdu::common(Kind::H2cData, flags, self.digests, data.len(), 4),
            offset: offset.into(),
            length: (data.len() as u32).into(),
            ..*request
        };
        self.put(header.as_bytes(), data);
    }

    /// Any bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn put(&mut self, header: &[u8], data: &[u8]) {
        pdu::put_header(&mut self.out, header);
        self.out.extend_from_slice(data);
        if self.digests.data && !data.is_empty() {
            self.out.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
    }

    /// Bytes that have not been sent.
    pub fn unsent(&self) -> usize {
        self.out.len()
    }

    /// Sends what fits.
    pub fn send(&mut self, random: &mut Pcg64Mcg) {
        if self.out.is_empty() {
            return;
        }
        if self.mangles > 0 && random.random_ratio(1, self.mangles) {
            let at = random.random_range(0..self.out.len());
            self.out[at] ^= 1 << random.random_range(0..8);
        }
        let sent = self.pipe.send(&self.out);
        self.out.drain(..sent);
    }

    /// Takes up to `most` bytes. False once there will be no more.
    pub fn receive(&mut self, most: usize) -> bool {
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        }
        self.pipe.receive(&mut self.input, most)
    }

    /// The next whole PDU, or what is wrong with it.
    pub fn pdu(&mut self) -> Result<Option<Pdu>, String> {
        let bytes = &self.input[self.taken..];
        let Ok((common, _)) = Common::read_from_prefix(bytes) else { return Ok(None) };
        let frame = Frame::of(&common, self.digests, MOST)
            .map_err(|fatal| format!("a PDU that is none: {fatal}, {common:?}"))?;
        if bytes.len() < frame.total.max(COMMON) {
            return Ok(None);
        }
        frame.check_header(bytes).map_err(|fatal| format!("a wrong header digest: {fatal}"))?;
        let data = bytes[frame.data_start..][..frame.data_length].to_vec();
        if frame.data_digest
            && crc32c::crc32c(&data).to_le_bytes() != bytes[frame.total - DIGEST..frame.total]
        {
            return Err("a wrong data digest".to_owned());
        }
        if frame.data_length > 0 && frame.kind == Kind::C2hData {
            let is_aligned = frame.data_start.is_multiple_of(self.alignment);
            is_aligned.then_some(()).ok_or_else(|| format!("data at {}", frame.data_start))?;
        }
        let head = bytes[..frame.data_start].to_vec();
        self.taken += frame.total;
        Ok(Some(Pdu { frame, head, data }))
    }
}
