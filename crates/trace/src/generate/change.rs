//! Options that change a workload: rates, sizes, shares, without writing a file.

use ebb_policy::units::{Bytes, Nanos};

use super::error::{GenerateError, Place};
use super::spec::{AccessSpec, JobSpec, WorkloadSpec};
use super::target::DriveShare;
use super::text::{Blocks, Rate, Share};

/// Values from the command line that replace a workload's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// Rate of every part that has one; replaces stages.
    pub rate: Option<Rate>,
    /// Share of reads.
    pub read: Option<Share>,
    /// Share of random offsets.
    pub random: Option<Share>,
    /// Block size.
    pub block: Option<Bytes>,
    /// Threads, in all or per drive as the workload has them.
    pub threads: Option<u32>,
    /// Requests outstanding per thread (or per RocksDB instance).
    pub depth: Option<u32>,
    /// Devices of the only part.
    pub drives: Option<DriveShare>,
    /// Bytes to insert, of RocksDB.
    pub data: Option<Bytes>,
    /// How long requests come.
    pub duration: Option<Nanos>,
}

/// Threads that measure what a server can do at most under an open workload's requests: as many
/// as PACER's clients have (§V).
const SATURATING_THREADS: u32 = 900;

impl WorkloadSpec {
    /// The workload with some values replaced.
    ///
    /// # Errors
    /// When an option has no meaning for any part of this workload.
    pub fn with(mut self, overrides: &Overrides) -> Result<Self, GenerateError> {
        let name = self.name.clone();
        let place = Place { workload: &name, part: "" };
        let need = |good: bool, field: &str, who: &str| {
            place.need(good, field, &format!("has no meaning here: only {who} have it"))
        };
        let accesses = !self.jobs.is_empty() || !self.arrivals.is_empty();
        if let Some(rate) = overrides.rate {
            need(accesses, "rate", "jobs and arrivals")?;
            self.set_rate(rate);
        }
        let shapes = overrides.read.is_some() || overrides.random.is_some();
        if shapes || overrides.block.is_some() {
            need(accesses, "read, random or block", "jobs and arrivals")?;
            self.for_each_access(|access| {
                access.read = overrides.read.unwrap_or(access.read);
                access.random = overrides.random.unwrap_or(access.random);
                access.block =
                    overrides.block.map_or(access.block.clone(), |size| Blocks(vec![size]));
            });
        }
        if let Some(threads) = overrides.threads {
            need(!self.jobs.is_empty(), "threads", "jobs")?;
            self.jobs.iter_mut().for_each(|job| job.set_threads(threads));
        }
        if let Some(depth) = overrides.depth {
            let any = !self.jobs.is_empty() || !self.rocksdb.is_empty();
            need(any, "depth", "jobs and rocksdb")?;
            self.jobs.iter_mut().for_each(|job| job.depth = depth);
            self.rocksdb.iter_mut().for_each(|instance| instance.depth = depth);
        }
        if let Some(data) = overrides.data {
            need(!self.rocksdb.is_empty(), "data", "rocksdb")?;
            self.rocksdb.iter_mut().for_each(|instance| instance.data = data);
        }
        if let Some(drives) = overrides.drives {
            let single = self.parts(1).len() == 1;
            place.need(single, "drives", "the workload has several parts, each with its own")?;
            self.set_drives(drives);
        }
        self.duration = overrides.duration.or(self.duration);
        Ok(self)
    }

    /// The workload at so many requests per second; several parts keep their proportions, taken
    /// from their rates, or else from their threads. Training and RocksDB have no rate.
    #[must_use]
    pub fn with_rate(mut self, iops: f64) -> Self {
        let weights = self.weights();
        let all: f64 = weights.iter().sum();
        let mut shares = weights.into_iter().map(|weight| Rate::Iops(iops * weight / all));
        let mut set = |rate: &mut Rate| *rate = shares.next().unwrap_or(*rate);
        for job in &mut self.jobs {
            job.stages.clear();
            set(&mut job.rate);
        }
        self.arrivals.iter_mut().for_each(|part| set(&mut part.rate));
        self
    }

