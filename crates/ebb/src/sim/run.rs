//! All policies over the same requests, on as many threads as asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};

use ebb_twin::{Outcome, Run, TwinError};

use super::plan::Plan;
use super::record::{Log, Recorder};
use super::spool::Spool;
use crate::exit::{Interrupted, usage};
use crate::input::FileReport;
use crate::interrupt;
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

/// Calls `work` for 0 to `count`, on all cores or as many threads as asked for; results in order.
///
/// # Errors
/// The first error in that order, which an interruption is too; work that has not begun when one
/// occurs is left out.
pub fn in_parallel<T: Send>(
    count: usize,
    threads: Option<u16>,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let done = each_in_parallel(count, threads, work);
    let mut results = Vec::with_capacity(count);
    let mut left_out = false;
    for result in done {
        match result {
            Some(result) => results.push(result?),
            None => left_out = true,
        }
    }
    if left_out { Err(anyhow!("a run was left out")) } else { Ok(results) }
}

/// The same, with what became of each; `None` where it was left out.
fn each_in_parallel<T: Send>(
    count: usize,
    threads: Option<u16>,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Option<Result<T>>> {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or_else(cores, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = done.get(index) else { return };
            let result = interrupt::unless_left(|| work(index));
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
    done.into_iter().map(|slot| slot.into_inner().ok().flatten()).collect()
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
    fn what_was_complete_before_work_is_left_stays() {
        let done = each_in_parallel(3, Some(1), |index| match index {
            1 => std::panic::resume_unwind(Box::new(Interrupted)),
            _ => Ok(index),
        });
        assert_eq!(done[0].as_ref().unwrap().as_ref().unwrap(), &0);
        assert!(done[1].as_ref().unwrap().as_ref().unwrap_err().is::<Interrupted>());
        assert!(done[2].is_none());
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
