//! Jobs, which are control groups (`Documentation/admin-guide/cgroup-v2.rst`): what share of the
//! time each may run (`cpu.max`), on which socket (`cpuset.cpus`), and whether those that come may
//! start (`cgroup.freeze`).
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

use crate::act::groups;
use crate::act::knob::{CGROUPS, Knob, Place};
use crate::act::originals::Original;
use crate::act::owned::StateError;
use crate::act::steering::{Steering, refused, worse};
use crate::find::jobs::{Seen, turn_on};
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sys::{Absent, Sys, cpu_list, cpus};

/// The class whose jobs may be held still.
pub const WAITS: QosClass = QosClass::Noncritical;
/// The files of a job.
pub const QUOTA: &str = "cpu.max";
pub const FREEZE: &str = "cgroup.freeze";
pub const CPUSET: &str = "cpuset.cpus";
/// A period may overshoot by the jitter of its two ends, as the guard has it: a job that keeps one
/// core busy needs no second one.
const JITTER: f64 = 0.05;
/// The kernel takes no shorter quota, in us (`min_cfs_quota_period` in `kernel/sched/core.c`).
const LEAST: f64 = 1_000.0;

/// All jobs.
#[derive(Debug)]
pub struct Jobs {
    sys: Sys,
    /// CPUs of each socket.
    sockets: Vec<Vec<u16>>,
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
    cpuset: Option<usize>,
    freeze: Option<usize>,
    /// The most cores that it kept busy while nothing held it back.
    cores: Option<f64>,
    /// Whether nothing held it back in this period.
    free: bool,
    runs: bool,
    /// What stood in the way last; it is told once.
    trouble: Option<String>,
    /// Why it stays on its sockets, and what of that was told: only where it is asked to move.
    stays: Option<String>,
    told: Option<String>,
}

