//! Identify data structures (Base 5.17, NVM 4.1.5).
//!
//! Fields that a controller like ours leaves at zero have no name here.

use zerocopy::little_endian::{U16, U32, U64};

/// Bytes of every Identify data structure.
pub const SIZE: usize = 4096;

/// CNS: which data structure (Base Figure 273).
pub mod cns {
    #![allow(missing_docs)] // The names are the specification's.
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const DESCRIPTORS: u8 = 0x03;
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    pub const COMMAND_SETS: u8 = 0x1c;
}

wire_struct! {
    /// Identify Controller, CNS 01h (Base Figure 275).
    Controller {
        /// VID and SSVID, bytes 0-3: zero, not a PCI device.
        vendor: [u8; 4],
        /// SN, bytes 4-23, padded with spaces.
        serial: [u8; 20],
        /// MN, bytes 24-63, padded with spaces.
        model: [u8; 40],
        /// FR, bytes 64-71, padded with spaces.
        firmware: [u8; 8],
        /// RAB and IEEE, bytes 72-75.
        reserved_72: [u8; 4],
        /// CMIC, byte 76: bit 0 several ports, bit 1 several controllers, bit 3 ANA.
        sharing: u8,
        /// MDTS, byte 77: most data of a command, as a power of two of 4 KiB pages.
        max_transfer: u8,
        /// CNTLID, bytes 78-79.
        id: U16,
        /// VER, bytes 80-83.
        version: U32,
        /// RTD3R and RTD3E, bytes 84-91.
        resume: [u8; 8],
        /// OAES, bytes 92-95: optional asynchronous events.
        events: U32,
        /// CTRATT, bytes 96-99: bit 0, host identifiers have 128 bits; bit 20, a power limit (Base
        /// 2.3).
        attributes: U32,
        /// Bytes 100-110.
        reserved_100: [u8; 11],
        /// CNTRLTYPE, byte 111: 1 I/O, 2 discovery.
        kind: u8,
        /// FGUID, bytes 112-127.
        reserved_112: [u8; 16],
        /// CRDT1 to CRDT3, bytes 128-133: times after which to try again, in units of 100 ms.
        retry_delays: [U16; 3],
        /// Bytes 134-255.
        reserved_134: [u8; 122],
        /// OACS, bytes 256-257: optional admin commands.
        admin_commands: U16,
        /// ACL, byte 258: aborts at once, less one.
        abort_limit: u8,
        /// AERL, byte 259: asynchronous event requests at once, less one.
        event_limit: u8,
        /// FRMW, byte 260: bit 0 slot 1 is read-only, bits 3:1 slots.
        firmware_slots: u8,
        /// LPA, byte 261: bit 1 commands and effects, bit 2 offsets, bit 5 lists of what there is.
        log_attributes: u8,
        /// ELPE, byte 262: entries of the error log, less one.
        error_entries: u8,
        /// NPSS, byte 263: power states, less one.
        power_states: u8,
        /// AVSCC, byte 264.
        reserved_264: u8,
        /// APSTA, byte 265: bit 0, idle states are entered unasked.
        power_transitions: u8,
        /// WCTEMP, bytes 266-267: where it warns of its temperature, in kelvins; 0, not stated.
        warning_temperature: U16,
        /// CCTEMP to FWUG, bytes 268-319.
        reserved_268: [u8; 52],
        /// KAS, bytes 320-321: granularity of the keep-alive timer in units of 100 ms.
        keep_alive: U16,
        /// HCTMA to ENDGIDMAX, bytes 322-341.
        reserved_322: [u8; 20],
        /// ANATT, byte 342: the longest that a group changes its state, seconds.
        ana_transition: u8,
        /// ANACAP, byte 343: bits 4:0 the states there are, bit 6 groups are fixed.
        ana: u8,
        /// ANAGRPMAX, bytes 344-347: largest group identifier.
        largest_group: U32,
        /// NANAGRPID, bytes 348-351: groups.
        groups: U32,
        /// PELS to reserved, bytes 352-511.
        reserved_352: [u8; 160],
        /// SQES, byte 512: required and largest size of a submission queue entry.
        submission_entry: u8,
        /// CQES, byte 513: likewise of a completion queue entry.
        completion_entry: u8,
        /// MAXCMD, bytes 514-515: commands an I/O queue processes at once.
        max_commands: U16,
        /// NN, bytes 516-519: largest namespace identifier.
        namespaces: U32,
        /// ONCS, bytes 520-521: optional NVM commands.
        io_commands: U16,
        /// FUSES and FNA, bytes 522-524.
        reserved_522: [u8; 3],
        /// VWC, byte 525: bit 0 present, bits 2:1 = 10b no flush of all namespaces.
        write_cache: u8,
        /// AWUN to reserved, bytes 526-535.
        reserved_526: [u8; 10],
        /// SGLS, bytes 536-539: bit 0 supported, 20 offsets, 21 transport data blocks.
        sgl: U32,
        /// MNAN, bytes 540-543: most namespaces.
        max_namespaces: U32,
        /// Bytes 544-767.
        reserved_544: [u8; 224],
        /// SUBNQN, bytes 768-1023, ended by a zero.
        subsystem_nqn: [u8; 256],
        /// Bytes 1024-1791.
        reserved_1024: [u8; 768],
        /// IOCCSZ, bytes 1792-1795: I/O command capsule in units of 16 bytes.
        command_capsule: U32,
        /// IORCSZ, bytes 1796-1799: response capsule in units of 16 bytes.
        response_capsule: U32,
        /// ICDOFF, bytes 1800-1801: offset of data in a capsule in units of 16 bytes.
        data_offset: U16,
        /// FCATT, byte 1802: bit 0 clear, the dynamic controller model.
        fabric_attributes: u8,
        /// MSDBD, byte 1803: SGL descriptors of a command.
        descriptors: u8,
        /// OFCS, bytes 1804-1805: bit 0, Disconnect.
        fabric_commands: U16,
        /// DCTYPE, byte 1806.
        discovery_kind: u8,
        /// Bytes 1807-2047.
        reserved_1807: [u8; 241],
        /// PSD0 to PSD31, bytes 2048-3071.
        power: [PowerDescriptor; 32],
        /// Bytes 3072-4095.
        vendor_specific: [u8; 1024],
    }
}

