//! One period's view of the server as plain data. A missing sensor is `None`, never zero.

use crate::topology::{PowerState, Topology};
use crate::units::{Celsius, Hertz, Nanos, Watts};

/// What was sensed over the last period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Signals {
    /// End of the period, since the start of the run.
    pub now: Nanos,
    /// Length of the period.
    pub period: Nanos,
    /// Users' I/O.
    pub io: IoSignals,
    /// Core groups, in the order of [`Topology::groups`].
    pub groups: Vec<GroupSignals>,
    /// Drives, in the order of [`Topology::drives`].
    pub drives: Vec<DriveSignals>,
    /// Power by component.
    pub power: PowerSignals,
    /// Bytes of background work (flush, garbage collection, scrub) waiting to be done.
    pub background_pending: Option<u64>,
}

/// Users' I/O during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IoSignals {
    /// Requests that arrived.
    pub arrived: Option<u64>,
    /// Requests that completed.
    pub completed: Option<u64>,
    /// Bytes read and written by completed requests.
    pub bytes: Option<u64>,
    /// Mean latency of completed requests; `None` when none completed.
    pub mean_latency: Option<Nanos>,
    /// Largest latency of completed requests; `None` when none completed.
    pub max_latency: Option<Nanos>,
    /// Requests in the system at the end of the period.
    pub in_flight: Option<u64>,
}

/// One core group during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupSignals {
    /// Cores that take new work.
    pub active: u16,
    /// Share of time spent on useful work (not polling), mean over the active cores, 0 to 1.
    pub utilisation: Option<f64>,
    /// The same for the busiest core of the group.
    pub busiest: Option<f64>,
    /// Current frequency.
    pub frequency: Option<Hertz>,
}

/// One drive during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DriveSignals {
    /// Mean power.
    pub power: Option<Watts>,
    /// Power state in force, as the drive reports it.
    pub state: Option<PowerState>,
    /// Composite temperature.
    pub temperature: Option<Celsius>,
}

/// Mean power during one period, by component; `total` is what the wall supplies.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PowerSignals {
    /// The whole server at the wall.
    pub total: Option<Watts>,
    /// Processor packages.
    pub cpu: Option<Watts>,
    /// All drives.
    pub ssd: Option<Watts>,
}

impl Signals {
    /// Signals of the right shape for `topology`, with nothing sensed yet.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self {
            groups: vec![GroupSignals::default(); topology.groups.len()],
            drives: vec![DriveSignals::default(); topology.drives.len()],
            ..Self::default()
        }
    }
}
