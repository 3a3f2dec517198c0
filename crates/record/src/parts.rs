//! What only some plants tell of a run: heat, faults, parts of the load, jobs, disks, trace files.

use schemars::JsonSchema;
use serde::Serialize;

use ebb_policy::QosClass;

use crate::latency::Latency;

/// What became of one file while it was read.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FileReport {
    /// Path as given.
    pub file: String,
    /// Format, named or detected.
    pub format: String,
    /// Malformed records passed over (--lenient).
    pub malformed: u64,
    /// The first of them: line or record, and what was wrong.
    pub reasons: Vec<(u64, String)>,
    /// Well-formed records that are not requests.
    pub ignored: u64,
    /// How the requests came about, where that is not plain: units taken, events left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What the thermal side of a run came to.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct ThermalSummary {
    /// Hottest die at the end of any control period.
    pub hottest_socket_celsius: f64,
    /// Hottest die, mean over time.
    pub mean_socket_celsius: f64,
    /// Hottest drive at the end of any control period.
    pub hottest_drive_celsius: f64,
    /// Leakage, part of energy_joules.cpu.
    #[schemars(range(min = 0))]
    pub leakage_joules: f64,
    /// Duty of the fans, mean over fans and time.
    #[schemars(range(min = 0, max = 1))]
    pub mean_fan_duty: f64,
    /// Relative amplitude of vibration, mean over time.
    #[schemars(range(min = 0))]
    pub mean_vibration: f64,
    /// Socket time slowed down by the hardware's emergency throttling, all sockets together.
    #[schemars(range(min = 0))]
    pub socket_throttled_seconds: f64,
    /// Drive time slowed down by heat, all drives together.
    #[schemars(range(min = 0))]
    pub drive_throttled_seconds: f64,
}

/// How a server switched itself off for heat.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct TripLine {
    /// When, since the start of the run (warm-up included).
    #[schemars(range(min = 0))]
    pub at_s: f64,
    /// Whose die was too hot.
    pub socket: u16,
    /// How hot it was.
    pub celsius: f64,
}

/// One injected fault.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct FaultLine {
    /// When it began.
    pub from_s: f64,
    /// When it ends; may lie after the end of the run.
    pub until_s: f64,
    /// What failed: `fan3`, `socket0`, `drive5`, `inlet`, `jobs`.
    pub of: String,
    /// How: `fault:fan-stalled`.
    pub reason: &'static str,
    /// In words.
    pub what: String,
}

/// One job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct JobSummary {
    /// Its name.
    pub name: String,
    /// How much it matters.
    #[schemars(with = "String", extend("enum" = QosClass::ALL.map(|class| class.name())))]
    pub class: QosClass,
    /// From arrival to admission; null if it never was admitted.
    pub admission_seconds: Option<f64>,
    /// From arrival to end; null if the run ended before.
    pub delay_seconds: Option<f64>,
    /// Time for which it kept a core busy.
    pub cpu_seconds: f64,
    /// Bytes read from and written to drives.
    pub disk_bytes: u64,
    /// Time for which it did nothing but wait for drives.
    pub disk_wait_seconds: f64,
    /// Time lost to shares below 1 and frequencies below the highest.
    pub throttled_seconds: f64,
    /// Time from arrival to end that was promised; null without a promise.
    pub objective_seconds: Option<f64>,
    /// Whether the promise was kept; null without one or when the run ended too early to tell.
    pub met: Option<bool>,
    /// What the whole server drew by the end of it; null if the run ended before.
    pub energy_joules: Option<f64>,
}

/// A part of a workload that has several.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PartSummary {
    /// Its name.
    pub name: String,
    /// Its requests; absent for the I/O of batch jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Bytes that it read and wrote.
    pub bytes: u64,
    /// Their latency; absent like `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Its drives; absent where parts share drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<u16>,
    /// Their energy; absent like drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drive_joules: Option<f64>,
}

/// All jobs of one class: how its promises were kept.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct ClassSummary {
    /// The class.
    #[schemars(with = "String", extend("enum" = QosClass::ALL.map(|class| class.name())))]
    pub class: QosClass,
    /// Jobs of it.
    pub jobs: usize,
    /// Of these, done by the end of the run.
    pub ended: usize,
    /// Mean time from arrival to admission of those that were admitted; null when none was.
    pub mean_admission_seconds: Option<f64>,
    /// Mean delay of those that are done; null when none was.
    pub mean_delay_seconds: Option<f64>,
    /// Longest delay.
    pub max_delay_seconds: Option<f64>,
    /// Sum of the waits for drives.
    pub disk_wait_seconds: f64,
    /// Sum of the time lost to throttling.
    pub throttled_seconds: f64,
    /// Jobs whose promise was kept.
    pub met: usize,
    /// Jobs whose promise was broken.
    pub missed: usize,
}

impl ClassSummary {
    /// One for each class that has jobs, the one that matters most first.
    #[must_use]
    pub fn of(jobs: &[JobSummary]) -> Vec<Self> {
        let classes = QosClass::ALL.into_iter();
        classes.filter_map(|class| Self::new(class, jobs)).collect()
    }

    fn new(class: QosClass, jobs: &[JobSummary]) -> Option<Self> {
        let jobs: Vec<&JobSummary> = jobs.iter().filter(|job| job.class == class).collect();
        let delays: Vec<f64> = jobs.iter().filter_map(|job| job.delay_seconds).collect();
        let admitted: Vec<f64> = jobs.iter().filter_map(|job| job.admission_seconds).collect();
        let mean = |of: &[f64]| (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64);
        let met = |kept| jobs.iter().filter(|job| job.met == Some(kept)).count();
        (!jobs.is_empty()).then(|| Self {
            class,
            jobs: jobs.len(),
            ended: delays.len(),
            mean_admission_seconds: mean(&admitted),
            mean_delay_seconds: mean(&delays),
            max_delay_seconds: delays.iter().copied().reduce(f64::max),
            disk_wait_seconds: jobs.iter().map(|job| job.disk_wait_seconds).sum(),
            throttled_seconds: jobs.iter().map(|job| job.throttled_seconds).sum(),
            met: met(true),
            missed: met(false),
        })
    }
}

/// What wore the mechanics of all hard disks together.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct DiskSummary {
    /// Seeks to another cylinder.
    pub seeks: u64,
    /// Revolutions lost to vibration, but those of reading ahead.
    pub retries: u64,
    /// Time for which the heads sought, waited for the platter, transferred or read ahead, all
    /// disks together.
    #[schemars(default)]
    pub busy_seconds: f64,
    /// Share of busy_seconds that vibration cost; null where there were none.
    #[schemars(default, range(max = 1))]
    pub vibration_loss: Option<f64>,
    /// Loads of the heads onto the platters.
    pub head_loads: u64,
    /// Starts of the spindle.
    pub spin_ups: u64,
}
