//! Cloud block traces, or a generated likeness where they are not at hand.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use ebb_policy::units::Nanos;
use ebb_trace::{OpenOptions, Request, Source, TraceError, open};
use ebb_twin::reactor::{Load, Shown};

use super::lab::{CONFIGURATIONS, SANDMAN, SPDK, Trial};
use super::{Study, percent};

/// Time replayed, and the part not counted.
const LENGTH: Nanos = Nanos::from_secs(16);
const WARMUP: Nanos = Nanos::from_secs(4);
/// How often each trace is laid over the others, each time from another point on: one trace is a
/// few volumes, a server has hundreds (assumed).
const COPIES: usize = 64;
/// Mean requests per second of the generated likeness (assumed).
const LIKENESS: f64 = 130e3;
/// Multiples of the golden ratio fall evenly and in no order between whole numbers.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// What is replayed, and its rows.
struct Cloud {
    from: &'static str,
    saved: &'static str,
    tail: &'static str,
    shares: [&'static str; 3],
}
const GENERATED: Cloud = Cloud {
    from: "a generated likeness",
    saved: "likeness/saved",
    tail: "likeness/tail",
    shares: ["likeness/known", "likeness/sandman", "likeness/plus"],
};
const TENCENT: Cloud = Cloud {
    from: "Tencent's traces",
    saved: "tencent/saved",
    tail: "tencent/tail",
    shares: ["tencent/known", "tencent/sandman", "tencent/plus"],
};
const MONTH_HOURS: f64 = 30.0 * 24.0;

/// Replays public cloud traces where they are at hand, and a generated likeness.
pub fn replay(study: &mut Study) -> Result<()> {
    let likeness = likeness();
    let steps = || Load::Steps { steps: likeness.clone(), writes: 0.3 };
    compare(study, &GENERATED, &steps)?;
    let traces = traces();
    if traces.is_empty() {
        let why = || "no trace in EBB_DATA".to_owned();
        study.report.missing(TENCENT.saved, why())?;
        return study.report.missing(TENCENT.tail, why());
    }
    let requests = overlay(&traces)?;
    let trace = || Load::Trace(Box::new(Replay { requests: requests.clone(), next: 0 }));
    compare(study, &TENCENT, &trace)
}

fn compare(study: &mut Study, cloud: &Cloud, load: &(dyn Fn() -> Load + Sync)) -> Result<()> {
    let trial = |configuration: &_| Trial {
        configuration: *configuration,
        load,
        raid: false,
        coarse: study.lab.profile.coarse,
        duration: LENGTH,
        warmup: WARMUP,
    };
    let trials: Vec<_> = CONFIGURATIONS.iter().map(trial).collect();
    let Cloud { from, saved, tail, shares } = *cloud;
    let runs = study.lab.all(from, &trials)?;
    curves(study, from, &runs);
    let more = percent(runs[SANDMAN].energy.total().0, runs[SPDK].energy.total().0);
    study.report.row(saved, -more)?;
    let over = percent(runs[SANDMAN].quantile(0.99), runs[SPDK].quantile(0.99));
    study.report.row(tail, over)?;
    study.shares(shares, &trials[SPDK], &runs)
}

fn curves(study: &mut Study, from: &str, runs: &[Shown]) {
    for (configuration, shown) in CONFIGURATIONS.iter().zip(runs) {
        let points =
            [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999].map(|q| (shown.quantile(q), 100.0 * q));
        let series = format!("{}: percent of requests below us, {from}", configuration.label);
        study.report.curve("Cloud", series, &points);
    }
    for (configuration, shown) in CONFIGURATIONS.iter().zip(runs) {
        let awake = shown.awake.iter().map(|(at, awake)| (*at, f64::from(*awake)));
        let series = format!("{}: hyper-threads awake over s, {from}", configuration.label);
        study.report.curve("Cloud", series, &awake.collect::<Vec<_>>());
    }
    let month = |shown: &Shown| shown.power().0 * MONTH_HOURS / 1e3;
    let points = runs.iter().enumerate().map(|(index, shown)| (index as f64, month(shown)));
    let series = format!("kWh a month, by configuration in their order, {from}");
    study.report.curve("Cloud", series, &points.collect::<Vec<_>>());
}

/// The cloud traces beside the project, in `EBB_DATA`; none where it is not set.
pub fn traces() -> Vec<PathBuf> {
    let Some(data) = std::env::var_os("EBB_DATA") else { return Vec::new() };
    let folder = Path::new(&data).join("traces/tencent_nvme_latency");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "gz")).collect();
    paths.sort();
    paths
}

/// [`COPIES`] of each trace, each begun at another point and wrapped around, in order of time.
fn overlay(paths: &[PathBuf]) -> Result<Vec<Request>> {
    let mut all = Vec::new();
    let mut volume = 0_u16;
    for path in paths {
        let name = || format!("cannot replay {}", path.display());
        let mut trace = open(path, &OpenOptions::default()).with_context(name)?;
        let mut requests = Vec::new();
        loop {
            let before = requests.len();
            trace.fill(&mut requests).with_context(name)?;
            if requests.len() == before {
                break;
            }
        }
        let span = requests.last().map_or(1, |request| request.at.0 + 1);
        for _ in 0..COPIES {
            let shift = (span as f64 * (f64::from(volume) * GOLDEN).fract()) as u64;
            volume += 1;
            let moved = requests.iter().map(|request| {
                let at = Nanos((request.at.0 + shift) % span);
                Request { at, device: volume, ..*request }
            });
            all.extend(moved.filter(|request| request.at < LENGTH));
        }
    }
    all.sort_by_key(|request| request.at);
    Ok(all)
}

/// Another rate for each second, exponentially distributed: it varies by as much as its mean.
fn likeness() -> Vec<(Nanos, f64)> {
    let second = |index: u64| {
        let share = (index as f64 * GOLDEN).fract();
        (Nanos::from_secs(1), -LIKENESS * (1.0 - share).ln())
    };
    (1..=LENGTH.0 / 1_000_000_000).map(second).collect()
}

/// Requests held in memory.
struct Replay {
    requests: Vec<Request>,
    next: usize,
}

impl Source for Replay {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let end = (self.next + 4096).min(self.requests.len());
        batch.extend_from_slice(&self.requests[self.next..end]);
        self.next = end;
        Ok(())
    }
}
