//! The results as numbers: what `--json` prints, the table and the report show.
//!
//! The names are a contract (`docs/json-schema/sim-1.json`): they change only with `schema`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
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

/// Version 1. Fields are added without a new version; none is removed or changes its meaning.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(title = "ebb sim --json", extend("minimum" = 0, "additionalProperties" = true))]
pub struct Summary {
    /// Version of this form.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// These are results of the digital twin.
    #[schemars(extend("const" = true))]
    pub simulated: bool,
    /// Name of the server profile.
    pub profile: String,
    /// Workload, or the trace files.
    pub workload: String,
    /// Seed of everything random; absent of a machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Time at the start that is simulated but not counted.
    #[schemars(default)]
    pub warmup_seconds: f64,
    /// What was simulated of the load; absent where all of it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Tolerated relative increase of the mean latency over the first run's.
    pub plf: f64,
    /// Budget of all drives together.
    pub ssd_budget_watts: Option<f64>,
    /// Most requests per second of this workload under native, where it was measured.
    pub maximum_iops: Option<f64>,
    /// Share of maximum_iops that was asked for.
    pub pressure: Option<f64>,
    /// Clients send their next request only once one is answered: a slower server gets fewer, and
    /// latencies lack what those would have waited. Absent where requests come by the clock.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("const" = true))]
    pub closed_loop: bool,
    /// Seed of the injected faults; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_seed: Option<u64>,
    /// Whether more could fail (--faults-wide); absent without --faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_wide: Option<bool>,
    /// That the guard's thermal limits were off (--no-thermal-guard); absent where they held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = false))]
    pub thermal_guard: Option<bool>,
    /// When all injected faults had ended, s (--faults-until); absent without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_until_s: Option<f64>,
    /// The file of --experiment and the options taken from it, as words of a command line (a flag's
    /// is empty), without those that the command line said instead; absent without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
    /// Tolerance and budget from a time on (--change), by time; absent without. The top-level plf
    /// and ssd_budget_watts are those of the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeLine>,
    /// What became of the trace files.
    pub traces: Vec<FileReport>,
    /// What each policy but the first would save against the first, and at what cost; without those
    /// whose run, or the first's, tripped or served nothing.
    #[schemars(default)]
    pub verdicts: Vec<Verdict>,
    /// What to try where the load shows little; absent where it shows something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What a reader must know beside the numbers, such as policies that set nothing on this
    /// server; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Policies whose runs an interruption dropped: the results are partial. Absent where all
    /// ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// One per policy, in the order given; the first is the reference.
    #[schemars(length(min = 1))]
    pub runs: Vec<RunSummary>,
}

/// An experiment as it was read.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Experiment {
    /// The file.
    pub file: String,
    /// The options that were taken from it, as words of a command line; a flag's is empty. Those
    /// that the command line said instead are not among them.
    pub options: BTreeMap<String, Vec<String>>,
}

/// What holds from a time on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct ChangeLine {
    /// From when on.
    pub at_s: f64,
    /// The tolerance from then on.
    pub plf: f64,
    /// The budget of all drives together from then on.
    pub ssd_budget_watts: Option<f64>,
}

