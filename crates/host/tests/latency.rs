//! What users wait for on the CPUs is part of their latency, and PACER keeps its promise by it: on
//! a machine of files that queues as M/M/c does.

use ebb_host::{Held, Leave, Stated};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{
    Applied, Control, Cycle, InForce, Limits, Origin, PERIOD, Plant, Signal, Signals,
};

use crate::acting::Bench;
use crate::tree::Tree;

const CPUS: usize = 8;
const FASTEST: f64 = 3_400_000.0;
const LIST: &str = "sys/fs/cgroup/system.slice/cpuset.cpus";
const LIMIT: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";

fn machine() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, CPUS as u16, 1);
    for cpu in 0..CPUS as u16 {
        tree.policy(cpu, &cpu.to_string(), "acpi-cpufreq", (800_000, FASTEST as u32));
    }
    tree.nvme(0, "fast", "A").nvme(1, "fast", "B");
    tree.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu")
        .put("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu")
        .group("system.slice", "0-7");
    tree.put("proc/sys/kernel/random/boot_id", "a6dfd9b5");
    tree
}

/// Requests that come at random, for which one CPU works and then a drive.
struct Queue {
    bench: Bench,
    now: Nanos,
    /// Requests a second, CPU seconds of each at full speed, seconds at the drive.
    rate: f64,
    work: f64,
    drive: f64,
    /// Whether the kernel counts what tasks wait.
    counts: bool,
    /// Seconds: waited, busy and idle by CPU, at the drive; and requests.
    waited: f64,
    busy: [f64; CPUS],
    idle: [f64; CPUS],
    at_drive: f64,
    requests: f64,
}

impl Queue {
    /// 0.8 of 8 cores' work.
    fn new(counts: bool) -> Self {
        let tree = machine();
        let bare = if counts { "version 15\ncpu0 0 0 0 0 0 0 0 7 0" } else { "version 15" };
        tree.put("proc/schedstat", bare).put("proc/loadavg", "0 0 0 2/300 4000");
        tree.put("sys/block/nvme0n1/inflight", "0 0");
        let (stated, held) = (Stated::default(), Held::default());
        Self {
            bench: Bench::stated(tree, &stated, Leave::Restore, held),
            now: Nanos::ZERO,
            rate: 4000.0,
            work: 200e-6,
            drive: 200e-6,
            counts,
            waited: 0.0,
            busy: [0.0; CPUS],
            idle: [0.0; CPUS],
            at_drive: 0.0,
            requests: 0.0,
        }
    }

    /// CPUs that tasks may use, and the time that one request's work takes at the speed in force.
    fn setting(&self) -> (Vec<u16>, f64) {
        let limit: f64 = self.bench.tree.get(LIMIT).parse().unwrap();
        let cpus = ebb_host::cpus(&self.bench.tree.get(LIST)).unwrap();
        (cpus, self.work * FASTEST / limit)
    }

    /// Utilisation, and the mean wait for one of `c` CPUs (Erlang C).
    fn queueing(&self, c: usize, service: f64) -> (f64, f64) {
        let a = self.rate * service;
        let u = a / c as f64;
        if u >= 1.0 {
            return (1.0, 0.1);
        }
        // Erlang B by its recursion.
        let b = (1..=c).fold(1.0, |b, n| a * b / (n as f64 + a * b));
        let waits = b / (1.0 - u * (1.0 - b));
        (u, waits * service / (c as f64 * (1.0 - u)))
    }

    /// Mean time from a request's arrival to its end.
    fn response(&self) -> f64 {
        let (cpus, service) = self.setting();
        self.drive + service + self.queueing(cpus.len(), service).1
    }

    fn utilisation(&self) -> f64 {
        let (cpus, service) = self.setting();
        self.queueing(cpus.len(), service).0
    }

