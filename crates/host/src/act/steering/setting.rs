//! Sets places, and gives them back.
//!
//! What is not taken is undone at once: the place goes back to what it was set to before, else to
//! what was found. What cannot be given back is set to what can do no harm, stays in hand, and is
//! tried again.

use ebb_policy::Outcome;
use ebb_policy::units::Nanos;

use super::{RETRY, Steering};
use crate::act::knob::{Knob, Set, Taken};
use crate::act::originals::Original;
use crate::sys::Absent;

/// Why a place did not take something.
pub(super) struct Refusal {
    /// The reason.
    pub reason: String,
    /// What to do, where that is known.
    remedy: Option<&'static str>,
    /// Whether it was written, and is otherwise all the same.
    is_otherwise: bool,
}

impl Refusal {
    fn new(reason: String) -> Self {
        Self { reason, remedy: None, is_otherwise: false }
    }
}

impl From<Absent> for Refusal {
    fn from(absent: Absent) -> Self {
        Self { remedy: absent.remedy(), ..Self::new(absent.to_string()) }
    }
}

impl Steering {
    pub(super) fn put(&mut self, at: usize, value: Option<&str>, now: Nanos) -> Outcome {
        let held = &mut self.held[at];
        if held.yielded {
            return Outcome::Changed;
        }
        let Some(asked) = value else { return self.give_back(at, true, now) };
        let place = &held.original.place;
        assert!(place.can_be(asked), "{place} cannot be {asked:?}");
        let was = held.set.as_ref().map(|(set, _)| set.clone());
        if was.as_deref() == Some(asked) {
            held.stuck = false;
            return Outcome::Done;
        }
        if self.rests(at, now) {
            return Outcome::Refused;
        }
        let held = &self.held[at];
        let (is_ready, insisted) = (held.touched, held.insisted);
        let ready = if is_ready { Ok(()) } else { self.touch(at) };
        // An emergency does not wait for a disk.
        let ready = if insisted { Ok(()) } else { ready };
        let written = ready.map_err(Refusal::new).and_then(|()| {
            self.held[at].touched = true;
            self.write(at, asked)
        });
        match written {
            Ok(read) => {
                let held = &mut self.held[at];
                (held.refused, held.stuck) = (None, false);
                self.took(at, asked, read, now);
                Outcome::Done
            }
            Err(refusal) => {
                let is_otherwise = refusal.is_otherwise;
                self.refuse(at, refusal, now);
                // In an emergency it may be better than before.
                if !insisted {
                    self.undo(at, was, is_otherwise, now);
                }
                Outcome::Refused
            }
        }
    }

    /// Whether it has refused something, and is not tried again yet.
    #[must_use]
    pub fn rests(&self, at: usize, now: Nanos) -> bool {
        let refused = self.held[at].refused.as_ref();
        refused.is_some_and(|(_, since)| now.saturating_sub(*since) < RETRY)
    }

    /// Sets a place back, and remembers what it has refused.
    pub fn take_back(&mut self, at: usize, now: Nanos) -> Outcome {
        match self.held[at].yielded {
            true => Outcome::Changed,
            false => self.give_back(at, false, now),
        }
    }

    fn took(&mut self, at: usize, asked: &str, read: String, now: Nanos) {
        let held = &mut self.held[at];
        held.read_back = Some((now, read.clone()));
        held.set = Some((asked.to_owned(), read));
        held.assert_state();
    }

    /// Undoes what was not taken.
    fn undo(&mut self, at: usize, was: Option<String>, is_otherwise: bool, now: Nanos) {
        let held = &mut self.held[at];
        // It may come true yet; what is there then is nobody else's.
        if held.knob.as_ref().is_ok_and(Knob::is_late) && (is_otherwise || was.is_some()) {
            held.set = None;
            return;
        }
        if let Some(was) = was
            && let Ok(read) = self.write(at, &was)
        {
            return self.took(at, &was, read, now);
        }
        self.held[at].set = None;
        self.give_back(at, false, now);
    }

