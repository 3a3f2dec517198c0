//! The log of decisions: what was changed and why, and what the plant made of it, as JSON lines.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};

use schemars::JsonSchema;
use serde::Serialize;

use ebb_policy::{Applied, Control, Cycled, Decision, Names, Outcome, Topology, Unit};

/// Entries kept in memory for the report: so many of the first, so many of the last.
const KEPT: usize = 1000;

/// What a line can be of.
fn told_of() -> Vec<&'static str> {
    Control::ALL.iter().map(|control| control.row().name).chain(["fault"]).collect()
}

/// Version 3: 'applied' is new, and so are lines with the reasons plant:refused, plant:changed and
/// plant:done, of controls that nobody decided on but of which something else became.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "One line of ebb sim --decisions FILE", extend("additionalProperties" = true))]
pub struct Line<'a> {
    /// Seconds since the start of the run.
    #[schemars(range(min = 0))]
    pub time_s: f64,
    /// The policy whose run it is.
    pub policy: &'a str,
    /// What changed, with its unit where it has one, such as `frequency_hz`.
    #[schemars(extend("enum" = told_of()))]
    pub control: &'static str,
    /// Core group, drive, fan, socket, job slot or class; what failed in an injected fault; absent
    /// for background work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Value before; null where whoever the control was released to decided.
    pub from: Option<f64>,
    /// Value from now on; the same as before where the guard begins to refuse what is asked for, or
    /// the plant what it is given.
    pub to: Option<f64>,
    /// What was asked for, where the guard gave something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<f64>,
    /// Machine-readable: policy:why, guard:why, or of the plant alone.
    #[schemars(regex(pattern = "^[a-z0-9-]+:[a-z0-9-]+$"))]
    pub reason: &'static str,
    /// What the plant made of it: done, refused by the device, or changed by somebody else; absent
    /// for faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["done", "refused", "changed"]))]
    pub applied: Option<&'static str>,
}

/// A decision and what became of it, or that something else became of one that stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// What was decided; where the plant alone changed, its reason is the plant's.
    pub decision: Decision,
    /// What the plant made of it.
    pub outcome: Outcome,
}

impl Entry {
    /// In words and numbers; `names` are those of the parts.
    #[must_use]
    pub fn line<'a>(&self, policy: &'a str, names: &Names) -> Line<'a> {
        let Decision { at, control, part, from, to, asked, reason } = self.decision;
        Line {
            time_s: at.decimal(),
            policy,
            control: control.row().name,
            of: names.of(control.row().domain, part),
            from,
            to,
            asked: asked.filter(|_| self.decision.is_held()),
            reason,
            applied: Some(self.outcome.name()),
        }
    }
}

/// Finds what each cycle decided, and what the plant began or ceased to refuse.
#[derive(Debug, Default)]
pub struct Changes {
    /// What the plant made of everything by the last cycle.
    applied: Applied,
}

impl Changes {
    /// Before the first cycle.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self { applied: Applied::new(topology) }
    }

    /// Tells those of one cycle.
    pub fn cycle(&mut self, cycled: &Cycled<'_>, mut tell: impl FnMut(Entry)) {
        let applied = cycled.applied;
        let mut decided = cycled.decisions().peekable();
        for control in Control::ALL {
            for part in 0..cycled.in_force.count(*control) {
                let outcome = applied.of(*control, part);
                // Decisions come in the order of the table.
                let is_its = |decision: &Decision| {
                    decision.control == *control && usize::from(decision.part) == part
                };
                let decision = decided.next_if(is_its).or_else(|| {
                    (outcome != self.applied.of(*control, part))
                        .then(|| by_plant(cycled, *control, part, outcome))
                });
                if let Some(decision) = decision {
                    tell(Entry { decision, outcome });
                }
            }
        }
        debug_assert!(decided.next().is_none(), "decisions in another order than the table's");
        self.applied.clone_from(applied);
    }
}

