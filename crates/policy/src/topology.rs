//! What a plant has: core groups, frequencies, drives with their power states.

use serde::{Deserialize, Serialize};

use crate::units::{Hertz, Nanos, Watts};

/// The task of a core group (PACER §IV-E).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreRole {
    /// Incoming requests, data services, cache look-up: PACER's "Normal" group.
    FrontEnd,
    /// Logical to physical address translation: PACER's "KV" group.
    KeyValue,
    /// RAID and the I/O to the drives: PACER's "RV" group.
    ResourceVolume,
}

/// One group of cores that serve the same tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSpec {
    /// What the group does.
    pub role: CoreRole,
    /// Cores in the group.
    pub cores: u16,
    /// Cores that must always stay active (at least one).
    pub min_cores: u16,
}

/// An NVMe power state number: 0 is the fastest (NVMe Base, Power State Descriptors).
pub type PowerState = u8;

/// One NVMe power state descriptor.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerStateSpec {
    /// `MP`: sustained maximum power in this state.
    pub max_power: Watts,
    /// Whether the drive serves I/O in this state (`NOPS` cleared).
    pub operational: bool,
    /// `ENLAT`: longest time to enter.
    pub entry: Nanos,
    /// `EXLAT`: longest time to leave.
    pub exit: Nanos,
}

/// One drive and its power states, most power first.
#[derive(Debug, Clone, PartialEq)]
pub struct DriveSpec {
    /// Descriptors indexed by power state number.
    pub states: Vec<PowerStateSpec>,
}

impl DriveSpec {
    /// The operational states, fastest first; a policy never leaves them.
    #[must_use]
    pub fn operational(&self) -> &[PowerStateSpec] {
        let end = self.states.iter().position(|s| !s.operational).unwrap_or(self.states.len());
        &self.states[..end]
    }
    /// The power cap of state `ps`; of the deepest operational one beyond the end.
    #[must_use]
    pub fn cap(&self, ps: PowerState) -> Watts {
        let states = self.operational();
        let index = usize::from(ps).min(states.len().saturating_sub(1));
        states.get(index).map_or(Watts(0.0), |state| state.max_power)
    }
}

/// What a plant has. Fixed for a run; policies are made from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Core groups; [`crate::Signals::groups`] and [`crate::Controls::groups`] follow this order.
    pub groups: Vec<GroupSpec>,
    /// Frequencies a core can run at, ascending, never empty.
    pub frequencies: Vec<Hertz>,
    /// Drives; drive signals and controls follow this order.
    pub drives: Vec<DriveSpec>,
}

impl Topology {
    /// The lowest frequency.
    #[must_use]
    pub fn min_frequency(&self) -> Hertz {
        self.frequencies.first().copied().unwrap_or_default()
    }
    /// The highest frequency.
    #[must_use]
    pub fn max_frequency(&self) -> Hertz {
        self.frequencies.last().copied().unwrap_or_default()
    }
    /// The slowest available frequency that is at least `wanted`, else the highest.
    #[must_use]
    pub fn frequency_at_least(&self, wanted: Hertz) -> Hertz {
        self.frequencies.iter().copied().find(|f| *f >= wanted).unwrap_or(self.max_frequency())
    }
    /// The lowest sum of drive caps that the power states allow.
    #[must_use]
    pub fn lowest_drive_budget(&self) -> Watts {
        self.drives.iter().map(|d| d.cap(PowerState::MAX)).sum()
    }
}
