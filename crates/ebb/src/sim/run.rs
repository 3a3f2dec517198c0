//! All policies over the same requests, on as many threads as asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};

use ebb_twin::{Outcome, Run, TwinError};

use super::plan::Plan;
use super::record::{Log, Recorder};
use super::spool::Spool;
use crate::exit::usage;
use crate::input::FileReport;
use crate::progress::Progress;

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

/// Runs every policy of `plan`; results in their order, whatever the number of threads.
pub fn run_all(
    plan: &Plan,
    progress: &Progress,
    threads: Option<u16>,
    keep: Keep,
) -> Result<Vec<RunResult>> {
    in_parallel(plan.policies.len(), threads, |index| {
        let policy = &plan.policies[index];
        run_one(plan, policy, progress, keep).with_context(|| format!("policy {policy}"))
    })
}

fn run_one(plan: &Plan, policy: &str, progress: &Progress, keep: Keep) -> Result<RunResult> {
    let (workload, watch) = plan.workload()?;
    let bar = progress.bar(policy, plan.duration.map(|duration| duration.0 / 1_000_000));
    let topology = &plan.server.topology;
    let mut recorder = Recorder::new(policy, topology, bar, keep.rows, keep.decisions)
        .context("cannot make a temporary file")?;
    let run = Run {
        profile: &plan.server.profile,
        policy: plan.policy(policy)?,
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

/// Calls `work` for 0 to `count`, on all cores or as many threads as asked for; results in order.
///
/// # Errors
/// The first error in that order; work that has not begun when one occurs is left out.
pub fn in_parallel<T: Send>(
    count: usize,
    threads: Option<u16>,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or_else(cores, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = done.get(index) else { return };
            let result = work(index);
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(result);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
    let mut results = Vec::with_capacity(count);
    let mut left_out = false;
    for slot in done {
        match slot.into_inner().ok().flatten() {
            Some(result) => results.push(result?),
            None => left_out = true,
        }
    }
    if left_out { Err(anyhow!("a run was left out")) } else { Ok(results) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_on_any_number_of_threads() {
        for threads in [None, Some(1), Some(2), Some(7), Some(100)] {
            let squares = in_parallel(50, threads, |index| Ok(index * index)).unwrap();
            assert!(squares.iter().enumerate().all(|(index, square)| index * index == *square));
        }
    }

    #[test]
    fn an_error_is_told_and_nothing_more_is_begun() {
        let begun = AtomicUsize::new(0);
        let error = in_parallel(1000, Some(2), |index| {
            begun.fetch_add(1, Ordering::Relaxed);
            if index == 3 { Err(anyhow!("number {index}")) } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().to_string(), "number 3");
        assert!(begun.into_inner() < 1000);
    }
}
