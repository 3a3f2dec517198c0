//! What is found on machines of several makers.

use ebb_host::{Machine, Report, Stated, Sys};
use ebb_policy::units::{Hertz, Nanos, Watts};

use crate::tree::{Tree, amd, ampere, intel, kunpeng};

/// The rows of `name` that can be used: part and value.
fn usable<'a>(found: &'a [ebb_host::Found], name: &str) -> Vec<(Option<&'a str>, Option<f64>)> {
    let own = found.iter().filter(|one| one.name == name && one.missing.is_none());
    own.map(|one| (one.of.as_deref(), one.value)).collect()
}

#[test]
fn cores_and_sockets_are_told_apart() {
    for (tree, cpus, cores, sockets) in
        [(intel(), 16, 8, 2), (amd(), 16, 8, 1), (ampere(), 8, 8, 1), (kunpeng(), 12, 12, 2)]
    {
        let machine = tree.machine();
        let found = (machine.cpus.cpus.len(), machine.cpus.cores().count(), machine.cpus.sockets);
        assert_eq!(found, (cpus, cores, sockets));
        let last = machine.cpus.cpus.last().unwrap();
        assert_eq!(last.socket, sockets - 1);
    }
    let machine = intel().machine();
    assert_eq!(machine.cpus.cpus[0].siblings, [0, 8]);
    assert_eq!(machine.cpus.cpus[9].policy, Some(1));
    let deepest = machine.cpus.cpus[0].idle.last().unwrap();
    assert_eq!((deepest.name.as_str(), deepest.exit), ("C6", Nanos::from_micros(170)));
}

#[test]
fn frequencies_are_a_range_or_steps() {
    let intel = intel().machine();
    assert_eq!(intel.cpus.policies[0].highest, Hertz(3.4e9));
    assert!(intel.cpus.policies[0].steps.is_empty());
    let amd = amd().machine();
    assert_eq!(amd.cpus.policies[7].steps, [1.5e9, 2.0e9, 2.45e9].map(Hertz));
    assert!(kunpeng().machine().cpus.policies.is_empty());
}

#[test]
fn packages_are_counted_once() {
    let machine = intel().machine();
    let names: Vec<_> = machine.packages().map(|zone| zone.folder.clone()).collect();
    assert_eq!(names, ["sys/class/powercap/intel-rapl:0", "sys/class/powercap/intel-rapl:1"]);
}

#[test]
fn drives_have_an_identity_and_virtual_devices_are_none() {
    let tree = intel();
    let machine = tree.machine();
    let ids: Vec<_> = machine.drives.iter().map(|drive| drive.id.clone().unwrap()).collect();
    assert_eq!(ids, ["SAMSUNG MZWLO3T8HCLS-00A07 S795NC0W100001", "KCD81RUG3T84 X3F0A00C"]);
    assert_eq!(machine.drives[0].controller.as_deref(), Some("nvme0"));
    assert_eq!(machine.drives[0].transport.as_deref(), Some("pcie"));
    let chip = machine.drive_chip(&machine.drives[0]).unwrap();
    assert_eq!(chip.temperature(&machine.sys, "temp1").unwrap().0, 38.85);
    assert!(machine.drive_chip(&machine.drives[1]).is_none());
    // Before Linux 5.12 the chip is of the PCI function.
    tree.put("sys/class/nvme/nvme1/address", "0000:02:00.0");
    tree.chip(9, "nvme", "0000:02:00.0", &[("temp1_input", "41850")]);
    let machine = tree.machine();
    let chip = machine.drive_chip(&machine.drives[1]).unwrap();
    assert_eq!(chip.temperature(&machine.sys, "temp1").unwrap().0, 41.85);
    let tree = amd();
    let amd = tree.machine();
    assert!(amd.drives.iter().all(|drive| drive.rotational));
    assert_eq!(amd.drives[1].id.as_deref(), Some("naa.5000c500d5f1a2b4"));
    assert!(amd.drive_chip(&amd.drives[0]).is_some());
}

/// Linux 6.1 counts nothing at the head of several paths; its paths count.
#[test]
fn what_went_over_several_paths_is_the_drive_s() {
    let tree = intel();
    tree.put("sys/block/nvme0n1/stat", "0 0 0 0 0 0 0 0 0 0 0");
    for (path, reads) in [("nvme0c0n1", 70), ("nvme0c5n1", 30)] {
        tree.put(&format!("sys/block/{path}/stat"), format!("{reads} 0 80 5 0 0 0 0 1 2 2"));
    }
    let machine = tree.machine();
    assert_eq!(machine.drives.len(), 2);
    assert_eq!(machine.drives[0].counted, ["nvme0c0n1", "nvme0c5n1"]);
    let counters = machine.drives[0].counters(&machine.sys).unwrap();
    assert_eq!((counters.reads, counters.in_flight), (100, 2));
    assert_eq!(machine.drives[1].counted, ["nvme1n1"]);
}

#[test]
fn the_report_has_every_row_of_the_table_and_says_why_one_is_missing() {
    for tree in [intel(), amd(), ampere(), kunpeng()] {
        let report = Report::new(&tree.machine(), &Stated::default());
        for row in ebb_policy::table::SIGNALS {
            assert!(report.signals.iter().any(|one| one.name == row.name), "{}", row.name);
        }
        for control in ebb_policy::Control::ALL {
            let name = control.row().name;
            assert!(report.controls.iter().any(|one| one.name == name), "{name}");
        }
        let all = report.signals.iter().chain(&report.controls);
        for one in all {
            assert!(one.missing.is_some() || one.path.is_some(), "{one:?}");
        }
    }
}

