//! Tasks that are bound to some of the CPUs (`taskset`, `sched_setaffinity`, the kernel's threads).
//!
//! When a partition of CPUs comes, changes or goes, Linux before 6.2 forgets what every task of the
//! machine was bound to: it may run on all CPUs that are left, and on all there are at the end
//! (`update_tasks_cpumask`; since 8f9ea86fdf99 in 6.2 a task's own wish is kept). So it is
//! remembered here and on disk, kept meanwhile as far as CPUs are left, and set back at the end.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::act::knob::CGROUPS;
use crate::find::machine::Machine;
use crate::sys::{Absent, Sys, cpu_list, cpus};

/// `include/linux/sched.h`: the flags of a thread of the kernel, and of one that nobody may bind.
const PF_KTHREAD: u64 = 0x0020_0000;
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// A task and the CPUs that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Its number.
    pub task: u32,
    /// When it was started, in ticks since the machine was: a later task of its number is another.
    pub start: u64,
    /// What it was bound to when Ebb first saw it, such as `0-3,8`.
    pub cpus: String,
    /// What Ebb leaves it of that at the moment.
    pub now: String,
    /// Whether it is the kernel's own.
    pub kernel: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Tasks {
    sys: Sys,
    /// The CPUs that are anybody's where nothing is parked.
    usual: Vec<u16>,
    /// The CPUs that are not parked.
    active: Vec<u16>,
    bound: BTreeMap<u32, Bound>,
}

impl Tasks {
    /// Those of `machine` that were `saved`.
    #[must_use]
    pub fn of(machine: &Machine, saved: Vec<Bound>) -> Self {
        let (sys, cpus) = (&machine.sys, &machine.cpus.cpus);
        let all = || cpus.iter().map(|cpu| cpu.number).collect();
        // Without the partitions of others.
        let usual = sys.cpus(format!("{CGROUPS}/cpuset.cpus.effective")).unwrap_or_else(|_| all());
        let bound = saved.into_iter().map(|bound| (bound.task, bound)).collect();
        Self { sys: sys.clone(), active: usual.clone(), usual, bound }
    }

    /// Looks at every task of the machine.
    pub fn look(&mut self) {
        let before = std::mem::take(&mut self.bound);
        for process in self.sys.numbered("proc", "") {
            for task in self.sys.numbered(format!("proc/{process}/task"), "") {
                // What ends meanwhile is of no interest.
                if let Some(bound) = self.one(&process, &task, &before) {
                    self.bound.insert(bound.task, bound);
                }
            }
        }
    }

    /// What is to be on disk before `parked` are parked.
    #[must_use]
    pub fn saved(&self, parked: &[u16]) -> Vec<Bound> {
        let active = self.without(parked);
        let then = |bound: &Bound| Bound { now: cpu_list(&left(bound, &active)), ..bound.clone() };
        self.bound.values().map(then).collect()
    }

    fn without(&self, parked: &[u16]) -> Vec<u16> {
        self.usual.iter().copied().filter(|cpu| !parked.contains(cpu)).collect()
    }

    fn one(&self, process: &str, task: &str, before: &BTreeMap<u32, Bound>) -> Option<Bound> {
        let is = self.sys.affinity(task).ok()?;
        let number = task.parse().ok()?;
        let free = self.is_free(&is);
        if free && !before.contains_key(&number) {
            return None;
        }
        let Stat { parent, flags, start } = Stat::of(&self.sys, task)?;
        let text = cpu_list(&is);
        if let Some(known) = before.get(&number).filter(|known| known.start == start) {
            // Somebody has bound it anew. What is free was not set so, but forgotten.
            let anew = !free && text != known.now;
            let cpus = if anew { text.clone() } else { known.cpus.clone() };
            let now = if anew { text } else { known.now.clone() };
            return Some(Bound { cpus, now, ..known.clone() });
        }
        if free || flags & PF_NO_SETAFFINITY != 0 {
            return None;
        }
        // What it was started with while CPUs were parked is what was left to who started it.
        let heir = |of: u32| before.get(&of).filter(|of| of.now == text);
        let from = process.parse().ok().and_then(heir).or_else(|| heir(parent));
        let cpus = from.map_or_else(|| text.clone(), |from| from.cpus.clone());
        Some(Bound { task: number, start, cpus, now: text, kernel: flags & PF_KTHREAD != 0 })
    }

