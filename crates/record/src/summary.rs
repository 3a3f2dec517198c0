//! The results as numbers: what `--json` prints, the table and the report show.
//!
//! The names are a contract (`docs/json-schema/sim-1.json`): they change only with `schema`.

use std::collections::BTreeMap;

use serde::Serialize;

use ebb_policy::units::Nanos;

use crate::latency::Latency;
use crate::parts::{
    ClassSummary, DiskSummary, FaultLine, FileReport, JobSummary, PartSummary, ThermalSummary,
    TripLine,
};
use crate::recorder::Recorded;
use crate::sampled::{Difference, RunInterval, Sampled};
use crate::totals::Power;
use crate::verdict::{Side, Verdict};

/// Version of the JSON.
pub const SCHEMA: u32 = 1;

/// All runs of a scenario.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// Version of this form.
    pub schema: u32,
    /// Whether these are results of the twin, not of a machine.
    pub simulated: bool,
    /// The server.
    pub profile: String,
    /// Workload or trace files.
    pub workload: String,
    /// Seed of everything random; absent of a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Time at the start that is not counted, s.
    pub warmup_seconds: f64,
    /// What was simulated of the load; absent where all of it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Tolerated relative increase of the mean latency over the first policy's.
    pub plf: f64,
    /// Budget of all drives together.
    pub ssd_budget_watts: Option<f64>,
    /// Most requests per second under native, where it was measured.
    pub maximum_iops: Option<f64>,
    /// Share of it that was asked for.
    pub pressure: Option<f64>,
    /// Whether clients send their next request only once one is answered, so that a slower server
    /// gets fewer and latencies lack what those would have waited; absent where they do not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub closed_loop: bool,
    /// Seed of the injected faults; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_seed: Option<u64>,
    /// Whether they are those of a wide campaign; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_wide: Option<bool>,
    /// False where the guard's thermal limits were off; absent where they held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal_guard: Option<bool>,
    /// When all faults had ended, s; absent without `--faults-until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_until_s: Option<f64>,
    /// The file that the options were taken from, and those that were; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
    /// What was stated anew in the course of the runs, by time; absent where nothing was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeLine>,
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

/// An experiment as it was read.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Experiment {
    /// The file.
    pub file: String,
    /// The options that were taken from it, as words of a command line; a flag's is empty. Those
    /// that the command line said instead are not among them.
    pub options: BTreeMap<String, Vec<String>>,
}

/// What holds from a time on.
#[derive(Debug, Clone, Serialize)]
pub struct ChangeLine {
    /// From when on.
    pub at_s: f64,
    /// The tolerance from then on.
    pub plf: f64,
    /// The budget of all drives together from then on.
    pub ssd_budget_watts: Option<f64>,
}