wire_struct! {
    /// A power state descriptor (Base Figure 276).
    PowerDescriptor {
        /// MP, bytes 0-1: most power, in units stated by `flags`.
        max_power: U16,
        /// Byte 2.
        reserved_2: u8,
        /// Byte 3: bit 0 MXPS (0.1 mW rather than 10 mW), bit 1 NOPS (no I/O in this state).
        flags: u8,
        /// ENLAT, bytes 4-7: most time to enter it, µs.
        entry_latency: U32,
        /// EXLAT, bytes 8-11: most time to leave it, µs.
        exit_latency: U32,
        /// RRT, RRL, RWT, RWL, bytes 12-15: ranks among the states, 0 the best.
        ranks: [u8; 4],
        /// IDLP, bytes 16-17: idle power.
        idle_power: U16,
        /// IPS, byte 18, in bits 7:6: unit of it, 2 is 10 mW.
        idle_scale: u8,
        /// Byte 19.
        reserved_19: u8,
        /// ACTP, bytes 20-21: active power.
        active_power: U16,
        /// APW and APS, byte 22: workload in bits 2:0, unit in bits 7:6.
        active_scale: u8,
        /// Bytes 23-31.
        reserved_23: [u8; 9],
    }
}

wire_struct! {
    /// Identify Namespace of the NVM command set, CNS 00h (NVM Figure 97).
    Namespace {
        /// NSZE, bytes 0-7: blocks.
        size: U64,
        /// NCAP, bytes 8-15.
        capacity: U64,
        /// NUSE, bytes 16-23.
        used: U64,
        /// NSFEAT, byte 24.
        features: u8,
        /// NLBAF, byte 25: formats less one.
        formats: u8,
        /// FLBAS, byte 26: the format in use.
        format: u8,
        /// MC, DPC and DPS, bytes 27-29.
        protection: [u8; 3],
        /// NMIC, byte 30: bit 0, several controllers may have it.
        sharing: u8,
        /// RESCAP and FPI, bytes 31-32.
        reserved_31: [u8; 2],
        /// DLFEAT, byte 33: what deallocated blocks read as; 0, not stated.
        deallocate: u8,
        /// NAWUN to reserved, bytes 34-91.
        reserved_34: [u8; 58],
        /// ANAGRPID, bytes 92-95.
        group: U32,
        /// Bytes 96-98.
        reserved_96: [u8; 3],
        /// NSATTR, byte 99: bit 0, write protected.
        attributes: u8,
        /// NVMSETID and ENDGID, bytes 100-103.
        reserved_100: [u8; 4],
        /// NGUID, bytes 104-119, big-endian.
        nguid: [u8; 16],
        /// EUI64, bytes 120-127.
        eui64: [u8; 8],
        /// LBAF0, bytes 128-131: metadata size 2 bytes, log2 of the block size, performance.
        format_0: [u8; 4],
        /// Bytes 132-4095.
        reserved_132: [u8; 3964],
    }
}