    /// Whether a task may run wherever anything may.
    fn is_free(&self, cpus: &[u16]) -> bool {
        cpus == self.active || self.usual.iter().all(|cpu| cpus.contains(cpu))
    }

    /// The sets of CPUs of which users' tasks need one at least.
    #[must_use]
    pub fn needed(&self) -> BTreeSet<Vec<u16>> {
        let users = self.bound.values().filter(|bound| !bound.kernel);
        let own = users.filter_map(|bound| cpus(&bound.cpus));
        let usual =
            |own: Vec<u16>| own.into_iter().filter(|cpu| self.usual.contains(cpu)).collect();
        own.map(usual).filter(|own: &Vec<u16>| !own.is_empty()).collect()
    }

    /// Whether nothing is parked that a task could be bound to.
    #[must_use]
    pub fn have_all(&self) -> bool {
        self.active == self.usual
    }

    /// Sees to it that each is bound to what is left to it where `parked` are parked, but those
    /// that somebody has bound anew. Where nothing is parked they are their owners' from then on.
    ///
    /// # Errors
    /// Why some cannot be bound.
    pub fn settle(&mut self, parked: &[u16]) -> Result<(), String> {
        self.active = self.without(parked);
        let mut failed = Failed::default();
        for bound in self.bound.values() {
            failed.note(self.bind(bound, &left(bound, &self.active)));
        }
        let active = &self.active;
        self.bound.values_mut().for_each(|bound| bound.now = cpu_list(&left(bound, active)));
        let result = failed.result();
        if parked.is_empty() && result.is_ok() {
            self.bound.clear();
        }
        result
    }

    /// Binds a task to `cpus` that is still there, unless somebody has bound it anew.
    fn bind(&self, bound: &Bound, cpus: &[u16]) -> Result<(), Absent> {
        let task = bound.task.to_string();
        let Ok(is) = self.sys.affinity(&task) else { return Ok(()) };
        let is_ours = self.is_free(&is) || cpu_list(&is) == bound.now;
        let is_it = || Stat::of(&self.sys, &task).is_some_and(|stat| stat.start == bound.start);
        if is == cpus || !is_ours || !is_it() {
            return Ok(());
        }
        match self.sys.bind(&task, cpus) {
            Err(Absent::Missing(_)) => Ok(()),
            result => result,
        }
    }
}

/// The CPUs of a task that are active; all that are where none is.
fn left(bound: &Bound, active: &[u16]) -> Vec<u16> {
    let own = cpus(&bound.cpus).unwrap_or_default();
    let left: Vec<_> = own.into_iter().filter(|cpu| active.contains(cpu)).collect();
    if left.is_empty() { active.to_vec() } else { left }
}

/// What went wrong, and how often.
#[derive(Debug, Default)]
struct Failed {
    count: usize,
    first: Option<Absent>,
}

impl Failed {
    fn note(&mut self, result: Result<(), Absent>) {
        if let Err(absent) = result {
            self.count += 1;
            self.first.get_or_insert(absent);
        }
    }
    fn result(self) -> Result<(), String> {
        let Some(first) = self.first else { return Ok(()) };
        Err(format!("{} tasks cannot be bound to their CPUs: {first}", self.count))
    }
}

/// What `/proc/TASK/stat` says of a task (proc_pid_stat(5)).
struct Stat {
    parent: u32,
    flags: u64,
    start: u64,
}

impl Stat {
    fn of(sys: &Sys, task: &str) -> Option<Self> {
        let text = sys.text(format!("proc/{task}/stat")).ok()?;
        // The name before the last parenthesis may hold anything.
        let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let start = fields.nth(12)?.parse().ok()?;
        Some(Self { parent, flags, start })
    }
}
