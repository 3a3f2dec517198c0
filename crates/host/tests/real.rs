//! Machines as people have reported them: what `sensors -u` and listings of sysfs say there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use ebb_host::{Contest, Found, Host, Report, State, Stated};
use ebb_policy::units::{Celsius, Hertz, Watts};
use ebb_policy::{Control, Guard, Limits, Plant, Request, Signals};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;

use crate::fans::{act, cycle};
use crate::tree::{Tree, ampere};

/// What is found of `name`: the file, its value, and whether it counts.
pub type Row = (String, Option<f64>, bool);

pub fn rows(tree: &Tree, name: &str) -> Vec<Row> {
    let of = |one: &Found| {
        let path = one.path.clone().unwrap_or_default();
        let path = path.strip_prefix("sys/class/").unwrap_or(&path).to_owned();
        (path, one.value, one.missing.is_none())
    };
    let report = Report::new(&tree.machine(), &Stated::default());
    report.signals.iter().filter(|one| one.name == name).map(of).collect()
}

pub fn reasons(tree: &Tree, name: &str) -> String {
    let report = Report::new(&tree.machine(), &Stated::default());
    let own = report.signals.iter().chain(&report.controls).filter(|one| one.name == name);
    own.filter_map(|one| one.missing.clone()).collect::<Vec<_>>().join("; ")
}

fn good(path: &str, value: f64) -> Row {
    (path.to_owned(), Some(value), true)
}

fn bad(path: &str) -> Row {
    (path.to_owned(), None, false)
}

/// What two cycles sense, and what is said meanwhile.
pub fn sensed(tree: &Tree) -> (Signals, String) {
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    host.sense(&mut signals);
    let notices = host.notices().into_iter().map(|one| format!("{}: {}\n", one.place, one.text));
    (signals, notices.collect())
}

fn sockets(signals: &Signals) -> Vec<Option<f64>> {
    let read = |reading: &ebb_policy::Reading| reading.temperature.0;
    signals.cooling.sockets.iter().map(|one| one.as_ref().map(read)).collect()
}

/// `sockets` of four cores, Intel's driver.
pub fn server(sockets: u16) -> Tree {
    let tree = Tree::new();
    tree.cpus(sockets, 4, 1);
    for cpu in 0..sockets * 4 {
        tree.policy(cpu, &cpu.to_string(), "intel_pstate", (800_000, 3_400_000));
    }
    tree
}

#[test]
fn an_altra_says_its_heat_and_power_by_apm_xgene() {
    let tree = ampere();
    assert_eq!(rows(&tree, "socket_temperature"), [good("hwmon/hwmon0/temp1_input", 52.0)]);
    assert_eq!(rows(&tree, "cpu_power"), [good("hwmon/hwmon0/power1_input", 16.28)]);
    assert_eq!(reasons(&tree, "cpu_power"), "");
    let (signals, said) = sensed(&tree);
    assert_eq!((signals.power.cpu, signals.power.total), (Some(Watts(16.28)), None));
    assert_eq!((sockets(&signals), said), (vec![Some(52.0)], String::new()));
}

/// Zones of device trees are chips of one driver, whatever their names; and the firmware's one chip
/// has the inputs of all processors.
#[test]
fn inputs_of_all_processors_stand_for_each() {
    let tree = server(1);
    let zones = ["cpu_thermal", "cluster6_7_thermal", "ddr_cluster5_thermal", "core_cluster1"];
    for (at, (zone, heat)) in
        zones.into_iter().zip(["41000", "61000", "70000", "52000"]).enumerate()
    {
        let device = format!("thermal_zone{at}");
        tree.chip(at as u16, zone, &device, &[("temp1_input", heat)]);
    }
    assert_eq!(sockets(&sensed(&tree).0), [Some(61.0)]);
    let tree = server(2);
    let inputs = [
        ("temp1_input", "45000"),
        ("temp1_label", "Chip 0 Core 0"),
        ("temp2_input", "65000"),
        ("temp2_label", "Chip 8 Core 1"),
        ("temp3_input", "72000"),
        ("temp3_label", "Chip 8 DIMM 0"),
    ];
    tree.chip(0, "ibmpowernv", "opal-sensor", &inputs);
    assert_eq!(sockets(&sensed(&tree).0), [Some(45.0), Some(65.0)]);
    // Where not all say of which they are, each may be of any.
    tree.put("sys/class/hwmon/hwmon0/temp1_label", "Core 0");
    assert_eq!(sockets(&sensed(&tree).0), [Some(65.0); 2]);
}

