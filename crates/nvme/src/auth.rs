//! In-band authentication: the messages of DH-HMAC-CHAP and the commands that carry them (Base
//! 6.1, 6.2 and 8.13.5; 8.3.4.5 in Base 2.2).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{FABRICS, fabrics};
use super::{Sqe, Status};

/// Bytes of a message at most, with what a host allots for one: Linux and SPDK allot as many. The
/// longest that makes sense, a reply of FFDHE-8192 and SHA-512, has 1,168.
pub const MOST: u32 = 4096;

/// AUTH_TYPE: whose messages they are.
pub mod kind {
    /// Common to all protocols.
    pub const COMMON: u8 = 0x00;
    /// DH-HMAC-CHAP's.
    pub const CHAP: u8 = 0x01;
}

/// AUTH_ID: which message of its type.
pub mod id {
    #![allow(missing_docs)] // The names are the specification's.
    pub const NEGOTIATE: u8 = 0x00;
    pub const CHALLENGE: u8 = 0x01;
    pub const REPLY: u8 = 0x02;
    pub const SUCCESS1: u8 = 0x03;
    pub const SUCCESS2: u8 = 0x04;
    pub const FAILURE2: u8 = 0xf0;
    pub const FAILURE1: u8 = 0xf1;
}

/// AUTHID of a protocol descriptor: DH-HMAC-CHAP.
pub const CHAP: u8 = 0x01;
/// Identifiers in either list of a protocol descriptor.
pub const MOST_IDS: usize = 30;
/// SECP, the security protocol, SPSP0 and SPSP1 (Base Figures 376 and 378).
const PROTOCOL: u32 = 0xe9 << 24 | 0x01 << 16 | 0x01 << 8;

/// What every message begins with.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Head {
    /// AUTH_TYPE: one of [`kind`].
    pub kind: u8,
    /// AUTH_ID: one of [`id`].
    pub id: u8,
    /// Bytes 2-3.
    pub reserved: U16,
    /// T_ID, chosen by the host.
    pub transaction: U16,
}

impl Head {
    /// Of message `id` of DH-HMAC-CHAP.
    #[must_use]
    pub fn chap(id: u8, transaction: u16) -> Self {
        Self { kind: kind::CHAP, id, reserved: 0.into(), transaction: transaction.into() }
    }

    /// Of a message common to all protocols.
    #[must_use]
    pub fn common(id: u8, transaction: u16) -> Self {
        Self { kind: kind::COMMON, ..Self::chap(id, transaction) }
    }

    /// Which message it is.
    #[must_use]
    pub fn is(&self, kind: u8, id: u8) -> bool {
        (self.kind, self.id) == (kind, id)
    }
}

/// AUTH_Negotiate; `NAPD` protocol descriptors follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Negotiate {
    /// Bytes 0-5.
    pub head: Head,
    /// SC_C: whether a secure channel is to be set up; 0 for none.
    pub secure_channel: u8,
    /// NAPD.
    pub protocols: u8,
}

/// A protocol descriptor.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Protocol {
    /// AUTHID.
    pub id: u8,
    /// Byte 1.
    pub reserved: u8,
    /// HALEN: hash functions in the list.
    pub hashes: u8,
    /// DHLEN: groups in the list.
    pub groups: u8,
    /// Identifiers of hash functions.
    pub hash_ids: [u8; MOST_IDS],
    /// Identifiers of groups.
    pub group_ids: [u8; MOST_IDS],
}

impl Protocol {
    /// The hash functions and groups that are offered; `None` where they are too many.
    #[must_use]
    pub fn offered(&self) -> Option<(&[u8], &[u8])> {
        Some((self.hash_ids.get(..self.hashes.into())?, self.group_ids.get(..self.groups.into())?))
    }
}

/// DH-HMAC-CHAP_Challenge; the challenge and the controller's DH value follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Challenge {
    /// Bytes 0-5.
    pub head: Head,
    /// HL: bytes of the challenge.
    pub hash_length: u8,
    /// Byte 7.
    pub reserved: u8,
    /// HashID.
    pub hash: u8,
    /// DHgID.
    pub group: u8,
    /// DHVLEN: bytes of the DH value.
    pub dh_length: U16,
    /// SEQNUM.
    pub sequence: U32,
}

/// DH-HMAC-CHAP_Reply; the response, the host's challenge (zeros for none) and its DH value
/// follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Reply {
    /// Bytes 0-5.
    pub head: Head,
    /// HL: bytes of the response, and again of the challenge.
    pub hash_length: u8,
    /// Byte 7.
    pub reserved: u8,
    /// CVALID: 1 with a challenge.
    pub challenged: u8,
    /// Byte 9.
    pub reserved_too: u8,
    /// DHVLEN: bytes of the DH value.
    pub dh_length: U16,
    /// SEQNUM; 0 without a challenge.
    pub sequence: U32,
}

