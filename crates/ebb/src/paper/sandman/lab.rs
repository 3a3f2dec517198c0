//! The configurations, and runs of them side by side.

use anyhow::Result;

use ebb_policy::reactor::{Parts, Sandman, Scheduler, by_name};
use ebb_policy::units::Nanos;
use ebb_trace::TraceError;
use ebb_twin::hindsight::reactors;
use ebb_twin::reactor::{Load, Profile, Setup, Shown, Software, run};

use ebb_cli::parallel::in_parallel;
use ebb_cli::progress::Progress;

/// What steers a run.
#[derive(Debug, Clone, Copy)]
pub enum Steer {
    /// A scheduler by name.
    Named(&'static str),
    /// Sandman with some of its parts.
    Sandman(Parts),
}

/// One of the slides' configurations, or ours.
#[derive(Debug, Clone, Copy)]
pub struct Configuration {
    /// As the slides call it.
    pub label: &'static str,
    pub steer: Steer,
    pub software: Software,
}

const fn target(label: &'static str, name: &'static str) -> Configuration {
    Configuration { label, steer: Steer::Named(name), software: Software::Target }
}

/// Index of busy polling, which the others are compared with.
pub const SPDK: usize = 0;
/// Index of Linux's interrupts.
pub const LINUX: usize = 1;
/// Index of Sandman.
pub const SANDMAN: usize = 5;
/// Index of our own variant.
pub const PLUS: usize = 6;
/// The slides' six, then ours.
pub const CONFIGURATIONS: [Configuration; 7] = [
    target("SPDK", "static"),
    Configuration { label: "Linux", steer: Steer::Named("interrupt"), software: Software::Kernel },
    target("Governor", "governor"),
    target("Dynamic Scheduling", "dynamic"),
    target("Hybrid Polling", "hybrid"),
    target("Sandman", "sandman"),
    target("sandman-plus (ours)", "sandman-plus"),
];

/// One run: a configuration under a load.
pub struct Trial<'a> {
    pub configuration: Configuration,
    pub load: &'a (dyn Fn() -> Load + Sync),
    pub raid: bool,
    pub coarse: Nanos,
    pub duration: Nanos,
    pub warmup: Nanos,
}

/// Where trials run.
pub struct Lab {
    pub profile: Profile,
    pub seed: u64,
    threads: Option<u16>,
    progress: Progress,
}

impl Lab {
    pub fn new(seed: u64, threads: Option<u16>, progress: Progress) -> Result<Self> {
        Ok(Self { profile: Profile::all_flash()?, seed, threads, progress })
    }

    /// Runs all trials; results in their order, whatever the number of threads.
    pub fn all(&self, label: &str, trials: &[Trial<'_>]) -> Result<Vec<Shown>> {
        self.on(&self.profile, label, trials)
    }

    /// The same on another server.
    pub fn on(&self, profile: &Profile, label: &str, trials: &[Trial<'_>]) -> Result<Vec<Shown>> {
        let bar = self.progress.bar(label, Some(trials.len() as u64));
        let runs = in_parallel(trials.len(), self.threads, |index| {
            let shown = self.one(profile, &trials[index]);
            bar.inc(1);
            shown
        });
        bar.finish_and_clear();
        runs
    }

    /// What who knows the future makes of a trial where there is such a plan.
    pub fn clairvoyant(&self, trial: &Trial<'_>) -> Result<Option<Shown>> {
        let mut profile = self.profile.clone();
        profile.raid.used = trial.raid;
        let load = || Ok::<_, TraceError>((trial.load)());
        let Trial { duration, warmup, .. } = *trial;
        let (profile, load) = (&profile, &load as &dyn Fn() -> Result<Load, TraceError>);
        let run = reactors::Run { profile, load, duration, warmup, seed: self.seed };
        Ok(run.clairvoyant()?)
    }

    fn one(&self, profile: &Profile, trial: &Trial<'_>) -> Result<Shown> {
        let Trial { raid, coarse, duration, warmup, .. } = *trial;
        let mut profile = Profile { coarse, ..profile.clone() };
        profile.raid.used = raid;
        let machine = profile.machine();
        let scheduler: Box<dyn Scheduler> = match trial.configuration.steer {
            Steer::Named(name) => by_name(name, &machine)?,
            Steer::Sandman(parts) => Box::new(Sandman::with(&machine, parts)),
        };
        let software = trial.configuration.software;
        Ok(run(Setup {
            profile: &profile,
            scheduler,
            load: (trial.load)(),
            software,
            duration,
            warmup,
            seed: self.seed,
        })?)
    }
}
