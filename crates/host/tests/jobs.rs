//! Control groups as jobs: what is set of them, when, and that it comes back.

use std::fs;

use ebb_host::{Held, Host, Impossible, Leave, Place, Report, RestoreOutcome, Stated, StatedJob};
use ebb_policy::{Applied, Control, Outcome, Plant, QosClass, Request, Signals};

use crate::acting::{Bench, changed};
use crate::tree::{Tree, intel};

const SCRUB: &str = "batch.slice/scrub.service";
const INDEX: &str = "batch.slice/index.service";

fn file(group: &str, file: &str) -> String {
    format!("sys/fs/cgroup/{group}/{file}")
}

/// Makes a group, with tasks in it or without.
fn group(tree: &Tree, group: &str, populated: u8) {
    tree.put(&file(group, "cgroup.events"), format!("populated {populated}\nfrozen 0"))
        .put(&file(group, "cgroup.freeze"), 0)
        .put(&file(group, "cpu.max"), "max 100000")
        .put(&file(group, "cpu.stat"), "usage_usec 0")
        .put(&file(group, "io.stat"), "");
}

fn jobs() -> Vec<StatedJob> {
    let job = |group: &str, class| StatedJob { group: group.into(), class, name: String::new() };
    vec![job(SCRUB, QosClass::Noncritical), job(INDEX, QosClass::Sensitive)]
}

fn bench(tree: Tree) -> Bench {
    let stated = Stated { jobs: jobs(), ..Stated::default() };
    Bench::stated(tree, &stated, Leave::Restore, Held::default())
}

/// One cycle.
fn cycle(bench: &mut Bench, ask: impl Fn(&mut Request)) -> (Signals, Applied) {
    let mut signals = Signals::new(bench.host.topology());
    bench.host.sense(&mut signals);
    let mut request = bench.request();
    ask(&mut request);
    (signals, bench.apply(&request))
}

fn keep_out(request: &mut Request) {
    QosClass::ALL.into_iter().for_each(|class| request.ask_admit(class, false, "test:"));
}

#[test]
fn a_job_runs_for_its_share_of_the_time_and_gets_all_of_it_back() {
    let tree = intel();
    [SCRUB, INDEX].iter().for_each(|name| group(&tree, name, 1));
    tree.put(&file(INDEX, "cpu.max"), "50000 100000");
    tree.with_drives();
    let before = tree.settings();
    let mut bench = bench(tree);
    assert_eq!(bench.host.topology().jobs, 2);
    let quotas = |bench: &Bench| [SCRUB, INDEX].map(|name| bench.tree.get(&file(name, "cpu.max")));
    let half = |request: &mut Request| {
        (0..2).for_each(|job| request.job_share.ask(job, 0.5, "test:"));
    };
    let found = ["max 100000".to_owned(), "50000 100000".to_owned()];
    cycle(&mut bench, half);
    assert_eq!(quotas(&bench), found, "what they need is not known before they have run");
    cycle(&mut bench, half);
    let (_, applied) = cycle(&mut bench, half);
    assert_eq!(quotas(&bench), ["50000 100000", "25000 100000"], "of one core; of its own quota");
    assert_eq!(applied.of(Control::JobShare, 1), Outcome::Done);
    cycle(&mut bench, |request| request.job_share.ask(0, 1.0, "test:"));
    assert_eq!(quotas(&bench), found, "all of the time is as found, and so is released");
    cycle(&mut bench, half);
    // systemd has begun the group anew, as it does at a daemon-reload.
    bench.tree.put(&file(SCRUB, "cpu.max"), "max 100000");
    (0..40).for_each(|_| drop(cycle(&mut bench, half)));
    let said: Vec<_> = bench.host.notices().into_iter().map(|notice| notice.text).collect();
    assert!(said.len() == 1 && said[0].ends_with("it will be set once more"), "{said:?}");
    bench.restore();
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
    // With its controller a quota is gone.
    let mut bench = self::bench(bench.tree);
    (0..2).for_each(|_| drop(cycle(&mut bench, half)));
    fs::remove_file(bench.tree.path().join(file(SCRUB, "cpu.max"))).unwrap();
    let gone = |one: &RestoreOutcome| matches!(one, RestoreOutcome::Gone { .. });
    assert_eq!(bench.restoration().count(gone), 1);
}

