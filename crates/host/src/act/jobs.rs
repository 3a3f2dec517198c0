//! Jobs, which are control groups (`Documentation/admin-guide/cgroup-v2.rst`): what share of the
//! time each may run (`cpu.max`), and whether those that come may start (`cgroup.freeze`).
//!
//! ```text
//!            has tasks, and its class is not admitted
//!   absent ───────────────────────────────────────────► waiting (frozen)
//!     ▲ │  has tasks                                       │ admitted
//!     │ └────────────────────► running ◄───────────────────┘
//!     └──────────────────────── has none
//! ```
//!
//! As in the twin a job that runs is not held still again. Only jobs of the class that matters
//! least are held still at all: the wait of another one could cost its users what no watt is worth.

use ebb_policy::units::Nanos;
use ebb_policy::{Control, InForce, Outcome, QosClass};

use crate::act::knob::{CGROUPS, Knob, Place};
use crate::act::originals::{Leave, Original, State};
use crate::act::owned::StateError;
use crate::act::steering::{Steering, worse};
use crate::find::jobs::{Seen, turn_on};
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sys::{Absent, Sys};

/// The class whose jobs may be held still.
pub const WAITS: QosClass = QosClass::Noncritical;
/// The files of a job.
pub const QUOTA: &str = "cpu.max";
pub const FREEZE: &str = "cgroup.freeze";
/// A period may overshoot by the jitter of its two ends, as the guard has it: a job that keeps one
/// core busy needs no second one.
const JITTER: f64 = 0.05;
/// The kernel takes no shorter quota, in us (`min_cfs_quota_period` in `kernel/sched/core.c`).
const LEAST: f64 = 1_000.0;

/// All jobs.
#[derive(Debug)]
pub struct Jobs {
    sys: Sys,
    boot: String,
    state: State,
    jobs: Vec<Job>,
    /// Whether they were seen before: those that are there from the start run.
    begun: bool,
}

#[derive(Debug)]
struct Job {
    group: String,
    class: QosClass,
    seen: Seen,
    /// The group whose places are in hand, and these.
    taken: Option<u64>,
    quota: Option<usize>,
    freeze: Option<usize>,
    /// The most cores that it kept busy while nothing held it back.
    cores: Option<f64>,
    /// Whether nothing held it back in this period.
    free: bool,
    runs: bool,
    /// What stood in the way last; it is told once.
    trouble: Option<String>,
}

impl Jobs {
    /// Those of `layout`; none is looked at yet.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout, state: State) -> Self {
        let jobs = layout.jobs.iter().map(|job| Job {
            group: job.group.clone(),
            class: job.class,
            seen: Seen::default(),
            taken: None,
            quota: None,
            freeze: None,
            cores: None,
            free: false,
            runs: false,
            trouble: None,
        });
        let boot = machine.boot().unwrap_or_default();
        Self { sys: machine.sys.clone(), boot, state, jobs: jobs.collect(), begun: false }
    }

    /// Hears what was seen of them in the period that ends now, and takes those that have come in
    /// hand: what was found of them is on disk when this returns.
    pub fn sensed(&mut self, seen: &[Seen], steering: &mut Steering) {
        for (job, seen) in self.jobs.iter_mut().zip(seen) {
            job.sensed(*seen);
            let looked = job.look((&self.sys, &self.boot, &self.state), steering);
            job.note(looked, steering);
        }
    }

    /// Puts in force what is given of them.
    pub fn set(
        &mut self,
        given: &InForce,
        steering: &mut Steering,
        now: Nanos,
        tell: &mut impl FnMut(Control, usize, Outcome),
    ) {
        let mut waits = None;
        for (slot, job) in self.jobs.iter_mut().enumerate() {
            let asked = given.job_share.at(slot).given;
            tell(Control::JobShare, slot, job.set_share(asked, steering, now));
            let outcome = job.admit(!self.begun || given.admits(job.class), steering, now);
            if job.class == WAITS {
                waits = Some(waits.map_or(outcome, |other| worse(other, outcome)));
            }
        }
        self.begun = true;
        for class in QosClass::ALL {
            let kept_out = given.admit.at(class as usize).given == Some(false);
            let nowhere = refused(kept_out);
            let outcome = if class == WAITS { waits.unwrap_or(nowhere) } else { nowhere };
            tell(Control::Admit, class as usize, outcome);
        }
    }
}

impl Job {
    fn sensed(&mut self, seen: Seen) {
        self.seen = seen;
        if !seen.present {
            self.cores = None;
        } else if let Some(used) = seen.cores.filter(|_| self.free) {
            let cores = (used - JITTER).ceil().max(1.0);
            self.cores = Some(self.cores.map_or(cores, |most| most.max(cores)));
        }
    }

    fn place(&self, file: &str) -> Place {
        Place::File { path: format!("{CGROUPS}/{}/{file}", self.group) }
    }

