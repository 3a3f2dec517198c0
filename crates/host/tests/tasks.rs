//! Tasks that are bound to CPUs stay so, on kernels that forget it when control groups change
//! (Linux before 6.2) and on those that do not.

use ebb_host::{Held, Leave, RestoreOutcome, Stated};
use proptest::prelude::*;
use serde_json::Value;

use crate::acting::{Bench, parked};
use crate::tree::{Tree, intel};

/// Two sockets of four cores with two threads: 4 to 7 and 12 to 15 are the second socket's.
const ALL: &str = "0-15";
const KTHREAD: u32 = 0x0020_0000;
const NO_SETAFFINITY: u32 = 0x0400_0000;

/// A task of its own process, whose name is as bad as names may be.
fn task(tree: &Tree, task: u32, parent: u32, flags: u32, cpus: &str) {
    std::fs::create_dir_all(tree.path().join(format!("proc/{task}/task/{task}"))).unwrap();
    let start = 1000 + task;
    let stat =
        format!("{task} (a) S 1) S {parent} 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0");
    tree.put(&format!("proc/{task}/task/{task}/stat"), stat);
    let group = if flags & KTHREAD == 0 { "/system.slice/a.service" } else { "/" };
    tree.put(&format!("proc/{task}/cgroup"), format!("0::{group}"));
    bind(tree, task, cpus);
}

fn bind(tree: &Tree, task: u32, cpus: &str) {
    tree.put(&format!("proc/{task}/status"), format!("Cpus_allowed_list:\t{cpus}"));
}

fn bound(tree: &Tree, task: u32) -> String {
    tree.get(&format!("proc/{task}/status")).replace("Cpus_allowed_list:\t", "")
}

/// A machine with a task on CPU 2, one on 5 and 6, one that is free, and two of the kernel's.
fn bench() -> Bench {
    let tree = intel();
    task(&tree, 100, 1, 0, "2");
    task(&tree, 200, 1, 0, "5-6");
    task(&tree, 300, 1, 0, ALL);
    task(&tree, 400, 2, KTHREAD, "4-7,12-15");
    task(&tree, 500, 2, KTHREAD | NO_SETAFFINITY, "7");
    Bench::new(tree)
}

fn park(bench: &mut Bench, active: u16) {
    let mut request = bench.request();
    request.active_cores.ask(0, active, "test:");
    bench.apply(&request);
}

/// What Linux before 6.2 does to every task of a control group.
fn forget(bench: &Bench, left: &str) {
    [100, 200, 300].into_iter().for_each(|task| bind(&bench.tree, task, left));
}

fn all(bench: &Bench) -> [String; 5] {
    [100, 200, 300, 400, 500].map(|task| bound(&bench.tree, task))
}

#[test]
fn tasks_keep_what_is_left_of_their_cpus_and_get_them_back() {
    let mut bench = bench();
    let found = all(&bench);
    park(&mut bench, 5);
    // One of 5 and 6 stays for the task that may run nowhere else; 4 goes in its place.
    assert_eq!(parked(&bench.tree), [4, 6, 7, 12, 14, 15]);
    forget(&bench, "0-3,5,8-11,13");
    park(&mut bench, 5);
    assert_eq!(all(&bench), ["2", "5", "0-3,5,8-11,13", "4-7,12-15", "7"]);
    // The kernel forgets while the groups get their CPUs back, before anything is bound again.
    forget(&bench, ALL);
    park(&mut bench, 8);
    assert_eq!(all(&bench), found);
}

#[test]
fn after_a_kill_they_are_set_back_too() {
    let mut bench = bench();
    let found = all(&bench);
    park(&mut bench, 5);
    forget(&bench, ALL);
    let done = bench.restore();
    assert!(
        !done.iter().any(|one| matches!(one.outcome, RestoreOutcome::Failed { .. })),
        "{done:?}"
    );
    assert_eq!(all(&bench), found);
    assert_eq!(bench.restore(), []);
}

