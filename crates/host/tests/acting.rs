//! What is given is set, and set back, on whole machines.

use std::fs;

use ebb_host::{
    Contest, Held, Holds, Host, Leave, Machine, ParkBy, RestoreOutcome, State, Stated, restore,
};
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_policy::{Applied, BackgroundMode, Control, InForce, Outcome, Plant, Request, Signals};
use proptest::prelude::*;

use crate::tree::{CAPS, Tree, intel};

/// A machine that is acted on.
pub struct Bench {
    pub tree: Tree,
    pub state: tempfile::TempDir,
    pub host: Host,
}

impl Bench {
    pub fn new(tree: Tree) -> Self {
        Self::left(tree, Leave::Restore)
    }

    fn left(tree: Tree, leave: Leave) -> Self {
        Self::with(tree, leave, Held::default())
    }

    fn with(tree: Tree, leave: Leave, holds: Held) -> Self {
        Self::stated(tree, &Stated::default(), leave, holds)
    }

    pub fn stated(tree: Tree, stated: &Stated, leave: Leave, holds: Held) -> Self {
        Self::started(tree, tempfile::tempdir().unwrap(), stated, leave, holds)
    }

    pub fn started(
        tree: Tree,
        state: tempfile::TempDir,
        stated: &Stated,
        leave: Leave,
        holds: Held,
    ) -> Self {
        let host = Host::new(tree.with_drives(), stated, Control::ALL).unwrap();
        let mut bench = Self { tree, state, host };
        let folder = State::open(bench.state.path()).unwrap();
        let contest = Contest::Reassert;
        let missing = bench.host.act(Control::ALL, holds, |_| leave, contest, &folder).unwrap();
        assert_eq!(missing, []);
        bench
    }

    pub fn request(&self) -> Request {
        Request::new(self.host.topology())
    }

    /// Applies a request without a guard.
    pub fn apply(&mut self, request: &Request) -> Applied {
        let topology = self.host.topology().clone();
        let mut given = InForce::new(&topology);
        given.follow(request);
        let mut applied = Applied::new(&topology);
        self.host.apply(&given, &mut applied);
        applied
    }

    pub fn machine(&self) -> Machine {
        self.tree.with_drives()
    }

    pub fn restore(&self) -> Vec<ebb_host::Restored> {
        self.restoration().places
    }

    pub fn restoration(&self) -> ebb_host::Restoration {
        let states = ["dev/nvme0", "dev/nvme1"].map(|file| (file, self.tree.get(file)));
        let machine = self.machine();
        for (file, state) in states {
            self.tree.put(file, state);
        }
        restore(&machine, &State::open(self.state.path()).unwrap(), None).unwrap()
    }
}

const FIRST: &str = "sys/devices/system/cpu/cpufreq/policy0";
const FAN: &str = "sys/class/hwmon/hwmon3/pwm1";
const LIST: &str = "sys/fs/cgroup/system.slice/cpuset.cpus";

/// The CPUs of 16 that the system's services may not use.
pub fn parked(tree: &Tree) -> Vec<u16> {
    let list = ebb_host::cpus(&tree.get(LIST)).unwrap();
    (0..16).filter(|cpu| !list.is_empty() && !list.contains(cpu)).collect()
}

/// What is other than `before`. The board moves the duty of its own control.
pub fn changed(tree: &Tree, before: &[(String, String)]) -> Vec<String> {
    let after = tree.settings();
    let changed = after.iter().filter(|file| !before.contains(file) && file.0 != FAN);
    changed.map(|(name, value)| format!("{name}: {value}")).collect()
}

