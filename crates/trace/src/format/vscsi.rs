//! VMware vSCSI traces (Waldspurger et al., FAST'15, the CloudPhysics traces): little-endian
//! records, 32 bytes in version 1 and 40 in version 2. Layouts as in libCacheSim's vscsi reader.

use std::num::NonZeroU64;

use super::field::{self, Line, Reason};
use crate::request::{Op, Request};

/// The layout of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// `u32 serial, u32 length in bytes, u32 nSG, u16 opcode, u16 version, u64 block (512 B), u64
    /// microseconds`.
    V1,
    /// `u16 opcode, u16 version, u32 serial, u32 length, u32 nSG, u64 block, u64 microseconds, u64
    /// response time`, the last taken in microseconds as well.
    V2,
}

impl Version {
    /// Bytes of one record.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::V1 => 32,
            Self::V2 => 40,
        }
    }

    /// The high byte of the version field is the version.
    fn marks(self, record: &[u8]) -> bool {
        match self {
            Self::V1 => u16_at(record, 14) >> 8 == 1,
            Self::V2 => u16_at(record, 2) >> 8 == 2,
        }
    }
}

/// The version of the records at the start of `head`: the mark of the first, and of the second if
/// there is one.
pub(crate) fn version(head: &[u8]) -> Option<Version> {
    [Version::V1, Version::V2].into_iter().find(|version| {
        let mut records = head.chunks_exact(version.size()).take(2).peekable();
        records.peek().is_some()
            && records.all(|r| version.marks(r) && operation(r, *version).is_ok())
    })
}

/// One record.
pub(crate) fn record(record: &[u8], version: Version) -> Result<Line, Reason> {
    if !version.marks(record) {
        return Err("the version field differs from the first record's".to_owned());
    }
    let Some(op) = operation(record, version)? else { return Ok(Line::Other) };
    let (length, block, micros, response) = match version {
        Version::V1 => (4, 16, 24, None),
        Version::V2 => (8, 16, 24, Some(32)),
    };
    let at = field::ticks(u64_at(record, micros), "timestamp", 1_000)?;
    let offset = field::sectors(u64_at(record, block), "block")?;
    let size = u64::from(u32_at(record, length));
    let latency = match response {
        Some(response) => field::ticks(u64_at(record, response), "response time", 1_000)?,
        None => 0,
    };
    let (offset, size) = if op == Op::Flush { (0, 0) } else { (offset, size) };
    let request = field::request(at, op, offset, size)?;
    Ok(Line::Request(Request { recorded_latency: NonZeroU64::new(latency), ..request }))
}

fn operation(record: &[u8], version: Version) -> Result<Option<Op>, Reason> {
    command(match version {
        Version::V1 => u16_at(record, 12),
        Version::V2 => u16_at(record, 0),
    })
}

/// What the SCSI command does (SBC-4): `None` for commands that move no data of the medium.
pub(crate) fn command(opcode: u16) -> Result<Option<Op>, Reason> {
    match opcode {
        // READ and WRITE of 6, 10, 16 and 12 bytes; WRITE AND VERIFY; WRITE SAME.
        0x08 | 0x28 | 0x88 | 0xa8 => Ok(Some(Op::Read)),
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x41 | 0x93 => Ok(Some(Op::Write)),
        // SYNCHRONIZE CACHE; UNMAP tells its ranges in data that the trace does not have.
        0x35 | 0x91 => Ok(Some(Op::Flush)),
        0x00..=0xff => Ok(None),
        _ => Err(format!("{opcode:#x} is not a SCSI operation code")),
    }
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(record, at))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(record, at))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(record, at))
}

/// Fixed bytes of a record; a record is always whole, so nothing is ever filled with zeros.
fn bytes_at<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    pub(crate) fn v1(opcode: u16, bytes: u32, block: u64, micros: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(7_u32.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(opcode.to_le_bytes());
        record.extend(0x0100_u16.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(micros.to_le_bytes());
        record
    }

    pub(crate) fn v2(opcode: u16, bytes: u32, block: u64, micros: u64, response: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(opcode.to_le_bytes());
        record.extend(0x0200_u16.to_le_bytes());
        record.extend(7_u32.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        record.extend(1_u32.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(micros.to_le_bytes());
        record.extend(response.to_le_bytes());
        record
    }

    #[test]
    fn both_versions_are_known_and_read() {
        let first = v1(0x2a, 512, 42_932_745, 5_632_120_901_410);
        assert_eq!(version(&[first.clone(), first.clone()].concat()), Some(Version::V1));
        let Line::Request(request) = record(&first, Version::V1).unwrap() else { panic!() };
        assert_eq!((request.op, request.bytes), (Op::Write, 512));
        assert_eq!(request.offset, 42_932_745 * 512);
        assert_eq!(request.at, Nanos(5_632_120_901_410_000));

        let second = v2(0x28, 4096, 8, 1000, 250);
        assert_eq!(version(&second), Some(Version::V2));
        let Line::Request(request) = record(&second, Version::V2).unwrap() else { panic!() };
        assert_eq!((request.op, request.bytes, request.offset), (Op::Read, 4096, 4096));
        assert_eq!(request.recorded_latency.unwrap().get(), 250_000);
    }

    #[test]
    fn other_commands_are_passed_over_and_flushes_carry_nothing() {
        assert_eq!(record(&v1(0x12, 36, 0, 5), Version::V1), Ok(Line::Other));
        let Ok(Line::Request(flush)) = record(&v1(0x35, 0, 99, 5), Version::V1) else { panic!() };
        assert_eq!((flush.op, flush.offset, flush.bytes), (Op::Flush, 0, 0));
    }

    #[test]
    fn faults_are_named() {
        for (bytes, said) in [
            (v1(0x128, 512, 0, 0), "0x128 is not a SCSI operation code"),
            (v1(0x28, 512, 1 << 60, 0), "block is too large"),
            (v1(0x28, 512, 0, u64::MAX), "timestamp is too large"),
            (v2(0x28, 512, 0, 0, 0)[..32].to_vec(), "version field"),
        ] {
            let reason = record(&bytes, Version::V1).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
