//! What is tried before a policy starts, and by the sweep of the fans.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ebb_host::{
    Contest, Fans, Held, HeldFans, Holds, Leave, ParkBy, State, Stated, SweepError, Verdict, sweep,
};
use ebb_policy::units::{Hertz, Watts};
use ebb_policy::{Control, Outcome};

use crate::acting::{Bench, changed, parked};
use crate::cpusets::{SCHED_DEADLINE, thread, until};
use crate::fans::{act, cycle};
use crate::tree::{Tree, intel};

const CHIP: &str = "sys/class/hwmon/hwmon3";

#[test]
fn each_kind_of_control_is_tried_once_and_given_back() {
    let tree = intel();
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    let before = tree.settings();
    let trials = host.contact(&state);
    let names: Vec<_> = trials.iter().map(|trial| trial.of.as_str()).collect();
    assert_eq!(names, ["active_cores", "frequency_hz", "fan_duty", "power_state"]);
    assert!(trials.iter().all(|trial| trial.verdict == Verdict::Works), "{trials:?}");
    assert_eq!(tree.settings(), before);
    assert_eq!(tree.get("dev/log"), "nvme0=1 nvme0=0", "of one drive alone");
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    assert_eq!(host.contact(&state), [], "not again on this start with these parts");
    // Another start, or another part, is another first contact.
    tree.put("proc/sys/kernel/random/boot_id", "another");
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    assert_eq!(host.contact(&state).len(), 4);
}

/// A fan that is already set by hand, as many boards have it.
#[test]
fn what_is_tried_may_be_what_was_found() {
    let tree = intel();
    for fan in [1, 2] {
        tree.put(&format!("{CHIP}/pwm{fan}_enable"), 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    let before = tree.settings();
    let trials = host.contact(&state);
    assert!(trials.iter().all(|trial| trial.verdict == Verdict::Works), "{trials:?}");
    assert_eq!(tree.settings(), before);
}

/// What keeps cores from being parked may go; before and after a trial that works nothing is left.
#[test]
fn parking_is_tried_and_used_once_what_keeps_it_has_gone() {
    for park_by in [ParkBy::Cpuset, ParkBy::Offline] {
        let tree = intel();
        let online = |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/online");
        for cpu in 1..16 {
            tree.put(&online(cpu), 1);
        }
        for group in ["system.slice", "user.slice"] {
            thread(&tree, group, 812, SCHED_DEADLINE);
        }
        let stated = Stated { park_by, ..Stated::default() };
        let mut bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
        let before = bench.tree.settings();
        let state = State::open(bench.state.path()).unwrap();
        let trial = bench.host.contact(&state).swap_remove(0);
        assert!(trial.to_string().starts_with("active_cores does not work yet: "), "{trial}");
        assert!(trial.to_string().contains("thread 812 "), "{trial}");
        assert_eq!(changed(&bench.tree, &before), [""; 0]);
        thread(&bench.tree, "system.slice", 812, 0);
        until(&mut bench, 4, |tree| !parked(tree).is_empty() || tree.get(&online(7)) == "0");
    }
}

#[test]
fn what_is_refused_is_not_used_and_what_does_not_bind_is_named() {
    let tree = intel();
    for core in 0..8 {
        let folder = format!("sys/devices/system/cpu/cpufreq/policy{core}");
        tree.put(&format!("{folder}/scaling_cur_freq"), 3_400_000);
    }
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    for fan in ["pwm1", "pwm2"] {
        let file = tree.path().join(CHIP).join(fan);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
    }
    let said: Vec<_> = host.contact(&state).iter().map(ToString::to_string).collect();
    assert!(said[1].contains("frequency_hz does not bind"), "{said:?}");
    assert!(said[1].contains("cores run at 3400000 kHz of 800000"), "{said:?}");
    assert!(said[2].contains("fan_duty is refused and not used"), "{said:?}");
    assert_eq!(host.failing(), 2, "both");
    let again: Vec<_> = host.contact(&state).iter().map(|trial| trial.of.clone()).collect();
    assert_eq!(
        again,
        ["active_cores", "frequency_hz", "power_state"],
        "tried again: a refusal may be of a moment"
    );
    let applied = cycle(&mut host, |request| {
        request.fan_duty.ask(0, 0.5, "test:");
        request.frequency.ask(0, Hertz(2.0e9), "test:");
    });
    assert_eq!(applied.of(Control::FanDuty, 0), Outcome::Refused);
    assert_eq!(applied.of(Control::Frequency, 0), Outcome::Done);
    assert_eq!(tree.get(&format!("{CHIP}/pwm1_enable")), "2");
}

/// A part that leaves while it is tried has refused nothing: it is used once it is back.
#[test]
fn what_leaves_in_between_is_tried_another_time() {
    let tree = intel();
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    let (here, away) = (tree.path().join(CHIP), tree.path().join("away"));
    fs::rename(&here, &away).unwrap();
    let trials = host.contact(&state);
    let fan = trials.iter().find(|trial| trial.of == "fan_duty").unwrap();
    assert!(matches!(&fan.verdict, Verdict::NotYet(why) if why == "it has gone"), "{trials:?}");
    let _ = host.follow();
    fs::rename(&away, &here).unwrap();
    let _ = host.follow();
    let applied = cycle(&mut host, |request| request.fan_duty.ask(0, 0.5, "test:"));
    assert_eq!(applied.of(Control::FanDuty, 0), Outcome::Done);
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    assert_eq!(host.contact(&state).len(), 4, "all are tried with the part there");
}

/// A board on which PWM 1 drives what tachometer 2 counts, and the other way round; tachometer 3
/// counts a fan that nothing steers.
fn crossed() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 4, 1).put("proc/sys/kernel/random/boot_id", "a");
    tree.chip(0, "coretemp", "coretemp.0", &[("temp1_input", "45000")]);
    let files = [
        ("fan1_input", "03000"),
        ("fan2_input", "03000"),
        ("fan3_input", "03000"),
        ("pwm1", "120"),
        ("pwm1_enable", "2"),
        ("pwm2", "120"),
        ("pwm2_enable", "1"),
    ];
    tree.chip(3, "nct6798", "nct6775.656", &files);
    tree
}

