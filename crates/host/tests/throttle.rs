//! What a budget of the whole server limits beyond cores and clocks: the packages' power, and the
//! CPU time and rates of the control groups that the operator names.

use std::fs;

use ebb_host::{Held, Holds, Host, Impossible, Leave, Stated};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{BestEffortSignals, Control, Outcome, Signals};

use crate::acting::{Bench, changed};
use crate::tree::{Tree, intel};

const NFS: &str = "system.slice/nfs.service";
const GUESTS: &str = "machine.slice";
const MB: f64 = 1e6;

fn file(group: &str, file: &str) -> String {
    format!("sys/fs/cgroup/{group}/{file}")
}

fn group(tree: &Tree, group: &str) {
    tree.put(&file(group, "cgroup.events"), "populated 1\nfrozen 0")
        .put(&file(group, "cpu.max"), "max 100000")
        .put(&file(group, "cpu.stat"), "usage_usec 0")
        .put(&file(group, "io.max"), "")
        .put(&file(group, "io.stat"), "259:0 rbytes=0 wbytes=0");
}

fn server() -> Tree {
    let tree = intel();
    [NFS, GUESTS].iter().for_each(|name| group(&tree, name));
    for drive in 0..2 {
        tree.put(&format!("sys/block/nvme{drive}n1/dev"), format!("259:{drive}"));
    }
    tree
}

fn bench(tree: Tree) -> Bench {
    let throttle = [NFS, GUESTS].map(str::to_owned).to_vec();
    let stated = Stated { throttle, ..Stated::default() };
    Bench::stated(tree, &stated, Leave::Restore, Held::default())
}

/// Seconds of a machine whose first drive reads, for its groups and in all.
struct Seconds {
    bench: Bench,
    past: u64,
    /// Cores and bytes a second of each group, and bytes a second of the drive.
    groups: [(f64, f64); 2],
    drive: f64,
    /// The same in sum.
    sums: ([(f64, f64); 2], f64),
}

impl Seconds {
    fn new(tree: Tree, groups: [(f64, f64); 2], drive: f64) -> Self {
        Self::with(bench(tree), groups, drive)
    }

    fn with(bench: Bench, groups: [(f64, f64); 2], drive: f64) -> Self {
        Self { bench, past: 0, groups, drive, sums: Default::default() }
    }

    /// One more, with what is sensed of it.
    fn pass(&mut self) -> Signals {
        self.pass_without("")
    }

    /// The same while one group is not there.
    fn pass_without(&mut self, away: &str) -> Signals {
        let Self { bench, past, groups, drive, sums: (used, read) } = self;
        let all = [NFS, GUESTS].into_iter().zip(used).zip(groups);
        for ((name, used), (cores, bytes)) in all.filter(|((name, _), _)| *name != away) {
            *used = (used.0 + *cores * MB, used.1 + *bytes);
            bench.tree.put(&file(name, "cpu.stat"), format!("usage_usec {:.0}", used.0));
            let requests = used.1 / 1e5;
            let line = format!("259:0 rbytes={:.0} wbytes=0 rios={requests:.0} wios=0", used.1);
            bench.tree.put(&file(name, "io.stat"), line);
        }
        *read += *drive;
        let counts = format!("100 0 {:.0} 50 300 0 2400 75 2 100 125 0 0 0 0 0 0", *read / 512.0);
        bench.tree.put("proc/diskstats", format!("259 0 nvme0n1 {counts}"));
        let mut signals = Signals::new(bench.host.topology());
        signals.now = Nanos::from_secs(*past);
        *past += 1;
        bench.host.sense_at(Nanos::from_secs(*past), &mut signals);
        signals
    }

    /// Cores of the quota of each group.
    fn quotas(&self) -> [Option<f64>; 2] {
        [NFS, GUESTS].map(|name| {
            let text = self.bench.tree.get(&file(name, "cpu.max"));
            let (quota, period) = text.split_once(' ').unwrap();
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().unwrap())
        })
    }

    /// The rate at which each group may read of the first drive.
    fn reads(&self) -> [Option<f64>; 2] {
        [NFS, GUESTS].map(|name| {
            let text = self.bench.tree.get(&file(name, "io.max"));
            let line = text.lines().find(|line| line.starts_with("259:0 "))?;
            line.split_once("rbps=")?.1.split(' ').next()?.parse().ok()
        })
    }

    fn told(&mut self) -> Vec<String> {
        let notices = self.bench.host.notices().into_iter();
        notices.map(|notice| format!("{}: {}", notice.place, notice.text)).collect()
    }
}

