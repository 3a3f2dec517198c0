//! Whether the signals can be believed. An absent value is honest and left to the policies; an
//! impossible one means that a sensor, a driver or the collector lies, and then nothing else it
//! says is used either.

use crate::guard::Limits;
use crate::possible::{absurd_drive, absurd_group, absurd_surroundings, is_power};
use crate::signals::IoSignals;
use crate::topology::Topology;
use crate::units::Nanos;
use crate::{PowerSignals, Signals};

/// Why a policy is not followed at present, by what is taken out of its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distrust {
    /// Cores, frequency and background work: what I/O counters steer.
    pub cores: Option<&'static str>,
    /// Drive caps. They are steered by the drives' own power (PACMAN §V-A), so that missing I/O
    /// counters do not concern them: a management controller has none.
    pub drives: Option<&'static str>,
}

/// Watches the signals over time.
#[derive(Debug, Clone)]
pub struct Trust {
    patience: u32,
    last: Option<Nanos>,
    /// Periods in a row in which time did not move on.
    clock_stopped: u32,
    /// Periods in a row without the required I/O counters.
    io_missing: u32,
    signals: Latch,
    io: Latch,
}

impl Trust {
    pub fn new(limits: &Limits) -> Self {
        let latch = Latch { recovery: limits.recovery_periods, fault: None, good: 0 };
        Self {
            patience: limits.patience_periods.max(1),
            last: None,
            clock_stopped: 0,
            io_missing: 0,
            signals: latch.clone(),
            io: latch,
        }
    }

    /// One period: whether, and why, native must be in force in it.
    pub fn judge(&mut self, topology: &Topology, signals: &Signals) -> Distrust {
        let stopped = self.last.is_some_and(|last| signals.now <= last);
        self.last = Some(signals.now);
        self.clock_stopped = in_a_row(self.clock_stopped, stopped);
        let missing = io_missing(&signals.io);
        self.io_missing = in_a_row(self.io_missing, missing);

        let late = (self.clock_stopped >= self.patience).then_some("guard:clock-stopped");
        let drives = self.signals.update(absurd(topology, signals).or(late), stopped);
        let blind = (self.io_missing >= self.patience).then_some("guard:io-missing");
        let cores = drives.or(self.io.update(blind, missing));
        Distrust { cores, drives }
    }
}

/// Periods in a row in which `so` held.
pub fn in_a_row(before: u32, so: bool) -> u32 {
    if so { before.saturating_add(1) } else { 0 }
}

/// Holds a fault until enough good periods have followed it.
#[derive(Debug, Clone)]
struct Latch {
    recovery: u32,
    fault: Option<&'static str>,
    good: u32,
}

impl Latch {
    /// One period; a `doubtful` one is neither a fault yet nor good. Returns the fault in force.
    fn update(&mut self, fault: Option<&'static str>, doubtful: bool) -> Option<&'static str> {
        self.good = in_a_row(self.good, fault.is_none() && !doubtful);
        if fault.is_some() {
            self.fault = fault;
        } else if self.good >= self.recovery.max(1) {
            self.fault = None;
        }
        self.fault
    }
}

/// Latency-steered policies cannot judge a loss without these (PACER §IV-B and C).
fn io_missing(io: &IoSignals) -> bool {
    let IoSignals { arrived, completed, mean_latency, .. } = io;
    arrived.is_none() || completed.is_none_or(|n| n > 0 && mean_latency.is_none())
}

/// The first impossible value, as a reason.
fn absurd(topology: &Topology, signals: &Signals) -> Option<&'static str> {
    if signals.groups.len() != topology.groups.len()
        || signals.drives.len() != topology.drives.len()
        || signals.cooling.sockets.len() != usize::from(topology.sockets)
        || signals.cooling.fans.len() != topology.fans.len()
        || signals.jobs.len() != usize::from(topology.jobs)
    {
        return Some("guard:wrong-shape");
    }
    let PowerSignals { total, cpu, ssd, fans } = signals.power;
    if [total, cpu, ssd, fans].iter().flatten().any(|power| !is_power(*power)) {
        return Some("guard:absurd-power");
    }
    let highest = topology.max_frequency();
    let mut groups = signals.groups.iter().zip(&topology.groups);
    let mut drives = signals.drives.iter().zip(&topology.drives);
    groups
        .find_map(|(group, spec)| absurd_group(group, spec, highest))
        .or_else(|| drives.find_map(|(drive, spec)| absurd_drive(drive, spec)))
        .or_else(|| absurd_surroundings(signals))
}