#[test]
fn every_control_is_set_where_it_belongs_and_set_back_as_it_was() {
    let mut bench = Bench::new(intel());
    let before = bench.tree.settings();
    let mut request = bench.request();
    request.active_cores.ask(0, 5, "test:");
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    request.frequency_cap.ask(1, Hertz(1.2e9), "test:");
    request.power_state.ask(1, 2, "test:");
    request.fan_duty.ask(0, 0.5, "test:");
    let applied = bench.apply(&request);
    for (control, part) in
        [(Control::ActiveCores, 0), (Control::Frequency, 0), (Control::FanDuty, 0)]
    {
        assert_eq!(applied.of(control, part), Outcome::Done, "{control}");
    }
    // Both threads of the last three cores, which are the second socket's.
    assert_eq!(bench.tree.get(LIST), "0-4,8-12");
    assert_eq!(bench.tree.get("sys/fs/cgroup/user.slice/cpuset.cpus"), "0-4,8-12");
    let limits = |policy: &str| {
        let file =
            |which: &str| format!("sys/devices/system/cpu/cpufreq/{policy}/scaling_{which}_freq");
        (bench.tree.get(&file("min")), bench.tree.get(&file("max")))
    };
    let lowest = "800000".to_owned();
    assert_eq!(limits("policy0"), (lowest.clone(), "2000000".to_owned()), "a ceiling, no pin");
    assert_eq!(limits("policy4"), (lowest, "1200000".to_owned()), "its socket's cap");
    assert_eq!(
        (bench.tree.get("dev/nvme0"), bench.tree.get("dev/nvme1")),
        ("0".into(), "2".into())
    );
    assert_eq!(
        (bench.tree.get(FAN), bench.tree.get(&format!("{FAN}_enable"))),
        ("128".into(), "1".into())
    );
    let done = bench.restore();
    assert!(
        done.iter().all(|one| !matches!(one.outcome, RestoreOutcome::Failed { .. })),
        "{done:?}"
    );
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
    assert_eq!(bench.restore(), [], "nothing is left to be done");
}

#[test]
fn a_cap_is_raised_only_when_the_others_are_lowered() {
    let mut bench = Bench::new(intel());
    let mut request = bench.request();
    request.power_state.ask(0, 0, "test:");
    request.power_state.ask(1, 2, "test:");
    bench.apply(&request);
    request.power_state.ask(0, 2, "test:");
    request.power_state.ask(1, 0, "test:");
    bench.apply(&request);
    assert_eq!(bench.tree.get("dev/log"), "nvme1=2 nvme0=2 nvme1=0");
    // One that does not take its lower cap keeps the other from its higher one.
    request.power_state.ask(0, 1, "test:");
    request.power_state.ask(1, 2, "test:");
    fs::remove_file(bench.tree.path().join("dev/nvme1")).unwrap();
    let applied = bench.apply(&request);
    assert_eq!(applied.of(Control::PowerState, 1), Outcome::Refused);
    assert_eq!(applied.of(Control::PowerState, 0), Outcome::Refused);
    assert_eq!(bench.tree.get("dev/nvme0"), "2");
}

#[test]
fn nothing_is_changed_before_the_originals_are_on_disk() {
    let tree = intel();
    let state = tempfile::tempdir().unwrap();
    // As on a full disk.
    fs::create_dir(state.path().join("originals.json.new")).unwrap();
    let mut host = Host::new(tree.with_drives(), &Stated::default(), Control::ALL).unwrap();
    let before = tree.settings();
    let folder = State::open(state.path()).unwrap();
    let error = host
        .act(Control::ALL, Held::default(), |_| Leave::Restore, Contest::Yield, &folder)
        .unwrap_err();
    assert!(error.to_string().contains("originals.json"), "{error}");
    assert!(!host.is_acting());
    let mut request = Request::new(host.topology());
    request.frequency.ask(0, Hertz(1.0e9), "test:");
    let mut given = InForce::new(host.topology());
    given.follow(&request);
    let mut applied = Applied::new(host.topology());
    host.apply(&given, &mut applied);
    assert_eq!(tree.settings(), before);
}

