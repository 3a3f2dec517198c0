//! The trial of a run: when everything is as it was found, and what that says.

use std::time::SystemTime;

use ebb_cli::out;
use ebb_policy::Signals;
use ebb_policy::units::Nanos;

use super::Work;
use crate::run::events::Event;
use crate::run::trial::{Stated, Trial, measured};

/// A trial, and whether it is told that nothing measures.
pub(super) struct Trying {
    trial: Trial,
    is_told: bool,
}

impl Trying {
    /// One as stated.
    pub fn new(stated: Stated) -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self { trial: Trial::new(stated, since.as_nanos() as u64), is_told: false }
    }
}

impl Work<'_> {
    /// What was tried so far is of other settings: another window begins.
    pub(super) fn try_again(&mut self) {
        let now = self.host.now();
        self.trying.iter_mut().for_each(|trying| trying.trial.begin(now));
        self.as_found = None;
    }

    /// Begins or ends a block as found, where it is time.
    pub(super) fn follow_trial(&mut self) -> anyhow::Result<()> {
        if self.trying.is_none() {
            return Ok(());
        }
        // A budget of watts holds without a break.
        let held = self.in_force().held;
        if held.ssd_budget.or(held.server_budget).is_some() {
            self.try_again();
        }
        let (now, before) = (self.host.now(), self.before);
        let until = self.trying.as_ref().and_then(|trying| trying.trial.found_until(now));
        let until = until.map(|until| until + before);
        if until == self.as_found {
            return Ok(());
        }
        self.as_found = until;
        self.go_by(&self.config.clone(), self.effect.clone())
    }
}

/// Takes in a cycle of a run whose parts began `before` its own start.
pub(super) fn see(
    trying: &mut Trying,
    policy: &str,
    before: Nanos,
    signals: &Signals,
) -> Option<Event> {
    if !trying.is_told && measured(signals).is_none() {
        trying.is_told = true;
        out::note("trial: nothing measures power here, so nothing is tried");
    }
    let unix_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
    let pair = trying.trial.see(signals.now, policy, unix_s, signals)?;
    Some(Event::Tried { at: signals.now + before, pair })
}
