//! What a sampled run says beside its numbers: how much was simulated, and how sure they are.

use schemars::JsonSchema;
use serde::Serialize;

/// The share of samples whose interval holds what the whole run would have told.
pub const LEVEL: f64 = 0.9;

/// Least and greatest value of an interval.
pub type Interval = [f64; 2];

/// What was simulated of a load.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Sampled {
    /// Share of the load's requests that was asked for, leads included.
    #[schemars(range(min = 0))]
    pub share_asked: f64,
    /// The same as simulated.
    #[schemars(range(min = 0))]
    pub share: f64,
    /// Windows of the load.
    #[schemars(range(min = 1))]
    pub windows: u64,
    /// Of these, windows that were simulated and counted.
    #[schemars(range(min = 1))]
    pub drawn: u64,
    /// Strata that they were drawn from.
    #[schemars(range(min = 1))]
    pub strata: u64,
    /// Length of a window.
    #[schemars(range(min = 0))]
    pub window_seconds: f64,
    /// Time before each that is simulated but not counted.
    #[schemars(range(min = 0))]
    pub lead_seconds: f64,
    /// Time simulated, leads included.
    #[schemars(range(min = 0))]
    pub simulated_seconds: f64,
    /// Level of every interval.
    #[schemars(range(min = 0))]
    pub level: f64,
    /// Requests per second in the busiest 5 s that were simulated.
    #[schemars(range(min = 0))]
    pub highest_iops: f64,
    /// In the busiest 5 s that were not; null where all were.
    pub highest_iops_not_simulated: Option<f64>,
}

/// Intervals of a run's numbers.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct RunInterval {
    /// Of the mean power.
    pub mean_watts: Interval,
    /// Of the mean latency; null without requests, as the following.
    pub latency_mean_us: Option<Interval>,
    /// Of its 99th percentile.
    pub latency_p99_us: Option<Interval>,
    /// Of its 99.9th percentile.
    pub latency_p99_9_us: Option<Interval>,
    /// Of the share of windows of 5 s above the limit; null where none was judged.
    pub sla_windows_above: Option<Interval>,
}

/// Intervals of what a policy saves and costs against the first.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Difference {
    /// Of the watts that are saved.
    pub saved_watts: Interval,
    /// The same over a year; null where the runs do not show it.
    pub saved_kwh_per_year: Option<Interval>,
    /// Of the change of the mean latency.
    pub latency_mean_change: Option<Interval>,
}
