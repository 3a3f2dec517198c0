//! The numbers of the page.

use std::collections::BTreeMap;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::series::{ALL_SHOWN, Digits, Series, rows_per_bucket};
use crate::sim::decisions::told;
use crate::sim::plan::Plan;
use crate::sim::record::{Columns, Log};
use crate::sim::run::RunResult;
use crate::sim::spool::Spool;
use crate::sim::summary::Summary;

/// Cells of a drives-by-time map.
const CELLS: usize = 40_000;
/// Shortest last period that is shown, seconds.
const SHORTEST: f64 = 0.1;
/// Latency classes of one power of ten.
const PER_DECADE: f64 = 100.0;

/// Everything the page shows.
#[derive(Serialize)]
pub struct Data<'a> {
    version: &'static str,
    /// The command line, quoted for a shell.
    command: String,
    /// When the page was made, seconds since 1970.
    made_unix_s: u64,
    profile_summary: &'a str,
    summary: &'a Summary,
    groups: Vec<String>,
    /// Cores of each group.
    cores: Vec<u16>,
    drives: usize,
    /// Power cap of each operational state, watts.
    caps: Vec<f64>,
    warmup_s: f64,
    all_shown: u64,
    runs: Vec<RunData>,
}

#[derive(Serialize)]
struct RunData {
    policy: String,
    rows: u64,
    rows_per_point: u64,
    /// Ends of the points' times, seconds.
    time: Vec<Digits>,
    series: BTreeMap<String, Series>,
    map: Map,
    latency: Classes,
    decisions: Decisions,
}

/// Drives by time.
#[derive(Default, Serialize)]
struct Map {
    rows_per_point: u64,
    time: Vec<Digits>,
    /// By drive: deepest state in force within each point.
    states: Vec<Vec<Option<u8>>>,
    /// By drive: mean power.
    watts: Vec<Vec<Digits>>,
    /// Rows in the current point.
    #[serde(skip)]
    filled: u64,
}

/// Latencies in classes of equal width on a logarithmic axis.
#[derive(Serialize)]
struct Classes {
    /// Upper ends, microseconds.
    upper: Vec<Digits>,
    count: Vec<u64>,
}

#[derive(Serialize)]
struct Decisions {
    count: u64,
    reasons: Vec<(&'static str, u64)>,
    /// Time, control, what of, from, to, index of the reason; the first and the last.
    shown: Vec<(Digits, &'static str, String, Digits, Digits, usize)>,
}

impl<'a> Data<'a> {
    /// Gathers the numbers of all runs.
    pub fn new(plan: &'a Plan, summary: &'a Summary, results: &mut [RunResult]) -> Result<Self> {
        let topology = &plan.server.topology;
        let columns = Columns::new(topology);
        let mut runs = Vec::with_capacity(results.len());
        for result in results {
            runs.push(RunData::new(&columns, result)?);
        }
        let states = topology.drives.first().map(|drive| drive.operational()).unwrap_or_default();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            command: command(),
            made_unix_s: made(),
            profile_summary: &plan.server.profile.summary,
            summary,
            cores: topology.groups.iter().map(|group| group.cores).collect(),
            drives: topology.drives.len(),
            caps: states.iter().map(|state| state.max_power.0).collect(),
            warmup_s: plan.warmup.seconds(),
            all_shown: ALL_SHOWN,
            groups: columns.groups,
            runs,
        })
    }
}

/// The command line as a shell takes it.
fn command() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:=%@".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let given = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("ebb".to_owned()).chain(given.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// Now, or what reproducible builds say in its place.
fn made() -> u64 {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()))
}

impl RunData {
    fn new(columns: &Columns, result: &mut RunResult) -> Result<Self> {
        let decisions = Decisions::new(&result.policy, &columns.groups, &result.log);
        let mut data = Self {
            policy: result.policy.clone(),
            rows: 0,
            rows_per_point: 1,
            time: Vec::new(),
            series: BTreeMap::new(),
            map: Map::default(),
            latency: Classes::new(&result.outcome.latency),
            decisions,
        };
        if let Some(rows) = &mut result.rows {
            data.rows = rows.rows();
            data.read(columns, rows)?;
        }
        Ok(data)
    }

