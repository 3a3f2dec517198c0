//! What the operator holds, where others have limits of their own.

use ebb_host::{Holds, Leave, Stated};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{BackgroundMode, Control, Outcome, Plant, Signals};

use crate::acting::{Bench, changed};
use crate::real::server;
use crate::tree::intel;

/// `n/a` is no wake-up at all, 0 any (`pm_qos_resume_latency_us_show`): the first is the strictest
/// limit of all, and what others have set so is kept.
#[test]
fn a_longest_wake_up_is_never_longer_than_found_or_asked() {
    let file = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    let held = |asked: Nanos, raise_limits: bool| {
        let tree = intel();
        for cpu in 0..16 {
            tree.put(&file(cpu), ["n/a", "0", "20", "500"][cpu % 4]);
        }
        let before = tree.settings();
        let holds = Holds { cpu_latency: Some(asked), ..Holds::default() };
        let (machine, stated) = (tree.machine(), Stated { raise_limits, ..Stated::default() });
        let mut places = holds.places(&machine).unwrap();
        let said = if raise_limits { Vec::new() } else { places.keep_limits(&machine) };
        let mut bench = Bench::stated(tree, &stated, Leave::Restore, places);
        bench.apply(&bench.request());
        let now = [0, 1, 2, 3].map(|cpu| bench.tree.get(&file(cpu)));
        bench.restore();
        let after = changed(&bench.tree, &before);
        assert!(!after.iter().any(|one| one.contains("pm_qos")), "{after:?}");
        (now, said.into_iter().map(|one| one.text).collect::<Vec<_>>())
    };
    let (now, said) = held(Nanos::from_micros(100), false);
    assert_eq!(now, ["n/a", "100", "20", "100"]);
    assert_eq!(said.len(), 8);
    assert!(said[0].starts_with("it is 'n/a', below '100': it is kept"), "{said:?}");
    for asked in [0, 400] {
        assert_eq!(held(Nanos(asked), false), (["n/a"; 4].map(str::to_owned), Vec::new()));
    }
    assert_eq!(held(Nanos(1_900), true).0, ["1"; 4]);
    let holds = Holds { cpu_latency: Some(Nanos::from_secs(3600)), ..Holds::default() };
    let (key, error) = holds.check().unwrap_err();
    assert!(key == "cpu_latency" && error.ends_with("write up to 1 s"), "{key}{error}");
}

