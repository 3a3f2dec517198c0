//! What machines say wrong, or hide: named with its cause and what to do, and all else goes on.

use std::fs;

use ebb_host::{Drive, Holds, Host, Stated, Sys};
use ebb_policy::units::Watts;
use ebb_policy::{Control, Plant, Signals};

use crate::real::{reasons, rows, sensed, server};

const ZONES: &str = "sys/class/powercap";

fn names(found: &[(String, Option<f64>, bool)]) -> Vec<(&str, bool)> {
    found.iter().map(|(path, _, good)| (path.rsplit('/').next().unwrap(), *good)).collect()
}

#[test]
fn the_counter_of_one_socket_is_not_that_of_two() {
    let tree = server(2);
    tree.zone("intel-rapl:0", "package-0", 262_143_328_850);
    let machine = tree.machine();
    assert_eq!(machine.packages().count(), 0, "no sum is made of a part");
    assert_eq!(names(&rows(&tree, "cpu_power")), [("energy_uj", false)]);
    let why = "of 2 sockets 1 has a counter (package-0): a part";
    assert!(reasons(&tree, "cpu_power").contains(why), "{}", reasons(&tree, "cpu_power"));
    let (signals, said) = sensed(&tree);
    assert!(signals.power.cpu.is_none() && said.contains(why), "{said}");
    let holds = Holds { package_power: Some(Watts(99.0)), ..Holds::default() };
    assert!(holds.places(&machine).unwrap_err().contains(why));
    // The meter of one processor is no more.
    let meter = [("power1_input", "50000000"), ("power1_label", "SVI2_P_Core")];
    tree.chip(0, "zenpower", "0000:00:18.3", &meter);
    assert!(reasons(&tree, "cpu_power").contains("zenpower measures fewer than 2 sockets"));
    assert_eq!(sensed(&tree).0.power.cpu, None);
    tree.chip(1, "zenpower", "0000:00:19.3", &meter);
    assert_eq!(sensed(&tree).0.power.cpu, Some(Watts(100.0)));
    // Two dies of one socket are one socket.
    tree.zone("intel-rapl:0", "package-0-die-0", 9).zone("intel-rapl:1", "package-0-die-1", 9);
    assert_eq!(tree.machine().packages().count(), 0);
    tree.zone("intel-rapl:2", "package-1-die-0", 9);
    assert_eq!(tree.machine().packages().count(), 3);
    assert_eq!(reasons(&tree, "cpu_power"), "");
}

#[test]
fn energy_zones_that_count_no_package_say_why() {
    // A container that hides the files lists the links.
    let tree = server(1);
    for zone in ["intel-rapl", "intel-rapl:0", "intel-rapl:0:0"] {
        tree.link(&format!("{ZONES}/{zone}"), "../../devices/virtual/powercap/none");
    }
    assert_eq!(names(&rows(&tree, "cpu_power")), [("intel-rapl:0", false)]);
    let why = reasons(&tree, "cpu_power");
    assert!(why.contains("hidden from this container") && !why.contains("modprobe"), "{why}");
    assert!(sensed(&tree).1.contains("hidden from this container"));

    let tree = server(1);
    tree.zone("intel-rapl:0", "psys", 262_143_328_850);
    let why = reasons(&tree, "cpu_power");
    assert!(why.starts_with("psys counts what") && !why.contains("modprobe"), "{why}");

    let tree = server(1);
    tree.put(&format!("{ZONES}/intel-rapl:0/energy_uj"), 5);
    tree.put(&format!("{ZONES}/dtpm:0/name"), "soc");
    let why = reasons(&tree, "cpu_power");
    assert!(!why.contains("dtpm"), "a limit is no counter: {why}");
    assert!(why.contains("intel-rapl:0/name: not there") && !why.contains("modprobe"), "{why}");

    let tree = server(1);
    tree.zone("intel-rapl:0:0", "dram", 9);
    let why = reasons(&tree, "cpu_power");
    assert!(why.starts_with("dram is a part") && !why.contains("modprobe"), "{why}");

    // Beside a package psys is no fault.
    let tree = server(1);
    tree.zone("intel-rapl:0", "package-0", 9).zone("intel-rapl:1", "psys", 9);
    assert_eq!((reasons(&tree, "cpu_power"), sensed(&tree).1), (String::new(), String::new()));
}

