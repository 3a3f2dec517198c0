//! What `ebb run` says: its state, each decision, what went wrong. A line each, for people or as
//! JSON (docs/json-schema/run-1.json).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Instant, SystemTime};

use anyhow::Result;
use clap::Args;
use ebb_host::{Notice, Recalled};
use ebb_policy::units::Nanos;
use ebb_policy::{Control, Cycled, Decision, Names, Outcome, Topology};
use ebb_record::Columns;
use ebb_record::log::{Changes, Entry, Line};
use serde::Serialize;

use crate::out;

/// So many parts are named in a line, or one more; of others it says how many.
const NAMED: usize = 3;

/// Where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It looks for what is there.
    Starting,
    /// It decides and changes nothing.
    Observing,
    /// It acts.
    Acting,
    /// It acts, but some controls do not follow.
    Degraded(usize),
    /// The signals cannot be believed: everything is as it was found.
    Native(&'static str),
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Observing => f.write_str("observing"),
            Self::Acting => f.write_str("acting"),
            Self::Degraded(count) => write!(f, "degraded: {count} controls do not follow"),
            Self::Native(reason) => write!(f, "native: {reason}"),
        }
    }
}

/// One line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    State { time_s: f64, state: &'a str },
    Decision(Line<'a>),
    Notice { time_s: f64, of: String, text: &'a str },
    Summary { time_s: f64, text: &'a str },
    Sample { time_s: f64, unix_s: f64, values: BTreeMap<&'a str, f64>, modelled: Vec<&'a str> },
}

/// Says it.
pub struct Teller {
    policy: String,
    names: Names,
    changes: Changes,
    state: State,
    tell: Tell,
    would: bool,
    columns: Columns,
    /// From the start of the run to that of these parts.
    before: Nanos,
}

/// What is said, and how.
#[derive(Debug, Clone, Copy, Args)]
pub struct Tell {
    /// Print one JSON object per line (docs/json-schema/run-1.json).
    #[arg(long)]
    json: bool,
    /// With --json: also print signals and settings in force after each cycle.
    #[arg(long, requires = "json")]
    samples: bool,
    /// Do not print decisions.
    #[arg(long, short)]
    quiet: bool,
}

impl Teller {
    /// Of `policy`, that acts or only `would`; the run has `begun` then.
    pub fn new(policy: &str, topology: &Topology, would: bool, tell: Tell, begun: Instant) -> Self {
        Self {
            policy: policy.to_owned(),
            names: Names::new(topology),
            changes: Changes::new(topology),
            state: State::Starting,
            tell,
            would,
            columns: Columns::new(topology, Vec::new()),
            before: Nanos::from_seconds(begun.elapsed().as_secs_f64()),
        }
    }

    /// A cycle, after which it stands at `state`; returns the state in words.
    pub fn cycle(&mut self, cycled: &Cycled<'_>, notices: &[Notice], failing: usize) -> Result<()> {
        let mut entries = Vec::new();
        self.changes.cycle(cycled, |mut entry| {
            entry.decision.at += self.before;
            entries.push(entry);
        });
        let time_s = (cycled.signals.now + self.before).seconds();
        let mut to = String::new();
        if let Some(lost) = out::lost() {
            let text = &format!(
                "{lost} lines were lost so far: they are read too slowly, or a disk is full"
            );
            match self.tell.json {
                true => {
                    let of = "standard output".to_owned();
                    line(&mut to, &Event::Notice { time_s, of, text })?;
                }
                false => writeln!(to, "{time_s:10.1} s  {text}")?,
            }
        }
        match (self.tell.quiet, self.tell.json) {
            (true, _) => {}
            (false, true) => entries.iter().try_for_each(|entry| self.json(&mut to, entry))?,
            (false, false) => {
                entries.chunk_by(are_alike).try_for_each(|alike| self.text(&mut to, alike))?;
            }
        }
        for Notice { place, text } in notices {
            let of = place.to_string();
            match self.tell.json {
                true => line(&mut to, &Event::Notice { time_s, of, text })?,
                false => out::note(format_args!("{time_s:10.1} s  {of}: {text}")),
            }
        }
        if self.tell.samples {
            let values = self.columns.known(cycled).into_iter().collect();
            let modelled = self.columns.modelled(cycled);
            // Before 1970 there was no Ebb.
            let unix_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
            line(&mut to, &Event::Sample { time_s, unix_s, values, modelled })?;
        }
        let state = match (cycled.native, failing, self.would) {
            (Some(reason), ..) => State::Native(reason),
            (None, _, true) => State::Observing,
            (None, 0, false) => State::Acting,
            (None, failing, false) => State::Degraded(failing),
        };
        if state != self.state {
            self.state = state;
            let state = &self.state.to_string();
            match self.tell.json {
                true => line(&mut to, &Event::State { time_s, state })?,
                false => writeln!(to, "{time_s:10.1} s  {state}")?,
            }
        }
        if !to.is_empty() {
            out::say(to);
        }
        Ok(())
    }

    /// What came back between two cycles.
    pub fn recalled(&self, recalled: &Recalled) -> Result<()> {
        let mut entries: Vec<_> = recalled
            .decisions
            .iter()
            .map(|(decision, outcome)| Entry { decision: *decision, outcome: *outcome })
            .collect();
        entries.iter_mut().for_each(|entry| entry.decision.at += self.before);
        let Some(time_s) = entries.first().map(|entry| entry.decision.at.seconds()) else {
            return Ok(());
        };
        let (mut to, text) = (String::new(), &*recalled.text);
        match (self.tell.quiet, self.tell.json) {
            (true, _) => return Ok(()),
            (false, true) => {
                entries.iter().try_for_each(|entry| self.json(&mut to, entry))?;
                line(&mut to, &Event::Notice { time_s, of: "recall".to_owned(), text })?;
            }
            (false, false) => {
                entries.chunk_by(are_alike).try_for_each(|alike| self.text(&mut to, alike))?;
                writeln!(to, "{time_s:10.1} s  {text}")?;
            }
        }
        out::say(to);
        Ok(())
    }

    /// Where it stands, in words.
    pub fn state(&self) -> String {
        format!("{}: {}", self.policy, self.state)
    }

    /// What all of it came to.
    pub fn summary(&self, at: Nanos, text: &str) -> Result<()> {
        let time_s = (at + self.before).seconds();
        let mut to = String::new();
        match self.tell.json {
            true => line(&mut to, &Event::Summary { time_s, text })?,
            false => writeln!(to, "{time_s:10.1} s  {text}")?,
        }
        out::say(to);
        Ok(())
    }

    fn json(&self, to: &mut String, entry: &Entry) -> Result<()> {
        let mut shown = entry.line(&self.policy, &self.names);
        if self.would {
            // Nobody tried.
            shown.applied = None;
        }
        line(to, &Event::Decision(shown))
    }

    /// For people: what became of several parts alike, in one line.
    fn text(&self, to: &mut String, alike: &[Entry]) -> Result<()> {
        let Some(Entry { decision, outcome }) = alike.first() else { return Ok(()) };
        let row = decision.control.row();
        let parts: Vec<_> = alike
            .iter()
            .filter_map(|entry| self.names.of(row.domain, entry.decision.part))
            .collect();
        let part = match &parts[..] {
            [] => String::new(),
            [named @ .., last] if (1..=NAMED).contains(&named.len()) => {
                format!(" of {} and {last}", named.join(", "))
            }
            [one] => format!(" of {one}"),
            many => format!(" of {} and {} more", many[..NAMED].join(", "), many.len() - NAMED),
        };
        let value = |value: Option<f64>| number(decision.control, value);
        let (title, time_s, reason) = (row.title, decision.at.seconds(), decision.reason);
        let (from, after) = (value(decision.from), value(decision.to));
        let would = if self.would { "would set " } else { "" };
        let refused = match outcome {
            Outcome::Done => "",
            Outcome::Refused => ", refused",
            Outcome::Changed => ", changed by another program",
        };
        let what = match (decision.from == decision.to, outcome) {
            // Decided before; what became of it is new.
            (true, Outcome::Refused) => format!("{after} cannot be set on this machine"),
            (true, Outcome::Changed) => "changed by another program".to_owned(),
            _ => format!("{from} -> {after} ({reason}{refused})"),
        };
        Ok(writeln!(to, "{time_s:10.1} s  {would}{title}{part}: {what}")?)
    }
}

/// Whether the same became of two parts.
fn are_alike(one: &Entry, other: &Entry) -> bool {
    let rest = |entry: &Entry| Entry { decision: Decision { part: 0, ..entry.decision }, ..*entry };
    rest(one) == rest(other)
}

fn line(to: &mut String, event: &Event<'_>) -> Result<()> {
    to.push_str(&serde_json::to_string(event)?);
    to.push('\n');
    Ok(())
}

/// A value of a control for people.
fn number(control: Control, value: Option<f64>) -> String {
    let Some(value) = value else { return "released".to_owned() };
    match control {
        Control::Frequency | Control::FrequencyCap => format!("{:.2} GHz", value / 1e9),
        Control::FanDuty | Control::JobShare => format!("{:.1} %", 100.0 * value),
        _ => format!("{value}"),
    }
}
