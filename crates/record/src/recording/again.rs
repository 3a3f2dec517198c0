//! Decides again what was decided, by the same code, and compares to the bit.

use std::collections::BTreeSet;

use ebb_policy::{
    Applied, Control, Cycle, Cycled, Given as Held, InForce, Limits, Names, Plant, Signals,
    Topology, registry,
};

use super::check::is_of;
use super::{Begun, Cut, Entry, Frame, Given, Item, Made, Reader, RecordingError};

/// So many gaps and cuts are told one by one.
const TOLD: usize = 100;

/// Cycles that are missing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap {
    /// Time of day of the first cycle after it, seconds since 1970.
    pub unix_s: f64,
    /// How many, where that is known: not where the run's start is missing as well.
    pub cycles: Option<u64>,
}

/// What was or is decided of one control.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// What is asked for, in the control's unit; `None` is released.
    pub asked: Option<f64>,
    /// What is given.
    pub given: Option<f64>,
    /// Why.
    pub reason: String,
}

impl Side {
    fn of(Held { asked, given, reason }: Held<f64>) -> Self {
        Self { asked, given, reason: reason.to_owned() }
    }

    fn is(&self, held: &Held<f64>) -> bool {
        let bits =
            |asked: Option<f64>, given: Option<f64>| [asked, given].map(|v| v.map(f64::to_bits));
        bits(self.asked, self.given) == bits(held.asked, held.given) && self.reason == held.reason
    }
}

/// A decision that is another one now.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Time of day, seconds since 1970.
    pub unix_s: f64,
    /// Its cycle.
    pub number: u64,
    /// Of what; `None` where policies are followed now and were not, or the other way round.
    pub control: Option<Control>,
    /// Of which part.
    pub part: Option<String>,
    /// As recorded.
    pub recorded: Side,
    /// As it is now.
    pub again: Side,
}

/// What came of deciding again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Again {
    /// Versions that have recorded it.
    pub versions: BTreeSet<String>,
    /// Policies that were followed.
    pub policies: BTreeSet<String>,
    /// Begins of runs, with other parts or anew.
    pub runs: u64,
    /// Cycles that were recorded.
    pub cycles: u64,
    /// Of these decided again: the same.
    pub same: u64,
    /// Something is other.
    pub other: u64,
    /// After a gap what the policy remembered is not known until the run begins anew.
    pub unknown: u64,
    /// Time of day of the first and of the last cycle.
    pub span: Option<[f64; 2]>,
    /// The first difference.
    pub first: Option<Difference>,
    /// The first gaps, and how many there are.
    pub gaps: (Vec<Gap>, u64),
    /// The first of what cannot be read, and how many there are.
    pub cuts: (Vec<Cut>, u64),
}

/// The plant of a recorded cycle.
struct Played(Option<Signals>);

impl Plant for Played {
    fn sense(&mut self, signals: &mut Signals) {
        if let Some(sensed) = self.0.take() {
            let in_force = std::mem::take(&mut signals.in_force);
            *signals = Signals { in_force, ..sensed };
        }
    }

    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

/// A run as it goes.
struct Run {
    begun: Begun,
    names: Names,
    made: Option<Made>,
    /// What decides; none after a gap, until a run begins.
    cycle: Option<Cycle>,
    /// The cycle that comes next, where one has come.
    next: Option<u64>,
    /// What is in force as recorded, in the table's order.
    given: Vec<Option<Side>>,
}

fn add<T>((first, count): &mut (Vec<T>, u64), one: T) {
    *count += 1;
    if first.len() < TOLD {
        first.push(one);
    }
}

/// Decides all of `reader` again.
///
/// # Errors
/// What cannot be read at all, or cannot have been recorded.
pub fn again(reader: &mut Reader) -> Result<Again, RecordingError> {
    let mut told = Again::default();
    let mut run: Option<Run> = None;
    while let Some(item) = reader.next() {
        let done = match item? {
            Item::Cut(cut) => {
                add(&mut told.cuts, cut);
                Ok(())
            }
            Item::Entry(entry) => follow(&mut run, entry, &mut told),
        };
        let file = || reader.file().to_owned();
        done.map_err(|what| RecordingError::Impossible { file: file(), what })?;
    }
    Ok(told)
}

fn follow(run: &mut Option<Run>, entry: Entry, told: &mut Again) -> Result<(), String> {
    match (entry, &mut *run) {
        (Entry::Header(header), run) => {
            told.versions.insert(header.of());
            run.iter_mut().for_each(|run| run.given.fill(None));
        }
        (Entry::Begun(begun), Some(run)) if run.begun == *begun => {}
        (Entry::Begun(begun), run) => {
            *run = Some(Run::new(*begun)?);
            told.runs += 1;
        }
        (Entry::Made(made), run) => {
            told.policies.insert(made.policy.clone());
            run.iter_mut().try_for_each(|run| run.made(&made))?;
        }
        (Entry::Frame(frame), Some(run)) => run.frame(&frame, told)?,
        (Entry::Frame(_), None) => return Err("a cycle before any parts".to_owned()),
        (Entry::Note(_), _) => {}
    }
    Ok(())
}

impl Run {
    fn new(begun: Begun) -> Result<Self, String> {
        if !begun.is_possible() {
            return Err("parts that no machine has".to_owned());
        }
        let names = Names::new(&begun.topology);
        let count = |control: &Control| control.row().domain.count(&begun.topology);
        let given = vec![None; Control::ALL.iter().map(count).sum()];
        Ok(Self { begun, names, made: None, cycle: None, next: None, given })
    }