    /// Takes the places of a group that has come in hand, which are on disk when this returns, and
    /// lets go of those of one that has gone. What stands in the way of some.
    fn look(
        &mut self,
        (sys, boot, state): (&Sys, &str, &State),
        steering: &mut Steering,
    ) -> Result<Option<String>, StateError> {
        if self.taken == self.seen.group {
            return Ok(self.trouble.clone());
        }
        for at in [self.quota.take(), self.freeze.take()].into_iter().flatten() {
            state.forget(steering.place(at))?;
            steering.forget(at);
        }
        let (mut new, mut trouble) = (Vec::new(), None);
        if self.seen.group.is_some() {
            let freeze = (self.class == WAITS).then(|| self.original(sys, FREEZE));
            for original in [Some(self.original(sys, QUOTA)), freeze].into_iter().flatten() {
                match original {
                    Ok(original) => new.push(original),
                    Err(reason) => trouble = trouble.or(Some(reason)),
                }
            }
        }
        let places: Vec<_> = new.iter().map(|original| original.place.clone()).collect();
        let saved = if new.is_empty() { Vec::new() } else { state.save(boot, new)?.originals };
        // One that an earlier start has not given back is there as it was found then.
        for original in saved.into_iter().filter(|saved| places.contains(&saved.place)) {
            let Place::File { path } = &original.place else { continue };
            let (knob, freezes) = (Knob::of_group(sys, path), original.place.freezes());
            let at = Some(steering.take(original, knob));
            if freezes { self.freeze = at } else { self.quota = at }
        }
        (self.taken, self.free) = (self.seen.group, false);
        Ok(trouble)
    }

    /// What is to be given back to a group.
    fn original(&self, sys: &Sys, file: &str) -> Result<Original, String> {
        let place = self.place(file);
        let read = Knob::of_group(sys, &format!("{CGROUPS}/{}/{file}", self.group))
            .and_then(|mut knob| knob.settable(sys).and_then(|()| knob.read(sys)));
        let found = read.map_err(|absent| match absent {
            Absent::Missing(_) if file == QUOTA => format!(
                "no share of the time can be set: there is no {QUOTA}, for the cpu controller is \
                 off; {}, from the next start of the group on",
                turn_on(&self.group, "CPUWeight=100")
            ),
            absent => format!("it is not steered, for it could not be set back: {absent}"),
        })?;
        let original = Original { place, safe: found.clone(), found, leave: Leave::Restore };
        original.check().map(|()| original)
    }

    /// Tells what stands in the way, once.
    fn note(&mut self, looked: Result<Option<String>, StateError>, steering: &mut Steering) {
        let trouble = looked.unwrap_or_else(|error| Some(format!("it stays as it is: {error}")));
        if trouble != self.trouble
            && let Some(text) = &trouble
        {
            steering.tell(self.place(QUOTA), text.clone());
        }
        self.trouble = trouble;
    }

    /// Leaves the job the share `asked` of the time of the cores that it needs, which is known once
    /// it has run for a period. Where that is as much as was found it is released.
    fn set_share(&mut self, asked: Option<f64>, steering: &mut Steering, now: Nanos) -> Outcome {
        let asked = asked.filter(|share| *share < 1.0 && self.seen.present);
        let Some(at) = self.quota else { return refused(asked.is_some()) };
        let value = asked.zip(self.cores);
        let value = value.and_then(|(share, cores)| quota(steering.found(at), share, cores));
        let outcome = steering.set(at, value.as_deref(), now);
        self.free = !steering.is_set(at);
        outcome
    }

    /// Lets a job that has come start, or holds it still.
    fn admit(&mut self, admits: bool, steering: &mut Steering, now: Nanos) -> Outcome {
        self.runs = self.seen.present && (self.runs || admits);
        let waits = self.seen.present && !self.runs;
        match self.freeze {
            Some(at) => steering.set(at, waits.then_some("1"), now),
            None => refused(waits),
        }
    }
}

fn refused(asked: bool) -> Outcome {
    if asked { Outcome::Refused } else { Outcome::Done }
}

/// The quota of a job that needs `cores` and may run for `share` of the time, in whole percent;
/// `None` where that is no less than what was `found`.
fn quota(found: &str, share: f64, cores: f64) -> Option<String> {
    let (most, period) = found.split_once(' ')?;
    let most = most.parse::<f64>().unwrap_or(f64::INFINITY);
    let own = period.parse::<f64>().ok()?;
    let time = (cores * own).min(most);
    let quota = ((100.0 * share).round() / 100.0 * time).round().max(LEAST);
    (quota < most).then(|| format!("{quota:.0} {period}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_share_of_what_a_job_needs_and_never_more_than_was_found() {
        for (found, share, cores, quota_is) in [
            ("max 100000", 0.5, 1.0, Some("50000 100000")),
            ("max 100000", 0.504, 4.0, Some("200000 100000")),
            ("max 50000", 0.1, 8.0, Some("40000 50000")),
            ("50000 100000", 0.5, 1.0, Some("25000 100000")),
            ("200000 100000", 0.5, 1.0, Some("50000 100000")),
            ("max 5000", 0.1, 1.0, Some("1000 5000")),
            ("1000 5000", 0.1, 1.0, None),
            ("max", 0.1, 1.0, None),
        ] {
            assert_eq!(quota(found, share, cores).as_deref(), quota_is, "{found} {share} {cores}");
        }
    }
}
