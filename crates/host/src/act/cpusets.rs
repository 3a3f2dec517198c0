//! Keeps the tasks of control groups from parked CPUs: by the lists of those directly below the
//! root, each of which is saved first. The root group, with the kernel's threads, is never touched.

use std::collections::BTreeMap;

use ebb_policy::Outcome;
use ebb_policy::units::Nanos;

use crate::act::groups::{self, CGROUPS};
use crate::act::knob::{Knob, Place};
use crate::act::originals::Original;
use crate::act::owned::StateError;
use crate::act::steering::{Steering, worse};
use crate::act::tasks::usual;
use crate::find::cpus::shared;
use crate::find::machine::Machine;
use crate::sys::{Sys, cpu_list, cpus};

/// Time from one look for new groups to the next.
const LOOK: Nanos = Nanos::from_secs(2);

/// What a cpuset needs.
#[must_use]
pub fn controller() -> Place {
    Place::Controller { name: "cpuset".to_owned() }
}

/// The groups, and what was made of them.
#[derive(Debug)]
pub struct Cpusets {
    sys: Sys,
    /// Where the controller is set.
    controller: usize,
    /// The CPUs that any task may use where nothing is parked.
    all: Vec<u16>,
    /// Names, and where their lists are set.
    taken: Vec<(String, usize)>,
    /// Those that are left alone, and why.
    left: BTreeMap<String, String>,
    looked: Option<Nanos>,
}

impl Cpusets {
    /// Those of `machine`; none is looked at yet.
    #[must_use]
    pub fn new(machine: &Machine, steering: &Steering) -> Option<Self> {
        let controller = steering.find(&controller())?;
        let sys = machine.sys.clone();
        let all = shared(&sys, &usual(&sys));
        let (taken, left, looked) = Default::default();
        Some(Self { sys, controller, all, taken, left, looked })
    }

    /// Looks for groups, but not twice in a while: whether there are new ones, which are on disk
    /// when this returns.
    ///
    /// # Errors
    /// Where it cannot be saved; then no new group may be changed.
    pub fn look(&mut self, steering: &mut Steering, now: Nanos) -> Result<bool, StateError> {
        if self.looked.is_some_and(|looked| now.saturating_sub(looked) < LOOK) {
            return Ok(false);
        }
        let names = groups::below_root(&self.sys);
        let (sys, taken) = (&self.sys, &mut self.taken);
        let is_gone = |name: &str| !sys.has(format!("{CGROUPS}/{name}"));
        for (_, at) in taken.extract_if(.., |(name, _)| is_gone(name)) {
            steering.disown(at)?;
        }
        self.left.retain(|name, _| names.contains(name));
        let mut new = Vec::new();
        for name in names {
            if !self.taken.iter().any(|(known, _)| *known == name) {
                let Original { found, leave, .. } = steering.original(self.controller);
                match original(&self.sys, &name, found == "off") {
                    Ok(original) => new.push(Original { leave: *leave, ..original }),
                    Err(reason) => self.leave(&name, reason, steering),
                }
            }
        }
        let is_new = !new.is_empty();
        self.take(new, steering)?;
        self.looked = Some(now);
        Ok(is_new)
    }

    fn take(&mut self, new: Vec<Original>, steering: &mut Steering) -> Result<(), StateError> {
        let group = |place: &Place| match place {
            Place::Cpuset { group } => group.clone(),
            other => unreachable!("{other} is no list of CPUs"),
        };
        let names: Vec<_> = new.iter().map(|original| group(&original.place)).collect();
        let all = steering.adopt(new, |place| Knob::cpuset(&self.sys, &group(place)))?;
        for (name, at) in names.into_iter().zip(all) {
            self.left.remove(&name);
            self.taken.push((name, at));
        }
        Ok(())
    }

    /// Notes why a group is left alone; it is told once.
    fn leave(&mut self, group: &str, reason: String, steering: &mut Steering) {
        if self.left.get(group) != Some(&reason) {
            let place = Place::Cpuset { group: group.to_owned() };
            let what = match groups::own_cpus(&self.sys, group, &self.all) {
                Some(_) => "it is left alone, and its tasks use CPUs of their own",
                None => "its tasks may use parked cores",
            };
            steering.tell(place, format!("{what}: {reason}"));
            self.left.insert(group.to_owned(), reason);
        }
    }

    /// Lists of CPUs of all groups: each keeps one of its own at least.
    pub fn needed(&self, steering: &Steering) -> Vec<Vec<u16>> {
        let found = |at: usize| cpus(steering.found(at)).filter(|list| !list.is_empty());
        let own = self.taken.iter().filter_map(|(_, at)| found(*at));
        let below = self.taken.iter().flat_map(|(name, _)| groups::lists_below(&self.sys, name));
        own.chain(below).collect()
    }

