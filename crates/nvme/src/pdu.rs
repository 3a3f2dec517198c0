//! Protocol data units of NVMe/TCP: framing, digests, the typed headers (TCP 3.6).
//!
//! ```text
//! | common header 8 | rest of header | HDGST? 4 | pad | data ... | DDGST? 4 |
//! |<------------- HLEN ------------>|
//! |<------------------- PDO ------------------>|
//! |<------------------------------ PLEN ----------------------------------->|
//! ```

use thiserror::Error;
use zerocopy::little_endian::{U16, U32};

use super::{Cqe, Sqe};

/// Bytes of a digest, CRC32C.
pub const DIGEST: usize = 4;
/// Bytes of the common header.
pub const COMMON: usize = size_of::<Common>();
/// The largest header: that of ICReq and ICResp.
pub const MAX_HEADER: usize = 128;
/// The largest terminate request: its header and as much of the PDU it complains of.
pub const MAX_TERMINATE: usize = 24 + 128;

/// What a PDU is (TCP Figure 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Kind {
    IcReq = 0x00,
    IcResp = 0x01,
    H2cTermReq = 0x02,
    C2hTermReq = 0x03,
    CapsuleCmd = 0x04,
    CapsuleResp = 0x05,
    H2cData = 0x06,
    C2hData = 0x07,
    R2t = 0x09,
}

impl Kind {
    #[inline]
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        let all =
            [IcReq, IcResp, H2cTermReq, C2hTermReq, CapsuleCmd, CapsuleResp, H2cData, C2hData, R2t];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
    /// Bytes of its header, which HLEN must state.
    #[must_use]
    #[inline]
    pub const fn header(self) -> usize {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            _ => 24,
        }
    }
    /// Whether the host sends it.
    #[must_use]
    #[inline]
    pub const fn from_host(self) -> bool {
        matches!(self, Self::IcReq | Self::H2cTermReq | Self::CapsuleCmd | Self::H2cData)
    }
    #[inline]
    const fn carries_data(self) -> bool {
        matches!(
            self,
            Self::H2cTermReq | Self::C2hTermReq | Self::CapsuleCmd | Self::H2cData | Self::C2hData
        )
    }
    #[inline]
    const fn may_have_digests(self) -> bool {
        !matches!(self, Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq)
    }
}

/// Bits of [`Common::flags`].
pub mod flag {
    /// A header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// Last PDU of this transfer (data PDUs).
    pub const LAST: u8 = 1 << 2;
    /// No response capsule follows: the command succeeded (C2HData).
    pub const SUCCESS: u8 = 1 << 3;
}

wire_struct! {
    /// The header common to all PDUs (TCP Figure 13).
    Common {
        /// PDU-Type, see [`Kind`].
        kind: u8,
        /// FLAGS, see [`flag`].
        flags: u8,
        /// HLEN: bytes of the header, digest not counted.
        hlen: u8,
        /// PDO: where the data begins.
        pdo: u8,
        /// PLEN: bytes of the whole PDU.
        plen: U32,
    }
}
wire_struct! {
    /// ICReq (TCP Figure 16) and ICResp (Figure 17), which share their layout.
    Initialize {
        /// Common header.
        common: Common,
        /// PFV: protocol version, 0 for 1.0.
        version: U16,
        /// HPDA or CPDA: how the sender wants data aligned, in dwords less one.
        alignment: u8,
        /// DGST: bit 0 header digest, bit 1 data digest.
        digests: u8,
        /// MAXR2T less one from the host; MAXH2CDATA in bytes from the controller.
        limit: U32,
        /// Reserved.
        reserved: [u8; 112],
    }
}
wire_struct! {
    /// CapsuleCmd (TCP Figure 20).
    CapsuleCmd {
        /// Common header.
        common: Common,
        /// The command.
        sqe: Sqe,
    }
}
wire_struct! {
    /// CapsuleResp (TCP Figure 21).
    CapsuleResp {
        /// Common header.
        common: Common,
        /// The answer.
        cqe: Cqe,
    }
}
wire_struct! {
    /// H2CData (TCP Figure 22), C2HData (Figure 23) and R2T (Figure 24).
    Transfer {
        /// Common header.
        common: Common,
        /// CCCID: the command's identifier.
        cid: U16,
        /// TTAG: the controller's tag for this transfer; reserved in C2HData.
        tag: U16,
        /// DATAO, R2TO: offset into the command's data.
        offset: U32,
        /// DATAL, R2TL: bytes.
        length: U32,
        /// Reserved.
        reserved: U32,
    }
}
wire_struct! {
    /// H2CTermReq (TCP Figure 18) and C2HTermReq (Figure 19).
    Terminate {
        /// Common header.
        common: Common,
        /// FES: fatal error status, see [`Fatal`].
        status: U16,
        /// FEI: information on it, such as the offset of the bad field.
        information: U32,
        /// Reserved.
        reserved: [u8; 10],
    }
}

