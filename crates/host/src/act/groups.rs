//! Control groups of the unified hierarchy (`Documentation/admin-guide/cgroup-v2.rst`): those that
//! parked cores are kept from, and why some may not be touched.

pub use crate::act::place::CGROUPS;
use crate::act::tasks::{DEADLINE, Stat};
use crate::sys::{Absent, Sys};

/// Names of the groups directly below the root that have tasks, or may have.
pub fn below_root(sys: &Sys) -> Vec<String> {
    let mut names = sys.folders(CGROUPS);
    names.retain(|name| is_populated(sys, name) != Some(false));
    names
}

/// Whether a group or one below it has tasks; `None` where nothing says so.
fn is_populated(sys: &Sys, group: &str) -> Option<bool> {
    let events = sys.text(format!("{CGROUPS}/{group}/cgroup.events")).ok()?;
    let populated = events.lines().find_map(|line| line.strip_prefix("populated "))?;
    Some(populated != "0")
}

/// Why the CPUs of `group`, whose list was `found`, are left alone; `None` where they can be
/// changed without danger and given back. `ours` is whether the cpuset controller was off before.
pub fn obstacle(sys: &Sys, group: &str, found: &str, ours: bool) -> Option<String> {
    if !found.is_empty() || ours || is_populated(sys, group) != Some(true) {
        return is_safe(sys, group).err().map(|danger| danger.to_string());
    }
    let all = sys.text("sys/devices/system/cpu/possible").unwrap_or_else(|_| "0-N".to_owned());
    Some(format!(
        "it has no list of CPUs, and Linux takes a list from no group that has tasks: it could not \
         be set back. To park cores for it, give it one (systemctl set-property {group} \
         AllowedCPUs={all})"
    ))
}

/// Without the unified hierarchy what is below its place is no group.
pub const NO_HIERARCHY: &str =
    "no cpuset in sys/fs/cgroup: mount the unified hierarchy (cgroup v2)";

/// Why no list of CPUs can be given to any group, and what to do; `None` where one can.
#[must_use]
pub fn lacks_cpuset(sys: &Sys) -> Option<&'static str> {
    let unified = sys.text(format!("{CGROUPS}/cgroup.controllers"));
    let is_there = |text: &String| text.split_whitespace().any(|one| one == "cpuset");
    if unified.as_ref().is_ok_and(is_there) {
        return None;
    }
    // The hierarchy of a controller, 0 without one of its own, its groups, and whether it is on
    // (cgroups(7)).
    let all = sys.text("proc/cgroups").unwrap_or_default();
    let line = all.lines().find_map(|line| line.strip_prefix("cpuset"));
    let line: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
    Some(match (line.as_slice(), unified) {
        ([_, _, "0"], _) => "cpuset is turned off: boot without cgroup_disable=cpuset",
        ([hierarchy, ..], _) if *hierarchy != "0" => {
            "cpuset belongs to cgroup v1: boot with systemd.unified_cgroup_hierarchy=1, or \
             cgroup_no_v1=cpuset"
        }
        (_, Err(_)) => NO_HIERARCHY,
        (_, Ok(_)) => {
            "cgroup v2 is mounted and cpuset is not among its controllers: it is not delegated to \
             this container, or belongs to cgroup v1; run ebb on the host, or boot with \
             systemd.unified_cgroup_hierarchy=1"
        }
    })
}

/// The CPUs of a group's tasks, where none of them is among those `shared` by others: as those of
/// a partition.
#[must_use]
pub fn own_cpus(sys: &Sys, group: &str, shared: &[u16]) -> Option<Vec<u16>> {
    let read = |file| sys.cpus(format!("{CGROUPS}/{group}/{file}")).ok();
    let cpus = read("cpuset.cpus.effective").or_else(|| read("cpuset.cpus"))?;
    let is_own = !cpus.is_empty() && !cpus.iter().any(|cpu| shared.contains(cpu));
    is_own.then_some(cpus)
}

/// User tasks in the root group, which no cpuset restricts.
#[must_use]
pub fn outside(sys: &Sys) -> usize {
    let tasks = sys.text(format!("{CGROUPS}/cgroup.procs")).unwrap_or_default();
    tasks.lines().filter(|task| Stat::of(sys, task).is_some_and(|stat| !stat.is_kernel())).count()
}

/// Lists of CPUs of the groups below `group`, which has its own.
pub fn lists_below(sys: &Sys, group: &str) -> Vec<Vec<u16>> {
    let below = tree(sys, format!("{CGROUPS}/{group}")).into_iter().skip(1);
    let lists = below.filter_map(|folder| sys.cpus(format!("{folder}/cpuset.cpus")).ok());
    lists.filter(|list| !list.is_empty()).collect()
}

