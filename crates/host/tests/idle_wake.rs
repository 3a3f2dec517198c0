//! Idle states that drives enter by themselves: by the kernel's tolerance of each controller.

use std::fs;

use ebb_host::{Contest, Held, Host, Leave, Report, RestoreOutcome, State, Stated, Verdict};
use ebb_policy::units::Nanos;
use ebb_policy::{Control, Outcome};

use crate::acting::{Bench, changed};
use crate::tree::{Tree, intel};

/// The file of a controller.
fn file(controller: u16) -> String {
    format!("sys/class/nvme/nvme{controller}/power/pm_qos_latency_tolerance_us")
}

/// Two drives with idle states that wake within 200 us and 10 ms, as somebody has set them.
fn tree(found: [&str; 2]) -> Tree {
    let tree = intel();
    for (number, found) in (0..).zip(found) {
        tree.put(&file(number), found).put(&format!("dev/nvme{number}-apst"), "");
    }
    tree.with_drives();
    tree
}

/// Asks for so many microseconds of both drives.
fn ask(bench: &mut Bench, micros: Option<u64>) -> [String; 2] {
    let mut request = bench.request();
    for drive in 0..2 {
        let wake = micros.map(Nanos::from_micros);
        wake.into_iter().for_each(|wake| request.idle_wake.ask(drive, wake, "test:"));
    }
    let applied = bench.apply(&request);
    let done = (0..2).all(|drive| applied.of(Control::IdleWake, drive) == Outcome::Done);
    assert!(done, "{micros:?}");
    [0, 1].map(|drive| bench.tree.get(&file(drive)))
}

/// A policy may allow more than was found, by leave.
fn raising(tree: Tree) -> Bench {
    let stated = Stated { raise_limits: true, ..Stated::default() };
    Bench::stated(tree, &stated, Leave::Restore, Held::default())
}

#[test]
fn a_drive_is_allowed_the_states_that_wake_within_what_is_asked_and_never_less_than_was_found() {
    let tree = tree(["0", "500"]);
    let before = tree.settings();
    let mut bench = raising(tree);
    assert_eq!(ask(&mut bench, Some(300)), ["200", "500"], "the deepest that is allowed");
    assert_eq!(ask(&mut bench, Some(301)), ["200", "500"]);
    assert_eq!(ask(&mut bench, Some(50)), ["0", "500"]);
    assert_eq!(ask(&mut bench, Some(20_000)), ["10000", "10000"], "all of them");
    assert_eq!(ask(&mut bench, Some(9_999)), ["200", "500"]);
    assert_eq!(ask(&mut bench, None), ["0", "500"], "released");
    ask(&mut bench, Some(20_000));
    let failed = |one: &RestoreOutcome| matches!(one, RestoreOutcome::Failed { .. });
    assert_eq!(bench.restoration().count(failed), 0);
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
    // Fewer states cost power: a policy's wish for them is not followed.
    let mut bench = raising(self::tree(["100000", "auto"]));
    assert_eq!(ask(&mut bench, Some(0)), ["100000", "auto"]);
}

/// Some drives hang in idle states; whoever has turned them off knows why.
#[test]
fn what_somebody_has_turned_off_stays_off() {
    let mut bench = Bench::new(tree(["0", "500"]));
    assert_eq!(ask(&mut bench, Some(20_000)), ["0", "500"]);
    let said = bench.host.remarks(Control::ALL);
    let off = |text: &&String| text.starts_with("idle states of nvme0n1 are turned off");
    assert_eq!(said.iter().filter(off).count(), 1, "{said:?}");
    let mut bench = raising(bench.tree);
    assert_eq!(ask(&mut bench, Some(20_000)), ["10000", "10000"]);
    bench.restore();
    assert_eq!([0, 1].map(|drive| bench.tree.get(&file(drive))), ["0", "500"]);
}