/// What ends a connection (TCP Figures 18 and 19, FES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fatal {
    /// A header field is wrong; the offset of the field.
    #[error("invalid PDU header field at byte {0}")]
    InvalidHeaderField(u32),
    /// The PDU does not belong here.
    #[error("PDU out of sequence")]
    Sequence,
    /// The header digest is wrong; the digest that was received.
    #[error("header digest error")]
    HeaderDigest(u32),
    /// A data PDU lies outside its transfer.
    #[error("data transfer out of range")]
    OutOfRange,
    /// More data than allowed, or more ready-to-transfer than asked for.
    #[error("data transfer limit exceeded")]
    LimitExceeded,
    /// A parameter we do not support; the offset of the field.
    #[error("unsupported parameter at byte {0}")]
    Unsupported(u32),
}

impl Fatal {
    /// FES and FEI.
    #[must_use]
    pub const fn code(self) -> (u16, u32) {
        match self {
            Self::InvalidHeaderField(offset) => (1, offset),
            Self::Sequence => (2, 0),
            Self::HeaderDigest(received) => (3, received),
            Self::OutOfRange => (4, 0),
            Self::LimitExceeded => (5, 0),
            Self::Unsupported(offset) => (6, offset),
        }
    }
}

/// Which digests a connection has agreed upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// On headers.
    pub header: bool,
    /// On data.
    pub data: bool,
}

impl Digests {
    /// From the DGST field; unknown bits are ignored.
    #[must_use]
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        Self { header: byte & 1 != 0, data: byte & 2 != 0 }
    }
    /// The DGST field.
    #[must_use]
    #[inline]
    pub const fn to_byte(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }
}

/// Where the parts of a PDU are, found from its common header alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Where the data begins.
    pub data_start: usize,
    /// Bytes of data.
    pub data_length: usize,
    /// Whether a header digest follows the header.
    pub header_digest: bool,
    /// Whether a data digest ends it.
    pub data_digest: bool,
    /// Bytes of the whole PDU.
    pub total: usize,
}

impl Frame {
    /// Checks a common header against what was agreed. `max_data` bounds the data of one PDU.
    ///
    /// # Errors
    /// [`Fatal::InvalidHeaderField`] with the offset of what is wrong, or
    /// [`Fatal::LimitExceeded`].
    #[inline]
    pub fn of(common: &Common, digests: Digests, max_data: usize) -> Result<Self, Fatal> {
        let kind = Kind::from_byte(common.kind).ok_or(Fatal::InvalidHeaderField(0))?;
        let header = kind.header();
        if usize::from(common.hlen) != header {
            return Err(Fatal::InvalidHeaderField(2));
        }
        let header_digest = digests.header && kind.may_have_digests();
        if (common.flags & flag::HEADER_DIGEST != 0) != header_digest {
            return Err(Fatal::InvalidHeaderField(1));
        }
        let head = header + if header_digest { DIGEST } else { 0 };
        let total = common.plen.get() as usize;
        if total == head {
            // A PDU without data has no data digest, and PDO is reserved then.
            let data_digest = false;
            let (data_start, data_length) = (head, 0);
            let flags = common.flags;
            return Ok(Self {
                kind,
                flags,
                data_start,
                data_length,
                header_digest,
                data_digest,
                total,
            });
        }
        if !kind.carries_data() || total < head {
            return Err(Fatal::InvalidHeaderField(4));
        }
        let data_digest = digests.data && kind.may_have_digests();
        if (common.flags & flag::DATA_DIGEST != 0) != data_digest {
            return Err(Fatal::InvalidHeaderField(1));
        }
        // Terminate requests have no PDO: their data follows the header.
        let data_start = if kind.may_have_digests() { usize::from(common.pdo) } else { head };
        if data_start < head || !data_start.is_multiple_of(4) {
            return Err(Fatal::InvalidHeaderField(3));
        }
        let end = data_start + if data_digest { DIGEST } else { 0 };
        let data_length = total.checked_sub(end).ok_or(Fatal::InvalidHeaderField(4))?;
        let max_data = if kind.may_have_digests() { max_data } else { MAX_TERMINATE - head };
        if data_length > max_data {
            return Err(Fatal::LimitExceeded);
        }
        Ok(Self {
            kind,
            flags: common.flags,
            data_start,
            data_length,
            header_digest,
            data_digest,
            total,
        })
    }

    /// Checks the header digest of `head`, which holds at least header and digest.
    ///
    /// # Errors
    /// [`Fatal::HeaderDigest`] with the digest received.
    #[inline]
    pub fn check_header(&self, head: &[u8]) -> Result<(), Fatal> {
        if !self.header_digest {
            return Ok(());
        }
        let (header, rest) = head.split_at(self.kind.header());
        let received = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let right = crc32c::crc32c(header) == received;
        right.then_some(()).ok_or(Fatal::HeaderDigest(received))
    }
}

