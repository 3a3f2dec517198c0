//! A load over time as windows, each with its part of all requests.

use std::collections::BTreeSet;
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

/// What a file comes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loads {
    pub(super) windows: Vec<Window>,
    /// What is not plain about them.
    pub(super) notes: Vec<String>,
}

/// Requests per second within so many seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) seconds: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
}

/// The workloads of a file that are not asked for; some of them, where it has many.
#[derive(Debug, Clone, Default)]
pub(super) struct Others(BTreeSet<String>);

impl Others {
    const MOST: usize = 8;

    pub(super) fn see(&mut self, name: &str) {
        // One more shows that there are more.
        if self.0.len() <= Self::MOST && !self.0.contains(name) {
            self.0.insert(name.chars().take(40).collect());
        }
    }

    /// Why a file says nothing of `workload`.
    pub(super) fn without(&self, workload: &str) -> String {
        let mut names: Vec<_> = self.0.iter().map(|name| format!("'{name}'")).collect();
        if names.len() > Self::MOST {
            names[Self::MOST] = "others".to_owned();
        }
        let has = match names.is_empty() {
            true => String::new(),
            false => format!("; it has those of {}", names.join(", ")),
        };
        format!("holds no windows of workload '{workload}'{has}")
    }
}

/// No device has so many requests in a second.
const MOST: f64 = 1e9;

/// Rates as windows, with the part of all requests that each has.
pub(super) fn shares(
    rates: &[Rate],
    file: &str,
    workload: &str,
    others: &Others,
) -> Result<Vec<Window>, TraceError> {
    let format = |reason: String| TraceError::Format { file: file.to_owned(), reason };
    if rates.is_empty() {
        return Err(format(others.without(workload)));
    }
    if rates.iter().map(|rate| rate.seconds).sum::<f64>() * 1e9 > LONGEST.0 as f64 {
        return Err(format(format!("the windows last longer than {LONGEST_SAID}")));
    }
    let most = rates.iter().map(|rate| rate.reads.max(rate.writes)).fold(0.0, f64::max);
    if most > MOST {
        return Err(format(format!(
            "'{workload}' has a window of {most:e} requests a second, as iostat and sar print \
             where a counter went back: delete that report"
        )));
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

/// Lets a reader take the lines of a report, and names the one that is refused. A last one that
/// has no end and is refused was cut off: it is left out, and said.
pub(super) fn each_line<R: Clone>(
    mut from: impl BufRead,
    file: &str,
    reader: &mut R,
    take: impl Fn(&mut R, &str) -> Result<(), String>,
) -> Result<Vec<String>, TraceError> {
    let io = |source| TraceError::Io { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    for number in 1_u64.. {
        bytes.clear();
        if from.read_until(b'\n', &mut bytes).map_err(io)? == 0 {
            break;
        }
        let ended = bytes.ends_with(b"\n");
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        if ended {
            take(reader, line).map_err(|reason| TraceError::Malformed {
                file: file.to_owned(),
                line: number,
                reason,
            })?;
            continue;
        }
        let before = reader.clone();
        if let Err(reason) = take(reader, line) {
            *reader = before;
            return Ok(vec![format!("line {number}, the last, is cut off and left out: {reason}")]);
        }
    }
    Ok(Vec::new())
}

/// Refuses a row that has not as many columns as its heading.
pub(super) fn complete(there: usize, wanted: usize) -> Result<(), String> {
    match there == wanted {
        true => Ok(()),
        false => Err(format!(
            "{there} columns, not the {wanted} of the heading: delete the line if it is broken"
        )),
    }
}

/// A number of a report, perhaps with a comma.
pub(super) fn number(word: &str) -> Result<f64, String> {
    let good = word.replace(',', ".").parse().ok();
    let good = good.filter(|value: &f64| value.is_finite() && *value >= 0.0);
    let plain = match word.strip_suffix(char::is_alphabetic).map(str::parse::<f64>) {
        Some(Ok(_)) => ": have it printed without -h, --human and --pretty",
        _ => "",
    };
    good.ok_or_else(|| format!("'{word}' is not a number of zero or more{plain}"))
}

/// Reads and writes of sar's requests, divided as the data read and written is.
pub(super) fn divided(requests: f64, read: f64, written: f64) -> (f64, f64) {
    let share = if read + written > 0.0 { read / (read + written) } else { 0.0 };
    (requests * share, requests * (1.0 - share))
}