#[test]
fn only_a_job_that_comes_and_matters_least_is_held_until_it_is_admitted() {
    let tree = intel();
    group(&tree, SCRUB, 1);
    group(&tree, INDEX, 0);
    let mut bench = bench(tree);
    let frozen =
        |bench: &Bench| [SCRUB, INDEX].map(|name| bench.tree.get(&file(name, "cgroup.freeze")));
    let populate = |bench: &Bench, name: &str, populated: u8| {
        let events = format!("populated {populated}\nfrozen 0");
        bench.tree.put(&file(name, "cgroup.events"), events);
    };
    for _ in 0..2 {
        cycle(&mut bench, keep_out);
        assert_eq!(frozen(&bench), ["0", "0"], "what runs goes on");
    }
    populate(&bench, SCRUB, 0);
    populate(&bench, INDEX, 1);
    let (signals, _) = cycle(&mut bench, keep_out);
    assert!(!signals.jobs[0].present && signals.jobs[1].present);
    populate(&bench, SCRUB, 1);
    let (_, applied) = cycle(&mut bench, keep_out);
    assert_eq!(frozen(&bench), ["1", "0"]);
    let of = |applied: &Applied, class: QosClass| applied.of(Control::Admit, class as usize);
    assert_eq!(of(&applied, QosClass::Noncritical), Outcome::Done);
    assert_eq!(of(&applied, QosClass::Sensitive), Outcome::Refused);
    let (signals, _) = cycle(&mut bench, keep_out);
    assert!(signals.jobs[0].waiting && !signals.jobs[1].waiting);
    let admit = |request: &mut Request| {
        QosClass::ALL.into_iter().for_each(|class| request.ask_admit(class, true, "test:"));
    };
    let (_, applied) = cycle(&mut bench, admit);
    assert_eq!(frozen(&bench), ["0", "0"]);
    assert!(QosClass::ALL.into_iter().all(|class| of(&applied, class) == Outcome::Done));
    cycle(&mut bench, keep_out);
    assert_eq!(frozen(&bench), ["0", "0"], "it has started");
}

#[test]
fn whoever_is_held_goes_on_before_anything_else_is_set_back() {
    let mut bench = bench(intel());
    cycle(&mut bench, keep_out);
    group(&bench.tree, SCRUB, 1);
    cycle(&mut bench, |request| {
        keep_out(request);
        request.active_cores.ask(0, 5, "test:");
    });
    assert_eq!(bench.tree.get(&file(SCRUB, "cgroup.freeze")), "1");
    // As after a kill: what is on disk is all that there is.
    let done = bench.restore();
    let thawed = RestoreOutcome::Restored { from: "1".to_owned() };
    let freeze = Place::File { path: file(SCRUB, "cgroup.freeze") };
    assert_eq!((&done[0].place, &done[0].outcome), (&freeze, &thawed));
    assert_eq!(bench.tree.get(&file(SCRUB, "cgroup.freeze")), "0");
    assert_eq!(bench.tree.get("sys/fs/cgroup/system.slice/cpuset.cpus"), "");
}