#[test]
fn a_frequency_domain_that_says_nonsense_is_named_and_the_rest_goes_on() {
    let policy = "sys/devices/system/cpu/cpufreq/policy3";
    for (file, text, says) in [
        ("cpuinfo_min_freq", "0", "policy3/cpuinfo_min_freq: '0' is not a frequency"),
        ("cpuinfo_max_freq", "<unknown>", "cpuinfo_max_freq: '<unknown>' is not a number"),
        ("cpuinfo_max_freq", "700000", "is not a range of frequencies"),
    ] {
        let tree = server(1);
        tree.put(&format!("{policy}/{file}"), text);
        assert_eq!(tree.machine().cpus.policies.len(), 3);
        for name in ["frequency_hz", "cores_frequency"] {
            let why = reasons(&tree, name);
            assert!(why.contains(says) && why.contains("this domain is left alone"), "{why}");
        }
        assert!(sensed(&tree).1.contains(says));
    }
    // In MHz for kHz.
    let tree = server(1);
    tree.put(&format!("{policy}/cpuinfo_min_freq"), 800)
        .put(&format!("{policy}/cpuinfo_max_freq"), 3400);
    assert!(reasons(&tree, "frequency_hz").contains("is not a range of frequencies"));
    // One whose CPUs are offline is no fault: none of its files can be read.
    let tree = server(1);
    for file in fs::read_dir(tree.path().join(policy)).unwrap() {
        let file = file.unwrap().path();
        fs::remove_file(&file).unwrap();
        fs::create_dir(file).unwrap();
    }
    assert_eq!((reasons(&tree, "frequency_hz"), sensed(&tree).1), (String::new(), String::new()));
}

#[test]
fn a_unified_hierarchy_without_cpuset_says_whose_it_is() {
    let heading = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";
    let [v1, off] = ["cpuset belongs to cgroup v1", "boot without cgroup_disable=cpuset"];
    let [mount, inside] = ["mount the unified hierarchy", "not delegated to this container"];
    for (line, unmounted, says) in [
        ("cpuset\t4\t12\t1", v1, v1),
        ("cpuset\t0\t12\t0", off, off),
        ("cpuset\t0\t12\t1", mount, inside),
        ("cpu\t0\t12\t1", mount, inside),
    ] {
        let tree = server(1);
        tree.put("proc/cgroups", format!("{heading}{line}"));
        // Hybrid: systemd has the unified hierarchy at sys/fs/cgroup/unified, for itself.
        tree.put("sys/fs/cgroup/unified/cgroup.controllers", "");
        let why = reasons(&tree, "active_cores");
        assert!(why.contains(unmounted), "{line}: {why}");
        // What cgroup v1 has there are hierarchies and no groups.
        tree.put("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3");
        assert_eq!(ebb_host::parkable(&tree.machine().sys), []);
        tree.put("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids");
        let why = reasons(&tree, "active_cores");
        assert!(why.contains(says) && !why.contains("mount the"), "{why}");
    }
}

#[test]
fn a_sensor_with_a_fault_is_absent_and_named() {
    let tree = server(1);
    let heat = [("temp1_input", "51000"), ("temp1_label", "Package id 0")];
    tree.chip(0, "coretemp", "coretemp.0", &heat);
    let board = [
        ("temp1_input", "21000"),
        ("temp1_label", "Inlet"),
        ("fan1_input", "480"),
        ("pwm1", "120"),
    ];
    tree.chip(1, "nct7802", "1-002f", &board);
    tree.chip(2, "power_meter", "ACPI000D:00", &[("power1_average", "412000000")]);
    let (signals, said) = sensed(&tree);
    assert!(signals.cooling.inlet.is_some() && signals.cooling.fans[0].speed.is_some());
    assert_eq!((signals.power.total, said), (Some(Watts(412.0)), String::new()));
    for (fault, signal) in [
        ("hwmon0/temp1_fault", "socket_temperature"),
        ("hwmon1/temp1_fault", "inlet_temperature"),
        ("hwmon1/fan1_fault", "fan_speed"),
        ("hwmon2/power1_fault", "power"),
    ] {
        let file = format!("sys/class/hwmon/{fault}");
        tree.put(&file, 1);
        assert!(rows(&tree, signal).iter().all(|(_, _, good)| !good), "{fault}");
        assert!(reasons(&tree, signal).contains("a fault, by"), "{}", reasons(&tree, signal));
        fs::remove_file(tree.path().join(file)).unwrap();
    }
    tree.put("sys/class/hwmon/hwmon1/fan1_fault", 1);
    assert!(reasons(&tree, "fan_duty").contains("its tachometer has a fault"));
    // One that comes while it is sensed is absent as long as it lasts.
    tree.put("sys/class/hwmon/hwmon1/fan1_fault", 0);
    tree.put("sys/class/hwmon/hwmon1/temp1_fault", 1);
    let (signals, said) = sensed(&tree);
    assert!(signals.cooling.inlet.is_none() && signals.cooling.fans[0].speed.is_some());
    assert_eq!(said.matches("reports a fault").count(), 1, "{said}");
}

