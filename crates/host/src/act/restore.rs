//! Sets everything back: in order, past failures, read back.

use std::time::Duration;

use serde::Serialize;

use crate::act::knob::{Knob, Place};
use crate::act::originals::{Leave, Original, Originals, State, StateError};
use crate::act::tasks::Tasks;
use crate::find::machine::Machine;
use crate::sys::Absent;

/// So long, all places together, is waited for what the kernel does later.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It is as it was to be.
    Already,
    /// It was set, and read back so.
    Restored {
        /// What it was before.
        from: String,
    },
    /// It is left as it is, as it was configured.
    Kept,
    /// The machine has been restarted since, which has set it back.
    Restarted,
    /// The device is not there any more; it begins anew when it comes back.
    Gone {
        /// What says so.
        reason: String,
    },
    /// It could not be.
    Failed {
        /// Why.
        reason: String,
    },
}

/// One place and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Where.
    pub place: Place,
    /// What it was to be set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Sets back all that is saved in `state`, or leaves there what `leave` says instead of what each
/// place says itself. What failed stays saved. Doing it again does no harm.
///
/// # Errors
/// Where the saved values cannot be read or written; places that fail are no error.
pub fn restore(
    machine: &Machine,
    state: &State,
    leave: Option<Leave>,
) -> Result<Vec<Restored>, StateError> {
    let Some(mut all) = state.load()? else { return Ok(Vec::new()) };
    let same_boot = machine.boot().is_none_or(|boot| boot == all.boot);
    let mut done = Vec::with_capacity(all.originals.len());
    let mut patience = PATIENCE;
    // Cores come back before what may hang; with the cpuset controller all lists of groups go.
    all.originals.sort_by_key(|original| match original.place {
        Place::Controller { .. } => 0,
        Place::Cpuset { .. } => 1,
        _ => 2,
    });
    let mut tasks = same_boot.then(|| before(machine, state, &mut all, leave)).flatten();
    for original in &all.originals {
        let outcome = if !same_boot && !original.place.survives_reboot() {
            Outcome::Restarted
        } else {
            one(machine, original, leave, &mut patience)
        };
        let to = original.last(leave).map(str::to_owned);
        done.push(Restored { place: original.place.clone(), to, outcome });
    }
    // A limit may have stood in the way of another one: a minimum above the maximum of before.
    for (original, restored) in all.originals.iter().zip(&mut done) {
        if matches!(restored.outcome, Outcome::Failed { .. }) {
            restored.outcome = one(machine, original, leave, &mut patience);
        }
    }
    // With its CPUs tasks can be bound to them again.
    if let Some(tasks) = &mut tasks {
        let settled = tasks.settle(&[]);
        let mut places =
            done.iter_mut().filter(|one| one.place.unbinds()).map(|one| &mut one.outcome);
        if let (Err(reason), Some(outcome)) = (settled, places.next()) {
            *outcome = Outcome::Failed { reason };
        }
    }
    // Where one has failed they are still bound to less than their own.
    let failed = |one: &Restored| matches!(one.outcome, Outcome::Failed { .. });
    all.tasks = match tasks {
        Some(tasks) if done.iter().any(|one| one.place.unbinds() && failed(one)) => tasks.all(),
        _ => Vec::new(),
    };
    let mut failed = done.iter().map(|one| matches!(one.outcome, Outcome::Failed { .. }));
    all.originals.retain(|_| failed.next() == Some(true));
    state.keep(&all)?;
    Ok(done)
}

/// The tasks that setting everything back may unbind, which are on disk then.
fn before(
    machine: &Machine,
    state: &State,
    all: &mut Originals,
    leave: Option<Leave>,
) -> Option<Tasks> {
    let unbinds = |one: &&Original| one.place.unbinds() && one.last(leave).is_some();
    let places: Vec<_> = all.originals.iter().filter(unbinds).map(|one| &one.place).collect();
    if places.is_empty() {
        return None;
    }
    let root = places.contains(&&Place::Offline);
    let mut tasks = Tasks::of(&machine.sys, std::mem::take(&mut all.tasks), root);
    tasks.look();
    all.tasks = tasks.saved(&[]);
    // Where that is not possible everything is set back all the same.
    let _ = state.save_tasks(&all.tasks);
    Some(tasks)
}

fn one(
    machine: &Machine,
    original: &Original,
    leave: Option<Leave>,
    patience: &mut Duration,
) -> Outcome {
    let Some(last) = original.last(leave) else { return Outcome::Kept };
    let sys = &machine.sys;
    let mut set = || {
        let mut knob = Knob::find(machine, &original.place)?;
        let (before, after) = knob.set(sys, last, |is| is == last, patience)?;
        Ok::<_, Absent>(if after == last && before == last {
            Outcome::Already
        } else if after == last {
            Outcome::Restored { from: before }
        } else {
            Outcome::Failed { reason: format!("'{last}' was written, '{after}' is read back") }
        })
    };
    match set() {
        Ok(outcome) => outcome,
        // Without power a drive forgets its state; a group that is made anew has none.
        Err(reason @ Absent::Missing(_)) if original.place.goes() => {
            Outcome::Gone { reason: reason.to_string() }
        }
        Err(reason) => Outcome::Failed { reason: reason.to_string() },
    }
}
