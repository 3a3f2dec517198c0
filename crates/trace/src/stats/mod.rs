//! What a trace is like, in one pass and bounded memory.

mod collect;
mod footprint;
pub(crate) mod sequence;
pub(crate) mod sizes;

use schemars::JsonSchema;
use serde::Serialize;

use crate::request::{Source, TraceError};

pub use collect::Stats;

/// Gaps of at least some length between one arrival and the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Gaps {
    /// The least length counted.
    pub at_least_seconds: f64,
    /// How many there are.
    pub count: u64,
    /// Their part of the whole span.
    pub share_of_time: f64,
}

/// Latencies recorded with the trace, in microseconds; quantiles to 3 digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Latency {
    /// Requests that have one.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Largest.
    pub max: f64,
}

/// A trace in numbers. Shares are between 0 and 1; rates are over the whole span and 0 where
/// there is none.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// All requests.
    pub requests: u64,
    /// From the first arrival to the last.
    pub seconds: f64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Reads among reads and writes.
    pub read_share: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Mean requests per second.
    pub iops: f64,
    /// Most requests in one second, counted from the first arrival.
    pub peak_iops: u64,
    /// Mean bytes read and written per second.
    pub bytes_per_second: f64,
    /// Mean size of a read or write in bytes.
    pub size_mean: f64,
    /// Median size in bytes.
    pub size_p50: u32,
    /// 95th percentile of the sizes in bytes.
    pub size_p95: u32,
    /// Largest size in bytes.
    pub size_max: u32,
    /// Size in bytes and share, most frequent first.
    pub top_sizes: Vec<(u32, f64)>,
    /// Reads and writes that start where one of the last 32 of their device ended.
    pub sequential_share: f64,
    /// Estimate of the bytes that are read or written at least once, in blocks of 4 KiB;
    /// standard error 0.8 % (HyperLogLog).
    pub footprint_bytes: u64,
    /// Whether the footprint was counted; otherwise it is an estimate.
    #[schemars(default)]
    pub footprint_is_exact: bool,
    /// The end of the farthest request.
    pub highest_byte: u64,
    /// Devices.
    pub devices: u32,
    /// Streams; 65,536 stands for any larger number.
    pub streams: u32,
    /// The longest time without an arrival.
    pub longest_gap_seconds: f64,
    /// Times without an arrival, by least length.
    pub gaps: Vec<Gaps>,
    /// Latencies recorded with the trace, microseconds.
    pub recorded_latency: Option<Latency>,
}

/// The summary of all that `source` still has.
///
/// # Errors
/// When `source` fails.
pub fn summarise(source: &mut dyn Source) -> Result<Summary, TraceError> {
    let mut stats = Stats::new();
    let mut batch = Vec::new();
    loop {
        batch.clear();
        source.fill(&mut batch)?;
        if batch.is_empty() {
            return Ok(stats.summary());
        }
        batch.iter().for_each(|request| stats.push(request));
    }
}
