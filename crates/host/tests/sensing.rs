//! What a cycle senses of whole machines.

use ebb_host::{Host, Stated};
use ebb_policy::live::SENSES;
use ebb_policy::table::SIGNALS;
use ebb_policy::units::{Celsius, Hertz, Nanos, Watts};
use ebb_policy::{Control, CoreRole, InForce, Origin, Plant, Signal, Signals};

use crate::tree::{Tree, amd, intel, kunpeng};

/// CPU `n` was busy for `busy(n)` of 100 ticks in each round but the first, in which it rested.
fn load(tree: &Tree, cpus: u16, rounds: u64, busy: impl Fn(u16) -> u64) {
    let line = |cpu: u16| {
        let busy = busy(cpu) * (rounds - 1);
        format!("cpu{cpu} {busy} 0 0 {} 0 0 0 0 0 0\n", 100 * rounds - busy)
    };
    let lines: String = (0..cpus).map(line).collect();
    tree.put("proc/stat", format!("cpu  1 2 3 4\n{lines}intr 5"));
}

fn disks(tree: &Tree, rounds: u64) {
    let line = |name: &str| {
        let (reads, ms) = (100 * rounds, 300 * rounds);
        format!("259 0 {name} {reads} 0 {} {ms} 0 0 0 0 3 {ms} {ms}\n", 8 * reads)
    };
    tree.put("proc/diskstats", ["nvme0n1", "nvme1n1"].map(line).concat());
}

/// A host that has sensed once, and what.
fn begun(tree: &Tree) -> (Host, Signals) {
    load(tree, 16, 1, |_| 0);
    disks(tree, 1);
    let mut host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    (host, signals)
}

#[test]
fn a_period_is_the_change_of_counters() {
    let tree = intel();
    let (mut host, mut signals) = begun(&tree);
    assert_eq!(signals.io.completed, None, "nothing is known of no time");
    assert_eq!(signals.period, Nanos::ZERO, "nor is anything missing in it");
    load(&tree, 16, 2, |cpu| if cpu % 8 == 3 { 80 } else { 20 });
    disks(&tree, 2);
    tree.put("sys/class/powercap/intel-rapl:0/energy_uj", 12_345_678 + 500);
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", 12_345_678 + 700);
    tree.put("sys/devices/system/cpu/cpu0/cpuidle/state1/usage", 5_030);
    tree.put("sys/devices/system/cpu/cpu0/cpuidle/state3/usage", 5_070);
    host.sense(&mut signals);
    assert!(signals.period > Nanos::ZERO);
    let group = signals.groups[0];
    assert_eq!((group.active, group.busiest), (Some(8), Some(0.8)));
    assert!((group.utilisation.unwrap() - (0.2 * 14.0 + 0.8 * 2.0) / 16.0).abs() < 1e-9);
    assert_eq!(group.frequency, Some(Hertz(0.8e9)));
    assert!((group.wakes.unwrap() * signals.period.seconds() - 100.0).abs() < 1e-6);
    assert_eq!((signals.io.completed, signals.io.in_flight), (Some(200), Some(6)));
    assert_eq!(signals.io.reads.mean_latency, Some(Nanos::from_millis(3)));
    assert_eq!(signals.io.writes.completed, Some(0));
    assert_eq!(signals.drives[0].read_bytes, Some(100 * 8 * 512));
    assert_eq!(signals.drives[0].temperature, Some(Celsius(41.0)));
    // In its fastest state, with so many commands at a time on average: modelled.
    let power = signals.drives[1].power.unwrap();
    let unused = 1.0 / (1.0 + 0.3 / signals.period.seconds());
    assert!(power >= Watts(25.0) * (1.0 - unused) && power < Watts(25.0), "{power}, {unused}");
    assert_eq!(signals.sources.of(Signal::DrivePower, 1).origin, Origin::Modelled);
    let watts = 1.2e-3 / signals.period.seconds();
    assert!((signals.power.cpu.unwrap().0 / watts - 1.0).abs() < 1e-9);
    assert_eq!(signals.power.total, Some(Watts(412.0)));
    let socket = signals.cooling.sockets[1].unwrap();
    assert_eq!((socket.temperature, socket.at), (Celsius(64.0), signals.now));
    assert_eq!(signals.cooling.inlet.unwrap().temperature, Celsius(25.0));
    assert_eq!(signals.cooling.fans[1].duty, Some(1.0));
}

