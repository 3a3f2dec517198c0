//! Which fans are steered, and whose they are while that goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ebb_host::{Contest, Fans, Held, Host, Leave, Notice, State, Stated, StatedFan, restore};
use ebb_policy::units::Hertz;
use ebb_policy::{Applied, Control, InForce, Outcome, Plant, Request, Signals};

use crate::tree::{Tree, intel};

const CHIP: &str = "sys/class/hwmon/hwmon3";
const FIRST: &str = "sys/devices/system/cpu/cpufreq/policy0";

/// What of `chip` is counted, and what is left alone and why.
fn found(tree: &Tree, stated: &[StatedFan]) -> (Vec<String>, Vec<(String, String)>) {
    let machine = tree.machine();
    let fans = Fans::found(&machine, stated);
    let counted = fans.fans.iter().map(|fan| {
        let refused = if fan.left.is_some() { " (refused)" } else { "" };
        format!("{} {}{refused}", fan.pwm, fan.tachometers.join(","))
    });
    let apart = fans.apart.iter().map(|fan| (fan.pwm.clone(), fan.left.clone().unwrap()));
    (counted.collect(), apart.collect())
}

fn bare() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 4, 1);
    tree
}

fn reason(tree: &Tree, pwm: &str) -> String {
    let (counted, apart) = found(tree, &[]);
    assert_eq!(counted, [""; 0]);
    apart.into_iter().find(|(name, _)| name == pwm).unwrap().1
}

/// What a card has on it cools what Ebb does not sense. Where the kernel tells the class of the
/// device it decides, whatever the driver's name is.
#[test]
fn the_fans_of_cards_supplies_and_coolers_are_left_alone() {
    let fan = [("fan1_input", "900"), ("pwm1", "60"), ("pwm1_enable", "2")];
    for (driver, device, why) in [
        ("amdgpu", "0000:0b:00.0", "graphics"),
        ("nouveau", "0000:0b:00.0", "graphics"),
        ("mlxsw", "0000:0b:00.0", "network"),
        ("x53", "0003:1E71:2007.0004", "liquid"),
    ] {
        let tree = bare();
        tree.chip(1, driver, device, &fan);
        assert!(reason(&tree, "pwm1").contains(why), "{driver}");
    }
    for (class, why) in [
        ("0x030000", "graphics"),
        ("0x030200", "graphics"),
        ("0x020000", "network"),
        ("0x120000", "add-in"),
        ("0x010802", "add-in"),
        ("0x0c0500", ""),
        ("0x060100", ""),
    ] {
        // On a bus of the card, two folders below its function.
        let tree = bare();
        let card = "sys/devices/pci0000:00/0000:0b:00.0";
        tree.put(&format!("{card}/class"), class)
            .put(&format!("{card}/i2c-3/3-002e/name"), "adt7475");
        tree.chip(1, "adt7475", "unused", &fan);
        let link = tree.path().join("sys/class/hwmon/hwmon1/device");
        fs::remove_file(&link).unwrap();
        tree.link("sys/class/hwmon/hwmon1/device", &format!("../../../../{card}/i2c-3/3-002e"));
        match why {
            "" => assert_eq!(found(&tree, &[]).0, ["pwm1 fan1"], "{class}"),
            why => assert!(reason(&tree, "pwm1").contains(why), "{class}"),
        }
    }
    let tree = bare();
    tree.chip(1, "pfe1100", "7-0058", &[&fan[..], &[("power1_input", "89000000")]].concat());
    assert!(reason(&tree, "pwm1").contains("power supply"));
    // On USB may hang a pump, whatever is said of it. A board has an input for a coolant.
    let tree = bare();
    tree.chip(1, "corsaircpro", "0003:1B1C:0C10.0001", &fan);
    assert!(reason(&tree, "pwm1").contains("USB"));
    let hub = |pwm: &str| StatedFan {
        chip: "corsaircpro".to_owned(),
        pwm: pwm.to_owned(),
        tachometers: vec!["fan1".to_owned()],
        ..StatedFan::default()
    };
    assert_eq!(found(&tree, &[hub("pwm1")]).0, ["pwm1 fan1"], "where the operator says so");
    let tree = bare();
    let coolant = [("temp1_input", "31000"), ("temp1_label", "Coolant temp")];
    tree.chip(1, "nct6798", "nct6775.656", &[&fan[..], &coolant].concat());
    assert_eq!(found(&tree, &[]).0, ["pwm1 fan1"]);
}

