//! `ebb trace pressure`: PACER's I/O pressure of a trace on a server (§III-A3).
//!
//! Every segment of the trace becomes a benchmark with its rate, mix, locality and sizes, which
//! the twin runs twice under native: at the segment's mean rate and as fast as clients can.
//! Segments that differ only in rate share their saturating run.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::input::FileReport;
use ebb_cli::parallel::in_parallel;
use ebb_cli::progress::Progress;
use ebb_cli::text::{grouped, number, seconds, short};
use ebb_cli::{out, usage};
use ebb_policy::cpu::Native;
use ebb_policy::units::{Bytes, Nanos};
use ebb_trace::generate::{
    AccessSpec, ArrivalSpec, Blocks, DriveShare, Gaps, Rate, ShapeSpec, Share, WorkloadSpec,
};
use ebb_trace::pressure::{Segment, pressure, segments};
use ebb_twin::{Run, Unobserved};

use super::args::PressureArgs;
use super::{open, skipped};
use crate::server::Server;
use crate::sim::whole_periods;

/// Requests that the run at the mean rate should see at least, so that its rate is no accident.
const LEAST_REQUESTS: f64 = 1000.0;
/// Longest that this run is made for their sake.
const LONGEST: Nanos = Nanos::from_secs(600);
/// Entries of a benchmark's list of block sizes; shares are rounded to one over it.
const SIZES: f64 = 64.0;

/// One segment, rated.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0, "additionalProperties" = true))]
struct Rated {
    #[serde(flatten)]
    segment: Segment,
    /// Reached at the mean rate.
    limited_iops: f64,
    /// Reached without a limit.
    unlimited_iops: f64,
    /// 100 times their ratio.
    pressure_percent: Option<f64>,
}

/// Version 1. PACER §III-A3.
#[derive(Serialize, JsonSchema)]
#[schemars(
    title = "ebb trace pressure --json",
    extend("minimum" = 0, "additionalProperties" = true)
)]
struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("const" = true))]
    simulated: bool,
    profile: String,
    seed: u64,
    segment_seconds: f64,
    files: Vec<FileReport>,
    /// The equation over all segments.
    pressure_percent: Option<f64>,
    /// Share of time, and the pressure in percent that it is at or below.
    cdf: Vec<(f64, f64)>,
    segments: Vec<Rated>,
}

/// Runs the command.
pub fn run(args: &PressureArgs) -> Result<()> {
    for (name, time) in [("--segment", args.segment), ("--run", args.run)] {
        if time == Nanos::ZERO {
            return Err(usage(format!("{name} must be longer than 0 s")));
        }
    }
    let server = Server::load(&args.profile)?;
    let (mut source, watch) = open(&args.input)?;
    let cut = segments(source.as_mut(), args.segment)?;
    let rated = rate(args, &server, cut)?;
    let pairs: Vec<_> =
        rated.iter().map(|rated| (rated.limited_iops, rated.unlimited_iops)).collect();
    let report = Report {
        schema: 1,
        simulated: true,
        profile: server.profile.name.clone(),
        seed: args.seed,
        segment_seconds: args.segment.seconds(),
        files: watch.reports(),
        pressure_percent: pressure(&pairs),
        cdf: cdf(&rated),
        segments: rated,
    };
    if args.input.json { out::json(&report) } else { print(&report) }
}

/// Runs every segment twice.
fn rate(args: &PressureArgs, server: &Server, cut: Vec<Segment>) -> Result<Vec<Rated>> {
    let progress = Progress::new(args.input.quiet);
    let bar = progress.bar("segments", Some(cut.len() as u64));
    let benchmark = |spec: WorkloadSpec, time: Nanos, warmup: Nanos| -> Result<f64> {
        let workload = spec.build(&server.context(&spec, args.seed))?;
        let run = Run {
            duration: Some(warmup + time),
            warmup,
            ..Run::of(&server.profile, Box::new(Native), workload, args.seed)
        };
        Ok(ebb_twin::run(run, &mut Unobserved)?.iops())
    };
    // Equal benchmarks are run once: idle segments repeat the one before them.
    let mut kinds: Vec<usize> = Vec::new();
    for (index, segment) in cut.iter().enumerate() {
        if !kinds.last().is_some_and(|&last| same_kind(&cut[last], segment)) {
            kinds.push(index);
        }
    }
    let done = AtomicU64::new(0);
    let step = || bar.set_position(done.fetch_add(1, Ordering::Relaxed));
    let unlimited = in_parallel(kinds.len(), args.threads, |kind| {
        step();
        let spec = workload(&cut[kinds[kind]], Rate::Max).saturating();
        benchmark(spec, args.run, whole_periods(args.run))
    })?;
    let limited = in_parallel(cut.len(), args.threads, |index| {
        step();
        let iops = cut[index].iops;
        if iops <= 0.0 {
            return Ok(0.0);
        }
        let enough = Nanos::from_seconds(LEAST_REQUESTS / iops).min(LONGEST);
        let time = args.run.max(enough);
        benchmark(workload(&cut[index], Rate::Iops(iops)), time, Nanos::ZERO)
    })?;
    bar.finish_and_clear();
    let mut rated = Vec::with_capacity(cut.len());
    for (index, (segment, limited_iops)) in cut.into_iter().zip(limited).enumerate() {
        let kind = kinds.partition_point(|&first| first <= index) - 1;
        let unlimited_iops = unlimited[kind];
        let pressure_percent = pressure(&[(limited_iops, unlimited_iops)]);
        rated.push(Rated { segment, limited_iops, unlimited_iops, pressure_percent });
    }
    Ok(rated)
}

