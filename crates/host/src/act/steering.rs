//! Sets places and sees to it that they stay set.
//!
//! ```text
//!            write, read back           somebody else changed it
//!   found ───────────────────► set ───────────────────────────────► contested
//!     ▲                       ▲ │ released                            │    │
//!     └───────────────────────┼─┘       the first time in a while:    │    │ again, or the
//!                             └──────────── written once more ────────┘    │ operator says so
//!                                                                          ▼
//!                                                                       yielded
//! ```
//!
//! A yielded place is its new owner's until Ebb starts anew: it is on disk no more, and no end
//! writes it. An emergency takes it; its owner's value is then what was found. Nor does an end
//! write what was never set, and what others have changed before that is what was found. Drivers
//! round.

mod setting;
mod verify;

use std::time::Duration;

use ebb_policy::Outcome;
use ebb_policy::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::act::knob::{Knob, MANUAL, Place, Taken};
use crate::act::originals::{Original, State};
use crate::act::owned::StateError;
use crate::find::machine::Machine;
use crate::sys::{Absent, Sys};

pub use verify::Verified;

/// What to do where somebody else changes what Ebb has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Contest {
    /// Leave it to them.
    Yield,
    /// Set it once more, as a reset of the device asks for; then leave it to them.
    #[default]
    Reassert,
    /// Say so and do nothing else.
    Alarm,
}

/// A second change within this time is nobody's reset.
const WHILE: Nanos = Nanos::from_secs(60);
/// A place that refuses is tried again at such distances.
const RETRY: Nanos = Nanos::from_secs(5);
/// Drivers of fans say so long what they have read before: 1.5 s (nct6775, it87).
const CACHED: Nanos = Nanos::from_secs(2);
/// So long, all places together, is waited in a cycle for what the kernel does later.
const PATIENCE: Duration = Duration::from_millis(250);

/// One place and what Ebb did to it.
#[derive(Debug)]
struct Held {
    original: Original,
    knob: Result<Knob, Absent>,
    /// Whether it may be other than it was found.
    touched: bool,
    /// What was written last, and what was read back.
    set: Option<(String, String)>,
    /// What was read back after the last write, and when.
    read_back: Option<(Nanos, String)>,
    /// When it was last set once more against somebody else.
    reasserted: Option<Nanos>,
    yielded: bool,
    /// Set whoever else sets it, as long as an emergency lasts.
    insisted: bool,
    /// Why it does not take what it is given, and since when it is not tried again.
    refused: Option<(String, Nanos)>,
    /// Giving it back has failed, so it is at what can do no harm.
    stuck: bool,
}

impl Held {
    fn new(original: Original, knob: Result<Knob, Absent>) -> Self {
        Self {
            touched: original.touched,
            original,
            knob,
            set: None,
            read_back: None,
            reasserted: None,
            yielded: false,
            insisted: false,
            refused: None,
            stuck: false,
        }
    }

    /// The states of the drawing above.
    fn assert_state(&self) {
        let (place, is_set) = (&self.original.place, self.set.is_some());
        assert!(!is_set || self.touched, "{place} is set and not to be set back");
        let is_ours = self.touched || self.insisted;
        assert!(!self.yielded || !is_ours, "{place} is somebody else's and Ebb's");
    }
}

/// Something that an operator should know of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Where.
    pub place: Place,
    /// What.
    pub text: String,
}

/// All places of a machine.
#[derive(Debug)]
pub struct Steering {
    sys: Sys,
    held: Vec<Held>,
    contest: Contest,
    /// Where what was found is on disk.
    state: State,
    boot: String,
    next: usize,
    notices: Vec<Notice>,
    /// What to do that was said already.
    advised: Vec<&'static str>,
    /// What is left of [`PATIENCE`] in this cycle.
    patience: Duration,
}