/// A class that never ends, or that is no text, keeps nothing from going on.
#[test]
fn what_stands_in_place_of_a_class_is_not_waited_for() {
    let tree = bare();
    let device = tree.path().join("sys/devices/board");
    tree.put("sys/devices/board/uevent", "");
    let fifo = std::process::Command::new("mkfifo").arg(device.join("class")).status().unwrap();
    assert!(fifo.success());
    let fan = [("fan1_input", "900"), ("pwm1", "60"), ("pwm1_enable", "2")];
    tree.chip(1, "nct6798", "unused", &fan);
    fs::remove_file(tree.path().join("sys/class/hwmon/hwmon1/device")).unwrap();
    tree.link("sys/class/hwmon/hwmon1/device", "../../../devices/board");
    assert_eq!(found(&tree, &[]).0, ["pwm1 fan1"]);
}

#[test]
fn fans_of_chips_that_nothing_tells_apart_are_left_alone() {
    let tree = bare();
    for number in [1, 2] {
        tree.chip(number, "pwmfan", "pwm-fan", &[("fan1_input", "900"), ("pwm1", "60")]);
    }
    let (machine, all) = (tree.machine(), |fans: Fans| fans.fans.into_iter().map(|fan| fan.left));
    for left in all(Fans::found(&machine, &[])) {
        assert!(left.unwrap().contains("two chips have this name"));
    }
}

#[test]
fn labels_say_which_fan_is_none() {
    for (label, why) in [
        ("Pump speed", "pump"),
        ("W_PUMP+", "pump"),
        ("AIO_PUMP", "pump"),
        ("CPU AIO", "pump"),
        ("AIO1 Fan", "pump"),
        ("Water Flow", "pump"),
        ("PSU Fan", "supply"),
        ("Video Fan", "graphics"),
        ("Docking Video Fan", "graphics"),
        ("GPU Fan", "graphics"),
    ] {
        let tree = bare();
        let fan = [("fan1_input", "900"), ("fan1_label", label), ("pwm1", "60")];
        tree.chip(1, "nct6798", "nct6775.656", &fan);
        assert!(reason(&tree, "pwm1").contains(why), "{label}");
    }
    let tree = bare();
    for (at, label) in ["CPU Fan", "Chassis Fan 2", "Radial", "FRONT"].iter().enumerate() {
        let fan = [("fan1_input", "900"), ("fan1_label", label), ("pwm1", "60")];
        tree.chip(at as u16, "nct6798", &format!("nct6775.{at}"), &fan);
    }
    assert_eq!(found(&tree, &[]).0.len(), 4);
}

#[test]
fn a_fan_that_nobody_sees_turn_is_left_alone() {
    let tree = bare();
    let files = [
        ("fan1_input", "1200"),
        ("fan2_input", "0"),
        ("fan3_input", "nonsense"),
        // All bits set (openbmc issue 1456).
        ("fan5_input", "65535"),
        ("pwm1", "60"),
        ("pwm2", "60"),
        ("pwm3", "60"),
        ("pwm4", "60"),
        ("pwm5", "60"),
    ];
    tree.chip(1, "nct6798", "nct6775.656", &files);
    let (counted, apart) = found(&tree, &[]);
    assert_eq!(counted, ["pwm1 fan1"]);
    let reasons: Vec<_> = apart.iter().map(|(_, reason)| &reason[..17]).collect();
    let cannot = "its tachometer ca";
    assert_eq!(reasons, ["its tachometer re", cannot, "no tachometer has", cannot]);
}