/// What is about to be is on disk first; killed before it is true, a task has what it had.
#[test]
fn after_a_kill_before_they_are_bound_they_are_set_back_too() {
    let mut bench = bench();
    let found = all(&bench);
    park(&mut bench, 5);
    let file = bench.state.path().join("originals.json");
    let mut saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for task in saved["tasks"].as_array_mut().unwrap() {
        task["changing"] = true.into();
        task["now"] = task["cpus"].clone();
    }
    std::fs::write(&file, saved.to_string()).unwrap();
    // As the group's list was while cores were parked.
    bench.tree.put("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0-3,5,8-11,13");
    assert_eq!(bound(&bench.tree, 200), "5");
    bench.restore();
    bench.tree.put("sys/fs/cgroup/system.slice/cpuset.cpus.effective", ALL);
    bench.restore();
    assert_eq!(
        (bound(&bench.tree, 100), bound(&bench.tree, 200)),
        (found[0].clone(), found[1].clone())
    );
}

#[test]
fn what_others_bind_meanwhile_is_theirs() {
    let mut bench = bench();
    park(&mut bench, 5);
    bind(&bench.tree, 100, "1");
    // Started by the one that has 5 of 5 and 6 left.
    task(&bench.tree, 201, 200, 0, "5");
    park(&mut bench, 6);
    assert_eq!(bound(&bench.tree, 100), "1");
    bench.restore();
    assert_eq!(bound(&bench.tree, 100), "1");
    assert_eq!(bound(&bench.tree, 201), "5-6");
}

#[test]
fn while_nothing_is_parked_and_while_something_is_owners_bind_as_they_like() {
    let mut bench = bench();
    park(&mut bench, 8);
    for cpus in ["1", ALL, "2"] {
        bind(&bench.tree, 100, cpus);
        park(&mut bench, 8);
        assert_eq!(bound(&bench.tree, 100), cpus);
    }
    park(&mut bench, 5);
    bind(&bench.tree, 100, "0-1");
    park(&mut bench, 5);
    assert_eq!(bound(&bench.tree, 100), "0-1");
    park(&mut bench, 8);
    bind(&bench.tree, 200, ALL);
    bench.restore();
    assert_eq!(bound(&bench.tree, 100), "0-1");
    assert_eq!(bound(&bench.tree, 200), ALL, "it was set free when nothing was parked");
}

#[test]
fn nothing_is_parked_before_tasks_are_on_disk_and_that_is_told_once() {
    let mut bench = bench();
    // Where the new file would be is something else.
    let new = bench.state.path().join("originals.json.new");
    std::fs::create_dir(&new).unwrap();
    let before = bench.tree.settings();
    park(&mut bench, 5);
    park(&mut bench, 5);
    assert_eq!(bench.tree.settings(), before);
    let told = bench.host.notices();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].text.contains("cores stay as they are"), "{told:?}");
    std::fs::remove_dir(new).unwrap();
    park(&mut bench, 5);
    assert_eq!(parked(&bench.tree), [4, 6, 7, 12, 14, 15]);
}

#[test]
fn a_number_that_another_task_has_now_is_not_touched() {
    let mut bench = bench();
    park(&mut bench, 5);
    task(&bench.tree, 200, 1, 0, "0-1");
    bench
        .tree
        .put("proc/200/task/200/stat", "200 (b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9999 0 0");
    bench.restore();
    assert_eq!(bound(&bench.tree, 200), "0-1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn every_user_s_task_keeps_a_cpu_and_gets_all_of_them_back(
        masks in proptest::collection::vec(proptest::collection::btree_set(0..16_u16, 1..5), 1..6),
        counts in proptest::collection::vec(1..9_u16, 1..6),
        forgets: bool,
    ) {
        let tree = intel();
        let lists: Vec<_> = masks
            .iter()
            .map(|mask| mask.iter().map(u16::to_string).collect::<Vec<_>>().join(","))
            .collect();
        let tasks = || (100..).zip(&lists);
        tasks().for_each(|(number, list)| task(&tree, number, 1, 0, list));
        let mut bench = Bench::new(tree);
        let cpus = |text: &str| ebb_host::cpus(text).unwrap();
        for count in counts {
            park(&mut bench, count);
            let parked = parked(&bench.tree);
            for mask in &masks {
                let is_left = mask.iter().any(|cpu| !parked.contains(cpu));
                prop_assert!(is_left, "{mask:?} in {parked:?}");
            }
            if forgets && !parked.is_empty() {
                let left = (0..16).filter(|cpu| !parked.contains(cpu));
                let left = left.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
                tasks().for_each(|(number, _)| bind(&bench.tree, number, &left));
                park(&mut bench, count);
            }
            for ((number, _), mask) in tasks().zip(&masks) {
                let is = cpus(&bound(&bench.tree, number));
                prop_assert!(is.iter().all(|cpu| mask.contains(cpu) && !parked.contains(cpu)));
            }
        }
        bench.restore();
        for ((number, _), mask) in tasks().zip(&masks) {
            let own: Vec<_> = mask.iter().copied().collect();
            prop_assert_eq!(cpus(&bound(&bench.tree, number)), own);
        }
    }
}