    /// Sets a place back to what was found; where that was `asked`, nothing is refused any more.
    fn give_back(&mut self, at: usize, asked: bool, now: Nanos) -> Outcome {
        let held = &mut self.held[at];
        if !held.touched {
            held.refused.take_if(|_| asked);
            return Outcome::Done;
        }
        // What has refused a value takes what was found all the same.
        let is_stuck = held.stuck;
        if is_stuck && self.rests(at, now) || self.is_by_hand(at) {
            self.make_safe(at, now);
            return Outcome::Refused;
        }
        let found = self.held[at].original.found.clone();
        match self.back(at, &found) {
            Ok(read) => {
                let held = &mut self.held[at];
                (held.touched, held.set, held.stuck) = (false, None, false);
                held.read_back = Some((now, read));
                held.refused.take_if(|_| asked);
                held.assert_state();
                Outcome::Done
            }
            Err(mut refusal) => {
                self.held[at].stuck = true;
                let safe = self.make_safe(at, now);
                if !safe.is_empty() {
                    let (reason, safe) = (&refusal.reason, safe.join(", "));
                    refusal.reason = format!("'{found}' is not taken back: {reason}; now {safe}");
                    refusal.remedy = refusal.remedy.or(self.place(at).stuck());
                }
                self.refuse(at, refusal, now);
                Outcome::Refused
            }
        }
    }

    /// Whether it is the duty of a fan whose mode cannot be given back.
    fn is_by_hand(&self, at: usize) -> bool {
        let duty = Some(self.place(at).clone());
        self.held.iter().any(|held| held.stuck && held.original.place.duty() == duty)
    }

    /// Sets what cannot be given back to what can do no harm: a fan by hand to full speed. What
    /// was set, and to what.
    fn make_safe(&mut self, at: usize, now: Nanos) -> Vec<String> {
        let duty = self.place(at).duty().and_then(|duty| self.find(&duty));
        let mut safe = Vec::new();
        for at in std::iter::once(at).chain(duty) {
            let held = &mut self.held[at];
            let Original { place, found, safe: value, .. } = held.original.clone();
            if held.yielded || value == found {
                continue;
            }
            (held.touched, held.stuck) = (true, true);
            let is_so = held.set.as_ref().is_some_and(|(set, _)| *set == value);
            if !is_so {
                let Ok(read) = self.write(at, &value) else { continue };
                self.took(at, &value, read, now);
            }
            safe.push(format!("{place} is '{value}'"));
        }
        safe
    }

    /// Remembers a refusal, and says what is new.
    fn refuse(&mut self, at: usize, refusal: Refusal, now: Nanos) {
        let Refusal { reason, remedy, .. } = refusal;
        let held = &mut self.held[at];
        let known = held.refused.as_ref().is_some_and(|(known, _)| *known == reason);
        held.refused = Some((reason.clone(), now));
        if !known {
            self.note(at, reason);
        }
        if let Some(remedy) = remedy.filter(|remedy| !self.advised.contains(remedy)) {
            self.advised.push(remedy);
            self.note(at, remedy.to_owned());
        }
    }

    /// Takes in what others have made of a place, and puts on disk that it, and places like it, may
    /// be other than they were found from now on.
    fn touch(&mut self, at: usize) -> Result<(), String> {
        let is = self.read(at);
        let Original { place, found, .. } = self.held[at].original.clone();
        if let (Ok(is), Ok(knob)) = (is, &mut self.held[at].knob)
            && place.is_as_written()
            && knob.taken(&self.sys, &found, &is) == Taken::Not
            && (Original { found: is.clone(), ..self.held[at].original.clone() }).check().is_ok()
        {
            let text = format!("somebody else has changed it from '{found}' to '{is}'");
            self.note(at, format!("{text} before ebb set it: '{is}' comes back at the end"));
            self.changed(at, is);
        }
        if !self.held[at].original.touched {
            let saved = self.state.mark(|one| one.touched || one.place.is_alike(&place));
            saved
                .map_err(|error| format!("it is not set, for it could not be set back: {error}"))?;
            for held in &mut self.held {
                held.original.touched |= held.original.place.is_alike(&place);
            }
        }
        Ok(())
    }

    /// Writes, unless it is so already, and reads back.
    pub(super) fn write(&mut self, at: usize, value: &str) -> Result<String, Refusal> {
        let knob = self.held[at].knob.as_mut().map_err(|absent| absent.clone())?;
        read_back(value, knob.set(&self.sys, value, &mut self.patience)?)
    }

    /// The same of what was found.
    fn back(&mut self, at: usize, found: &str) -> Result<String, Refusal> {
        let knob = self.held[at].knob.as_mut().map_err(|absent| absent.clone())?;
        read_back(found, knob.give_back(&self.sys, found, &mut self.patience)?)
    }
}

/// What is read back of a `value` that was taken.
fn read_back(value: &str, set: Set) -> Result<String, Refusal> {
    let Set { is, taken, .. } = set;
    match taken {
        Taken::Not => {
            let reason = format!("'{value}' was written, '{is}' is read back");
            Err(Refusal { is_otherwise: true, ..Refusal::new(reason) })
        }
        _ => Ok(is),
    }
}
