//! Workloads as data: what a TOML file can say. `docs/workloads.md` explains each field.

use std::path::PathBuf;

use ebb_policy::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::batch::BatchSpec;
use super::target::DriveShare;
use super::text::{Blocks, Rate, Share};

/// A workload: either closed loops (`jobs`, `rocksdb`, `readers`, in any number) or open ones
/// (`arrivals`), not both; `batch` jobs beside them or alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name in reports.
    pub name: String,
    /// No request arrives at or after this time; without it only `rocksdb` ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Nanos>,
    /// Client threads in closed loops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobSpec>,
    /// RocksDB instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rocksdb: Vec<RocksdbSpec>,
    /// Training jobs that read their samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<ReaderSpec>,
    /// Requests that come by the clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<ArrivalSpec>,
    /// Jobs on cores that run jobs, beside whatever else there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch: Vec<BatchSpec>,
}

impl WorkloadSpec {
    /// No requests.
    pub(super) const fn empty() -> Self {
        Self {
            name: String::new(),
            duration: None,
            jobs: Vec::new(),
            rocksdb: Vec::new(),
            readers: Vec::new(),
            arrivals: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Closed loops.
    pub(super) fn of_jobs(name: &str, jobs: Vec<JobSpec>) -> Self {
        Self { name: name.to_owned(), jobs, ..Self::empty() }
    }
}

/// What requests look like and where they go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// Block sizes, equally often; a size listed twice comes twice as often.
    pub block: Blocks,
    /// Share of reads.
    pub read: Share,
    /// Share of random offsets; the others follow the thread's last request of their kind.
    #[serde(default = "whole")]
    pub random: Share,
    /// Exponent of a Zipf law over scattered blocks, for random offsets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zipf: Option<f64>,
    /// A hot region, for random offsets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot: Option<HotSpec>,
    /// Share of each device's capacity that is used, from its start.
    #[serde(default = "whole")]
    pub span: Share,
}

const fn whole() -> Share {
    Share(1.0)
}

/// Some accesses go to a small part of the space.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotSpec {
    /// Share of the random accesses.
    pub accesses: Share,
    /// Share of the space, from its start.
    pub space: Share,
}

/// Client threads, each sending its next request when its last one completed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Its name in reports.
    pub name: String,
    /// Whether nobody waits for it: to save watts it is slowed before all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
    /// Which devices.
    #[serde(default)]
    pub drives: DriveShare,
    /// Threads: in all, or on each drive.
    pub threads: u32,
    /// Every drive has its own threads (fio jobs on raw drives); otherwise threads use all drives.
    #[serde(default)]
    pub per_drive: bool,
    /// Requests each thread keeps outstanding.
    #[serde(default = "one")]
    pub depth: u32,
    /// What they send.
    pub access: AccessSpec,
    /// Rate limit over all threads, with exponential gaps.
    #[serde(default = "unlimited")]
    pub rate: Rate,
    /// Changes over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageSpec>,
    /// Times of idleness and numbers of active threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseSpec>,
}

const fn one() -> u32 {
    1
}

const fn unlimited() -> Rate {
    Rate::Max
}

/// From `start` on, another rate or block size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageSpec {
    /// When it begins.
    pub start: Nanos,
    /// The rate from then on.
    pub rate: Rate,
    /// The block sizes from then on; as before without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Blocks>,
}

/// Busy and idle times by turns, each of a seeded length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Mean length of a busy time.
    pub busy: Nanos,
    /// Mean length of an idle time; zero for none.
    pub idle: Nanos,
    /// Lengths are uniform within this share around their mean.
    #[serde(default = "half")]
    pub spread: Share,
    /// The number of active threads changes too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vary: Option<VarySpec>,
}

const fn half() -> Share {
    Share(0.5)
}

/// The number of active threads (of each drive, if they are per drive), drawn anew from time to
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VarySpec {
    /// Fewest.
    pub from: u32,
    /// Most; at most the threads there are.
    pub to: u32,
    /// Mean time between draws.
    pub every: Nanos,
}

/// Requests that come by the clock, whatever the server does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalSpec {
    /// Its name in reports.
    pub name: String,
    /// Whether nobody waits for it: to save watts it is slowed before all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
    /// Which devices.
    #[serde(default)]
    pub drives: DriveShare,
    /// Streams the requests are dealt to in turn; each has its own sequential position.
    #[serde(default = "sixty_four")]
    pub streams: u32,
    /// What they send.
    pub access: AccessSpec,
    /// Rate where the load shape is 1.
    pub rate: Rate,
    /// How the gaps are distributed.
    #[serde(default)]
    pub gaps: Gaps,
    /// How the rate changes over time.
    #[serde(default)]
    pub shape: ShapeSpec,
}

