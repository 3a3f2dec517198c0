//! What `ebb run` says: its state, each decision, what went wrong. A line each, for people or as
//! JSON (docs/json-schema/run-1.json).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use ebb_cli::out::{self, Field, Journal, Priority};
use ebb_host::{Notice, Recalled};
use ebb_policy::topology::UNKNOWN;
use ebb_policy::units::Nanos;
use ebb_policy::{Control, Decision, Names, Outcome, Unit};
use ebb_record::Columns;
use ebb_record::log::{Changes, Coarse, Entry, Line};
use schemars::JsonSchema;
use serde::Serialize;

use super::events::{Begun, Event, Reader, Settings, State, Tick};
use crate::log::{self, Level};

/// So many parts are named in a line, or one more; of others it says how many.
const NAMED: usize = 3;

/// One line of standard output. `time_s` is seconds since the start; a decision has the fields of
/// decision-3.json beside its event.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb run --json")]
#[serde(tag = "event", rename_all = "lowercase")]
enum Shown<'a> {
    State {
        #[schemars(range(min = 0))]
        time_s: f64,
        #[schemars(regex(
            pattern = "^(starting|observing|paused|acting|degraded: .+|native: .+)$"
        ))]
        state: &'a str,
    },
    Decision(Line<'a>),
    Notice {
        #[schemars(range(min = 0))]
        time_s: f64,
        /// The place; standard output, if lines of it were lost.
        of: String,
        text: &'a str,
    },
    Summary {
        #[schemars(range(min = 0))]
        time_s: f64,
        text: &'a str,
    },
    Sample {
        #[schemars(range(min = 0))]
        time_s: f64,
        /// Time of day, seconds since 1970: for other logs beside this one.
        unix_s: f64,
        /// What is known, by the names of the columns of a series (docs/formats.md); what is not
        /// known is left out.
        values: BTreeMap<&'a str, f64>,
        /// Which of the signals nothing measured: power of drives without a meter; while observing
        /// also what decisions would have made of the rest.
        modelled: Vec<&'a str>,
    },
}

/// Says it.
pub struct Teller {
    tell: Tell,
    /// Takes lines for people, with fields.
    journal: Option<Journal>,
    state: State,
    parts: Parts,
    /// Events that this one was told of as lost.
    lost: u64,
}

/// What a run has begun with.
struct Parts {
    settings: Arc<Settings>,
    names: Names,
    changes: Changes,
    coarse: Coarse,
    would: bool,
    columns: Columns,
    /// From the start of the run to that of these parts.
    before: Nanos,
}

impl Parts {
    fn new(begun: &Begun) -> Self {
        Self {
            settings: Arc::default(),
            names: Names::new(&begun.topology),
            changes: Changes::new(&begun.topology),
            coarse: Coarse::default(),
            would: begun.would,
            columns: Columns::new(&begun.topology, Vec::new()),
            before: begun.at,
        }
    }
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

impl Reader for Teller {
    fn hear(&mut self, event: &Arc<Event>, lost: u64) {
        let mut to = String::new();
        // Text goes to memory, and all of it can be JSON.
        let _ = self.lost(&mut to, event, lost);
        let _ = match &**event {
            Event::Begun(begun) => {
                self.parts = Parts::new(begun);
                Ok(())
            }
            Event::Tick(tick) => self.tick(&mut to, tick),
            Event::Recalled(recalled) => self.recalled(&mut to, recalled),
            Event::Summary { at, text } => self.summary(&mut to, *at, text),
            Event::Tried { at, pair } => self.summary(&mut to, *at, &pair.text()),
            Event::Changed { .. } => Ok(()),
        };
        if !to.is_empty() {
            out::say(to);
        }
    }
}

impl Teller {
    /// Says what `tell` wants, to the journal if there is one.
    pub fn new(tell: Tell, journal: Option<Journal>) -> Self {
        let nothing = Begun { would: true, ..Begun::default() };
        Self { tell, journal, state: State::Starting, parts: Parts::new(&nothing), lost: 0 }
    }

