//! All policies over the same requests, on as many threads as asked for.

use anyhow::{Context, Result};

use ebb_twin::{Outcome, Run, TwinError};

use super::plan::Plan;
use super::record::{Log, Recorder};
use super::spool::Spool;
use crate::exit::{Interrupted, usage};
use crate::input::FileReport;
use crate::parallel::each_in_parallel;
use crate::progress::{Progress, Track};

/// What to keep of each run beside its outcome.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// A row per control period.
    pub rows: bool,
    /// Every decision.
    pub decisions: bool,
}

/// One policy's run.
pub struct RunResult {
    /// The policy as asked for.
    pub policy: String,
    /// What it came to, to its end or to a thermal trip.
    pub outcome: Outcome,
    /// A row per control period, if asked for.
    pub rows: Option<Spool>,
    /// Its decisions.
    pub log: Log,
    /// What became of the trace files.
    pub files: Vec<FileReport>,
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
    let runs = each_in_parallel(plan.policies.len(), threads, |index| {
        let policy = &plan.policies[index];
        run_one(plan, policy, progress, keep).with_context(|| format!("policy {policy}"))
    });
    let mut results = Results { done: Vec::new(), unfinished: Vec::new() };
    for (run, policy) in runs.into_iter().zip(&plan.policies) {
        match run {
            Some(Ok(run)) => results.done.push(run),
            Some(Err(error)) if !error.is::<Interrupted>() => return Err(error),
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
    let mut recorder = Recorder::new(policy, topology, track, keep.rows, keep.decisions)
        .context("cannot make a temporary file")?;
    let run = Run {
        profile: &plan.server.profile,
        policy: plan.policy(policy)?,
        operator: None,
        limits: plan.limits(policy),
        ssd_budget: plan.ssd_budget(),
        workload,
        jobs: plan.jobs()?,
        seed: plan.seed,
        duration: plan.duration,
        warmup: plan.warmup,
        faults: plan.faults,
    };
    let outcome = ebb_twin::run_to_trip(run, &mut recorder).map_err(|error| match error {
        TwinError::Request { .. } if plan.folds() == Some(false) => {
            usage(format!("{error} (--fold does that)"))
        }
        TwinError::Setup(reason) => usage(reason),
        error => error.into(),
    })?;
    let (rows, log) = recorder.finish();
    Ok(RunResult { policy: policy.to_owned(), outcome, rows, log, files: watch.reports() })
}
