//! Small workloads and servers for the twin's tests.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its own part

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_policy::cooling::Curve;
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{Policy, QosClass, Signals};
use ebb_trace::generate::Job;
use ebb_trace::{Closed, Op, Request, Source, TraceError, Workload};
use ebb_twin::{Observer, Outcome, Profile, Run, Unobserved, run};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

/// Poisson arrivals of random requests.
pub struct Poisson {
    pub left: u64,
    pub gap_ns: f64,
    pub bytes: u32,
    pub read_share: f64,
    pub devices: u16,
    pub span: u64,
    at: f64,
    random: Pcg64Mcg,
}

impl Poisson {
    pub fn new(left: u64, gap_ns: f64, bytes: u32, read_share: f64, devices: u16) -> Self {
        let random = Pcg64Mcg::seed_from_u64(42);
        Self { left, gap_ns, bytes, read_share, devices, span: 1 << 40, at: 0.0, random }
    }

    /// The same with other draws.
    pub fn seeded(self, seed: u64) -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(seed), ..self }
    }
}

impl Source for Poisson {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        for _ in 0..self.left.min(1000) {
            let step: f64 = Exp1.sample(&mut self.random);
            self.at += step * self.gap_ns;
            let read = self.random.random_bool(self.read_share);
            batch.push(Request {
                at: Nanos(self.at as u64),
                offset: self.random.random_range(0..self.span / 4096) * 4096,
                bytes: self.bytes,
                device: self.random.random_range(0..self.devices),
                op: if read { Op::Read } else { Op::Write },
                stream: 0,
                recorded_latency: None,
            });
        }
        self.left -= self.left.min(1000);
        Ok(())
    }
}

/// One source after the other, each with its own clock.
pub struct Chain(pub Vec<Box<dyn Source>>);

impl Source for Chain {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let before = batch.len();
        while let Some(first) = self.0.first_mut() {
            first.fill(batch)?;
            if batch.len() > before {
                return Ok(());
            }
            self.0.remove(0);
        }
        Ok(())
    }
}

/// Clients of every drive whose demand changes from phase to phase, drive by drive: nothing, a
/// trickle, or all that the drive can do.
pub struct Shifting {
    pub drives: u16,
    pub depth: u32,
    pub bytes: u32,
    pub read_share: f64,
    pub phase: Nanos,
    pub random: Pcg64Mcg,
    /// Demand of each drive in each phase, over and over.
    pub demand: Vec<Vec<Demand>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    Nothing,
    Trickle,
    All,
}

impl Shifting {
    pub fn new(drives: u16, bytes: u32, read_share: f64, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut draw = || match random.random_range(0..3) {
            0 => Demand::Nothing,
            1 => Demand::Trickle,
            _ => Demand::All,
        };
        let demand = (0..drives).map(|_| (0..16).map(|_| draw()).collect()).collect();
        let phase = Nanos::from_millis(3_700);
        Self { drives, depth: 8, bytes, read_share, phase, random, demand }
    }
}

impl Closed for Shifting {
    fn slots(&self) -> u32 {
        u32::from(self.drives) * self.depth
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let device = slot % u32::from(self.drives);
        let phase = now.0 / self.phase.0;
        let demands = &self.demand[device as usize];
        let at = match demands[phase as usize % demands.len()] {
            Demand::Nothing => Nanos((phase + 1) * self.phase.0),
            Demand::Trickle => now + Nanos::from_millis(20),
            Demand::All => now,
        };
        let read = self.random.random_bool(self.read_share);
        Some(Request {
            at,
            offset: self.random.random_range(0..1u64 << 12) << 21,
            bytes: self.bytes,
            device: device as u16,
            op: if read { Op::Read } else { Op::Write },
            stream: slot,
            recorded_latency: None,
        })
    }
}

/// Clients that send the next random request as soon as the last one is answered.
pub struct Clients {
    pub slots: u32,
    pub bytes: u32,
    pub op: Op,
    pub devices: u16,
    pub random: Pcg64Mcg,
}

impl Closed for Clients {
    fn slots(&self) -> u32 {
        self.slots
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        Some(Request {
            at: now,
            offset: self.random.random_range(0..1u64 << 28) * 4096,
            bytes: self.bytes,
            device: (slot % u32::from(self.devices)) as u16,
            op: self.op,
            stream: slot,
            recorded_latency: None,
        })
    }
}

/// Holds every group at some cores and some share of the highest frequency from the start.
pub struct Fixed {
    pub active: u16,
    pub frequency: usize,
    pub frequencies: Vec<Hertz>,
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }
    fn step(&mut self, _: &Signals, request: &mut ebb_policy::Request) {
        for group in 0..request.frequency.len() {
            request.active_cores.ask(group, self.active, "test:fixed");
            request.frequency.ask(group, self.frequencies[self.frequency], "test:fixed");
        }
    }
}