wire_struct! {
    /// Command set independent Identify Namespace, CNS 08h (Base Figure 280).
    Independent {
        /// NSFEAT, byte 0.
        features: u8,
        /// NMIC, byte 1.
        sharing: u8,
        /// RESCAP and FPI, bytes 2-3.
        reserved_2: [u8; 2],
        /// ANAGRPID, bytes 4-7.
        group: U32,
        /// NSATTR, byte 8.
        attributes: u8,
        /// Bytes 9-13.
        reserved_9: [u8; 5],
        /// NSTAT, byte 14: bit 0, ready.
        status: u8,
        /// Bytes 15-4095.
        reserved_15: [u8; 4081],
    }
}

/// Types of namespace identification descriptors (Base Figure 277).
pub mod descriptor {
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command set identifier, 1 byte.
    pub const COMMAND_SET: u8 = 4;

    /// Appends one: type, length, two reserved bytes, value.
    pub fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
        out.extend_from_slice(&[kind, value.len() as u8, 0, 0]);
        out.extend_from_slice(value);
    }
}

/// `text` in a field of ASCII, cut or padded with spaces (Base 1.4.2).
#[must_use]
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

/// `text` in a field ended by zeros, cut if need be.
#[must_use]
pub fn terminated<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from;
    }
    field
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn controllers_are_laid_out_as_specified() {
        assert_eq!(size_of::<Controller>(), SIZE);
        let offsets = [
            (offset_of!(Controller, serial), 4),
            (offset_of!(Controller, model), 24),
            (offset_of!(Controller, firmware), 64),
            (offset_of!(Controller, sharing), 76),
            (offset_of!(Controller, max_transfer), 77),
            (offset_of!(Controller, id), 78),
            (offset_of!(Controller, version), 80),
            (offset_of!(Controller, events), 92),
            (offset_of!(Controller, attributes), 96),
            (offset_of!(Controller, kind), 111),
            (offset_of!(Controller, admin_commands), 256),
            (offset_of!(Controller, log_attributes), 261),
            (offset_of!(Controller, power_states), 263),
            (offset_of!(Controller, power_transitions), 265),
            (offset_of!(Controller, keep_alive), 320),
            (offset_of!(Controller, ana_transition), 342),
            (offset_of!(Controller, largest_group), 344),
            (offset_of!(Controller, groups), 348),
            (offset_of!(Controller, submission_entry), 512),
            (offset_of!(Controller, max_commands), 514),
            (offset_of!(Controller, namespaces), 516),
            (offset_of!(Controller, io_commands), 520),
            (offset_of!(Controller, write_cache), 525),
            (offset_of!(Controller, sgl), 536),
            (offset_of!(Controller, max_namespaces), 540),
            (offset_of!(Controller, subsystem_nqn), 768),
            (offset_of!(Controller, command_capsule), 1792),
            (offset_of!(Controller, response_capsule), 1796),
            (offset_of!(Controller, data_offset), 1800),
            (offset_of!(Controller, fabric_attributes), 1802),
            (offset_of!(Controller, descriptors), 1803),
            (offset_of!(Controller, fabric_commands), 1804),
            (offset_of!(Controller, discovery_kind), 1806),
            (offset_of!(Controller, power), 2048),
        ];
        for (index, (is, should)) in offsets.into_iter().enumerate() {
            assert_eq!(is, should, "field {index}");
        }
    }

    #[test]
    fn power_states_and_namespaces_are_laid_out_as_specified() {
        assert_eq!(size_of::<PowerDescriptor>(), 32);
        assert_eq!(offset_of!(PowerDescriptor, entry_latency), 4);
        assert_eq!(offset_of!(PowerDescriptor, ranks), 12);
        assert_eq!(offset_of!(PowerDescriptor, idle_power), 16);
        assert_eq!(offset_of!(PowerDescriptor, active_power), 20);
        assert_eq!((size_of::<Namespace>(), size_of::<Independent>()), (SIZE, SIZE));
        assert_eq!(offset_of!(Namespace, format), 26);
        assert_eq!(offset_of!(Namespace, sharing), 30);
        assert_eq!(offset_of!(Namespace, deallocate), 33);
        assert_eq!((offset_of!(Namespace, group), offset_of!(Independent, group)), (92, 4));
        assert_eq!(offset_of!(Namespace, attributes), 99);
        assert_eq!(offset_of!(Namespace, nguid), 104);
        assert_eq!(offset_of!(Namespace, eui64), 120);
        assert_eq!(offset_of!(Namespace, format_0), 128);
        assert_eq!(offset_of!(Independent, attributes), 8);
        assert_eq!(offset_of!(Independent, status), 14);
    }

    #[test]
    fn text_is_cut_and_padded() {
        assert_eq!(padded::<4>("ab"), *b"ab  ");
        assert_eq!(padded::<4>("abcdef"), *b"abcd");
        assert_eq!(terminated::<4>("abcdef"), *b"abc\0");
    }
}