#[test]
fn one_failure_does_not_keep_the_others_from_being_set_back() {
    let mut bench = Bench::new(intel());
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(1.0e9), "test:");
    request.fan_duty.ask(0, 1.0, "test:");
    request.power_state.ask(0, 1, "test:");
    bench.apply(&request);
    let stubborn = bench.tree.path().join(format!("{FIRST}/scaling_max_freq"));
    fs::remove_file(&stubborn).unwrap();
    std::os::unix::fs::symlink("/dev/null", &stubborn).unwrap();
    // The drive is pulled.
    fs::remove_dir_all(bench.tree.path().join("sys/block/nvme0n1")).unwrap();
    let done = bench.restore();
    let failed: Vec<_> = done
        .iter()
        .filter(|one| matches!(one.outcome, RestoreOutcome::Failed { .. }))
        .map(|one| one.place.to_string())
        .collect();
    assert_eq!(failed, [format!("/{FIRST}/scaling_max_freq")]);
    let waits = done.iter().filter(|one| matches!(one.outcome, RestoreOutcome::Pending { .. }));
    assert_eq!(waits.count(), 1);
    assert_eq!(bench.tree.get(&format!("{FAN}_enable")), "2");
    // Mended, it is set back by the next try, and only it.
    fs::remove_file(&stubborn).unwrap();
    fs::write(&stubborn, "1000000").unwrap();
    bench.restore();
    assert_eq!(bench.tree.get(&format!("{FIRST}/scaling_max_freq")), "3400000");
    // The drive is put in again, and has kept its cap.
    assert_eq!(bench.tree.get("dev/nvme0"), "1");
    bench.tree.nvme(0, "SAMSUNG MZWLO3T8HCLS-00A07", "S795NC0W100001");
    let done = bench.restore();
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(bench.tree.get("dev/nvme0"), "0");
}

#[test]
fn after_a_restart_only_what_outlives_one_is_set_back() {
    let mut bench = Bench::new(intel());
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(1.0e9), "test:");
    request.fan_duty.ask(0, 1.0, "test:");
    bench.apply(&request);
    bench.tree.put("proc/sys/kernel/random/boot_id", "another");
    // The kernel's own values now; the chip has kept the mode, and has another number.
    bench.tree.put(&format!("{FIRST}/scaling_max_freq"), 2_900_000);
    let hwmon = bench.tree.path().join("sys/class/hwmon");
    fs::rename(hwmon.join("hwmon3"), hwmon.join("hwmon9")).unwrap();
    let done = bench.restore();
    assert!(done.iter().any(|one| one.outcome == RestoreOutcome::Restarted));
    assert_eq!(bench.tree.get(&format!("{FIRST}/scaling_max_freq")), "2900000");
    assert_eq!(bench.tree.get("sys/class/hwmon/hwmon9/pwm1_enable"), "2");
}

#[test]
fn what_is_to_be_left_safe_is_left_safe() {
    let mut bench = Bench::left(intel(), Leave::Safe);
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(1.0e9), "test:");
    request.fan_duty.ask(0, 0.3, "test:");
    request.power_state.ask(0, 2, "test:");
    bench.apply(&request);
    bench.restore();
    assert_eq!(bench.tree.get(&format!("{FIRST}/scaling_max_freq")), "3400000");
    assert_eq!(
        (bench.tree.get(FAN), bench.tree.get(&format!("{FAN}_enable"))),
        ("255".into(), "1".into())
    );
    assert_eq!(bench.tree.get("dev/nvme0"), "0");
}

