//! The numbers of all runs of a plan.

use ebb_policy::registry::Settings;
use ebb_policy::units::Nanos;
use ebb_record::summary::{ChangeLine, RunSummary, SCHEMA, Summary};
use ebb_record::verdict::{self, Side};
use ebb_twin::Outcome;
use ebb_twin::faults::{Extent, Faults};

use super::advice;
use super::levers;
use super::outcome::{self, Sla};
use super::parts::{Parts, Repeats};
use super::plan::Plan;
use super::run::RunResult;
use super::{steady, whole};

/// A result that may not be what was meant.
pub const NONE_COUNTED: &str = "no request was counted, and so nothing says what one would take: \
    state a longer --duration, a shorter --warmup or a higher rate";

fn change((at, settings): &(Nanos, Settings)) -> ChangeLine {
    ChangeLine {
        at_s: at.seconds(),
        plf: settings.plf,
        ssd_budget_watts: settings.ssd_budget.map(|budget| budget.0),
    }
}

/// The numbers of each of `results` by itself, held against the first.
fn runs(plan: &Plan, results: &[RunResult]) -> Vec<RunSummary> {
    let plf = plan.settings.plf;
    // The partial run of a policy that tripped judges no other, nor does another than the
    // reference.
    let reference =
        results.first().filter(|first| plan.policies.first() == Some(&first.recorded.policy));
    let whole = reference.filter(|first| first.outcome.trip.is_none());
    let sla = whole.map(|first| &first.outcome).filter(|outcome| !outcome.latency.is_empty());
    let sla = sla.map(|outcome| Sla {
        mean: outcome.mean_latency() * 1e-3,
        windows: &outcome.windows,
        factor: 1.0 + plf,
    });
    let budgeted = plan.ssd_budgets().next().is_some();
    let faults = plan.faults.is_some();
    let run = |result: &RunResult| {
        let mut run = outcome::summary(result, budgeted, faults);
        if let Some(sla) = &sla {
            sla.judge(&mut run, &result.outcome.windows);
        }
        let (iops, counted) = (run.iops.unwrap_or_default(), result.outcome.span);
        let period = |policy: &str| plan.settling(policy, iops).period;
        let parts = whole.filter(|first| first.recorded.policy != run.policy).and_then(|first| {
            let policy = period(&run.policy).max(period(&first.recorded.policy));
            let repeats = Repeats { policy, load: plan.turn().0 };
            Parts::new(result.drawn(), first.drawn(), repeats)
        });
        RunSummary {
            parts: outcome::parts(plan.parts(), &result.outcome),
            difference: parts.and_then(|parts| parts.difference()),
            // More of a load that is too much shows nothing else.
            unsettled: reference
                .and_then(|first| steady::other_work(&first.work(), None))
                .or_else(|| plan.unsettled(&run.policy, iops, counted))
                .or_else(|| steady::other_work(&result.work(), reference.map(RunResult::work)))
                .or_else(|| parts?.disagree(&run.policy)),
            ..run
        }
    };
    results.iter().map(run).collect()
}

/// The numbers of `results`.
pub fn new(plan: &Plan, results: &[RunResult], unfinished: Vec<String>) -> Summary {
    let plf = plan.settings.plf;
    let drawn = plan.faults.as_ref().and_then(Faults::drawn);
    let runs = match &plan.sample {
        Some(sample) => whole::runs(plan, sample, results),
        None => runs(plan, results),
    };
    let sides: Vec<Side<'_>> = runs.iter().filter_map(RunSummary::side).collect();
    let verdicts = verdict::all(&sides, plf);
    let is_trace = plan.folds().is_some();
    // More load is no use where none of them could save more under it.
    let idle = plan.policies.iter().skip(1).all(|name| levers::is_idle(&plan.server, name));
    let advice = advice::advice(&sides, &verdicts, is_trace).filter(|_| !idle);
    let behind = results.iter().filter(|result| result.outcome.jobs.is_empty()).filter_map(|run| {
        let times = (plan.duration?, run.outcome.end);
        advice::behind(&run.recorded.policy, plan.has_threads(), times)
    });
    let mut notes: Vec<String> = plan.notes().into_iter().chain(behind).collect();
    let idled = |run: &RunResult| {
        let Outcome { latency, jobs, trip, .. } = &run.outcome;
        latency.is_empty() && jobs.is_empty() && trip.is_none()
    };
    if results.iter().any(idled) {
        notes.push(NONE_COUNTED.to_owned());
    }
    Summary {
        schema: SCHEMA,
        simulated: true,
        profile: plan.server.profile.name.clone(),
        workload: plan.workload_name(),
        seed: Some(plan.seed),
        warmup_seconds: plan.warmup.decimal(),
        sampled: plan.sample.as_ref().map(|sample| sample.told.clone()),
        plf,
        ssd_budget_watts: plan.ssd_budget().map(|budget| budget.0),
        maximum_iops: plan.maximum,
        pressure: plan.pressure,
        closed_loop: plan.is_closed(),
        faults_seed: drawn.map(|(seed, _)| seed),
        faults_wide: drawn.map(|(_, extent)| extent == Extent::Wide),
        faults_until_s: plan.faults.as_ref().and_then(Faults::end).map(Nanos::seconds),
        thermal_guard: (!plan.thermal_guard).then_some(false),
        experiment: None,
        changes: plan.changes.iter().map(change).collect(),
        traces: results.first().map(|first| first.files.clone()).unwrap_or_default(),
        notes,
        unfinished,
        advice,
        verdicts,
        runs,
    }
}
