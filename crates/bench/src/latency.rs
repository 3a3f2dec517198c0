//! Latencies: recorded, merged exactly, told.

use anyhow::Result;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::text;

/// The longest latency told apart from longer ones, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// What is told of a distribution, by name.
pub const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// Latencies in nanoseconds: three significant digits, exact mean, least and most.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum: u128,
    least: u64,
    most: u64,
}

impl Latency {
    /// None recorded.
    ///
    /// # Errors
    /// None: the bounds are constants.
    pub fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3)?;
        Ok(Self { histogram, sum: 0, least: u64::MAX, most: 0 })
    }
    /// One more.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos);
        self.sum += u128::from(nanos);
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }
    /// Adds those of another.
    ///
    /// # Errors
    /// None: histograms of equal form always merge.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.histogram.add(&other.histogram)?;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        Ok(())
    }
    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
    /// Mean in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }
    /// The least and the most.
    pub fn range(&self) -> (u64, u64) {
        (self.least.min(self.most), self.most)
    }
    /// The latency that `percent` of all are at or below.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.most)
    }
    /// What is told of them; nothing of none.
    pub fn report(&self) -> Option<LatencyReport> {
        if self.count() == 0 {
            return None;
        }
        let [p50, p90, p99, p999, p9999] = PERCENTILES.map(|(_, percent)| self.percentile(percent));
        let (min, max) = self.range();
        let (mean, count) = (self.mean(), self.count());
        Some(LatencyReport { mean, min, p50, p90, p99, p999, p9999, max, count })
    }
}

/// A distribution in nanoseconds, as it stands in the JSON.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LatencyReport {
    /// Mean.
    #[schemars(range(min = 0))]
    pub mean: f64,
    /// Least.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90 % are at or below it.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    #[serde(rename = "p99.9")]
    pub p999: u64,
    /// 99.99 %.
    #[serde(rename = "p99.99")]
    pub p9999: u64,
    /// Most.
    pub max: u64,
    /// How many.
    pub count: u64,
}

impl LatencyReport {
    /// The cells of a table: mean, [`PERCENTILES`], max.
    pub fn cells(&self) -> impl Iterator<Item = String> + use<> {
        let Self { mean, p50, p90, p99, p999, p9999, max, .. } = *self;
        [mean, p50 as f64, p90 as f64, p99 as f64, p999 as f64, p9999 as f64, max as f64]
            .into_iter()
            .map(nanos)
    }
}

/// Nanoseconds for people.
pub fn nanos(value: f64) -> String {
    text::seconds(value * 1e-9)
}