/// One chip has all that the firmware measures.
#[test]
fn the_air_that_firmware_measures_is_no_processor_s() {
    let (tree, chip) = (server(1), "sys/class/hwmon/hwmon0");
    let inputs = [
        ("temp1_input", "25000"),
        ("temp1_label", "Ambient"),
        ("temp2_input", "45000"),
        ("temp2_label", "soc"),
    ];
    tree.chip(0, "scmi_sensors", "scmi.1", &inputs);
    let air = |signals: &Signals| signals.cooling.inlet.map(|air| air.temperature.0);
    let (signals, _) = sensed(&tree);
    assert_eq!((sockets(&signals), air(&signals)), (vec![Some(45.0)], Some(25.0)));
    // A sensor that says nonsense is not replaced by another part's.
    tree.put(&format!("{chip}/temp2_input"), 255_000);
    assert_eq!(sockets(&sensed(&tree).0), []);
    tree.put(&format!("{chip}/temp2_input"), 45_000).put(&format!("{chip}/temp2_label"), "DIMM 0");
    assert_eq!(sockets(&sensed(&tree).0), []);
    tree.put(&format!("{chip}/temp2_label"), "A72");
    assert_eq!(sockets(&sensed(&tree).0), [Some(45.0)]);
}

/// POWER9: one chip with the meters and temperatures of all processors, and slots of memory, many
/// of them empty.
#[test]
fn the_firmware_of_power9_says_which_processor_each_input_is_of() {
    let tree = server(2);
    let inputs = [
        ("temp1_input", "51000"),
        ("temp1_label", "Chip 0 Core 0"),
        ("temp2_input", "44000"),
        ("temp2_label", "Chip 8 Core 88"),
        ("temp3_input", "0"),
        ("temp3_label", "Chip 0 DIMM 0 "),
        ("power1_input", "157000000"),
        ("power1_label", "Chip 0 "),
        ("power2_input", "113000000"),
        ("power2_label", "Chip 0 Vdd"),
        ("power3_input", "99000000"),
        ("power3_label", "Chip 8 "),
        ("power4_input", "426000000"),
        ("power4_label", "System"),
    ];
    tree.chip(0, "ibmpowernv", "opal-sensor", &inputs);
    let (signals, said) = sensed(&tree);
    assert_eq!((sockets(&signals), said), (vec![Some(51.0), Some(44.0)], String::new()));
    assert_eq!((signals.power.cpu, signals.power.total), (Some(Watts(256.0)), Some(Watts(426.0))));
    assert!(!reasons(&tree, "socket_temperature").contains("0 °C"));
    tree.put("sys/class/hwmon/hwmon0/power3_label", "Chip 8 Vdd");
    assert_eq!(sensed(&tree).0.power.cpu, None, "one of two");
}

#[test]
fn epycs_say_their_power_by_hsmp() {
    let tree = server(2);
    tree.chip(0, "amd_hsmp_hwmon", "AMDI0097:00", &[("power1_input", "200000000")]);
    assert_eq!(sensed(&tree).0.power.cpu, None, "one of two");
    tree.chip(1, "amd_hsmp_hwmon", "AMDI0097:01", &[("power1_input", "210000000")]);
    assert_eq!(sensed(&tree).0.power.cpu, Some(Watts(410.0)));
    assert!(reasons(&tree, "socket_temperature").contains("modprobe"), "it says no temperature");
}

