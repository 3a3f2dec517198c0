//! One period's view of the server as plain data. A missing sensor is `None`, never zero.

use serde::{Deserialize, Serialize};

use super::class::QosClass;
use super::in_force::InForce;
use super::source::Sources;
use super::topology::{PowerState, Topology};
use super::units::{Celsius, Hertz, Nanos, Rpm, Watts};

/// What was sensed over the last period. As data it lacks what was in force and the sources, which
/// have forms of their own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Signals {
    /// End of the period, since the start of the run.
    pub now: Nanos,
    /// Length of the period.
    pub period: Nanos,
    /// Users' I/O.
    pub io: IoSignals,
    /// What of it nobody waits for.
    #[serde(default)]
    pub best_effort: BestEffortSignals,
    /// Core groups, in the order of [`Topology::groups`].
    pub groups: Vec<GroupSignals>,
    /// Drives, in the order of [`Topology::drives`].
    pub drives: Vec<DriveSignals>,
    /// Power by component.
    pub power: PowerSignals,
    /// Most that the whole server may draw, as the operator states it; the cycle's.
    pub server_budget: Option<Watts>,
    /// Bytes of background work (flush, garbage collection, scrub) waiting to be done.
    pub background_pending: Option<u64>,
    /// What tasks waited for.
    pub pressure: PressureSignals,
    /// Temperatures and fans.
    pub cooling: CoolingSignals,
    /// Jobs, one per slot of [`Topology::jobs`].
    pub jobs: Vec<JobSignals>,
    /// What was in force during the period, by the guard's last word.
    #[serde(skip)]
    pub in_force: InForce,
    /// Where each value comes from.
    #[serde(skip)]
    pub sources: Sources,
}

/// Users' I/O during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
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
    /// Percentiles of the latency of completed requests; `None` where nobody counts each request.
    pub percentiles: Option<Percentiles>,
    /// Requests in the system at the end of the period.
    pub in_flight: Option<u64>,
    /// The reads among them.
    pub reads: OpSignals,
    /// The writes among them.
    pub writes: OpSignals,
}

/// I/O that nobody waits for during one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BestEffortSignals {
    /// Requests that completed.
    pub requests: Option<u64>,
    /// Bytes of those.
    pub bytes: Option<u64>,
}

/// Users' reads, or writes, during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct OpSignals {
    /// That completed.
    pub completed: Option<u64>,
    /// Bytes of those.
    pub bytes: Option<u64>,
    /// Their mean latency; `None` when none completed.
    pub mean_latency: Option<Nanos>,
    /// Percentiles of their latency; `None` when none completed, or nobody counts each.
    pub percentiles: Option<Percentiles>,
}

/// Percentiles of a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: Nanos,
    /// The 99th.
    pub p99: Nanos,
    /// The 99.9th.
    pub p999: Nanos,
}

/// One core group during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupSignals {
    /// Cores that take new work.
    pub active: Option<u16>,
    /// Share of time spent on useful work (not polling), mean over the active cores, 0 to 1.
    pub utilisation: Option<f64>,
    /// The same for the busiest core of the group.
    pub busiest: Option<f64>,
    /// Times a second that a core left an idle state, mean over the active cores.
    pub wakes: Option<f64>,
    /// Current frequency.
    pub frequency: Option<Hertz>,
}

/// One drive during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DriveSignals {
    /// Mean power.
    pub power: Option<Watts>,
    /// Power state in force, as the drive reports it.
    pub state: Option<PowerState>,
    /// Composite temperature.
    pub temperature: Option<Celsius>,
    /// Share of the period in which it had a command to serve, 0 to 1 (`io_ticks` of Linux's
    /// `/proc/diskstats`).
    pub utilisation: Option<f64>,
    /// Time that all of its commands took in the period, added up: as many as it had to serve at a
    /// time on average, times the period.
    pub time: Option<Nanos>,
    /// Bytes read from it, by whomever.
    pub read_bytes: Option<u64>,
    /// Bytes written to it, by whomever.
    pub written_bytes: Option<u64>,
    /// Whether a hard disk has been stopped.
    pub standby: Option<bool>,
}

/// Shares of the period in which at least one task waited, 0 to 1 (pressure stall information,
/// `some`: `Documentation/accounting/psi.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PressureSignals {
    /// For a CPU.
    pub cpu: Option<f64>,
    /// For I/O.
    pub io: Option<f64>,
    /// For memory.
    pub memory: Option<f64>,
}

/// What a temperature sensor said.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Reading {
    /// When it was read, since the start of the run.
    pub at: Nanos,
    /// What it said; a sensor may lag behind by seconds and rounds (EADC §VI-C).
    pub temperature: Celsius,
}

/// Temperatures and fans.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CoolingSignals {
    /// Air at the inlet: `T_amb`.
    pub inlet: Option<Reading>,
    /// Hottest sensor of each socket: `T_cpu`; `None` where it was lost.
    pub sockets: Vec<Option<Reading>>,
    /// Fans, in the order of [`Topology::fans`].
    pub fans: Vec<FanSignals>,
}

/// One fan at the end of the period.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FanSignals {
    /// PWM duty in force, 0 to 1.
    pub duty: Option<f64>,
    /// Speed by the tachometer.
    pub speed: Option<Rpm>,
}

/// One slot for a job during one period.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct JobSignals {
    /// Whether the slot has a job; nothing else means anything where it has none.
    pub present: bool,
    /// Its class.
    pub class: QosClass,
    /// The socket that it runs on.
    pub socket: u16,
    /// Share of the period for which it kept a core busy, 0 to 1.
    pub cpu: f64,
    /// Bytes that it read from and wrote to drives.
    pub disk_bytes: u64,
    /// Not admitted yet.
    pub waiting: bool,
    /// Time since it arrived.
    pub age: Nanos,
    /// Time from arrival to end that it was promised, where the host knows of a promise.
    pub objective: Option<Nanos>,
}

/// Mean power during one period, by component; `total` is what the wall supplies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PowerSignals {
    /// The whole server at the wall.
    pub total: Option<Watts>,
    /// Processor packages.
    pub cpu: Option<Watts>,
    /// All drives.
    pub ssd: Option<Watts>,
    /// All fans.
    pub fans: Option<Watts>,
}

impl Signals {
    /// Signals of the right shape for `topology`, with nothing sensed yet.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self {
            groups: vec![GroupSignals::default(); topology.groups.len()],
            drives: vec![DriveSignals::default(); topology.drives.len()],
            cooling: CoolingSignals {
                inlet: None,
                sockets: vec![None; usize::from(topology.sockets)],
                fans: vec![FanSignals::default(); topology.fans.len()],
            },
            jobs: vec![JobSignals::default(); usize::from(topology.jobs)],
            in_force: InForce::new(topology),
            sources: Sources::new(topology),
            ..Self::default()
        }
    }
}
