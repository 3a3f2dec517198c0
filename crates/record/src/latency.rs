//! Latencies of a run, or of a part of its load.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// Latencies in microseconds; quantiles to 3 digits.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Latency {
    /// Exact arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl Latency {
    /// The quantiles of `histogram`, in nanoseconds, beside the exact mean.
    #[must_use]
    pub fn new(histogram: &Histogram<u64>, mean_nanos: f64) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let micros = |nanos: u64| Some(nanos as f64 * 1e-3);
        let quantile = |q: f64| micros(histogram.value_at_quantile(q));
        Self {
            mean: Some(mean_nanos * 1e-3),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: micros(histogram.max()),
        }
    }
}