/// A drive that takes a power limit is capped in steps of a watt, and never above the limit found.
#[test]
fn a_power_limit_is_a_cap_in_small_steps() {
    let (none, some, below_all) = (0, 2 << 16 | 2_030, 1 << 16 | 60_000);
    let fifteen = 2 << 16 | 1_500;
    for (found, set, state) in
        [(none, fifteen, 10), (some, fifteen, 10), (below_all, below_all, 16)]
    {
        let tree = intel();
        tree.with_drives();
        tree.put("dev/nvme1-23", found);
        let before = tree.settings();
        let mut bench = Bench::with(tree, Leave::Restore, Held::default());
        let caps = bench.host.topology().drives.iter().map(|drive| drive.operational().len());
        assert_eq!(caps.collect::<Vec<_>>(), [3, 17], "25 to 9 W");
        let remarks = bench.host.remarks(&[Control::PowerState]);
        let is_said =
            |remark: &String| remark.ends_with("states 0 to 16 are limits of 25 W to 9 W");
        assert!(remarks.iter().any(is_said), "{remarks:?}");
        let mut request = bench.request();
        request.power_state.ask(0, 1, "test:");
        request.power_state.ask(1, 10, "test:");
        let applied = bench.apply(&request);
        assert_eq!(applied.of(Control::PowerState, 1), Outcome::Done);
        let is = |bench: &Bench, file: &str| bench.tree.get(file);
        assert_eq!((is(&bench, "dev/nvme0"), is(&bench, "dev/nvme1")), ("1".into(), "0".into()));
        assert_eq!(is(&bench, "dev/nvme1-23"), set.to_string());
        let mut signals = Signals::new(bench.host.topology());
        bench.host.sense(&mut signals);
        assert_eq!((signals.drives[0].state, signals.drives[1].state), (Some(1), Some(state)));
        request.power_state.ask(1, 0, "test:");
        bench.apply(&request);
        assert_eq!(is(&bench, "dev/nvme1-23"), found.to_string());
        bench.restore();
        assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
    }
}

/// Packages that go offline and come back in another order are numbered anew.
#[test]
fn a_power_limit_follows_its_package_and_not_its_number() {
    let tree = intel();
    let zones = "sys/class/powercap";
    let limits = [(0, 250_000_000), (1, 260_000_000)];
    for (package, limit) in limits {
        let zone = format!("{zones}/intel-rapl:{package}");
        tree.put(&format!("{zone}/constraint_0_name"), "long_term")
            .put(&format!("{zone}/constraint_0_power_limit_uw"), limit);
    }
    let holds = Holds { package_power: Some(Watts(150.0)), ..Holds::default() };
    let held = holds.places(&tree.machine()).unwrap();
    let stated = Stated { holds_package_power: true, ..Stated::default() };
    let mut bench = Bench::stated(tree, &stated, Leave::Restore, held);
    let request = bench.request();
    bench.apply(&request);
    let is = |bench: &Bench, number| {
        bench.tree.get(&format!("{zones}/intel-rapl:{number}/constraint_0_power_limit_uw"))
    };
    assert_eq!([is(&bench, 0), is(&bench, 1)], ["150000000", "150000000"]);
    bench.host.follow();
    let root = bench.tree.path().to_owned();
    let rename = |from: &str, to: &str| std::fs::rename(root.join(from), root.join(to)).unwrap();
    let [zero, one] = [0, 1].map(|number| format!("{zones}/intel-rapl:{number}"));
    rename(&zero, "away");
    rename(&one, &zero);
    bench.host.follow().unwrap();
    bench.apply(&request);
    bench.restore();
    assert_eq!(is(&bench, 0), "260000000", "package-1");
    rename("away", &one);
    bench.restore();
    assert_eq!(is(&bench, 1), "250000000", "package-0, which waited");
}

#[test]
fn limits_that_are_turned_off_are_named() {
    let tree = intel();
    for (zone, on) in [("intel-rapl:0", 1), ("intel-rapl:1", 0)] {
        let zone = format!("sys/class/powercap/{zone}");
        tree.put(&format!("{zone}/constraint_0_name"), "long_term")
            .put(&format!("{zone}/constraint_0_power_limit_uw"), 250_000_000)
            .put(&format!("{zone}/enabled"), on);
    }
    let holds = Holds { package_power: Some(Watts(150.0)), ..Holds::default() };
    let error = holds.places(&tree.machine()).unwrap_err();
    assert!(error.contains("package-1 are turned off: write 1 to /sys"), "{error}");
}

