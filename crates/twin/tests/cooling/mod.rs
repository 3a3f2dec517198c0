//! The cooling controllers in closed loop with a server that has heat.

mod eadc;
mod idle;
mod lost_sensor;
mod optimum;
mod poison;
mod random;
mod thresholds;

use crate::common::{compute, curve, job};
use ebb_policy::cooling::Curve;
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Celsius, Nanos, Watts};
use ebb_policy::{Cycled, InForce, Policy, QosClass, Request, Signals};
use ebb_trace::generate::{Job, JobIo};
use ebb_trace::{Source, TraceError, Workload};
use ebb_twin::faults::{Fault, FaultEvent, Faults};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

const POLICIES: [&str; 5] = ["dlb", "dtm", "jetc", "eadc", "eadc-plus"];

/// A policy that wants everything hot: then the guard alone.
pub struct Stoker;

impl Policy for Stoker {
    fn name(&self) -> &'static str {
        "stoker"
    }
    fn step(&mut self, _: &Signals, request: &mut Request) {
        for fan in 0..request.fan_duty.len() {
            request.fan_duty.ask(fan, 0.0, "test:stoker");
        }
        for job in 0..request.job_share.len() {
            request.job_share.ask(job, 1.0, "test:stoker");
        }
    }
}

/// No requests but those of jobs.
struct Nothing;

impl Source for Nothing {
    fn fill(&mut self, _: &mut Vec<ebb_trace::Request>) -> Result<(), TraceError> {
        Ok(())
    }
}

/// `eadc-e6`, with 15 cores for jobs, and drives that need little air: what warm ones do to the
/// fans is in `thermal_rest.rs` and `feed_forward.rs`.
fn server() -> Profile {
    let mut profile = Profile::load("eadc-e6").unwrap();
    profile.thermal.as_mut().unwrap().drive.to_air_k_per_w = 1.0;
    profile
}

/// Keeps a core busy from `start` on, for so many seconds of it.
fn busy(start: u64, seconds: u64) -> Job {
    Job { start: Nanos::from_secs(start), ..compute(seconds) }
}

/// Keeps a core busy from the start to the end.
fn always() -> Job {
    busy(0, 100_000)
}

/// Reads from one disk at random places as fast as it can, with `cpu` for each block of 64 KiB.
fn reader(disk: u16, cpu: Nanos) -> Job {
    let requests = 10_000_000;
    let io = JobIo {
        requests,
        writes: 0,
        bytes: 64 << 10,
        random: 1.0,
        depth: 1,
        first: disk,
        count: 1,
        base: 0,
        span: 1 << 40,
        rebuild: false,
    };
    let (class, io) = (QosClass::Critical, Some(io));
    Job { class, cpu: Nanos(cpu.0 * requests), io, ..always() }
}

/// Queries on a disk, which take about a third of a core.
fn query() -> Job {
    reader(0, Nanos::from_millis(4))
}

fn fault(fault: Fault, from: u64, until: u64) -> FaultEvent {
    FaultEvent { from: Nanos::from_secs(from), until: Nanos::from_secs(until), fault }
}

/// So many fans dead from `from` on.
fn dead_fans(count: u16, from: u64) -> Vec<FaultEvent> {
    (0..count).map(|fan| fault(Fault::FanDead(fan), from, 1_000_000)).collect()
}

/// What a server is to go through.
struct Scene {
    profile: Profile,
    curve: Option<Curve>,
    jobs: Vec<Job>,
    faults: Vec<FaultEvent>,
    seconds: u64,
}

impl Scene {
    /// A busy server with queries on its disks, for so long.
    fn mixed(computing: usize, seconds: u64) -> Self {
        let jobs = [vec![query()], vec![always(); computing]].concat();
        Self { profile: server(), curve: Some(curve()), jobs, faults: Vec::new(), seconds }
    }

    fn policy(&self, name: &str) -> Box<dyn Policy> {
        if name == "stoker" {
            return Box::new(Stoker);
        }
        let settings = Settings { curve: self.curve.clone(), ..Settings::default() };
        make(name, &self.profile.topology(), &settings).unwrap()
    }