#[test]
fn advice_is_of_the_machine_s_architecture() {
    let arm = Tree::new();
    arm.cpus(1, 4, 1).policy(0, "0", "cppc_cpufreq", (1_000_000, 3_000_000));
    let info = "processor\t: 0\nCPU implementer\t: 0x48\nCPU part\t: 0xd01";
    let kunpeng = Tree::new();
    kunpeng.cpus(1, 4, 1).put("proc/cpuinfo", info);
    for tree in [arm, kunpeng] {
        for name in ["cpu_power", "socket_temperature"] {
            let why = reasons(&tree, name);
            assert!(why.contains("Arm") && !why.contains("rapl") && !why.contains("coretemp"));
        }
    }
    assert!(reasons(&server(1), "cpu_power").contains("modprobe intel_rapl_msr"));
}

/// Before 2025 the ACPI driver has all of its files in the folder of the device.
#[test]
fn the_power_meter_of_acpi_is_found_where_its_driver_puts_it() {
    let tree = server(1);
    let device = "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:00";
    tree.put(&format!("{device}/name"), "power_meter")
        .put(&format!("{device}/power1_average"), 412_000_000)
        .put(&format!("{device}/power1_average_interval"), 1000)
        .put(&format!("{device}/power1_is_battery"), 0)
        .put("sys/class/hwmon/hwmon2/uevent", "")
        .link("sys/class/hwmon/hwmon2/device", &format!("../../../../{device}"));
    assert_eq!(rows(&tree, "power"), [good("hwmon/hwmon2/device/power1_average", 412.0)]);
    assert_eq!(tree.machine().chips[0].device.as_deref(), Some("ACPI000D:00"));
    assert_eq!(sensed(&tree).0.power.total, Some(Watts(412.0)));
}

#[test]
fn a_mean_that_cannot_be_read_is_not_preferred() {
    let tree = server(1);
    let both = [("power1_average", ""), ("power1_input", "250000000")];
    tree.chip(0, "power_meter", "ACPI000D:00", &both);
    assert_eq!(rows(&tree, "power"), [good("hwmon/hwmon0/power1_input", 250.0)]);
    tree.put("sys/class/hwmon/hwmon0/power1_average", 240_000_000);
    assert_eq!(rows(&tree, "power"), [good("hwmon/hwmon0/power1_average", 240.0)]);
}

