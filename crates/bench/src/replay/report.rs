//! What is printed at the end, for people and as JSON (docs/json-schema/replay-1.json).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use anyhow::Result;

use ebb_policy::units::Bytes;

use super::energy::Taken;
use super::machine;
use super::plan::{Plan, What};
use super::repeat::Done;
use super::requests::Loaded;
use super::tally::{SHORT, Tally};
use super::target::Kind;
use crate::latency::LatencyReport;
use crate::measured::{NAMES, OpReport};

/// Arrivals deviate by less than this at p99 on an idle core.
pub const PUNCTUAL_NS: u64 = 20_000;

/// Version 1. Measured, but for energy whose origin is 'modelled'.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb replay --json")]
pub struct Report {
    /// Version of the structure.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// Version.
    pub ebb: &'static str,
    /// Whether every repeat was done to its end.
    pub completed: bool,
    /// What was replayed.
    pub replay: What,
    /// What became of the requests on their way to the target.
    pub requests: Loaded,
    /// Where they went.
    pub target: TargetReport,
    /// On which machine.
    pub machine: machine::About,
    /// Each repeat.
    pub repeats: Vec<Repeat>,
    /// Over complete repeats; null without any.
    pub median: Option<Medians>,
    /// What people have to know.
    pub notes: Vec<String>,
}

/// A target.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TargetReport {
    /// As named.
    pub name: String,
    /// `file`, `device` or `folder`.
    #[schemars(extend("enum" = ["file", "device", "folder"]))]
    pub kind: &'static str,
    /// Its size, of a folder that of the file made in it.
    pub bytes: u64,
    /// O_DIRECT; else through the page cache.
    pub direct: bool,
    /// What offsets and lengths are multiples of.
    pub block_bytes: u64,
    /// Written once before the first repeat.
    pub filled: bool,
    /// The file that was made and left.
    pub kept: Option<String>,
}

impl TargetReport {
    /// Of the target of `plan`.
    pub fn new(plan: &Plan, filled: bool) -> Self {
        Self {
            name: plan.place.name(),
            kind: match plan.place.kind {
                Kind::Folder => "folder",
                Kind::File => "file",
                Kind::Device(_) => "device",
            },
            bytes: plan.target.bytes,
            direct: plan.target.direct,
            block_bytes: plan.target.block,
            filled,
            kept: plan.target.kept.as_ref().map(|path| path.display().to_string()),
        }
    }
}

/// What one repeat came to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Repeat {
    /// From 1.
    #[schemars(range(min = 1))]
    pub repeat: u16,
    /// Whether every request was issued.
    pub complete: bool,
    /// When due times count from.
    pub start_unix_s: f64,
    /// Begin of the counted time, on the clock of samples.csv.
    pub from_s: f64,
    /// Its end: the last answer.
    pub to_s: f64,
    /// Counted time.
    pub seconds: f64,
    /// All requests counted.
    pub total: OpReport,
    /// By operation.
    #[schemars(extend("propertyNames" = { "enum": ["read", "write", "flush", "trim"] }))]
    pub by_op: BTreeMap<&'static str, OpReport>,
    /// From due times to answers; null without due times.
    pub response_ns: Option<LatencyReport>,
    /// From due times to the issue; null without due times.
    pub deviation_ns: Option<LatencyReport>,
    /// Issued late since queue_depth others were outstanding.
    pub held_back: u64,
    /// Requests that failed.
    pub errors: Vec<ErrorReport>,
    /// Never issued.
    pub unsent: u64,
    /// Processor time of the streams, spinning included.
    pub cpu_seconds: f64,
    /// What was dropped before.
    pub caches: String,
    /// By meter.
    pub energy: Vec<EnergyReport>,
}