impl Steering {
    /// Takes `originals`, which are on disk in `state`, in hand; nothing is written yet.
    #[must_use]
    pub fn new(
        machine: &Machine,
        originals: Vec<Original>,
        contest: Contest,
        state: State,
    ) -> Self {
        let held = |original: Original| {
            let knob = Knob::find(machine, &original.place);
            Held::new(original, knob)
        };
        Self {
            sys: machine.sys.clone(),
            held: originals.into_iter().map(held).collect(),
            contest,
            state,
            boot: machine.boot().unwrap_or_default(),
            next: 0,
            notices: Vec::new(),
            advised: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// Finds the places anew whose devices have gone, come back or got another name. What Ebb had
    /// set there is set again: it may have begun anew.
    pub fn follow(&mut self, machine: &Machine, is_concerned: impl Fn(&Place) -> bool) {
        for held in self.held.iter_mut().filter(|held| is_concerned(&held.original.place)) {
            let knob = Knob::find(machine, &held.original.place);
            // What nothing tells from another by now could not be found again at the end.
            if let (Err(Absent::Failed { error, .. }), Ok(old)) = (&knob, &mut held.knob) {
                let Original { place, found, .. } = &held.original;
                let text = format!("it is given back and left alone: {error}");
                self.notices.push(Notice { place: place.clone(), text });
                let is_right = !held.touched || old.is_steered(&self.sys);
                if is_right || old.write(&self.sys, found).is_ok() {
                    held.touched = false;
                    let _ = self.state.forget(place);
                }
            }
            held.knob = knob;
            (held.set, held.read_back) = (None, None);
            // That it has gone was said.
            let gone = held.knob.as_ref().err().map(|absent| (absent.to_string(), Nanos::ZERO));
            held.refused = gone;
        }
    }

    /// A place by its number.
    #[must_use]
    pub fn place(&self, at: usize) -> &Place {
        &self.held[at].original.place
    }

    /// Takes a place in hand that is on disk and was let go of before, or is new; its number.
    fn take(&mut self, original: Original, knob: Result<Knob, Absent>) -> usize {
        let at = self.find(&original.place);
        let held = Held::new(original, knob);
        match at {
            Some(at) => self.held[at] = held,
            None => self.held.push(held),
        }
        at.unwrap_or(self.held.len() - 1)
    }

    /// Takes places in hand that have come, each as it was found: all are on disk when this
    /// returns. One that an earlier start has not given back is there as it was found then. Their
    /// numbers, in the same order.
    ///
    /// # Errors
    /// Where they cannot be saved; then none of them may be set.
    pub fn adopt(
        &mut self,
        new: Vec<Original>,
        knob: impl Fn(&Place) -> Result<Knob, Absent>,
    ) -> Result<Vec<usize>, StateError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<_> = new.iter().map(|original| original.place.clone()).collect();
        let mut saved = self.state.save(&self.boot, new)?.originals;
        saved.retain(|saved| places.contains(&saved.place));
        saved.sort_by_key(|saved| places.iter().position(|place| *place == saved.place));
        assert_eq!(saved.len(), places.len(), "each is on disk once");
        let mut take = |original: Original| {
            let knob = knob(&original.place);
            self.take(original, knob)
        };
        Ok(saved.into_iter().map(&mut take).collect())
    }

    /// Lets go of a place that is not there any more, on disk as well; its number stays.
    ///
    /// # Errors
    /// Where that cannot be written; then it is set back at the end, as far as it can be.
    pub fn disown(&mut self, at: usize) -> Result<(), StateError> {
        let held = &mut self.held[at];
        let place = held.original.place.clone();
        let knob = Err(Absent::Missing(place.to_string().into()));
        *held = Held::new(held.original.clone(), knob);
        self.state.forget(&place)
    }

    /// That what was set at a place is not there any more, with what it is a part of.
    pub fn lost(&mut self, at: usize) {
        self.held[at].set = None;
    }

    /// How many places there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// The number of `place` here.
    #[must_use]
    pub fn find(&self, place: &Place) -> Option<usize> {
        self.held.iter().position(|held| held.original.place == *place)
    }

    /// What was found at a place and is to be left there.
    #[must_use]
    pub fn original(&self, at: usize) -> &Original {
        &self.held[at].original
    }

    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self, at: usize) -> bool {
        self.held[at].set.is_some()
    }

    /// What was found at a place.
    #[must_use]
    pub fn found(&self, at: usize) -> &str {
        &self.held[at].original.found
    }

    /// What it is set to now, by what was read back; what was found where nothing was set.
    #[must_use]
    pub fn now(&self, at: usize) -> &str {
        let held = &self.held[at];
        held.set.as_ref().map_or(&held.original.found, |(_, read)| read)
    }

    /// The kernel's files.
    #[must_use]
    pub fn sys(&self) -> &Sys {
        &self.sys
    }

    /// Whether it is somebody else's.
    #[must_use]
    pub fn is_yielded(&self, at: usize) -> bool {
        self.held[at].yielded
    }

