//! Parks cores: their CPUs become a partition that nothing runs on, or go offline; tasks that are
//! bound to CPUs keep what is left of theirs.

use std::collections::BTreeSet;

use ebb_policy::units::Nanos;
use ebb_policy::{InForce, Outcome};

use crate::act::knob::{Place, online};
use crate::act::originals::State;
use crate::act::owned::StateError;
use crate::act::place::PARKED;
use crate::act::steering::{Steering, worse};
use crate::act::tasks::{Bound, Tasks};
use crate::find::layout::{Core, Layout, ParkBy};
use crate::find::machine::Machine;
use crate::sys::{cpu_list, cpus};

/// Where CPUs are parked.
#[must_use]
pub fn place(by: ParkBy) -> Place {
    match by {
        ParkBy::Partition => Place::Partition { group: PARKED.to_owned() },
        ParkBy::Offline => Place::Offline,
    }
}

/// What a partition needs.
#[must_use]
pub fn controller() -> Place {
    Place::Controller { name: "cpuset".to_owned() }
}

/// The CPUs that cannot go offline, and those of each socket: its sensors and energy counters go
/// with its last CPU.
fn kept(machine: &Machine) -> Vec<Vec<u16>> {
    let all = &machine.cpus.cpus;
    let fixed = all.iter().filter(|cpu| !machine.sys.has(online(cpu.number)));
    let socket = |socket| all.iter().filter(|c| c.socket == socket).map(|c| c.number).collect();
    let sockets = (0..machine.cpus.sockets).map(socket);
    fixed.map(|cpu| vec![cpu.number]).chain(sockets).collect()
}

/// Where CPUs are parked, and who that concerns.
#[derive(Debug)]
pub struct Parking {
    by: ParkBy,
    place: usize,
    /// Of a partition.
    controller: Option<usize>,
    /// Cores of each group; those that are parked last come first.
    groups: Vec<Vec<Core>>,
    /// Sets of CPUs of which one always stays.
    kept: Vec<Vec<u16>>,
    /// CPUs that others had parked before.
    found: Vec<u16>,
    /// CPUs that others have taken offline since.
    away: Vec<u16>,
    /// Active cores of each group that were asked for, and the CPUs to park for that.
    plan: (Vec<u16>, Vec<u16>),
    tasks: Tasks,
    /// What is on disk of them, and where.
    saved: Vec<Bound>,
    state: State,
    /// What stood in the way last; it is told once.
    trouble: Option<String>,
}

impl Parking {
    /// On `machine`, in the places that `steering` has.
    #[must_use]
    pub fn new(
        machine: &Machine,
        layout: &Layout,
        steering: &Steering,
        tasks: Tasks,
        state: State,
    ) -> Option<Self> {
        let by = layout.park_by;
        let place = steering.find(&place(by))?;
        let (plan, saved, trouble) = Default::default();
        Some(Self {
            by,
            place,
            controller: steering.find(&controller()),
            groups: layout.groups.clone(),
            kept: match by {
                ParkBy::Partition => Vec::new(),
                ParkBy::Offline => kept(machine),
            },
            found: cpus(steering.found(place)).unwrap_or_default(),
            away: Vec::new(),
            plan,
            tasks,
            saved,
            state,
            trouble,
        })
    }

    /// The CPUs that are offline for it.
    #[must_use]
    pub fn offline(&self, steering: &Steering) -> Vec<u16> {
        match self.by {
            ParkBy::Partition => Vec::new(),
            ParkBy::Offline => {
                let mut parked = self.parked(steering);
                parked.retain(|cpu| !self.away.contains(cpu));
                parked
            }
        }
    }

    /// Takes in which CPUs others have taken offline by now: their cores are parked as it is.
    pub fn follow(&mut self, away: &[u16]) {
        if self.away != away {
            self.away = away.to_vec();
            // What was planned was for other cores.
            self.plan.0.clear();
        }
    }

    fn parked(&self, steering: &Steering) -> Vec<u16> {
        cpus(steering.now(self.place)).unwrap_or_default()
    }

    /// Cores of `group` that are not parked.
    #[must_use]
    pub fn active(&self, group: usize, steering: &Steering) -> u16 {
        let mut parked = self.parked(steering);
        parked.extend(&self.away);
        let rests = |core: &&Core| core.cpus.iter().all(|cpu| parked.contains(cpu));
        let cores = &self.groups[group];
        (cores.len() - cores.iter().filter(rests).count()) as u16
    }