    /// Keeps all groups from `parked`, and what stands in the way where none can be.
    pub fn set(
        &mut self,
        parked: &[u16],
        steering: &mut Steering,
        now: Nanos,
    ) -> (Outcome, Option<String>) {
        // CPUs may have come.
        self.all.extend(shared(&self.sys, &usual(&self.sys)));
        self.all.sort_unstable();
        self.all.dedup();
        if parked.is_empty() {
            return (self.release(steering, now), None);
        }
        if self.taken.is_empty() {
            let reason = "no control group here takes another list of CPUs, so no core is parked";
            return (Outcome::Refused, Some(reason.to_owned()));
        }
        if !steering.is_set(self.controller) {
            // With the controller all lists begin anew.
            self.taken.iter().for_each(|(_, at)| steering.lost(*at));
        }
        let mut outcome = steering.set(self.controller, Some("on"), now);
        if outcome != Outcome::Done {
            return (outcome, None);
        }
        for (group, at) in self.taken.clone() {
            let own = self.own(steering.found(at));
            let left: Vec<_> = own.iter().copied().filter(|cpu| !parked.contains(cpu)).collect();
            let list = (left.len() < own.len() && !left.is_empty()).then(|| cpu_list(&left));
            if left.is_empty() {
                self.leave(&group, "it would have no CPU left".to_owned(), steering);
            }
            let set = steering.set(at, list.as_deref(), now);
            // What has become dangerous to change stays as it is, and keeps nobody else.
            if set != Outcome::Done
                && let Err(why) = groups::is_safe(&self.sys, &group)
            {
                self.leave(&group, why.to_string(), steering);
            } else {
                outcome = worse(outcome, set);
            }
        }
        (outcome, None)
    }

    /// Gives all groups their CPUs back. One without a list has all of them until the end, where
    /// the controller goes: it is not to come and go with every burst of work.
    fn release(&self, steering: &mut Steering, now: Nanos) -> Outcome {
        let all = cpu_list(&self.all);
        let set = |outcome, (_, at): &(String, usize)| {
            let keeps = steering.found(*at).is_empty() && steering.is_set(*at);
            worse(outcome, steering.set(*at, keeps.then_some(&*all), now))
        };
        self.taken.iter().fold(Outcome::Done, set)
    }

    /// Gives all of it back, with the controller.
    pub fn give_back(&self, steering: &mut Steering, now: Nanos) -> Outcome {
        // With a controller that was off the lists go as well.
        let all = std::iter::once(self.controller).chain(self.taken.iter().map(|(_, at)| *at));
        all.fold(Outcome::Done, |outcome, at| worse(outcome, steering.set(at, None, now)))
    }

    /// Those of `parked` that all groups are kept from.
    pub fn in_force(&self, parked: &[u16], steering: &Steering) -> Vec<u16> {
        let set: Vec<_> = self.taken.iter().filter(|(_, at)| steering.is_set(*at)).collect();
        let has = |at: usize, cpu| cpus(steering.now(at)).is_none_or(|list| list.contains(&cpu));
        let is_free = |cpu: &u16| !set.is_empty() && !set.iter().any(|(_, at)| has(*at, *cpu));
        parked.iter().copied().filter(is_free).collect()
    }

    fn own(&self, found: &str) -> Vec<u16> {
        cpus(found).filter(|list| !list.is_empty()).unwrap_or_else(|| self.all.clone())
    }
}

/// What is to be given back to a group; `ours` is whether the cpuset controller was off before.
fn original(sys: &Sys, group: &str, ours: bool) -> Result<Original, String> {
    let place = Place::Cpuset { group: group.to_owned() };
    let original = Original::of(place, Knob::cpuset(sys, group), sys);
    let original = original.map_err(|absent| absent.to_string())?;
    groups::obstacle(sys, group, &original.found, ours).map_or(Ok(original), Err)
}

/// A control group as parking would find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parkable {
    /// Its name.
    pub group: String,
    /// Those of its own list of CPUs that are there; none where it has those of the root group.
    pub cpus: Vec<u16>,
    /// Why it gets no other list: its tasks may use parked cores all the same.
    pub obstacle: Option<String>,
    /// The CPUs of its tasks, where no other group has any of them.
    pub apart: Option<Vec<u16>>,
}

/// All groups below the root that have tasks; none where no group takes a list of CPUs.
#[must_use]
pub fn parkable(sys: &Sys) -> Vec<Parkable> {
    if groups::lacks_cpuset(sys).is_some() {
        return Vec::new();
    }
    let ours = !groups::is_on(sys, "cpuset");
    let all = usual(sys);
    let shared = shared(sys, &all);
    let one = |group: String| {
        let found = Knob::cpuset(sys, &group).and_then(|mut knob| knob.read(sys));
        let mut own = found.as_deref().ok().and_then(cpus).unwrap_or_default();
        // A list may name CPUs that the machine has not.
        own.retain(|cpu| all.contains(cpu));
        let (obstacle, apart) =
            (original(sys, &group, ours).err(), groups::own_cpus(sys, &group, &shared));
        Parkable { obstacle, apart, group, cpus: own }
    };
    groups::below_root(sys).into_iter().map(one).collect()
}