#[test]
fn what_the_operator_holds_is_held_and_set_back() {
    let tree = intel();
    let zone = "sys/class/powercap/intel-rapl:1";
    tree.zone("intel-rapl:1", "package-1", 262_143_328_850)
        .put(&format!("{zone}/constraint_0_name"), "short_term")
        .put(&format!("{zone}/constraint_0_power_limit_uw"), 300_000_000)
        .put(&format!("{zone}/constraint_1_name"), "long_term")
        .put(&format!("{zone}/constraint_1_power_limit_uw"), 250_000_000);
    tree.put("sys/fs/cgroup/backup.slice/cpu.weight", 100)
        .put("sys/fs/cgroup/backup.slice/io.weight", "default 100");
    for cpu in 0..16 {
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), 0);
    }
    tree.with_drives();
    tree.put("dev/nvme1-23", 0);
    let before = tree.settings();
    let holds = Holds {
        package_power: Some(Watts(150.0)),
        drive_power: Some(Watts(12.5)),
        cpu_latency: Some(Nanos::from_micros(50)),
        background: vec!["backup.slice".to_owned()],
        ..Holds::default()
    };
    let held = holds.places(&tree.with_drives()).unwrap();
    let stated = Stated { holds_drive_power: true, holds_package_power: true, ..Stated::default() };
    let mut bench = Bench::stated(tree, &stated, Leave::Restore, held);
    let mut request = bench.request();
    request.ask_background(BackgroundMode::Race, "test:");
    assert_eq!(bench.apply(&request).of(Control::Background, 0), Outcome::Done);
    let is = |file: &str| bench.tree.get(file);
    assert_eq!(is(&format!("{zone}/constraint_1_power_limit_uw")), "150000000");
    assert_eq!(is(&format!("{zone}/constraint_0_power_limit_uw")), "300000000");
    assert_eq!(is("sys/devices/system/cpu/cpu9/power/pm_qos_resume_latency_us"), "50");
    assert_eq!(is("sys/fs/cgroup/backup.slice/io.weight"), "default 1000");
    // In hundredths of a watt, of the drive alone that takes one.
    assert_eq!(is("dev/nvme1-23"), (2 << 16 | 1250).to_string());
    request.background.release(0);
    bench.apply(&request);
    assert_eq!(bench.tree.get("sys/fs/cgroup/backup.slice/cpu.weight"), "100");
    bench.restore();
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
    assert_eq!(bench.tree.get("dev/nvme1-23"), "0");
    let raising = Holds { package_power: Some(Watts(300.0)), ..Holds::default() };
    let held = raising.places(&bench.machine()).unwrap();
    let state = State::open(bench.state.path()).unwrap();
    let act = bench.host.act(Control::ALL, held, |_| Leave::Restore, Contest::Yield, &state);
    let said = act.unwrap().pop().unwrap();
    assert!(said.text.contains("'250000000', below '300000000': it is kept"), "{said:?}");
    bench.apply(&bench.request());
    assert_eq!(bench.tree.get(&format!("{zone}/constraint_1_power_limit_uw")), "250000000");
    let nowhere = Holds { package_power: Some(Watts(9.0)), ..Holds::default() };
    assert!(
        nowhere.places(&crate::tree::ampere().machine()).unwrap_err().contains("package_power")
    );
}

#[test]
fn processors_weigh_power_as_the_operator_says() {
    let tree = intel();
    let preference = |core: u16, file: &str| {
        format!("sys/devices/system/cpu/cpufreq/policy{core}/energy_performance_{file}")
    };
    for core in 0..8 {
        tree.put(&preference(core, "preference"), "balance_performance");
        let all = "default performance balance_performance balance_power power ";
        tree.put(&preference(core, "available_preferences"), all);
    }
    let holds = |word: &str| Holds { energy_preference: Some(word.into()), ..Holds::default() };
    let error = holds("lazy").places(&tree.machine()).unwrap_err();
    assert!(error.contains("write one of default performance"), "{error}");
    let error = holds("power").places(&crate::tree::amd().machine()).unwrap_err();
    assert!(error.contains("intel_pstate with HWP"), "{error}");
    tree.with_drives();
    let before = tree.settings();
    let held = holds("power").places(&tree.machine()).unwrap();
    let mut bench = Bench::with(tree, Leave::Restore, held);
    let state = State::open(bench.state.path()).unwrap();
    let trials = bench.host.contact(&state);
    assert!(trials.iter().any(|trial| trial.of == "energy_preference"), "{trials:?}");
    bench.apply(&bench.request());
    assert_eq!([0, 7].map(|core| bench.tree.get(&preference(core, "preference"))), ["power"; 2]);
    // Another program sets it: said, and set once more.
    bench.tree.put(&preference(3, "preference"), "performance");
    (0..40).for_each(|_| drop(bench.apply(&bench.request())));
    assert_eq!(bench.tree.get(&preference(3, "preference")), "power");
    bench.restore();
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
}