/// One run. What a plant does not tell is null or absent.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct RunSummary {
    /// As given with --policy.
    pub policy: String,
    /// The server switched itself off for heat: all other numbers are up to the end of that control
    /// period. Absent where it stayed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trip: Option<TripLine>,
    /// Requests completed.
    #[schemars(required)]
    pub requests: Option<u64>,
    /// Of these, reads.
    #[schemars(required)]
    pub reads: Option<u64>,
    /// Bytes read and written by users.
    #[schemars(required)]
    pub bytes: Option<u64>,
    /// Time simulated and counted (without warm-up).
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Energy at the wall; the components add up to total.
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["total", "cpu", "ssd", "memory", "nic", "fans", "other",
            "psu_loss"] }, "required" = ["total", "cpu", "ssd", "memory", "nic", "fans", "other",
            "psu_loss"]
        ),
        extend("additionalProperties" = { "type": "number", "minimum": 0 })
    )]
    pub energy_joules: BTreeMap<&'static str, f64>,
    /// Mean power at the wall.
    #[schemars(required, range(min = 0))]
    pub mean_watts: Option<f64>,
    /// Mean power of the time at the start that is not counted; absent without such a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_watts: Option<f64>,
    /// Why the means are not those of a year at this load: the policy had not settled, or what is
    /// stated changes, faults come and go, or jobs are done once. Absent where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// How sure the run's numbers are; absent where the whole load was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<RunInterval>,
    /// How sure the differences to the first are, likewise.
    #[serde(skip)]
    pub difference: Option<Difference>,
    /// Largest mean power of one control period.
    #[schemars(required, range(min = 0))]
    pub peak_watts: Option<f64>,
    /// Requests per second.
    #[schemars(required, range(min = 0))]
    pub iops: Option<f64>,
    /// Requests per joule.
    #[schemars(required, range(min = 0))]
    pub iops_per_watt: Option<f64>,
    /// Bytes read and written by users per joule.
    #[schemars(required, range(min = 0))]
    pub bytes_per_joule: Option<f64>,
    /// From when a request was meant to be sent to its answer, microseconds; the mean is exact,
    /// quantiles have 3 digits. Null without requests.
    pub latency_us: Latency,
    /// Whether the mean latency is at most `sla_limit_us`, and the server stayed on; null without
    /// requests or where the first policy tripped.
    pub sla_kept: Option<bool>,
    /// The first run's mean latency times (1 + plf). Null without requests or where the first
    /// policy tripped.
    #[schemars(range(min = 0))]
    pub sla_limit_us: Option<f64>,
    /// Mean latency over the limit, minus 1: above 0 the SLA is broken by this much. Null without
    /// requests or where the first policy tripped.
    pub sla_excess: Option<f64>,
    /// Share of the windows of 5 s (with at least 100 requests, or together with the next) whose
    /// mean latency is above the first policy's in the same window times (1 + plf). Null without
    /// requests or where the first policy tripped.
    #[schemars(range(min = 0, max = 1))]
    pub sla_windows_above: Option<f64>,
    /// Mean latency of the worst window over the first policy's times (1 + plf), minus 1. Null
    /// without requests or where the first policy tripped.
    pub sla_worst_window: Option<f64>,
    /// Length of the control periods in which the drives' mean power was over ssd_budget_watts.
    /// Null without a budget.
    #[schemars(range(min = 0))]
    pub seconds_over_budget: Option<f64>,
    /// Largest sum of the drives' power caps at any instant.
    #[schemars(required, range(min = 0))]
    pub most_capped_watts: Option<f64>,
    /// What cores did, all together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["busy", "polling", "idle", "parked"] }, "required" =
            ["busy", "polling", "idle", "parked"]
        ),
        extend("additionalProperties" = { "type": "number", "minimum": 0 })
    )]
    pub core_seconds: BTreeMap<&'static str, f64>,
    /// Background work.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        extend("propertyNames" = { "enum": ["done", "pending"] }, "required" = ["done", "pending"])
    )]
    pub background_bytes: BTreeMap<&'static str, u64>,
    /// Changes of controls.
    pub decisions: u64,
    /// Heat and fans, from true temperatures, not readings. Absent where the profile has no
    /// `[thermal]` section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal: Option<ThermalSummary>,
    /// Injected faults in the order in which they began; absent without `--faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<FaultLine>>,
    /// Parts of a generated load, in its order; absent where it has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartSummary>,
    /// Jobs, in the order of the workload; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobSummary>,
    /// Jobs by class, the one that matters most first; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassSummary>,
    /// What the mechanics of all hard disks did; absent without any.
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