/// Shares are set in steps of 5 %.
fn are_near<const N: usize>(are: [Option<f64>; N], near: [f64; N]) -> bool {
    are.into_iter().zip(near).all(|(is, near)| is.is_some_and(|is| is <= near && is > 0.94 * near))
}

/// Of two groups one needs little and keeps it with a margin; the other one gets the rest.
const LITTLE_AND_MUCH: [(f64, f64); 2] = [(0.5, 10.0 * MB), (8.0, 400.0 * MB)];

#[test]
fn what_the_budget_leaves_is_shared_by_need_and_comes_back() {
    let tree = server();
    tree.with_drives();
    let before = tree.settings();
    let mut seconds = Seconds::new(tree, LITTLE_AND_MUCH, 410.0 * MB);
    let limitable = seconds.bench.host.topology().limitable;
    assert!(limitable.time && limitable.rates);
    let mut request = seconds.bench.request();
    request.cpu_time.ask(0, 4.0, "test:");
    request.cpu_period.ask(0, Nanos::from_millis(100), "test:");
    request.read_rate.ask(0, 100.0 * MB, "test:");
    for _ in 0..3 {
        seconds.pass();
        let applied = seconds.bench.apply(&request);
        for control in [Control::CpuTime, Control::CpuPeriod, Control::ReadRate] {
            assert_eq!(applied.of(control, 0), Outcome::Done, "{control}");
        }
    }
    let (quotas, reads) = (seconds.quotas(), seconds.reads());
    assert!(are_near(quotas, [0.625, 3.375]), "{quotas:?}");
    assert!(are_near(reads, [12.5 * MB, 87.5 * MB]), "{reads:?}");
    let none = seconds.bench.request();
    seconds.bench.apply(&none);
    assert_eq!((seconds.quotas(), seconds.reads()), ([None; 2], [None; 2]), "released");
    seconds.bench.apply(&request);
    seconds.bench.restore();
    for name in [NFS, GUESTS] {
        // In the kernel's file a device without limits has no line.
        assert_eq!(seconds.bench.tree.get(&file(name, "io.max")), "259:0 rbps=max wbps=max");
        seconds.bench.tree.put(&file(name, "io.max"), "");
    }
    let mut left = changed(&seconds.bench.tree, &before);
    left.retain(|line| !line.contains("stat"));
    assert_eq!(left, Vec::<String>::new());
}

/// A backup has no more than its limit, wherever it reads; the others keep theirs.
#[test]
fn best_effort_has_a_limit_of_its_own() {
    let stated = Stated {
        throttle: vec![NFS.to_owned()],
        best_effort: vec![GUESTS.to_owned()],
        ..Stated::default()
    };
    let tree = server();
    // Of one drive only: a plain file has no line for each.
    fs::remove_file(tree.path().join("sys/block/nvme1n1/dev")).unwrap();
    let bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
    let limitable = bench.host.topology().limitable;
    assert!(limitable.time && limitable.rates && limitable.best_effort);
    let groups = [(0.5, 300.0 * MB), (1.0, 400.0 * MB)];
    let mut seconds = Seconds::with(bench, groups, 700.0 * MB);
    let mut request = seconds.bench.request();
    let cycle = |seconds: &mut Seconds, request: &_| {
        let signals = seconds.pass();
        let applied = seconds.bench.apply(request);
        (signals.best_effort, applied.of(Control::BestEffortRate, 0))
    };
    request.best_effort_rate.ask(0, 100.0 * MB, "test:");
    cycle(&mut seconds, &request);
    for _ in 0..3 {
        let (moved, outcome) = cycle(&mut seconds, &request);
        assert_eq!(moved, BestEffortSignals { requests: Some(4000), bytes: Some(400_000_000) });
        assert_eq!(outcome, Outcome::Done);
    }
    // A part is kept for writes that may come.
    let [nfs, guests] = seconds.reads();
    assert!(nfs.is_none() && are_near([guests], [99.0 * MB]), "{guests:?}");
    request.read_rate.ask(0, 900.0 * MB, "test:");
    cycle(&mut seconds, &request);
    let [nfs, guests] = seconds.reads();
    assert!(nfs > Some(350.0 * MB) && are_near([guests], [99.0 * MB]), "{nfs:?} {guests:?}");
    request.read_rate.release(0);
    request.best_effort_rate.release(0);
    cycle(&mut seconds, &request);
    assert_eq!(seconds.reads(), [None; 2]);
    // Without a group that is there, there is nothing to limit.
    request.best_effort_rate.ask(0, 100.0 * MB, "test:");
    fs::remove_dir_all(seconds.bench.tree.path().join("sys/fs/cgroup").join(GUESTS)).unwrap();
    seconds.pass_without(GUESTS);
    let applied = seconds.bench.apply(&request);
    assert_eq!(applied.of(Control::BestEffortRate, 0), Outcome::Refused);
    seconds.bench.restore();
    // With no other groups a drive's rate cannot be limited, nor the time of cores.
    let alone = Stated { best_effort: vec![GUESTS.to_owned()], ..Stated::default() };
    let host = Host::new(server().machine(), &alone, Control::ALL).unwrap();
    let limitable = host.topology().limitable;
    assert!(limitable.best_effort && !limitable.rates && !limitable.time);
}