#[test]
fn what_has_no_such_states_or_no_such_file_is_refused() {
    let tree = tree(["100000", "100000"]);
    fs::remove_file(tree.path().join("dev/nvme0-apst")).unwrap();
    fs::remove_file(tree.path().join(file(1))).unwrap();
    let state = tempfile::tempdir().unwrap();
    let folder = State::open(state.path()).unwrap();
    let mut host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let act = host.act(Control::ALL, Held::default(), |_| Leave::Restore, Contest::Yield, &folder);
    let said = act.unwrap();
    assert!(said.len() == 1 && said[0].text.contains("not there"), "{said:?}");
    let mut bench = Bench { tree, state, host };
    let mut request = bench.request();
    (0..2).for_each(|drive| request.idle_wake.ask(drive, Nanos::ZERO, "test:"));
    let applied = bench.apply(&request);
    let outcomes = [0, 1].map(|drive| applied.of(Control::IdleWake, drive));
    assert_eq!(outcomes, [Outcome::Refused; 2]);
    assert_eq!(bench.tree.get(&file(0)), "100000");
}

/// The kernel begins anew with a drive that comes back, and its number is another one's.
#[test]
fn it_follows_its_drive_and_not_its_number() {
    let mut bench = raising(tree(["0", "0"]));
    bench.host.follow();
    assert_eq!(ask(&mut bench, Some(300)), ["200", "200"]);
    let blocks = bench.tree.path().join("sys/block");
    fs::rename(blocks.join("nvme0n1"), bench.tree.path().join("pulled")).unwrap();
    fs::remove_dir_all(bench.tree.path().join("sys/class/nvme/nvme0")).unwrap();
    bench.tree.nvme(0, "ANOTHER", "B1").put(&file(0), 0).put("dev/nvme5", 0);
    bench.host.follow().unwrap();
    let mut request = bench.request();
    request.idle_wake.ask(0, Nanos::from_micros(300), "test:");
    assert_eq!(bench.apply(&request).of(Control::IdleWake, 0), Outcome::Refused);
    assert_eq!(bench.tree.get(&file(0)), "0");
    bench.tree.put("sys/class/nvme/nvme5/transport", "pcie").put(&file(5), 0);
    fs::rename(bench.tree.path().join("pulled"), blocks.join("nvme5n1")).unwrap();
    bench.host.follow().unwrap();
    assert_eq!(bench.apply(&request).of(Control::IdleWake, 0), Outcome::Done);
    assert_eq!((bench.tree.get(&file(5)), bench.tree.get(&file(0))), ("200".into(), "0".into()));
    // One that is away at the end begins anew when it is back: it is not waited for.
    fs::rename(blocks.join("nvme1n1"), bench.tree.path().join("pulled")).unwrap();
    let gone = |one: &RestoreOutcome| matches!(one, RestoreOutcome::Gone { .. });
    assert_eq!(bench.restoration().count(gone), 1);
    assert_eq!(bench.tree.get(&file(5)), "0");
}

#[test]
fn it_is_tried_at_first_contact_and_probed() {
    let mut bench = raising(tree(["100000", "any"]));
    let state = State::open(bench.state.path()).unwrap();
    let trials = bench.host.contact(&state);
    let trial = trials.iter().find(|trial| trial.of == "idle_wake_seconds").unwrap();
    assert_eq!(trial.verdict, Verdict::Works);
    assert_eq!(bench.tree.get(&file(0)), "100000");
    fs::remove_file(bench.tree.path().join("dev/nvme1-apst")).unwrap();
    let report = Report::new(&bench.tree.with_drives(), &Stated::default());
    let rows = report.controls.iter().filter(|row| row.name == "idle_wake_seconds");
    let rows: Vec<_> = rows.map(|row| (row.value, row.missing.as_deref())).collect();
    let none = Some("it enters no idle state by itself (APSTA is 0)");
    assert_eq!(rows, [(Some(0.1), None), (None, none)]);
}