/// A board whose PWMs and tachometers are numbered otherwise (lm-sensors issue 199), and a fan
/// without tachometer.
#[test]
fn pairs_that_are_a_guess_are_shown_and_not_steered_until_they_are_named() {
    let tree = bare();
    let files = [
        ("fan2_input", "1200"),
        ("fan4_input", "900"),
        ("fan6_input", "700"),
        ("pwm2", "120"),
        ("pwm3", "120"),
        ("pwm4", "120"),
    ];
    tree.chip(1, "nct6791", "nct6775.656", &files);
    tree.chip(2, "pwmfan", "pwm-fan", &[("pwm1", "80"), ("pwm1_enable", "1")]);
    let (counted, apart) = found(&tree, &[]);
    let guessed = ["pwm2 fan2 (refused)", "pwm3 fan4 (refused)", "pwm4 fan6 (refused)"];
    assert_eq!((&counted[..], apart.len()), (&guessed.map(str::to_owned)[..], 1));
    let stated = |chip: &str, pwm: &str, tachometers: &[&str]| StatedFan {
        chip: chip.to_owned(),
        device: None,
        pwm: pwm.to_owned(),
        tachometers: tachometers.iter().map(|&fan| fan.to_owned()).collect(),
        label: "front".to_owned(),
    };
    let named = [
        stated("nct6791", "pwm4", &["fan6"]),
        stated("pwmfan", "pwm1", &[]),
        stated("nct6791", "pwm7", &["fan7"]),
    ];
    let (counted, apart) = found(&tree, &named);
    assert_eq!(counted, ["pwm4 fan6", "pwm1 "], "in the operator's order");
    assert!(apart.iter().all(|(_, reason)| reason.contains("names other fans")), "{apart:?}");
    let missing = Fans::found(&tree.machine(), &named).missing;
    assert_eq!(missing, ["pwm7 of nct6791"]);
    let fans = Fans::found(&tree.machine(), &[stated("nct6791", "pwm4", &["fan7"])]);
    let left = fans.fans[0].left.as_ref().unwrap();
    assert!(left.starts_with("its chip has no fan7: ebb probe --fans"), "{left}");
}

/// A wall of fans: what is counted of it, by one that stands still.
fn speed_of(tree: &Tree, stated: &[StatedFan]) -> Option<f64> {
    let fans = stated.to_vec();
    let stated = Stated { fans, ..Stated::default() };
    let mut host = Host::new(tree.machine(), &stated, &[Control::FanDuty]).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    let speed = signals.cooling.fans[0].speed.map(|speed| speed.0);
    let said = ebb_host::Report::new(host.machine(), &stated).signals;
    let said = said.iter().find(|one| one.of.as_deref() == Some("fan0") && one.unit == "rpm");
    let own = Fans::found(host.machine(), &stated.fans).fans.remove(0);
    assert_eq!(own.speed(host.machine()).and_then(Result::ok).map(|speed| speed.0), speed);
    if own.strays.is_empty() {
        assert_eq!(said.unwrap().value, speed, "probe and run agree");
    }
    speed
}

/// w83795: 2 PWMs and 8 fans; a PWM of a wall of three. One that stops is seen, though the others
/// turn.
#[test]
fn a_wall_of_fans_stands_still_where_one_of_them_does() {
    let wall = |third: &str| {
        let tree = bare();
        let fans = [("fan1_input", "5400"), ("fan2_input", "5100"), ("fan3_input", third)];
        let duty = [("pwm1", "102"), ("pwm1_enable", "2")];
        tree.chip(1, "w83795g", "0-002f", &[&fans[..], &duty].concat());
        tree
    };
    let named = [StatedFan {
        chip: "w83795g".to_owned(),
        pwm: "pwm1".to_owned(),
        tachometers: ["fan1", "fan2", "fan3"].map(str::to_owned).to_vec(),
        ..StatedFan::default()
    }];
    for (third, speed) in [("5300", Some(5100.0)), ("0", Some(0.0)), ("nonsense", None)] {
        assert_eq!(speed_of(&wall(third), &named), speed, "{third}");
    }
    let tree = wall("5300");
    assert_eq!(found(&tree, &named).0, ["pwm1 fan1,fan2,fan3"]);
    // Without that its number says which is its own; the others may be.
    let machine = tree.machine();
    let fans = Fans::found(&machine, &[]);
    assert_eq!(
        (fans.fans[0].tachometers.len(), &fans.fans[0].strays[..]),
        (1, &["fan2".to_owned(), "fan3".to_owned()][..])
    );
    let remarks = fans.remarks(&machine).concat();
    assert!(remarks.contains("it may drive fan2, fan3 as well"), "{remarks}");
    let mut host = Host::new(machine, &Stated::default(), &[Control::FanDuty]).unwrap();
    let mut signals = Signals::new(host.topology());
    for (third, speed) in [("5300", 5400.0), ("300", 5400.0), ("0", 0.0), ("5300", 5400.0)] {
        tree.put("sys/class/hwmon/hwmon1/fan3_input", third);
        host.sense(&mut signals);
        assert_eq!(signals.cooling.fans[0].speed.map(|speed| speed.0), Some(speed), "{third}");
    }
    // A connector without a fan from the start is nobody's.
    assert_eq!(Fans::found(&wall("0").machine(), &[]).fans[0].strays, ["fan2"]);
    let mut missing = named.clone();
    missing[0].tachometers[2] = "fan9".to_owned();
    let left = Fans::found(&tree.machine(), &missing).fans.remove(0).left.unwrap();
    assert!(left.starts_with("its chip has no fan9"), "{left}");
}