#[test]
fn a_meter_s_nonsense_makes_that_meter_absent_and_named() {
    // 0xffffffff mW is ACPI's "unknown".
    for odd in ["0", "-5000000", "4294967295000", "n/a"] {
        let tree = server(1);
        tree.chip(0, "power_meter", "ACPI000D:00", &[("power1_average", odd)]);
        assert_eq!(rows(&tree, "power"), [bad("hwmon/hwmon0/power1_average")], "{odd}");
        let (signals, said) = sensed(&tree);
        assert_eq!(signals.power.total, None);
        assert!(said.starts_with("/sys/class/hwmon/hwmon0/power1_average: "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        // What the supplies take in is the next best.
        tree.chip(1, "pmbus", "7-0058", &[("power1_input", "89000000"), ("power1_label", "pin")]);
        let (signals, said) = sensed(&tree);
        assert_eq!(signals.power.total, Some(Watts(89.0)), "{odd}");
        assert!(said.contains("hwmon0/power1_average: "), "{odd}: {said}");
    }
    let tree = server(1);
    tree.chip(0, "power_meter", "ACPI000D:00", &[("power1_average", "300000000")]);
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    for (now, total) in
        [("300000000", Some(300.0)), ("90000000000", None), ("310000000", Some(310.0))]
    {
        tree.put("sys/class/hwmon/hwmon0/power1_average", now);
        host.sense(&mut signals);
        assert_eq!(signals.power.total, total.map(Watts));
    }
    assert_eq!(host.notices().len(), 1, "said once");
}

#[test]
fn a_supply_s_output_is_not_at_the_wall() {
    let tree = server(1);
    let both = [
        ("power1_input", "89000000"),
        ("power1_label", "pin"),
        ("power2_input", "74500000"),
        ("power2_label", "pout1"),
    ];
    tree.chip(0, "pmbus", "7-0058", &both);
    tree.chip(1, "pmbus", "7-0059", &[("power1_input", "67000000"), ("power1_label", "pout1")]);
    // Nor is the other one the whole server then.
    assert_eq!(
        rows(&tree, "power"),
        [0, 1].map(|at| bad(&format!("hwmon/hwmon{at}/power1_input")))
    );
    assert!(reasons(&tree, "power").contains("not at the wall"));
    assert_eq!(sensed(&tree).0.power.total, None);
    tree.put("sys/class/hwmon/hwmon1/power1_input", "0");
    let found = [good("hwmon/hwmon0/power1_input", 89.0), bad("hwmon/hwmon1/power1_input")];
    assert_eq!(rows(&tree, "power"), found);
    let (signals, said) = sensed(&tree);
    assert_eq!(signals.power.total, Some(Watts(89.0)));
    assert!(said.contains("/sys/class/hwmon/hwmon1/power1_input"), "{said}");
}

#[test]
fn supplies_with_drivers_of_their_own_are_known() {
    let supply = |name: &str, input: &str, label: &str| {
        let tree = server(1);
        let output = [("power2_input", "74500000"), ("power2_label", "pout1")];
        let input = [("power1_input", input), ("power1_label", label)];
        tree.chip(0, name, "7-0058", &[&input[..], &output].concat());
        // A second unit at rest takes nothing in.
        tree.chip(1, name, "7-0059", &[("power1_input", "0"), ("power1_label", label)]);
        sensed(&tree).0.power.total
    };
    for name in ["cffps1", "cffps2", "ibm_cffps1", "dps920ab", "ipsps1", "pfe3000", "bpa-rs600"] {
        assert_eq!(supply(name, "89000000", "pin"), Some(Watts(89.0)), "{name}");
    }
    assert_eq!(supply("pmbus", "89000000", "pin1"), Some(Watts(89.0)));
    assert_eq!(supply("corsairpsu", "89000000", "power total"), None, "what it puts out");
    assert_eq!(supply("pmbus", "89000000", ""), None, "of which side is not said");
    for part in ["lm25066", "ltc4282", "ina226", "amdgpu", "nvme", "nct6798", "BAT0"] {
        assert_eq!(supply(part, "89000000", "pin"), None, "{part}");
    }
}

/// The other carries as much: what it takes in alone is no power at the wall.
#[test]
fn of_two_supplies_both_must_be_known() {
    let tree = server(1);
    for number in [0, 1] {
        let input = [("power1_input", "89000000"), ("power1_label", "pin")];
        tree.chip(number, "cffps2", &format!("3-006{number}"), &input);
    }
    let total = || sensed(&tree).0.power.total;
    assert_eq!(total(), Some(Watts(178.0)));
    let other = "sys/class/hwmon/hwmon1/power1_input";
    for odd in ["-1000000", "4294967295000", "n/a"] {
        tree.put(other, odd);
        assert_eq!(total(), None, "{odd}");
    }
    tree.put(other, "-1000000");
    let both = ["1", "0"].map(|at| bad(&format!("hwmon/hwmon{at}/power1_input")));
    assert_eq!(rows(&tree, "power"), both);
    let why = reasons(&tree, "power");
    assert!(why.contains("-1 W cannot be") && why.contains("a part without /sys/"), "{why}");
    tree.put(other, "89000000").put("sys/class/hwmon/hwmon1/power1_fault", 1);
    assert_eq!(total(), None);
    // A meter of the whole server knows it all.
    tree.chip(2, "aem1", "aem.0", &[("power1_average", "190000000")]);
    assert_eq!(total(), Some(Watts(190.0)));
}

/// A supply with two feeds and their sum.
#[test]
fn one_supply_is_counted_once() {
    let tree = server(1);
    let feeds = [
        ("power1_input", "90000000"),
        ("power1_average", "89000000"),
        ("power1_label", "pin"),
        ("power2_input", "44000000"),
        ("power2_label", "pin1"),
        ("power3_input", "45000000"),
        ("power3_label", "pin2"),
    ];
    tree.chip(0, "cffps2", "3-0069", &feeds);
    assert_eq!(rows(&tree, "power"), [good("hwmon/hwmon0/power1_average", 89.0)]);
}

#[test]
fn grace_has_a_meter_for_each_part() {
    let tree = Tree::new();
    tree.cpus(1, 4, 1).put("proc/sys/kernel/arch", "aarch64");
    for (number, (what, micros)) in [
        ("Module Power Socket 0", "310000000"),
        ("Grace Power Socket 0", "120000000"),
        ("CPU Power Socket 0", "85000000"),
        ("SysIO Power Socket 0", "20000000"),
    ]
    .into_iter()
    .enumerate()
    {
        let files = [("power1_average", micros), ("power1_oem_info", what)];
        tree.chip(number as u16, "power_meter", &format!("ACPI000D:0{number}"), &files);
    }
    let (signals, _) = sensed(&tree);
    assert_eq!((signals.power.cpu, signals.power.total), (Some(Watts(85.0)), None));
}

#[test]
fn of_several_meters_of_the_whole_server_none_is_believed_but_a_battery_is_none() {
    let tree = server(1);
    let meter = |number: u16, micros, battery| {
        let files = [("power1_average", micros), ("power1_is_battery", battery)];
        tree.chip(number, "power_meter", &format!("ACPI000D:0{number}"), &files);
    };
    meter(0, "300000000", "0");
    meter(1, "40000000", "1");
    assert_eq!(sensed(&tree).0.power.total, Some(Watts(300.0)));
    meter(2, "290000000", "0");
    let (signals, said) = sensed(&tree);
    assert_eq!(signals.power.total, None);
    for meter in ["hwmon0/power1_average: 2 meters", "hwmon2/power1_average: 2 meters"] {
        assert!(said.contains(meter), "{said}");
    }
    tree.chip(3, "pmbus", "7-0058", &[("power1_input", "89000000"), ("power1_label", "pin")]);
    assert_eq!(sensed(&tree).0.power.total, Some(Watts(89.0)));
}

#[test]
fn counters_without_a_range_count_all_the_same() {
    for range in ["none", "0", "what?"] {
        let tree = server(1);
        tree.zone("intel-rapl:0", "package-0", 0);
        let folder = "sys/class/powercap/intel-rapl:0";
        tree.put(&format!("{folder}/max_energy_range_uj"), range);
        if range == "none" {
            let file = tree.path().join(format!("{folder}/max_energy_range_uj"));
            std::fs::remove_file(file).unwrap();
        }
        let counter = format!("{folder}/energy_uj");
        assert_eq!(
            rows(&tree, "cpu_power"),
            [("powercap/intel-rapl:0/energy_uj".into(), None, true)]
        );
        let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
        let mut signals = Signals::new(host.topology());
        let mut power = |micros: u64| {
            tree.put(&counter, micros);
            host.sense(&mut signals);
            signals.power.cpu.is_some()
        };
        let powers = [4_000_000_000, 4_000_000_007, 3, 11].map(&mut power);
        assert_eq!(powers, [false, true, false, true], "a step back is skipped");
    }
}

#[test]
fn packages_are_those_that_the_kernel_names() {
    let names = |zones: &[(&str, &str)]| {
        let tree = server(2);
        for (zone, name) in zones {
            tree.zone(zone, name, 262_143_328_850);
        }
        let machine = tree.machine();
        machine.packages().map(|zone| zone.name.clone()).collect::<Vec<_>>()
    };
    let psys = [
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:1", "psys"),
        ("intel-rapl:2", "package-1"),
    ];
    assert_eq!(names(&psys), ["package-0", "package-1"]);
    let dies = ["package-0-die-0", "package-0-die-1", "package-1-die-0", "package-1-die-1"];
    let zones: Vec<_> = (0..4).map(|n| format!("intel-rapl:{n}")).collect();
    let zones: Vec<_> = zones.iter().map(String::as_str).zip(dies).collect();
    assert_eq!(names(&zones), dies);
    // Where the registers of the processor are out of reach, those in memory count.
    let mmio = [("intel-rapl-mmio:0", "package-0"), ("intel-rapl-mmio:1", "package-1")];
    assert_eq!(names(&mmio), ["package-0", "package-1"]);
}

/// Linux 5.8 to 5.12 counted AMD's sockets among the chips.
#[test]
fn sockets_of_amd_energy_are_packages() {
    let files = [
        ("energy1_input", "1000"),
        ("energy1_label", "Ecore000"),
        ("energy9_input", "7000000"),
        ("energy9_label", "Esocket0"),
        ("energy10_input", "8000000"),
        ("energy10_label", "Esocket1"),
    ];
    for driver in ["amd_energy", "zenergy"] {
        let tree = server(2);
        tree.chip(0, driver, &format!("{driver}.0"), &files);
        let counters: Vec<_> = tree.machine().packages().map(|zone| zone.counter.clone()).collect();
        let file = |n| format!("sys/class/hwmon/hwmon0/energy{n}_input");
        assert_eq!(counters, [file(9), file(10)], "{driver}");
    }
}

/// Westmere has no sensor of the package.
#[test]
fn without_a_package_the_hottest_core_is_the_socket_s() {
    let tree = server(2);
    for (socket, cores) in [["30", "36", "32", "30"], ["27", "27", "27", "61"]].iter().enumerate() {
        let celsius: Vec<_> = cores.iter().map(|core| format!("{core}000")).collect();
        let files = [
            ("temp2_input", &*celsius[0]),
            ("temp2_label", "Core 0"),
            ("temp3_input", &celsius[1]),
            ("temp3_label", "Core 1"),
            ("temp11_input", &celsius[2]),
            ("temp11_label", "Core 9"),
            ("temp12_input", &celsius[3]),
            ("temp12_label", "Core 10"),
        ];
        tree.chip(socket as u16, "coretemp", &format!("coretemp.{socket}"), &files);
    }
    let hottest = [good("hwmon/hwmon0/temp3_input", 36.0), good("hwmon/hwmon1/temp12_input", 61.0)];
    assert_eq!(rows(&tree, "socket_temperature"), hottest);
    assert_eq!(sockets(&sensed(&tree).0), [Some(36.0), Some(61.0)]);
    // It moves from core to core; what is not connected is no core.
    tree.put("sys/class/hwmon/hwmon0/temp2_input", 90_000);
    tree.put("sys/class/hwmon/hwmon1/temp12_fault", 1);
    tree.put("sys/class/hwmon/hwmon1/temp3_input", 255_000);
    assert_eq!(sockets(&sensed(&tree).0), [Some(90.0), Some(27.0)]);
    assert!(reasons(&tree, "socket_temperature").contains("255 °C"));
}

/// An EPYC of four dies has a chip for each; their order is that of their numbers.
#[test]
fn the_dies_of_a_socket_are_one_socket() {
    let tree = server(2);
    for die in 0..8_u16 {
        let heat = format!("{}000", 40 + die);
        let files = [("temp1_input", &*heat), ("temp1_label", "Tdie")];
        tree.chip(7 - die, "k10temp", &format!("0000:00:1{:x}.3", 8 + die), &files);
    }
    assert_eq!(sockets(&sensed(&tree).0), [Some(43.0), Some(47.0)]);
    // Of fewer chips than sockets nobody knows which is missing.
    let tree = server(2);
    tree.chip(0, "coretemp", "coretemp.0", &[("temp1_input", "50000")]);
    assert_eq!(sockets(&sensed(&tree).0), []);
    assert!(reasons(&tree, "socket_temperature").contains("fewer chips"));
}

#[test]
fn what_boost_reaches_is_the_highest_frequency() {
    let tree = Tree::new();
    tree.cpus(1, 2, 1);
    for cpu in 0..2 {
        tree.policy(cpu, &cpu.to_string(), "acpi-cpufreq", (1_500_000, 3_529_000));
        let folder = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        tree.put(&format!("{folder}/scaling_available_frequencies"), "2450000 2000000 1500000 ");
    }
    tree.put("sys/devices/system/cpu/cpufreq/boost", 1);
    let host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    assert_eq!(host.topology().frequencies, [1.5e9, 2.0e9, 2.45e9, 3.529e9].map(Hertz));
    assert_eq!(host.topology().frequency_at_least(Hertz(3.5e9)), Hertz(3.529e9));
}

/// Eight CPUs of fast cores with two threads each, eight of slow ones with one.
#[test]
fn a_ceiling_above_what_some_cores_reach_is_their_own_highest() {
    let tree = Tree::new();
    tree.put("sys/devices/system/cpu/online", "0-15");
    for cpu in 0..16_u16 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        let twin = format!("{}-{}", cpu & !1, cpu | 1);
        let threads = if cpu < 8 { twin } else { cpu.to_string() };
        tree.put(&format!("{folder}/physical_package_id"), 0);
        tree.put(&format!("{folder}/core_cpus_list"), threads);
        let highest = if cpu < 8 { 5_400_000 } else { 4_100_000 };
        tree.policy(cpu, &cpu.to_string(), "intel_pstate", (800_000, highest));
    }
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let (mut host, _) = act(&tree, &state, Contest::Yield);
    assert_eq!(host.topology().groups.iter().map(|group| group.cores).sum::<u16>(), 12);
    cycle(&mut host, |request| request.frequency.ask(0, Hertz(4.8e9), "test:"));
    let limit = |cpu: u16| {
        tree.get(&format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_max_freq"))
    };
    assert_eq!([limit(0), limit(12)], ["4800000", "4100000"]);
}

/// Kernels before 6.13 say `<unknown>` of the clock of a CPU that is offline.
#[test]
fn cpus_that_are_offline_are_no_cores() {
    let tree = server(1);
    tree.put("sys/devices/system/cpu/online", "0-1,3");
    tree.put("sys/devices/system/cpu/cpufreq/policy2/scaling_cur_freq", "<unknown>");
    let report = Report::new(&tree.machine(), &Stated::default());
    assert_eq!((report.cpus, report.cores), (3, 3));
    assert_eq!(sensed(&tree).1, "");
}

/// Since Linux 5.10 RAPL is root's alone.
#[test]
fn what_only_root_may_read_is_named_with_the_remedy() {
    let tree = server(1);
    tree.zone("intel-rapl:0", "package-0", 262_143_328_850);
    let file = tree.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let told = thread::scope(|scope| {
        let as_nobody = || {
            if geteuid().is_root() {
                let nobody = Uid::from_raw(65534);
                set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            reasons(&tree, "cpu_power")
        };
        scope.spawn(as_nobody).join().unwrap()
    });
    assert!(
        told.contains("energy_uj: not permitted; run as root, or with CAP_DAC_OVERRIDE"),
        "{told}"
    );
}

#[test]
fn air_that_no_server_takes_in_is_no_inlet() {
    let tree = server(1);
    let air = |celsius| [("temp1_input", celsius), ("temp1_label", "Inlet Temp")];
    tree.chip(0, "nct6798", "nct6775.656", &air("-128000"));
    let (signals, said) = sensed(&tree);
    assert_eq!(signals.cooling.inlet, None);
    assert!(said.contains("-128 °C cannot be"), "{said}");
    tree.chip(1, "dell_smm", "dell_smm_hwmon", &air("24000"));
    assert_eq!(sensed(&tree).0.cooling.inlet.unwrap().temperature, Celsius(24.0));
}

/// What one tachometer or one clock says never takes the whole server out of a policy's hands.
#[test]
fn a_speed_that_no_fan_or_core_has_is_none() {
    let tree = crate::tree::intel();
    for core in 0..8 {
        let file = format!("sys/devices/system/cpu/cpufreq/policy{core}/scaling_cur_freq");
        tree.put(&file, if core == 0 { "4294967295" } else { "1200000" });
    }
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    tree.put("sys/class/hwmon/hwmon3/fan1_input", 1_350_000);
    host.sense(&mut signals);
    assert_eq!(signals.cooling.fans[0].speed, None);
    assert_eq!(signals.groups[0].frequency, Some(Hertz(1.2e9)));
    let mut guard = Guard::new(host.topology(), Limits::default());
    guard.enforce(&Request::new(host.topology()), &signals);
    assert_eq!(guard.native(), None);
}