    /// Whether the journal has taken a line for people.
    fn is_taken(&self, priority: Priority, text: &str, fields: &[Field]) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.take(priority, text, fields))
    }

    /// A line for people.
    fn line(&self, to: &mut String, priority: Priority, time_s: f64, text: &str, of: &[Field]) {
        if !self.is_taken(priority, text, of) {
            let _ = writeln!(to, "{}{time_s:10.1} s  {text}", priority.mark());
        }
    }

    /// What nobody will read of.
    fn lost(&mut self, to: &mut String, event: &Event, events: u64) -> Result<()> {
        let Event::Tick(tick) = event else { return Ok(()) };
        let lines = out::lost().map(|lost| {
            format!("{lost} lines were lost so far: they are read too slowly, or a disk is full")
        });
        let events = (events > self.lost).then(|| {
            self.lost = events;
            format!("{events} events were lost so far: the machine is too busy to tell them")
        });
        for text in lines.iter().chain(&events) {
            let time_s = tick.at.seconds();
            match self.tell.json {
                true => {
                    let of = "standard output".to_owned();
                    line(to, &Shown::Notice { time_s, of, text })?;
                }
                false => self.line(to, Priority::Warning, time_s, text, &[]),
            }
        }
        Ok(())
    }

    fn tick(&mut self, to: &mut String, tick: &Tick) -> Result<()> {
        let (mut entries, cycled) = (Vec::new(), tick.cycled());
        let Parts { settings, changes, coarse, before, .. } = &mut self.parts;
        settings.clone_from(&tick.settings);
        changes.cycle(&cycled, |mut entry| {
            entry.decision.at += *before;
            entries.extend(Some(entry).filter(|entry| coarse.is_news(entry)));
        });
        let time_s = tick.at.seconds();
        let quiet = self.tell.quiet || !log::is_told(Level::Info);
        match (quiet, self.tell.json) {
            (true, _) => {}
            (false, true) => entries.iter().try_for_each(|entry| self.json(to, entry))?,
            (false, false) => {
                entries.chunk_by(are_alike).for_each(|alike| self.text(to, alike));
            }
        }
        let notices = tick.notices.iter().filter(|_| log::is_told(Level::Warning));
        for Notice { place, text } in notices {
            let of = place.to_string();
            match self.tell.json {
                true => line(to, &Shown::Notice { time_s, of, text })?,
                false => {
                    let told = format!("{of}: {text}");
                    if !self.is_taken(Priority::Warning, &told, &[("EBB_OF", of)]) {
                        out::tell(Priority::Warning, format_args!("{time_s:10.1} s  {told}"));
                    }
                }
            }
        }
        if self.tell.samples {
            let values = self.parts.columns.known(&cycled).into_iter().collect();
            let modelled = self.parts.columns.modelled(&cycled);
            let unix_s = tick.unix_s;
            line(to, &Shown::Sample { time_s, unix_s, values, modelled })?;
        }
        let (level, priority) = match tick.state {
            State::Degraded(_) | State::Native(_) => (Level::Warning, Priority::Warning),
            _ => (Level::Info, Priority::Notice),
        };
        if tick.state != self.state && log::is_told(level) {
            self.state.clone_from(&tick.state);
            let state = &self.state.to_string();
            match self.tell.json {
                true => line(to, &Shown::State { time_s, state })?,
                false => {
                    let field = ("EBB_STATE", self.state.name().to_owned());
                    self.line(to, priority, time_s, state, &[field]);
                }
            }
        }
        Ok(())
    }

    /// What came back between two cycles.
    fn recalled(&self, to: &mut String, recalled: &Recalled) -> Result<()> {
        let mut entries: Vec<_> = recalled
            .decisions
            .iter()
            .map(|(decision, outcome)| Entry { decision: *decision, outcome: *outcome })
            .collect();
        entries.iter_mut().for_each(|entry| entry.decision.at += self.parts.before);
        let Some(time_s) = entries.first().map(|entry| entry.decision.at.seconds()) else {
            return Ok(());
        };
        let text = &*recalled.text;
        match (self.tell.quiet || !log::is_told(Level::Info), self.tell.json) {
            (true, _) => Ok(()),
            (false, true) => {
                entries.iter().try_for_each(|entry| self.json(to, entry))?;
                line(to, &Shown::Notice { time_s, of: "recall".to_owned(), text })
            }
            (false, false) => {
                entries.chunk_by(are_alike).for_each(|alike| self.text(to, alike));
                self.line(to, Priority::Info, time_s, text, &[]);
                Ok(())
            }
        }
    }

    /// What all of it came to.
    fn summary(&self, to: &mut String, at: Nanos, text: &str) -> Result<()> {
        let time_s = at.seconds();
        match self.tell.json {
            _ if !log::is_told(Level::Info) => Ok(()),
            true => line(to, &Shown::Summary { time_s, text }),
            false => {
                self.line(to, Priority::Info, time_s, text, &[]);
                Ok(())
            }
        }
    }

    fn json(&self, to: &mut String, entry: &Entry) -> Result<()> {
        let mut shown = entry.line(&self.parts.settings.policy, &self.parts.names);
        if self.parts.would {
            // Nobody tried.
            shown.applied = None;
        }
        line(to, &Shown::Decision(shown))
    }

    /// For people: what became of several parts alike, in one line.
    fn text(&self, to: &mut String, alike: &[Entry]) {
        let Some(Entry { decision, outcome }) = alike.first() else { return };
        let row = decision.control.row();
        if row.unit == Unit::Hertz && decision.to == Some(UNKNOWN.0) {
            // Nobody knows it, and nothing steers it.
            return;
        }
        let parts: Vec<_> = alike
            .iter()
            .filter_map(|entry| self.parts.names.of(row.domain, entry.decision.part))
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
        let would = if self.parts.would { "would set " } else { "" };
        let refused = match outcome {
            Outcome::Done => "",
            Outcome::Refused => ", refused",
            Outcome::Changed => ", changed by another program",
        };
        let what = match (decision.from == decision.to, outcome) {
            // Decided before; what became of it is new.
            (true, Outcome::Refused) => format!("{after} cannot be set on this machine"),
            (true, Outcome::Changed) => "changed by another program".to_owned(),
            (true, Outcome::Done) => format!("{after} ({reason})"),
            _ => format!("{from} -> {after} ({reason}{refused})"),
        };
        let priority = match outcome {
            Outcome::Done => Priority::Info,
            Outcome::Refused | Outcome::Changed => Priority::Warning,
        };
        let text = format!("{would}{title}{part}: {what}");
        self.line(to, priority, time_s, &text, &self.fields(&alike[0], &parts));
    }

    /// What the journal can be asked for; a value that is absent is *released*.
    fn fields(&self, entry: &Entry, parts: &[String]) -> Vec<Field> {
        let Decision { control, from, to, asked, reason, .. } = entry.decision;
        let values = [("EBB_FROM", from), ("EBB_TO", to), ("EBB_ASKED", asked)];
        let values = values.into_iter().filter_map(|(name, is)| Some((name, is?.to_string())));
        let applied = (!self.parts.would).then(|| entry.outcome.name().to_owned());
        let own = [
            ("EBB_CONTROL", control.row().name.to_owned()),
            ("EBB_REASON", reason.to_owned()),
            ("EBB_POLICY", self.parts.settings.policy.clone()),
        ];
        let parts = parts.iter().map(|part| ("EBB_OF", part.clone()));
        let applied = applied.into_iter().map(|applied| ("EBB_APPLIED", applied));
        own.into_iter().chain(parts).chain(values).chain(applied).collect()
    }
}

/// Whether the same became of two parts.
fn are_alike(one: &Entry, other: &Entry) -> bool {
    let rest = |entry: &Entry| Entry { decision: Decision { part: 0, ..entry.decision }, ..*entry };
    rest(one) == rest(other)
}

fn line(to: &mut String, shown: &Shown<'_>) -> Result<()> {
    to.push_str(&serde_json::to_string(shown)?);
    to.push('\n');
    Ok(())
}

/// A value of a control for people.
fn number(control: Control, value: Option<f64>) -> String {
    let Some(value) = value else { return "released".to_owned() };
    match control {
        _ if control.row().unit == Unit::Hertz => format!("{:.2} GHz", value / 1e9),
        Control::FanDuty | Control::JobShare => format!("{:.1} %", 100.0 * value),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
crate::schema::written!("run-1", Shown<'static>);