#[test]
fn requests_that_are_miscounted_are_not_believed() {
    let tree = server(1);
    tree.disk("sda", "naa.5000c500d5f1a2b3");
    for count in ["4294967295", "-1"] {
        let counters = format!("100 0 800 50 300 0 2400 75 {count} 100 125");
        tree.put("proc/diskstats", format!("8 0 sda {counters}"));
        tree.put("sys/block/sda/stat", counters);
        let found = rows(&tree, "in_flight");
        assert_eq!(found, [("sys/block/*/stat".to_owned(), None, false)]);
        assert_eq!(rows(&tree, "completed")[0].1, Some(400.0), "the others are good");
        let (signals, said) = sensed(&tree);
        assert_eq!((signals.io.in_flight, signals.io.completed), (None, Some(0)));
        assert_eq!(said.matches("miscounted").count(), 1, "{said}");
    }
}

/// virtio and Xen say of all disks that they turn, for nobody tells a guest.
#[test]
fn a_virtual_disk_has_no_spindle() {
    let tree = server(1);
    for name in ["vda", "xvda", "vdb"] {
        tree.put(&format!("sys/block/{name}/size"), 4096)
            .put(&format!("sys/block/{name}/queue/rotational"), 1)
            .put(&format!("sys/block/{name}/device/uevent"), "");
    }
    for (name, vendor, model) in [
        ("sda", "QEMU", "QEMU HARDDISK"),
        ("sdb", "ATA", "VBOX HARDDISK"),
        ("sdc", "Msft", "Virtual Disk"),
    ] {
        tree.disk(name, &format!("t10.{name}"));
        let device = format!("sys/devices/ata/{}:0:0:0", name.as_bytes()[2] - b'a');
        tree.put(&format!("{device}/vendor"), vendor).put(&format!("{device}/model"), model);
    }
    let drives = Drive::found(&Sys::new(tree.path()));
    assert_eq!(drives.len(), 6);
    assert!(drives.iter().all(|drive| !drive.rotational && drive.is_virtual()), "{drives:#?}");
    assert!(reasons(&tree, "drive_standby").contains("no hard disk"));
}

/// Two control types for one package, as `intel-rapl` and `intel-rapl-tpmi`, count the same joules.
#[test]
fn a_package_counts_once() {
    let tree = server(2);
    let ranges = 262_143_328_850;
    let zones = |kinds: &[&str]| {
        for (kind, package) in kinds.iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
            let (zone, name) = (format!("{kind}:{package}"), format!("package-{package}"));
            tree.zone(&zone, &name, ranges);
            tree.put(&format!("{ZONES}/{zone}/constraint_0_name"), "long_term")
                .put(&format!("{ZONES}/{zone}/constraint_0_power_limit_uw"), 250_000_000);
        }
    };
    zones(&["intel-rapl-tpmi", "intel-rapl"]);
    let files = || -> Vec<_> {
        let counted = |zone: &ebb_host::Zone| zone.folder.rsplit('/').next().unwrap().to_owned();
        tree.machine().packages().map(counted).collect()
    };
    assert_eq!(files(), ["intel-rapl:0", "intel-rapl:1"]);
    let holds = Holds { package_power: Some(Watts(99.0)), ..Holds::default() };
    assert_eq!(holds.places(&tree.machine()).unwrap().constant.len(), 2, "one limit for each");
    // The one that has all sockets, and each die of one is not the other's whole.
    fs::remove_dir_all(tree.path().join(format!("{ZONES}/intel-rapl:1"))).unwrap();
    assert_eq!(files(), ["intel-rapl-tpmi:0", "intel-rapl-tpmi:1"]);
    tree.zone("intel-rapl:0", "package-0-die-0", ranges)
        .zone("intel-rapl:1", "package-0-die-1", ranges)
        .zone("intel-rapl:2", "package-1-die-0", ranges);
    assert_eq!(files(), ["intel-rapl:0", "intel-rapl:1", "intel-rapl:2"]);
}

