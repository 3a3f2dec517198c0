//! Tasks that are bound to some of the CPUs (`taskset`, `sched_setaffinity`, the kernel's threads).
//!
//! When the CPUs of a control group change, by a write, a CPU that comes or goes, or the cpuset
//! controller going on or off, Linux before 6.2 forgets what each task there was bound to: it may
//! run on all CPUs of the group (`update_tasks_cpumask`). So it is remembered here and on disk,
//! kept meanwhile as far as the group has the CPUs, and set back at the end. Since 8f9ea86fdf99 in
//! 6.2 Linux keeps a task's own wish itself, as long as one of its CPUs is there; whoever binds a
//! task changes that wish. There it is bound only once Linux has forgotten it, and to all its own,
//! as far as these are sure: a CPU that comes or goes shows in the list of those online, in groups
//! and in tasks at different times, so what is first seen after one has is no reason to bind.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::act::place::CGROUPS;
use crate::sys::{Absent, Sys, cpu_list, cpus};

/// `include/linux/sched.h`: the flags of a thread of the kernel, and of one that nobody may bind.
const PF_KTHREAD: u64 = 0x0020_0000;
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
/// `include/uapi/linux/sched.h`: SCHED_DEADLINE. Such a thread is never bound.
pub const DEADLINE: u32 = 6;

/// CPUs of a core at most, on servers that Linux takes offline core by core.
const THREADS: usize = 2;
/// So often at most is looked at all tasks, and so long is waited in between.
const LOOKS: usize = 10;
const NAP: Duration = Duration::from_millis(20);

/// A task and the CPUs that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Its number.
    pub task: u32,
    /// When it was started, in ticks since the machine was: a later task of its number is another.
    pub start: u64,
    /// What it was bound to when Ebb first saw it, such as `0-3,8`.
    pub cpus: String,
    /// What Ebb leaves it of that at the moment, or is about to.
    pub now: String,
    /// Whether `now` is not yet true: after a kill in between, any part of its own CPUs is Ebb's
    /// doing and not its owner's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changing: bool,
    /// Whether it is the kernel's own.
    pub kernel: bool,
    /// Whether `cpus` was seen before any CPU came or went.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sure: bool,
    /// The folder of its control group.
    #[serde(skip)]
    group: Option<String>,
}

impl Bound {
    /// Whether `is` is what Ebb has left it of its own.
    fn is_ours(&self, is: &[u16]) -> bool {
        let own = cpus(&self.cpus).unwrap_or_default();
        self.now == cpu_list(is) || self.changing && is.iter().all(|cpu| own.contains(cpu))
    }
}

/// The CPUs that are anybody's where nothing is parked.
#[must_use]
pub fn usual(sys: &Sys) -> Vec<u16> {
    let effective = sys.cpus(format!("{CGROUPS}/cpuset.cpus.effective"));
    effective.or_else(|_| sys.cpus("sys/devices/system/cpu/online")).unwrap_or_default()
}

/// Whether this kernel keeps what tasks are bound to, whatever CPUs their groups get: Linux 6.2 and
/// later. One that does not say which it is does not.
fn keeps(sys: &Sys) -> bool {
    let release = sys.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
    (next(), next()) >= (6, 2)
}

/// All of them.
#[derive(Debug)]
pub struct Tasks {
    sys: Sys,
    /// Whether those of the root group count, which no cpuset restricts.
    root: bool,
    /// Whether Linux keeps what they are bound to.
    kept: bool,
    /// The CPUs online, those when it was begun to look, and whether any has come or gone since.
    online: Vec<u16>,
    first: Vec<u16>,
    moved: bool,
    /// So often may be waited for Linux to show what has changed.
    naps: usize,
    /// The CPUs that are anybody's where nothing is parked.
    usual: Vec<u16>,
    /// The CPUs that are not parked.
    active: Vec<u16>,
    bound: BTreeMap<u32, Bound>,
    /// What users' tasks are bound to that are left alone: of the root group, and all but a core.
    pinned: BTreeSet<Vec<u16>>,
    /// The CPUs of control groups, by their folders, as far as they were asked for.
    groups: BTreeMap<String, Vec<u16>>,
}

