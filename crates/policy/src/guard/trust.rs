//! Whether the signals can be believed. An absent value is honest and left to the policies; an
//! impossible one means that a sensor, a driver or the collector lies, and then nothing else it
//! says is used either.

use crate::IoSignals;
use crate::guard::Limits;
use crate::sense::plausible::{absurd_drive, absurd_group, absurd_surroundings, is_power};
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
    patience: Nanos,
    /// The clock when it last moved, and the length of the period then: what a period in which it
    /// stands still is taken to last.
    last: Option<Nanos>,
    period: Nanos,
    /// For how long time has not moved on.
    clock_stopped: Nanos,
    /// For how long the required I/O counters have been missing.
    io_missing: Nanos,
    signals: Latch,
    io: Latch,
}

impl Trust {
    pub fn new(limits: &Limits) -> Self {
        let latch = Latch { recovery: limits.recovery, fault: None, good: Nanos::ZERO };
        Self {
            patience: limits.patience,
            last: None,
            period: Nanos::ZERO,
            clock_stopped: Nanos::ZERO,
            io_missing: Nanos::ZERO,
            signals: latch.clone(),
            io: latch,
        }
    }

    /// One period: whether, and why, native must be in force in it.
    pub fn judge(&mut self, topology: &Topology, signals: &Signals) -> Distrust {
        let stopped = self.last.is_some_and(|last| signals.now <= last);
        if !stopped {
            (self.last, self.period) = (Some(signals.now), signals.period);
        }
        let dt = self.period;
        self.clock_stopped = lasting(self.clock_stopped, stopped, dt);
        let missing = io_missing(&signals.io);
        self.io_missing = lasting(self.io_missing, missing, dt);

        let late = stopped && self.clock_stopped >= self.patience;
        let late = late.then_some("guard:clock-stopped");
        let drives = self.signals.update(absurd(topology, signals).or(late), stopped, dt);
        let blind = missing && self.io_missing >= self.patience;
        let cores = drives.or(self.io.update(blind.then_some("guard:io-missing"), missing, dt));
        Distrust { cores, drives }
    }
}

/// For how long something has lasted, if `so` held for the last `dt` too.
pub fn lasting(before: Nanos, so: bool, dt: Nanos) -> Nanos {
    if so { before + dt } else { Nanos::ZERO }
}

/// Holds a fault until all has been good for long enough.
#[derive(Debug, Clone)]
struct Latch {
    recovery: Nanos,
    fault: Option<&'static str>,
    good: Nanos,
}

impl Latch {
    /// A period of `dt`; a `doubtful` one is neither a fault yet nor good. Returns the fault in
    /// force.
    fn update(
        &mut self,
        fault: Option<&'static str>,
        doubtful: bool,
        dt: Nanos,
    ) -> Option<&'static str> {
        let good = fault.is_none() && !doubtful;
        self.good = lasting(self.good, good, dt);
        if fault.is_some() {
            self.fault = fault;
        } else if good && self.good >= self.recovery {
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