    /// Takes the rows, bucket by bucket.
    fn read(&mut self, columns: &Columns, rows: &mut Spool) -> Result<()> {
        self.rows_per_point = rows_per_bucket(self.rows);
        self.map = Map::new(columns.drives, self.rows);
        // Drives have their map; the first two columns are the time.
        let shown = 2..columns.drive(0);
        let mut series: Vec<Series> = shown.clone().map(|_| Series::default()).collect();
        let (mean, completed) = (Columns::fixed("latency_mean_us"), Columns::fixed("completed"));
        let (mut number, mut filled, mut end) = (0, 0, 0.0);
        rows.each(|row| {
            number += 1;
            let is_last = number == self.rows;
            // What is left after the last whole period is too short for a rate.
            if !is_last || number == 1 || row[1] >= SHORTEST {
                for (series, column) in series.iter_mut().zip(shown.clone()) {
                    let weight = if column == mean { row[completed] } else { row[1] };
                    series.push(row[column], weight);
                }
                self.map.push(columns, row);
                (filled, end) = (filled + 1, row[0]);
            }
            if filled == self.rows_per_point || (is_last && filled > 0) {
                self.time.push(Digits(end));
                series.iter_mut().for_each(|series| series.close(self.rows_per_point > 1));
                filled = 0;
            }
            Ok(())
        })?;
        self.map.close();
        let names = columns.names[shown].iter().cloned();
        self.series = names.zip(series).collect();
        Ok(())
    }
}

impl Map {
    fn new(drives: usize, rows: u64) -> Self {
        let points = (CELLS / drives.max(1)).clamp(100, 1000) as u64;
        Self {
            rows_per_point: rows.div_ceil(points).max(1),
            time: Vec::new(),
            states: vec![Vec::new(); drives],
            watts: vec![Vec::new(); drives],
            filled: 0,
        }
    }

    /// Takes a row: a state counts if it is the deepest of its point, power by its mean.
    fn push(&mut self, columns: &Columns, row: &[f64]) {
        if self.filled == self.rows_per_point {
            self.close();
        }
        let first = self.filled == 0;
        self.filled += 1;
        if first {
            self.time.push(Digits(row[0]));
        }
        for drive in 0..self.states.len() {
            let column = columns.drive(drive);
            let (state, watts) = (row[column], row[column + 1]);
            let state = (!state.is_nan()).then_some(state as u8);
            if first {
                self.states[drive].push(state);
                self.watts[drive].push(Digits(watts));
            } else if let (Some(deepest), Some(sum)) =
                (self.states[drive].last_mut(), self.watts[drive].last_mut())
            {
                *deepest = state.max(*deepest);
                sum.0 += watts;
            }
        }
    }

    /// Ends the point: sums become means.
    fn close(&mut self) {
        let rows = std::mem::take(&mut self.filled).max(1) as f64;
        for sum in self.watts.iter_mut().filter_map(|watts| watts.last_mut()) {
            sum.0 /= rows;
        }
    }
}

impl Classes {
    fn new(latency: &Histogram<u64>) -> Self {
        let mut classes: BTreeMap<i32, u64> = BTreeMap::new();
        for value in latency.iter_recorded() {
            let micros = value.value_iterated_to() as f64 * 1e-3;
            let class = (micros.log10() * PER_DECADE).ceil() as i32;
            *classes.entry(class).or_default() += value.count_at_value();
        }
        let upper = |class: &i32| Digits(10_f64.powf(f64::from(*class) / PER_DECADE));
        Self { upper: classes.keys().map(upper).collect(), count: classes.into_values().collect() }
    }
}

impl Decisions {
    fn new(policy: &str, groups: &[String], log: &Log) -> Self {
        let reasons: Vec<_> = log.reasons.iter().map(|(reason, count)| (*reason, *count)).collect();
        let shown = log.first.iter().chain(&log.last).map(|decision| {
            let line = told(policy, groups, decision);
            let found = reasons.binary_search_by(|(reason, _)| (*reason).cmp(decision.reason));
            let reason = found.unwrap_or_default();
            let of = line.of.unwrap_or_default();
            // What is no number is null.
            let number = |value: Option<f64>| Digits(value.unwrap_or(f64::NAN));
            let (from, to) = (number(line.from), number(line.to));
            (Digits(line.time_s), line.control, of, from, to, reason)
        });
        Self { count: log.count, shown: shown.collect(), reasons }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_classes_count_every_request_once() {
        let mut latency = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for nanos in [500, 90_000, 90_001, 1_000_000, 250_000_000] {
            latency.record(nanos).unwrap();
        }
        let classes = Classes::new(&latency);
        assert_eq!(classes.count.iter().sum::<u64>(), 5);
        assert!(classes.upper.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let width = 10_f64.powf(1.0 / PER_DECADE) * 1.001;
        assert!(classes.upper[1].0 >= 90.0 && classes.upper[1].0 <= 90.1 * width);
    }

    #[test]
    fn maps_are_bounded_for_any_server_and_length() {
        for (drives, rows) in [(1, 10), (16, 1_000_000), (1024, 2000), (24, 1000)] {
            let map = Map::new(drives, rows);
            let points = rows.div_ceil(map.rows_per_point) as usize;
            assert!(points <= 1000 && points * drives <= CELLS.max(100 * drives));
        }
    }
}
