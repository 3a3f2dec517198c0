//! Controller properties: what registers are to a PCIe controller (Base 3.1.3, Figure 35).

/// CAP: controller capabilities, 8 bytes.
pub const CAP: u32 = 0x00;
/// VS: version.
pub const VS: u32 = 0x08;
/// CC: controller configuration.
pub const CC: u32 = 0x14;
/// CSTS: controller status.
pub const CSTS: u32 = 0x1c;
/// CRTO: controller ready timeouts.
pub const CRTO: u32 = 0x68;

/// The version this controller complies with: 2.0.
pub const VERSION: u32 = 0x0002_0000;

/// CAP (Base Figure 36): `entries` is the most entries of an I/O queue.
///
/// Contiguous queues (CQR), ready within 500 ms (TO), the NVM command set (CSS), pages of 4 KiB
/// only (MPSMIN, MPSMAX), ready with media (CRMS).
#[must_use]
pub const fn capabilities(entries: u16) -> u64 {
    let (contiguous, timeout, nvm, ready_with_media) = (1 << 16, 1 << 24, 1 << 37, 1 << 59);
    (entries.saturating_sub(1) as u64) | contiguous | timeout | nvm | ready_with_media
}

/// CRTO (Base Figure 58): ready with media within 500 ms.
pub const READY_TIMEOUTS: u32 = 1;

/// Controller configuration (Base Figure 46).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration(pub u32);

impl Configuration {
    /// EN: the controller shall process commands.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }
    /// SHN: a shutdown, normal or abrupt, is asked for.
    #[must_use]
    pub const fn asks_shutdown(self) -> bool {
        matches!(self.0 >> 14 & 3, 1 | 2)
    }
    /// CSS, MPS and AMS all select what there is: the NVM command set, 4 KiB pages, round robin.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.0 & (7 << 4 | 15 << 7 | 7 << 11) == 0
    }
    /// IOSQES and IOCQES state 64 and 16 bytes.
    #[must_use]
    pub const fn has_entry_sizes(self) -> bool {
        self.0 >> 16 & 15 == 6 && self.0 >> 20 & 15 == 4
    }
}

/// Bits of CSTS (Base Figure 47).
pub mod status {
    /// RDY: ready to process commands.
    pub const READY: u32 = 1 << 0;
    /// CFS: a fatal error.
    pub const FATAL: u32 = 1 << 1;
    /// SHST: shutdown processing is under way.
    pub const SHUTTING_DOWN: u32 = 1 << 2;
    /// SHST: shutdown processing is complete.
    pub const SHUT_DOWN: u32 = 2 << 2;
    /// SHST.
    pub const SHUTDOWN: u32 = 3 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_and_configuration_as_linux_reads_and_writes_them() {
        let cap = capabilities(128);
        assert_eq!((cap & 0xffff, cap >> 24 & 0xff, cap >> 37 & 0xff), (127, 1, 1));
        assert_eq!((cap >> 48 & 0xff, cap >> 59 & 1), (0, 1));
        let enable = Configuration(0x0046_0001);
        assert!(enable.is_enabled() && enable.is_supported() && enable.has_entry_sizes());
        assert!(!enable.asks_shutdown() && Configuration(0x0046_4001).asks_shutdown());
        assert!(!Configuration(0x0046_0061).is_supported()); // CSS: all command sets
    }
}