/// The host senses what the table says that a server does (`policy/contract/live.rs`).
#[test]
fn what_is_sensed_is_what_the_table_says() {
    let tree = intel();
    let (mut host, mut signals) = begun(&tree);
    load(&tree, 16, 2, |_| 20);
    disks(&tree, 2);
    tree.put("sys/class/powercap/intel-rapl:0/energy_uj", 12_345_678 + 500);
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", 12_345_678 + 700);
    host.sense(&mut signals);
    let is_known = |signal: &Signal| {
        let row = &SIGNALS[*signal as usize];
        let parts = signals.sources.parts(*signal);
        (0..parts).any(|at| (row.read)(&signals, at).is_some())
    };
    // This copy of a machine has no pressure, no job, no best effort, no hard disk, and writes
    // nothing. What the operator states comes with the cycle.
    use Signal as S;
    let lacks = [
        &[S::CpuPressure, S::IoPressure, S::MemoryPressure, S::DriveStandby][..],
        &[S::WriteLatencyMean, S::ServerBudget],
        &[S::BestEffortRequests, S::BestEffortBytes],
        &[S::JobCpu, S::JobBytes, S::JobRunning, S::JobWaiting, S::JobAge],
    ]
    .concat();
    for sense in SENSES {
        for signal in sense.signals.iter().filter(|signal| !lacks.contains(signal)) {
            assert_eq!(is_known(signal), sense.from.is_some(), "{signal:?}");
        }
    }
}

/// A drive that is reached over two paths, which are busy in turn.
#[test]
fn paths_of_one_drive_are_added() {
    let tree = intel();
    tree.put("sys/block/nvme0c0n1/size", 1).put("sys/block/nvme0c1n1/size", 1);
    let count = |reads: u64| {
        let path = format!("259 0 nvme0c0n1 {reads} 0 {reads} 1 0 0 0 0 1 0 1\n");
        let other = format!("259 1 nvme0c1n1 {reads} 0 {reads} 1 0 0 0 0 1 0 1\n");
        let head = "259 2 nvme0n1 0 0 0 0 0 0 0 0 0 0 0\n259 3 nvme1n1 0 0 0 0 0 0 0 0 0 0 0\n";
        tree.put("proc/diskstats", path + &other + head);
    };
    count(1);
    let mut host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    count(11);
    host.sense(&mut signals);
    assert_eq!((signals.io.completed, signals.io.in_flight), (Some(20), Some(2)));
    assert_eq!(signals.drives[0].read_bytes, Some(20 * 512));
}

#[test]
fn a_drive_at_rest_is_not_asked_again() {
    let tree = intel();
    disks(&tree, 1);
    let mut host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    assert_eq!(signals.drives[0].state, Some(0));
    // Another state would be seen if it were asked; the value only gets older.
    tree.put("dev/nvme0", 2);
    host.sense(&mut signals);
    assert_eq!(signals.drives[0].state, Some(0));
    assert!(signals.sources.of(Signal::DriveState, 0).age > Nanos::ZERO);
}

#[test]
fn a_disk_that_the_kernel_has_stopped_is_in_standby() {
    let tree = amd();
    tree.put("sys/block/sda/device/power/runtime_status", "suspended")
        .put("sys/block/sdb/device/power/runtime_status", "unsupported");
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    let standby: Vec<_> = signals.drives.iter().map(|drive| drive.standby).collect();
    assert_eq!(standby[..2], [Some(true), None]);
    tree.put("sys/block/sda/device/power/runtime_status", "active");
    host.sense(&mut signals);
    assert_eq!(signals.drives[0].standby, Some(false));
}

/// A device that sysfs calls `cciss!c0d0` is `cciss/c0d0` in `/proc/diskstats`.
#[test]
fn a_drive_with_a_slash_in_its_name_is_counted() {
    let tree = Tree::new();
    tree.cpus(1, 2, 1)
        .put("sys/block/cciss!c0d0/size", 4_096)
        .put("sys/block/cciss!c0d0/queue/rotational", 1)
        .put("sys/block/cciss!c0d0/device/uevent", "");
    let disks = |reads: u64| {
        let line = format!("104 0 cciss/c0d0 {reads} 0 {} 1 0 0 0 0 0 1 1\n", 8 * reads);
        tree.put("proc/diskstats", line);
    };
    disks(10);
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    disks(17);
    host.sense(&mut signals);
    let read: Vec<_> = signals.drives.iter().filter_map(|drive| drive.read_bytes).collect();
    assert_eq!((read, signals.io.completed), (vec![7 * 4_096], Some(7)));
}

/// On some processors the control temperature is up to 49 K above the die's
/// (`Documentation/hwmon/k10temp.rst`).
#[test]
fn a_temperature_for_the_control_of_fans_is_not_a_die_s() {
    let tctl = [("temp1_input", "95000"), ("temp1_label", "Tctl")];
    let tdie = [("temp2_input", "68000"), ("temp2_label", "Tdie")];
    for (files, is) in [(&[tctl, tdie].concat(), 68.0), (&tctl.to_vec(), 95.0)] {
        let tree = Tree::new();
        tree.cpus(1, 4, 1).chip(0, "k10temp", "0000:00:18.3", files);
        let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
        let mut signals = Signals::new(host.topology());
        host.sense(&mut signals);
        assert_eq!(signals.cooling.sockets[0].unwrap().temperature.0, is);
    }
}