/// Which PWM drives which tachometer, and how much it turns for each step.
type Drives<'a> = &'a [(u8, u8, u32)];
const CROSSED: Drives<'static> = &[(1, 2, 25), (2, 1, 25)];

/// Sweeps while the fans follow; `meanwhile` is called again and again.
fn swept(
    tree: &Tree,
    state: &State,
    drives: Drives,
    meanwhile: impl Fn(&Tree) + Sync,
) -> Result<Vec<(String, Vec<String>)>, SweepError> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for (pwm, fan, step) in drives {
                    let duty = fs::read_to_string(tree.path().join(format!("{CHIP}/pwm{pwm}")));
                    let Ok(duty) = duty.unwrap().trim().parse::<u32>() else { continue };
                    // Of one length, so that no reader sees a part.
                    let file = tree.path().join(format!("{CHIP}/fan{fan}_input"));
                    let file = File::options().write(true).open(file).unwrap();
                    file.write_all_at(format!("{:05}", 2000 + step * duty).as_bytes(), 0).unwrap();
                }
                meanwhile(tree);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let machine = tree.machine();
        let settle = Duration::from_millis(300);
        let done = sweep(&machine, state, settle, &|| false, &mut |_| ());
        ended.store(true, Ordering::Relaxed);
        let pair = |fan: &ebb_host::Fan| (fan.pwm.clone(), fan.tachometers.clone());
        done.map(|fans| fans.fans.iter().map(pair).collect())
    })
}

#[test]
fn a_sweep_finds_the_pairs_and_puts_everything_back() {
    let tree = crossed();
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let fan = |of: &Tree| {
        ["pwm1_enable", "pwm2", "pwm2_enable"].map(|file| of.get(&format!("{CHIP}/{file}")))
    };
    let before = fan(&tree);
    let pairs = swept(&tree, &state, CROSSED, |_| ()).unwrap();
    let pair = |pwm: &str, fan: &str| (pwm.to_owned(), vec![fan.to_owned()]);
    assert_eq!(pairs, [pair("pwm1", "fan2"), pair("pwm2", "fan1")]);
    assert_eq!((fan(&tree), state.load().unwrap()), (before.clone(), None));
    // It ends where it becomes warm, and begins nowhere where nothing says how warm it is.
    let warm = |tree: &Tree| {
        if tree.get(&format!("{CHIP}/pwm1")) == "153" {
            tree.put("sys/class/hwmon/hwmon0/temp1_input", 81_000);
        }
    };
    let error = swept(&tree, &state, CROSSED, warm).unwrap_err();
    assert!(matches!(error, SweepError::Hot { .. }), "{error}");
    assert_eq!((fan(&tree), state.load().unwrap()), (before.clone(), None));
    fs::remove_file(tree.path().join("sys/class/hwmon/hwmon0/temp1_input")).unwrap();
    assert!(matches!(swept(&tree, &state, CROSSED, |_| ()), Err(SweepError::Blind)));
    assert_eq!(fan(&tree), before);
    // A PWM of two fans, whose air drags the third along a little.
    let tree = crossed();
    let wall = &[(1, 1, 50), (1, 2, 45), (1, 3, 4)];
    let found = swept(&tree, &state, wall, |_| ()).unwrap();
    let both = vec!["fan1".to_owned(), "fan2".to_owned()];
    assert_eq!(found, [("pwm1".to_owned(), both), ("pwm2".to_owned(), Vec::new())]);
}

