//! The devices of a server and which of them a part of a workload goes to.

use serde::{Deserialize, Serialize};

use super::text::Share;

/// What a workload must know of the server it is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildContext {
    /// Devices; requests name them from 0 on.
    pub devices: u16,
    /// Capacity of each device in bytes.
    pub capacity_bytes: u64,
    /// Everything random follows from it.
    pub seed: u64,
}

/// The devices a part of a workload goes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) first: u16,
    pub(super) count: u16,
    pub(super) capacity: u64,
}

/// A share of the server's devices, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveShare {
    /// Where it begins.
    pub from: Share,
    /// Where it ends.
    pub to: Share,
}

impl DriveShare {
    /// All devices.
    pub const ALL: Self = Self { from: Share(0.0), to: Share(1.0) };

    /// Part `index` of `of` equal ones.
    #[must_use]
    pub fn segment(index: u32, of: u32) -> Self {
        let at = |part: u32| Share(f64::from(part) / f64::from(of));
        Self { from: at(index), to: at(index + 1) }
    }

    /// First device and number of devices, out of `devices`.
    #[must_use]
    pub fn of(self, devices: u16) -> (u16, u16) {
        let at = |share: Share| (share.0 * f64::from(devices)).round() as u16;
        (at(self.from), at(self.to).saturating_sub(at(self.from)))
    }
}

impl Default for DriveShare {
    fn default() -> Self {
        Self::ALL
    }
}
