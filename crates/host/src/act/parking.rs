//! Parks cores: the tasks of control groups are kept from their CPUs, or these go offline; tasks
//! that are bound to CPUs keep what is left of theirs.

use std::collections::BTreeSet;

use ebb_policy::units::Nanos;
use ebb_policy::{InForce, Outcome};

use crate::act::contact::Verdict;
use crate::act::cpusets::{self, Cpusets};
use crate::act::knob::{Place, online};
use crate::act::originals::State;
use crate::act::owned::StateError;
use crate::act::steering::{Steering, worse};
use crate::act::tasks::{Bound, Tasks};
use crate::find::layout::{Core, Layout, ParkBy};
use crate::find::machine::Machine;
use crate::sys::{cpu_list, cpus};

/// What is set to park cores, as far as it is known before.
#[must_use]
pub fn place(by: ParkBy) -> Place {
    match by {
        ParkBy::Cpuset => cpusets::controller(),
        ParkBy::Offline => Place::Offline,
    }
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

/// How CPUs are parked.
#[derive(Debug)]
enum How {
    Cpusets(Cpusets),
    /// Where that is set, and sets of CPUs of which one always stays.
    Offline {
        at: usize,
        kept: Vec<Vec<u16>>,
    },
}

/// How CPUs are parked, and who that concerns.
#[derive(Debug)]
pub struct Parking {
    how: How,
    /// Cores of each group; those that are parked last come first.
    groups: Vec<Vec<Core>>,
    /// CPUs that others have taken offline since.
    away: Vec<u16>,
    /// CPUs that are neither anybody's nor of the groups: nobody is to be left with these alone.
    apart: Vec<u16>,
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
        let how = match layout.park_by {
            ParkBy::Cpuset => How::Cpusets(Cpusets::new(machine, steering)?),
            ParkBy::Offline => {
                How::Offline { at: steering.find(&Place::Offline)?, kept: kept(machine) }
            }
        };
        let (plan, saved, trouble) = Default::default();
        let (groups, away) = (layout.groups.clone(), Vec::new());
        let mut apart = machine.cpus.apart.clone();
        apart.retain(|cpu| !groups.iter().flatten().any(|core| core.cpus.contains(cpu)));
        Some(Self { how, groups, away, apart, plan, tasks, saved, state, trouble })
    }

    /// What is set to park cores.
    #[must_use]
    pub fn place(&self) -> Place {
        place(match &self.how {
            How::Cpusets(_) => ParkBy::Cpuset,
            How::Offline { .. } => ParkBy::Offline,
        })
    }

    /// The CPUs that are offline for it.
    #[must_use]
    pub fn offline(&self, steering: &Steering) -> Vec<u16> {
        match &self.how {
            How::Cpusets(_) => Vec::new(),
            How::Offline { .. } => {
                let mut parked = self.parked(steering);
                parked.retain(|cpu| !self.away.contains(cpu));
                parked
            }
        }
    }

    /// Takes in which CPUs others have taken offline by now: their cores are parked as it is, and
    /// no end brings them back.
    pub fn follow(&mut self, away: &[u16], steering: &mut Steering) {
        if self.away == away {
            return;
        }
        self.away = away.to_vec();
        // What was planned was for other cores.
        self.plan.0.clear();
        if let How::Offline { at, .. } = self.how
            && let Ok(offline) = steering.read(at)
        {
            let mut theirs = cpus(&offline).unwrap_or_default();
            theirs.retain(|cpu| away.contains(cpu) || !self.plan.1.contains(cpu));
            steering.changed(at, cpu_list(&theirs));
        }
    }

    fn parked(&self, steering: &Steering) -> Vec<u16> {
        match &self.how {
            How::Cpusets(cpusets) => cpusets.in_force(&self.plan.1, steering),
            How::Offline { at, .. } => cpus(steering.now(*at)).unwrap_or_default(),
        }
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

    /// How many CPUs are parked.
    #[must_use]
    pub fn count(&self, steering: &Steering) -> usize {
        let parked = self.parked(steering);
        let cpus = self.groups.iter().flatten().flat_map(|core| &core.cpus);
        cpus.filter(|cpu| parked.contains(cpu) && !self.away.contains(cpu)).count()
    }

    /// Brings all cores back at once, as `all` asks for. Where no binding is lost with that, what
    /// tasks are bound to can wait for the next cycle.
    pub fn recall(&mut self, all: &InForce, steering: &mut Steering, now: Nanos) -> Outcome {
        if self.tasks.are_kept() {
            self.keep_from(&[], steering, now).0
        } else {
            self.set(all, steering, now)
        }
    }

    /// Parks one core and gives it back, with all that this needs.
    pub fn attempt(&mut self, steering: &mut Steering) -> Option<Verdict> {
        let now = Nanos::ZERO;
        let all: Vec<_> = self.groups.iter().map(|cores| cores.len() as u16).collect();
        let mut fewer = all.clone();
        *fewer.iter_mut().find(|cores| **cores > 1)? -= 1;
        let outcome = self.set_active(fewer, steering, now);
        let is_parked = self.count(steering) > 0;
        self.plan = (all, Vec::new());
        let back = match &self.how {
            How::Cpusets(cpusets) => cpusets.give_back(steering, now),
            How::Offline { at, .. } => steering.set(*at, None, now),
        };
        let trouble = self.settle(back == Outcome::Done, steering).err();
        if is_parked && worse(back, outcome) == Outcome::Done && trouble.is_none() {
            return Some(Verdict::Works);
        }
        let told = steering.notices().into_iter();
        let told = told.map(|notice| format!("{}: {}", notice.place, notice.text)).chain(trouble);
        let told = Vec::from_iter(told).join("; ");
        let needed = || "tasks need each of the cores".to_owned();
        Some(Verdict::NotYet(if told.is_empty() { needed() } else { told }))
    }

    /// Parks what is not to be active.
    pub fn set(&mut self, given: &InForce, steering: &mut Steering, now: Nanos) -> Outcome {
        let asked = (0..self.groups.len()).map(|at| given.group(at).active).collect();
        self.set_active(asked, steering, now)
    }

    fn set_active(&mut self, asked: Vec<u16>, steering: &mut Steering, now: Nanos) -> Outcome {
        let (outcome, trouble) = match self.planned(asked, steering, now) {
            Ok(()) => self.put(steering, now),
            Err(why) => (Outcome::Refused, Some(format!("cores stay as they are: {why}"))),
        };
        if trouble != self.trouble {
            trouble.iter().for_each(|text| steering.tell(self.place(), text.clone()));
            self.trouble = trouble;
        }
        outcome
    }

    /// Sees to it that the plan is one for the active cores `asked` for, and that what it changes
    /// is on disk.
    fn planned(
        &mut self,
        asked: Vec<u16>,
        steering: &mut Steering,
        now: Nanos,
    ) -> Result<(), String> {
        let is_all = |(cores, asked): (&Vec<Core>, &u16)| cores.len() <= usize::from(*asked);
        let parks = !self.groups.iter().zip(&asked).all(is_all);
        let mut is_new = false;
        if let How::Cpusets(cpusets) = &mut self.how
            && parks
        {
            // The tasks of a new group are not known yet.
            is_new = cpusets.look(steering, now).map_err(|error| error.to_string())?;
        }
        if self.plan.0 == asked && !is_new {
            return Ok(());
        }
        let mut parked = Vec::new();
        if parks || !self.tasks.have_all() {
            self.tasks.look();
            parked = self.choose(&asked, steering);
            let begins = self.plan.1.is_empty() && !parked.is_empty();
            if let Some(lacking) = self.tasks.lacking().filter(|_| begins) {
                return Err(lacking);
            }
            // On disk before the kernel is made to forget them.
            self.save(self.tasks.saved(&parked)).map_err(|error| error.to_string())?;
        }
        self.plan = (asked, parked);
        Ok(())
    }

    /// Puts the plan in force, and what went wrong.
    fn put(&mut self, steering: &mut Steering, now: Nanos) -> (Outcome, Option<String>) {
        let (outcome, trouble) = self.keep_from(&self.plan.1.clone(), steering, now);
        let is_over = self.plan.1.is_empty() && self.tasks.are_owners();
        if is_over || trouble.is_some() {
            return (outcome, trouble);
        }
        (outcome, self.settle(outcome == Outcome::Done, steering).err())
    }

    /// Binds tasks to what is left of their CPUs; they are their owners' once `done` brought all
    /// cores back.
    fn settle(&mut self, done: bool, steering: &Steering) -> Result<(), String> {
        // Each time, whatever of it was taken: whatever touches a cpuset, a CPU that comes or goes
        // as well, makes Linux before 6.2 forget.
        let parked = self.parked(steering);
        if self.tasks.are_loose(&parked) {
            self.save(self.tasks.saved(&parked)).map_err(|error| error.to_string())?;
        }
        let settled = self.tasks.settle(&parked);
        let settled = settled.map_err(|unsettled| unsettled.to_string());
        if settled.is_ok() && done && self.plan.1.is_empty() {
            self.tasks.let_go();
        }
        // What they are bound to now tells Ebb's doing from their owners', after a kill as well.
        let saved = self.save(self.tasks.all()).map_err(|error| error.to_string());
        settled.and(saved)
    }

    /// Keeps everybody from `parked`.
    fn keep_from(
        &mut self,
        parked: &[u16],
        steering: &mut Steering,
        now: Nanos,
    ) -> (Outcome, Option<String>) {
        match &mut self.how {
            How::Cpusets(cpusets) => cpusets.set(parked, steering, now),
            How::Offline { at, .. } => {
                let theirs = cpus(steering.found(*at)).unwrap_or_default();
                let all: BTreeSet<u16> = parked.iter().copied().chain(theirs).collect();
                let all = cpu_list(&Vec::from_iter(all));
                let value = (!parked.is_empty()).then_some(all.as_str());
                (steering.set(*at, value, now), None)
            }
        }
    }

    fn save(&mut self, saved: Vec<Bound>) -> Result<(), StateError> {
        if self.saved != saved {
            self.state.save_tasks(&saved)?;
            self.saved = saved;
        }
        Ok(())
    }

    /// The CPUs to park: the last cores of each group, but those without which a task or a control
    /// group would have none of its CPUs, and those that are kept.
    fn choose(&self, asked: &[u16], steering: &Steering) -> Vec<u16> {
        let mut needed = self.tasks.needed();
        needed.extend(match &self.how {
            How::Cpusets(cpusets) => cpusets.needed(steering),
            How::Offline { kept, .. } => kept.clone(),
        });
        let mut parked: Vec<u16> = Vec::new();
        let is_away = |core: &&Core| core.cpus.iter().all(|cpu| self.away.contains(cpu));
        // Linux does not show which tasks are bound to a CPU that is offline: it is parked only
        // once it has been back.
        let is_whole = |core: &&&Core| !core.cpus.iter().any(|cpu| self.away.contains(cpu));
        // What has lost all of its CPUs needs none of the others.
        let is_here = |cpu: &u16| !self.away.contains(cpu) && !self.apart.contains(cpu);
        let needed = needed.into_iter().map(|own| Vec::from_iter(own.into_iter().filter(is_here)));
        let needed: Vec<_> = needed.filter(|own| !own.is_empty()).collect();
        for (cores, asked) in self.groups.iter().zip(asked) {
            let here: Vec<_> = cores.iter().filter(|core| !is_away(core)).collect();
            let mut more = here.len().saturating_sub(usize::from(*asked));
            for core in here.iter().filter(is_whole).rev() {
                let goes = |cpu: &u16| parked.contains(cpu) || core.cpus.contains(cpu);
                if more > 0 && !needed.iter().any(|own| own.iter().all(goes)) {
                    parked.extend(&core.cpus);
                    more -= 1;
                }
            }
        }
        let has_none = |own: &Vec<u16>| own.iter().all(|cpu| parked.contains(cpu));
        assert!(!needed.iter().any(has_none), "somebody would have no CPU: {parked:?}");
        parked.sort_unstable();
        parked
    }
}
