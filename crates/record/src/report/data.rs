//! The numbers of the page.

use std::collections::BTreeMap;
use std::io;

use ebb_policy::{Aggregation, Domain, Names, Topology};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::About;
use super::series::{ALL_SHOWN, Digits, Series, rows_per_bucket};
use crate::column::{Column, Columns, END, PERIOD, combine};
use crate::log::Log;
use crate::recorder::Recorded;
use crate::spool::Spool;
use crate::summary::Summary;
use crate::verdict::ABOVE;

/// Cells of a drives-by-time map.
const CELLS: usize = 40_000;
/// Shortest last period that is shown, seconds.
const SHORTEST: f64 = 0.1;
/// Latency classes of one power of ten.
const PER_DECADE: f64 = 100.0;

/// Everything the page shows.
#[derive(Serialize)]
pub struct Data<'a> {
    #[serde(flatten)]
    about: &'a About,
    summary: &'a Summary,
    /// Share of the windows that may be above the limit.
    above: f64,
    groups: &'a [String],
    /// Cores of each group.
    cores: Vec<u16>,
    drives: usize,
    /// Power cap of each operational state, watts.
    caps: Vec<f64>,
    all_shown: u64,
    runs: Vec<RunData>,
}

#[derive(Serialize)]
struct RunData {
    policy: String,
    rows: u64,
    rows_per_point: u64,
    /// Length of the first control period.
    period_s: f64,
    /// Ends of the points' times, seconds.
    time: Vec<Digits>,
    series: BTreeMap<String, Series>,
    map: Map,
    /// Absent where the plant does not tell each request.
    latency: Option<Classes>,
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
    /// The first and the last.
    shown: Vec<Decided>,
}

/// Time, control, what of, from, to, index of the reason, what the plant made of it.
#[derive(Serialize)]
struct Decided(Digits, &'static str, String, Digits, Digits, usize, Option<&'static str>);

impl<'a> Data<'a> {
    /// Gathers the numbers of all runs.
    pub fn new<'b>(
        about: &'a About,
        topology: &Topology,
        columns: &'a Columns,
        summary: &'a Summary,
        runs: impl Iterator<Item = &'b mut Recorded>,
    ) -> io::Result<Self> {
        let shown = Shown::new(topology, columns);
        let runs = runs.map(|run| RunData::new(&shown, columns, run));
        let states = topology.drives.first().map(|drive| drive.operational()).unwrap_or_default();
        Ok(Self {
            about,
            summary,
            above: ABOVE,
            groups: columns.names.groups(),
            cores: topology.groups.iter().map(|group| group.cores).collect(),
            drives: topology.drives.len(),
            caps: states.iter().map(|state| state.max_power.0).collect(),
            all_shown: ALL_SHOWN,
            runs: runs.collect::<io::Result<_>>()?,
        })
    }
}

/// Which of the columns the page shows: those of drives in its map and as what the table makes of
/// all of them, every other as a series.
struct Shown {
    series: Vec<(String, From)>,
    /// State and power of each drive.
    drives: Vec<[Option<usize>; 2]>,
    completed: Option<usize>,
}

/// Where a series comes from.
enum From {
    /// A column; a mean latency counts by the requests that it is of.
    Column { place: usize, by_request: bool },
    /// The columns of all drives.
    Drives(Vec<usize>, Aggregation),
}

impl Shown {
    fn new(topology: &Topology, columns: &Columns) -> Self {
        let drive = |at: usize| columns.names.of(Domain::Drive, at as u16).unwrap_or_default();
        let of_drive = |at: usize, what: &str| columns.place(&format!("{}_{what}", drive(at)));
        let first = format!("{}_", drive(0));
        let is_shown = |column: &Column| column.domain != Domain::Drive;
        // The first two columns are the time.
        let own = columns.all.iter().enumerate().skip(2).filter(|(_, column)| is_shown(column));
        let mut series: Vec<_> = own
            .map(|(place, column)| {
                let by_request = column.name == "latency_mean_s";
                (column.name.clone(), From::Column { place, by_request })
            })
            .collect();
        for column in columns.all.iter().filter(|column| column.aggregation != Aggregation::None) {
            let Some(own) = column.name.strip_prefix(&first) else { continue };
            let places = (0..topology.drives.len()).filter_map(|at| of_drive(at, own)).collect();
            let name = format!("drives_{own}");
            series.push((name, From::Drives(places, column.aggregation)));
        }
        let drives = 0..topology.drives.len();
        Self {
            series,
            drives: drives.map(|at| [of_drive(at, "state"), of_drive(at, "power_w")]).collect(),
            completed: columns.place("completed"),
        }
    }