#[test]
fn a_group_that_goes_is_no_job_until_it_is_back_and_begins_anew() {
    let tree = intel();
    group(&tree, SCRUB, 1);
    let mut bench = bench(tree);
    let half = |request: &mut Request| request.job_share.ask(0, 0.5, "test:");
    (0..2).for_each(|_| drop(cycle(&mut bench, half)));
    assert_eq!(bench.tree.get(&file(SCRUB, "cpu.max")), "50000 100000");
    fs::remove_dir_all(bench.tree.path().join("sys/fs/cgroup").join(SCRUB)).unwrap();
    let (signals, applied) = cycle(&mut bench, half);
    assert!(!signals.jobs[0].present);
    assert_eq!(applied.of(Control::JobShare, 0), Outcome::Done);
    assert_eq!((bench.host.failing(), bench.host.notices()), (0, vec![]));
    group(&bench.tree, SCRUB, 1);
    // As its unit says by now.
    bench.tree.put(&file(SCRUB, "cpu.max"), "80000 100000");
    (0..2).for_each(|_| drop(cycle(&mut bench, half)));
    assert_eq!(bench.tree.get(&file(SCRUB, "cpu.max")), "40000 100000");
    bench.restore();
    assert_eq!(bench.tree.get(&file(SCRUB, "cpu.max")), "80000 100000");
}

/// Says where the threads of a group run, and what they are bound to.
fn threads(tree: &Tree, group: &str, on: &[(u32, u16, &str)]) {
    let names: Vec<_> = on.iter().map(|(thread, ..)| thread.to_string()).collect();
    tree.put(&file(group, "cgroup.threads"), names.join("\n"));
    for (thread, cpu, bound) in on {
        let mut fields = vec!["0".to_owned(); 44];
        (fields[0], fields[36]) = ("R".to_owned(), cpu.to_string());
        tree.put(&format!("proc/{thread}/stat"), format!("{thread} (a b) {}", fields.join(" ")))
            .put(&format!("proc/{thread}/status"), format!("Cpus_allowed_list:\t{bound}"));
    }
}

/// The CPUs of `intel()` on each socket.
const HERE: &str = "0-3,8-11";
const THERE: &str = "4-7,12-15";

#[test]
fn a_job_is_moved_for_as_long_as_that_is_asked_and_keeps_its_list() {
    let tree = intel();
    group(&tree, SCRUB, 1);
    tree.put(&file(SCRUB, "cpuset.cpus"), "1-2,4-6")
        .put(&file(SCRUB, "cpuset.cpus.effective"), "1-2,4-6");
    threads(&tree, SCRUB, &[(300, 2, "1-2,4-6"), (301, 9, "1-2,4-6"), (302, 5, "1-2,4-6")]);
    let mut bench = bench(tree);
    let list = |bench: &Bench| bench.tree.get(&file(SCRUB, "cpuset.cpus"));
    let to = |socket: u16| move |request: &mut Request| request.job_socket.ask(0, socket, "test:");
    let (signals, applied) = cycle(&mut bench, to(1));
    assert_eq!(signals.jobs[0].socket, 0, "two of its three threads run there");
    assert_eq!((list(&bench), applied.of(Control::JobSocket, 0)), ("4-6".into(), Outcome::Done));
    threads(&bench.tree, SCRUB, &[(300, 4, "4-6"), (301, 4, "4-6"), (302, 5, "4-6")]);
    let (signals, _) = cycle(&mut bench, |_| {});
    assert_eq!(signals.jobs[0].socket, 1);
    assert_eq!(list(&bench), "1-2,4-6", "it has moved: from now on it may go where it likes");
    threads(&bench.tree, SCRUB, &[(300, 4, "1-2,4-6")]);
    cycle(&mut bench, to(0));
    assert_eq!(list(&bench), "1-2");
    let (_, applied) = cycle(&mut bench, to(2));
    assert_eq!(applied.of(Control::JobSocket, 0), Outcome::Done, "no such socket: none is asked");
    cycle(&mut bench, to(0));
    // As after a kill.
    bench.restore();
    assert_eq!(list(&bench), "1-2,4-6");
}