    /// One period, as the kernel counts it.
    fn pass(&mut self) {
        let (cpus, service) = self.setting();
        let (u, wait) = self.queueing(cpus.len(), service);
        let (seconds, tree) = (PERIOD.seconds(), &self.bench.tree);
        let requests = self.rate * seconds;
        self.requests += requests;
        self.at_drive += requests * self.drive;
        self.waited += requests * wait;
        for cpu in 0..CPUS {
            let busy = if cpus.contains(&(cpu as u16)) { u * seconds } else { 0.0 };
            self.busy[cpu] += busy;
            self.idle[cpu] += seconds - busy;
        }
        let ticks = |seconds: f64| (seconds * 100.0) as u64;
        let line = |cpu| {
            format!("cpu{cpu} {} 0 0 {} 0 0 0 0", ticks(self.busy[cpu]), ticks(self.idle[cpu]))
        };
        tree.put("proc/stat", (0..CPUS).map(line).collect::<Vec<_>>().join("\n"));
        let (done, millis) = (self.requests as u64, (self.at_drive * 1e3) as u64);
        let other = "259 1 nvme1n1 0 0 0 0 0 0 0 0 0 0 0";
        let disks = format!("259 0 nvme0n1 {done} 0 {} {millis} 0 0 0 0 0 0 0\n{other}", 8 * done);
        tree.put("proc/diskstats", disks);
        if self.counts {
            let each = (self.waited / CPUS as f64 * 1e9) as u64 + 7;
            let line = |cpu| format!("cpu{cpu} 0 0 0 0 0 0 0 {each} 0");
            let lines: Vec<_> = (0..CPUS).map(line).collect();
            tree.put("proc/schedstat", format!("version 15\ntimestamp 1\n{}", lines.join("\n")));
        }
    }
}

impl Plant for Queue {
    fn sense(&mut self, signals: &mut Signals) {
        self.pass();
        self.now += PERIOD;
        self.bench.host.sense_at(self.now, signals);
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        self.bench.host.apply(given, applied);
    }
}

/// The machine under a policy, after two minutes.
fn settled(policy: &str, counts: bool) -> (Queue, Cycle) {
    let mut queue = Queue::new(counts);
    let topology = queue.bench.host.topology().clone();
    let policy = make(policy, &topology, &Settings::default()).unwrap();
    let mut cycle = Cycle::new(&topology, policy, Limits::default());
    for _ in 0..240 {
        let cycled = cycle.step(&mut queue);
        assert_eq!(cycled.native, None);
    }
    (queue, cycle)
}

/// Mean response over a minute from then on, relative to that with everything on.
fn relative(queue: &mut Queue, cycle: &mut Cycle) -> f64 {
    let native = queue.drive + queue.work + queue.queueing(CPUS, queue.work).1;
    let each = (0..120).map(|_| {
        cycle.step(queue);
        queue.response() / native
    });
    each.sum::<f64>() / 120.0
}

fn saves(queue: &Queue) -> bool {
    let (cpus, service) = queue.setting();
    cpus.len() < CPUS || service > queue.work
}

#[test]
fn pacer_keeps_plf_as_users_feel_it() {
    for policy in ["pacer", "pacer-cores", "pacer-freq", "pacer-plus"] {
        let (mut queue, mut cycle) = settled(policy, true);
        assert!(saves(&queue), "{policy} saves nothing");
        let relative = relative(&mut queue, &mut cycle);
        assert!(relative <= 1.2, "{policy}: {relative}");
    }
}

/// The drives alone say nothing of it: they are as fast as ever. So the CPUs are kept from being
/// busy, as `ebb run` does then.
#[test]
fn where_the_cpus_are_not_seen_their_utilisation_is_bounded() {
    let (mut queue, mut cycle) = settled("pacer", false);
    assert!(queue.bench.host.cpus_unseen().unwrap().contains("CONFIG_SCHED_INFO"));
    let unbounded = relative(&mut queue, &mut cycle);
    assert!(unbounded > 1.5, "{unbounded}: nothing that would have to be bounded");
    let (mut queue, mut cycle) = settled("pacer(max_utilisation=0.45)", false);
    for _ in 0..120 {
        cycle.step(&mut queue);
        assert!(queue.utilisation() <= 0.5, "{}", queue.utilisation());
    }
    assert!(saves(&queue));
}