    /// All of it under a policy, with what each period was.
    fn run(&self, name: &str) -> Seen {
        self.lied_to(name, |_| {})
    }

    /// The same with telemetry falsified by `lie`.
    fn lied_to(&self, name: &str, lie: impl FnMut(&mut Signals)) -> Seen {
        self.beside(Workload::Open(Box::new(Nothing)), name, lie)
    }

    /// The same beside requests.
    fn beside(&self, workload: Workload, name: &str, lie: impl FnMut(&mut Signals)) -> Seen {
        let end = Some(Nanos::from_secs(self.seconds));
        let mut watch = Watch { periods: Vec::new(), lie };
        let job = Run {
            jobs: self.jobs.clone(),
            faults: Some(Faults::listed(self.faults.clone())),
            senses: None,
            spells: Vec::new(),
            ..job(&self.profile, self.policy(name), workload, end)
        };
        let outcome = run(job, &mut watch).unwrap_or_else(|error| panic!("{name}: {error}"));
        Seen { periods: watch.periods, outcome }
    }
}

/// One control period, and what is in force from its end on.
struct Period {
    now: Nanos,
    before: InForce,
    in_force: InForce,
    /// The hottest silicon, °C, in truth.
    die: f64,
    /// Of processors and fans.
    power: Watts,
    /// Cores' worth of work of the jobs that use no disk.
    work: f64,
}

impl Period {
    /// The duty of the first fan; full when the board has it.
    fn duty(&self) -> f64 {
        self.in_force.fan_duty.value(0).unwrap_or(1.0)
    }
    /// Whether the guard gives something else than is asked for, but for a fan that is to slow
    /// down too fast.
    fn guarded(&self) -> bool {
        self.in_force.held().any(|(_, _, reason)| reason != "guard:fan-rate")
    }
    /// Shares of the time for which jobs may run.
    fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.in_force.job_share.len()).map(|slot| self.in_force.share(slot))
    }
}

struct Watch<L> {
    periods: Vec<Period>,
    lie: L,
}

impl<L: FnMut(&mut Signals)> Observer for Watch<L> {
    fn sensed(&mut self, signals: &mut Signals) {
        (self.lie)(signals);
    }
    fn sample(&mut self, sample: &Sample<'_>) {
        let Cycled { signals, in_force, .. } = sample.cycled;
        let weather = sample.weather.unwrap();
        let seconds = sample.length.seconds();
        self.periods.push(Period {
            now: signals.now,
            before: signals.in_force.clone(),
            in_force: in_force.clone(),
            die: weather.sockets.iter().map(|celsius| celsius.0).fold(0.0, f64::max),
            power: Watts((sample.energy.cpu.0 + sample.energy.fans.0) / seconds),
            work: signals
                .jobs
                .iter()
                .filter(|job| job.present && job.disk_bytes == 0)
                .map(|job| job.cpu)
                .sum(),
        });
    }
}

/// A run, period by period.
struct Seen {
    periods: Vec<Period>,
    outcome: Outcome,
}

impl Seen {
    /// The periods that end after `from` and up to `to` seconds.
    fn between(&self, from: u64, to: u64) -> &[Period] {
        let after = |second| self.periods.partition_point(|p| p.now <= Nanos::from_secs(second));
        &self.periods[after(from)..after(to)]
    }
    fn at(&self, second: u64) -> &Period {
        self.between(second - 1, second).last().unwrap()
    }
    fn last(&self) -> &Period {
        self.periods.last().unwrap()
    }
    /// The hottest silicon of all.
    fn peak(&self) -> f64 {
        peak(&self.periods)
    }
}

fn peak(periods: &[Period]) -> f64 {
    periods.iter().map(|period| period.die).fold(0.0, f64::max)
}

fn mean(periods: &[Period], of: impl Fn(&Period) -> f64) -> f64 {
    periods.iter().map(of).sum::<f64>() / periods.len() as f64
}