/// Begins to act on `tree`; the reasons for what is not steered.
pub fn act(tree: &Tree, state: &State, contest: Contest) -> (Host, Vec<String>) {
    let mut host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let notices = host.act(Control::ALL, Held::default(), |_| Leave::Restore, contest, state);
    let text = |notice: Notice| format!("{}: {}", notice.place, notice.text);
    (host, notices.unwrap().into_iter().map(text).collect())
}

pub fn cycle(host: &mut Host, ask: impl Fn(&mut Request)) -> Applied {
    let topology = host.topology().clone();
    let mut request = Request::new(&topology);
    ask(&mut request);
    let mut given = InForce::new(&topology);
    given.follow(&request);
    let mut applied = Applied::new(&topology);
    host.apply(&given, &mut applied);
    applied
}

/// dell-smm has one switch for all of its fans, at the first.
#[test]
fn a_switch_that_can_only_be_written_keeps_every_fan_of_its_chip() {
    let tree = bare();
    let fans = ["fan1_input", "fan2_input"].map(|fan| (fan, "900"));
    let duties = [("pwm1", "128"), ("pwm2", "128"), ("pwm1_enable", "2")];
    tree.chip(1, "dell_smm", "dell_smm_hwmon", &[&fans[..], &duties].concat());
    assert_eq!(found(&tree, &[]).0, ["pwm1 fan1", "pwm2 fan2"]);
    let mode = tree.path().join("sys/class/hwmon/hwmon1/pwm1_enable");
    fs::set_permissions(mode, fs::Permissions::from_mode(0o200)).unwrap();
    assert_eq!(found(&tree, &[]).0, ["pwm1 fan1 (refused)", "pwm2 fan2 (refused)"]);
    let left = Fans::found(&tree.machine(), &[]).fans[1].left.clone().unwrap();
    assert!(left.contains("pwm1_enable"), "{left}");
}

/// What the governor userspace was told is in no file: its file says the frequency of now.
#[test]
fn a_frequency_that_another_program_chooses_is_left_to_it() {
    let tree = intel();
    tree.put(&format!("{FIRST}/scaling_governor"), "userspace");
    let before = tree.get(&format!("{FIRST}/scaling_max_freq"));
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, left) = act(&tree, &state, Contest::Reassert);
    assert!(left.len() == 1 && left[0].contains("its governor is userspace"), "{left:?}");
    cycle(&mut host, |request| request.frequency.ask(0, Hertz(1.2e9), "test:"));
    assert_eq!(tree.get(&format!("{FIRST}/scaling_max_freq")), before);
    let saved = state.load().unwrap().unwrap().originals;
    assert!(saved.iter().all(|one| !one.place.to_string().contains(FIRST)), "{saved:?}");
}

