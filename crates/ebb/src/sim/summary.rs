//! The results as numbers: what `--json` prints and the table shows.
//!
//! The names are a contract (`docs/json-schema/sim-1.json`): they change only with `schema`.

use std::collections::BTreeMap;

use serde::Serialize;

use ebb_policy::units::Nanos;
use ebb_twin::Outcome;
use ebb_twin::faults::Extent;

use super::heat::{FaultLine, ThermalSummary, TripLine};
use super::jobs::{ClassSummary, DiskSummary, JobSummary, jobs};
use super::plan::Plan;
use super::run::RunResult;
use super::verdict::{self, Side, Verdict};
use crate::input::FileReport;

/// Version of the JSON.
pub const SCHEMA: u32 = 1;

/// All runs of a scenario.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Version of this form.
    pub schema: u32,
    /// Always true: these are results of the twin, not of a machine.
    pub simulated: bool,
    /// The server.
    pub profile: String,
    /// Workload or trace files.
    pub workload: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Tolerated relative increase of the mean latency over the first policy's.
    pub plf: f64,
    /// Budget of all drives together.
    pub ssd_budget_watts: Option<f64>,
    /// Most requests per second under native, where it was measured.
    pub maximum_iops: Option<f64>,
    /// Share of it that was asked for.
    pub pressure: Option<f64>,
    /// Seed of the injected faults; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_seed: Option<u64>,
    /// Whether they are those of a wide campaign; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_wide: Option<bool>,
    /// When all faults had ended, s; absent without `--faults-until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_until_s: Option<f64>,
    /// What became of the trace files.
    pub traces: Vec<FileReport>,
    /// What each further policy would save against the first, and at what cost.
    pub verdicts: Vec<Verdict>,
    /// What to try where the load shows little; absent where it shows something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What a reader must know beside the numbers: policies that set nothing here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Policies whose runs an interruption dropped; absent where all ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// One per policy, in the order given; the first is the reference.
    pub runs: Vec<RunSummary>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    /// The policy.
    pub policy: String,
    /// How the server switched itself off, where it did: all other numbers are up to then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trip: Option<TripLine>,
    /// Requests completed.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Bytes read and written by users.
    pub bytes: u64,
    /// Time simulated and counted.
    pub seconds: f64,
    /// Energy: `total` and every component.
    pub energy_joules: BTreeMap<&'static str, f64>,
    /// Mean power at the wall.
    pub mean_watts: f64,
    /// Largest mean power of one control period.
    pub peak_watts: f64,
    /// Requests per second.
    pub iops: f64,
    /// Requests per joule.
    pub iops_per_watt: f64,
    /// Bytes read and written by users per joule.
    pub bytes_per_joule: f64,
    /// From arrival to completion; null without requests.
    pub latency_us: Latency,
    /// Whether the mean latency is at most `sla_limit_us`, and the server stayed on; null without
    /// requests or where the first policy tripped.
    pub sla_kept: Option<bool>,
    /// The first policy's mean latency times (1 + plf); null without requests or where it tripped.
    pub sla_limit_us: Option<f64>,
    /// Mean latency over the limit, minus 1: above 0 broken by this much; null without a limit.
    pub sla_excess: Option<f64>,
    /// Time during which the drives' measured power was over the budget; null without one.
    pub seconds_over_budget: Option<f64>,
    /// Largest sum of the drives' power caps at any instant.
    pub most_capped_watts: f64,
    /// Core-seconds by what cores did.
    pub core_seconds: BTreeMap<&'static str, f64>,
    /// Background bytes.
    pub background_bytes: BTreeMap<&'static str, u64>,
    /// Changes of controls.
    pub decisions: u64,
    /// Temperatures, fans and throttling; absent where the profile does not model them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal: Option<ThermalSummary>,
    /// Injected faults in the order in which they began; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<FaultLine>>,
    /// Jobs, in the order of the workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobSummary>,
    /// Jobs by class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassSummary>,
    /// What hard disks did; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<DiskSummary>,
}