/// Two fans that are held, a disk whose temperature the kernel shows.
fn holding() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 4, 1);
    tree.chip(0, "coretemp", "coretemp.0", &[("temp1_input", "40000")]);
    let mut files = vec![("fan1_input", "3000"), ("pwm1", "120"), ("pwm1_enable", "5")];
    files.extend([("fan2_input", "3000"), ("pwm2", "100"), ("pwm2_enable", "1")]);
    tree.chip(3, "nct6798", "nct6775.656", &files);
    tree.chip(4, "drivetemp", "0:0:0:0", &[("temp1_input", "35000"), ("temp1_crit", "58000")]);
    tree.put("sys/block/sda/size", "8")
        .put("sys/block/sda/queue/rotational", "1")
        .put("sys/devices/0:0:0:0/wwid", "naa.5000c500d5f1a2b3")
        .link("sys/block/sda/device", "../../devices/0:0:0:0");
    tree
}

/// All of a board's fans at one duty, and back to what each was, whatever happens meanwhile.
#[test]
fn held_fans_are_watched_and_given_back() {
    let tree = holding();
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let fans = |tree: &Tree| {
        ["pwm1", "pwm1_enable", "pwm2", "pwm2_enable"]
            .map(|file| tree.get(&format!("{CHIP}/{file}")))
    };
    let given_back = |duty: &str| [duty, "5", "100", "1"].map(str::to_owned);
    let machine = tree.machine();
    let ours = Fans::found(&machine, &[]).fans;
    let drives: Vec<_> = machine.drives.iter().collect();
    let take = || HeldFans::take(&machine, &state, &ours, &drives);
    for (file, value, back, says) in [
        ("", "", "", ""),
        ("sys/class/hwmon/hwmon0/temp1_input", "81000", "40000", "temp1 of coretemp is at 81"),
        ("sys/class/hwmon/hwmon4/temp1_input", "53000", "35000", "sda is at 53"),
        (&format!("{CHIP}/fan2_input"), "0", "3000", "stood still at 50 % duty"),
        (&format!("{CHIP}/pwm2"), "77", "100", "somebody else sets it"),
        (&format!("{CHIP}/pwm1_enable"), "2", "5", "somebody else sets it"),
    ] {
        let mut held = take().unwrap();
        held.set(0.5).unwrap();
        assert_eq!(fans(&tree), ["128", "1", "128", "1"]);
        assert_eq!(held.look().unwrap().len(), 2);
        if !file.is_empty() {
            tree.put(file, value);
            let error = (0..4).find_map(|_| held.look().err()).unwrap();
            assert!(error.to_string().contains(says), "{error}");
            tree.put(file, back);
        }
        held.give_back().unwrap();
        // The duty that the board steers already is the board's.
        let duty = if file.ends_with("pwm1_enable") { "128" } else { "120" };
        assert_eq!((fans(&tree), state.load().unwrap()), (given_back(duty), None));
    }
    // Nothing is taken where it is warm already, or where one could not be given back.
    tree.put("sys/class/hwmon/hwmon4/temp1_input", "56000");
    assert!(matches!(take(), Err(SweepError::Hot { .. })));
    assert_eq!((fans(&tree), state.load().unwrap()), (given_back("128"), None));
}

/// The operator's limit is a setting as any other: where it is refused, not all is controlled.
#[test]
fn a_limit_that_is_refused_is_counted() {
    let tree = intel();
    let limit = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw";
    tree.put("sys/class/powercap/intel-rapl:0/constraint_0_name", "long_term");
    tree.put(limit, 250_000_000);
    let holds = Holds { package_power: Some(Watts(150.0)), ..Holds::default() };
    let held = holds.places(&tree.machine()).unwrap();
    let mut bench = Bench::stated(tree, &Stated::default(), Leave::Restore, held);
    let file = bench.tree.path().join(limit);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let state = State::open(bench.state.path()).unwrap();
    let trials = bench.host.contact(&state);
    let of_limit = trials.iter().find(|trial| trial.of == "package_power").unwrap();
    assert!(of_limit.to_string().contains("is refused and not used"), "{of_limit}");
    assert_eq!(bench.host.failing(), 1);
    let request = bench.request();
    bench.apply(&request);
    assert_eq!(bench.host.failing(), 1, "as long as it is");
}
