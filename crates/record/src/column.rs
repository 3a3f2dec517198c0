//! The columns of a time series: what a row of the table of signals and controls becomes for each
//! part of a server.

use ebb_policy::table::{SIGNALS, SignalRow};
use ebb_policy::{Aggregation, Control, ControlRow, Cycled, Domain, Names, Origin, Topology, Unit};
use serde::Serialize;

/// What a column holds, in the terms of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// Name: the part's, the table's, and the unit where the table's does not have it.
    #[serde(skip)]
    pub name: String,
    /// Unit.
    #[serde(serialize_with = "symbol")]
    pub unit: Unit,
    /// What it is there once for.
    #[serde(rename = "of", serialize_with = "title")]
    pub domain: Domain,
    /// How the values of all parts become one; where the column already is that one, [`Domain`] is
    /// the server.
    #[serde(rename = "all", serialize_with = "aggregation")]
    pub aggregation: Aggregation,
    /// One line of description.
    pub text: &'static str,
}

fn symbol<S: serde::Serializer>(unit: &Unit, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(unit.symbol())
}
fn title<S: serde::Serializer>(domain: &Domain, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(domain.title())
}
fn aggregation<S: serde::Serializer>(all: &Aggregation, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(all.title())
}

/// How the values of a column are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers of any size.
    Whole,
    /// The number of one of a few: a power state, a mode.
    Small,
    /// True or false.
    Flag,
    /// Any number.
    Real,
}

impl Column {
    /// A column of the server as a whole.
    #[must_use]
    pub fn of_server(name: &str, unit: Unit, text: &'static str) -> Self {
        let (domain, aggregation) = (Domain::Server, Aggregation::None);
        Self { name: with_unit(name, unit), unit, domain, aggregation, text }
    }

    /// A column of one part, such as `drive3`.
    #[must_use]
    pub fn of_part(part: &str, name: &str, row: &Row) -> Self {
        let Row { unit, domain, aggregation, text } = *row;
        // Not `drive3_drive_power`.
        let prefix = format!("{}_", domain.title());
        let own = name.strip_prefix(&prefix).unwrap_or(name);
        let name = with_unit(&format!("{part}_{own}"), unit);
        Self { name, unit, domain, aggregation, text }
    }

    /// How its values are stored.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.unit {
            Unit::Count | Unit::Bytes => Kind::Whole,
            Unit::Index | Unit::Mode => Kind::Small,
            Unit::Flag => Kind::Flag,
            _ => Kind::Real,
        }
    }
}

/// What a row of the table says of all its parts.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Unit.
    pub unit: Unit,
    /// What it is there once for.
    pub domain: Domain,
    /// How the values of all parts become one.
    pub aggregation: Aggregation,
    /// One line of description.
    pub text: &'static str,
}

fn with_unit(name: &str, unit: Unit) -> String {
    let suffix = match unit {
        Unit::Bytes => "bytes",
        Unit::BytesPerSecond => "bytes_per_s",
        Unit::Seconds => "s",
        Unit::Hertz => "hz",
        Unit::Watts => "w",
        Unit::Celsius => "celsius",
        Unit::Rpm => "rpm",
        Unit::Count | Unit::Index | Unit::PerSecond | Unit::Share | Unit::Flag | Unit::Mode => {
            return name.to_owned();
        }
    };
    let has_it = name == suffix || name.ends_with(&format!("_{suffix}"));
    if has_it { name.to_owned() } else { format!("{name}_{suffix}") }
}

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy)]
enum From {
    Signal(&'static SignalRow),
    Control(Control),
}

impl From {
    fn row(self) -> (&'static str, Row) {
        match self {
            Self::Signal(&SignalRow { name, unit, domain, aggregation, text, .. }) => {
                (name, Row { unit, domain, aggregation, text })
            }
            Self::Control(control) => {
                let &ControlRow { name, unit, domain, aggregation, text, .. } = control.row();
                (name, Row { unit, domain, aggregation, text })
            }
        }
    }

    fn read(self, cycled: &Cycled<'_>, part: usize) -> Option<f64> {
        match self {
            Self::Signal(row) => (row.read)(cycled.signals, part),
            Self::Control(control) => cycled.in_force.number(control, part),
        }
    }
}

/// One value, or that of all parts.
#[derive(Debug, Clone, Copy)]
enum Take {
    Part(From, usize),
    All(From),
}

/// All columns of a server, in the order of a row: time, signals, controls, what the plant adds.
#[derive(Debug, Clone)]
pub struct Columns {
    /// What each holds.
    pub all: Vec<Column>,
    /// What the parts are called.
    pub names: Names,
    takes: Vec<Take>,
    added: usize,
}

/// Place of the end of the period.
pub(crate) const END: usize = 0;
/// Place of its length.
pub(crate) const PERIOD: usize = 1;

impl Columns {
    /// The columns of `topology`, and those that its plant adds.
    #[must_use]
    pub fn new(topology: &Topology, added: Vec<Column>) -> Self {
        let mut columns = Self {
            all: vec![
                Column::of_server("time", Unit::Seconds, "End of the period, since the start."),
                Column::of_server("period", Unit::Seconds, "Length of the period."),
                Column::of_server("iops", Unit::PerSecond, "Completed requests per second."),
            ],
            names: Names::new(topology),
            takes: Vec::new(),
            added: added.len(),
        };
        SIGNALS.iter().for_each(|row| columns.add(topology, From::Signal(row)));
        Control::ALL.iter().for_each(|control| columns.add(topology, From::Control(*control)));
        columns.all.extend(added);
        columns
    }