/// Linux before 6.2 binds a task to those of its CPUs that are online, and to no others later.
#[test]
fn what_lacks_a_cpu_that_is_offline_waits_for_it() {
    let mut bench = bench();
    park(&mut bench, 5);
    let online = "sys/devices/system/cpu/online";
    bench.tree.put(online, "0-4,6-15");
    forget(&bench, "0-4,6-15");
    let waits = |bench: &Bench| {
        let done = bench.restore().into_iter();
        done.filter(|one| matches!(one.outcome, RestoreOutcome::Pending { .. })).count()
    };
    assert_eq!((waits(&bench), bound(&bench.tree, 200).as_str()), (1, "6"));
    bench.tree.put(online, ALL);
    assert_eq!((waits(&bench), bound(&bench.tree, 200).as_str()), (0, "5-6"));
}

/// The same while Ebb runs on, and after a kill in which nothing but tasks was to be set back.
#[test]
fn what_waits_for_a_cpu_waits_longer_than_cores_are_parked() {
    let online = "sys/devices/system/cpu/online";
    let waiting = || {
        let mut bench = bench();
        park(&mut bench, 5);
        bench.tree.put(online, "0-4,6-15");
        forget(&bench, "0-4,6-15");
        park(&mut bench, 8);
        assert_eq!(bound(&bench.tree, 200), "6");
        bench
    };
    let mut bench = waiting();
    bench.tree.put(online, ALL);
    park(&mut bench, 8);
    assert_eq!(bound(&bench.tree, 200), "5-6");

    let bench = waiting();
    let file = bench.state.path().join("originals.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"touched\": true", "\"touched\": false")).unwrap();
    let before = bench.tree.settings();
    let done = bench.restore();
    let waits = |one: &ebb_host::Restored| matches!(one.outcome, RestoreOutcome::Pending { .. });
    assert_eq!(done.iter().filter(|one| waits(one)).count(), 1, "{done:?}");
    assert_eq!(bench.tree.settings(), before, "nothing else is written");
    bench.tree.put(online, ALL);
    bench.restore();
    assert_eq!(bound(&bench.tree, 200), "5-6");
    assert_eq!(bench.restore(), []);
}

#[test]
fn no_core_is_parked_while_a_task_lacks_a_cpu_that_it_would_not_get_back() {
    let mut bench = bench();
    let online = "sys/devices/system/cpu/online";
    bench.tree.put(online, "0-5,7-15");
    bench.host.notices();
    park(&mut bench, 5);
    park(&mut bench, 5);
    assert!(parked(&bench.tree).is_empty());
    let told = bench.host.notices();
    assert!(told.iter().any(|notice| notice.text.contains("task 200 is bound to CPUs 5-6")));
    bench.tree.put(online, ALL);
    bench.host.follow();
    park(&mut bench, 5);
    assert_eq!(parked(&bench.tree), [4, 6, 7, 12, 14, 15]);
}

/// Linux since 6.2, as far as tasks of `system.slice` and their CPUs go: it knows what each was
/// bound to, and lets it run on what its group has of that.
struct Since62 {
    tasks: Vec<(u32, Vec<u16>)>,
    /// What each may run on, as Linux said last.
    said: Vec<Vec<u16>>,
    online: Vec<u16>,
}

