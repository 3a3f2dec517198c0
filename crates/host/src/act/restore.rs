//! Sets everything back: in order, past failures, read back.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::act::knob::{Knob, Place, Set, Taken};
use crate::act::lock;
use crate::act::originals::{Leave, Original, Originals, State};
use crate::act::owned::StateError;
use crate::act::steering::{Notice, Verified};
use crate::act::tasks::Tasks;
use crate::find::drives::recall;
use crate::find::machine::Machine;
use crate::sys::{Absent, Sys};

/// So long, all places together, is waited for what the kernel does later and drives that are slow.
const PATIENCE: Duration = Duration::from_secs(5);

/// A drive that has not answered is asked again after so long.
const NAP: Duration = Duration::from_millis(20);

/// What became of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It is as it was to be.
    Already,
    /// It was set, and read back so.
    Restored {
        /// What it was before.
        from: String,
    },
    /// It was set, and is lower for as long as something else limits it.
    Limited {
        /// What it was before.
        from: String,
        /// What it is now, and by what.
        reason: String,
    },
    /// It is left as it is, as it was configured.
    Kept,
    /// The machine has been restarted since, which has set it back.
    Restarted,
    /// What it belonged to has ended, and begins anew when it comes back.
    Gone {
        /// What says so.
        reason: String,
    },
    /// The device is not there now, or its CPUs are offline: it stays saved until it is back.
    Pending {
        /// What is missing.
        reason: String,
    },
    /// It could not be.
    Failed {
        /// Why.
        reason: String,
        /// What to do, where the reason does not say so.
        #[serde(skip)]
        remedy: Option<&'static str>,
    },
}

impl Outcome {
    pub(super) fn failed(reason: String) -> Self {
        Self::Failed { reason, remedy: None }
    }

    /// Of a place that was to be set to `last`.
    pub(super) fn of(last: &str, set: Set) -> Self {
        let Set { before, is, taken } = set;
        match taken {
            Taken::So if before == is => Self::Already,
            Taken::So => Self::Restored { from: before },
            Taken::Limited(by) => {
                let reason = format!("limited to '{is}' now by {by}");
                Self::Limited { from: before, reason }
            }
            Taken::Not => Self::failed(format!("'{last}' was written, '{is}' is read back")),
        }
    }
}

/// One place and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// Where.
    pub place: Place,
    /// What it was to be set to; absent where it is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Restored {
    /// Whether it stays saved for the next time.
    #[must_use]
    pub fn stays(&self) -> bool {
        self.has_failed() || matches!(self.outcome, Outcome::Pending { .. })
    }

    fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. })
    }
}

/// What became of all places.
#[derive(Debug, Default)]
pub struct Restoration {
    /// Each, in order.
    pub places: Vec<Restored>,
    /// Why what is left could not be put on disk. All places were tried all the same; what was set
    /// back is still saved and will be set back again.
    pub unrecorded: Option<StateError>,
}

impl Restoration {
    /// How many came out so.
    #[must_use]
    pub fn count(&self, is: fn(&Outcome) -> bool) -> usize {
        self.places.iter().filter(|one| is(&one.outcome)).count()
    }

    /// What to do about what failed, where that is known, each once.
    #[must_use]
    pub fn remedies(&self) -> BTreeSet<&'static str> {
        let remedy = |one: &Restored| match one.outcome {
            Outcome::Failed { remedy, .. } => remedy,
            _ => None,
        };
        self.places.iter().filter_map(remedy).collect()
    }

    /// Adds what became of others.
    pub fn add(&mut self, other: Self) {
        self.places.extend(other.places);
        self.unrecorded = self.unrecorded.take().or(other.unrecorded);
    }
}

