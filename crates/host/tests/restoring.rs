//! Setting back what a file names that somebody else may have written, on machines that are not
//! what they were.

use std::fs;
use std::path::Path;

use ebb_host::{Restoration, RestoreOutcome, State, Sys, remembered, restore};
use ebb_policy::units::Hertz;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::acting::Bench;
use crate::tree::{Tree, intel};

const LIMIT: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
const MODE: &str = "sys/class/hwmon/hwmon3/pwm1_enable";

/// A state folder with places whose original value is `found`.
fn saved(places: &[(Value, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let original = |(place, found): &(Value, &str)| {
        let mut original = json!({"place": place, "leave": "restore"});
        (original["found"], original["safe"]) = ((*found).into(), (*found).into());
        original
    };
    let originals: Vec<_> = places.iter().map(original).collect();
    let all = json!({"schema": 2, "boot": "a6dfd9b5", "originals": originals});
    fs::write(folder.path().join("originals.json"), all.to_string()).unwrap();
    folder
}

fn file(path: impl ToString) -> Value {
    json!({"kind": "file", "path": path.to_string()})
}

fn chip(file: &str) -> Value {
    json!({"kind": "chip", "chip": "nct6798", "device": "nct6775.656", "file": file})
}

fn set_back(tree: &Tree, state: &Path) -> Restoration {
    restore(&tree.with_drives(), &State::open(state).unwrap(), None).unwrap()
}

fn failed(outcome: &RestoreOutcome) -> bool {
    matches!(outcome, RestoreOutcome::Failed { .. })
}

fn pending(outcome: &RestoreOutcome) -> bool {
    matches!(outcome, RestoreOutcome::Pending { .. })
}

/// A drive may need longer than the control loop waits: under load, while it wakes up, or while it
/// is being reset, when Linux refuses to open it.
#[test]
fn a_drive_that_answers_late_is_waited_for() {
    for (trouble, amount) in [("dev/nvme0-slow", 1_200), ("dev/nvme0-resets", 3)] {
        let mut bench = Bench::new(intel());
        let mut request = bench.request();
        request.power_state.ask(0, 1, "test:");
        bench.apply(&request);
        assert_eq!(bench.tree.get("dev/nvme0"), "1");
        bench.tree.put(trouble, amount);
        assert_eq!(bench.restore().iter().filter(|one| failed(&one.outcome)).count(), 0);
        assert_eq!([bench.tree.get("dev/nvme0"), bench.tree.get(trouble)], ["0", "0"]);
    }
}

/// Outside of the tree and in it, files that are nobody's setting.
fn secrets(tree: &Tree, outside: &Path) -> Vec<Value> {
    fs::write(outside, "keep").unwrap();
    tree.put("etc/passwd", "keep").put("tmp/w/realtarget", "keep");
    tree.link("sys/class/hwmon/hwmon3/pwm7", "../../../../etc/passwd");
    tree.link("sys/fs/cgroup/out", "../../../etc");
    tree.put("etc/cpu.weight", "keep");
    let outside = outside.display();
    vec![
        file("tmp/w/realtarget"),
        file(&outside),
        file(format!("sys/../{outside}")),
        file("sys/../etc/passwd"),
        file("etc/passwd"),
        file("sys/fs/cgroup/../../../etc/cpu.weight"),
        file("sys/fs/cgroup/out/cpu.weight"),
        file(""),
        chip("pwm7"),
        chip("../../../../etc/passwd"),
        chip("name"),
        json!({"kind": "cpuset", "group": "../../../etc"}),
        json!({"kind": "cpuset", "group": ""}),
        json!({"kind": "controller", "name": "memory"}),
        json!({"kind": "disk", "disk": "S795NC0W100001", "file": "../../../etc/passwd"}),
    ]
}

#[test]
fn nothing_but_settings_is_ever_written() {
    let (tree, outside) = (intel(), tempfile::tempdir().unwrap());
    let secrets = secrets(&tree, &outside.path().join("secret"));
    let mut places: Vec<_> = secrets.iter().map(|place| (place.clone(), "1")).collect();
    // Among them one that is good, and one that is to become what it cannot be.
    tree.put(MODE, 1);
    places.insert(4, (chip("pwm1_enable"), "5"));
    places.push((file(LIMIT), "OVERWRITTEN"));
    tree.with_drives();
    let (state, before) = (saved(&places), tree.settings());
    let done = set_back(&tree, state.path());
    assert_eq!(tree.get(MODE), "5", "the others do not keep it from being set back");
    tree.put(MODE, 1);
    assert_eq!(tree.settings(), before);
    assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "keep");
    let wrong: Vec<_> = done.places.iter().filter(|one| !failed(&one.outcome)).collect();
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
    let kept = State::open(state.path()).unwrap().load().unwrap().unwrap();
    assert_eq!(kept.originals.len(), secrets.len() + 1, "named, and kept");
}

#[test]
fn what_is_away_is_waited_for_and_the_rest_is_set_back() {
    let mut bench = Bench::new(intel());
    let before = bench.tree.settings();
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    request.fan_duty.ask(0, 0.5, "test:");
    request.power_state.ask(1, 2, "test:");
    bench.apply(&request);
    let at = |path: &str| bench.tree.path().join(path);
    let (hwmon, policies) = ("sys/class/hwmon", "sys/devices/system/cpu/cpufreq");
    for (from, to) in [
        (format!("{hwmon}/hwmon3"), "chip".to_owned()),
        (format!("{policies}/policy6"), "policy".to_owned()),
        ("sys/block/nvme1n1".to_owned(), "drive".to_owned()),
    ] {
        fs::rename(at(&from), at(&to)).unwrap();
    }
    // The CPUs of another domain go: its files are there and refuse what is written to them.
    bench.tree.put(&format!("{policies}/policy7/affected_cpus"), "");
    for limit in ["scaling_min_freq", "scaling_max_freq"] {
        fs::remove_file(at(&format!("{policies}/policy7/{limit}"))).unwrap();
    }
    let done = bench.restoration();
    assert_eq!(done.count(failed), 0, "{done:#?}");
    // Two fans, two domains whose minimum was not set, one drive.
    assert_eq!(done.count(pending), 4 + 2 + 1, "{done:#?}");
    assert_eq!(bench.tree.get(LIMIT), "3400000");
    assert_eq!(bench.tree.get("dev/nvme0"), "0");
    assert!(remembered(&Sys::new(bench.tree.path())).unwrap().is_some());
    // All of them come back, the chip with another number.
    fs::rename(at("chip"), at(&format!("{hwmon}/hwmon8"))).unwrap();
    fs::rename(at("policy"), at(&format!("{policies}/policy6"))).unwrap();
    fs::rename(at("drive"), at("sys/block/nvme1n1")).unwrap();
    for (limit, khz) in [("scaling_min_freq", 800_000), ("scaling_max_freq", 2_000_000)] {
        bench.tree.put(&format!("{policies}/policy7/{limit}"), khz);
    }
    assert_eq!(bench.tree.get("dev/nvme1"), "2");
    let done = bench.restoration();
    assert_eq!(done.places.len(), 7);
    assert!(!done.places.iter().any(ebb_host::Restored::stays), "{done:#?}");
    fs::rename(at(&format!("{hwmon}/hwmon8")), at(&format!("{hwmon}/hwmon3"))).unwrap();
    fs::remove_file(at(&format!("{policies}/policy7/affected_cpus"))).unwrap();
    bench.tree.put("dev/log", "");
    let mut after = bench.tree.settings();
    after.retain(|file| !before.contains(file));
    assert_eq!(after, []);
    assert_eq!(remembered(&Sys::new(bench.tree.path())).unwrap(), None);
}

/// Chips take a duty in the manual mode alone, and some keep the last one in a mode of their own.
#[test]
fn a_duty_is_set_back_while_that_can_be_done() {
    let duty = "sys/class/hwmon/hwmon3/pwm1";
    for (found, is, then) in [
        // Found with the board: its duty first.
        (["90", "2"], ["128", "1"], ["90", "2"]),
        // The board has it again, after a start or a sleep: it is the board's.
        (["90", "2"], ["128", "2"], ["128", "2"]),
        (["90", "2"], ["128", "5"], ["128", "2"]),
        // Found by hand: its mode first, where that is another by now.
        (["90", "1"], ["128", "1"], ["90", "1"]),
        (["90", "1"], ["128", "5"], ["90", "1"]),
        (["255", "0"], ["128", "1"], ["255", "0"]),
    ] {
        let tree = intel();
        tree.put(duty, is[0]).put(MODE, is[1]);
        let state = saved(&[(chip("pwm1"), found[0]), (chip("pwm1_enable"), found[1])]);
        let done = set_back(&tree, state.path());
        assert_eq!(done.count(failed), 0, "{done:#?}");
        assert_eq!([tree.get(duty), tree.get(MODE)], then, "{found:?} {is:?}");
    }
}

#[test]
fn a_control_group_that_has_ended_is_not_waited_for() {
    let tree = intel();
    let state = saved(&[(file("sys/fs/cgroup/backup.slice/cpu.weight"), "100")]);
    let done = set_back(&tree, state.path());
    assert_eq!(done.count(|outcome| matches!(outcome, RestoreOutcome::Gone { .. })), 1);
    assert_eq!(set_back(&tree, state.path()).places, []);
}

/// What was found earlier is another's by now: the chip is looked for anew, and where its number
/// is another's and it is nowhere, nothing is written.
#[test]
fn a_number_that_is_another_s_by_now_is_not_used() {
    let tree = intel();
    let machine = tree.with_drives();
    let at = |chip: &str| tree.path().join("sys/class/hwmon").join(chip);
    tree.put(MODE, 1);
    fs::rename(at("hwmon3"), at("hwmon9")).unwrap();
    tree.chip(3, "amdgpu", "0000:0b:00.0", &[("pwm1", "77"), ("pwm1_enable", "1")]);
    let places = [(chip("pwm1_enable"), "5")];
    let state = saved(&places);
    restore(&machine, &State::open(state.path()).unwrap(), None).unwrap();
    assert_eq!(
        (tree.get(MODE).as_str(), tree.get("sys/class/hwmon/hwmon9/pwm1_enable").as_str()),
        ("1", "5")
    );
    fs::rename(at("hwmon9"), tree.path().join("away")).unwrap();
    let state = saved(&places);
    let done = restore(&machine, &State::open(state.path()).unwrap(), None).unwrap();
    assert_eq!(done.count(pending), 1, "{done:#?}");
    assert_eq!(tree.get(MODE), "1");
}

#[test]
fn of_two_chips_with_one_name_neither_is_written() {
    let tree = intel();
    let files = [("pwm1", "77"), ("pwm1_enable", "1")];
    tree.chip(9, "nct6798", "nct6775.656", &files).put(MODE, 1);
    let state = saved(&[(chip("pwm1_enable"), "5")]);
    let done = set_back(&tree, state.path());
    assert_eq!(done.count(failed), 1, "{done:#?}");
    assert_eq!(
        (tree.get(MODE), tree.get("sys/class/hwmon/hwmon9/pwm1_enable")),
        ("1".into(), "1".into())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a file with saved values says: no panic, and nothing but settings is written.
    #[test]
    fn no_file_makes_restore_write_elsewhere(
        chosen in proptest::collection::vec((any::<prop::sample::Index>(), "[ -~]{0,9}"), 0..8),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let (tree, outside) = (intel(), tempfile::tempdir().unwrap());
        let secrets = secrets(&tree, &outside.path().join("secret"));
        let places: Vec<_> = chosen
            .iter()
            .map(|(index, value)| (secrets[index.index(secrets.len())].clone(), value.as_str()))
            .collect();
        let state = saved(&places);
        let path = state.path().join("originals.json");
        let mut text = fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        fs::write(&path, text).unwrap();
        let machine = tree.with_drives();
        let before = tree.settings();
        let _ = restore(&machine, &State::open(state.path()).unwrap(), None);
        prop_assert_eq!(tree.settings(), before);
        prop_assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "keep");
    }
}