    /// The value of a series in a row, and its weight.
    fn value(&self, from: &From, row: &[f64]) -> (f64, f64) {
        let period = row[PERIOD];
        match from {
            From::Column { place, by_request } => {
                let requests = self.completed.filter(|_| *by_request).map(|place| row[place]);
                (row[*place], requests.unwrap_or(period))
            }
            From::Drives(places, how) => {
                let values = places.iter().map(|place| row[*place]);
                (combine(*how, values).unwrap_or(f64::NAN), period)
            }
        }
    }
}

impl RunData {
    fn new(shown: &Shown, columns: &Columns, run: &mut Recorded) -> io::Result<Self> {
        let decisions = Decisions::new(&run.policy, &columns.names, &run.log);
        let mut data = Self {
            policy: run.policy.clone(),
            rows: 0,
            rows_per_point: 1,
            period_s: 0.0,
            time: Vec::new(),
            series: BTreeMap::new(),
            map: Map::default(),
            latency: run.latency.as_ref().map(Classes::new),
            decisions,
        };
        if let Some(rows) = &mut run.rows {
            data.rows = rows.rows();
            data.read(shown, rows)?;
        }
        Ok(data)
    }

    /// Takes the rows, bucket by bucket.
    fn read(&mut self, shown: &Shown, rows: &mut Spool) -> io::Result<()> {
        self.rows_per_point = rows_per_bucket(self.rows);
        self.map = Map::new(shown.drives.len(), self.rows);
        let mut series: Vec<Series> = shown.series.iter().map(|_| Series::default()).collect();
        let (mut number, mut filled, mut end) = (0, 0, 0.0);
        rows.each(|row| {
            number += 1;
            let is_last = number == self.rows;
            if number == 1 {
                self.period_s = row[PERIOD];
            }
            // What is left after the last whole period is too short for a rate.
            if !is_last || number == 1 || row[PERIOD] >= SHORTEST {
                for (series, (_, from)) in series.iter_mut().zip(&shown.series) {
                    let (value, weight) = shown.value(from, row);
                    series.push(value, weight);
                }
                self.map.push(shown, row);
                (filled, end) = (filled + 1, row[END]);
            }
            if filled == self.rows_per_point || (is_last && filled > 0) {
                self.time.push(Digits(end));
                series.iter_mut().for_each(|series| series.close(self.rows_per_point > 1));
                filled = 0;
            }
            Ok(())
        })?;
        self.map.close();
        let names = shown.series.iter().map(|(name, _)| name.clone());
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
    fn push(&mut self, shown: &Shown, row: &[f64]) {
        if self.filled == self.rows_per_point {
            self.close();
        }
        let first = self.filled == 0;
        self.filled += 1;
        if first {
            self.time.push(Digits(row[END]));
        }
        for (drive, places) in shown.drives.iter().enumerate() {
            let [state, watts] = places.map(|place| place.map_or(f64::NAN, |place| row[place]));
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
    fn new(policy: &str, names: &Names, log: &Log) -> Self {
        let reasons: Vec<_> = log.reasons.iter().map(|(reason, count)| (*reason, *count)).collect();
        let shown = log.first.iter().chain(&log.last).map(|entry| {
            let line = entry.line(policy, names);
            let found = reasons.binary_search_by(|(reason, _)| (*reason).cmp(line.reason));
            let reason = found.unwrap_or_default();
            let of = line.of.unwrap_or_default();
            // What is no number is null.
            let number = |value: Option<f64>| Digits(value.unwrap_or(f64::NAN));
            let (from, to) = (number(line.from), number(line.to));
            Decided(Digits(line.time_s), line.control, of, from, to, reason, line.applied)
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
