//! Which periods have significant disk activity, and how much each job uses the disks.
//!
//! "We track the disk intensity of workloads by monitoring IO throughput per second via the OS"
//! (§VI-B). What is significant is not said, and bytes do not tell: random reads, which vibration
//! harms the most, move few of them, and the more it harms the fewer. Ours is the time for which
//! disks have something to do, which grows with the harm: a tenth of one disk's time, down to a
//! twentieth, so that a load near the threshold does not switch the fans to and fro; and the
//! activity must have been gone for one sensor lag. Only disks that turn count: no fan shakes an
//! SSD.
//!
//! Where nobody counts that time: the same shares of the most bytes, or requests, per second in
//! the last minutes. These are sums over all drives, so that beside disks what SSDs do counts too:
//! jobs may be throttled for nothing, but no disk is shaken. Where all drives are SSDs nothing
//! counts.

use crate::Signals;
use crate::guard::MIN_JOB_SHARE;
use crate::sense::{LAG, weight};
use crate::topology::Topology;

/// Shares of one disk's time, or else of the largest rates, at which disks become busy and idle.
const BUSY: f64 = 0.10;
const IDLE: f64 = 0.05;
/// Throughput below which nobody waits for a disk, in bytes per second: a few requests.
pub const NEGLIGIBLE: f64 = 1e6;
/// The same in requests per second: a tenth of what one disk can do at random.
const FEW: f64 = 10.0;
/// Time constants in seconds: of the server's activity; of a job's throughput, long against its
/// phases; of the largest rates, long against pauses of one workload.
const SMOOTH: f64 = 2.0;
const JOB: f64 = 30.0;
const MEMORY: f64 = 300.0;

/// Something per second, and the most that it was.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    now: f64,
    most: f64,
}

impl Rate {
    fn update(&mut self, count: u64, dt: f64) {
        self.now += (count as f64 / dt - self.now) * weight(dt, SMOOTH);
        self.most = self.now.max(self.most * (-dt / MEMORY).exp());
    }

    fn over(&self, share: f64, negligible: f64) -> bool {
        self.now > (share * self.most).max(negligible)
    }
}

/// Disk activity of the server and its jobs.
#[derive(Debug, Clone)]
pub struct Disks {
    /// Which drives are disks.
    rotational: Vec<bool>,
    /// How many disks have something to do, smoothed; `None` when nobody counts.
    at_work: Option<f64>,
    bytes: Rate,
    requests: Rate,
    quiet: f64,
    busy: bool,
    jobs: Vec<f64>,
}

impl Disks {
    /// For the drives and job slots of `topology`.
    pub fn new(topology: &Topology) -> Self {
        let rotational = topology.drives.iter().map(|drive| drive.rotational).collect();
        let jobs = vec![0.0; usize::from(topology.jobs)];
        let (bytes, requests) = (Rate::default(), Rate::default());
        Self { rotational, at_work: None, bytes, requests, quiet: 0.0, busy: false, jobs }
    }

    /// Takes one period.
    pub fn update(&mut self, signals: &Signals) {
        let dt = signals.period.seconds();
        if dt <= 0.0 {
            return;
        }
        self.watch(signals, dt);
        if self.over(BUSY) {
            (self.busy, self.quiet) = (true, 0.0);
        } else if !self.over(IDLE) {
            self.quiet += dt;
            self.busy &= self.quiet < LAG.seconds();
        }
        for (slot, (mean, job)) in self.jobs.iter_mut().zip(&signals.jobs).enumerate() {
            // What it would use if it were not throttled.
            let share = signals.in_force.share(slot);
            let free = job.disk_bytes as f64 / dt / share.clamp(MIN_JOB_SHARE, 1.0);
            let now = if job.present { free } else { 0.0 };
            *mean = if job.present { *mean + (now - *mean) * weight(dt, JOB) } else { 0.0 };
        }
    }

