//! Where a run stands, by its events: what its metrics and its status show.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ebb_policy::units::Nanos;
use ebb_policy::{Control, Decision, Names, Outcome, Topology};
use ebb_record::log::Changes;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

use super::events::{Begun, Event, Reader, Tick};
use crate::metrics::Format;

/// Ends of the buckets of the loop's lateness, in seconds.
pub const LATE: [f64; 6] = [0.001, 0.005, 0.02, 0.1, 0.5, f64::MAX];

/// So many of the last changes are kept.
const CHANGES: usize = 20;

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
    /// What could not be had.
    pub missing: Vec<String>,
    /// Since when it is in its state.
    pub state_since: Nanos,
    /// Since when each control is as it is, of those that were changed.
    pub since: BTreeMap<(Control, usize), Nanos>,
    /// The last changes.
    pub changes: VecDeque<Change>,
    /// What there was.
    pub totals: Totals,
}

/// A change of a control, as JSON shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Change {
    pub at_s: f64,
    pub control: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub from: Option<f64>,
    pub to: Option<f64>,
    pub reason: String,
}

impl View {
    /// The last cycle; none before the first.
    pub fn last(&self) -> Option<&Tick> {
        match self.last.as_deref()? {
            Event::Tick(tick) => Some(tick),
            _ => None,
        }
    }
}

struct Seen {
    view: View,
    changes: Changes,
    /// Metrics of so many cycles as text: many may ask in one cycle.
    text: Vec<(Format, u64, Bytes)>,
}

/// Shows where a run stands. A cheap copy is looked at: nobody who looks keeps an event waiting.
#[derive(Clone)]
pub struct Board(Arc<Mutex<Seen>>);

impl Board {
    /// Of a run that has not begun.
    pub fn new() -> Self {
        let view = View {
            last: None,
            topology: Topology::default(),
            names: Names::default(),
            would: true,
            profile: String::new(),
            missing: Vec::new(),
            state_since: Nanos::ZERO,
            since: BTreeMap::new(),
            changes: VecDeque::new(),
            totals: Totals::default(),
        };
        Self(Arc::new(Mutex::new(Seen { view, changes: Changes::default(), text: Vec::new() })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where it stands.
    pub fn view(&self) -> View {
        self.with(|seen| seen.view.clone())
    }

    /// Where it stands as text that `make` makes once in a cycle, however many ask.
    pub fn text(
        &self,
        format: Format,
        make: impl FnOnce(View) -> Result<String, std::fmt::Error>,
    ) -> Result<Bytes, std::fmt::Error> {
        let made = self.with(|seen| {
            let now = seen.view.totals.cycles;
            let text = seen.text.iter().find(|(of, at, _)| (*of, *at) == (format, now));
            text.map(|(.., text)| text.clone())
        });
        if let Some(text) = made {
            return Ok(text);
        }
        let view = self.view();
        let cycles = view.totals.cycles;
        let text = Bytes::from(make(view)?);
        self.with(|seen| {
            seen.text.retain(|(of, ..)| *of != format);
            seen.text.push((format, cycles, text.clone()));
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
                    seen.view.last = Some(event.clone());
                }
                Event::Recalled(_) => seen.view.totals.recalls += 1,
                Event::Changed { .. } | Event::Summary { .. } => {}
            }
        });
    }
}

impl Seen {
    fn begin(&mut self, begun: &Begun) {
        let Begun { at, topology, would, profile, missing, .. } = begun;
        self.view = View {
            last: None,
            topology: topology.clone(),
            names: Names::new(topology),
            would: *would,
            profile: profile.clone(),
            missing: missing.clone(),
            state_since: *at,
            since: BTreeMap::new(),
            changes: std::mem::take(&mut self.view.changes),
            totals: std::mem::take(&mut self.view.totals),
        };
        self.changes = Changes::new(topology);
        self.text.clear();
    }

    fn count(&mut self, tick: &Tick) {
        if self.view.last().is_none_or(|last| last.state != tick.state) {
            self.view.state_since = tick.at;
        }
        let Self { view: View { totals, would, since, names, changes: last, .. }, changes, .. } =
            self;
        changes.cycle(&tick.cycled(), |entry| {
            let Decision { control, part, from, to, asked, reason, .. } = entry.decision;
            since.insert((control, part.into()), tick.at);
            if last.len() == CHANGES {
                last.pop_front();
            }
            last.push_back(Change {
                at_s: tick.at.seconds(),
                control: control.row().name.to_owned(),
                of: names.of(control.row().domain, part),
                from,
                to,
                reason: reason.to_owned(),
            });
            *totals.decisions.entry(reason).or_default() += 1;
            if asked.is_some() && entry.decision.is_held() {
                *totals.refused.entry((control, By::Guard)).or_default() += 1;
            }
            if !*would && entry.outcome != Outcome::Done {
                *totals.refused.entry((control, By::Machine)).or_default() += 1;
            }
        });
        totals.cycles += 1;
        totals.lateness += tick.late;
        let is_within = |end: &f64| tick.late.seconds() <= *end;
        let bucket = LATE.iter().position(is_within).unwrap_or_default();
        totals.late[bucket] += 1;
    }
}