/// Requests that failed in one way.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ErrorReport {
    /// Operation.
    pub op: &'static str,
    /// The kernel's error number; 0: moved less than asked.
    pub errno: i32,
    /// In words.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// What one meter came to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EnergyReport {
    /// Rapl, hwmon, nvme, csv, command or profile.
    pub meter: &'static str,
    /// What it meters.
    pub of: String,
    /// `measured` or `modelled`.
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    pub origin: &'static str,
    /// Energy of the counted time; null where too little of it is covered by samples.
    #[schemars(range(min = 0))]
    pub joules: Option<f64>,
    /// Least and most by the meter's accuracy; null where that is not known.
    pub joules_interval: Option<(f64, f64)>,
    /// Mean power.
    #[schemars(range(min = 0))]
    pub watts: Option<f64>,
    /// Bytes moved for each joule.
    #[schemars(range(min = 0))]
    pub bytes_per_joule: Option<f64>,
    /// Least and most by the meter's accuracy.
    pub bytes_per_joule_interval: Option<(f64, f64)>,
    /// As given.
    pub accuracy: Option<String>,
    /// In the counted time.
    pub samples: usize,
    /// Part of the counted time that samples cover.
    #[schemars(range(min = 0))]
    pub covered_seconds: f64,
    /// Stretches without samples, on the clock of from_s.
    pub gaps_s: Vec<(f64, f64)>,
    /// Lines and readings that were no samples, since the start, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Why it tells nothing any more.
    pub failure: Option<String>,
}

impl EnergyReport {
    /// From what a meter measured while so many bytes were moved.
    pub fn new(taken: &Taken, bytes: u64) -> Self {
        let Taken { about, integral, skipped, failure } = taken;
        let (joules, seconds) = (integral.joules, integral.seconds);
        let per = |joules: f64| (joules > 0.0 && bytes > 0).then(|| bytes as f64 / joules);
        let bounds = about.accuracy.zip(joules).map(|(a, joules)| a.bounds(joules, seconds));
        // The most energy is the fewest bytes for each joule.
        let per_bounds = bounds.and_then(|(low, high)| Some((per(high)?, per(low)?)));
        Self {
            meter: about.name,
            of: about.of.clone(),
            origin: "measured",
            joules,
            joules_interval: bounds,
            watts: joules.map(|joules| joules / seconds),
            bytes_per_joule: joules.and_then(per),
            bytes_per_joule_interval: per_bounds,
            accuracy: about.accuracy.map(|accuracy| accuracy.to_string()),
            samples: integral.samples,
            covered_seconds: integral.covered_seconds,
            gaps_s: integral.gaps.clone(),
            skipped: skipped.clone(),
            failure: failure.clone(),
        }
    }

    /// From what a simulated server draws while so many bytes are moved.
    pub fn modelled(profile: &str, watts: Option<f64>, seconds: f64, bytes: u64) -> Self {
        let joules = watts.map(|watts| watts * seconds);
        let some = joules.filter(|joules| *joules > 0.0 && bytes > 0);
        Self {
            meter: "profile",
            of: format!("simulated server {profile}, without any policy"),
            origin: "modelled",
            joules,
            joules_interval: None,
            watts,
            bytes_per_joule: some.map(|joules| bytes as f64 / joules),
            bytes_per_joule_interval: None,
            accuracy: None,
            samples: 0,
            covered_seconds: seconds,
            gaps_s: Vec::new(),
            skipped: BTreeMap::new(),
            failure: None,
        }
    }
}

/// Medians over complete repeats, as the paper has them: its samples were not normal (section 3).
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Medians {
    /// Complete ones.
    pub repeats: usize,
    /// Time counted.
    pub seconds: f64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second, in millions.
    pub mb_per_s: f64,
    /// Median latency.
    pub p50_ns: Option<f64>,
    /// 99 % of latencies are at or below it.
    pub p99_ns: Option<f64>,
    /// By meter: joules, watts, bytes per joule.
    pub energy: Vec<MedianEnergy>,
}

/// Medians of one meter.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct MedianEnergy {
    /// Its kind.
    pub meter: &'static str,
    /// `measured` or `modelled`.
    pub origin: &'static str,
    /// Energy.
    pub joules: Option<f64>,
    /// Power.
    pub watts: Option<f64>,
    /// Bytes moved for each joule.
    pub bytes_per_joule: Option<f64>,
}