    /// Parks what is not to be active.
    pub fn set(&mut self, given: &InForce, steering: &mut Steering, now: Nanos) -> Outcome {
        let (outcome, trouble) = match self.planned(given) {
            Ok(()) => self.put(steering, now),
            Err(error) => (Outcome::Refused, Some(format!("cores stay as they are: {error}"))),
        };
        if trouble != self.trouble {
            trouble.iter().for_each(|text| steering.note(self.place, text.clone()));
            self.trouble = trouble;
        }
        outcome
    }

    /// Sees to it that the plan is one for what is `given`.
    fn planned(&mut self, given: &InForce) -> Result<(), StateError> {
        let asked: Vec<_> = (0..self.groups.len()).map(|at| given.group(at).active).collect();
        if self.plan.0 == asked {
            return Ok(());
        }
        let is_all = |(cores, asked): (&Vec<Core>, &u16)| cores.len() <= usize::from(*asked);
        let mut parked = Vec::new();
        if !self.groups.iter().zip(&asked).all(is_all) || !self.tasks.have_all() {
            self.tasks.look();
            parked = self.choose(&asked);
            // On disk before a partition makes the kernel forget them.
            self.save(&parked)?;
        }
        self.plan = (asked, parked);
        Ok(())
    }

    /// Puts the plan in force, and what went wrong with the tasks.
    fn put(&mut self, steering: &mut Steering, now: Nanos) -> (Outcome, Option<String>) {
        let parked = &self.plan.1;
        // None that others have taken offline is brought back.
        let none = parked.is_empty() && (self.by != ParkBy::Offline || self.away.is_empty());
        let outcome = if none {
            steering.set(self.place, None, now)
        } else {
            let on = self.controller.map_or(Outcome::Done, |at| steering.set(at, Some("on"), now));
            let all: BTreeSet<u16> =
                parked.iter().chain(&self.found).chain(&self.away).copied().collect();
            let all = cpu_list(&Vec::from_iter(all));
            worse(on, steering.set(self.place, Some(&all), now))
        };
        let is_over = parked.is_empty() && self.tasks.have_all();
        if outcome != Outcome::Done || is_over {
            return (outcome, None);
        }
        // Each time: whatever touches a cpuset makes Linux before 6.2 forget.
        let mut settled = self.tasks.settle(parked);
        if settled.is_ok() && parked.is_empty() {
            settled = self.save(&[]).map_err(|error| error.to_string());
        }
        (outcome, settled.err())
    }

    fn save(&mut self, parked: &[u16]) -> Result<(), StateError> {
        let saved = self.tasks.saved(parked);
        if self.saved != saved {
            self.state.save_tasks(&saved)?;
            self.saved = saved;
        }
        Ok(())
    }

    /// The CPUs to park: the last cores of each group, but those without which a task would have
    /// none of the CPUs that it is bound to, and those that are kept.
    fn choose(&self, asked: &[u16]) -> Vec<u16> {
        let mut needed = self.tasks.needed();
        needed.extend(self.kept.iter().cloned());
        let mut parked: Vec<u16> = Vec::new();
        let is_away = |core: &&Core| core.cpus.iter().all(|cpu| self.away.contains(cpu));
        // What has lost all of its CPUs needs none of the others.
        let is_here = |cpu: &u16| !self.away.contains(cpu);
        let needed = needed.into_iter().map(|own| Vec::from_iter(own.into_iter().filter(is_here)));
        let needed: Vec<_> = needed.filter(|own| !own.is_empty()).collect();
        for (cores, asked) in self.groups.iter().zip(asked) {
            let here: Vec<_> = cores.iter().filter(|core| !is_away(core)).collect();
            let mut more = here.len().saturating_sub(usize::from(*asked));
            for core in here.into_iter().rev() {
                let goes = |cpu: &u16| parked.contains(cpu) || core.cpus.contains(cpu);
                if more > 0 && !needed.iter().any(|own| own.iter().all(goes)) {
                    parked.extend(&core.cpus);
                    more -= 1;
                }
            }
        }
        parked.sort_unstable();
        parked
    }
}
