//! Fabrics commands: the data and fields of Connect, Property Get and Set (Base 6).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Sqe;

/// The NQN at which every discovery service answers (Base 4.5).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Longest NQN in bytes, without its terminating zero (Base 4.5).
pub const MAX_NQN: usize = 223;
/// CNTLID by which a host asks for any controller: the dynamic controller model (Base Figure 381).
pub const ANY_CONTROLLER: u16 = 0xffff;
/// Largest controller identifier; those above are reserved (Base Figure 275, CNTLID).
pub const MAX_CONTROLLER: u16 = 0xffef;

/// The data of a Connect command (Base Figure 381).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID, bytes 0-15.
    pub host_id: [u8; 16],
    /// CNTLID, bytes 16-17.
    pub controller_id: U16,
    /// Bytes 18-255.
    pub reserved: [u8; 238],
    /// SUBNQN, bytes 256-511, ended by a zero.
    pub subsystem_nqn: [u8; 256],
    /// HOSTNQN, bytes 512-767, ended by a zero.
    pub host_nqn: [u8; 256],
    /// Bytes 768-1023.
    pub reserved_end: [u8; 256],
}

/// A qualified name in a field of 256 bytes, ended by a zero. Empty where the sender has no name,
/// as SPDK's tools when they are told none.
#[must_use]
pub fn nqn(field: &[u8; 256]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    let name = str::from_utf8(&field[..end]).ok()?;
    (name.is_empty() || check_nqn(name).is_ok()).then_some(name)
}

/// Checks an NVMe qualified name (Base 4.5).
///
/// # Errors
/// What is wrong with it.
pub fn check_nqn(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NQN {
        return Err("it is longer than 223 bytes");
    }
    let Some(rest) = name.strip_prefix("nqn.") else { return Err("it does not begin with nqn.") };
    let date = rest.as_bytes().get(..8).unwrap_or_default();
    let is_date = date.len() == 8
        && date[4] == b'-'
        && date[7] == b'.'
        && [0, 1, 2, 3, 5, 6].iter().all(|at| date[*at].is_ascii_digit())
        && (b"01"..=b"12").contains(&&[date[5], date[6]]);
    if !is_date {
        return Err("no year and month follow nqn.");
    }
    let domain = &rest[8..];
    if domain.is_empty() || domain.starts_with(':') {
        return Err("no domain follows the month");
    }
    if domain.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Err("it contains a blank or a control character");
    }
    if let Some(uuid) = name.strip_prefix("nqn.2014-08.org.nvmexpress:uuid:") {
        let is_uuid = uuid.len() == 36
            && uuid.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        if !is_uuid {
            return Err("no UUID follows uuid:");
        }
    }
    Ok(())
}

/// The fields of a Connect command (Base Figure 380).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// RECFMT, bytes 40-41: format of the data, 0.
    pub format: u16,
    /// QID, bytes 42-43: 0 is the admin queue.
    pub queue: u16,
    /// SQSIZE, bytes 44-45: entries less one.
    pub size: u16,
    /// CATTR, byte 46.
    pub attributes: u8,
    /// KATO, bytes 48-51: keep-alive timeout in milliseconds, 0 for none.
    pub keep_alive: u32,
}

impl Connect {
    /// AUTHREQ.ATR, bit 17 of the answer: the host must authenticate itself in band (Base
    /// Figure 382).
    pub const AUTHENTICATE: u32 = 1 << 17;
    /// AUTHREQ.ASCR, bit 18: it must set up a secure channel with it.
    pub const SECURE_CHANNEL: u32 = 1 << 18;
    /// CATTR: the submission queue has no flow control.
    pub const NO_FLOW_CONTROL: u8 = 1 << 2;
    /// Where the fields are, for Invalid Parameter Offset.
    pub const QUEUE_AT: u16 = 42;
    /// As above.
    pub const SIZE_AT: u16 = 44;

    /// From the command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> Self {
        Self {
            format: sqe.cdw(10) as u16,
            queue: (sqe.cdw(10) >> 16) as u16,
            size: sqe.cdw(11) as u16,
            attributes: (sqe.cdw(11) >> 16) as u8,
            keep_alive: sqe.cdw(12),
        }
    }
}

/// What Property Get and Set address (Base Figures 386 and 389).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyAt {
    /// OFST: one of [`super::property`].
    pub offset: u32,
    /// Whether it is 8 bytes rather than 4. `None`: a size that does not exist.
    pub wide: Option<bool>,
}

impl PropertyAt {
    /// From the command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> Self {
        let wide = match sqe.cdw(10) & 7 {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Self { offset: sqe.cdw(11), wide }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn connect_data_is_laid_out_as_specified() {
        assert_eq!(size_of::<ConnectData>(), 1024);
        assert_eq!(offset_of!(ConnectData, controller_id), 16);
        assert_eq!(offset_of!(ConnectData, subsystem_nqn), 256);
        assert_eq!(offset_of!(ConnectData, host_nqn), 512);
    }

    #[test]
    fn names_end_with_a_zero_and_are_qualified() {
        let field = |bytes: &[u8]| {
            let mut field = [0; 256];
            field[..bytes.len()].copy_from_slice(bytes);
            field
        };
        let long = |length: usize| format!("nqn.2026-01.{}", "x".repeat(length - 12));
        for name in ["", "nqn.2026-01.org.example:h", &long(MAX_NQN)] {
            assert_eq!(nqn(&field(name.as_bytes())), Some(name));
        }
        for name in ["nqn.x", "nqn.2026-01.org.example:h\n<3>", &long(MAX_NQN + 1)] {
            assert_eq!(nqn(&field(name.as_bytes())), None, "{name:?}");
        }
        assert_eq!(nqn(&[b'n'; 256]), None);
        assert_eq!(nqn(&field(&[0xff, 0xfe])), None);
    }
}