/// A value as it was told, why, and what the plant made of it.
type Told = (f64, &'static str, Outcome);

/// Leaves out what people need not read: rates move in each cycle.
#[derive(Debug, Default)]
pub struct Coarse(BTreeMap<(usize, u16), Told>);

impl Coarse {
    /// Whether an entry is more than a rate that has moved by less than a quarter since it was
    /// told.
    pub fn is_news(&mut self, entry: &Entry) -> bool {
        let Decision { control, part, to, reason, .. } = entry.decision;
        let key = (control as usize, part);
        let Some(to) = to.filter(|_| control.row().unit == Unit::BytesPerSecond) else {
            self.0.remove(&key);
            return true;
        };
        let is_alike = |(told, why, outcome): &Told| {
            (*why, *outcome) == (reason, entry.outcome) && (0.8..=1.25).contains(&(to / told))
        };
        if self.0.get(&key).is_some_and(is_alike) {
            return false;
        }
        self.0.insert(key, (to, reason, entry.outcome));
        true
    }
}

/// The decisions of a run.
#[derive(Debug, Default)]
pub struct Log {
    /// How many entries there were.
    pub count: u64,
    /// How many by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// The first ones.
    pub first: Vec<Entry>,
    /// The last of the others.
    pub last: VecDeque<Entry>,
    changes: Changes,
    /// All entries as JSON lines, if asked for.
    file: Option<BufWriter<File>>,
    failed: Option<io::Error>,
}

impl Log {
    /// An empty one; `all` keeps every entry for [`Log::lines`].
    ///
    /// # Errors
    /// When there is no room for a temporary file.
    pub(crate) fn new(topology: &Topology, all: bool) -> io::Result<Self> {
        let file = if all { Some(BufWriter::new(tempfile::tempfile()?)) } else { None };
        Ok(Self { changes: Changes::new(topology), file, ..Self::default() })
    }

    /// Adds what one cycle decided, and what the plant began or ceased to refuse.
    pub(crate) fn cycle(&mut self, policy: &str, names: &Names, cycled: &Cycled<'_>) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.cycle(cycled, |entry| self.push(policy, names, entry));
        self.changes = changes;
    }

    fn push(&mut self, policy: &str, names: &Names, entry: Entry) {
        self.count += 1;
        *self.reasons.entry(entry.decision.reason).or_default() += 1;
        if self.first.len() < KEPT {
            self.first.push(entry);
        } else {
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            self.last.push_back(entry);
        }
        if self.file.is_some() {
            self.write(&entry.line(policy, names));
        }
    }

    /// Writes a line, of a decision or of anything else that the plant tells.
    pub(crate) fn write(&mut self, line: &Line<'_>) {
        if let (Some(file), None) = (&mut self.file, &self.failed) {
            let written = serde_json::to_writer(&mut *file, line).map_err(io::Error::from);
            self.failed = written.and_then(|()| writeln!(file)).err();
        }
    }

    /// Copies all lines.
    ///
    /// # Errors
    /// When one could not be written, or cannot be now.
    pub fn lines(&mut self, to: &mut impl Write) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush()?;
        file.get_mut().rewind()?;
        io::copy(&mut BufReader::new(file.get_mut()), to)?;
        Ok(())
    }
}

/// Something else became of what was decided earlier and stands.
fn by_plant(cycled: &Cycled<'_>, control: Control, part: usize, outcome: Outcome) -> Decision {
    let reason = match outcome {
        Outcome::Done => "plant:done",
        Outcome::Refused => "plant:refused",
        Outcome::Changed => "plant:changed",
    };
    let to = cycled.in_force.number(control, part);
    let (at, part, asked) = (cycled.signals.now, part as u16, to);
    Decision { at, control, part, from: to, to, asked, reason }
}

#[cfg(test)]
mod tests {
    use ebb_policy::units::Nanos;

    use super::*;

    #[test]
    fn rates_are_told_when_they_move_by_a_quarter() {
        let mut coarse = Coarse::default();
        let mut told = |control: Control, to: Option<f64>, reason: &'static str| {
            let (from, asked) = (None, to);
            let decision = Decision { at: Nanos::ZERO, control, part: 1, from, to, asked, reason };
            coarse.is_news(&Entry { decision, outcome: Outcome::Done })
        };
        let rates = [1e6, 1.2e6, 0.9e6, 1.3e6, 1.1e6, 0.9e6];
        let told_of = rates.map(|rate| told(Control::ReadRate, Some(rate), "tide:track"));
        assert_eq!(told_of, [true, false, false, true, false, true]);
        assert!(told(Control::ReadRate, Some(0.9e6), "tide:shed"), "another reason");
        assert!(told(Control::ReadRate, None, "guard:released"));
        assert!(told(Control::ReadRate, Some(0.9e6), "tide:shed"), "it was released meanwhile");
        assert!(told(Control::CpuTime, Some(2.0), "tide:shed"));
        assert!(told(Control::CpuTime, Some(2.1), "tide:shed"), "no rate");
    }
}