/// Sets back all that is saved in `state` and was set, or leaves there what `leave` says instead of
/// what each place says itself. What failed, or has to wait for its device, stays saved. Doing it
/// again does no harm.
///
/// # Errors
/// Where the saved values cannot be read; then nothing was set. Places that fail are no error.
pub fn restore(
    machine: &Machine,
    state: &State,
    leave: Option<Leave>,
) -> Result<Restoration, StateError> {
    let Some(mut all) = state.load()? else {
        lock::forget(&machine.sys, state.path());
        return Ok(Restoration::default());
    };
    let machine = &recalling(machine, &all);
    // Tasks may wait for CPUs longer than what unbound them.
    let waits = is_same_boot(machine, &all) && !all.tasks.is_empty();
    all.originals
        .retain(|original| original.is_written_at_end(leave) || waits && original.place.unbinds());
    // Who is held still goes on first. CPUs come back before what is theirs, cores before what may
    // hang; with the cpuset controller all lists of groups go.
    all.originals.sort_by_key(|original| match &original.place {
        place if place.freezes() => 0,
        Place::Offline => 1,
        Place::Controller { .. } => 2,
        Place::Cpuset { .. } => 3,
        _ => 4,
    });
    let mut tasks = before(machine, state, &mut all, leave);
    let mut places = every(machine, &all, leave);
    // With its CPUs tasks can be bound to them again.
    if let Some(tasks) = &mut tasks {
        let settled = tasks.settle(&[]);
        let mut places = places.iter_mut().filter(|one| one.place.unbinds());
        if let (Err(unsettled), Some(place)) = (settled, places.next()) {
            let reason = unsettled.to_string();
            place.outcome = match unsettled.waits {
                true => Outcome::Pending { reason },
                false => Outcome::failed(reason),
            };
        }
    }
    // Where one has failed they are still bound to less than their own.
    all.tasks = match tasks {
        Some(tasks) if places.iter().any(|one| one.place.unbinds() && one.stays()) => tasks.all(),
        _ => Vec::new(),
    };
    assert_eq!(places.len(), all.originals.len(), "something became of each place");
    let mut stay = places.iter().map(Restored::stays);
    all.originals.retain(|_| stay.next() == Some(true));
    let unrecorded = state.keep(&all).err();
    if all.originals.is_empty() && unrecorded.is_none() {
        lock::forget(&machine.sys, state.path());
    }
    Ok(Restoration { places, unrecorded })
}

/// Compares what is saved in `state` with what the machine says now: is everything as it was found?
/// Nothing is changed.
///
/// # Errors
/// Where the saved values cannot be read.
pub fn compare(machine: &Machine, state: &State) -> Result<Verified, StateError> {
    let all = state.load()?.unwrap_or_default();
    let machine = &recalling(machine, &all);
    let (sys, mut verified) = (&machine.sys, Verified::default());
    let same_boot = is_same_boot(machine, &all);
    for Original { place, found, .. } in all.originals.iter().filter(|one| one.touched) {
        let is = Knob::find(machine, place).and_then(|mut knob| {
            let is = knob.read(sys)?;
            let is_so = knob.is_steered(sys) || knob.taken(sys, found, &is) != Taken::Not;
            Ok((is, is_so))
        });
        let text = match is {
            Ok((_, true)) => None,
            Err(absent) => match without(sys, place, &absent, true) {
                Outcome::Gone { .. } => None,
                _ => Some(format!("found as '{found}'; cannot be read now: {absent}")),
            },
            // The restart has set it back, to whatever it is then.
            Ok(_) if !same_boot && !place.survives_reboot() => None,
            Ok((is, false)) => Some(format!("found as '{found}', is '{is}'")),
        };
        match text {
            None => verified.compared += 1,
            Some(text) => verified.differing.push(Notice { place: place.clone(), text }),
        }
    }
    Ok(verified)
}

/// The machine with its drives called as they were saved.
fn recalling(machine: &Machine, all: &Originals) -> Machine {
    let mut machine = machine.clone();
    let names = all.originals.iter().filter_map(|original| original.place.drive());
    recall(&mut machine.drives, names);
    machine
}

fn is_same_boot(machine: &Machine, all: &Originals) -> bool {
    // One that could not be read may be this one.
    machine.boot().is_none_or(|boot| all.boot.is_empty() || boot == all.boot)
}

/// The tasks of this start of the machine that setting everything back may unbind, which are on
/// disk then.
fn before(
    machine: &Machine,
    state: &State,
    all: &mut Originals,
    leave: Option<Leave>,
) -> Option<Tasks> {
    let unbinds = |one: &&Original| one.place.unbinds() && one.last(leave).is_some();
    let places: Vec<_> = all.originals.iter().filter(unbinds).map(|one| &one.place).collect();
    if places.is_empty() || !is_same_boot(machine, all) {
        return None;
    }
    let root = places.contains(&&Place::Offline);
    let tasks = Tasks::of(&machine.sys, std::mem::take(&mut all.tasks), root);
    let mut tasks = tasks.while_parked();
    tasks.look();
    all.tasks = tasks.saved(&[]);
    // Where that is not possible everything is set back all the same.
    let _ = state.save_tasks(&all.tasks);
    Some(tasks)
}

fn every(machine: &Machine, all: &Originals, leave: Option<Leave>) -> Vec<Restored> {
    let same_boot = is_same_boot(machine, all);
    let mut patience = PATIENCE;
    let mut done = Vec::with_capacity(all.originals.len());
    for original in &all.originals {
        let outcome = if !same_boot && !original.place.survives_reboot() {
            Outcome::Restarted
        } else {
            one(machine, original, leave, &mut patience)
        };
        let to = original.last(leave).map(str::to_owned);
        done.push(Restored { place: original.place.clone(), to, outcome });
    }
    // A limit may have stood in the way of another one: a minimum above the maximum of before. And
    // a fan's mode may have changed its duty, or kept it from being set.
    for (original, restored) in all.originals.iter().zip(&mut done) {
        let has_failed = restored.has_failed();
        let was_set = matches!(restored.outcome, Outcome::Already | Outcome::Restored { .. });
        if has_failed || was_set && matches!(original.place, Place::Chip { .. }) {
            let again = one(machine, original, leave, &mut patience);
            if has_failed || again != Outcome::Already {
                restored.outcome = again;
            }
        }
    }
    make_safe(machine, all, &mut done);
    done
}

