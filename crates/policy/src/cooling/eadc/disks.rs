//! Which periods have significant disk activity, and how much each job uses the disks.
//!
//! "We track the disk intensity of workloads by monitoring IO throughput per second via the OS"
//! (§VI-B). What is significant is not said. Ours: a tenth of the most that was seen, down to a
//! twentieth, so that one rate near the threshold does not switch the fans to and fro; and the
//! activity must have been gone for one sensor lag.

use crate::Signals;
use crate::cooling::{LAG, MIN_JOB_SHARE, weight};

/// Shares of the largest throughput at which disks become busy and idle.
const BUSY: f64 = 0.10;
const IDLE: f64 = 0.05;
/// Throughput below which nobody waits for a disk, in bytes per second: a few requests.
pub const NEGLIGIBLE: f64 = 1e6;
/// Time constants in seconds: of the server's throughput; of a job's, long against its phases.
const SMOOTH: f64 = 2.0;
const JOB: f64 = 30.0;

/// Disk activity of the server and its jobs.
#[derive(Debug, Clone)]
pub struct Disks {
    rate: f64,
    most: f64,
    quiet: f64,
    busy: bool,
    jobs: Vec<f64>,
}

impl Disks {
    /// For `jobs` slots.
    pub fn new(jobs: u16) -> Self {
        let jobs = vec![0.0; usize::from(jobs)];
        Self { rate: 0.0, most: 0.0, quiet: 0.0, busy: false, jobs }
    }

    /// Takes one period, in which the jobs might run for `shares` of the time.
    pub fn update(&mut self, signals: &Signals, shares: &[f64]) {
        let dt = signals.period.seconds();
        if dt <= 0.0 {
            return;
        }
        // Jobs' I/O may or may not be counted among the users': never add the two.
        let jobs: u64 = signals.jobs.iter().map(|job| job.disk_bytes).sum();
        let bytes = signals.io.bytes.unwrap_or(0).max(jobs) as f64;
        self.rate += (bytes / dt - self.rate) * weight(dt, SMOOTH);
        self.most = self.most.max(self.rate);
        let over = |share: f64| self.rate > (share * self.most).max(NEGLIGIBLE);
        if over(BUSY) {
            (self.busy, self.quiet) = (true, 0.0);
        } else if !over(IDLE) {
            self.quiet += dt;
            self.busy &= self.quiet < LAG.seconds();
        }
        for ((mean, job), share) in self.jobs.iter_mut().zip(&signals.jobs).zip(shares) {
            // What it would use if it were not throttled.
            let free = job.disk_bytes as f64 / dt / share.clamp(MIN_JOB_SHARE, 1.0);
            let now = if job.present { free } else { 0.0 };
            *mean = if job.present { *mean + (now - *mean) * weight(dt, JOB) } else { 0.0 };
        }
    }

    /// Whether fan vibration costs somebody something now.
    pub fn busy(&self) -> bool {
        self.busy
    }

    /// Bytes per second of the job in `slot` when it may run.
    pub fn of_job(&self, slot: usize) -> f64 {
        self.jobs.get(slot).copied().unwrap_or(0.0)
    }
}