impl Jobs {
    /// Those of `layout`; none is looked at yet.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout) -> Self {
        let jobs = layout.jobs.iter().map(|job| Job {
            group: job.group.clone(),
            class: job.class,
            seen: Seen::default(),
            taken: None,
            quota: None,
            cpuset: None,
            freeze: None,
            cores: None,
            free: false,
            runs: false,
            trouble: None,
            stays: None,
            told: None,
        });
        let (sys, sockets) = (machine.sys.clone(), sockets(machine));
        Self { sys, sockets, jobs: jobs.collect(), begun: false }
    }

    /// Hears what was seen of them in the period that ends now, and takes those that have come in
    /// hand: what was found of them is on disk when this returns.
    pub fn sensed(&mut self, seen: &[Seen], steering: &mut Steering) {
        for (job, seen) in self.jobs.iter_mut().zip(seen) {
            job.sensed(*seen);
            let looked = job.look(&self.sys, &self.sockets, steering);
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
            let asked = given.job_socket.at(slot).given;
            let cpus = asked.and_then(|socket| self.sockets.get(usize::from(socket)));
            tell(Control::JobSocket, slot, job.move_to(cpus, &self.sys, steering, now));
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
        match file {
            CPUSET => Place::Cpuset { group: self.group.clone() },
            _ => Place::File { path: format!("{CGROUPS}/{}/{file}", self.group) },
        }
    }

    /// Takes the places of a group that has come in hand, which are on disk when this returns, and
    /// lets go of those of one that has gone. What stands in the way of some.
    fn look(
        &mut self,
        sys: &Sys,
        sockets: &[Vec<u16>],
        steering: &mut Steering,
    ) -> Result<Option<String>, StateError> {
        if self.taken == self.seen.group {
            return Ok(self.trouble.clone());
        }
        let taken = [self.quota.take(), self.cpuset.take(), self.freeze.take()];
        for at in taken.into_iter().flatten() {
            steering.disown(at)?;
        }
        let (mut new, mut trouble) = (Vec::new(), None);
        if self.seen.group.is_some() {
            self.stays = stays(sys, &self.group, sockets);
            let cpuset = self.stays.is_none().then(|| self.original(sys, CPUSET));
            let freeze = (self.class == WAITS).then(|| self.original(sys, FREEZE));
            for original in [Some(self.original(sys, QUOTA)), cpuset, freeze].into_iter().flatten()
            {
                match original {
                    Ok(original) => new.push(original),
                    Err(reason) => trouble = trouble.or(Some(reason)),
                }
            }
        }
        for at in steering.adopt(new, |place| self.knob(sys, place))? {
            let own = match steering.place(at) {
                Place::Cpuset { .. } => &mut self.cpuset,
                place if place.freezes() => &mut self.freeze,
                _ => &mut self.quota,
            };
            *own = Some(at);
        }
        (self.taken, self.free) = (self.seen.group, false);
        Ok(trouble)
    }

    fn knob(&self, sys: &Sys, place: &Place) -> Result<Knob, Absent> {
        match place {
            Place::File { path } => Knob::of_group(sys, path),
            _ => Knob::cpuset(sys, &self.group),
        }
    }

    /// What is to be given back to a group.
    fn original(&self, sys: &Sys, file: &str) -> Result<Original, String> {
        let place = self.place(file);
        let knob = self.knob(sys, &place);
        Original::of(place, knob, sys).map_err(|absent| match absent {
            Absent::Missing(_) if file == QUOTA => format!(
                "no share of the time can be set: there is no {QUOTA}, for the cpu controller is \
                 off; {}, from the next start of the group on",
                turn_on(&self.group, "CPUWeight=100")
            ),
            absent => format!("it is not steered, for it could not be set back: {absent}"),
        })
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

    /// Moves the job to those of its CPUs that are among `to`, for as long as that is asked. What
    /// its threads are bound to Linux before 6.2 forgets then, so those that are stay.
    fn move_to(
        &mut self,
        to: Option<&Vec<u16>>,
        sys: &Sys,
        steering: &mut Steering,
        now: Nanos,
    ) -> Outcome {
        let to = to.filter(|_| self.seen.present);
        let Some(at) = self.cpuset else { return self.stay(to.is_some(), steering) };
        let Some(to) = to else { return steering.set(at, None, now) };
        if !steering.is_set(at) && has_bound(sys, &self.group) {
            self.stays = Some("some of its threads are bound to CPUs of their own".to_owned());
            return self.stay(true, steering);
        }
        let mut own = cpus(steering.found(at)).unwrap_or_default();
        own.retain(|cpu| to.contains(cpu));
        if own.is_empty() { Outcome::Refused } else { steering.set(at, Some(&cpu_list(&own)), now) }
    }

    /// Does not move it, and tells why, once, where that was `asked`.
    fn stay(&mut self, asked: bool, steering: &mut Steering) -> Outcome {
        if asked
            && self.stays != self.told
            && let Some(reason) = &self.stays
        {
            let text = format!("it stays on the sockets that it is on: {reason}");
            steering.tell(self.place(CPUSET), text);
            self.told.clone_from(&self.stays);
        }
        refused(asked)
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

/// The CPUs of each socket.
pub fn sockets(machine: &Machine) -> Vec<Vec<u16>> {
    let mut all = Vec::new();
    for cpu in &machine.cpus.cpus {
        let socket = usize::from(cpu.socket);
        all.resize_with(all.len().max(socket + 1), Vec::new);
        all[socket].push(cpu.number);
    }
    all
}

/// Why a job stays on the sockets that it is on; `None` where it can be moved and moved back.
pub fn stays(sys: &Sys, group: &str, sockets: &[Vec<u16>]) -> Option<String> {
    if sockets.len() < 2 {
        return Some("there is one socket only".to_owned());
    }
    if !group.contains('/') {
        return Some("its list of CPUs keeps it from parked cores: name a group below it".into());
    }
    let own = sys.cpus(format!("{CGROUPS}/{group}/{CPUSET}")).unwrap_or_default();
    let on = sockets.iter().filter(|cpus| cpus.iter().any(|cpu| own.contains(cpu))).count();
    match (own.is_empty(), on) {
        (true, _) => {
            let mut all = sockets.concat();
            all.sort_unstable();
            let list = turn_on(group, &format!("AllowedCPUs={}", cpu_list(&all)));
            Some(format!(
                "it has no list of CPUs of its own, which could not be taken back; {list}"
            ))
        }
        (_, 0 | 1) => Some("its list of CPUs has those of one socket alone".to_owned()),
        _ => None,
    }
}

/// Whether a thread of a group is bound to fewer CPUs than the group has.
fn has_bound(sys: &Sys, group: &str) -> bool {
    let all = sys.cpus(format!("{CGROUPS}/{group}/cpuset.cpus.effective")).unwrap_or_default();
    let threads = groups::threads(sys, group, usize::MAX);
    threads.iter().any(|thread| sys.affinity(thread).is_ok_and(|own| own.len() < all.len()))
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