impl Since62 {
    fn on(tree: &Tree, wishes: &[Vec<u16>]) -> Self {
        tree.put("proc/sys/kernel/osrelease", "6.12.9-1-amd64");
        let tasks: Vec<_> = (100..).zip(wishes.iter().cloned()).collect();
        tasks.iter().for_each(|(number, wish)| task(tree, *number, 1, 0, &list(wish)));
        Self { said: wishes.to_vec(), tasks, online: (0..16).collect() }
    }

    /// Takes in what was written, and tells the tasks.
    fn runs(&mut self, tree: &Tree) {
        for ((number, wish), said) in self.tasks.iter_mut().zip(&self.said) {
            let is = ebb_host::cpus(&bound(tree, *number)).unwrap();
            // Somebody has bound it.
            if is != *said {
                *wish = is;
            }
        }
        let parked = parked(tree);
        let mut effective = self.online.clone();
        effective.retain(|cpu| !parked.contains(cpu));
        // A group without a CPU of its own has those of the group above.
        if effective.is_empty() {
            effective.clone_from(&self.online);
        }
        tree.put("sys/devices/system/cpu/online", list(&self.online));
        tree.put("sys/fs/cgroup/cpuset.cpus.effective", list(&self.online));
        tree.put("sys/fs/cgroup/system.slice/cpuset.cpus.effective", list(&effective));
        for ((number, wish), said) in self.tasks.iter().zip(&mut self.said) {
            *said = wish.iter().copied().filter(|cpu| effective.contains(cpu)).collect();
            if said.is_empty() {
                said.clone_from(&effective);
            }
            bind(tree, *number, &list(said));
        }
    }

    /// Somebody takes a CPU offline, one at a time: Linux does not show what a task has of those
    /// that are. One that could run there alone is moved at once, and what it was bound to is
    /// forgotten (`select_fallback_rq`).
    fn takes(&mut self, tree: &Tree, cpu: u16) {
        if self.online.len() == 16 {
            self.online.retain(|one| *one != cpu);
            for ((_, wish), said) in self.tasks.iter_mut().zip(&mut self.said) {
                if *said == [cpu] {
                    *wish = (0..16).collect();
                }
            }
            self.runs(tree);
        }
    }
}

fn list(cpus: &[u16]) -> String {
    cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever is parked, taken offline by others, brought back and given back, tasks are bound
    /// in the end to what their owners have bound them to.
    #[test]
    fn since_linux_6_2_nothing_that_a_task_was_bound_to_is_lost(
        wishes in proptest::collection::vec(proptest::collection::btree_set(0..16_u16, 2..4), 1..5),
        steps in proptest::collection::vec((0..4_u8, 1..16_u16), 1..16),
    ) {
        let wishes: Vec<Vec<u16>> = wishes.into_iter().map(Vec::from_iter).collect();
        let tree = intel();
        let mut linux = Since62::on(&tree, &wishes);
        linux.runs(&tree);
        let mut bench = Bench::new(tree);
        for (what, number) in steps {
            match what {
                0 => linux.takes(&bench.tree, number),
                1 => linux.online = (0..16).collect(),
                2 => park(&mut bench, 8),
                _ => {
                    // Killed, given back, and started again.
                    bench.restore();
                    let Bench { tree, state, host } = bench;
                    drop(host);
                    linux.runs(&tree);
                    let (stated, leave) = (Stated::default(), Leave::Restore);
                    bench = Bench::started(tree, state, &stated, leave, Held::default());
                }
            }
            linux.runs(&bench.tree);
            bench.host.follow();
            park(&mut bench, number.div_ceil(2));
            linux.runs(&bench.tree);
        }
        linux.online = (0..16).collect();
        linux.runs(&bench.tree);
        for _ in 0..2 {
            bench.restore();
            linux.runs(&bench.tree);
        }
        for ((_, is), wish) in linux.tasks.iter().zip(&wishes) {
            prop_assert_eq!(is, wish);
        }
    }
}