/// DH-HMAC-CHAP_Success1; the controller's response, or as many zeros, follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Success1 {
    /// Bytes 0-5.
    pub head: Head,
    /// HL: bytes of the response.
    pub hash_length: u8,
    /// Byte 7.
    pub reserved: u8,
    /// RVALID: 1 with a response.
    pub responded: u8,
    /// Bytes 9-15.
    pub reserved_too: [u8; 7],
}

/// DH-HMAC-CHAP_Success2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Success2 {
    /// Bytes 0-5.
    pub head: Head,
    /// Bytes 6-15.
    pub reserved: [u8; 10],
}

/// AUTH_Failure1, the controller's, and AUTH_Failure2, the host's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Failure {
    /// Bytes 0-5.
    pub head: Head,
    /// Reason code: 1, authentication failure.
    pub reason: u8,
    /// Reason code explanation: one of [`Explanation`].
    pub explanation: u8,
}

impl Failure {
    /// Of message `id`.
    #[must_use]
    pub fn new(id: u8, transaction: u16, why: Explanation) -> Self {
        Self { head: Head::common(id, transaction), reason: 1, explanation: why as u8 }
    }
}

/// Why authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explanation {
    /// The response is wrong, or there is no key.
    Failed = 1,
    /// No protocol that both know.
    Protocol = 2,
    /// The other side is about to set up a secure channel, or not.
    SecureChannel = 3,
    /// No hash function that both know.
    Hash = 4,
    /// No group that both know.
    Group = 5,
    /// A message holds what it must not.
    Payload = 6,
    /// A message at the wrong time.
    Message = 7,
}

impl Explanation {
    /// In words, of the code in a message.
    #[must_use]
    pub const fn words(code: u8) -> &'static str {
        match code {
            1 => "authentication failed",
            2 => "no protocol that both know",
            3 => "secure channel concatenation is not supported",
            4 => "no hash function that both allow",
            5 => "no DH group that both allow",
            6 => "a message holds what it must not",
            7 => "a message out of order",
            _ => "for a reason unknown",
        }
    }
}

/// Whether a command carries authentication messages.
#[must_use]
pub fn is_authentication(sqe: &Sqe) -> bool {
    let types = [fabrics::AUTHENTICATION_SEND, fabrics::AUTHENTICATION_RECEIVE];
    sqe.opcode == FABRICS && types.contains(&sqe.fabrics_type())
}

/// Writes the fields of an Authentication Send or Receive command: its protocol, and the `length`
/// of the message or of what is allotted for one.
pub fn put_fields(sqe: &mut Sqe, length: u32) {
    sqe.set_cdw(10, PROTOCOL);
    sqe.set_cdw(11, length);
}

/// Checks these fields: TL or AL is the length of the data.
///
/// # Errors
/// The status to answer it with.
pub fn check_fields(sqe: &Sqe) -> Result<(), Status> {
    let length = sqe.cdw(11);
    let is_right = sqe.cdw(10) & !0xff == PROTOCOL
        && length == sqe.sgl_length.get()
        && (1..=MOST).contains(&length);
    is_right.then_some(()).ok_or(Status::INVALID_FIELD)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn messages_are_laid_out_as_specified() {
        assert_eq!((size_of::<Negotiate>(), size_of::<Protocol>()), (8, 64));
        assert_eq!((offset_of!(Protocol, hash_ids), offset_of!(Protocol, group_ids)), (4, 34));
        assert_eq!((size_of::<Challenge>(), offset_of!(Challenge, hash)), (16, 8));
        assert_eq!((offset_of!(Challenge, dh_length), offset_of!(Challenge, sequence)), (10, 12));
        assert_eq!((size_of::<Reply>(), offset_of!(Reply, challenged)), (16, 8));
        assert_eq!((offset_of!(Reply, dh_length), offset_of!(Reply, sequence)), (10, 12));
        assert_eq!((size_of::<Success1>(), offset_of!(Success1, responded)), (16, 8));
        assert_eq!((size_of::<Success2>(), size_of::<Failure>()), (16, 8));
    }

    #[test]
    fn commands_are_told_by_their_protocol_and_length() {
        let mut sqe = Sqe::new(FABRICS, 1);
        sqe.nsid = u32::from(fabrics::AUTHENTICATION_SEND).into();
        sqe.sgl_length = 72.into();
        put_fields(&mut sqe, 72);
        // Bytes 41-43 of the command: SPSP0, SPSP1, SECP; 44-47 the length.
        assert_eq!(sqe.as_bytes()[40..48], [0, 1, 1, 0xe9, 72, 0, 0, 0]);
        assert!(is_authentication(&sqe) && check_fields(&sqe).is_ok());
        for (dword, value) in [(10, 0xe9_01_02_00), (10, 0x00_01_01_00), (11, 71), (11, 0)] {
            let mut wrong = sqe;
            wrong.set_cdw(dword, value);
            assert_eq!(check_fields(&wrong), Err(Status::INVALID_FIELD), "{dword} {value:x}");
        }
        let mut long = sqe;
        long.sgl_length = (MOST + 1).into();
        long.set_cdw(11, MOST + 1);
        assert_eq!(check_fields(&long), Err(Status::INVALID_FIELD));
    }
}