/// One core of each socket stays, with the CPU that cannot go; what somebody else has taken offline
/// stays so.
#[test]
fn cores_go_offline_where_that_is_asked_for() {
    let tree = intel();
    let online = |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/online");
    for cpu in 1..16 {
        tree.put(&online(cpu), u8::from(cpu != 15));
    }
    tree.put("sys/devices/system/cpu/online", "0-14");
    tree.with_drives();
    let before = tree.settings();
    let stated = Stated { park_by: ParkBy::Offline, ..Stated::default() };
    let mut bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
    let offline = |bench: &Bench| -> Vec<u16> {
        (1..16).filter(|cpu| bench.tree.get(&online(*cpu)) == "0").collect()
    };
    bench.host.follow();
    let mut request = bench.request();
    request.active_cores.ask(0, 1, "test:");
    assert_eq!(bench.apply(&request).of(Control::ActiveCores, 0), Outcome::Done);
    assert_eq!(offline(&bench), [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15]);
    let mut signals = Signals::new(bench.host.topology());
    bench.host.sense(&mut signals);
    assert_eq!(signals.groups[0].active, Some(2));
    bench.tree.put("sys/devices/system/cpu/online", "0,4,8,12");
    let followed = bench.host.follow().unwrap();
    assert_eq!(followed, ebb_host::Followed::default(), "what Ebb has taken offline is no change");
    // Domains of CPUs that are offline are neither set nor asked.
    let limit = |core: u16| format!("sys/devices/system/cpu/cpufreq/policy{core}/scaling_max_freq");
    fs::remove_file(bench.tree.path().join(limit(5))).unwrap();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    for _ in 0..20 {
        assert_eq!(bench.apply(&request).of(Control::Frequency, 0), Outcome::Done);
    }
    assert_eq!((bench.tree.get(&limit(0)), bench.host.failing()), ("2000000".to_owned(), 0));
    bench.tree.put(&limit(5), 3_400_000);
    assert_eq!(bench.restore()[0].place, ebb_host::Place::Offline, "before what is theirs");
    assert_eq!(offline(&bench), [15]);
    bench.tree.put("sys/devices/system/cpu/online", "0-14");
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
}

/// What others take offline while cores are parked is theirs at every end, a kill as well; what
/// they bring back until then is not taken from them.
#[test]
fn what_others_take_offline_meanwhile_stays_so() {
    let tree = intel();
    let online = |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/online");
    for cpu in 1..16 {
        tree.put(&online(cpu), 1);
    }
    let stated = Stated { park_by: ParkBy::Offline, ..Stated::default() };
    let mut bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
    let mut request = bench.request();
    request.active_cores.ask(0, 1, "test:");
    bench.apply(&request);
    let offline = |bench: &Bench| -> Vec<u16> {
        (1..16).filter(|cpu| bench.tree.get(&online(*cpu)) == "0").collect()
    };
    let change = |bench: &mut Bench, cpu: u16, is: u8| {
        bench.tree.put(&online(cpu), is);
        let all = (0..16).filter(|cpu| *cpu == 0 || bench.tree.get(&online(*cpu)) == "1");
        let all: Vec<_> = all.map(|cpu| cpu.to_string()).collect();
        bench.tree.put("sys/devices/system/cpu/online", all.join(","));
        bench.host.follow();
        assert_eq!(bench.apply(&request).of(Control::ActiveCores, 0), Outcome::Done);
    };
    assert_eq!(offline(&bench).len(), 12);
    change(&mut bench, 8, 0);
    change(&mut bench, 12, 0);
    change(&mut bench, 8, 1);
    bench.restore();
    assert_eq!(offline(&bench), [12]);
}

