//! Which control groups parked cores are kept from, and which are never touched.

use std::fs;

use ebb_host::{Group, Held, Leave, ParkBy, Report, RestoreOutcome, Stated, Sys};
use ebb_policy::{Control, CoreRole, Outcome, Plant, Signals};

use crate::acting::{Bench, parked};
use crate::tree::{Tree, intel};

const ROOT: &str = "sys/fs/cgroup";
pub const SCHED_DEADLINE: u32 = 6;

fn list(tree: &Tree, group: &str) -> String {
    tree.get(&format!("{ROOT}/{group}/cpuset.cpus"))
}

/// A thread of a group, scheduled by `policy`.
pub fn thread(tree: &Tree, group: &str, thread: u32, policy: u32) {
    tree.put(&format!("{ROOT}/{group}/cgroup.threads"), thread);
    let fields = format!("1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {thread}");
    // Up to the policy, the 41st: proc_pid_stat(5).
    let zeros = "0 ".repeat(18);
    let stat = format!("{thread} (rt app) S 1 {fields} {zeros}{policy} 0 0");
    tree.put(&format!("proc/{thread}/task/{thread}/stat"), stat);
    tree.put(&format!("proc/{thread}/status"), "Cpus_allowed_list:\t0-15");
}

fn park(bench: &mut Bench, active: u16) -> Outcome {
    let mut request = bench.request();
    request.active_cores.ask(0, active, "test:");
    bench.apply(&request).of(Control::ActiveCores, 0)
}

/// Parks cycle after cycle until `is_so`; what it said meanwhile.
pub fn until(bench: &mut Bench, active: u16, is_so: impl Fn(&Tree) -> bool) -> String {
    let mut signals = Signals::new(bench.host.topology());
    let mut said = String::new();
    let begun = std::time::Instant::now();
    while !is_so(&bench.tree) {
        assert!(begun.elapsed().as_secs() < 60, "it never is: {said}");
        std::thread::sleep(std::time::Duration::from_millis(50));
        bench.host.sense(&mut signals);
        park(bench, active);
        said += &told(bench);
    }
    said
}

fn told(bench: &mut Bench) -> String {
    let told = bench.host.notices().into_iter().map(|n| format!("{}: {}\n", n.place, n.text));
    told.collect()
}

#[test]
fn each_group_keeps_its_own_list_and_gets_it_back() {
    let tree = intel();
    tree.group("machine.slice", "2-7").group("machine.slice/vm.scope", "6");
    let before = tree.settings();
    let mut bench = Bench::new(tree);
    assert_eq!(park(&mut bench, 4), Outcome::Done);
    // CPU 6 is all that the machine below has: its core stays, and another one goes.
    assert_eq!(parked(&bench.tree), [3, 4, 5, 7, 11, 12, 13, 15]);
    assert_eq!(list(&bench.tree, "machine.slice"), "2,6");
    assert_eq!(list(&bench.tree, "machine.slice/vm.scope"), "6");
    assert_eq!(park(&mut bench, 8), Outcome::Done);
    assert_eq!((list(&bench.tree, "machine.slice").as_str(), parked(&bench.tree)), ("2-7", vec![]));
    park(&mut bench, 4);
    bench.restore();
    let after: Vec<_> =
        bench.tree.settings().into_iter().filter(|file| !file.0.starts_with("dev/")).collect();
    let before: Vec<_> = before.into_iter().filter(|file| !file.0.starts_with("dev/")).collect();
    assert!(after == before);
}