/// Sets what could not be set back to what can do no harm; a fan whose mode could not, to full
/// speed. All of it stays saved.
fn make_safe(machine: &Machine, all: &Originals, done: &mut [Restored]) {
    let failed = done.iter().filter(|one| one.has_failed()).map(|one| one.place.clone());
    let failed: Vec<_> = failed.collect();
    // A mode before its duty, which chips take in the manual mode only.
    for (original, restored) in all.originals.iter().zip(done).rev() {
        let Original { place, safe, .. } = original;
        let mode = failed.iter().find(|failed| failed.duty().as_ref() == Some(place));
        let Some(failed) = mode.or_else(|| failed.iter().find(|failed| *failed == place)) else {
            continue;
        };
        if restored.to.as_ref().is_none_or(|to| to == safe) || original.check().is_err() {
            continue;
        }
        let mut none = Duration::ZERO;
        let set =
            Knob::find(machine, place).and_then(|mut knob| knob.set(&machine.sys, safe, &mut none));
        let is_safe = set.is_ok_and(|set| set.taken != Taken::Not);
        if !is_safe {
            continue;
        }
        let now = format!("it is left at '{safe}', which is safe");
        restored.outcome = match &restored.outcome {
            Outcome::Failed { reason, remedy } => Outcome::Failed {
                reason: format!("{reason}; {now}"),
                remedy: remedy.or(failed.stuck()),
            },
            _ => Outcome::failed(format!("{now}, for {failed} could not be restored")),
        };
    }
}

fn one(
    machine: &Machine,
    original: &Original,
    leave: Option<Leave>,
    patience: &mut Duration,
) -> Outcome {
    let Some(last) = original.last(leave) else { return Outcome::Kept };
    let (sys, place) = (&machine.sys, &original.place);
    if let Err(reason) = original.check() {
        return Outcome::failed(reason);
    }
    if !original.is_written_at_end(leave) {
        return Outcome::Already;
    }
    let mut knob = match until_it_answers(patience, |_| Knob::find(machine, place)) {
        Ok(knob) => knob,
        Err(absent) => return without(sys, place, &absent, true),
    };
    match until_it_answers(patience, |patience| knob.give_back(sys, last, patience)) {
        Ok(set) => Outcome::of(last, set),
        Err(absent) => without(sys, place, &absent, false),
    }
}

/// Asks again while a drive is silent.
fn until_it_answers<T>(
    patience: &mut Duration,
    mut ask: impl FnMut(&mut Duration) -> Result<T, Absent>,
) -> Result<T, Absent> {
    loop {
        let begun = Instant::now();
        match ask(patience) {
            Err(Absent::Silent { .. }) if !patience.is_zero() => {
                thread::sleep(NAP);
                *patience = patience.saturating_sub(begun.elapsed());
            }
            answer => return answer,
        }
    }
}

/// What it means that a place has no value or takes none; without a `device` it has none to be in.
fn without(sys: &Sys, place: &Place, absent: &Absent, no_device: bool) -> Outcome {
    let reason = absent.to_string();
    match absent {
        // A file of a control group goes with its controller, too.
        Absent::Missing(_)
            if place.ends_with_its_owner() && (no_device || place.is_of_a_group()) =>
        {
            Outcome::Gone { reason }
        }
        Absent::Missing(_) if no_device => Outcome::Pending { reason },
        Absent::Away { .. } => Outcome::Pending { reason },
        _ if place.is_frequency() && rests(sys, place) => {
            Outcome::Pending { reason: "its CPUs are offline".to_owned() }
        }
        _ => Outcome::Failed { reason, remedy: absent.remedy() },
    }
}

/// Whether all CPUs of a frequency domain are offline. What its files then say is no rule: they
/// refuse to be read, or only to be written, with EBUSY or EINVAL, by the version of Linux
/// (`drivers/cpufreq/cpufreq.c`, `show` and `store`).
fn rests(sys: &Sys, place: &Place) -> bool {
    let Place::File { path } = place else { return false };
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let cpus = |file: &str| sys.text(format!("{folder}/{file}"));
    match cpus("affected_cpus") {
        Err(Absent::Missing(_)) => {}
        online => return online.unwrap_or_default().is_empty(),
    }
    let Ok(online) = sys.cpus("sys/devices/system/cpu/online") else { return false };
    let Ok(related) = cpus("related_cpus") else { return false };
    let mut related = related.split_whitespace().filter_map(|cpu| cpu.parse().ok());
    !related.any(|cpu: u16| online.contains(&cpu))
}