/// What the kernel and other groups read comes off the limit, and may be all of it.
#[test]
fn what_others_use_comes_first_and_a_limit_that_cannot_be_kept_is_refused() {
    let mut seconds = Seconds::new(server(), [(0.5, 10.0 * MB), (8.0, 40.0 * MB)], 110.0 * MB);
    let mut request = seconds.bench.request();
    request.read_rate.ask(0, 100.0 * MB, "test:");
    let cycle = |seconds: &mut Seconds| {
        seconds.pass();
        seconds.bench.apply(&request).of(Control::ReadRate, 0)
    };
    (0..3).for_each(|_| assert_eq!(cycle(&mut seconds), Outcome::Done));
    // 60 MB/s are others', so 40 are left.
    let reads = seconds.reads();
    assert!(are_near(reads, [12.5 * MB, 27.5 * MB]), "{reads:?}");
    seconds.told();
    seconds.drive = 900.0 * MB;
    (0..12).for_each(|_| assert_eq!(cycle(&mut seconds), Outcome::Refused));
    let told = seconds.told();
    let ours = told.iter().filter(|line| line.contains("io.max")).collect::<Vec<_>>();
    assert!(ours.len() == 1 && ours[0].contains("name their control groups"), "{told:?}");
}

/// `io.max` is of one block device (`Documentation/admin-guide/cgroup-v2.rst`).
#[test]
fn a_drive_of_two_namespaces_is_not_told_as_limited() {
    let tree = server();
    for file in ["device/model", "device/serial", "size", "queue/rotational", "stat"] {
        let first = tree.get(&format!("sys/block/nvme0n1/{file}"));
        tree.put(&format!("sys/block/nvme0n2/{file}"), first);
    }
    let mut seconds = Seconds::new(tree, [(0.5, 10.0 * MB), (8.0, 40.0 * MB)], 50.0 * MB);
    let said = seconds.bench.host.remarks(Control::ALL).join("\n");
    assert!(said.contains("is nvme0n1, nvme0n2: io.max limits a single block device"), "{said}");
    let mut request = seconds.bench.request();
    request.read_rate.ask(0, 20.0 * MB, "test:");
    seconds.pass();
    seconds.pass();
    assert_eq!(seconds.bench.apply(&request).of(Control::ReadRate, 0), Outcome::Refused);
    assert_eq!(seconds.bench.tree.get(&file(NFS, "io.max")), "");
}