impl Tasks {
    /// Those that were `saved`, and those of the `root` group as well where CPUs go offline.
    #[must_use]
    pub fn of(sys: &Sys, saved: Vec<Bound>, root: bool) -> Self {
        let bound = saved.into_iter().map(|bound| (bound.task, bound)).collect();
        let (sys, usual, kept) = (sys.clone(), usual(sys), keeps(sys));
        let online = sys.cpus("sys/devices/system/cpu/online").unwrap_or_else(|_| usual.clone());
        let (first, moved, naps, pinned, groups) = Default::default();
        let active = usual.clone();
        Self { sys, root, kept, online, first, moved, naps, active, usual, bound, pinned, groups }
    }

    /// Takes nothing for sure that is not so already: cores are parked, and CPUs may have come.
    #[must_use]
    pub fn while_parked(self) -> Self {
        Self { moved: true, ..self }
    }

    /// Forgets what may be another meanwhile.
    fn begin(&mut self) {
        let online = self.sys.cpus("sys/devices/system/cpu/online");
        self.online = online.unwrap_or_else(|_| self.usual.clone());
        if self.first.is_empty() {
            self.first.clone_from(&self.online);
        }
        self.moved |= self.online != self.first;
        self.groups.clear();
    }

    /// Looks at every task of the machine. What is not as it was counts once it is seen twice, with
    /// the same CPUs online all the time: while a CPU comes or goes Linux changes one task after
    /// the other.
    pub fn look(&mut self) {
        let before = std::mem::take(&mut self.bound);
        self.look_twice(&before);
        for bound in self.bound.values_mut() {
            let known = before.get(&bound.task).filter(|known| known.start == bound.start);
            bound.sure = !self.moved || known.is_some_and(|known| known.sure);
        }
    }

    fn look_twice(&mut self, before: &BTreeMap<u32, Bound>) {
        let mut online = self.glance(before);
        for _ in 0..LOOKS {
            if self.bound.values().all(|bound| is_sure(bound, before, None)) {
                return;
            }
            thread::sleep(NAP);
            let seen = std::mem::take(&mut self.bound);
            let now = self.glance(before);
            let stayed = online.is_some() && now == online;
            online = now;
            if self.bound.values().all(|bound| is_sure(bound, before, stayed.then_some(&seen))) {
                return;
            }
        }
        // What is not sure is as it was.
        for bound in self.bound.values_mut() {
            if let Some(known) = before.get(&bound.task).filter(|known| known.start == bound.start)
            {
                *bound = Bound { group: bound.group.take(), ..known.clone() };
            }
        }
    }

    /// Looks once; the CPUs that were online all the while.
    fn glance(&mut self, before: &BTreeMap<u32, Bound>) -> Option<Vec<u16>> {
        self.begin();
        self.pinned.clear();
        for process in self.sys.numbered("proc", "") {
            for task in self.sys.numbered(format!("proc/{process}/task"), "") {
                // What ends meanwhile is of no interest.
                if let Some(bound) = self.one(&process, &task, before) {
                    self.bound.insert(bound.task, bound);
                }
            }
        }
        let online = self.sys.cpus("sys/devices/system/cpu/online").ok()?;
        self.moved |= online != self.online;
        (online == self.online).then_some(online)
    }

    /// All, as they are.
    pub fn all(&self) -> Vec<Bound> {
        self.bound.values().cloned().collect()
    }

    /// What is to be on disk before `parked` are parked.
    #[must_use]
    pub fn saved(&self, parked: &[u16]) -> Vec<Bound> {
        let active = self.without(parked);
        let then = |bound: &Bound| Bound {
            now: cpu_list(&left(bound, &active)),
            changing: true,
            ..bound.clone()
        };
        self.bound.values().map(then).collect()
    }

    fn without(&self, parked: &[u16]) -> Vec<u16> {
        self.usual.iter().copied().filter(|cpu| !parked.contains(cpu)).collect()
    }