#[test]
fn an_intel_server_with_fans_is_sensed() {
    let tree = intel();
    let report = Report::new(&tree.machine(), &Stated::default());
    let signal = |name| usable(&report.signals, name);
    assert_eq!(signal("completed"), [(None, Some(800.0))]);
    assert_eq!(signal("latency_mean"), [(None, Some(0.25 / 800.0))]);
    assert_eq!(signal("in_flight"), [(None, Some(4.0))]);
    assert_eq!(signal("cores_active"), [(Some("all"), Some(8.0))], "cores, not their threads");
    assert_eq!(signal("power"), [(None, Some(412.0))]);
    assert_eq!(signal("inlet_temperature"), [(None, Some(25.0))]);
    let sockets = [(Some("socket0"), Some(61.0)), (Some("socket1"), Some(64.0))];
    assert_eq!(signal("socket_temperature"), sockets);
    assert_eq!(signal("cpu_power"), [(Some("package-0"), None), (Some("package-1"), None)]);
    assert_eq!(signal("fan_speed"), [(Some("fan0"), Some(5400.0)), (Some("fan1"), Some(4800.0))]);
    let duties = [(Some("fan0"), Some(0.4)), (Some("fan1"), Some(1.0))];
    assert_eq!(usable(&report.controls, "fan_duty"), duties);
    assert_eq!(usable(&report.controls, "frequency_hz").len(), 8);
    let conflict = &report.conflicts[..];
    assert!(
        matches!(conflict, [one] if one.program == "tuned" && one.pid == Some(4242)),
        "{conflict:?}"
    );
}

#[test]
fn policies_say_what_they_lack() {
    let fit = |tree: &Tree, policy: &str| {
        let report = Report::new(&tree.machine(), &Stated::default());
        report.policies.into_iter().find(|fit| fit.policy == policy).unwrap()
    };
    assert_eq!(fit(&intel(), "native").lacks, [""; 0]);
    let pacer = fit(&intel(), "pacer");
    assert_eq!((pacer.lacks, pacer.without), (vec![], vec!["background"]));
    // Disks have no power states; what it does with cores needs none.
    let plus = fit(&amd(), "pacer-plus");
    let drives = "drives (no drive_power, no drive_state, no idle_wake_seconds)";
    assert_eq!((plus.lacks, plus.alone), (vec![], vec![drives.to_owned()]));
    assert_eq!(fit(&intel(), "pacer").alone, [""; 0]);
    assert_eq!(fit(&kunpeng(), "ondemand").lacks, ["completed", "frequency_hz"]);
    assert!(fit(&intel(), "pacman").lacks.contains(&"power_state"));
    assert_eq!(fit(&intel(), "dlb").lacks, [""; 0]);
    assert_eq!(fit(&intel(), "dlb").without, ["job_socket"]);
    assert_eq!(fit(&ampere(), "dlb").lacks, ["fan_speed", "fan_duty", "job_socket"]);
}

#[test]
fn who_serves_counts_requests_where_the_kernel_counts_none() {
    let served = Some("ebb serve at 127.0.0.1:9091".to_owned());
    let report = Report::new(&kunpeng().machine(), &Stated { served, ..Stated::default() });
    let signal = |name| usable(&report.signals, name);
    for name in ["completed", "latency_mean", "in_flight", "latency_p99", "write_latency_p999"] {
        assert_eq!(signal(name), [(Some("ebb serve at 127.0.0.1:9091"), None)], "{name}");
    }
    assert_eq!(signal("latency_max"), []);
    let fit = report.policies.iter().find(|fit| fit.policy == "ondemand").unwrap();
    assert_eq!(fit.lacks, ["frequency_hz"]);
}

#[test]
fn what_is_broken_is_named_and_the_rest_is_there() {
    let tree = intel();
    tree.put("sys/class/hwmon/hwmon0/temp1_input", "hot");
    tree.put("sys/block/nvme1n1/stat", "1 2");
    std::fs::remove_file(tree.path().join("sys/class/hwmon/hwmon3/fan1_input")).unwrap();
    let report = Report::new(&tree.machine(), &Stated::default());
    let socket = report.signals.iter().filter(|one| one.name == "socket_temperature");
    let socket: Vec<_> = socket.filter_map(|one| one.missing.as_deref()).collect();
    assert!(socket[0].ends_with("hwmon0/temp1_input: 'hot' is not a number"), "{socket:?}");
    // The cores have sensors of their own.
    let sockets = [(Some("socket0"), Some(99.0)), (Some("socket1"), Some(64.0))];
    assert_eq!(usable(&report.signals, "socket_temperature"), sockets);
    assert_eq!(usable(&report.signals, "completed"), [(None, Some(400.0))]);
    assert_eq!(usable(&report.signals, "fan_speed"), [(Some("fan0"), Some(4800.0))]);
    let error = Machine::found(Sys::new("/nowhere")).unwrap_err().to_string();
    assert_eq!(error, "/nowhere/sys/devices/system/cpu/online: not there");
}

#[test]
fn watts_come_from_two_readings() {
    let tree = intel();
    let machine = tree.machine();
    let zone = machine.packages().next().unwrap();
    let mut meter = ebb_host::Meter::new(zone);
    assert_eq!(meter.power(Nanos::ZERO, zone.read(&machine.sys).unwrap()), None);
    tree.put("sys/class/powercap/intel-rapl:0/energy_uj", 12_345_678 + 150_000_000);
    let power = meter.power(Nanos::from_secs(2), zone.read(&machine.sys).unwrap());
    assert_eq!(power, Some(Watts(75.0)));
}
