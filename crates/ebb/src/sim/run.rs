//! All policies over the same requests, on as many threads as asked for.

use anyhow::{Context, Result};

use ebb_cli::parallel::each_in_parallel;
use ebb_cli::progress::{Progress, Track};
use ebb_cli::{Interrupted, interrupt, usage};
use ebb_policy::units::{Joules, Nanos};
use ebb_policy::{Cycled, PERIOD};
use ebb_record::log::Line;
use ebb_record::parts::FileReport;
use ebb_record::recorder::Keep;
use ebb_record::{Recorded, Recorder};
use ebb_twin::faults::FaultEvent;
use ebb_twin::hdd::Wear;
use ebb_twin::{Observer, Outcome, Run, Sample, TwinError};

use super::hindsight;
use super::parts::Drawn;
use super::plan::Plan;
use super::steady::Work;
use super::truth;

/// One policy's run.
pub struct RunResult {
    /// What it came to, to its end or to a thermal trip.
    pub outcome: Outcome,
    /// Its rows and decisions.
    pub recorded: Recorded,
    /// Injected faults in the order in which they began.
    pub faults: Vec<FaultEvent>,
    /// What became of the trace files.
    pub files: Vec<FileReport>,
    /// What was drawn in each control period that counts, J; in the last one up to the end.
    pub joules: Vec<f64>,
    /// Mean power of the warm-up, where it is known all the time.
    pub startup: Option<f64>,
}

impl RunResult {
    /// What it drew.
    pub fn drawn(&self) -> Drawn<'_> {
        let Self { outcome, joules, .. } = self;
        Drawn { mean: outcome.mean_power(), span: outcome.span, joules, slot: PERIOD }
    }

    /// What it served.
    pub fn work(&self) -> Work<'_> {
        let (policy, iops) = (&self.recorded.policy, self.outcome.iops());
        Work { policy, iops, behind: self.outcome.falls_behind() }
    }
}

/// The runs that ended; after an interruption not all of them.
pub struct Results {
    /// In the order of the policies.
    pub done: Vec<RunResult>,
    /// Policies whose runs did not end.
    pub unfinished: Vec<String>,
}

/// Runs every policy of `plan`; results in their order, whatever the number of threads.
///
/// # Errors
/// What went wrong first; an interruption only where nothing was complete by then.
pub fn run_all(
    plan: &Plan,
    progress: &Progress,
    threads: Option<u16>,
    keep: Keep,
) -> Result<Results> {
    let threads = plan.requests.threads(plan.policies.len(), threads);
    let runs = each_in_parallel(plan.policies.len(), threads, |index| {
        let policy = &plan.policies[index];
        let run = run_one(plan, policy, progress, keep);
        run.inspect_err(|_| plan.requests.go_on()).with_context(|| format!("policy {policy}"))
    });
    let mut results = Results { done: Vec::new(), unfinished: Vec::new() };
    for (run, policy) in runs.into_iter().zip(&plan.policies) {
        match run {
            Some(Ok(run)) => results.done.push(run),
            Some(Err(error)) if !error.is::<Interrupted>() && !interrupt::asked() => {
                return Err(error);
            }
            _ => results.unfinished.push(policy.clone()),
        }
    }
    if results.done.is_empty() { Err(Interrupted.into()) } else { Ok(results) }
}

fn run_one(plan: &Plan, policy: &str, progress: &Progress, keep: Keep) -> Result<RunResult> {
    let (workload, watch) = plan.workload()?;
    let track = match plan.length() {
        Some(length) => Track::time(progress.bar(policy, Some(length.0 / 1_000_000))),
        None => Track::trace(progress, policy, &watch),
    };
    let topology = &plan.server.topology;
    let recorder = Recorder::new(policy, topology, truth::columns(topology), keep)
        .context("cannot make a temporary file")?;
    let mut watcher = Watcher {
        policy,
        recorder,
        track,
        completed: 0,
        faults: Vec::new(),
        wear: Wear::default(),
        truth: Vec::new(),
        warmup: plan.warmup,
        startup: Some(Joules(0.0)),
        joules: Vec::new(),
    };
    let (deciding, coordinator) = hindsight::policies(plan, policy)?;
    let run = Run {
        profile: &plan.server.profile,
        policy: deciding,
        coordinator,
        operator: None,
        limits: plan.limits(policy),
        ssd_budget: plan.ssd_budget(),
        changes: plan.changes(policy)?,
        workload,
        jobs: plan.jobs()?,
        seed: plan.seed,
        duration: plan.duration,
        warmup: plan.warmup,
        spells: plan.sample.as_ref().map(|sample| sample.spells.clone()).unwrap_or_default(),
        faults: plan.faults.clone(),
        senses: plan.senses,
    };
    let outcome = ebb_twin::run_to_trip(run, &mut watcher).map_err(|error| match error {
        TwinError::Request { .. } if plan.folds() == Some(false) => {
            usage(format!("{error} (--fold does that)"))
        }
        TwinError::Setup(reason) => usage(reason),
        error => error.into(),
    })?;
    let Watcher { recorder, track, faults, startup, joules, .. } = watcher;
    track.finish();
    let mut recorded = recorder.finish();
    recorded.latency = Some(outcome.latency.clone());
    let startup = startup.filter(|_| plan.warmup > Nanos::ZERO);
    let startup = startup.map(|joules| joules.0 / plan.warmup.seconds());
    Ok(RunResult { outcome, recorded, faults, files: watch.reports(), joules, startup })
}

/// Watches one run.
struct Watcher<'a> {
    policy: &'a str,
    recorder: Recorder,
    track: Track,
    completed: u64,
    faults: Vec<FaultEvent>,
    /// What hard disks had done by the end of the last period.
    wear: Wear,
    /// The twin's own columns of the current one.
    truth: Vec<f64>,
    /// What is not counted, and what it took.
    warmup: Nanos,
    startup: Option<Joules>,
    /// What is counted took, by control periods.
    joules: Vec<f64>,
}

impl Observer for Watcher<'_> {
    fn opened(&mut self, cycled: &Cycled<'_>) {
        self.recorder.cycle(cycled, &[]);
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let signals = sample.cycled.signals;
        self.completed += signals.io.completed.unwrap_or(0);
        if signals.now <= self.warmup {
            let more = signals.power.total.map(|power| power * signals.period);
            self.startup = self.startup.zip(more).map(|(sum, more)| sum + more);
        } else {
            let start = signals.now.saturating_sub(self.warmup + sample.length);
            let at = (start.0 / PERIOD.0) as usize;
            self.joules.resize(self.joules.len().max(at + 1), 0.0);
            self.joules[at] += sample.energy.total().0;
        }
        interrupt::leave_if_asked();
        self.track.reached(signals.now, self.completed);
        truth::fill(&mut self.truth, sample, &sample.wear.since(&self.wear));
        self.wear = sample.wear;
        self.recorder.cycle(&sample.cycled, &self.truth);
    }

    fn fault(&mut self, event: &FaultEvent, begins: bool) {
        if begins {
            self.faults.push(*event);
        }
        let (time, from) = if begins { (event.from, 0.0) } else { (event.until, 1.0) };
        self.recorder.event(&Line {
            time_s: time.decimal(),
            policy: self.policy,
            control: "fault",
            of: Some(event.fault.part()),
            from: Some(from),
            to: Some(1.0 - from),
            asked: None,
            reason: event.fault.reason(),
            applied: None,
        });
    }
}
