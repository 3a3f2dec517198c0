//! Parts come, go and get other names while they are steered.

use std::fs;

use ebb_host::{Contest, Held, Holds, Host, Leave, State, Stated, StatedFan, restore};
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{Applied, Control, InForce, Outcome, Plant, Signals};
use proptest::prelude::*;

use crate::acting::Bench;
use crate::tree::{Tree, amd, intel};

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

/// A CPU that is unplugged takes its files with it: nothing of it is to follow, and nothing fails.
#[test]
fn what_is_of_cpus_that_have_gone_does_not_fail() {
    let mut bench = Bench::new(intel());
    bench.host.follow();
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    bench.apply(&request);
    let folder = bench.tree.path().join("sys/devices/system/cpu/cpufreq/policy3");
    fs::rename(&folder, bench.tree.path().join("unplugged")).unwrap();
    bench.tree.put("sys/devices/system/cpu/online", "0-2,4-10,12-15");
    bench.host.follow().unwrap();
    bench.apply(&request);
    assert_eq!(bench.host.failing(), 0);
    fs::rename(bench.tree.path().join("unplugged"), folder).unwrap();
    bench.tree.put("sys/devices/system/cpu/online", "0-15");
    bench.host.follow().unwrap();
    bench.apply(&request);
    let limit = "sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq";
    assert_eq!((bench.host.failing(), &*bench.tree.get(limit)), (0, "2000000"));
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

/// Bridges on USB, all of one model and with one serial number, as their maker made them.
struct Bridges {
    tree: Tree,
    state: tempfile::TempDir,
    host: Option<Host>,
}

const STANDBY: [(&str, &str); 2] = [("control", "on"), ("autosuspend_delay_ms", "-1")];

impl Bridges {
    fn new() -> Self {
        let tree = Tree::new();
        tree.cpus(1, 2, 1).put("proc/sys/kernel/random/boot_id", "a6dfd9b5");
        tree.put("sys/block/md0/size", 8);
        Self { tree, state: tempfile::tempdir().unwrap(), host: None }
    }

    fn file(number: usize, file: &str) -> String {
        format!("sys/devices/usb1/host{number}/{number}:0:0:0/power/{file}")
    }

    fn is_there(&self, number: usize) -> bool {
        self.tree.path().join(format!("sys/block/sd{}", ["a", "b", "c"][number])).exists()
    }

    /// Plugs one in, or pulls it. The kernel's settings of it begin anew.
    fn toggle(&self, number: usize) {
        let block = format!("sys/block/sd{}", ["a", "b", "c"][number]);
        let device = format!("sys/devices/usb1/host{number}/{number}:0:0:0");
        if self.is_there(number) {
            fs::remove_dir_all(self.tree.path().join(&block)).unwrap();
            return fs::remove_dir_all(self.tree.path().join(&device)).unwrap();
        }
        self.tree.put(&format!("{device}/model"), "USB3.0").put(&format!("{device}/type"), 0);
        self.tree.put(&format!("{device}/serial"), "123456789012");
        for (file, value) in STANDBY {
            self.tree.put(&Self::file(number, file), value);
        }
        self.tree.put(&format!("{block}/size"), 8).put(&format!("{block}/queue/rotational"), 1);
        self.tree.put(&format!("{block}/stat"), "1 0 8 5 0 0 0 0 0 1 5");
        self.tree.link(&format!("{block}/device"), &format!("../../../{device}"));
    }

    fn state(&self) -> State {
        State::open(self.state.path()).unwrap()
    }

    /// Begins anew, as `ebb run` does.
    fn start(&mut self) {
        self.host = None;
        restore(&self.tree.machine(), &self.state(), None).unwrap();
        let holds = Holds { disk_standby: Some(Nanos::from_secs(600)), ..Holds::default() };
        let held = holds.places(&self.tree.machine()).unwrap();
        let stated = Stated::default();
        let Ok(mut host) = Host::new(self.tree.machine(), &stated, &[]) else { return };
        host.act(&[], held, |_| Leave::Restore, Contest::Reassert, &self.state()).unwrap();
        host.follow();
        self.host = Some(host);
    }

    fn cycle(&mut self) {
        if self.host.as_mut().and_then(Host::follow).is_some_and(|followed| followed.is_new) {
            self.start();
        }
        let Some(host) = &mut self.host else { return };
        let topology = host.topology().clone();
        host.apply(&InForce::new(&topology), &mut Applied::new(&topology));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whichever of them come and go, killed in between or not: none keeps what Ebb has set, and
    /// nothing waits for a drive that is there.
    #[test]
    fn drives_that_say_the_same_are_all_set_back(
        events in proptest::collection::vec((0..3_usize, any::<bool>()), 1..8),
        last in proptest::option::of(0..3_usize),
    ) {
        let mut all = Bridges::new();
        all.start();
        for (number, is_killed) in events {
            if is_killed {
                all.host = None;
            }
            all.toggle(number);
            if is_killed {
                all.start();
            }
            all.cycle();
            for number in (0..3).filter(|number| all.is_there(*number)) {
                let control = all.tree.get(&Bridges::file(number, "control"));
                prop_assert_eq!(control, "auto", "sd{} is held", number);
            }
        }
        all.host = None;
        last.into_iter().for_each(|number| all.toggle(number));
        let done = restore(&all.tree.machine(), &all.state(), None).unwrap();
        for number in (0..3).filter(|number| all.is_there(*number)) {
            for (file, found) in STANDBY {
                prop_assert_eq!(all.tree.get(&Bridges::file(number, file)), found, "{:#?}", done);
            }
        }
        prop_assert_eq!(done.places.iter().filter(|one| one.stays()).count(), 0, "{:#?}", done);
    }
}

/// A drive that is busy when it is asked what it is counts by what its bay supplies until it says.
#[test]
fn a_drive_that_says_late_what_it_is_is_taken_in() {
    let tree = intel();
    let machine = tree.with_drives();
    fs::rename(tree.path().join("dev/nvme0"), tree.path().join("dev/busy")).unwrap();
    let host = || Host::new(machine.clone(), &Stated::default(), &[Control::PowerState]).unwrap();
    let mut silent = host();
    assert!(silent.layout().drives[0].is_silent());
    assert_eq!(silent.topology().drives[0].states.len(), 1);
    silent.follow();
    fs::rename(tree.path().join("dev/busy"), tree.path().join("dev/nvme0")).unwrap();
    let followed = silent.follow().unwrap();
    let says = "nvme0n1 (SAMSUNG MZWLO3T8HCLS-00A07 S795NC0W100001) says what it is now";
    assert_eq!((followed.is_new, &followed.notes[..]), (true, &[says.to_owned()][..]));
    assert!(host().topology().drives[0].states.len() > 1);
}

/// A chip that nothing tells from one that is steered comes later: what is set is given back at
/// once, while it is still known which of the two it is.
#[test]
fn a_fan_is_given_back_before_it_cannot_be_told_from_another() {
    let mut bench = Bench::new(intel());
    bench.host.follow();
    let mut request = bench.request();
    request.fan_duty.ask(0, 0.3, "test:");
    bench.apply(&request);
    let hwmon3 = bench.tree.path().join("sys/class/hwmon/hwmon3");
    let file = |file: &str| fs::read_to_string(hwmon3.join(file)).unwrap().trim().to_owned();
    assert_eq!((file("pwm1_enable"), file("pwm1")), ("1".into(), "77".into()));
    let twin = [("fan1_input", "900"), ("pwm1", "60"), ("pwm1_enable", "2")];
    bench.tree.chip(9, "nct6798", "nct6775.656", &twin);
    assert!(!bench.host.follow().unwrap().is_new, "nothing that could be steered");
    assert_eq!(file("pwm1_enable"), "2");
    assert_eq!(bench.apply(&request).of(Control::FanDuty, 0), Outcome::Refused);
    let said: Vec<_> = bench.host.notices().into_iter().map(|one| one.text).collect();
    assert!(said.iter().any(|text| text.contains("left alone: two chips")), "{said:?}");
    assert_eq!(bench.restore().iter().filter(|one| one.stays()).count(), 0);
    let twin = bench.tree.get("sys/class/hwmon/hwmon9/pwm1_enable");
    assert_eq!((file("pwm1_enable"), twin), ("2".into(), "2".into()));
}

/// What is plugged in again is the same one, whatever number its coming or its bus has.
#[test]
fn a_chip_is_known_by_where_it_is_plugged_in() {
    let pci = "sys/devices/pci0000:00";
    for (at, device, numbers, known) in [
        ("usb1/1-3/1-3:1.0", "0003:1E71:2010.#", ["0009", "000A"], "0003:1E71:2010 at 1-3:1.0"),
        ("0000:00:1f.4/i2c-#", "#-002e", ["0", "5"], "002e at 0000:00:1f.4, bus 0"),
        ("0000:00:1f.4/i2c-1/i2c-#", "#-002e", ["2", "7"], "002e at 0000:00:1f.4, bus 1.0"),
    ] {
        let plug = |tree: &Tree, number: &str| {
            let folder = format!("{pci}/{at}/{device}").replace('#', number);
            tree.put("sys/class/hwmon/hwmon7/name", "nzxtsmart2");
            tree.put(&format!("{folder}/uevent"), "");
            if at.contains("i2c-1/") {
                tree.put(&format!("{pci}/0000:00:1f.4/i2c-0/name"), "the first bus");
            }
            for (file, value) in [("fan1_input", 700), ("pwm1", 102), ("pwm1_enable", 1)] {
                tree.put(&format!("sys/class/hwmon/hwmon7/{file}"), value);
            }
            tree.link("sys/class/hwmon/hwmon7/device", &format!("../../../../{folder}"));
        };
        let tree = intel();
        plug(&tree, numbers[0]);
        let fan = StatedFan {
            chip: "nzxtsmart2".to_owned(),
            device: Some(device.replace('#', numbers[0])),
            pwm: "pwm1".to_owned(),
            tachometers: vec!["fan1".to_owned()],
            label: String::new(),
        };
        let stated = Stated { fans: vec![fan], ..Stated::default() };
        let mut bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
        bench.host.follow();
        assert_eq!(bench.tree.machine().chips.last().unwrap().device.as_deref(), Some(known));
        let mut request = bench.request();
        request.fan_duty.ask(0, 0.7, "test:");
        bench.apply(&request);
        let duty = |tree: &Tree| tree.get("sys/class/hwmon/hwmon7/pwm1");
        assert_eq!(duty(&bench.tree), "179");
        let hwmon = bench.tree.path().join("sys/class/hwmon");
        fs::remove_dir_all(hwmon.join("hwmon7")).unwrap();
        let files = format!("{pci}/{at}/{device}").replace('#', numbers[0]);
        fs::remove_dir_all(bench.tree.path().join(files).parent().unwrap()).unwrap();
        let left = bench.host.follow().unwrap();
        assert!(left.notes.iter().any(|note| note.contains("left")), "{left:?}");
        plug(&bench.tree, numbers[1]);
        let back = bench.host.follow().unwrap();
        assert!(
            !back.is_new && back.notes.iter().any(|note| note.ends_with("is back")),
            "{back:?}"
        );
        bench.apply(&request);
        assert_eq!(duty(&bench.tree), "179");
        assert_eq!(bench.restore().iter().filter(|one| one.stays()).count(), 0);
        assert_eq!(duty(&bench.tree), "102");
    }
}