/// One stage of identical polling cores, constant service time `cycles` at 1 GHz (so cycles are
/// nanoseconds), `extra` TOML at the end of `[cpu]`.
pub fn server(cores: u16, cycles: u32) -> Profile {
    let text = format!(
        r#"
name = "test"
summary = "test"
fabric_latency = "0 s"
[cpu]
frequencies = ["500 MHz", "1 GHz"]
uncore = "10 W"
core_static = "1 W"
core_dynamic = "2 W"
frequency_exponent = 1.0
poll_share = 0.5
wait = "poll"
parked = "0.25 W"
unpark_latency = "1 ms"
frequency_latency = "10 us"
[[stage]]
role = "front-end"
cores = {cores}
read_cycles = {cycles}.0
write_cycles = {cycles}.0
cycles_per_kib = 0.0
[layout]
raid = "none"
[drives]
count = 4
model = "generic-nvme"
[board]
memory = "5 W"
nic = "6 W"
fans = "7 W"
other = "8 W"
[psu]
rated = "1000 W"
efficiency = [[0.0, 0.8]]
"#
    );
    Profile::parse(&text, "test").unwrap()
}

/// The shipped profile `name` with texts replaced, each of which it has once.
pub fn changed(name: &str, changes: &[(&str, &str)]) -> Profile {
    let mut text = Profile::shipped_text(name).unwrap().to_owned();
    for (from, to) in changes {
        assert_eq!(text.matches(from).count(), 1, "{name}: {from}");
        text = text.replace(from, to);
    }
    Profile::parse(&text, name).unwrap()
}

/// `thermal-1u` with requests that keep a core, which draws so much, busy for 50 ms: few of them
/// make the heat of many.
pub fn hot_requests(core: &str, changes: &[(&str, &str)]) -> Profile {
    let core = format!("core_dynamic = \"{core}\"");
    let hot = [
        ("read_cycles = 14000.0", "read_cycles = 140000000.0"),
        ("read_cycles = 4500.0", "read_cycles = 45000000.0"),
        ("read_cycles = 9000.0", "read_cycles = 90000000.0"),
        ("core_dynamic = \"4 W\"", &core),
    ];
    changed("thermal-1u", &[&hot, changes].concat())
}

/// Duty up to which the disks of [`curve`] feel nothing of the fans.
pub const KNEE: f64 = 0.4;

/// A disk throughput curve for policies.
pub fn curve() -> Curve {
    let points = vec![(0.0, 1.0), (KNEE, 1.0), (0.5, 0.97), (0.6, 0.86), (0.8, 0.62), (1.0, 0.40)];
    Curve::new(points).unwrap()
}

/// A job that computes for so long, on any socket.
pub fn compute(seconds: u64) -> Job {
    Job {
        name: "compute".to_owned(),
        class: QosClass::Noncritical,
        socket: None,
        start: Nanos::ZERO,
        cpu: Nanos::from_secs(seconds),
        clock: Hertz(2.7e9),
        fixed: 0.0,
        activity: 1.0,
        io: None,
        objective: None,
    }
}

/// So many jobs that compute without end, by turns on each of two sockets.
pub fn heaters(count: u16) -> Vec<Job> {
    let on = |socket| Job { socket: Some(socket), ..compute(100_000) };
    (0..count).map(|number| on(number % 2)).collect()
}

/// The seeds of `EBB_SEEDS=from..to`, or these.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(given) = std::env::var("EBB_SEEDS") else { return usual };
    let (from, to) = given.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// What `work` makes of each item, in their order, on all cores: the longest tests would else be
/// at work alone in the end.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            done.push((index, work(item)));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|done| done.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// How duties moved: peak to peak, and turns by more than a hundredth.
pub fn swing(duties: &[f64]) -> (f64, usize) {
    let (mut low, mut high, mut turns) = (1.0_f64, 0.0_f64, 0);
    let (mut before, mut up) = (duties[0], None);
    for &duty in duties {
        (low, high) = (low.min(duty), high.max(duty));
        if (duty - before).abs() > 1e-2 {
            turns += usize::from(up == Some(duty < before));
            (up, before) = (Some(duty > before), duty);
        }
    }
    (high - low, turns)
}

/// How far duties go to and fro: what they rise and fall by, whichever is less.
pub fn sway(duties: &[f64]) -> f64 {
    let (mut low, mut high, mut rise, mut fall) = (duties[0], duties[0], 0.0_f64, 0.0_f64);
    for &duty in duties {
        (low, high) = (low.min(duty), high.max(duty));
        (rise, fall) = (rise.max(duty - low), fall.max(high - duty));
    }
    rise.min(fall)
}

pub fn simulate(profile: &Profile, workload: Workload, duration: Option<Nanos>) -> Outcome {
    simulate_with(profile, Box::new(ebb_policy::cpu::Native), workload, duration, &mut Unobserved)
}

/// A run with everything else at its default.
pub fn job(
    profile: &Profile,
    policy: Box<dyn Policy>,
    workload: Workload,
    duration: Option<Nanos>,
) -> Run<'_> {
    Run { duration, ..Run::of(profile, policy, workload, 7) }
}

pub fn simulate_with(
    profile: &Profile,
    policy: Box<dyn Policy>,
    workload: Workload,
    duration: Option<Nanos>,
    observer: &mut dyn Observer,
) -> Outcome {
    run(job(profile, policy, workload, duration), observer).unwrap()
}

/// Holds all fans at a duty; at full duty the simplest policy that is safe.
pub struct Held(pub f64);

impl Policy for Held {
    fn name(&self) -> &'static str {
        "held"
    }
    fn step(&mut self, _: &Signals, request: &mut ebb_policy::Request) {
        for fan in 0..request.fan_duty.len() {
            request.fan_duty.ask(fan, self.0, "test:held");
        }
    }
}