    fn one(&mut self, process: &str, task: &str, before: &BTreeMap<u32, Bound>) -> Option<Bound> {
        let number = task.parse().ok()?;
        // Tells most tasks apart at little cost, but not whose doing a binding is: a CPU that is
        // away at this very moment is not in it.
        let is = self.sys.affinity(task).ok()?;
        let group = if self.is_everywhere(&is) { None } else { self.group(task) };
        if !before.contains_key(&number) && self.is_free(&is, group.as_deref()) {
            return None;
        }
        let stat = Stat::of(&self.sys, task)?;
        let is = self.sys.bound(task).ok()?;
        let text = cpu_list(&is);
        if let Some(known) = before.get(&number).filter(|known| known.start == stat.start) {
            let group = group.or_else(|| self.group(task));
            // Somebody has bound it anew. What is free was not set so, but forgotten.
            let forgotten = self.is_forgotten(&is, group.as_deref());
            let cpus = match forgotten || known.is_ours(&is) {
                true => known.cpus.clone(),
                false if self.kept => self.wish(known, &is, group.as_deref()),
                false => text.clone(),
            };
            let now = if forgotten { known.now.clone() } else { text };
            return Some(Bound { cpus, now, group, ..known.clone() });
        }
        let free = self.is_free(&is, group.as_deref());
        if free || stat.flags & PF_NO_SETAFFINITY != 0 || stat.policy == DEADLINE {
            return None;
        }
        // Perhaps nobody's wish: a core may just have come. Linux keeps one until all of its CPUs
        // have gone, which are all but that core.
        let is_safe = self.kept && self.lacks_a_core(&is, group.as_deref());
        if is_safe || !self.root && group.as_deref() == Some(CGROUPS) {
            self.pinned.extend((!stat.is_kernel()).then_some(is));
            return None;
        }
        // What it was started with while CPUs were parked is what was left to who started it.
        let heir = |of: u32| before.get(&of).filter(|of| of.now == text);
        let from = process.parse().ok().and_then(heir).or_else(|| heir(stat.parent));
        let cpus = from.map_or_else(|| text.clone(), |from| from.cpus.clone());
        let (start, kernel) = (stat.start, stat.is_kernel());
        let (changing, sure) = (false, false);
        Some(Bound { task: number, start, cpus, now: text, changing, kernel, sure, group })
    }

