//! Submission and completion queue entries.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Status;

/// Opcode of every Fabrics command (Base 6); its type is in [`Sqe::fabrics_type`].
pub const FABRICS: u8 = 0x7f;

/// Opcodes of the admin queue (Base Figure 138).
pub mod admin {
    #![allow(missing_docs)] // The names are the specification's.
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of an I/O queue (NVM Figure 14).
pub mod io {
    #![allow(missing_docs)]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Types of Fabrics commands (Base Figure 374).
pub mod fabrics {
    #![allow(missing_docs)]
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// SGL descriptor identifier: type and sub-type (Base Figure 89, TCP Figure 7).
pub mod sgl {
    /// In-capsule data: Data Block, sub-type Offset.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Data transferred by PDUs: Transport SGL Data Block, transport-specific sub-type.
    pub const TRANSPORT: u8 = 0x5a;
}

/// A submission queue entry (Base Figure 87). Names and offsets are the specification's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Byte 0.
    pub opcode: u8,
    /// Byte 1: fused operation 1:0, PRP or SGL 7:6 (01b over fabrics).
    pub flags: u8,
    /// Bytes 2-3: command identifier.
    pub cid: U16,
    /// Bytes 4-7: namespace identifier. Byte 4 is a Fabrics command's type.
    pub nsid: U32,
    /// Bytes 8-11.
    pub cdw2: U32,
    /// Bytes 12-15.
    pub cdw3: U32,
    /// Bytes 16-23: metadata pointer.
    pub mptr: U64,
    /// Bytes 24-31: address, or offset into the capsule.
    pub sgl_address: U64,
    /// Bytes 32-35: length of the data in bytes.
    pub sgl_length: U32,
    /// Bytes 36-38.
    pub sgl_reserved: [u8; 3],
    /// Byte 39: descriptor identifier, see [`sgl`].
    pub sgl_identifier: u8,
    /// Bytes 40-63: command dwords 10 to 15.
    pub cdw10: [U32; 6],
}

impl Sqe {
    /// An entry of zeros with this opcode and command identifier, data described by an SGL.
    #[must_use]
    #[inline]
    pub fn new(opcode: u8, cid: u16) -> Self {
        let zero = <Self as zerocopy::FromZeros>::new_zeroed();
        Self { opcode, flags: 0x40, cid: cid.into(), ..zero }
    }
    /// A Fabrics command's type: byte 4.
    #[must_use]
    #[inline]
    pub fn fabrics_type(&self) -> u8 {
        self.nsid.get() as u8
    }
    /// Command dword 10, 11, … 15.
    #[must_use]
    #[inline]
    pub fn cdw(&self, number: usize) -> u32 {
        self.cdw10[number - 10].get()
    }
    /// Command dwords `number` and `number + 1` as one little-endian value.
    #[must_use]
    #[inline]
    pub fn cdw_pair(&self, number: usize) -> u64 {
        u64::from(self.cdw(number)) | u64::from(self.cdw(number + 1)) << 32
    }
    /// Sets command dword `number` (10 to 15).
    #[inline]
    pub fn set_cdw(&mut self, number: usize, value: u32) {
        self.cdw10[number - 10] = value.into();
    }
}

/// A completion queue entry (Base Figure 92).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Bytes 0-7: command specific.
    pub result: U64,
    /// Bytes 8-9: submission queue head.
    pub sq_head: U16,
    /// Bytes 10-11: submission queue, reserved over fabrics.
    pub sq_id: U16,
    /// Bytes 12-13: command identifier.
    pub cid: U16,
    /// Bytes 14-15: status field.
    pub status: U16,
}

impl Cqe {
    /// The answer to command `cid`.
    #[must_use]
    #[inline]
    pub fn new(cid: u16, status: Status, result: u64, sq_head: u16) -> Self {
        Self {
            result: result.into(),
            sq_head: sq_head.into(),
            sq_id: 0.into(),
            cid: cid.into(),
            status: status.to_field().into(),
        }
    }
    /// How the command ended.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_sizes_and_offsets_of_the_specification() {
        let mut bytes = [0_u8; 64];
        bytes[0] = io::READ;
        bytes[2..4].copy_from_slice(&7_u16.to_le_bytes());
        bytes[4..8].copy_from_slice(&3_u32.to_le_bytes());
        bytes[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        bytes[39] = sgl::TRANSPORT;
        bytes[40..48].copy_from_slice(&0x1_0000_0002_u64.to_le_bytes());
        bytes[48..52].copy_from_slice(&7_u32.to_le_bytes());
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        assert_eq!((sqe.cid.get(), sqe.nsid.get(), sqe.sgl_length.get()), (7, 3, 4096));
        assert_eq!((sqe.sgl_identifier, sqe.cdw_pair(10)), (sgl::TRANSPORT, 0x1_0000_0002));
        assert_eq!(sqe.cdw(12), 7);
        assert_eq!(size_of::<Cqe>(), 16);
        let cqe = Cqe::new(9, Status::INVALID_FIELD, 5, 2);
        assert_eq!(cqe.as_bytes()[14..], 0x8004_u16.to_le_bytes());
    }
}
