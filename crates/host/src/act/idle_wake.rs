//! Which idle states a drive may enter by itself (APST), by the longest wake-up that is tolerated.
//!
//! The kernel owns the drive's table of transitions (NVMe Base, Feature 0Ch) and makes it from
//! [`TOLERANCE`](crate::act::place::TOLERANCE): every non-operational state whose exit latency is
//! no longer than that, and none at 0 (`nvme_configure_apst`; Linux 4.11 and 4.12 count the entry
//! latency too, so they allow less). The exit latency is what a request waits for in an idle state,
//! which is what the control means; one that comes while the drive is about to enter the state
//! waits for that as well.

use ebb_policy::Outcome;
use ebb_policy::units::Nanos;

use crate::act::contact::Attempt;
use crate::act::knob::{Knob, Place};
use crate::act::steering::Steering;
use crate::find::layout::{DriveParts, Layout};
use crate::find::machine::Machine;

/// Where it is set for a drive that has idle states and can enter them by itself.
#[must_use]
pub fn place(parts: &DriveParts) -> Option<Place> {
    let identity = parts.identity.as_ref()?;
    (!identity.idle_wakes().is_empty())
        .then(|| Some(Place::IdleWake { drive: parts.drive.saved.clone()? }))?
}

/// What an operator should know of drives whose idle states somebody has turned off.
#[must_use]
pub fn off(machine: &Machine, layout: &Layout) -> Vec<String> {
    let drives = layout.drives.iter().filter_map(|parts| Some((place(parts)?, parts)));
    let is_off = |place: &Place| {
        let found = Knob::find(machine, place).and_then(|mut knob| knob.read(&machine.sys));
        found.is_ok_and(|found| tolerance(&found) == 0)
    };
    let off = drives.filter(|(place, _)| is_off(place)).map(|(_, parts)| &*parts.drive.name);
    let off = off.collect::<Vec<_>>().join(", ");
    let text = format!(
        "idle states of {off} are turned off (pm_qos_latency_tolerance_us is 0) and stay off; \
         policies may use them with machine.raise_limits = true"
    );
    if off.is_empty() { Vec::new() } else { vec![text] }
}

/// Of one drive.
#[derive(Debug)]
pub struct IdleWake {
    /// Where it is set.
    at: usize,
    /// Wake-ups of its idle states in us; 0 where the drive does not tell.
    wakes: Vec<u64>,
    /// Whether more than what was found may be tolerated. Less never is: it would cost power for a
    /// latency that nobody asked for.
    raises: bool,
}

impl IdleWake {
    /// In place `at`, of a drive whose idle states have these `wakes`.
    #[must_use]
    pub fn new(at: usize, wakes: &[Nanos], raises: bool) -> Self {
        Self { at, wakes: wakes.iter().map(|wake| wake.0 / 1_000).collect(), raises }
    }

    /// Lets the drive enter the states that wake within `asked`, or those found.
    pub fn set(&self, asked: Option<Nanos>, steering: &mut Steering, now: Nanos) -> Outcome {
        let value = asked.and_then(|asked| self.value(asked.0 / 1_000, steering.found(self.at)));
        steering.set(self.at, value.map(|us| us.to_string()).as_deref(), now)
    }

    /// What it is tried with, if it may be set: no idle states, where there were any.
    #[must_use]
    pub fn attempt(&self, steering: &Steering) -> Option<Attempt> {
        let found = tolerance(steering.found(self.at));
        (self.raises && found > 0)
            .then(|| Attempt { writes: vec![(self.at, "0".to_owned())], bounds: None })
    }

    /// What to set for `asked` us; `None` where what was `found` does it. It is the wake-up of the
    /// deepest state allowed: each write is a command to the drive, so a wish that allows the same
    /// states is the same value.
    fn value(&self, asked: u64, found: &str) -> Option<u64> {
        // Of a state whose wake-up nobody knows it is not known to be within anything.
        let known = self.wakes.iter().all(|wake| *wake > 0);
        let deepest = if known { self.deepest(asked) } else { 0 };
        let found = self.deepest(tolerance(found));
        (self.raises && deepest > found).then_some(deepest)
    }

    /// The longest wake-up of those that the kernel allows under a tolerance, in us.
    fn deepest(&self, tolerance: u64) -> u64 {
        let allowed = self.wakes.iter().filter(|wake| tolerance > 0 && **wake <= tolerance);
        // One that is not known may be any.
        allowed.map(|wake| if *wake == 0 { u64::MAX } else { *wake }).max().unwrap_or(0)
    }
}

/// A tolerance in us; all states are allowed by `any` and, where nobody has set one, by `auto`.
#[must_use]
pub fn tolerance(text: &str) -> u64 {
    text.parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_deepest_state_that_is_allowed_and_never_less_than_was_found() {
        let drive = |raises| IdleWake { at: 0, wakes: vec![200, 10_000], raises };
        for (asked, found, raised) in [
            (300, "100000", None),
            (9_999, "any", None),
            (100, "auto", None),
            (50_000, "auto", None),
            (300, "0", Some(200)),
            (10_000, "5000", Some(10_000)),
            (300, "5000", None),
            (0, "0", None),
        ] {
            assert_eq!(drive(false).value(asked, found), None, "{asked} {found}");
            assert_eq!(drive(true).value(asked, found), raised, "{asked} {found}");
        }
        let unknown = IdleWake { at: 0, wakes: vec![200, 0], raises: true };
        assert_eq!(unknown.value(300, "0"), None, "its wake-up may be any");
    }
}