/// The first threads of `group` and of those below it, `most` at most.
#[must_use]
pub fn threads(sys: &Sys, group: &str, most: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![format!("{CGROUPS}/{group}")];
    while let Some(folder) = folders.pop().filter(|_| all.len() < most) {
        let threads = sys.text(format!("{folder}/cgroup.threads")).unwrap_or_default();
        all.extend(threads.lines().take(most - all.len()).map(str::to_owned));
        folders.extend(sys.folders(&folder).into_iter().map(|name| format!("{folder}/{name}")));
    }
    all
}

/// Whether the root group hands a controller on.
pub fn is_on(sys: &Sys, controller: &str) -> bool {
    let on = sys.text(format!("{CGROUPS}/cgroup.subtree_control")).unwrap_or_default();
    on.split_whitespace().any(|one| one == controller)
}

/// That the list of CPUs of `group` can be changed without danger.
///
/// Linux divides by the number of CPUs online of a scheduling domain when the CPUs of a thread
/// that is scheduled by deadline change while the one it last ran on is offline: by zero
/// (`set_cpus_allowed_dl`, `__dl_sub` in `kernel/sched/deadline.c`). A change of a partition
/// changes the CPUs of the tasks of the root group as well: of the governor's `sugov:N`.
///
/// # Errors
/// What is in the way.
pub fn is_safe(sys: &Sys, group: &str) -> Result<(), Absent> {
    tree(sys, format!("{CGROUPS}/{group}")).iter().try_for_each(|folder| {
        match partition(sys, folder) {
            Some(kind) => {
                let error = format!("it is a partition of CPUs ({kind}) and stays as it is");
                Err(Absent::Failed { path: sys.path(folder), error })
            }
            None => no_deadlines(sys, folder),
        }
    })
}

/// That CPUs can go offline without that danger: Linux changes the lists of groups by itself then.
///
/// # Errors
/// What is in the way.
pub fn may_unplug(sys: &Sys) -> Result<(), Absent> {
    let all = tree(sys, CGROUPS.to_owned());
    let (root, below) = all.split_at(1);
    let partitioned = below.iter().any(|folder| partition(sys, folder).is_some());
    let root = if partitioned { root } else { &[] };
    below.iter().chain(root).try_for_each(|folder| no_deadlines(sys, folder))
}

/// The kind of a partition of CPUs; `None` of a usual group.
fn partition(sys: &Sys, folder: &str) -> Option<String> {
    let kind = sys.text(format!("{folder}/cpuset.cpus.partition")).ok();
    kind.filter(|kind| kind != "member")
}

/// That no thread of a group alone is scheduled by deadline.
fn no_deadlines(sys: &Sys, folder: &str) -> Result<(), Absent> {
    let threads = match sys.text(format!("{folder}/cgroup.threads")) {
        Err(Absent::Missing(_)) => return Ok(()),
        threads => threads?,
    };
    let reason = threads.lines().find_map(|thread| match Stat::of(sys, thread) {
        Some(Stat { policy: DEADLINE, name, .. }) => Some(format!(
            "thread {thread} ({name}) is scheduled by deadline, and Linux can crash when the CPUs \
             of such a thread change: give it another policy (chrt --other --pid 0 {thread})"
        )),
        // Its policy is not known: it is of another namespace, or hidden from us.
        None if thread == "0" || sys.affinity(thread).is_ok() => Some(format!(
            "/proc does not show thread {thread}, which may be scheduled by deadline: mount /proc \
             without hidepid, or give ebb CAP_SYS_PTRACE"
        )),
        _ => None,
    });
    reason.map_or(Ok(()), |error| Err(Absent::Failed { path: sys.path(folder), error }))
}

/// That none below the root is dangerous to change: the cpuset controller goes on or off for all.
///
/// # Errors
/// What is in the way.
pub fn are_safe(sys: &Sys) -> Result<(), Absent> {
    let mut all = sys.folders(CGROUPS).into_iter();
    all.try_for_each(|group| is_safe(sys, &group))
}

/// The folder of a group and those of all groups below it.
fn tree(sys: &Sys, folder: String) -> Vec<String> {
    let mut all = vec![folder];
    let mut at = 0;
    while let Some(folder) = all.get(at).cloned() {
        all.extend(sys.folders(&folder).into_iter().map(|name| format!("{folder}/{name}")));
        at += 1;
    }
    all
}
