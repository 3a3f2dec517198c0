//! Where a run stands, by its events: what its metrics and its status show.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ebb_host::Notice;
use ebb_policy::units::Nanos;
use ebb_policy::{Control, Decision, Names, Outcome, Topology};
use ebb_record::log::{Changes, Coarse, Entry};
use hyper::body::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::events::{Begun, Event, Reader, Tick};
use super::history::{History, Past};
use crate::metrics::Format;

/// Ends of the buckets of the loop's lateness, in seconds.
pub const LATE: [f64; 6] = [0.001, 0.005, 0.02, 0.1, 0.5, f64::MAX];

/// So many of the last changes are kept: two for each of 32 drives.
const CHANGES: usize = 64;
/// So many of the last notices are kept.
const NOTICES: usize = 20;

/// Who refused a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The guard gave something else than was asked for.
    Guard,
    /// The machine did not take it, or somebody else has changed it.
    Machine,
}

impl By {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Machine => "machine",
        }
    }
}

/// What there was since the start of the run.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Cycles.
    pub cycles: u64,
    /// Changes of controls, by policy's or guard's reason.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Changes that were refused.
    pub refused: BTreeMap<(Control, By), u64>,
    /// Crowds that brought cores back between two cycles.
    pub recalls: u64,
    /// Cycles by how late they began, as [`LATE`].
    pub late: [u64; LATE.len()],
    /// All lateness together.
    pub lateness: Nanos,
    /// Events that did not get here.
    pub lost: u64,
    /// Events that pages lost, for they read too slowly.
    pub unread: u64,
}

/// Where it stands.
#[derive(Debug, Clone)]
pub struct View {
    /// The last cycle; none before the first.
    last: Option<Arc<Event>>,
    /// The machine's parts, and what they are called.
    pub topology: Topology,
    /// What they are called.
    pub names: Names,
    /// Whether decisions are only what would be done.
    pub would: bool,
    /// Whose cores stand for this machine's.
    pub profile: String,
    /// Where users' latency comes from; nothing before a run has begun.
    pub latency: &'static str,
    /// What could not be had.
    pub missing: Vec<String>,
    /// Why signals were not there at the start, by their names.
    pub lacks: Vec<(&'static str, String)>,
    /// Since when it is in its state.
    pub state_since: Nanos,
    /// Since when each control is as it is, of those that were changed.
    pub since: BTreeMap<(Control, usize), Nanos>,
    /// The last changes.
    pub changes: VecDeque<Change>,
    /// How many changes there were.
    pub decided: u64,
    /// What was to be known of places, at last.
    pub notices: VecDeque<Noticed>,
    /// What there was.
    pub totals: Totals,
}

/// A change of a control, as JSON shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    pub at_s: f64,
    pub control: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub from: Option<f64>,
    pub to: Option<f64>,
    pub reason: String,
    /// Absent while nothing is set: nobody tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["done", "refused", "changed"]))]
    pub applied: Option<String>,
}

/// What was to be known of a place, as JSON shows it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Noticed {
    pub at_s: f64,
    /// The place.
    pub of: String,
    pub text: String,
}

/// Adds one more, in place of the oldest where there is no room.
fn push<T>(all: &mut VecDeque<T>, most: usize, one: T) {
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(one);
}

impl View {
    /// The last cycle; none before the first.
    pub fn last(&self) -> Option<&Tick> {
        match self.last.as_deref()? {
            Event::Tick(tick) => Some(tick),
            _ => None,
        }
    }

    /// Takes a change in.
    fn change(&mut self, at: Nanos, entry: &Entry) {
        let Decision { control, part, from, to, reason, .. } = entry.decision;
        self.since.insert((control, part.into()), at);
        self.decided += 1;
        let change = Change {
            at_s: at.seconds(),
            control: control.row().name.to_owned(),
            of: self.names.of(control.row().domain, part),
            from,
            to,
            reason: reason.to_owned(),
            applied: (!self.would).then(|| entry.outcome.name().to_owned()),
        };
        push(&mut self.changes, CHANGES, change);
    }
}

/// A text that many may ask for in one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// The metrics.
    Metrics(Format),
    /// The status, as JSON.
    Status,
}

struct Seen {
    view: View,
    /// When its parts began.
    begun: Nanos,
    changes: Changes,
    coarse: Coarse,
    history: History,
    /// Texts, of so many cycles.
    text: Vec<(Text, u64, Bytes)>,
}

/// Shows where a run stands. A cheap copy is looked at: nobody who looks keeps an event waiting.
#[derive(Clone)]
pub struct Board {
    seen: Arc<Mutex<Seen>>,
    /// Counts what changes the view.
    told: watch::Sender<u64>,
}