/// Somebody has set 0.8 to 2 GHz, for heat or power: asked for more is released, and a minimum goes
/// only out of the way of a lower ceiling.
#[test]
fn a_ceiling_found_is_kept() {
    let tree = intel();
    for core in 0..8 {
        let folder = format!("sys/devices/system/cpu/cpufreq/policy{core}");
        tree.put(&format!("{folder}/scaling_max_freq"), 2_000_000);
        tree.put(&format!("{folder}/scaling_min_freq"), 1_500_000);
    }
    let limits = |bench: &Bench| {
        ["min", "max"].map(|which| bench.tree.get(&format!("{FIRST}/scaling_{which}_freq")))
    };
    let ask = |bench: &mut Bench, ghz: f64| {
        let mut request = bench.request();
        request.frequency.ask(0, Hertz(ghz * 1e9), "test:");
        assert_eq!(bench.apply(&request).of(Control::Frequency, 0), Outcome::Done);
        limits(bench)
    };
    let mut bench = Bench::new(tree);
    assert_eq!(bench.host.topology().max_frequency(), Hertz(2.0e9), "what is found is all");
    for (ghz, min, max) in [
        (3.4, "1500000", "2000000"),
        (1.8, "1500000", "1800000"),
        (1.2, "1200000", "1200000"),
        (2.5, "1500000", "2000000"),
    ] {
        assert_eq!(ask(&mut bench, ghz), [min, max], "{ghz} GHz");
    }
    let stated = Stated { raise_limits: true, ..Stated::default() };
    let mut bench = Bench::stated(bench.tree, &stated, Leave::Restore, Held::default());
    assert_eq!(ask(&mut bench, 3.4), ["1500000", "3400000"], "asked for in the configuration");
    bench.restore();
    assert_eq!(limits(&bench), ["1500000", "2000000"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Whatever is asked for, in whatever order, however often it is killed in between: everything
    /// comes back, no minimum is above its maximum, and no write takes the caps above what they
    /// are before or after all of them.
    #[test]
    fn whatever_happened_everything_comes_back(
        steps in proptest::collection::vec(
            (1..=8_u16, 8..=34_u32, 0..3_u8, 0..3_u8, 0.0..1.0_f64, any::<u8>()), 1..8,
        ),
    ) {
        let mut bench = Bench::new(intel());
        let before = bench.tree.settings();
        for (cores, steps, first, second, duty, released) in steps {
            let mut request = bench.request();
            let given = |bit: u8| released & 1 << bit == 0;
            if given(0) { request.active_cores.ask(0, cores, "test:"); }
            if given(1) { request.frequency.ask(0, Hertz(f64::from(steps) * 1e8), "test:"); }
            if given(2) { request.power_state.ask(0, first, "test:"); }
            if given(3) { request.power_state.ask(1, second, "test:"); }
            if given(4) { request.fan_duty.ask(1, duty, "test:"); }
            let states = |tree: &Tree| {
                ["dev/nvme0", "dev/nvme1"].map(|file| tree.get(file).parse().unwrap())
            };
            let sum = |states: [usize; 2]| states.map(|state| CAPS[state]).iter().sum::<f64>();
            let mut now: [usize; 2] = states(&bench.tree);
            let from = sum(now);
            bench.tree.put("dev/log", "");
            bench.apply(&request);
            let most = from.max(sum(states(&bench.tree)));
            for write in bench.tree.get("dev/log").split_whitespace() {
                let (drive, state) = write.split_once('=').unwrap();
                now[usize::from(drive == "nvme1")] = state.parse().unwrap();
                prop_assert!(sum(now) <= most, "{write}");
            }
            for policy in 0..8 {
                let limit = |which: &str| -> u32 {
                    let folder = "sys/devices/system/cpu/cpufreq";
                    let file = format!("{folder}/policy{policy}/scaling_{which}_freq");
                    bench.tree.get(&file).parse().unwrap()
                };
                prop_assert!(limit("min") <= limit("max"));
            }
        }
        bench.restore();
        prop_assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
    }
}