/// The common header of a PDU to send: data of `data` bytes aligned to `alignment` bytes.
#[must_use]
#[inline]
pub fn common(kind: Kind, flags: u8, digests: Digests, data: usize, alignment: usize) -> Common {
    let header_digest = digests.header && kind.may_have_digests();
    let head = kind.header() + if header_digest { DIGEST } else { 0 };
    let mut flags = flags | if header_digest { flag::HEADER_DIGEST } else { 0 };
    let (mut pdo, mut total) = (0, head);
    if data > 0 {
        let data_digest = digests.data && kind.may_have_digests();
        let start = if kind.may_have_digests() { head.next_multiple_of(alignment) } else { head };
        flags |= if data_digest { flag::DATA_DIGEST } else { 0 };
        pdo = if kind.may_have_digests() { start } else { 0 };
        total = start + data + if data_digest { DIGEST } else { 0 };
    }
    Common {
        kind: kind as u8,
        flags,
        hlen: kind.header() as u8,
        pdo: pdo as u8,
        plen: U32::new(total as u32),
    }
}

/// Appends a header, with its digest and the padding up to the data.
///
/// `header` begins with what [`common`] made.
#[inline] // The copy of a length that the caller knows is a few instructions.
pub fn put_header(out: &mut Vec<u8>, header: &[u8]) {
    let start = out.len();
    out.extend_from_slice(header);
    if header[1] & flag::HEADER_DIGEST != 0 {
        out.extend_from_slice(&crc32c::crc32c(header).to_le_bytes());
    }
    out.resize((start + usize::from(header[3])).max(out.len()), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;

    fn digests() -> impl Strategy<Value = Digests> {
        (any::<bool>(), any::<bool>()).prop_map(|(header, data)| Digests { header, data })
    }

    proptest! {
        #[test]
        fn what_is_sent_is_understood(
            digests in digests(),
            data in 0_usize..5000,
            alignment in (1_usize..=32).prop_map(|dwords| dwords * 4),
            offset: u32,
        ) {
            let sent = Transfer {
                common: common(Kind::C2hData, flag::LAST, digests, data, alignment),
                cid: 7.into(),
                tag: 0.into(),
                offset: offset.into(),
                length: (data as u32).into(),
                reserved: 0.into(),
            };
            let mut bytes = Vec::new();
            put_header(&mut bytes, sent.as_bytes());
            let (seen, _) = Transfer::read_from_prefix(&bytes).unwrap();
            let frame = Frame::of(&seen.common, digests, 5000).unwrap();
            prop_assert_eq!(seen, sent);
            prop_assert_eq!((frame.kind, frame.data_length), (Kind::C2hData, data));
            prop_assert_eq!(frame.data_start, bytes.len());
            prop_assert!(data == 0 || frame.data_start.is_multiple_of(alignment));
            frame.check_header(&bytes).unwrap();
            if digests.header {
                bytes[9] ^= 1;
                prop_assert!(matches!(frame.check_header(&bytes), Err(Fatal::HeaderDigest(_))));
            }
        }

        #[test]
        fn no_header_makes_a_frame_beyond_its_bounds(
            bytes: [u8; 8],
            digests in digests(),
            max in 0_usize..1 << 20,
        ) {
            let common = Common::read_from_bytes(&bytes).unwrap();
            if let Ok(frame) = Frame::of(&common, digests, max) {
                let digest = if frame.data_digest { DIGEST } else { 0 };
                prop_assert!(frame.data_start >= frame.kind.header());
                prop_assert_eq!(frame.data_start + frame.data_length + digest, frame.total);
                prop_assert!(frame.data_length <= max.max(MAX_TERMINATE));
            }
        }
    }

    #[test]
    fn headers_have_the_sizes_of_the_specification() {
        assert_eq!(size_of::<Initialize>(), Kind::IcReq.header());
        assert_eq!(size_of::<CapsuleCmd>(), Kind::CapsuleCmd.header());
        assert_eq!(size_of::<CapsuleResp>(), Kind::CapsuleResp.header());
        assert_eq!(size_of::<Transfer>(), Kind::R2t.header());
        assert_eq!(size_of::<Terminate>(), Kind::H2cTermReq.header());
    }

    #[test]
    fn a_capsule_with_data_as_linux_sends_it() {
        // 72 bytes of header, 4 KiB in the capsule, both digests: PDO 76, PLEN 4176.
        let common = common(Kind::CapsuleCmd, 0, Digests { header: true, data: true }, 4096, 4);
        assert_eq!((common.hlen, common.pdo, common.plen.get()), (72, 76, 4176));
        assert_eq!(common.flags, flag::HEADER_DIGEST | flag::DATA_DIGEST);
    }
}
