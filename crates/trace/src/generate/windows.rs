//! A load over time as windows, each with its part of all requests.

use crate::request::{LONGEST, LONGEST_SAID, TraceError};

/// A window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// Its length in nanoseconds.
    pub(super) length: f64,
    /// Share of all reads that came in it.
    pub(super) reads: f64,
    /// Share of all writes that came in it.
    pub(super) writes: f64,
}

/// Requests per second within so many seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) seconds: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
}

/// Rates as windows, with the part of all requests that each has.
pub(super) fn shares(
    rates: &[Rate],
    file: &str,
    workload: &str,
) -> Result<Vec<Window>, TraceError> {
    let format = |reason: String| TraceError::Format { file: file.to_owned(), reason };
    if rates.is_empty() {
        return Err(format(format!("holds no windows of workload '{workload}'")));
    }
    if rates.iter().map(|rate| rate.seconds).sum::<f64>() * 1e9 > LONGEST.0 as f64 {
        return Err(format(format!("the windows last longer than {LONGEST_SAID}")));
    }
    let all = |of: fn(&Rate) -> f64| rates.iter().map(|rate| of(rate) * rate.seconds).sum::<f64>();
    let (reads, writes) = (all(|rate| rate.reads), all(|rate| rate.writes));
    let part = |count: f64, all: f64| if all > 0.0 { count / all } else { 0.0 };
    let window = |rate: &Rate| Window {
        length: rate.seconds * 1e9,
        reads: part(rate.reads * rate.seconds, reads),
        writes: part(rate.writes * rate.seconds, writes),
    };
    Ok(rates.iter().map(window).collect())
}