impl Repeat {
    /// From what was measured; energy comes later.
    ///
    /// # Errors
    /// None: histograms of equal form always merge.
    pub fn new(repeat: u16, done: &Done, clock: &super::energy::Clock) -> Result<Self> {
        let Done { tally, start, counted, end, .. } = done;
        let seconds = end.duration_since(*counted).as_secs_f64();
        let (total, by_op) = tally.requests.report(seconds)?;
        Ok(Self {
            repeat,
            complete: done.complete,
            start_unix_s: clock.unix + clock.at(*start),
            from_s: clock.at(*counted),
            to_s: clock.at(*end),
            seconds,
            total,
            by_op,
            response_ns: tally.response.report(),
            deviation_ns: tally.deviation.report(),
            held_back: tally.held_back,
            errors: errors(tally),
            unsent: tally.unsent,
            cpu_seconds: tally.cpu.as_secs_f64(),
            caches: String::new(),
            energy: Vec::new(),
        })
    }
}

fn errors(tally: &Tally) -> Vec<ErrorReport> {
    let one = |(&(op, errno), &count): (&(u8, i32), &u64)| ErrorReport {
        op: NAMES[usize::from(op)],
        errno,
        what: match errno {
            SHORT => "moved less than it was asked to".to_owned(),
            _ => std::io::Error::from_raw_os_error(errno).to_string(),
        },
        count,
    };
    tally.errors.iter().map(one).collect()
}

/// The middle of the values, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = *values.get(half)?;
    let lower = if values.len().is_multiple_of(2) { values[half - 1] } else { upper };
    Some((lower + upper) / 2.0)
}

impl Medians {
    /// Of the complete ones among `repeats`; `None` without any.
    pub fn new(repeats: &[Repeat]) -> Option<Self> {
        let all: Vec<&Repeat> = repeats.iter().filter(|repeat| repeat.complete).collect();
        let of = |value: fn(&Repeat) -> f64| median(all.iter().map(|repeat| value(repeat)));
        let latency = |value: fn(&LatencyReport) -> u64| {
            let latencies = all.iter().filter_map(|repeat| repeat.total.latency_ns.as_ref());
            median(latencies.map(|latency| value(latency) as f64))
        };
        let energy = all.first()?.energy.iter().enumerate().map(|(at, first)| {
            let of = |value: fn(&EnergyReport) -> Option<f64>| {
                median(all.iter().filter_map(|repeat| value(repeat.energy.get(at)?)))
            };
            MedianEnergy {
                meter: first.meter,
                origin: first.origin,
                joules: of(|energy| energy.joules),
                watts: of(|energy| energy.watts),
                bytes_per_joule: of(|energy| energy.bytes_per_joule),
            }
        });
        Some(Self {
            repeats: all.len(),
            seconds: of(|repeat| repeat.seconds)?,
            iops: of(|repeat| repeat.total.iops)?,
            mb_per_s: of(|repeat| repeat.total.mb_per_s)?,
            p50_ns: latency(|latency| latency.p50),
            p99_ns: latency(|latency| latency.p99),
            energy: energy.collect(),
        })
    }
}

impl Report {
    /// Why the replay failed, if it did.
    pub fn failure(&self) -> Option<String> {
        let failed: u64 =
            self.repeats.iter().flat_map(|repeat| &repeat.errors).map(|error| error.count).sum();
        (failed > 0).then(|| format!("{failed} requests failed"))
    }

    /// What the requests were, in a line.
    pub fn heading(&self) -> String {
        let Report { replay, target, requests, .. } = self;
        let names = replay.names.join(", ");
        let what = match (replay.source, replay.rw, replay.request_bytes) {
            ("pattern", Some(rw), Some(bytes)) => {
                let rw = if rw == "rw" { "read and write" } else { rw };
                format!("{rw} {names}, {} each", Bytes(bytes))
            }
            _ => names,
        };
        let pace = match (replay.pace, replay.rate) {
            ("max", _) => format!("closed loop of {} outstanding", replay.queue_depth),
            (_, Some(rate)) => format!("at {}/s", ebb_cli::text::short(rate)),
            _ if replay.speed != 1.0 => format!("{} times as fast as recorded", replay.speed),
            _ => "as recorded".to_owned(),
        };
        let how = if target.direct { "O_DIRECT" } else { "through the page cache" };
        let streams = match replay.streams {
            1 => "1 stream".to_owned(),
            streams => format!("{streams} streams"),
        };
        format!(
            "{what}: {} requests, {streams}, {pace}\non {} ({}, {}, io_uring, {how})",
            ebb_cli::text::grouped(requests.requests as f64),
            target.name,
            target.kind,
            Bytes(target.bytes),
        )
    }
}

#[cfg(test)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
