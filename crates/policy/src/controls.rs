//! What a policy asks for, with a reason for each change.

use crate::signals::QosClass;
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

/// Who sets a fan's speed, and to what.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum FanControl {
    /// The board's own control.
    #[default]
    Firmware,
    /// This PWM duty, 0 to 1.
    Duty(f64),
}

impl FanControl {
    /// The duty, if it is set by us.
    #[must_use]
    pub fn duty(self) -> Option<f64> {
        match self {
            Self::Firmware => None,
            Self::Duty(duty) => Some(duty),
        }
    }
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
    /// PWM duty of the fan with this index, 0 to 1; -1 is the board's own control.
    FanDuty(u16),
    /// Frequency ceiling of the socket with this index, in hertz.
    FrequencyCap(u16),
    /// Share of the time for which the job in this slot may run, 0 to 1.
    JobShare(u16),
    /// Socket for the job in this slot; -1 leaves it to the plant's own scheduler.
    JobSocket(u16),
    /// Whether waiting jobs of this class may start: 0 no, 1 yes.
    Admit(QosClass),
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
    fans: Vec<FanControl>,
    frequency_caps: Vec<Hertz>,
    job_shares: Vec<f64>,
    job_sockets: Vec<Option<u16>>,
    admit: [bool; 4],
    now: Nanos,
    decisions: Vec<Decision>,
}

impl Controls {
    /// *Native*: every core on at the highest frequency, drives in state 0, background normal,
    /// fans with the board, jobs admitted and run as the plant's own scheduler likes.
    #[must_use]
    pub fn native(topology: &Topology) -> Self {
        let frequency = topology.max_frequency();
        let groups: Vec<_> = topology
            .groups
            .iter()
            .map(|group| GroupControl { active: group.cores, frequency })
            .collect();
        let drives = vec![0; topology.drives.len()];
        let (fans, sockets) = (topology.fans.len(), usize::from(topology.sockets));
        let jobs = usize::from(topology.jobs);
        // A policy and the guard may each change every control once per period.
        let cooling = fans + sockets + 2 * jobs + QosClass::ALL.len();
        let capacity = 2 * (2 * groups.len() + drives.len() + 1 + cooling);
        Self {
            groups,
            drives,
            background: BackgroundMode::Normal,
            fans: vec![FanControl::Firmware; fans],
            frequency_caps: vec![frequency; sockets],
            job_shares: vec![1.0; jobs],
            job_sockets: vec![None; jobs],
            admit: [true; 4],
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
    /// Fans, in topology order.
    #[must_use]
    pub fn fans(&self) -> &[FanControl] {
        &self.fans
    }
    /// Frequency ceiling over a group whose cores are on `socket`; the lowest of all sockets where
    /// they are on no one socket.
    #[must_use]
    pub fn ceiling(&self, socket: Option<u16>) -> Hertz {
        let caps = self.frequency_caps.iter().enumerate();
        let over = caps.filter(|(at, _)| socket.is_none_or(|socket| usize::from(socket) == *at));
        over.map(|(_, cap)| *cap).fold(Hertz(f64::INFINITY), Hertz::min)
    }
    /// Frequency ceiling of each socket: its cores run at the lower of this and what their group
    /// asks for, so that whoever sets the one need not know the other.
    #[must_use]
    pub fn frequency_caps(&self) -> &[Hertz] {
        &self.frequency_caps
    }
    /// Share of the time for which the job in each slot may run, 0 to 1; the plant enforces it in
    /// slices of 10 ms (EADC §VI-B).
    #[must_use]
    pub fn job_shares(&self) -> &[f64] {
        &self.job_shares
    }
    /// Socket for the job in each slot; `None` leaves it to the plant's own scheduler.
    #[must_use]
    pub fn job_sockets(&self) -> &[Option<u16>] {
        &self.job_sockets
    }
    /// Whether waiting jobs of `class` may start.
    #[must_use]
    pub fn admits(&self, class: QosClass) -> bool {
        self.admit[class as usize]
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

    /// Asks for `fan` to be run so.
    pub fn set_fan(&mut self, fan: usize, control: FanControl, reason: &'static str) {
        let from = std::mem::replace(&mut self.fans[fan], control);
        let value = |control: FanControl| control.duty().unwrap_or(-1.0);
        self.note(ControlName::FanDuty(fan as u16), value(from), value(control), reason);
    }
    /// Asks for the frequencies of `socket` to stay at or below `ceiling`.
    pub fn set_frequency_cap(&mut self, socket: usize, ceiling: Hertz, reason: &'static str) {
        let from = std::mem::replace(&mut self.frequency_caps[socket], ceiling);
        self.note(ControlName::FrequencyCap(socket as u16), from.0, ceiling.0, reason);
    }
    /// Asks for the job in slot `job` to run for `share` of the time.
    pub fn set_job_share(&mut self, job: usize, share: f64, reason: &'static str) {
        let from = std::mem::replace(&mut self.job_shares[job], share);
        self.note(ControlName::JobShare(job as u16), from, share, reason);
    }
    /// Asks for the job in slot `job` to run on `socket`.
    pub fn set_job_socket(&mut self, job: usize, socket: Option<u16>, reason: &'static str) {
        let from = std::mem::replace(&mut self.job_sockets[job], socket);
        let value = |socket: Option<u16>| socket.map_or(-1.0, f64::from);
        self.note(ControlName::JobSocket(job as u16), value(from), value(socket), reason);
    }
    /// Asks for waiting jobs of `class` to be let in, or kept waiting.
    pub fn set_admit(&mut self, class: QosClass, admit: bool, reason: &'static str) {
        let from = std::mem::replace(&mut self.admit[class as usize], admit);
        self.note(ControlName::Admit(class), f64::from(from), f64::from(admit), reason);
    }

    /// Logs a change; dropped past the capacity, since a policy must not allocate.
    fn note(&mut self, control: ControlName, from: f64, to: f64, reason: &'static str) {
        if from != to && self.decisions.len() < self.decisions.capacity() {
            self.decisions.push(Decision { at: self.now, control, from, to, reason });
        }
    }
}