/// A limit of 8 °C would keep the cores at their lowest frequency for ever.
#[test]
fn a_limit_that_no_processor_has_is_named_and_not_used() {
    for (limit, used) in [("8000", false), ("100000", true), ("60000", true)] {
        let tree = server(1);
        let heat =
            [("temp1_input", "51000"), ("temp1_label", "Package id 0"), ("temp1_crit", limit)];
        tree.chip(0, "coretemp", "coretemp.0", &heat);
        let host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
        assert_eq!(host.topology().throttle.is_some(), used, "{limit}");
        let said = sensed(&tree).1;
        assert_eq!(said.contains("temp1_crit: 8 °C is no limit of a processor"), !used, "{said}");
    }
}

/// A package whose sensor cannot be read has cores, as one whose sensor says nonsense.
#[test]
fn a_package_that_cannot_be_read_is_as_hot_as_its_cores() {
    let tree = server(1);
    let cores = [
        ("temp1_label", "Package id 0"),
        ("temp2_input", "62000"),
        ("temp2_label", "Core 0"),
        ("temp3_input", "60000"),
        ("temp3_label", "Core 1"),
    ];
    tree.chip(0, "coretemp", "coretemp.0", &cores);
    fs::create_dir(tree.path().join("sys/class/hwmon/hwmon0/temp1_input")).unwrap();
    let heat = rows(&tree, "socket_temperature");
    assert_eq!(heat, [("hwmon/hwmon0/temp2_input".to_owned(), Some(62.0), true)]);
    // Where none can be read they are asked again later.
    for core in ["temp2_input", "temp3_input"] {
        let file = tree.path().join(format!("sys/class/hwmon/hwmon0/{core}"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(file).unwrap();
    }
    assert!(!reasons(&tree, "socket_temperature").contains("no chip of a processor"));
}

/// A converter of the board is on PMBus as well, by the same name, and takes in what a supply puts
/// out.
#[test]
fn what_is_fed_by_a_supply_is_not_at_the_wall() {
    let power = |volts: &[(&str, &str)]| {
        let tree = server(1);
        for (at, (millivolts, micros)) in volts.iter().enumerate() {
            let files = [
                ("in1_input", *millivolts),
                ("in1_label", "vin"),
                ("power1_input", *micros),
                ("power1_label", "pin"),
                ("power2_input", "1000000"),
                ("power2_label", "pout1"),
            ];
            tree.chip(at as u16, "pmbus", &format!("7-005{at}"), &files);
        }
        (sensed(&tree).0.power.total.map(|watts| watts.0), reasons(&tree, "power"))
    };
    let (board, brick) = (("12050", "90000000"), ("48100", "300000000"));
    let (total, why) = power(&[("229500", "320000000"), board, brick]);
    assert_eq!(total, Some(320.0));
    assert!(why.contains("pmbus takes in 12.05 V: a converter behind the supplies"), "{why}");
    assert!(why.contains("takes in 48.1 V"), "{why}");
    let (total, why) = power(&[("12100", "38000000")]);
    assert!(total.is_none() && why.contains("takes in 12.1 V"), "{why}");
    // Direct current from a telephone exchange, and a supply whose feed is off.
    assert_eq!(power(&[brick, ("48200", "200000000"), board]).0, Some(500.0));
    assert_eq!(power(&[("230000", "410000000"), ("0", "0")]), (Some(410.0), String::new()));
}

/// Other parts have air of their own, and of two sensors the one that says sense is asked.
#[test]
fn the_inlet_is_no_outlet() {
    for (labels, expected) in [
        ([("Outlet Ambient", "45000"), ("Ambient", "24000")], Some(24.0)),
        ([("PSU Ambient", "38000"), ("Inlet Ambient", "23000")], Some(23.0)),
        ([("Ambient", "27000"), ("Inlet Temp", "23000")], Some(23.0)),
        ([("Inlet", "-128000"), ("Ambient", "23000")], Some(23.0)),
        ([("Exhaust", "45000"), ("DIMM Ambient", "41000")], None),
    ] {
        let tree = server(1);
        let [(first, one), (second, two)] = labels;
        let files = [
            ("temp1_input", one),
            ("temp1_label", first),
            ("temp2_input", two),
            ("temp2_label", second),
        ];
        tree.chip(0, "dell_ddv", "dell-ddv", &files);
        let inlet = sensed(&tree).0.cooling.inlet.map(|reading| reading.temperature.0);
        assert_eq!(inlet, expected, "{labels:?}");
    }
}

/// Numbers of chips change from start to start, what their labels say does not.
#[test]
fn the_surest_inlet_of_all_chips_counts() {
    let tree = server(1);
    let air = |label, celsius| [("temp1_label", label), ("temp1_input", celsius)];
    let all = [
        air("PCH Ambient", "55000"),
        air("Front Ambient", "24000"),
        air("VRM inlet", "60000"),
        air("Coolant Inlet", "38000"),
        air("Inlet", "22000"),
    ];
    for (at, files) in all.iter().enumerate() {
        tree.chip(at as u16, "board", &format!("board.{at}"), files);
    }
    let inlet = || sensed(&tree).0.cooling.inlet.map(|reading| reading.temperature.0);
    assert_eq!((inlet(), rows(&tree, "inlet_temperature").len()), (Some(22.0), 2));
    tree.put("sys/class/hwmon/hwmon4/temp1_input", "-128000");
    assert_eq!(inlet(), Some(24.0));
}

/// What supplies take in is the server's only if it is known of each that has a feed.
#[test]
fn a_supply_that_says_nothing_is_missing_in_the_sum() {
    let pin = |watts: &'static str| vec![("power1_label", "pin"), ("power1_input", watts)];
    let pout = |watts: &'static str| vec![("power1_label", "pout1"), ("power1_input", watts)];
    let feed = |volts: &'static str| vec![("in1_label", "vin"), ("in1_input", volts)];
    for (other, expected) in [
        (pin("240000000"), Some(490.0)),
        (pin("0"), Some(250.0)),
        // In watts, or with another wrong scale.
        (pin("240"), None),
        (pout("240000000"), None),
        (pout("0"), Some(250.0)),
        (feed("230000"), None),
        (feed("0"), Some(250.0)),
    ] {
        let tree = server(1);
        tree.chip(0, "pmbus", "7-0058", &pin("250000000"));
        tree.chip(1, "pmbus", "7-0059", &other);
        let (signals, said) = sensed(&tree);
        let wall = signals.power.total.map(|watts| watts.0);
        assert_eq!(wall, expected, "{other:?}: {said}");
        let why = reasons(&tree, "power");
        assert_eq!(why.contains("a part without"), expected.is_none(), "{other:?}: {why}");
    }
}

/// Firmware that has not measured yet says 0 W: a service that starts with the machine hears that.
#[test]
fn a_meter_that_says_nonsense_at_the_start_counts_once_it_says_sense() {
    let tree = server(1);
    let meter = "sys/class/hwmon/hwmon2/power1_average";
    tree.chip(2, "power_meter", "ACPI000D:00", &[("power1_average", "0")]);
    let why = reasons(&tree, "power");
    assert!(why.contains("0 W cannot be") && why.contains("until it says something else"), "{why}");
    let mut host = Host::new(tree.machine(), &Stated::default(), &[]).unwrap();
    let mut power = |micros: u64| {
        tree.put(meter, micros);
        let mut signals = Signals::new(host.topology());
        host.sense(&mut signals);
        signals.power.total
    };
    assert_eq!([power(0), power(412_000_000), power(0)], [None, Some(Watts(412.0)), None]);
    assert_eq!(power(4_294_967_295_000_000), None);
    // What answers at the start is preferred, and then stays.
    tree.put(meter, 0);
    let supply = [("power1_input", "300000000"), ("power1_label", "pin")];
    tree.chip(3, "pmbus", "3-0058", &supply);
    assert_eq!(sensed(&tree).0.power.total, Some(Watts(300.0)));
    assert!(reasons(&tree, "power").contains("not used; an update"), "{}", reasons(&tree, "power"));
}