impl Board {
    /// Of a run that has not begun.
    pub fn new() -> Self {
        let view = View {
            last: None,
            topology: Topology::default(),
            names: Names::default(),
            would: true,
            profile: String::new(),
            latency: "",
            missing: Vec::new(),
            lacks: Vec::new(),
            state_since: Nanos::ZERO,
            since: BTreeMap::new(),
            changes: VecDeque::new(),
            decided: 0,
            notices: VecDeque::new(),
            totals: Totals::default(),
        };
        let (begun, changes, history) = (Nanos::ZERO, Changes::default(), History::default());
        let coarse = Coarse::default();
        let seen = Seen { view, begun, changes, coarse, history, text: Vec::new() };
        Self { seen: Arc::new(Mutex::new(seen)), told: watch::Sender::new(0) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where it stands.
    pub fn view(&self) -> View {
        self.with(|seen| seen.view.clone())
    }

    /// The recent past.
    pub fn past(&self) -> Past {
        self.with(|seen| seen.history.past())
    }

    /// Counts whatever changes what it shows.
    pub fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// So many events were lost to a page.
    pub fn lose(&self, count: u64) {
        self.with(|seen| seen.view.totals.unread += count);
    }

    /// Where it stands as text that `make` makes once in a cycle, however many ask.
    pub fn text<E>(
        &self,
        kind: Text,
        make: impl FnOnce(View) -> Result<String, E>,
    ) -> Result<Bytes, E> {
        let made = self.with(|seen| {
            let now = seen.view.totals.cycles;
            let text = seen.text.iter().find(|(of, at, _)| (*of, *at) == (kind, now));
            text.map(|(.., text)| text.clone())
        });
        if let Some(text) = made {
            return Ok(text);
        }
        let view = self.view();
        let cycles = view.totals.cycles;
        let text = Bytes::from(make(view)?);
        self.with(|seen| {
            seen.text.retain(|(of, ..)| *of != kind);
            seen.text.push((kind, cycles, text.clone()));
        });
        Ok(text)
    }
}

impl Reader for Board {
    fn hear(&mut self, event: &Arc<Event>, lost: u64) {
        self.with(|seen| {
            seen.view.totals.lost = lost;
            match &**event {
                Event::Begun(begun) => seen.begin(begun),
                Event::Tick(tick) => {
                    seen.count(tick);
                    seen.history.add(tick);
                    seen.view.last = Some(event.clone());
                }
                Event::Recalled(recalled) => {
                    seen.view.totals.recalls += 1;
                    let begun = seen.begun;
                    for (decision, outcome) in &recalled.decisions {
                        let entry = Entry { decision: *decision, outcome: *outcome };
                        seen.view.change(decision.at + begun, &entry);
                    }
                }
                Event::Changed { .. } | Event::Tried { .. } | Event::Summary { .. } => {}
            }
        });
        if matches!(**event, Event::Begun(_) | Event::Tick(_)) {
            self.told.send_modify(|told| *told += 1);
        }
    }
}

impl Seen {
    fn begin(&mut self, begun: &Begun) {
        let Begun { at, topology, would, profile, latency, missing, lacks, .. } = begun;
        self.view = View {
            last: None,
            topology: topology.clone(),
            names: Names::new(topology),
            would: *would,
            profile: profile.clone(),
            latency,
            missing: missing.clone(),
            lacks: lacks.clone(),
            state_since: *at,
            since: BTreeMap::new(),
            changes: std::mem::take(&mut self.view.changes),
            decided: self.view.decided,
            notices: std::mem::take(&mut self.view.notices),
            totals: std::mem::take(&mut self.view.totals),
        };
        self.begun = *at;
        (self.changes, self.coarse) = (Changes::new(topology), Coarse::default());
        self.text.clear();
    }

    fn count(&mut self, tick: &Tick) {
        if self.view.last().is_none_or(|last| last.state != tick.state) {
            self.view.state_since = tick.at;
        }
        let Self { view, changes, coarse, .. } = self;
        for Notice { place, text } in &tick.notices {
            let (at_s, of, text) = (tick.at.seconds(), place.to_string(), text.clone());
            push(&mut view.notices, NOTICES, Noticed { at_s, of, text });
        }
        changes.cycle(&tick.cycled(), |entry| {
            if coarse.is_news(&entry) {
                view.change(tick.at, &entry);
            }
            let Decision { control, asked, reason, .. } = entry.decision;
            let View { totals, would, .. } = view;
            *totals.decisions.entry(reason).or_default() += 1;
            if asked.is_some() && entry.decision.is_held() {
                *totals.refused.entry((control, By::Guard)).or_default() += 1;
            }
            if !*would && entry.outcome != Outcome::Done {
                *totals.refused.entry((control, By::Machine)).or_default() += 1;
            }
        });
        let totals = &mut view.totals;
        totals.cycles += 1;
        totals.lateness += tick.late;
        let is_within = |end: &f64| tick.late.seconds() <= *end;
        let bucket = LATE.iter().position(is_within).unwrap_or_default();
        totals.late[bucket] += 1;
    }
}
