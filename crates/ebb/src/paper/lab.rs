//! Runs for the papers' experiments, side by side on all cores.

use anyhow::Result;

use ebb_cli::interrupt;
use ebb_cli::parallel::in_parallel;
use ebb_cli::progress::Progress;
use ebb_policy::cooling::Curve;
use ebb_policy::cpu::Native;
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, PERIOD, Policy, Request, Topology};
use ebb_trace::generate::WorkloadSpec;
use ebb_twin::{Observer, Outcome, Run, Sample, run};

use crate::characterise::hold_fans;
use crate::server::Server;
use crate::sim::maximum;

/// What steers a run.
#[derive(Debug, Clone)]
pub enum Steer {
    /// A policy by name.
    Policy(&'static str),
    /// Fixed shares of cores and of the highest frequency.
    Hold { cores: f64, frequency: f64 },
    /// A fixed duty of all fans.
    Fans(f64),
}

/// One experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    pub steer: Steer,
    pub plf: f64,
    pub ssd_budget: Option<Watts>,
    /// Disk throughput by fan duty, for EADC.
    pub curve: Option<Curve>,
    pub workload: WorkloadSpec,
    /// Simulated time; to the workload's own end when `None`.
    pub duration: Option<Nanos>,
    pub warmup: Nanos,
}

/// What a run showed: its outcome and each period's mean latency and drive power.
pub struct Shown {
    pub outcome: Outcome,
    /// (end of the period in seconds, mean latency in microseconds).
    pub latency: Vec<(f64, f64)>,
    /// Power of each drive in each period.
    pub drive_watts: Vec<Vec<Watts>>,
    /// (seconds, active cores) after each period.
    pub active: Vec<(f64, u16)>,
    /// (end of the period in seconds, requests that arrived in it).
    pub arrived: Vec<(f64, u64)>,
    /// Temperature and fans after each period, where the profile models them.
    pub weather: Vec<Climate>,
}

/// Temperature and fans at one time.
#[derive(Debug, Clone, Copy)]
pub struct Climate {
    pub seconds: f64,
    /// The hottest socket.
    pub celsius: f64,
    /// Of the fastest fan, 0 to 1.
    pub duty: f64,
    /// Of the fastest fan.
    pub rpm: f64,
    /// Power of all fans, and leakage of all sockets, W.
    pub fans: f64,
    pub leakage: f64,
}

/// Where experiments run.
pub struct Lab {
    pub server: Server,
    pub seed: u64,
    /// Runs at once; all cores when `None`.
    pub threads: Option<u16>,
    pub progress: Progress,
}

impl Lab {
    /// Runs all experiments; results in their order, whatever the number of threads.
    pub fn all(&self, label: &str, experiments: &[Experiment]) -> Result<Vec<Shown>> {
        let bar = self.progress.bar(label, Some(experiments.len() as u64));
        let runs = in_parallel(experiments.len(), self.threads, |index| {
            let shown = self.one(&experiments[index]);
            bar.inc(1);
            shown
        });
        bar.finish_and_clear();
        runs
    }

    fn one(&self, experiment: &Experiment) -> Result<Shown> {
        let Experiment { plf, ssd_budget, duration, warmup, .. } = *experiment;
        let topology = &self.server.topology;
        let native = || -> Box<dyn Policy> { Box::new(Native) };
        let (policy, operator) = match experiment.steer {
            Steer::Policy(name) => {
                let settings = Settings {
                    plf,
                    ssd_budget,
                    curve: experiment.curve.clone(),
                    ..Settings::default()
                };
                (registry::make(name, topology, &settings)?, None)
            }
            Steer::Fans(duty) => (native(), Some(hold_fans(topology, duty))),
            Steer::Hold { cores, frequency } => {
                (native(), Some(hold_cores(topology, cores, frequency)))
            }
        };
        let mut watch = Watch::default();
        let context = self.server.context(&experiment.workload, self.seed);
        let workload = experiment.workload.build(&context)?;
        let outcome = run(
            Run {
                operator,
                // The papers' policies had no guard of ours.
                limits: Limits { ssd_budget, ..Limits::without_heat() },
                ssd_budget,
                jobs: experiment.workload.batch_jobs(&context)?,
                duration,
                warmup,
                ..Run::of(&self.server.profile, policy, workload, self.seed)
            },
            &mut watch,
        )?;
        let Watch { latency, drive_watts, active, arrived, weather } = watch;
        Ok(Shown { outcome, latency, drive_watts, active, arrived, weather })
    }

    /// The most requests per second this server serves of `workload`.
    pub fn maximum(&self, workload: &WorkloadSpec) -> Result<f64> {
        maximum(&self.server, workload, self.seed, &self.progress)
    }
}

#[derive(Default)]
struct Watch {
    latency: Vec<(f64, f64)>,
    drive_watts: Vec<Vec<Watts>>,
    active: Vec<(f64, u16)>,
    arrived: Vec<(f64, u64)>,
    weather: Vec<Climate>,
}

impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        interrupt::leave_if_asked();
        let signals = sample.cycled.signals;
        if sample.length < PERIOD {
            return; // After the end: only what was still under way.
        }
        let at = signals.now.seconds();
        if let Some(latency) = signals.io.mean_latency {
            self.latency.push((at, latency.micros()));
        }
        if let Some(arrived) = signals.io.arrived {
            self.arrived.push((at, arrived));
        }
        self.drive_watts.push(signals.drives.iter().filter_map(|drive| drive.power).collect());
        self.weather.extend(climate(sample));
        self.active.push((at, sample.cycled.in_force.groups().map(|group| group.active).sum()));
    }
}

/// All groups held at a share of their cores and of the highest frequency.
fn hold_cores(topology: &Topology, cores: f64, frequency: f64) -> Request {
    let mut request = Request::new(topology);
    let wanted = topology.max_frequency() * frequency;
    let frequency = topology.frequency_at_least(wanted * 0.999);
    for (group, spec) in topology.groups.iter().enumerate() {
        let active = (f64::from(spec.cores) * cores).round() as u16;
        request.active_cores.ask(group, active.max(spec.min_cores), "hold:cores");
        request.frequency.ask(group, frequency, "hold:frequency");
    }
    request
}

/// Temperature and fans at the end of a period, where the profile models them.
fn climate(sample: &Sample<'_>) -> Option<Climate> {
    let weather = sample.weather?;
    let duties = sample.cycled.signals.cooling.fans.iter().filter_map(|fan| fan.duty);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    Some(Climate {
        seconds: sample.cycled.signals.now.seconds(),
        celsius: most(&mut weather.sockets.iter().map(|celsius| celsius.0)),
        duty: duties.fold(0.0, f64::max),
        rpm: most(&mut weather.fan_speeds.iter().map(|speed| speed.0)),
        fans: (weather.fans / sample.length).0,
        leakage: (weather.leakage / sample.length).0,
    })
}