#[test]
fn a_group_that_comes_is_limited_and_one_that_goes_is_let_go() {
    let mut seconds = Seconds::new(server(), LITTLE_AND_MUCH, 410.0 * MB);
    let mut request = seconds.bench.request();
    request.cpu_time.ask(0, 2.0, "test:");
    let cycle = |seconds: &mut Seconds| {
        seconds.pass();
        seconds.bench.apply(&request);
    };
    let folder = seconds.bench.tree.path().join("sys/fs/cgroup").join(NFS);
    cycle(&mut seconds);
    fs::remove_dir_all(&folder).unwrap();
    seconds.pass_without(NFS);
    seconds.bench.apply(&request);
    let text = seconds.bench.tree.get(&file(GUESTS, "cpu.max"));
    let quota: f64 = text.split_once(' ').unwrap().0.parse().unwrap();
    assert!(quota > 190_000.0, "all is the other one's: {text}");
    group(&seconds.bench.tree, NFS);
    seconds.told();
    (0..3).for_each(|_| cycle(&mut seconds));
    assert!(seconds.quotas().iter().all(Option::is_some), "{:?}", seconds.quotas());
    assert_eq!(seconds.told(), Vec::<String>::new());
    fs::remove_dir_all(&folder).unwrap();
    group(&seconds.bench.tree, NFS);
    fs::remove_file(folder.join("io.max")).unwrap();
    cycle(&mut seconds);
    let told = seconds.told();
    let is_told = |text: &str| told.iter().any(|line| line.contains(text));
    assert!(is_told("set-property nfs.service IOWeight=100"), "{told:?}");
    cycle(&mut seconds);
    assert_eq!(seconds.told(), Vec::<String>::new(), "it was said");
    seconds.bench.restore();
    assert_eq!(seconds.quotas(), [None; 2]);
}

#[test]
fn packages_are_limited_together_and_never_above_what_was_found() {
    let tree = intel();
    let limit =
        |number: u8| format!("sys/class/powercap/intel-rapl:{number}/constraint_0_power_limit_uw");
    for (number, watts) in [(0, 200), (1, 90)] {
        tree.put(&format!("sys/class/powercap/intel-rapl:{number}/constraint_0_name"), "long_term")
            .put(&limit(number), watts * 1_000_000);
    }
    let mut bench = Bench::new(tree);
    assert!(bench.host.topology().limitable.packages);
    let mut request = bench.request();
    for (asked, set) in [(240.0, [120, 90]), (100.0, [50, 50]), (0.0, [20, 9]), (900.0, [200, 90])]
    {
        request.package_limit.ask(0, Watts(asked), "test:");
        assert_eq!(bench.apply(&request).of(Control::PackageLimit, 0), Outcome::Done);
        let is = [0, 1].map(|number| bench.tree.get(&limit(number)));
        assert_eq!(is, set.map(|watts| (watts * 1_000_000).to_string()), "{asked} W");
    }
    request.package_limit.ask(0, Watts(100.0), "test:");
    bench.apply(&request);
    bench.restore();
    assert_eq!([0, 1].map(|number| bench.tree.get(&limit(number))), ["200000000", "90000000"]);
    // Firmware that limits nothing says the register's most.
    bench.tree.put(&limit(0), 4_095_875_000_u64);
    let mut bench = Bench::new(bench.tree);
    request.package_limit.ask(0, Watts(0.0), "test:");
    bench.apply(&request);
    assert_eq!([0, 1].map(|number| bench.tree.get(&limit(number))), ["100000000", "9000000"]);
    bench.restore();
    assert_eq!(bench.tree.get(&limit(0)), "4095875000");
    bench.tree.put(&limit(0), 200_000_000);
    // Where the operator holds them, no policy sets them.
    let stated = Stated { holds_package_power: true, ..Stated::default() };
    let held = Holds { package_power: Some(Watts(80.0)), ..Holds::default() };
    let held = held.places(&bench.machine()).unwrap();
    let mut bench = Bench::stated(bench.tree, &stated, Leave::Restore, held);
    assert!(!bench.host.topology().limitable.packages);
    assert_eq!(bench.apply(&request).of(Control::PackageLimit, 0), Outcome::Refused);
    assert_eq!(bench.tree.get(&limit(0)), "80000000");
}

#[test]
fn nobody_throttles_himself() {
    let tree = server();
    tree.put("proc/self/cgroup", "0::/system.slice/nfs.service/ebb");
    let stated = Stated { throttle: vec![NFS.to_owned()], ..Stated::default() };
    let told = Host::new(tree.machine(), &stated, Control::ALL).unwrap_err();
    assert!(matches!(&told, Impossible::Own { key: "machine.throttle", .. }), "{told}");
    let without = Host::new(tree.machine(), &Stated::default(), Control::ALL).unwrap();
    let limitable = without.topology().limitable;
    assert!(!limitable.time && !limitable.rates);
}
