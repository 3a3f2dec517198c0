//! Parts come, go and get other names while they are steered.

use std::fs;

use ebb_host::{Contest, Holds, Host, Leave, State, Stated};
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{Control, Outcome, Plant, Signals};

use crate::acting::Bench;
use crate::tree::{amd, intel};

fn signals(bench: &mut Bench) -> Signals {
    let mut signals = Signals::new(bench.host.topology());
    bench.host.sense(&mut signals);
    signals
}

/// Another drive gets the controller's number while the capped one is away; that one is back with
/// another number.
#[test]
fn a_cap_follows_its_drive_and_not_its_number() {
    let mut bench = Bench::new(intel());
    bench.host.follow();
    let mut request = bench.request();
    request.power_state.ask(0, 2, "test:");
    bench.apply(&request);
    assert_eq!(bench.tree.get("dev/nvme0"), "2");
    let blocks = bench.tree.path().join("sys/block");
    fs::rename(blocks.join("nvme0n1"), bench.tree.path().join("pulled")).unwrap();
    bench.tree.nvme(0, "ANOTHER", "B1").put("dev/nvme0", 0);
    let followed = bench.host.follow().unwrap();
    let left = "nvme0n1 (SAMSUNG MZWLO3T8HCLS-00A07 S795NC0W100001) left";
    assert!(followed.notes.iter().any(|note| note.starts_with(left)), "{:?}", followed.notes);
    assert!(followed.is_new, "a drive that a policy would steer");
    request.power_state.ask(0, 1, "test:");
    assert_eq!(bench.apply(&request).of(Control::PowerState, 0), Outcome::Refused);
    assert_eq!(bench.tree.get("dev/nvme0"), "0", "not the drive that was to be capped");
    let known = signals(&mut bench);
    assert_eq!((known.drives[0].state, known.drives[0].utilisation), (None, None));
    // In another slot.
    bench.tree.put("dev/nvme5", 0).put("sys/class/nvme/nvme5/transport", "pcie");
    fs::rename(bench.tree.path().join("pulled"), blocks.join("nvme5n1")).unwrap();
    let back = "nvme5n1 (SAMSUNG MZWLO3T8HCLS-00A07 S795NC0W100001) is back";
    assert_eq!(bench.host.follow().unwrap().notes, [back]);
    assert_eq!(bench.host.follow(), None, "once");
    assert_eq!(bench.apply(&request).of(Control::PowerState, 0), Outcome::Done);
    assert_eq!(
        (bench.tree.get("dev/nvme5"), bench.tree.get("dev/nvme0")),
        ("1".into(), "0".into())
    );
}