/// The server of `ebb serve` beside which other work runs 10 nice levels above: at the drives 64 us
/// instead of 61, at the client 354 instead of 183.
#[test]
fn what_a_starved_task_waits_is_seen() {
    let mut queue = Queue::new(true);
    let mut signals = Signals::new(queue.bench.host.topology());
    (queue.rate, queue.work, queue.drive) = (1000.0, 100e-6, 61e-6);
    let mut mean = |queue: &mut Queue, wait: f64| {
        queue.waited += wait * queue.rate * PERIOD.seconds();
        queue.sense(&mut signals);
        let source = signals.sources.of(Signal::LatencyMean, 0);
        assert_eq!(source.origin, Origin::Modelled);
        signals.io.mean_latency.map(|mean| mean.micros())
    };
    assert_eq!(mean(&mut queue, 0.0), None, "nothing is known of the first period");
    let near = |is: Option<f64>, micros: f64| (is.unwrap() - micros).abs() < 3.0;
    let calm = mean(&mut queue, 0.0);
    assert!(near(calm, 61.0), "{calm:?}");
    queue.drive = 64e-6;
    let starved = mean(&mut queue, 170e-6);
    assert!(near(starved, 64.0 + 170.0), "{starved:?}");
}

/// Half the speed takes as long again: what is more than at full speed is half of what it takes.
#[test]
fn slower_work_is_counted_by_the_ceiling_and_requests_share_what_is_lost() {
    let mut queue = Queue::new(true);
    let mut signals = Signals::new(queue.bench.host.topology());
    let mut request = queue.bench.request();
    request.frequency.ask(0, Hertz(1.7e9), "test:");
    queue.sense(&mut signals);
    queue.bench.apply(&request);
    queue.sense(&mut signals);
    let (_, service) = queue.setting();
    assert!((service - 400e-6).abs() < 1e-9);
    let wait = queue.queueing(CPUS, service).1;
    let expected = (queue.drive + 200e-6 + wait) * 1e6;
    let is = signals.io.mean_latency.unwrap().micros();
    // Ticks are of 10 ms.
    assert!((is / expected - 1.0).abs() < 0.03, "{is} {expected}");
    assert_eq!(signals.io.reads.mean_latency, signals.io.mean_latency);
    // However much other work waits, nothing takes longer than there was time.
    queue.waited += 1e6;
    queue.sense(&mut signals);
    let is = signals.io.mean_latency.unwrap();
    assert_eq!(is, PERIOD + Nanos::from_micros(200));
    // What cannot be told is not taken for none.
    queue.bench.tree.put("proc/schedstat", "version 99");
    queue.counts = false;
    queue.sense(&mut signals);
    assert_eq!((signals.io.mean_latency, signals.io.reads.mean_latency), (None, None));
    assert!(signals.io.completed.is_some());
}

#[test]
fn pacer_plus_hears_of_a_recall() {
    let (mut queue, mut cycle) = settled("pacer-plus", true);
    assert!(queue.bench.host.pace().is_some() && queue.bench.host.look().is_none());
    queue.bench.tree.put("sys/block/nvme0n1/inflight", "400 400");
    queue.bench.host.look().expect("a crowd");
    assert!(!saves(&queue), "everything is back before the next cycle");
    let cycled = cycle.step(&mut queue);
    let reasons: Vec<_> = cycled.decisions().map(|decision| decision.reason).collect();
    assert!(reasons.contains(&"pacer-plus:recalled"), "{reasons:?}");
    for control in [Control::ActiveCores, Control::Frequency] {
        let found = InForce::new(queue.bench.host.topology()).number(control, 0);
        assert_eq!(cycled.in_force.number(control, 0), found, "{control}");
    }
    assert!(!saves(&queue));
}
