//! Jobs and the mechanics of disks, in the numbers of a run.

use serde::Serialize;

use ebb_policy::QosClass;
use ebb_policy::units::Nanos;
use ebb_twin::{JobTotal, Outcome};

/// One job.
#[derive(Debug, Clone, Serialize)]
pub struct JobSummary {
    /// Its name.
    pub name: String,
    /// How much it matters.
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
}

impl JobSummary {
    fn new(job: &JobTotal, end: Nanos) -> Self {
        Self {
            name: job.name.clone(),
            class: job.class,
            admission_seconds: job.started.map(|started| (started - job.arrived).seconds()),
            delay_seconds: job.delay().map(Nanos::seconds),
            cpu_seconds: job.cpu.seconds(),
            disk_bytes: job.disk_bytes,
            disk_wait_seconds: job.disk_wait.seconds(),
            throttled_seconds: job.throttled.seconds(),
            objective_seconds: job.objective.map(Nanos::seconds),
            met: job.met(end),
        }
    }
}

/// All jobs of one class: how its promises were kept.
#[derive(Debug, Clone, Serialize)]
pub struct ClassSummary {
    /// The class.
    pub class: QosClass,
    /// Jobs of it.
    pub jobs: usize,
    /// Of these, done by the end of the run.
    pub ended: usize,
    /// Mean time from arrival to admission of those that were admitted; null when none was.
    pub mean_admission_seconds: Option<f64>,
    /// Mean delay of those that are done; null when none was.
    pub mean_delay_seconds: Option<f64>,
    /// Longest.
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

/// The jobs of a run.
pub fn jobs(outcome: &Outcome) -> Vec<JobSummary> {
    outcome.jobs.iter().map(|job| JobSummary::new(job, outcome.end)).collect()
}

/// What wore the mechanics of all hard disks together.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DiskSummary {
    /// Seeks to another cylinder.
    pub seeks: u64,
    /// Revolutions lost to vibration, but those of reading ahead.
    pub retries: u64,
    /// Time for which the heads were at work.
    pub busy_seconds: f64,
    /// Share of it that vibration cost; null where there was none.
    pub vibration_loss: Option<f64>,
    /// Loads of the heads onto the platters.
    pub head_loads: u64,
    /// Starts of the spindle.
    pub spin_ups: u64,
}

impl DiskSummary {
    /// That of a run; `None` without hard disks.
    pub fn new(outcome: &Outcome) -> Option<Self> {
        let wear = outcome.wear();
        let moved = wear.seeks + wear.retries + wear.loads + wear.spin_ups > 0;
        (moved || wear.busy > Nanos::ZERO).then(|| Self {
            seeks: wear.seeks,
            retries: wear.retries,
            busy_seconds: wear.busy.seconds(),
            vibration_loss: wear.loss(),
            head_loads: wear.loads,
            spin_ups: wear.spin_ups,
        })
    }
}
