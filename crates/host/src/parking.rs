//! Parks cores: their CPUs become a partition that nothing runs on; tasks that are bound to CPUs
//! keep what is left of theirs.

use ebb_policy::units::Nanos;
use ebb_policy::{InForce, Outcome};

use crate::layout::Core;
use crate::originals::{State, StateError};
use crate::steering::{Steering, worse};
use crate::sys::{cpu_list, cpus};
use crate::tasks::{Bound, Tasks};

/// The partition and who it concerns.
#[derive(Debug)]
pub struct Parking {
    partition: usize,
    controller: Option<usize>,
    /// Cores of each group; those that are parked last come first.
    groups: Vec<Vec<Core>>,
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
    /// With the places of the partition and of its controller, which may be on for good.
    #[must_use]
    pub fn new(
        (partition, controller): (usize, Option<usize>),
        groups: Vec<Vec<Core>>,
        tasks: Tasks,
        state: State,
    ) -> Self {
        let (plan, saved, trouble) = Default::default();
        Self { partition, controller, groups, plan, tasks, saved, state, trouble }
    }

    /// Cores of `group` that are not parked.
    #[must_use]
    pub fn active(&self, group: usize, steering: &Steering) -> u16 {
        let parked = cpus(steering.now(self.partition)).unwrap_or_default();
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
            trouble.iter().for_each(|text| steering.note(self.partition, text.clone()));
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
        let outcome = if parked.is_empty() {
            steering.set(self.partition, None, now)
        } else {
            let on = self.controller.map_or(Outcome::Done, |at| steering.set(at, Some("on"), now));
            worse(on, steering.set(self.partition, Some(&cpu_list(parked)), now))
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
    /// none of the CPUs that it is bound to.
    fn choose(&self, asked: &[u16]) -> Vec<u16> {
        let needed = self.tasks.needed();
        let mut parked: Vec<u16> = Vec::new();
        for (cores, asked) in self.groups.iter().zip(asked) {
            let mut more = cores.len().saturating_sub(usize::from(*asked));
            for core in cores.iter().rev() {
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