const fn sixty_four() -> u32 {
    64
}

/// Gaps between arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gaps {
    /// Exponential: a Poisson process.
    #[default]
    Exponential,
    /// All equal.
    Constant,
}

/// How the load changes over time; 1 is the rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ShapeSpec {
    /// It does not.
    #[default]
    Flat,
    /// Bursts at 1, `floor` between them.
    OnOff {
        /// Mean length of a burst.
        on: Nanos,
        /// Mean length of a pause.
        off: Nanos,
        /// Load during a pause.
        floor: Share,
        /// Lengths are uniform within this share around their mean.
        spread: Share,
    },
    /// Another load in each step, exponentially distributed around 1.
    Random {
        /// Length of a step.
        step: Nanos,
    },
    /// Low throughout a day with occasional peaks (PACER Fig. 3).
    Day {
        /// Length of the day.
        length: Nanos,
        /// Peaks in it.
        peaks: u32,
        /// Load at a peak.
        height: f64,
        /// Share of the day in peaks.
        share: Share,
    },
    /// A measured load shape: CSV with columns workload, window_end_us, read_share, write_share;
    /// mean 1 over its whole length. Its windows also set the share of reads, around `read`.
    File {
        /// The CSV, plain or gzip, relative to the workload's file.
        path: PathBuf,
        /// Which workload of it.
        workload: String,
        /// The length it is stretched or squeezed to; as measured without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<Nanos>,
    },
}

/// A RocksDB instance that inserts random keys, striped over its drives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RocksdbSpec {
    /// Its name in reports.
    pub name: String,
    /// Which devices.
    #[serde(default)]
    pub drives: DriveShare,
    /// Number of SST files that starts a compaction (PACMAN Table II).
    pub trigger: u32,
    /// Keys and values to insert, in bytes; the run ends when they are written and compacted.
    #[serde(default = "data")]
    pub data: Bytes,
    /// Bytes per second at which the inserting threads offer data when nothing holds them up.
    #[serde(default = "offer")]
    pub offer: Bytes,
    /// Size of the memtable and so of an SST file.
    #[serde(default = "memtable")]
    pub memtable: Bytes,
    /// Bytes of the next level that each byte of the triggering SST files is merged with.
    #[serde(default = "unity")]
    pub merge: f64,
    /// Size of a write to the log.
    #[serde(default = "log_block")]
    pub log_block: Bytes,
    /// Size of a flush or compaction request, and of a stripe unit.
    #[serde(default = "block")]
    pub block: Bytes,
    /// Requests outstanding at most.
    #[serde(default = "thirty_two")]
    pub depth: u32,
}

impl RocksdbSpec {
    /// An instance with the defaults that the file form has.
    #[must_use]
    pub fn new(name: &str, trigger: u32) -> Self {
        Self {
            name: name.to_owned(),
            drives: DriveShare::ALL,
            trigger,
            data: data(),
            offer: offer(),
            memtable: memtable(),
            merge: unity(),
            log_block: log_block(),
            block: block(),
            depth: thirty_two(),
        }
    }
}

/// 300 GB (PACMAN §VI-C).
const fn data() -> Bytes {
    Bytes(300_000_000_000)
}
const fn offer() -> Bytes {
    Bytes(600_000_000)
}
/// RocksDB's default `write_buffer_size`.
const fn memtable() -> Bytes {
    Bytes(64 << 20)
}
const fn unity() -> f64 {
    1.0
}
const fn log_block() -> Bytes {
    Bytes(256 << 10)
}
/// RocksDB's default `writable_file_max_buffer_size`.
const fn block() -> Bytes {
    Bytes(1 << 20)
}
const fn thirty_two() -> u32 {
    32
}

/// Accelerators that read batches of samples and compute on them (MLPerf Storage).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReaderSpec {
    /// Its name in reports.
    pub name: String,
    /// Which devices.
    #[serde(default)]
    pub drives: DriveShare,
    /// Accelerators.
    pub accelerators: u32,
    /// Reading threads of each accelerator, each loading whole batches in turn.
    #[serde(default = "one")]
    pub workers: u32,
    /// Samples in a batch.
    pub batch: u32,
    /// Time an accelerator computes on a batch.
    pub compute: Nanos,
    /// Mean size of a stored sample.
    pub sample: Bytes,
    /// Standard deviation of the sample size; only for files of one sample.
    #[serde(default = "none")]
    pub deviation: Bytes,
    /// Samples in a file, read in order.
    #[serde(default = "one")]
    pub samples_per_file: u32,
    /// Files in the data set, dealt to the drives in turn.
    pub files: u32,
    /// Size of a read.
    pub transfer: Bytes,
}

const fn none() -> Bytes {
    Bytes(0)
}