    /// What a place says now.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn read(&mut self, at: usize) -> Result<String, Absent> {
        match &mut self.held[at].knob {
            Ok(knob) => knob.read(&self.sys),
            Err(absent) => Err(absent.clone()),
        }
    }

    /// Leaves a place to whoever has changed it: no end sets it back.
    pub fn leave(&mut self, at: usize) {
        let held = &mut self.held[at];
        (held.yielded, held.insisted, held.touched, held.set) = (true, false, false, None);
        held.assert_state();
        // What others use as well is set back all the same: with it, tasks are bound again.
        let place = &held.original.place;
        let is_shared = matches!(place, Place::Controller { .. } | Place::Offline);
        if !is_shared && let Err(error) = self.state.save_one(&self.boot, place, None) {
            self.note(at, format!("it will be set back at the end all the same: {error}"));
        }
    }

    /// Takes in that others have changed what is to be left at a place: it is `found` now.
    pub fn changed(&mut self, at: usize, found: String) {
        let original = &mut self.held[at].original;
        original.found = found;
        if let Err(error) = self.state.save_one(&self.boot, &original.place, Some(original)) {
            self.note(at, format!("it cannot be set back to what others have made it: {error}"));
        }
    }

    /// Sets a place whoever else sets it, each time anew: for an emergency. What somebody else has
    /// set there meanwhile is what was found.
    pub fn insist(&mut self, at: usize, value: &str, now: Nanos) -> Outcome {
        let is = self.read(at);
        let held = &mut self.held[at];
        if held.yielded {
            held.yielded = false;
            // What can do no harm is set even where that cannot be saved.
            let found = is.clone().unwrap_or_else(|_| held.original.found.clone());
            self.changed(at, found);
        }
        let held = &mut self.held[at];
        held.insisted = true;
        let taken = match (is, &mut held.knob) {
            (Ok(is), Ok(knob)) => knob.taken(&self.sys, value, &is),
            _ => Taken::Not,
        };
        if taken != Taken::So {
            held.set = None;
        }
        held.refused = None;
        self.put(at, Some(value), now)
    }

    /// What was read back after the last write, and when.
    #[must_use]
    pub fn read_back(&self, at: usize) -> Option<(Nanos, &str)> {
        self.held[at].read_back.as_ref().map(|(at, read)| (*at, read.as_str()))
    }

    /// Sets a place, or sets it back where there is no value.
    pub fn set(&mut self, at: usize, value: Option<&str>, now: Nanos) -> Outcome {
        self.held[at].insisted = false;
        self.put(at, value, now)
    }

    /// Writes what [`Self::set`] will set next, without waiting for it to come true: where many
    /// places are to be set at once, none waits for another.
    pub fn ask(&mut self, at: usize, value: Option<&str>) {
        let held = &mut self.held[at];
        if let (Ok(knob), true, false) = (&mut held.knob, held.touched, held.yielded) {
            // What goes wrong shows when it is set.
            let _ = knob.write(&self.sys, value.unwrap_or(&held.original.found));
        }
    }

    /// Puts on disk which places an end is to write: those that are other than they were found.
    ///
    /// # Errors
    /// Where that cannot be written: then an end writes places like these as well, and what was set
    /// in an emergency and is not known there is set back now.
    pub fn let_go(&mut self, now: Nanos) -> Result<(), StateError> {
        // Of those that are somebody else's only what is set back all the same is on disk.
        let is = |held: &Held| held.touched || held.yielded;
        let find = |place: &Place| self.held.iter().find(|held| held.original.place == *place);
        let saved = self.state.mark(|one| find(&one.place).map_or(one.touched, is));
        for at in 0..self.held.len() {
            let held = &mut self.held[at];
            if saved.is_ok() {
                held.original.touched = is(held);
            } else if held.touched && !held.original.touched {
                self.set(at, None, now);
            }
        }
        saved
    }

    /// Begins a cycle: reads back `count` of all places, in turn, but those that sleep, and follows
    /// the policy for those that somebody else has changed.
    pub fn check(&mut self, count: usize, now: Nanos, sleeps: impl Fn(usize) -> bool) {
        self.patience = PATIENCE;
        for _ in 0..count.min(self.held.len()) {
            let at = self.next;
            self.next = (at + 1) % self.held.len();
            if !sleeps(at) {
                self.check_one(at, now);
            }
        }
        for at in 0..self.held.len() {
            if self.held[at].stuck && !sleeps(at) {
                self.set(at, None, now);
            }
        }
    }

    fn check_one(&mut self, at: usize, now: Nanos) {
        let held = &mut self.held[at];
        let is_ours = !held.yielded && !held.insisted;
        let (Some((set, read)), Ok(knob), true) = (&held.set, &mut held.knob, is_ours) else {
            return;
        };
        let is = knob.read(&self.sys);
        if is.as_ref().is_ok_and(|is| is == read || is == set) {
            return;
        }
        let (set, read) = (set.clone(), read.clone());
        if is.as_ref().is_ok_and(|is| self.is_as_set(at, &set, is, now)) {
            return;
        }
        let held = &mut self.held[at];
        let (is, text) = match is {
            Ok(is) => {
                let text = format!("somebody else has changed it from '{read}' to '{is}'");
                (is, text)
            }
            Err(absent) => {
                // Gone, or not answering: what it takes to write it next time will say.
                let reason = absent.to_string();
                held.set = None;
                held.refused = Some((reason.clone(), now));
                return self.note(at, format!("'{set}' cannot be read back: {reason}"));
            }
        };
        if held.original.place.is_managed() && is == held.original.found {
            // Nobody who wants it otherwise: its manager has begun anew.
            held.set = None;
            held.refused = Some((text.clone(), now));
            return self.note(at, format!("{text}; it will be set once more"));
        }
        let first = held.reasserted.is_none_or(|then| now.saturating_sub(then) > WHILE);
        let remedy = match self.contest {
            Contest::Alarm => {
                // Once for each change.
                held.set = Some((set, is));
                "it is left so"
            }
            Contest::Reassert if first => {
                held.reasserted = Some(now);
                let written = self.write(at, &set);
                let held = &mut self.held[at];
                match written {
                    Ok(read) => {
                        held.read_back = Some((now, read.clone()));
                        held.set = Some((set, read));
                    }
                    Err(refusal) => {
                        held.set = None;
                        held.refused = Some((refusal.reason, now));
                    }
                }
                "it was set once more"
            }
            Contest::Yield | Contest::Reassert => {
                self.leave(at);
                "it is theirs until ebb starts anew"
            }
        };
        self.note(at, format!("{text}; {remedy}"));
    }

    /// Whether a place that reads otherwise than it is `set` is so all the same, or is so as far as
    /// is known: the driver of a fan may not have looked since the duty was another.
    fn is_as_set(&mut self, at: usize, set: &str, read: &str, now: Nanos) -> bool {
        let held = &mut self.held[at];
        if held.knob.as_mut().is_ok_and(|knob| knob.shown(&self.sys, set, read) != Taken::Not) {
            return true;
        }
        let duty = held.original.place.duty().filter(|_| (set, read) == (MANUAL, "0"));
        let written = duty.and_then(|duty| self.read_back(self.find(&duty)?));
        written.is_some_and(|(then, _)| now.saturating_sub(then) < CACHED)
    }

    /// How many places do not take what they are given, or are somebody else's.
    #[must_use]
    pub fn failing(&self, rests: impl Fn(usize) -> bool) -> usize {
        let is_failing = |held: &Held| held.yielded || held.refused.is_some();
        let all = self.held.iter().enumerate();
        all.filter(|(at, held)| is_failing(held) && !rests(*at)).count()
    }

    /// Whether a place does not take what it is given.
    #[must_use]
    pub fn refuses(&self, at: usize) -> bool {
        self.held[at].refused.is_some()
    }

    /// Whether it may be other than it was found.
    #[must_use]
    pub fn is_changed(&self, at: usize) -> bool {
        self.held[at].touched
    }

    /// What happened since this was last asked.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Says something of a place.
    pub fn note(&mut self, at: usize, text: String) {
        self.tell(self.held[at].original.place.clone(), text);
    }

    /// Says something of a place that need not be here.
    pub fn tell(&mut self, place: Place, text: String) {
        self.notices.push(Notice { place, text });
    }
}

/// Of a control that has no place here.
pub(crate) fn refused(asked: bool) -> Outcome {
    if asked { Outcome::Refused } else { Outcome::Done }
}

/// The first that is not done.
pub(crate) fn worse(one: Outcome, other: Outcome) -> Outcome {
    if one == Outcome::Done { other } else { one }
}

#[cfg(test)]
mod tests;