    /// Another policy from the next cycle on, unless it is the one that there is.
    fn made(&mut self, made: &Made) -> Result<(), String> {
        let is_other = self.made.as_ref().is_none_or(|last| last.nth != made.nth);
        self.made = Some(made.clone());
        if let Some(cycle) = self.cycle.as_mut().filter(|_| is_other) {
            let (policy, _) = both(made, &self.begun.topology)?;
            cycle.change(policy, made.ssd_budget).map_err(|conflict| conflict.to_string())?;
        }
        // Policies go on with another one.
        self.cycle.iter_mut().for_each(|cycle| cycle.set_server_budget(made.server_budget));
        Ok(())
    }

    fn frame(&mut self, frame: &Frame, told: &mut Again) -> Result<(), String> {
        self.keep(&frame.given)?;
        let Begun { topology, .. } = &self.begun;
        let signals = frame.sensed(topology).filter(|signals| is_of(signals, topology));
        let signals = signals.ok_or("signals that no such machine has")?;
        told.cycles += 1;
        told.span = Some([told.span.map_or(frame.unix_s, |span| span[0]), frame.unix_s]);
        match (frame.number, self.next) {
            (0, None) => {
                let made = self.made.as_ref().ok_or("a cycle before any policy")?;
                let Made { ssd_budget, server_budget, .. } = *made;
                let limits = Limits { ssd_budget, server_budget, ..Limits::default() };
                let (policy, caps) = both(made, topology)?;
                let cycle = Cycle::new(topology, policy, limits).capped(caps);
                self.cycle = Some(cycle.map_err(|conflict| conflict.to_string())?);
            }
            (number, Some(next)) if number == next => {}
            (number, next) => {
                let cycles = next.and_then(|next| number.checked_sub(next));
                add(&mut told.gaps, Gap { unix_s: frame.unix_s, cycles });
                self.cycle = None;
            }
        }
        self.next = Some(frame.number.saturating_add(1));
        let Some(cycle) = &mut self.cycle else {
            told.unknown += 1;
            return Ok(());
        };
        let cycled = cycle.step(&mut Played(Some(signals)));
        match difference(&self.names, &self.given, frame, &cycled) {
            None => told.same += 1,
            Some(difference) => {
                told.other += 1;
                told.first.get_or_insert(difference);
            }
        }
        Ok(())
    }

    /// Keeps what is in force as recorded.
    fn keep(&mut self, changes: &[Given]) -> Result<(), String> {
        let count = |control: &Control| control.row().domain.count(&self.begun.topology);
        for Given { control, part, asked, given, reason } in changes {
            let (control, part) = (usize::from(*control), usize::from(*part));
            let is_one = Control::ALL.get(control).is_some_and(|one| part < count(one));
            let place = Control::ALL.iter().take(control).map(count).sum::<usize>() + part;
            let kept = self.given.get_mut(place).filter(|_| is_one);
            let side = Side { asked: *asked, given: *given, reason: reason.clone() };
            *kept.ok_or("a control that no such machine has")? = Some(side);
        }
        Ok(())
    }
}

fn both(made: &Made, topology: &Topology) -> Result<registry::Both, String> {
    let settings = made.settings().map_err(|error| error.to_string())?;
    registry::both(&made.policy, topology, &settings).map_err(|error| error.to_string())
}

/// The first of what is other than recorded.
fn difference(
    names: &Names,
    given: &[Option<Side>],
    frame: &Frame,
    cycled: &Cycled<'_>,
) -> Option<Difference> {
    let (unix_s, number) = (frame.unix_s, frame.number);
    let none = |reason: &str| Side { asked: None, given: None, reason: reason.to_owned() };
    let parts = |control: &Control| 0..cycled.in_force.count(*control);
    let all = Control::ALL.iter().flat_map(|control| parts(control).map(move |at| (control, at)));
    for ((control, part), recorded) in all.zip(given) {
        let again = cycled.in_force.at(*control, part);
        if recorded.as_ref().is_some_and(|side| side.is(&again)) {
            continue;
        }
        return Some(Difference {
            unix_s,
            number,
            control: Some(*control),
            part: names.of(control.row().domain, part as u16),
            recorded: recorded.clone().unwrap_or_else(|| none("not recorded")),
            again: Side::of(again),
        });
    }
    let state = |native: Option<&str>, emergency: bool| {
        none(native.unwrap_or(if emergency { "fans at full speed" } else { "followed" }))
    };
    let recorded = state(frame.native.as_deref(), frame.emergency);
    let again = state(cycled.native, cycled.in_force.emergency);
    let is_other = recorded != again;
    let (control, part) = (None, None);
    is_other.then_some(Difference { unix_s, number, control, part, recorded, again })
}
