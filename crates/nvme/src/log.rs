//! Log pages (Base 5.16.1).

use zerocopy::little_endian::{U16, U32, U64, U128};

use super::Sqe;

/// LID: which page (Base Figure 202).
pub mod id {
    #![allow(missing_docs)] // The names are the specification's.
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const ERRORS: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE_SLOTS: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const COMMANDS_AND_EFFECTS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const FEATURES_AND_EFFECTS: u8 = 0x12;
    pub const MANAGEMENT_COMMANDS: u8 = 0x13;
    pub const DISCOVERY: u8 = 0x70;
}

/// The fields of a Get Log Page command (Base Figures 197 to 201).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// LID: one of [`id`].
    pub page: u8,
    /// LSP: what else the page is asked for.
    pub specific: u8,
    /// RAE: whether an event that pointed here shall stay.
    pub retain_event: bool,
    /// NUMD as bytes: how much to return.
    pub bytes: u64,
    /// LPO: where to begin, or an index.
    pub offset: u64,
    /// OT: LPO is an index, not bytes.
    pub by_index: bool,
    /// CSI: command set.
    pub command_set: u8,
}

impl Request {
    /// From the command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> Self {
        let dwords = u64::from(sqe.cdw(10) >> 16) | u64::from(sqe.cdw(11) & 0xffff) << 16;
        Self {
            page: sqe.cdw(10) as u8,
            specific: (sqe.cdw(10) >> 8) as u8 & 0x7f,
            retain_event: sqe.cdw(10) & 1 << 15 != 0,
            bytes: (dwords + 1) * 4,
            offset: sqe.cdw_pair(12),
            by_index: sqe.cdw(14) & 1 << 23 != 0,
            command_set: (sqe.cdw(14) >> 24) as u8,
        }
    }
}

wire_struct! {
    /// An entry of the error information log (Base Figure 206).
    ErrorEntry {
        /// Error count, bytes 0-7: ascending, from 1; 0 is an empty entry.
        count: U64,
        /// SQID, bytes 8-9.
        queue: U16,
        /// CID, bytes 10-11.
        cid: U16,
        /// Status field of the completion, bytes 12-13.
        status: U16,
        /// Where the error is in the command, bytes 14-15; FFFFh, not stated.
        location: U16,
        /// LBA, bytes 16-23.
        lba: U64,
        /// NSID, bytes 24-27.
        nsid: U32,
        /// Byte 28.
        vendor_specific: u8,
        /// TRTYPE, byte 29.
        transport: u8,
        /// Bytes 30-63.
        reserved: [u8; 34],
    }
}

wire_struct! {
    /// Header of the asymmetric namespace access log (Base Figure 217).
    AnaHeader {
        /// Change count, bytes 0-7.
        changes: U64,
        /// Number of descriptors, bytes 8-9.
        groups: U16,
        /// Bytes 10-15.
        reserved: [u8; 6],
    }
}

wire_struct! {
    /// ANA group descriptor, before its namespace identifiers (Base Figure 218).
    AnaGroup {
        /// ANA Group ID, bytes 0-3.
        id: U32,
        /// Number of NSID values that follow, bytes 4-7.
        namespaces: U32,
        /// Change count, bytes 8-15.
        changes: U64,
        /// ANA state, byte 16.
        state: u8,
        /// Bytes 17-31.
        reserved: [u8; 15],
    }
}

wire_struct! {
    /// SMART / health information (Base Figure 207).
    Smart {
        /// Critical warning, byte 0, see [`warning`].
        warning: u8,
        /// Composite temperature in kelvins, bytes 1-2; 0, not known.
        temperature: U16,
        /// Available spare in percent, byte 3.
        spare: u8,
        /// Available spare threshold, byte 4.
        spare_threshold: u8,
        /// Percentage used, byte 5.
        used: u8,
        /// Bytes 6-31.
        reserved_6: [u8; 26],
        /// Data units read, bytes 32-47: thousands of 512 bytes, rounded up.
        units_read: U128,
        /// Data units written, bytes 48-63: likewise.
        units_written: U128,
        /// Host read commands, bytes 64-79.
        reads: U128,
        /// Host write commands, bytes 80-95.
        writes: U128,
        /// Controller busy time, bytes 96-111.
        busy: U128,
        /// Power cycles, bytes 112-127.
        power_cycles: U128,
        /// Power on hours, bytes 128-143.
        hours: U128,
        /// Unsafe shutdowns, bytes 144-159.
        unsafe_shutdowns: U128,
        /// Media and data integrity errors, bytes 160-175.
        media_errors: U128,
        /// Number of error information log entries, bytes 176-191.
        error_entries: U128,
        /// Bytes 192-239.
        reserved_192: [u8; 48],
        /// Interval power, bytes 240-241: the mean of the last second (Base 2.1).
        interval_power: U16,
        /// Its scale, byte 242, in bits 1:0: as that of idle power.
        interval_scale: u8,
        /// Bytes 243-511.
        reserved_243: [u8; 269],
    }
}