fn same_kind(one: &Segment, other: &Segment) -> bool {
    one.read_share == other.read_share
        && one.random_share == other.random_share
        && one.sizes == other.sizes
}

/// The segment as a benchmark: Poisson arrivals with its mix, locality and sizes.
fn workload(segment: &Segment, rate: Rate) -> WorkloadSpec {
    let mut blocks = Vec::new();
    for (size, share) in &segment.sizes {
        let times = (share * SIZES).round() as usize;
        blocks.extend(std::iter::repeat_n(Bytes(u64::from(*size)), times));
    }
    if let (true, Some((size, _))) = (blocks.is_empty(), segment.sizes.first()) {
        blocks.push(Bytes(u64::from(*size)));
    }
    let part = ArrivalSpec {
        name: "segment".to_owned(),
        best_effort: false,
        drives: DriveShare::ALL,
        streams: 64,
        access: AccessSpec {
            block: Blocks(blocks),
            read: Share(segment.read_share),
            random: Share(segment.random_share),
            zipf: None,
            hot: None,
            span: Share(1.0),
        },
        rate,
        gaps: Gaps::Exponential,
        shape: ShapeSpec::Flat,
    };
    WorkloadSpec {
        name: "segment".to_owned(),
        duration: None,
        jobs: Vec::new(),
        rocksdb: Vec::new(),
        readers: Vec::new(),
        arrivals: vec![part],
        batch: Vec::new(),
    }
}

/// The distribution of pressure over time: each segment weighs by its length.
fn cdf(rated: &[Rated]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = rated
        .iter()
        .filter_map(|rated| Some((rated.pressure_percent?, rated.segment.seconds)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all: f64 = points.iter().map(|(_, seconds)| seconds).sum();
    let at = |share: f64| {
        let mut reached = 0.0;
        let found = points.iter().find(|(_, seconds)| {
            reached += seconds;
            reached >= share * all * (1.0 - 1e-12)
        });
        found.map(|(percent, _)| (share, *percent))
    };
    [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0].into_iter().filter_map(at).collect()
}

fn print(report: &Report) -> Result<()> {
    let mut to = out::stdout();
    writeln!(
        to,
        "I/O pressure (PACER §III-A3), simulated on {}, seed {}, segments of {}",
        report.profile,
        report.seed,
        seconds(report.segment_seconds)
    )?;
    const MOST: usize = 40;
    writeln!(
        to,
        "{:>12} {:>10} {:>8} {:>8} {:>9} {:>12} {:>12} {:>10}",
        "start", "requests", "read", "random", "IOPS", "reached", "maximum", "pressure"
    )?;
    let share = |share: f64| format!("{:.1}%", share * 100.0);
    for rated in report.segments.iter().take(MOST) {
        let segment = &rated.segment;
        writeln!(
            to,
            "{:>12} {:>10} {:>8} {:>8} {:>9} {:>12} {:>12} {:>10}",
            seconds(segment.start_seconds),
            grouped(segment.requests as f64),
            share(segment.read_share),
            share(segment.random_share),
            number(segment.iops),
            number(rated.limited_iops),
            number(rated.unlimited_iops),
            rated.pressure_percent.map_or("–".to_owned(), |percent| number(percent) + "%"),
        )?;
    }
    if report.segments.len() > MOST {
        let more = report.segments.len() - MOST;
        writeln!(to, "{:>12} {more} more segments; --json has them all", "…")?;
    }
    match report.pressure_percent {
        Some(percent) => writeln!(to, "pressure of the whole trace: {}%", number(percent))?,
        None => writeln!(to, "the trace has no reads or writes: no pressure")?,
    }
    for (share, percent) in &report.cdf {
        writeln!(
            to,
            "  {:>3}% of the time at or below {}%",
            short(share * 100.0),
            number(*percent)
        )?;
    }
    skipped(&mut to, &report.files)?;
    Ok(to.flush()?)
}

#[cfg(test)]
crate::schema::written!("trace-pressure-1", Report);
