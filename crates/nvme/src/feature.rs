//! Features: identifiers and fields of Get and Set Features (Base 5.27.1, NVM 4.1).

#![allow(missing_docs)] // The names are the specification's.

pub const ARBITRATION: u8 = 0x01;
pub const POWER_MANAGEMENT: u8 = 0x02;
pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
pub const ERROR_RECOVERY: u8 = 0x05;
pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
pub const NUMBER_OF_QUEUES: u8 = 0x07;
pub const WRITE_ATOMICITY: u8 = 0x0a;
pub const ASYNC_EVENTS: u8 = 0x0b;
/// Autonomous Power State Transition.
pub const POWER_TRANSITIONS: u8 = 0x0c;
pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
pub const HOST_BEHAVIOR: u8 = 0x16;
/// Of Base 2.3.
pub const POWER_LIMIT: u8 = 0x23;
pub const HOST_IDENTIFIER: u8 = 0x81;

/// SEL of Get Features: which value is asked for (Base Figure 192).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select {
    Current,
    Default,
    Saved,
    Capabilities,
}

impl Select {
    /// From command dword 10.
    #[must_use]
    pub const fn of(cdw10: u32) -> Option<Self> {
        match cdw10 >> 8 & 7 {
            0 => Some(Self::Current),
            1 => Some(Self::Default),
            2 => Some(Self::Saved),
            3 => Some(Self::Capabilities),
            _ => None,
        }
    }
}