/// dell-smm's mode can only be written (lm-sensors issue 403): to root as well, who can read any
/// file of a copy. What belongs together is steered together or not at all.
#[test]
fn what_cannot_be_read_is_not_touched_and_neither_is_what_belongs_to_it() {
    let unreadable = |file: &str, mode: u32| {
        let tree = intel();
        let path = tree.path().join(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        tree
    };
    let limit = |which: &str| format!("{FIRST}/scaling_{which}_freq");
    let mode = format!("{CHIP}/pwm1_enable");
    let garbled = |file: &str, text: &str| {
        let tree = intel();
        tree.put(file, text);
        tree
    };
    for tree in [
        unreadable(&mode, 0o200),
        unreadable(&format!("{CHIP}/pwm1"), 0o444),
        unreadable(&limit("min"), 0o200),
        garbled(&mode, "<unsupported>"),
        garbled(&mode, ""),
        garbled(&limit("max"), "-1"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let (mut host, refused) = act(&tree, &state, Contest::Reassert);
        let files = [mode.clone(), format!("{CHIP}/pwm1"), limit("max"), limit("min")];
        let before = files.each_ref().map(|file| tree.get(file));
        cycle(&mut host, |request| {
            request.fan_duty.ask(0, 0.6, "test:");
            request.frequency.ask(0, Hertz(1.0e9), "test:");
        });
        let after = files.each_ref().map(|file| tree.get(file));
        let (fan, limits) = (before[..2] == after[..2], before[2..] == after[2..]);
        assert!(fan != limits, "one of them is steered: {refused:?} {after:?}");
        let said = host.layout().fans.fans[0].left.iter().chain(&refused).count();
        assert_eq!(said, 1, "{refused:?}");
        drop(host);
        restore(&tree.with_drives(), &state, None).unwrap();
        assert_eq!(tree.get(&mode), before[0]);
        assert_eq!(tree.get(&limit("max")), before[2]);
    }
}

/// What is not done is not told as done, whatever part of the cores it is of.
#[test]
fn a_frequency_that_cannot_be_set_is_refused() {
    for read_only in [1, 2] {
        let tree = intel();
        for policy in 0..read_only {
            let file = FIRST.replace("policy0", &format!("policy{policy}")) + "/scaling_max_freq";
            fs::set_permissions(tree.path().join(file), fs::Permissions::from_mode(0o444)).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let (mut host, _) = act(&tree, &State::open(folder.path()).unwrap(), Contest::Reassert);
        let outcome = |host: &mut Host, hertz: f64| {
            let ask = |request: &mut Request| request.frequency.ask(0, Hertz(hertz), "test:");
            cycle(host, ask).of(Control::Frequency, 0)
        };
        assert_eq!(outcome(&mut host, 1.0e9), Outcome::Refused);
        let most = host.topology().max_frequency().0;
        assert_eq!(outcome(&mut host, most), Outcome::Done, "that is how it was found");
    }
}

/// thermald lowers the ceiling of a hot package: it stays lowered, however Ebb ends.
#[test]
fn what_was_yielded_is_not_set_back() {
    let tree = intel();
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    let ask = |request: &mut Request| request.frequency.ask(0, Hertz(2.0e9), "test:");
    cycle(&mut host, ask);
    let limit = format!("{FIRST}/scaling_max_freq");
    tree.put(&limit, 1_600_000);
    let changed = |host: &mut Host| cycle(host, ask).of(Control::Frequency, 0) == Outcome::Changed;
    assert!((0..20).any(|_| changed(&mut host)));
    // Killed here; what it had put on disk is all that is left.
    drop(host);
    restore(&tree.with_drives(), &state, None).unwrap();
    assert_eq!(tree.get(&limit), "1600000");
    assert_eq!(tree.get(&limit.replace("policy0", "policy1")), "3400000");
    // A new start finds it so, and keeps it.
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    cycle(&mut host, |request| request.frequency.ask(0, Hertz(1.0e9), "test:"));
    assert_eq!(tree.get(&limit), "1000000");
    restore(&tree.with_drives(), &state, None).unwrap();
    assert_eq!(tree.get(&limit), "1600000");
}

/// Drivers were loaded anew: the number of the fans' chip is another chip's now.
#[test]
fn a_chip_is_written_where_it_is_now() {
    let tree = intel();
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Reassert);
    let duty = |duty: f64| move |request: &mut Request| request.fan_duty.ask(0, duty, "test:");
    cycle(&mut host, duty(0.5));
    let hwmon = tree.path().join("sys/class/hwmon");
    fs::rename(hwmon.join("hwmon3"), hwmon.join("hwmon9")).unwrap();
    let gpu = [("fan1_input", "900"), ("pwm1", "77"), ("pwm1_enable", "2")];
    tree.chip(3, "amdgpu", "0000:0b:00.0", &gpu);
    assert_eq!(cycle(&mut host, duty(0.6)).of(Control::FanDuty, 0), Outcome::Done);
    assert_eq!(tree.get("sys/class/hwmon/hwmon9/pwm1"), "153");
    assert_eq!(tree.get(&format!("{CHIP}/pwm1")), "77");
    fs::remove_dir_all(hwmon.join("hwmon9")).unwrap();
    assert_eq!(cycle(&mut host, duty(0.7)).of(Control::FanDuty, 0), Outcome::Refused);
    assert_eq!(tree.get(&format!("{CHIP}/pwm1")), "77");
}