/// One run. What a plant does not tell is null or absent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunSummary {
    /// The policy.
    pub policy: String,
    /// How the server switched itself off, where it did: all other numbers are up to then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trip: Option<TripLine>,
    /// Requests completed.
    pub requests: Option<u64>,
    /// Of these, reads.
    pub reads: Option<u64>,
    /// Bytes read and written by users.
    pub bytes: Option<u64>,
    /// Time simulated and counted.
    pub seconds: f64,
    /// Energy: `total` and every component that was measured all the time.
    pub energy_joules: BTreeMap<&'static str, f64>,
    /// Mean power at the wall.
    pub mean_watts: Option<f64>,
    /// The same of the time at the start that is not counted; absent without such a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_watts: Option<f64>,
    /// Why the means are not those of a year at this load; absent where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// How sure they are; absent where the whole load was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<RunInterval>,
    /// How sure the differences to the first are, likewise.
    #[serde(skip)]
    pub difference: Option<Difference>,
    /// Largest mean power of one control period.
    pub peak_watts: Option<f64>,
    /// Requests per second.
    pub iops: Option<f64>,
    /// Requests per joule.
    pub iops_per_watt: Option<f64>,
    /// Bytes read and written by users per joule.
    pub bytes_per_joule: Option<f64>,
    /// From when a request was meant to be sent to its answer; null without requests.
    pub latency_us: Latency,
    /// Whether the mean latency is at most `sla_limit_us`, and the server stayed on; null without
    /// requests or where the first policy tripped.
    pub sla_kept: Option<bool>,
    /// The first policy's mean latency times (1 + plf); null without requests or where it tripped.
    pub sla_limit_us: Option<f64>,
    /// Mean latency over the limit, minus 1: above 0 broken by this much; null without a limit.
    pub sla_excess: Option<f64>,
    /// Share of the windows of 5 s whose mean latency is above the first policy's in the same
    /// window times (1 + plf); null without a limit.
    pub sla_windows_above: Option<f64>,
    /// Mean latency of the worst window over that, minus 1; null without a limit.
    pub sla_worst_window: Option<f64>,
    /// Time during which the drives' measured power was over the budget; null without one.
    pub seconds_over_budget: Option<f64>,
    /// Largest sum of the drives' power caps at any instant.
    pub most_capped_watts: Option<f64>,
    /// Core-seconds by what cores did.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub core_seconds: BTreeMap<&'static str, f64>,
    /// Background bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub background_bytes: BTreeMap<&'static str, u64>,
    /// Changes of controls, and of what the plant makes of them.
    pub decisions: u64,
    /// Temperatures, fans and throttling; absent where the profile does not model them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal: Option<ThermalSummary>,
    /// Injected faults in the order in which they began; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<FaultLine>>,
    /// Parts of the workload, in its order, where it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartSummary>,
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

impl RunSummary {
    /// What the cycles of a run tell; a plant that knows more puts it in the place.
    #[must_use]
    pub fn new(recorded: &Recorded) -> Self {
        let Recorded { policy, log, totals, latency, .. } = recorded;
        let seconds = totals.span.seconds();
        let measured = |(name, power): (&&'static str, &Power)| {
            // A sum that lacks periods would be told for the whole.
            (power.span == totals.span).then_some((*name, power.joules))
        };
        let total = totals.power.get("total").filter(|power| power.span > Nanos::ZERO);
        let mean_watts = total.map(|total| total.joules / total.span.seconds());
        let rate = |count: Option<u64>| {
            count.filter(|_| seconds > 0.0).map(|count| count as f64 / seconds)
        };
        let per_watt = |count| Some(rate(count)? / mean_watts.filter(|watts| *watts > 0.0)?);
        let mean = totals.requests.filter(|requests| *requests > 0 && totals.latency_sum > 0.0);
        let mean = mean.map(|requests| totals.latency_sum / requests as f64);
        Self {
            policy: policy.clone(),
            requests: totals.requests,
            bytes: totals.bytes,
            seconds,
            energy_joules: totals.power.iter().filter_map(measured).collect(),
            mean_watts,
            peak_watts: totals.peak,
            iops: rate(totals.requests),
            iops_per_watt: per_watt(totals.requests),
            bytes_per_joule: per_watt(totals.bytes),
            latency_us: match (latency, mean) {
                (Some(latency), Some(mean)) => Latency::new(latency, mean),
                _ => Latency {
                    mean: mean.map(|nanos| nanos * 1e-3),
                    max: totals.latency_max.map(Nanos::micros),
                    ..Latency::default()
                },
            },
            decisions: log.count,
            ..Self::default()
        }
    }

    /// What is compared of it; `None` where the plant tells too little.
    #[must_use]
    pub fn side(&self) -> Option<Side<'_>> {
        let all: f64 = self.core_seconds.values().sum();
        let busy = self.core_seconds.get("busy").map(|busy| busy / all);
        Some(Side {
            policy: &self.policy,
            watts: self.mean_watts?,
            iops: self.iops?,
            latency_us: self.latency_us.mean.zip(self.latency_us.p99),
            busy: busy.filter(|_| self.jobs.is_empty()),
            sla_kept: self.sla_kept,
            above: self.sla_windows_above,
            whole: self.trip.is_none(),
            unsettled: self.unsettled.as_deref(),
            difference: self.difference,
            parts: &self.parts,
        })
    }
}