/// amd-pstate offers the word `performance` alone under that governor.
#[test]
fn a_governor_that_leaves_no_choice_of_a_preference_is_named() {
    let tree = intel();
    for policy in 0..16 {
        let put = |file: &str, text: &str| {
            tree.put(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/{file}"), text);
        };
        put("scaling_governor", "performance");
        put("energy_performance_available_preferences", "performance");
    }
    let word = |word: &str| Holds { energy_preference: Some(word.into()), ..Holds::default() };
    assert!(word("performance").places(&tree.machine()).is_ok());
    let error = word("power").places(&tree.machine()).unwrap_err();
    assert!(error.contains("the governor performance") && error.contains("powersave"), "{error}");
}

/// The kernel stops a disk by a command, which a LUN hands on to an array that others use.
#[test]
fn only_disks_of_this_server_are_told_to_stop() {
    let tree = server(1);
    tree.scsi(
        "sda",
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0",
        "ATA",
        "ST18000NM000J-2T",
    );
    tree.scsi("sdb", "platform/host6/session1/target6:0:0/6:0:0:0", "NETAPP", "LUN C-Mode");
    let lun = "pci0000:00/0000:00:05.0/host7/rport-7:0-0/target7:0:0/7:0:0:1";
    tree.scsi("sdc", lun, "PURE", "FlashArray");
    let usb = "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host9/target9:0:0/9:0:0:0";
    tree.scsi("sdd", usb, "WD", "My Book 25EE");
    tree.scsi(
        "sde",
        "pci0000:00/0000:00:01.0/host1/target1:2:0/1:2:0:0",
        "DELL",
        "PERC H740P Mini",
    );
    for name in ["sda", "sdb", "sdc", "sdd", "sde"] {
        tree.marks(name, &format!("naa.{name}"), name);
    }
    let holds =
        |standby| Holds { disk_standby: Some(Nanos::from_secs(standby)), ..Holds::default() };
    let held = holds(600).places(&tree.machine()).unwrap();
    assert!(held.constant.iter().all(|hold| hold.place.is_named("naa.sda")), "{held:?}");
    assert_eq!(held.constant.len(), 2);
    let left: Vec<_> = held.left.iter().map(|one| one.place.to_string()).collect();
    assert_eq!(left, ["/sys/block/sdb", "/sys/block/sdc", "/sys/block/sdd", "/sys/block/sde"]);
    assert!(held.left[0].text.contains("not on SATA or SAS"), "{held:?}");
    assert!(held.left[3].text.contains("it is a volume of a RAID"), "{held:?}");
    std::fs::remove_file(tree.path().join("sys/block/sda")).unwrap();
    let error = holds(600).places(&tree.machine()).unwrap_err();
    assert!(error.contains("disk_standby: it is not on SATA or SAS"), "{error}");
    assert!(error.contains("/sys/block/sdb"), "{error}");
    assert_eq!(holds(600).places(&server(1).machine()).unwrap().constant, []);
    let (key, error) = holds(1).check().unwrap_err();
    assert!(key == "disk_standby" && error.contains("write 60 s or more"), "{key}{error}");
}

/// To some firmware next to nothing is no limit: what policies do not ask for nobody holds either.
#[test]
fn a_package_is_held_to_no_less_than_a_tenth_of_the_limit_found() {
    let tree = intel();
    for (zone, limit) in [("intel-rapl:0", 250_000_000), ("intel-rapl:1", 200_000_000)] {
        let zone = format!("sys/class/powercap/{zone}");
        tree.put(&format!("{zone}/constraint_0_name"), "long_term")
            .put(&format!("{zone}/constraint_0_power_limit_uw"), limit);
    }
    let held = |watts| {
        let holds = Holds { package_power: Some(Watts(watts)), ..Holds::default() };
        holds.places(&tree.machine()).map(|held| held.constant.len())
    };
    assert_eq!(held(25.0), Ok(2));
    let error = held(24.0).unwrap_err();
    assert!(error.contains("package-0 may draw is 25 W"), "{error}");
    assert!(error.ends_with("write 25 W or more"), "{error}");
    let error = held(0.0).unwrap_err();
    assert!(error.starts_with("package_power = 0 W: to some firmware"), "{error}");
    // The register's most is no limit; what the package is made for says what it can draw.
    let put = |file: &str, value: u64| {
        tree.put(&format!("sys/class/powercap/intel-rapl:0/constraint_0_{file}_uw"), value);
    };
    put("power_limit", 4_095_875_000);
    assert_eq!(held(150.0), Ok(2));
    assert!(held(99.0).unwrap_err().ends_with("write 100 W or more"));
    put("max_power", 205_000_000);
    assert_eq!(held(21.0), Ok(2));
    assert!(held(20.0).unwrap_err().ends_with("write 20.5 W or more"));
}

/// A backup's service is there while it runs.
#[test]
fn background_work_that_comes_later_has_its_weight() {
    let weights =
        ["cpu.weight", "io.weight"].map(|file| format!("sys/fs/cgroup/late.slice/{file}"));
    let tree = intel();
    let holds = Holds { background: vec!["late.slice".to_owned()], ..Holds::default() };
    let held = holds.places(&tree.machine()).unwrap();
    let mut bench = Bench::stated(tree, &Stated::default(), Leave::Restore, held);
    let race = |bench: &mut Bench, races: bool| {
        let mut request = bench.request();
        if races {
            request.ask_background(BackgroundMode::Race, "test:");
        }
        bench.host.sense(&mut Signals::new(bench.host.topology()));
        let outcome = bench.apply(&request).of(Control::Background, 0);
        let is =
            |file: &String| bench.tree.path().join(file).exists().then(|| bench.tree.get(file));
        (outcome, weights.each_ref().map(is))
    };
    let raced = || [Some("1000".to_owned()), Some("default 1000".to_owned())];
    assert_eq!(race(&mut bench, true), (Outcome::Refused, [None, None]));
    for found in [["100", "default 100"], ["50", "default 20"]] {
        let [cpu, io] = found;
        bench.tree.put(&weights[0], cpu).put(&weights[1], io);
        let found = found.map(|weight| Some(weight.to_owned()));
        assert_eq!(race(&mut bench, true), (Outcome::Done, raced()));
        assert_eq!(race(&mut bench, false), (Outcome::Done, found.clone()));
        assert_eq!(race(&mut bench, true), (Outcome::Done, raced()));
        if cpu == "50" {
            bench.restore();
            assert_eq!(weights.each_ref().map(|file| Some(bench.tree.get(file))), found);
        }
        std::fs::remove_dir_all(bench.tree.path().join("sys/fs/cgroup/late.slice")).unwrap();
        assert_eq!(race(&mut bench, true).1, [None, None]);
    }
}