    fn weights(&self) -> Vec<f64> {
        let jobs = self.jobs.iter().map(|job| (job.rate, f64::from(job.threads)));
        let arrivals = self.arrivals.iter().map(|part| (part.rate, f64::from(part.streams)));
        let rates: Vec<_> = jobs.chain(arrivals).collect();
        let same = |wanted: fn(Rate) -> Option<f64>| {
            rates.iter().map(|part| wanted(part.0)).collect::<Option<Vec<f64>>>()
        };
        same(|rate| if let Rate::Iops(iops) = rate { Some(iops) } else { None })
            .or_else(|| same(|rate| if let Rate::Pressure(p) = rate { Some(p) } else { None }))
            .unwrap_or_else(|| rates.iter().map(|part| part.1).collect())
    }

    /// The workload as fast as the server gets it done: the run that measures the maximum of
    /// PACER's I/O pressure (§III-A3). Arrivals by the clock become 900 threads; idle phases go.
    #[must_use]
    pub fn saturating(mut self) -> Self {
        self.set_rate(Rate::Max);
        self.jobs.iter_mut().for_each(|job| job.phases = None);
        let arrivals = std::mem::take(&mut self.arrivals);
        self.jobs.extend(arrivals.into_iter().map(|part| JobSpec {
            name: part.name,
            best_effort: part.best_effort,
            drives: part.drives,
            threads: SATURATING_THREADS,
            per_drive: false,
            depth: 1,
            access: part.access,
            rate: Rate::Max,
            stages: Vec::new(),
            phases: None,
        }));
        self
    }

    /// Whether a rate is a pressure, which needs the server's maximum.
    #[must_use]
    pub fn needs_maximum(&self) -> bool {
        let mut needs = false;
        self.clone().for_each_rate(|rate| needs |= matches!(rate, Rate::Pressure(_)));
        needs
    }

    /// Whether some requests wait for the answer to the one before, so that a slower server gets
    /// fewer.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let mut closed = !self.rocksdb.is_empty() || !self.readers.is_empty();
        self.clone().for_each_rate(|rate| closed |= matches!(rate, Rate::Max));
        closed
    }

    /// The workload with its pressures as shares of this maximum, measured by a
    /// [`saturating`](Self::saturating) run, in requests per second.
    #[must_use]
    pub fn with_maximum(mut self, iops: f64) -> Self {
        self.for_each_rate(|rate| {
            if let Rate::Pressure(share) = *rate {
                *rate = Rate::Iops(share * iops);
            }
        });
        self
    }

    fn set_rate(&mut self, rate: Rate) {
        self.jobs.iter_mut().for_each(|job| job.stages.clear());
        self.for_each_rate(|old| *old = rate);
    }

    fn for_each_rate(&mut self, mut change: impl FnMut(&mut Rate)) {
        for job in &mut self.jobs {
            change(&mut job.rate);
            job.stages.iter_mut().for_each(|stage| change(&mut stage.rate));
        }
        self.arrivals.iter_mut().for_each(|part| change(&mut part.rate));
    }

    fn for_each_access(&mut self, mut change: impl FnMut(&mut AccessSpec)) {
        self.jobs.iter_mut().for_each(|job| change(&mut job.access));
        self.arrivals.iter_mut().for_each(|part| change(&mut part.access));
    }

    fn set_drives(&mut self, drives: DriveShare) {
        self.jobs.iter_mut().for_each(|part| part.drives = drives);
        self.rocksdb.iter_mut().for_each(|part| part.drives = drives);
        self.readers.iter_mut().for_each(|part| part.drives = drives);
        self.arrivals.iter_mut().for_each(|part| part.drives = drives);
    }
}

impl JobSpec {
    /// A changing number of threads changes within the new one.
    fn set_threads(&mut self, threads: u32) {
        self.threads = threads;
        if let Some(vary) = self.phases.as_mut().and_then(|phases| phases.vary.as_mut()) {
            vary.to = vary.to.min(threads);
            vary.from = vary.from.min(vary.to);
        }
    }
}