    fn watch(&mut self, signals: &Signals, dt: f64) {
        let drives = signals.drives.iter().zip(&self.rotational);
        let disks = drives.filter_map(|(drive, rotational)| rotational.then_some(drive));
        let shares = disks.filter_map(|disk| disk.utilisation);
        // The share of a period may overshoot 1 by the jitter of its two ends.
        let shares = shares.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0));
        let at_work = shares.reduce(|sum, share| sum + share);
        self.at_work = at_work.map(|now| {
            let mean = self.at_work.unwrap_or(now);
            mean + (now - mean) * weight(dt, SMOOTH)
        });
        // Jobs' I/O may or may not be counted among the users': never add the two.
        let jobs = signals.jobs.iter().fold(0, |sum: u64, job| sum.saturating_add(job.disk_bytes));
        self.bytes.update(signals.io.bytes.unwrap_or(0).max(jobs), dt);
        self.requests.update(signals.io.completed.unwrap_or(0), dt);
    }

    fn over(&self, share: f64) -> bool {
        let ssds = !self.rotational.is_empty() && !self.rotational.contains(&true);
        let rates = || self.bytes.over(share, NEGLIGIBLE) || self.requests.over(share, FEW);
        self.at_work.map_or_else(|| !ssds && rates(), |disks| disks > share)
    }

    /// Whether fan vibration costs somebody something now.
    pub fn busy(&self) -> bool {
        self.busy
    }

    /// Whether disks are at work in this period.
    pub fn at_work(&self) -> bool {
        self.busy && self.quiet <= 0.0
    }

    /// Bytes per second of the job in `slot` when it may run.
    pub fn of_job(&self, slot: usize) -> f64 {
        self.jobs.get(slot).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PERIOD;
    use crate::topology::DriveSpec;

    const DISKS: usize = 8;

    /// For these drives: disks or not.
    fn drives(rotational: [bool; DISKS]) -> Disks {
        Disks::new(&topology(rotational))
    }

    fn topology(rotational: [bool; DISKS]) -> Topology {
        let drive = |rotational| DriveSpec { rotational, ..DriveSpec::default() };
        Topology { drives: rotational.map(drive).to_vec(), ..Topology::default() }
    }

    /// Runs for `seconds` with each disk at work for these shares of the time.
    fn run(disks: &mut Disks, seconds: u32, rates: (u64, u64), shares: Option<[f64; DISKS]>) {
        let mut signals = Signals::new(&topology([true; DISKS]));
        signals.period = PERIOD;
        // Per second to per period.
        let (bytes, requests) = rates;
        (signals.io.bytes, signals.io.completed) = (Some(bytes / 2), Some(requests / 2));
        for (drive, share) in signals.drives.iter_mut().zip(shares.iter().flatten()) {
            drive.utilisation = Some(*share);
        }
        for _ in 0..2 * seconds {
            disks.update(&signals);
        }
    }

    /// After a stream on all disks, whoever uses one of them keeps the server busy.
    #[test]
    fn one_disk_at_work_is_activity_whatever_there_was_before() {
        let one =
            |share: f64| Some(std::array::from_fn(|disk| if disk == 3 { share } else { 0.0 }));
        // Bytes and requests per second, the disk's time: a query, random reads, and the same with
        // most of the rate lost to vibration.
        for (rates, share) in
            [((100_000_000, 100), 0.7), ((400_000, 100), 1.0), ((40_000, 10), 1.0)]
        {
            for counted in [true, false] {
                if !counted && rates.1 < 100 {
                    continue;
                }
                let mut disks = drives([true; DISKS]);
                run(&mut disks, 600, (1_400_000_000, 1400), Some([1.0; DISKS]).filter(|_| counted));
                assert!(disks.busy());
                for _ in 0..60 {
                    run(&mut disks, 30, rates, one(share).filter(|_| counted));
                    assert!(disks.busy(), "{rates:?}, counted {counted}");
                }
                run(&mut disks, 25, (0, 0), Some([0.0; DISKS]).filter(|_| counted));
                assert!(!disks.busy(), "{rates:?}, counted {counted}");
            }
        }
    }

    #[test]
    fn a_request_now_and_then_is_no_activity() {
        for shares in [Some([0.005; DISKS]), None] {
            let mut disks = drives([true; DISKS]);
            run(&mut disks, 600, (40_000, 8), shares);
            assert!(!disks.busy());
        }
    }

    #[test]
    fn fans_shake_no_ssd() {
        let stream = (4_000_000_000, 100_000);
        let mut ssds = drives([false; DISKS]);
        for shares in [None, Some([1.0; DISKS])] {
            run(&mut ssds, 60, stream, shares);
            assert!(!ssds.busy());
        }
        // Four of either: the time of disks alone tells.
        let half = std::array::from_fn(|drive| drive >= 4);
        let share = |disk: f64| Some(half.map(|is_disk| if is_disk { disk } else { 1.0 }));
        let mut mixed = drives(half);
        run(&mut mixed, 60, stream, share(0.0));
        assert!(!mixed.busy());
        run(&mut mixed, 10, stream, share(0.1));
        assert!(mixed.busy());
        run(&mut mixed, 60, stream, share(0.0));
        assert!(!mixed.busy());
        // Nobody counts it, or knows the drives: all that is read and written may be theirs.
        let unknown = Disks::new(&Topology::default());
        for mut disks in [mixed, unknown] {
            run(&mut disks, 60, stream, None);
            assert!(disks.busy());
        }
    }
}