    /// The columns of one row of the table: one for each part, but of jobs, which come and go, what
    /// the table makes of all of them.
    fn add(&mut self, topology: &Topology, from: From) {
        let (name, row) = from.row();
        let count = row.domain.count(topology);
        if row.domain == Domain::Job {
            if count > 0 && row.aggregation != Aggregation::None {
                self.all.push(aggregate(name, &row));
                self.takes.push(Take::All(from));
            }
            return;
        }
        for at in 0..count {
            self.all.push(match self.names.of(row.domain, at as u16) {
                Some(part) => Column::of_part(&part, name, &row),
                None => Column::of_server(name, row.unit, row.text),
            });
            self.takes.push(Take::Part(from, at));
        }
    }

    /// The place of the column `name`.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|column| column.name == name)
    }

    /// One row: `added` are the values of the plant's own columns, NaN where one is absent.
    pub(crate) fn fill(&self, row: &mut Vec<f64>, cycled: &Cycled<'_>, added: &[f64]) {
        assert_eq!(added.len(), self.added, "a value for each column that the plant has added");
        let signals = cycled.signals;
        let seconds = signals.period.seconds();
        let completed = signals.io.completed.map_or(f64::NAN, |completed| completed as f64);
        row.clear();
        row.extend([signals.now.seconds(), seconds, completed / seconds]);
        row.extend(self.takes.iter().map(|take| {
            let value = match *take {
                Take::Part(from, part) => from.read(cycled, part),
                Take::All(from) => of_jobs(from, cycled),
            };
            value.unwrap_or(f64::NAN)
        }));
        row.extend(added);
    }

    /// What is known of one period, by the names of the columns; of a plant that adds none.
    #[must_use]
    pub fn known(&self, cycled: &Cycled<'_>) -> Vec<(&str, f64)> {
        let mut row = Vec::with_capacity(self.all.len());
        self.fill(&mut row, cycled, &[]);
        let named = self.all.iter().map(|column| column.name.as_str()).zip(row);
        named.filter(|(_, value)| value.is_finite()).collect()
    }

    /// Columns of signals that nothing measured in this period; of a plant that adds none.
    #[must_use]
    pub fn modelled(&self, cycled: &Cycled<'_>) -> Vec<&str> {
        let is_modelled = |take: &Take| match *take {
            Take::Part(From::Signal(row), part) => {
                cycled.signals.sources.of(row.signal, part).origin == Origin::Modelled
                    && (row.read)(cycled.signals, part).is_some()
            }
            _ => false,
        };
        let named = self.all[self.all.len() - self.takes.len()..].iter().zip(&self.takes);
        named
            .filter(|(_, take)| is_modelled(take))
            .map(|(column, _)| column.name.as_str())
            .collect()
    }
}

/// The column of what all parts of `row` come to.
pub(crate) fn aggregate(name: &str, row: &Row) -> Column {
    let Row { unit, aggregation, text, .. } = *row;
    // So many say yes.
    let unit = if unit == Unit::Flag { Unit::Count } else { unit };
    let name = with_unit(&format!("{name}_{}", aggregation.title()), unit);
    Column { name, unit, domain: Domain::Server, aggregation, text }
}

/// Of jobs that are there; a control means something for those that run.
fn of_jobs(from: From, cycled: &Cycled<'_>) -> Option<f64> {
    let counts = |(at, job): (usize, &ebb_policy::JobSignals)| {
        let runs = job.present && !job.waiting;
        let is_meant = if matches!(from, From::Control(_)) { runs } else { job.present };
        is_meant.then(|| from.read(cycled, at)).flatten()
    };
    let values = cycled.signals.jobs.iter().enumerate().filter_map(counts);
    combine(from.row().1.aggregation, values)
}

/// The values of all parts as one; `None` without any.
pub(crate) fn combine(how: Aggregation, values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0.0, 0.0);
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| !value.is_nan()) {
        (count, sum) = (count + 1.0, sum + value);
        (least, most) = (value.min(least), value.max(most));
    }
    let value = match how {
        Aggregation::Sum => sum,
        Aggregation::Mean => sum / count,
        Aggregation::Max => most,
        Aggregation::Min => least,
        Aggregation::None => return None,
    };
    (count > 0.0).then_some(value)
}