    /// The folder of a task's control group.
    fn group(&self, task: &str) -> Option<String> {
        let text = self.sys.text(format!("proc/{task}/cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(format!("{CGROUPS}{}", path.trim_end_matches('/')))
    }

    /// The CPUs of a group; all that are anybody's where it has no cpuset.
    fn cpus_of(&mut self, group: Option<&str>) -> &[u16] {
        let Some(group) = group else { return &self.usual };
        let (sys, usual) = (&self.sys, &self.usual);
        let read = |group: &str| {
            // Of the group, or of the first above it that the controller is on for.
            let mut folders = std::iter::successors(Some(group), |at| Some(at.rsplit_once('/')?.0));
            let effective = |at: &str| sys.cpus(format!("{at}/cpuset.cpus.effective")).ok();
            folders.find_map(effective).unwrap_or_else(|| usual.clone())
        };
        self.groups.entry(group.to_owned()).or_insert_with_key(|group| read(group))
    }

    /// Whether a task may run wherever anything may.
    fn is_everywhere(&self, is: &[u16]) -> bool {
        let online = |cpus: &[u16]| self.online(cpus);
        online(is) == online(&self.active) || online(&self.usual).iter().all(|cpu| is.contains(cpu))
    }

    /// Whether nobody has bound it to fewer CPUs than those of its group.
    fn is_free(&mut self, is: &[u16], group: Option<&str>) -> bool {
        let all = self.cpus_of(group).to_vec();
        self.is_everywhere(is) || group.is_some() && self.online(is) == self.online(&all)
    }

    /// What a task is bound to that has `is` now, where Linux keeps that: what is shown of it is
    /// what its group has of it.
    fn wish(&mut self, bound: &Bound, is: &[u16], group: Option<&str>) -> String {
        let mut own = cpus(&bound.cpus).unwrap_or_default();
        let all = self.cpus_of(group);
        let shown = |cpu: &&u16| all.contains(cpu);
        // Somebody has bound it anew, or Linux has forgotten it and does not show it yet.
        if !own.iter().any(|cpu| shown(&cpu)) || !own.iter().filter(shown).all(|c| is.contains(c)) {
            return if self.moved { bound.cpus.clone() } else { cpu_list(is) };
        }
        // What was not there at first may be its own as well.
        own.extend(is.iter().filter(|cpu| !self.moved || !self.first.contains(cpu)));
        own.sort_unstable();
        own.dedup();
        cpu_list(&own)
    }

    /// Whether a task whose own CPUs are known may run on all of its group, for Linux has forgotten
    /// them; before 6.2 all but a core that has just come, which it is told of a little later.
    fn is_forgotten(&mut self, is: &[u16], group: Option<&str>) -> bool {
        self.is_free(is, group) || !self.kept && self.lacks_a_core(is, group)
    }

    /// Whether a task may run on all of its group but a core at most.
    fn lacks_a_core(&mut self, is: &[u16], group: Option<&str>) -> bool {
        let all = self.cpus_of(group).to_vec();
        let lacks = self.online(&all).iter().filter(|cpu| !is.contains(cpu)).count();
        let others = self.online(is).iter().any(|cpu| !all.contains(cpu));
        lacks <= THREADS && !others && lacks < all.len() - lacks
    }

    fn online(&self, cpus: &[u16]) -> Vec<u16> {
        cpus.iter().copied().filter(|cpu| self.online.binary_search(cpu).is_ok()).collect()
    }

    /// The sets of CPUs of which users' tasks need one at least. Once the last one of its CPUs
    /// goes, Linux forgets what a task is bound to; where that could not be set back, all of them
    /// stay.
    #[must_use]
    pub fn needed(&self) -> BTreeSet<Vec<u16>> {
        let users = self.bound.values().filter(|bound| !bound.kernel);
        let of = |bound: &Bound| {
            let own = cpus(&bound.cpus).unwrap_or_default();
            let all = if self.kept && !bound.sure { 1 } else { own.len().max(1) };
            own.chunks(all).map(<[u16]>::to_vec).collect::<Vec<_>>()
        };
        let own = users.flat_map(of).chain(self.pinned.iter().cloned());
        let usual =
            |own: Vec<u16>| own.into_iter().filter(|cpu| self.usual.contains(cpu)).collect();
        own.map(usual).filter(|own: &Vec<u16>| !own.is_empty()).collect()
    }

    /// Whether this kernel keeps what tasks are bound to.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        self.kept
    }

    /// Why no core is parked yet where Linux forgets bindings: a task could not be bound to a CPU
    /// that is offline before that is back, perhaps long after Ebb has ended.
    #[must_use]
    pub fn lacking(&self) -> Option<String> {
        let is_whole = |bound: &&Bound| {
            let own = cpus(&bound.cpus).unwrap_or_default();
            self.online(&own).len() == own.len()
        };
        let lacks = self.bound.values().find(|bound| !is_whole(bound)).filter(|_| !self.kept)?;
        Some(format!(
            "task {} is bound to CPUs {}, some of which are offline, and this Linux would forget \
             these: bring them back, or bind it to others",
            lacks.task, lacks.cpus
        ))
    }

    /// Whether nothing is parked that a task could be bound to, and none waits for its CPUs.
    #[must_use]
    pub fn are_owners(&self) -> bool {
        self.have_all() && self.bound.is_empty()
    }

    /// Whether nothing is parked that a task could be bound to.
    #[must_use]
    pub fn have_all(&self) -> bool {
        self.active == self.usual
    }

    /// Whether one is not bound to what its group has of its CPUs where `parked` are parked.
    #[must_use]
    pub fn are_loose(&mut self, parked: &[u16]) -> bool {
        self.begin();
        let mut all = std::mem::take(&mut self.bound);
        let is_loose = |bound: &mut Bound| {
            if self.kept && !bound.sure {
                return false;
            }
            let Ok(is) = self.sys.bound(&bound.task.to_string()) else { return false };
            let own = self.own(bound, parked);
            self.online(&is) != self.online(&own)
        };
        let loose = all.values_mut().any(is_loose);
        self.bound = all;
        loose
    }

    /// What its group has of a task's CPUs where `parked` are parked.
    fn own(&mut self, bound: &mut Bound, parked: &[u16]) -> Vec<u16> {
        if bound.group.is_none() {
            bound.group = self.group(&bound.task.to_string());
        }
        let mut all = self.cpus_of(bound.group.as_deref()).to_vec();
        if !self.kept {
            all.retain(|cpu| !parked.contains(cpu));
        }
        left(bound, &all)
    }

    /// Sees to it that each is bound to what its group has of its CPUs where `parked` are parked,
    /// but those that somebody has bound anew.
    ///
    /// # Errors
    /// Why some cannot be bound.
    pub fn settle(&mut self, parked: &[u16]) -> Result<(), Unsettled> {
        if parked.is_empty() {
            self.usual = usual(&self.sys);
        }
        self.active = self.without(parked);
        self.naps = LOOKS;
        self.begin();
        let mut failed = Unsettled::default();
        for mut bound in std::mem::take(&mut self.bound).into_values() {
            failed.note(self.bind(&mut bound, parked));
            self.bound.insert(bound.task, bound);
        }
        if failed.count == 0 { Ok(()) } else { Err(failed) }
    }

    /// They are their owners' from now on.
    pub fn let_go(&mut self) {
        self.bound.clear();
        self.first.clear();
        self.moved = false;
    }

    /// Binds a task that is still there to what is left of its CPUs, unless somebody has bound it
    /// anew.
    fn bind(&mut self, bound: &mut Bound, parked: &[u16]) -> Result<(), Absent> {
        let task = bound.task.to_string();
        let Ok(mut is) = self.sys.bound(&task) else { return Ok(()) };
        let mut own = self.own(bound, parked);
        let group = bound.group.clone();
        let mut forgotten = self.is_forgotten(&is, group.as_deref());
        let theirs = cpus(&bound.cpus).unwrap_or_default();
        let waits = self.kept && self.moved && bound.sure && parked.is_empty();
        while waits && !forgotten && !is.iter().all(|cpu| theirs.contains(cpu)) && self.naps > 0 {
            self.naps -= 1;
            thread::sleep(NAP);
            self.begin();
            let Ok(now) = self.sys.bound(&task) else { return Ok(()) };
            (is, own) = (now, self.own(bound, parked));
            forgotten = self.is_forgotten(&is, group.as_deref());
        }
        if self.kept && !forgotten {
            bound.cpus = self.wish(bound, &is, group.as_deref());
        } else if self.kept && (!bound.sure || self.online(&theirs).is_empty()) {
            // Whatever its owner wants, Linux knows it, or none of it is there.
        } else if self.online(&is) != self.online(&own) {
            let ours = forgotten || bound.is_ours(&is);
            let is_it = |stat: Stat| stat.start == bound.start && stat.policy != DEADLINE;
            if !ours || !Stat::of(&self.sys, &task).is_some_and(is_it) {
                return Ok(());
            }
            match self.sys.bind(&task, if self.kept { &theirs } else { &own }) {
                Err(Absent::Missing(_)) => return Ok(()),
                result => result?,
            }
        }
        // What Linux has made of it: a CPU may have gone at this very moment.
        let is = self.sys.bound(&task).unwrap_or(own);
        (bound.now, bound.changing) = (cpu_list(&is), false);
        let is_known = !self.kept || bound.sure && forgotten;
        if parked.is_empty() && is_known { self.is_whole(bound, &is) } else { Ok(()) }
    }

    /// That nothing of a task's own is lost for good: Linux before 6.2 binds to CPUs online alone.
    /// It may lack what a list keeps its group from, of CPUs that have been there all the time.
    /// What the kernel says to be in effect comes later than a CPU does, and is no reason.
    fn is_whole(&mut self, bound: &Bound, is: &[u16]) -> Result<(), Absent> {
        let own = cpus(&bound.cpus).unwrap_or_default();
        let missing: Vec<_> = own.iter().copied().filter(|cpu| !is.contains(cpu)).collect();
        // Where none of its own was there, it has been given all others.
        if (self.kept || missing.is_empty()) && is.iter().all(|cpu| own.contains(cpu)) {
            return Ok(());
        }
        let stayed = self.online(&missing);
        self.begin();
        let here = self.online(&stayed);
        let folders =
            std::iter::successors(bound.group.as_deref(), |at| Some(at.rsplit_once('/')?.0));
        let lists = folders.filter_map(|at| self.sys.cpus(format!("{at}/cpuset.cpus")).ok());
        let lists: Vec<_> = lists.filter(|list| !list.is_empty()).collect();
        let lacks = |cpu: &u16| lists.iter().any(|list| !list.contains(cpu));
        let all = |cpus: &[u16]| cpus.iter().all(|cpu| here.contains(cpu) && lacks(cpu));
        if !missing.is_empty() && all(&missing) {
            return Ok(());
        }
        let error = format!("some of its CPUs {} are offline", bound.cpus);
        Err(Absent::Away { path: self.sys.path(format!("proc/{}", bound.task)), error })
    }
}

/// Whether its own CPUs are those of before, or what was `seen` already.
fn is_sure(
    bound: &Bound,
    before: &BTreeMap<u32, Bound>,
    seen: Option<&BTreeMap<u32, Bound>>,
) -> bool {
    before.get(&bound.task).is_some_and(|known| known.cpus == bound.cpus)
        || seen.is_some_and(|seen| seen.get(&bound.task) == Some(bound))
}

/// The CPUs of a task that are in `active`; all that are where none is.
fn left(bound: &Bound, active: &[u16]) -> Vec<u16> {
    let own = cpus(&bound.cpus).unwrap_or_default();
    let left: Vec<_> = own.into_iter().filter(|cpu| active.contains(cpu)).collect();
    if left.is_empty() { active.to_vec() } else { left }
}

/// Tasks that are not bound to all of their CPUs.
#[derive(Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{count} tasks cannot be bound to their CPUs: {first}")]
pub struct Unsettled {
    count: usize,
    first: String,
    /// Whether all of them only wait for CPUs that are offline.
    pub waits: bool,
}

impl Unsettled {
    fn note(&mut self, result: Result<(), Absent>) {
        let Err(absent) = result else { return };
        if self.count == 0 {
            (self.first, self.waits) = (absent.to_string(), true);
        }
        self.count += 1;
        self.waits &= matches!(absent, Absent::Away { .. });
    }
}

/// What `/proc/TASK/stat` says of a task (proc_pid_stat(5)).
pub struct Stat {
    /// Its name.
    pub name: String,
    parent: u32,
    flags: u64,
    start: u64,
    /// The CPU that it ran on last.
    pub cpu: u16,
    /// What it is scheduled by.
    pub policy: u32,
}

impl Stat {
    /// Of a task that is there.
    #[must_use]
    pub fn of(sys: &Sys, task: &str) -> Option<Self> {
        // Of the thread alone: of a process Linux adds all of its threads up.
        let text = sys.text(format!("proc/{task}/task/{task}/stat"));
        let text = text.or_else(|_| sys.text(format!("proc/{task}/stat"))).ok()?;
        // The name before the last parenthesis may hold anything.
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let name = text.get(open + 1..close)?.to_owned();
        let mut fields = text[close + 1..].split_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let start = fields.nth(12)?.parse().ok()?;
        let cpu = fields.nth(16).and_then(|cpu| cpu.parse().ok()).unwrap_or_default();
        let policy = fields.nth(1).and_then(|policy| policy.parse().ok()).unwrap_or_default();
        Some(Self { name, parent, flags, start, cpu, policy })
    }

    /// Whether it is a thread of the kernel.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

#[cfg(test)]
mod tests;
