//! What a policy asks for, with a reason for each change.

use crate::topology::{PowerState, Topology};
use crate::units::{Hertz, Nanos};

/// How background work (flushing, garbage collection, scrubbing) may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundMode {
    /// At the plant's own modest rate, beside users' I/O.
    #[default]
    Normal,
    /// At full speed, to finish and let the server rest (PACER §IV-D).
    Race,
}

/// What is asked of one core group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupControl {
    /// Cores that take new work; the others finish theirs and park.
    pub active: u16,
    /// Frequency of the active cores.
    pub frequency: Hertz,
}

/// A control, as named in decision logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlName {
    /// Active cores of the group with this index.
    ActiveCores(u16),
    /// Frequency of the group with this index, in hertz.
    Frequency(u16),
    /// Power state of the drive with this index.
    PowerState(u16),
    /// Background work: 0 normal, 1 race.
    Background,
}

/// One change of one control: the answer to "why did it do that?".
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// When, since the start of the run.
    pub at: Nanos,
    /// What changed.
    pub control: ControlName,
    /// Value before (unit by [`ControlName`]).
    pub from: f64,
    /// Value after.
    pub to: f64,
    /// Machine-readable reason, `policy:why`, such as `pacer:burst-utilisation`.
    pub reason: &'static str,
}

/// What is in force, and what a policy wants instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Controls {
    groups: Vec<GroupControl>,
    drives: Vec<PowerState>,
    background: BackgroundMode,
    now: Nanos,
    decisions: Vec<Decision>,
}

impl Controls {
    /// *Native*: every core on at the highest frequency, drives in state 0, background normal.
    #[must_use]
    pub fn native(topology: &Topology) -> Self {
        let frequency = topology.max_frequency();
        let groups: Vec<_> = topology
            .groups
            .iter()
            .map(|group| GroupControl { active: group.cores, frequency })
            .collect();
        let drives = vec![0; topology.drives.len()];
        // A policy and the guard may each change every control once per period.
        let capacity = 2 * (2 * groups.len() + drives.len() + 1);
        Self {
            groups,
            drives,
            background: BackgroundMode::Normal,
            now: Nanos::ZERO,
            decisions: Vec::with_capacity(capacity),
        }
    }

    /// Starts a period: forgets the last one's decisions.
    pub fn begin(&mut self, now: Nanos) {
        self.now = now;
        self.decisions.clear();
    }

    /// Core groups, in topology order.
    #[must_use]
    pub fn groups(&self) -> &[GroupControl] {
        &self.groups
    }
    /// Power states of the drives, in topology order.
    #[must_use]
    pub fn drives(&self) -> &[PowerState] {
        &self.drives
    }
    /// How background work may run.
    #[must_use]
    pub fn background(&self) -> BackgroundMode {
        self.background
    }
    /// What changed in this period, and why.
    #[must_use]
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Asks for `active` cores in `group`.
    pub fn set_active(&mut self, group: usize, active: u16, reason: &'static str) {
        let from = std::mem::replace(&mut self.groups[group].active, active);
        self.note(ControlName::ActiveCores(group as u16), from.into(), active.into(), reason);
    }
    /// Asks for `frequency` in `group`.
    pub fn set_frequency(&mut self, group: usize, frequency: Hertz, reason: &'static str) {
        let from = std::mem::replace(&mut self.groups[group].frequency, frequency);
        self.note(ControlName::Frequency(group as u16), from.0, frequency.0, reason);
    }
    /// Asks for power state `ps` of `drive`.
    pub fn set_power_state(&mut self, drive: usize, ps: PowerState, reason: &'static str) {
        let from = std::mem::replace(&mut self.drives[drive], ps);
        self.note(ControlName::PowerState(drive as u16), from.into(), ps.into(), reason);
    }
    /// Asks for a background mode.
    pub fn set_background(&mut self, mode: BackgroundMode, reason: &'static str) {
        let from = std::mem::replace(&mut self.background, mode);
        self.note(ControlName::Background, f64::from(from as u8), f64::from(mode as u8), reason);
    }

    /// Logs a change; dropped past the capacity, since a policy must not allocate.
    fn note(&mut self, control: ControlName, from: f64, to: f64, reason: &'static str) {
        if from != to && self.decisions.len() < self.decisions.capacity() {
            self.decisions.push(Decision { at: self.now, control, from, to, reason });
        }
    }
}
