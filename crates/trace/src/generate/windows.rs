//! A load over time as windows, each with its part of all requests.

use std::io::BufRead;

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

/// Hands on the lines of a report, and names the one that is refused.
pub(super) fn each_line(
    from: impl BufRead,
    file: &str,
    mut take: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), TraceError> {
    for (index, line) in from.lines().enumerate() {
        let line = line.map_err(|source| TraceError::Io { file: file.to_owned(), source })?;
        take(&line).map_err(|reason| TraceError::Malformed {
            file: file.to_owned(),
            line: index as u64 + 1,
            reason,
        })?;
    }
    Ok(())
}

/// A number of a report, perhaps with a comma.
pub(super) fn number(word: &str) -> Result<f64, String> {
    let good = word.replace(',', ".").parse().ok();
    let good = good.filter(|value: &f64| value.is_finite() && *value >= 0.0);
    good.ok_or_else(|| format!("'{word}' is not a number of zero or more"))
}

/// Reads and writes of sar's requests, divided as the data read and written is.
pub(super) fn divided(requests: f64, read: f64, written: f64) -> (f64, f64) {
    let share = if read + written > 0.0 { read / (read + written) } else { 0.0 };
    (requests * share, requests * (1.0 - share))
}