#[test]
fn a_group_with_a_deadline_thread_is_never_written_and_named_with_the_thread() {
    let tree = intel();
    tree.group("user.slice/audio.scope", "");
    thread(&tree, "user.slice/audio.scope", 812, SCHED_DEADLINE);
    thread(&tree, "system.slice", 813, 0);
    let mut bench = Bench::new(tree);
    assert_eq!(park(&mut bench, 4), Outcome::Done, "all others are kept from parked cores");
    assert_eq!(
        (list(&bench.tree, "system.slice"), list(&bench.tree, "user.slice")),
        ("0-3,8-11".into(), String::new())
    );
    let said = told(&mut bench);
    assert!(said.contains("thread 812 (rt app) is scheduled by deadline"), "{said}");
    assert!(said.contains("user.slice/cpuset.cpus"), "{said}");
    // One that comes while cores are parked keeps its group as it is, until it has gone.
    thread(&bench.tree, "system.slice", 813, SCHED_DEADLINE);
    park(&mut bench, 8);
    let failed = |bench: &Bench| {
        let done = bench.restore().into_iter();
        let failed = done.filter(|one| matches!(one.outcome, RestoreOutcome::Failed { .. }));
        failed.map(|one| one.place.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(&bench.tree, "system.slice"), "0-3,8-11");
    assert_eq!(failed(&bench), ["/sys/fs/cgroup/system.slice/cpuset.cpus"]);
    thread(&bench.tree, "system.slice", 813, 0);
    assert!(failed(&bench).is_empty());
    assert_eq!(list(&bench.tree, "system.slice"), "");
}

#[test]
fn the_controller_is_not_turned_on_over_a_deadline_thread() {
    let tree = intel();
    tree.put(&format!("{ROOT}/cgroup.subtree_control"), "cpu io");
    thread(&tree, "system.slice", 812, SCHED_DEADLINE);
    let before = tree.settings();
    let mut bench = Bench::new(tree);
    let with_drives = bench.tree.settings();
    assert_eq!(park(&mut bench, 4), Outcome::Refused);
    assert!(bench.tree.settings() == with_drives);
    assert!(told(&mut bench).contains("812"));
    assert!(before.iter().all(|file| file.1 != "+cpuset"));
}

#[test]
fn a_thread_that_cannot_be_seen_may_be_one() {
    let tree = intel();
    tree.put(&format!("{ROOT}/user.slice/cgroup.threads"), "0");
    thread(&tree, "system.slice", 900, 0);
    fs::remove_file(tree.path().join("proc/900/task/900/stat")).unwrap();
    let mut bench = Bench::new(tree);
    assert_eq!(park(&mut bench, 4), Outcome::Refused);
    assert!(parked(&bench.tree).is_empty());
    let said = told(&mut bench);
    assert!(said.contains("hidepid") && said.contains("thread 900"), "{said}");
    // One that has ended is nobody's matter.
    bench.tree.put(&format!("{ROOT}/system.slice/cgroup.threads"), "901");
    bench.tree.put(&format!("{ROOT}/user.slice/cgroup.threads"), "");
    until(&mut bench, 4, |tree| parked(tree) == [4, 5, 6, 7, 12, 13, 14, 15]);
}

#[test]
fn partitions_of_others_stay_as_they_are_and_their_cpus_are_nobody_else_s() {
    let tree = intel();
    tree.group("rt.slice", "1").put(&format!("{ROOT}/rt.slice/cpuset.cpus.partition"), "isolated");
    tree.put(&format!("{ROOT}/cpuset.cpus.effective"), "0,2-15");
    let mut bench = Bench::new(tree);
    park(&mut bench, 4);
    assert_eq!(list(&bench.tree, "rt.slice"), "1");
    // With CPU 1 the list of the others would make the partition invalid.
    assert_eq!(list(&bench.tree, "system.slice"), "0,2-3,8-11");
    let said = told(&mut bench);
    assert!(said.contains("its tasks use CPUs of their own: "), "{said}");
    assert!(!said.contains("may use parked cores"), "{said}");
    let apart = |tree: &Tree| {
        let all = ebb_host::parkable(&Sys::new(tree.path()));
        all.into_iter().find(|one| one.group == "rt.slice").unwrap().apart
    };
    assert_eq!(apart(&bench.tree), Some(vec![1]));
    // One that the kernel has made invalid has the CPUs of all.
    bench.tree.put(&format!("{ROOT}/rt.slice/cpuset.cpus.effective"), "0-15");
    assert_eq!(apart(&bench.tree), None);
}

/// `isolcpus=`: the kernel balances no load there, so nobody is to be driven onto these.
#[test]
fn isolated_cpus_are_no_cores_of_a_policy_and_nobody_is_left_with_them_alone() {
    let tree = intel();
    tree.put("sys/devices/system/cpu/isolated", "0-3,8-11");
    // Without the other four its tasks would have isolated ones alone.
    tree.group("machine.slice", "0-4");
    let mut bench = Bench::new(tree);
    assert_eq!(bench.host.topology().groups[0].cores, 4);
    let said = |bench: &Bench, groups: &[&str]| {
        let group = |cpus: &&str| Group {
            role: CoreRole::ResourceVolume,
            cpus: ebb_host::cpus(cpus).unwrap(),
        };
        let stated = Stated { groups: groups.iter().map(group).collect(), ..Stated::default() };
        let report = Report::new(bench.host.machine(), &stated);
        let all = |name: &str| {
            let mut rows = report.signals.iter().chain(&report.controls);
            let row = rows.find(|row| row.name == name && row.of.as_deref() == Some("all"));
            row.unwrap().value.unwrap() as usize
        };
        let counts = [report.cores, all("cores_active"), all("active_cores")];
        assert!(counts.iter().all(|count| *count == report.cores), "{counts:?}");
        (report.cores, report.apart)
    };
    let (cores, apart) = said(&bench, &[]);
    assert_eq!(cores, 4, "as run counts them");
    assert!(apart.unwrap().starts_with("CPUs 0-3,8-11 are isolated (isolcpus=): their cores"));
    let (cores, apart) = said(&bench, &["0-1", "4-7,12-15"]);
    assert_eq!(cores, 6, "two that are isolated are named");
    assert!(apart.unwrap().starts_with("CPUs 2-3,10-11 are isolated"));
    assert_eq!(park(&mut bench, 2), Outcome::Done);
    assert_eq!(list(&bench.tree, "system.slice"), "4-5,12-13");
    park(&mut bench, 1);
    assert_eq!(list(&bench.tree, "machine.slice"), "0-4");
    assert_eq!(list(&bench.tree, "system.slice"), "4,12");
    bench.restore();
    assert_eq!(list(&bench.tree, "system.slice"), "");
    // Every second thread isolated is still a core for all.
    let tree = intel();
    tree.put("sys/devices/system/cpu/isolated", "8-15");
    let bench = Bench::new(tree);
    assert_eq!((bench.host.topology().groups[0].cores, said(&bench, &[])), (8, (8, None)));
    // Tasks come to those of nohz_full= alone as to others.
    let tree = intel();
    tree.put("sys/devices/system/cpu/isolated", "").put("sys/devices/system/cpu/nohz_full", "2-7");
    assert_eq!(said(&Bench::new(tree), &[]), (8, None));
}

/// The kernel takes any name but one with `/` or a new line (`cgroup_mkdir`).
#[test]
fn a_group_that_cannot_be_saved_is_left_alone_and_named() {
    for (name, list_found) in [("batch\tjobs", "0-15"), ("batch.slice", "0-3:1/2")] {
        let tree = intel();
        tree.group(name, list_found);
        let mut bench = Bench::new(tree);
        assert_eq!(park(&mut bench, 4), Outcome::Done);
        assert_eq!(list(&bench.tree, name), list_found);
        assert_eq!(list(&bench.tree, "system.slice"), "0-3,8-11");
        assert!(told(&mut bench).contains("its tasks may use parked cores"));
    }
}

/// `validate_change` in `kernel/cgroup/cpuset.c`: ENOSPC.
#[test]
fn a_list_that_linux_would_not_take_back_is_not_given() {
    let tree = intel();
    let populated = |group: &str| format!("{ROOT}/{group}/cgroup.events");
    tree.put(&populated("system.slice"), "populated 1\nfrozen 0");
    tree.group("machine.slice", "0-15").put(&populated("machine.slice"), "populated 1\nfrozen 0");
    tree.put(&populated("user.slice"), "populated 0\nfrozen 0");
    let mut bench = Bench::new(tree);
    assert_eq!(park(&mut bench, 4), Outcome::Done);
    let lists = ["system.slice", "machine.slice", "user.slice"];
    assert_eq!(lists.map(|group| list(&bench.tree, group)), ["", "0-3,8-11", ""]);
    let said = told(&mut bench);
    assert!(said.contains("systemctl set-property system.slice AllowedCPUs="), "{said}");
    assert!(!said.contains("user.slice"), "{said}");
}

#[test]
fn groups_that_come_are_saved_and_restricted_and_those_that_go_are_dropped() {
    let mut bench = Bench::new(intel());
    park(&mut bench, 4);
    bench.tree.group("kubepods", "");
    fs::remove_dir_all(bench.tree.path().join(ROOT).join("user.slice")).unwrap();
    until(&mut bench, 4, |tree| list(tree, "kubepods") == "0-3,8-11");
    let saved = fs::read_to_string(bench.state.path().join("originals.json")).unwrap();
    assert!(saved.contains("kubepods") && !saved.contains("user.slice"), "{saved}");
    fs::remove_dir_all(bench.tree.path().join(ROOT).join("kubepods")).unwrap();
    let done = bench.restore();
    assert!(done.iter().any(|one| matches!(one.outcome, RestoreOutcome::Gone { .. })), "{done:?}");
    assert!(parked(&bench.tree).is_empty());
}

/// As systemd does at a daemon-reload: that is a reset, however often, and no rival.
#[test]
fn what_the_manager_of_groups_resets_is_set_again() {
    let mut bench = Bench::new(intel());
    for _ in 0..2 {
        park(&mut bench, 4);
        bench.tree.put(&format!("{ROOT}/system.slice/cpuset.cpus"), "");
        let said = until(&mut bench, 4, |tree| parked(tree) == [4, 5, 6, 7, 12, 13, 14, 15]);
        assert!(said.contains("it will be set once more"), "{said}");
    }
    assert_eq!(bench.host.failing(), 0);
}

#[test]
fn where_no_group_takes_a_list_no_core_is_parked_and_that_is_told_once() {
    let tree = intel();
    for group in ["system.slice", "user.slice"] {
        fs::remove_dir_all(tree.path().join(ROOT).join(group)).unwrap();
    }
    let mut bench = Bench::new(tree);
    for _ in 0..3 {
        assert_eq!(park(&mut bench, 4), Outcome::Refused);
    }
    let mut signals = Signals::new(bench.host.topology());
    bench.host.sense(&mut signals);
    assert_eq!(signals.groups[0].active, Some(8));
    assert_eq!(told(&mut bench).matches("no control group").count(), 1);
}

#[test]
fn no_cpu_goes_offline_over_a_deadline_thread() {
    let tree = intel();
    for cpu in 1..16 {
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/online"), 1);
    }
    thread(&tree, "system.slice", 812, SCHED_DEADLINE);
    let stated = Stated { park_by: ParkBy::Offline, ..Stated::default() };
    let mut bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
    let before = bench.tree.settings();
    assert_eq!(park(&mut bench, 4), Outcome::Refused);
    assert!(bench.tree.settings() == before);
    assert!(told(&mut bench).contains("thread 812"));
}