#[test]
fn a_job_stays_where_its_list_or_its_threads_binding_could_not_be_given_back() {
    let remedy = "systemctl set-property scrub.service AllowedCPUs=0-15";
    for (list, bound, says) in [
        ("", "0-15", remedy),
        (HERE, HERE, "one socket alone"),
        (THERE, THERE, "one socket alone"),
        ("0-15", "3", "threads are bound"),
    ] {
        let tree = intel();
        group(&tree, SCRUB, 1);
        tree.put(&file(SCRUB, "cpuset.cpus"), list)
            .put(&file(SCRUB, "cpuset.cpus.effective"), list);
        threads(&tree, SCRUB, &[(300, 3, bound)]);
        let mut bench = bench(tree);
        cycle(&mut bench, |_| {});
        assert_eq!(bench.host.notices(), [], "nobody asks");
        let ask = |request: &mut Request| request.job_socket.ask(0, 1, "test:");
        cycle(&mut bench, ask);
        let (_, applied) = cycle(&mut bench, ask);
        assert_eq!(applied.of(Control::JobSocket, 0), Outcome::Refused, "{list:?}");
        assert_eq!(bench.tree.get(&file(SCRUB, "cpuset.cpus")), list);
        let said: Vec<_> = bench.host.notices().into_iter().map(|notice| notice.text).collect();
        assert!(said.len() == 1 && said[0].contains(says), "{said:?}");
    }
}

#[test]
fn without_a_controller_that_control_is_refused_and_named() {
    let tree = intel();
    group(&tree, SCRUB, 1);
    fs::remove_file(tree.path().join(file(SCRUB, "cpu.max"))).unwrap();
    let mut bench = bench(tree);
    let ask = |request: &mut Request| request.job_share.ask(0, 0.5, "test:");
    let (_, applied) = cycle(&mut bench, ask);
    assert_eq!(applied.of(Control::JobShare, 0), Outcome::Refused);
    let said: Vec<_> = bench.host.notices().into_iter().map(|notice| notice.text).collect();
    let remedy = "systemctl set-property scrub.service CPUWeight=100";
    assert!(said.len() == 1 && said[0].contains(remedy), "{said:?}");
    cycle(&mut bench, ask);
    assert_eq!(bench.host.notices(), [], "once");
    let report =
        Report::new(&bench.tree.with_drives(), &Stated { jobs: jobs(), ..Stated::default() });
    let rows = report.controls.iter().filter(|row| row.of.as_deref() == Some(SCRUB));
    let rows: Vec<_> = rows.map(|row| (row.name, row.missing.is_none())).collect();
    assert_eq!(rows, [("job_share", false), ("job_socket", false), ("admit", true)]);
    let running = report.signals.iter().filter(|row| row.name == "job_running");
    assert_eq!(running.map(|row| row.value).collect::<Vec<_>>(), [Some(1.0), None]);
}

#[test]
fn only_what_is_named_is_touched_and_never_ebb_itself() {
    let tree = intel();
    [SCRUB, "batch.slice/other.service"].iter().for_each(|name| group(&tree, name, 1));
    tree.put("proc/self/cgroup", "0::/batch.slice/scrub.service");
    let stated = Stated { jobs: jobs(), ..Stated::default() };
    let own = Host::new(tree.machine(), &stated, Control::ALL).unwrap_err();
    assert!(matches!(&own, Impossible::Own { group, .. } if group == SCRUB), "{own}");
    assert_eq!(own.key(), "job");
    // Nobody steers jobs: there are none.
    let host = Host::new(tree.machine(), &stated, &[Control::FanDuty]).unwrap();
    assert_eq!(host.topology().jobs, 0);
    tree.put("proc/self/cgroup", "0::/system.slice/ebb.service");
    let mut bench = bench(tree);
    let said = bench.host.remarks(&[]);
    let expected = format!("job0 is {SCRUB} (noncritical)");
    assert!(said.contains(&expected) && said[2].contains("role = \"compute\""), "{said:?}");
    for _ in 0..2 {
        cycle(&mut bench, |request| {
            keep_out(request);
            (0..2).for_each(|job| request.job_share.ask(job, 0.1, "test:"));
        });
    }
    assert_eq!(bench.tree.get(&file(SCRUB, "cpu.max")), "10000 100000");
    assert_eq!(bench.tree.get(&file("batch.slice/other.service", "cpu.max")), "max 100000");
}