#[test]
fn pressure_is_the_share_of_time_in_which_a_task_waited() {
    let tree = intel();
    let waited = |name: &str, micros: u64| {
        let line =
            |what: &str, of: u64| format!("{what} avg10=0.00 avg60=1.50 avg300=0.31 total={of}\n");
        tree.put(
            &format!("proc/pressure/{name}"),
            line("some", micros) + &line("full", micros / 2),
        );
    };
    waited("io", 7_000);
    waited("memory", 5);
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    assert_eq!(signals.pressure.io, None, "nothing is known of no time");
    waited("io", 7_040);
    waited("memory", 4);
    host.sense(&mut signals);
    let share = 40.0 / signals.period.micros();
    assert!((signals.pressure.io.unwrap() - share.min(1.0)).abs() < 1e-9);
    assert_eq!(signals.pressure.memory, None, "a counter that goes back says nothing");
    assert_eq!(signals.pressure.cpu, None, "a kernel without it");
}

#[test]
fn what_is_not_there_is_absent() {
    let tree = kunpeng();
    let mut host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    host.sense(&mut signals);
    assert_eq!((signals.io.completed, signals.power.cpu, signals.power.total), (None, None, None));
    assert_eq!((signals.groups[0].utilisation, signals.groups[0].frequency), (None, None));
    assert_eq!(signals.cooling.inlet, None);
}

#[test]
fn the_topology_is_what_can_be_steered() {
    let tree = intel();
    let host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let topology = host.topology();
    assert_eq!((topology.groups[0].cores, topology.groups[0].role), (8, CoreRole::ResourceVolume));
    assert_eq!((topology.sockets, topology.fans.len()), (2, 2));
    assert_eq!(topology.frequencies.len(), 27);
    assert_eq!(topology.max_frequency(), Hertz(3.4e9));
    assert_eq!(topology.drives[0].operational().len(), 3);
    // A policy for drives alone leaves fans and heat to the board.
    let host = Host::new(tree.with_drives(), &Stated::default(), &[Control::PowerState]).unwrap();
    assert_eq!((host.topology().sockets, host.topology().fans.len()), (0, 0));
    let host = Host::new(amd().machine(), &Stated::default(), Control::ALL).unwrap();
    assert_eq!(host.topology().frequencies.len(), 3);
}

#[test]
fn groups_are_checked() {
    let stated = |lists: &[&[u16]]| {
        let group =
            |cpus: &&[u16]| ebb_host::Group { role: CoreRole::FrontEnd, cpus: cpus.to_vec() };
        Stated { groups: lists.iter().map(group).collect(), ..Stated::default() }
    };
    let made = |lists: &[&[u16]]| Host::new(intel().machine(), &stated(lists), Control::ALL);
    let host = made(&[&[0, 1, 8, 9], &[4, 5]]).unwrap();
    assert_eq!(host.topology().groups.iter().map(|g| g.cores).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(host.topology().groups[1].socket, Some(1));
    // Both CPUs of a core are those of the reactors on it.
    let reactors = |cpus: &[u16]| Stated { reactors: cpus.to_vec(), ..Stated::default() };
    let host = Host::new(intel().machine(), &reactors(&[8, 1]), Control::ALL).unwrap();
    assert_eq!(host.topology().groups[0].cores, 6);
    let claimed = Stated { reactors: vec![8], ..stated(&[&[4, 5], &[0, 1]]) };
    let error = Host::new(intel().machine(), &claimed, Control::ALL).unwrap_err().to_string();
    assert!(error.contains("CPU 0 is in group 2"), "{error}");
    for (wrong, says) in
        [(&[&[0, 77][..]][..], "CPU 77"), (&[&[0], &[0]], "two groups"), (&[&[8]], "no cores")]
    {
        let error = made(wrong).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A container's `/proc/diskstats` lacks drives that its `/sys/block` has (lxcfs).
#[test]
fn a_drive_that_diskstats_lacks_counts_by_its_own_file() {
    let tree = intel();
    let (mut host, mut signals) = begun(&tree);
    for rounds in [1, 2] {
        let (reads, ms) = (100 * rounds, 300 * rounds);
        let counters = format!("{reads} 0 {} {ms} 0 0 0 0 3 {ms} {ms}", 8 * reads);
        tree.put("sys/block/nvme1n1/stat", &counters);
        tree.put("proc/diskstats", format!("259 0 nvme0n1 {counters}"));
        load(&tree, 16, rounds, |_| 20);
        host.sense(&mut signals);
    }
    assert_eq!(signals.io.completed, Some(200));
    assert_eq!(signals.drives[1].read_bytes, signals.drives[0].read_bytes);
}

/// A virtual machine has none.
#[test]
fn without_frequencies_none_is_told() {
    let tree = Tree::new();
    tree.cpus(1, 4, 1);
    let host = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    assert!(host.topology().known_frequencies().is_empty());
    let in_force = InForce::new(host.topology());
    let given = in_force.at(Control::Frequency, 0).given;
    assert_eq!((in_force.number(Control::Frequency, 0), given), (None, None));
    assert_eq!(
        InForce::new(begun(&intel()).0.topology()).number(Control::Frequency, 0),
        Some(3.4e9)
    );
}
