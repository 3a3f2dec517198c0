//! Runs for the papers' experiments, side by side on all cores.

use anyhow::Result;

use ebb_policy::registry::{self, Settings};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, PERIOD, Policy};
use ebb_trace::generate::WorkloadSpec;
use ebb_twin::{Observer, Outcome, Run, Sample, run};

use super::hold::Hold;
use crate::progress::Progress;
use crate::server::Server;
use crate::sim::{in_parallel, maximum};

/// What steers a run.
#[derive(Debug, Clone)]
pub enum Steer {
    /// A policy by name.
    Policy(&'static str),
    /// Fixed shares of cores and of the highest frequency.
    Hold { cores: f64, frequency: f64 },
}

/// One experiment.
#[derive(Debug, Clone)]
pub struct Experiment {
    pub steer: Steer,
    pub plf: f64,
    pub ssd_budget: Option<Watts>,
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
        let policy: Box<dyn Policy> = match experiment.steer {
            Steer::Policy(name) => {
                let settings = Settings { plf, ssd_budget, ..Settings::default() };
                registry::make(name, topology, &settings)?
            }
            Steer::Hold { cores, frequency } => Box::new(Hold::new(topology, cores, frequency)),
        };
        let mut watch = Watch::default();
        let context = self.server.context(&experiment.workload, self.seed);
        let outcome = run(
            Run {
                profile: &self.server.profile,
                policy,
                limits: Limits { ssd_budget, ..Limits::default() },
                ssd_budget,
                workload: experiment.workload.build(&context)?,
                jobs: experiment.workload.batch_jobs(&context)?,
                seed: self.seed,
                duration,
                warmup,
                faults: None,
            },
            &mut watch,
        )?;
        let Watch { latency, drive_watts, active, arrived } = watch;
        Ok(Shown { outcome, latency, drive_watts, active, arrived })
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
}

impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        let signals = sample.signals;
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
        self.active.push((at, sample.controls.groups().iter().map(|group| group.active).sum()));
    }
}