/// A core that somebody else has taken offline takes no work, and is none that could be parked.
#[test]
fn cores_of_cpus_that_are_offline_count_as_parked() {
    let mut bench = Bench::new(intel());
    bench.host.follow();
    bench.tree.put("sys/devices/system/cpu/online", "0-2,4-10,12-15");
    let followed = bench.host.follow().unwrap();
    assert_eq!(followed.notes, ["cpu3,11 went offline: their cores are left alone"]);
    assert!(!followed.is_new);
    assert_eq!(signals(&mut bench).groups[0].active, Some(7));
    let mut request = bench.request();
    for (asked, active) in [(8, 7), (7, 7), (6, 6), (8, 7)] {
        request.active_cores.ask(0, asked, "test:");
        request.frequency.ask(0, Hertz(2.0e9), "test:");
        bench.apply(&request);
        assert_eq!(signals(&mut bench).groups[0].active, Some(active), "{asked} of 8");
    }
    let limit = |cpu: u16| {
        bench.tree.get(&format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_max_freq"))
    };
    assert_eq!((limit(2), limit(3)), ("2000000".to_owned(), "3400000".to_owned()));
    bench.tree.put("sys/devices/system/cpu/online", "0-15");
    assert_eq!(bench.host.follow().unwrap().notes, ["cpu3,11 are online again"]);
    bench.apply(&request);
    let limit = "sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq";
    assert_eq!(bench.tree.get(limit), "2000000", "at once");
    assert_eq!(signals(&mut bench).groups[0].active, Some(8));
}

/// What the operator holds of each disk is to be held of one that comes later.
#[test]
fn a_disk_that_comes_later_is_held_as_well() {
    let tree = amd();
    let holds = Holds { disk_standby: Some(Nanos::from_secs(600)), ..Holds::default() };
    let held = holds.places(&tree.machine()).unwrap();
    let (folder, owned) = (tempfile::tempdir().unwrap(), [Control::FanDuty]);
    let state = State::open(folder.path()).unwrap();
    let mut host = Host::new(tree.machine(), &Stated::default(), &owned).unwrap();
    host.act(&owned, held, |_| Leave::Restore, Contest::Reassert, &state).unwrap();
    host.follow();
    tree.put("sys/block/md0/size", 8);
    assert!(!host.follow().unwrap().is_new);
    tree.disk("sdc", "naa.5000c500d5f1a2b5").put("sys/block/sdc/queue/rotational", 0);
    assert!(!host.follow().unwrap().is_new, "it does not turn");
    tree.disk("sdd", "naa.5000c500d5f1a2b6");
    tree.chip(7, "jc42", "0-0018", &[("temp1_input", "31000")]);
    tree.put("sys/devices/system/cpu/online", "0-17");
    let followed = host.follow().unwrap();
    let new =
        ["cpu16-17 are new", "sdd (naa.5000c500d5f1a2b6) is new", "chip jc42 (0-0018) is new"];
    assert_eq!((followed.is_new, &followed.notes[..]), (true, &new.map(str::to_owned)[..]));
}

/// What is read of a chip that has gone is nothing, whoever has its number now.
#[test]
fn a_number_that_another_chip_takes_is_not_read() {
    let mut bench = Bench::new(intel());
    bench.host.follow();
    let hwmon = bench.tree.path().join("sys/class/hwmon");
    fs::rename(hwmon.join("hwmon1"), hwmon.join("hwmon8")).unwrap();
    fs::rename(hwmon.join("hwmon3"), bench.tree.path().join("gone")).unwrap();
    bench.tree.chip(1, "w83795g", "0-002f", &[("temp1_input", "12000"), ("fan1_input", "77")]);
    bench.tree.chip(3, "adt7475", "0-002e", &[("pwm1", "9"), ("fan1_input", "1")]);
    bench.host.follow().unwrap();
    let known = signals(&mut bench);
    let sockets: Vec<_> =
        known.cooling.sockets.iter().map(|one| one.unwrap().temperature.0).collect();
    assert_eq!(sockets, [61.0, 64.0]);
    assert_eq!(known.cooling.fans[0], ebb_policy::FanSignals::default());
    assert_eq!(known.cooling.inlet, None);
    let said: Vec<_> = bench.host.notices().into_iter().map(|one| one.place.to_string()).collect();
    assert!(!said.iter().any(|place| place.contains("gone")), "that was said: {said:?}");
}

/// What is said of a sensor is said once, however often parts come and go.
#[test]
fn a_sensor_s_nonsense_is_not_said_again_when_the_machine_changes() {
    let tree = intel();
    tree.put("sys/class/hwmon/hwmon3/temp1_input", 255_000);
    let mut bench = Bench::new(tree);
    let mut said = Vec::new();
    for name in ["loop7", "zd0", "md9"] {
        bench.host.follow();
        signals(&mut bench);
        said.extend(bench.host.notices().into_iter().map(|one| one.text));
        bench.tree.put(&format!("sys/block/{name}/size"), 8);
    }
    let count = said.iter().filter(|text| text.contains("255 °C cannot be")).count();
    assert_eq!(count, 1, "{said:?}");
}