/// Latencies in microseconds; quantiles to 3 digits.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Exact arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl Summary {
    /// The numbers of `results`.
    pub fn new(plan: &Plan, results: &[RunResult], unfinished: Vec<String>) -> Self {
        let plf = plan.settings.plf;
        let mean =
            |outcome: &Outcome| (outcome.requests > 0).then(|| outcome.mean_latency() * 1e-3);
        // The partial run of a policy that tripped judges no other, nor does another than the
        // reference.
        let reference =
            results.first().filter(|first| plan.policies.first() == Some(&first.policy));
        let whole = reference.filter(|first| first.outcome.trip.is_none());
        let limit = whole.and_then(|first| mean(&first.outcome)).map(|mean| mean * (1.0 + plf));
        let budgeted = plan.ssd_budget().is_some();
        let faults = plan.faults.is_some();
        let run = |result| RunSummary::new(result, limit, budgeted, faults);
        let runs: Vec<RunSummary> = results.iter().map(run).collect();
        let sides: Vec<Side<'_>> = runs.iter().map(RunSummary::side).collect();
        let verdicts = verdict::all(&sides, plf);
        let is_trace = plan.folds().is_some();
        let advice = verdict::advice(&sides, &verdicts, is_trace);
        Self {
            schema: SCHEMA,
            simulated: true,
            profile: plan.server.profile.name.clone(),
            workload: plan.workload_name(),
            seed: plan.seed,
            plf,
            ssd_budget_watts: plan.ssd_budget().map(|budget| budget.0),
            maximum_iops: plan.maximum,
            pressure: plan.pressure,
            faults_seed: plan.faults.map(|faults| faults.seed),
            faults_wide: plan.faults.map(|faults| faults.extent == Extent::Wide),
            faults_until_s: plan.faults.and_then(|faults| faults.until).map(Nanos::seconds),
            traces: results.first().map(|first| first.files.clone()).unwrap_or_default(),
            notes: plan.notes(),
            unfinished,
            advice,
            verdicts,
            runs,
        }
    }
}

impl RunSummary {
    fn new(result: &RunResult, limit: Option<f64>, budgeted: bool, faults: bool) -> Self {
        let outcome = &result.outcome;
        let total = outcome.energy.total().0;
        let seconds = outcome.span.seconds();
        // A run without any time has no rates, rather than infinite ones.
        let per = |amount: f64, of: f64| if of > 0.0 { amount / of } else { 0.0 };
        let parts = outcome.energy.components().map(|(name, joules)| (name, joules.0));
        let latency_us = Latency::new(outcome);
        let excess = latency_us.mean.zip(limit).map(|(mean, limit)| mean / limit - 1.0);
        let cores = &outcome.cores;
        let jobs = jobs(outcome);
        Self {
            policy: result.policy.clone(),
            trip: outcome.trip.as_ref().map(TripLine::new),
            requests: outcome.requests,
            reads: outcome.reads,
            bytes: outcome.bytes,
            seconds,
            energy_joules: [("total", total)].into_iter().chain(parts).collect(),
            mean_watts: per(total, seconds),
            peak_watts: outcome.peak.0,
            iops: per(outcome.requests as f64, seconds),
            iops_per_watt: per(outcome.requests as f64, total),
            bytes_per_joule: per(outcome.bytes as f64, total),
            latency_us,
            sla_kept: excess.map(|excess| excess <= 0.0 && outcome.trip.is_none()),
            sla_limit_us: limit,
            sla_excess: excess,
            seconds_over_budget: budgeted.then(|| outcome.over_budget.seconds()),
            most_capped_watts: outcome.most_capped.0,
            core_seconds: BTreeMap::from([
                ("busy", cores.busy.seconds()),
                ("polling", cores.polling.seconds()),
                ("idle", cores.idle.seconds()),
                ("parked", cores.parked.seconds()),
            ]),
            background_bytes: BTreeMap::from([
                ("done", outcome.background_done),
                ("pending", outcome.background_pending),
            ]),
            decisions: result.log.count,
            thermal: outcome.thermal.as_ref().map(ThermalSummary::new),
            faults: faults.then(|| result.log.faults.iter().map(FaultLine::new).collect()),
            classes: ClassSummary::of(&jobs),
            jobs,
            disks: DiskSummary::new(outcome),
        }
    }
}

impl RunSummary {
    fn side(&self) -> Side<'_> {
        let all: f64 = self.core_seconds.values().sum();
        Side {
            policy: &self.policy,
            watts: self.mean_watts,
            iops: self.iops,
            latency_us: self.latency_us.mean.zip(self.latency_us.p99),
            busy: self
                .core_seconds
                .get("busy")
                .map(|busy| busy / all)
                .filter(|_| self.jobs.is_empty()),
            sla_kept: self.sla_kept,
            whole: self.trip.is_none(),
        }
    }
}

impl Latency {
    fn new(outcome: &Outcome) -> Self {
        let some = outcome.requests > 0;
        let quantile = |q: f64| some.then(|| outcome.latency.value_at_quantile(q) as f64 * 1e-3);
        Self {
            mean: some.then(|| outcome.mean_latency() * 1e-3),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: some.then(|| outcome.latency.max() as f64 * 1e-3),
        }
    }
}
