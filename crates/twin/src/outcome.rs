//! What a run reports: samples while it goes, one outcome at its end.

use hdrhistogram::Histogram;

use ebb_policy::units::{Joules, Nanos, Watts};
use ebb_policy::{Controls, Decision, Signals};

/// Energy by component; they always add up to [`Energy::total`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Energy {
    /// Processor packages.
    pub cpu: Joules,
    /// Drives.
    pub ssd: Joules,
    /// Memory.
    pub memory: Joules,
    /// Network adapters.
    pub nic: Joules,
    /// Fans.
    pub fans: Joules,
    /// The rest of the board.
    pub other: Joules,
    /// Lost in the power supplies.
    pub psu_loss: Joules,
}

impl Energy {
    /// Names and values, in the order of reports.
    #[must_use]
    pub fn components(&self) -> [(&'static str, Joules); 7] {
        [
            ("cpu", self.cpu),
            ("ssd", self.ssd),
            ("memory", self.memory),
            ("nic", self.nic),
            ("fans", self.fans),
            ("other", self.other),
            ("psu_loss", self.psu_loss),
        ]
    }
    /// What the wall supplied.
    #[must_use]
    pub fn total(&self) -> Joules {
        self.components().iter().map(|(_, joules)| *joules).sum()
    }
}

/// One control period, as seen after the controls were set.
#[derive(Debug)]
pub struct Sample<'a> {
    /// What the policy saw: the period's latency, utilisation and power.
    pub signals: &'a Signals,
    /// What is in force from now on, with the period's decisions.
    pub controls: &'a Controls,
    /// Energy of this period.
    pub energy: Energy,
    /// Length of this period; the last one of a run may be short.
    pub length: Nanos,
}

/// Watches a run.
pub trait Observer {
    /// After each control period.
    fn sample(&mut self, _sample: &Sample<'_>) {}
    /// Each change of a control, with its reason.
    fn decision(&mut self, _decision: &Decision) {}
}

/// Watches nothing.
#[derive(Debug, Default)]
pub struct Unobserved;
impl Observer for Unobserved {}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Requests completed.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Bytes read and written by users.
    pub bytes: u64,
    /// Time simulated, from the start (after warm-up) to the last completion or the end asked for.
    pub span: Nanos,
    /// Energy by component.
    pub energy: Energy,
    /// Largest mean power of any one control period.
    pub peak: Watts,
    /// Latency from arrival to completion, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Sum of latencies, for an exact mean.
    pub latency_sum: u128,
    /// Time during which the drives' measured power was over the SSD budget.
    pub over_budget: Nanos,
    /// Core time by what cores did.
    pub cores: CoreTime,
    /// Drive by drive.
    pub drives: Vec<DriveTotal>,
    /// Background bytes done.
    pub background_done: u64,
    /// Background bytes left over.
    pub background_pending: u64,
    /// Largest sum of the drives' power caps at any instant; a state change under way counts
    /// with the larger of its two caps.
    pub most_capped: Watts,
}

impl Energy {
    /// Adds another period's energy.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.ssd += other.ssd;
        self.memory += other.memory;
        self.nic += other.nic;
        self.fans += other.fans;
        self.other += other.other;
        self.psu_loss += other.psu_loss;
    }
}

/// What one drive came to. Users' requests are counted where each device is one drive.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DriveTotal {
    /// Users' requests completed.
    pub requests: u64,
    /// Users' bytes read and written.
    pub bytes: u64,
    /// Energy.
    pub energy: Joules,
}

/// Core-seconds by state, all cores together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreTime {
    /// Working.
    pub busy: Nanos,
    /// Polling without work.
    pub polling: Nanos,
    /// In an idle state.
    pub idle: Nanos,
    /// Parked.
    pub parked: Nanos,
}

impl CoreTime {
    /// Adds another period's core time.
    pub(crate) fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.polling += other.polling;
        self.idle += other.idle;
        self.parked += other.parked;
    }
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn empty(latency: Histogram<u64>, drives: usize) -> Self {
        Self {
            requests: 0,
            reads: 0,
            bytes: 0,
            span: Nanos::ZERO,
            energy: Energy::default(),
            peak: Watts(0.0),
            latency,
            latency_sum: 0,
            over_budget: Nanos::ZERO,
            cores: CoreTime::default(),
            drives: vec![DriveTotal::default(); drives],
            background_done: 0,
            background_pending: 0,
            most_capped: Watts(0.0),
        }
    }
    /// Exact mean latency in nanoseconds; 0 without requests.
    #[must_use]
    pub fn mean_latency(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.latency_sum as f64 / self.requests as f64 }
    }
    /// Mean power over the run.
    #[must_use]
    pub fn mean_power(&self) -> Watts {
        self.energy.total() / self.span
    }
    /// Requests per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.requests as f64 / self.span.seconds()
    }
}