/// Bits of [`Smart::warning`].
pub mod warning {
    /// The available spare is below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// A temperature is beyond its threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// The medium is read-only.
    pub const READ_ONLY: u8 = 1 << 3;
}

wire_struct! {
    /// The header of the discovery log (Base Figure 264).
    DiscoveryHeader {
        /// GENCTR, bytes 0-7: grows with every change.
        generation: U64,
        /// NUMREC, bytes 8-15: entries that follow.
        entries: U64,
        /// RECFMT, bytes 16-17.
        format: U16,
        /// Bytes 18-1023.
        reserved: [u8; 1006],
    }
}

wire_struct! {
    /// An entry of the discovery log (Base Figure 264).
    DiscoveryEntry {
        /// TRTYPE, byte 0.
        transport: u8,
        /// ADRFAM, byte 1: 1 IPv4, 2 IPv6.
        family: u8,
        /// SUBTYPE, byte 2: 2 an NVM subsystem, 3 the discovery subsystem itself.
        kind: u8,
        /// TREQ, byte 3: bits 1:0 = 00b nothing said of a secure channel, 01b it is required; bit 2
        /// flow control can be off.
        requirements: u8,
        /// PORTID, bytes 4-5.
        port: U16,
        /// CNTLID, bytes 6-7: FFFFh, dynamic.
        controller: U16,
        /// ASQSZ, bytes 8-9: entries of the admin submission queue.
        admin_entries: U16,
        /// EFLAGS, bytes 10-11: bit 1, persistent connections to a discovery controller.
        flags: U16,
        /// Bytes 12-31.
        reserved_12: [u8; 20],
        /// TRSVCID, bytes 32-63: the TCP port, padded with spaces.
        service: [u8; 32],
        /// Bytes 64-255.
        reserved_64: [u8; 192],
        /// SUBNQN, bytes 256-511, ended by a zero.
        subsystem_nqn: [u8; 256],
        /// TRADDR, bytes 512-767: the IP address, padded with spaces.
        address: [u8; 256],
        /// TSAS, bytes 768-1023: its first byte is SECTYPE, 0 no security, 2 TLS 1.3 (TCP Figure
        /// 11).
        transport_specific: [u8; 256],
    }
}

/// TRTYPE of TCP.
pub const TCP: u8 = 3;
/// SECTYPE of TLS 1.3.
pub const TLS_1_3: u8 = 2;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn pages_are_laid_out_as_specified() {
        assert_eq!((size_of::<ErrorEntry>(), offset_of!(ErrorEntry, nsid)), (64, 24));
        assert_eq!((size_of::<Smart>(), offset_of!(Smart, units_read)), (512, 32));
        assert_eq!((offset_of!(Smart, hours), offset_of!(Smart, error_entries)), (128, 176));
        assert_eq!(size_of::<DiscoveryHeader>(), 1024);
        assert_eq!(size_of::<DiscoveryEntry>(), 1024);
        assert_eq!(offset_of!(DiscoveryEntry, service), 32);
        assert_eq!(offset_of!(DiscoveryEntry, subsystem_nqn), 256);
        assert_eq!(offset_of!(DiscoveryEntry, address), 512);
        assert_eq!(offset_of!(DiscoveryEntry, transport_specific), 768);
    }

    #[test]
    fn requests_count_dwords_from_one() {
        let mut sqe = Sqe::new(0x02, 1);
        sqe.set_cdw(10, 0x0003_8070);
        sqe.set_cdw(11, 1);
        sqe.set_cdw(12, 1024);
        let request = Request::of(&sqe);
        assert_eq!((request.page, request.retain_event), (0x70, true));
        assert_eq!((request.bytes, request.offset), ((0x1_0003 + 1) * 4, 1024));
    }
}
