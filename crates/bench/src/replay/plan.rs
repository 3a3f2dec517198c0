//! From the command line to what is replayed: requests, target, pace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::args::Changes;
use ebb_cli::input::Traces;
use ebb_cli::usage;
use ebb_host::Sys;
use ebb_policy::units::{Bytes, Nanos};
use ebb_trace::Workload;
use ebb_trace::generate::{BuildContext, Overrides, by_name, load};

use super::args::{Direction, Pace, Pattern, ReplayArgs};
use super::pattern::Shape;
use super::requests::{Deal, Requests};
use super::stream::Manner;
use super::target::{Place, Target, Wanted};
use crate::load::arrivals::Schedule;

/// What each process of the paper reads or writes, and in which pieces (section 3.1).
const SIZE: Bytes = Bytes(3 << 30);
const REQUEST: Bytes = Bytes(32 << 10);
/// Processes of the paper.
const STREAMS: u16 = 2;
/// Requests outstanding, at most, where they come by the clock.
const DEPTH: u16 = 128;

/// What is replayed, as it stands in the results.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct What {
    /// `trace`, `pattern` or `workload`.
    #[schemars(extend("enum" = ["trace", "pattern", "workload"]))]
    pub source: &'static str,
    /// Files, or the name of the pattern or workload.
    pub names: Vec<String>,
    /// Of a pattern.
    #[schemars(extend("enum" = ["read", "write", "rw", null, null]))]
    pub rw: Option<&'static str>,
    /// Of a pattern.
    pub request_bytes: Option<u64>,
    /// Of a pattern: what each stream reads or writes.
    pub stream_bytes: Option<u64>,
    /// Concurrent streams.
    pub streams: usize,
    /// `recorded`, `max` or `rate`.
    #[schemars(extend("enum" = ["recorded", "max", "rate"]))]
    pub pace: &'static str,
    /// Requests per second of all streams.
    pub rate: Option<f64>,
    /// Times as fast as recorded.
    pub speed: f64,
    /// Requests outstanding per stream, at most.
    pub queue_depth: u32,
    /// Spun before a request is due.
    pub spin_seconds: f64,
    /// Not counted.
    pub warmup_seconds: f64,
    /// Seed of everything random.
    pub seed: u64,
}

/// A replay, ready to run.
pub struct Plan {
    /// In words.
    pub what: What,
    /// Requests, on their places.
    pub requests: Requests,
    /// Where they go, as looked at.
    pub place: Place,
    /// The same, opened.
    pub target: Target,
    /// How they are issued.
    pub manner: Manner,
    /// Where streams run, in turn.
    pub cores: Vec<usize>,
}

impl Plan {
    /// Checks the options against each other and against the target.
    ///
    /// # Errors
    /// What contradicts itself, cannot be read, must not be written to, or does not fit.
    pub fn new(args: &ReplayArgs, sys: &Sys) -> Result<Self> {
        let (traces, target) = split(args)?;
        let place = Place::look(target, sys)?;
        let (mut what, mut requests) = requests(args, traces, &place)?;
        if requests.streams.iter().all(Vec::is_empty) {
            return Err(usage("there is no request to replay"));
        }
        let pace = args.pace.pace.unwrap_or(match what.source {
            "pattern" => Pace::Max,
            _ => Pace::Recorded,
        });
        let timed = set_pace(args, pace, &mut what, &mut requests)?;
        let needed = match (what.source, args.requests.size) {
            ("pattern", _) | (_, None) => requests.extent(),
            (_, Some(Bytes(size))) => size,
        };
        let wanted = Wanted {
            bytes: needed,
            writes: requests.writes(),
            destroy: args.target.destroy.as_deref(),
            buffered: args.target.buffered,
            keep: args.target.keep,
        };
        let target = place.open(&wanted, sys)?;
        let limit = match (what.source, args.requests.size) {
            ("pattern", _) | (_, None) => target.bytes,
            (_, Some(Bytes(size))) => size.min(target.bytes),
        };
        requests.place(limit, target.block, args.requests.beyond)?;
        let longest = requests.longest();
        let depth = args.pace.queue_depth.unwrap_or(if timed { DEPTH } else { 1 });
        let manner = Manner {
            depth: Manner::depth_for(depth.into(), longest),
            longest,
            timed,
            spin: duration(args.pace.spin),
            warmup: duration(args.pace.warmup),
            abort: args.target.abort_on_error,
            keep: args.runs.output.is_some() || args.energy.meter_profile.is_some(),
            sync: !target.direct && requests.writes(),
            seed: args.requests.seed,
        };
        what.queue_depth = manner.depth;
        let cores = args.pace.cores.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        check_cores(&cores)?;
        Ok(Self { what, requests, place, target, manner, cores })
    }
}

fn check_cores(cores: &[usize]) -> Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    match cores.iter().find(|core| !allowed.is_set(**core)) {
        Some(core) => Err(usage(format!("--cores: this process may not run on core {core}"))),
        None => Ok(()),
    }
}

/// The traces and the target, of what was named.
fn split(args: &ReplayArgs) -> Result<(&[PathBuf], &Path)> {
    let Some((target, traces)) = args.paths.split_last() else {
        return Err(usage("name a target: a file, a block device or a folder"));
    };
    let generated = args.requests.pattern.is_some() || args.requests.workload.is_some();
    match (generated, traces) {
        (true, []) | (false, [_, ..]) => Ok((traces, target)),
        (true, [trace, ..]) => {
            let trace = trace.display();
            Err(usage(format!(
                "{trace}: requests come from a trace or from --pattern or --workload, not from both"
            )))
        }
        (false, []) => {
            let only = target.display();
            Err(usage(format!(
                "{only}: name a trace before the target, as in 'ebb replay TRACE {only}', or ask \
                 for --pattern contiguous, strided or random"
            )))
        }
    }
}

fn requests(args: &ReplayArgs, traces: &[PathBuf], place: &Place) -> Result<(What, Requests)> {
    let asked = &args.requests;
    let mut what = What {
        source: "trace",
        names: traces.iter().map(|trace| trace.display().to_string()).collect(),
        rw: None,
        request_bytes: None,
        stream_bytes: None,
        streams: 0,
        pace: "recorded",
        rate: None,
        speed: asked.changes.rate_scale.unwrap_or(1.0),
        queue_depth: 0,
        spin_seconds: args.pace.spin.seconds(),
        warmup_seconds: args.pace.warmup.seconds(),
        seed: asked.seed,
    };
    let requests = if let Some(pattern) = asked.pattern {
        let shape = shape(args, pattern)?;
        what.source = "pattern";
        what.names = vec![format!("{pattern:?}").to_lowercase()];
        what.rw = Some(match shape.direction {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Rw => "rw",
        });
        what.request_bytes = Some(shape.request);
        what.stream_bytes = Some(shape.request * shape.count);
        Requests::pattern(shape)
    } else if let Some(name) = &asked.workload {
        what.source = "workload";
        what.names = vec![name.clone()];
        workload(args, name, place)?
    } else {
        from_traces(args, traces)?
    };
    what.streams = requests.streams.len();
    Ok((what, requests))
}

fn shape(args: &ReplayArgs, pattern: Pattern) -> Result<Shape> {
    let asked = &args.requests;
    let Changes { rate_scale, from, to } = &asked.changes;
    if rate_scale.is_some() || from.is_some() || to.is_some() {
        return Err(usage("--rate-scale, --from and --to are for traces; a pattern has no times"));
    }
    let (Bytes(size), Bytes(request)) =
        (asked.size.unwrap_or(SIZE), asked.request.unwrap_or(REQUEST));
    if request == 0 || request % 512 != 0 || request > 1 << 30 {
        let request = Bytes(request);
        return Err(usage(format!(
            "--request {request}: a multiple of 512 B up to 1 GiB is needed"
        )));
    }
    if size < request || size % request != 0 {
        let (size, request) = (Bytes(size), Bytes(request));
        return Err(usage(format!("--size {size} is no whole number of requests of {request}")));
    }
    let shape = Shape {
        pattern,
        direction: asked.rw.unwrap_or(Direction::Read),
        request,
        count: size / request,
        streams: asked.streams.unwrap_or(STREAMS).into(),
        seed: asked.seed,
    };
    let most = u64::from(u32::MAX);
    if shape.extent().is_none_or(|extent| extent > 1 << 60) || shape.count > most {
        return Err(usage("--size: more than any drive holds; ask for less"));
    }
    Ok(shape)
}

fn from_traces(args: &ReplayArgs, traces: &[PathBuf]) -> Result<Requests> {
    let asked = &args.requests;
    let streams = match (traces.len(), asked.streams) {
        (1, streams) => usize::from(streams.unwrap_or(1)),
        (several, None) => several,
        (several, Some(streams)) => {
            return Err(usage(format!(
                "--streams {streams} is for one trace: {several} traces are a stream each"
            )));
        }
    };
    let mut requests = Requests::new(streams);
    for (index, trace) in traces.iter().enumerate() {
        let one = Traces::new(vec![trace.clone()], asked.reading, asked.changes.clone())?;
        let (mut source, watch) = one.open(None)?;
        let deal = if traces.len() == 1 { Deal::Among(streams) } else { Deal::To(index) };
        requests.read(source.as_mut(), deal, &trace.display().to_string())?;
        requests.loaded.files.extend(watch.reports());
    }
    Ok(requests)
}

fn workload(args: &ReplayArgs, name: &str, place: &Place) -> Result<Requests> {
    let asked = &args.requests;
    let is_file = name.contains('/') || name.ends_with(".toml") || Path::new(name).is_file();
    let spec = if is_file { load(name)? } else { by_name(name)? };
    let duration = asked.duration.or(spec.duration);
    if duration.is_none() {
        return Err(usage(format!("--workload {name} has no end of its own: add --duration TIME")));
    }
    let spec = spec.with(&Overrides { duration, ..Overrides::default() })?;
    let fallback = if place.kind == super::target::Kind::Folder { SIZE.0 } else { place.bytes };
    let capacity_bytes = asked.size.map_or(fallback, |size| size.0);
    let context = BuildContext { devices: 1, capacity_bytes, seed: asked.seed };
    let Workload::Open(mut source) = spec.build(&context)? else {
        return Err(usage(format!(
            "--workload {name} goes by completion, not by the clock: use --pattern, whose requests \
             do so with --pace max"
        )));
    };
    let streams = usize::from(asked.streams.unwrap_or(1));
    let mut requests = Requests::new(streams);
    requests.read(source.as_mut(), Deal::Among(streams), name)?;
    requests.loaded.notes = spec.notes();
    Ok(requests)
}

/// Gives requests their times; returns whether they have any.
fn set_pace(
    args: &ReplayArgs,
    pace: Pace,
    what: &mut What,
    requests: &mut Requests,
) -> Result<bool> {
    if what.source == "pattern" && pace == Pace::Recorded {
        return Err(usage("--pace recorded is for traces: a pattern has no times; give a rate"));
    }
    match pace {
        Pace::Recorded => Ok(true),
        Pace::Max => {
            what.pace = "max";
            Ok(false)
        }
        Pace::Rate(rate) => {
            (what.pace, what.rate) = ("rate", Some(rate.0));
            let arrival = args.pace.arrival;
            let schedule = Schedule { rate: rate.0, burst: None, ramp: Nanos::ZERO, arrival };
            requests.schedule(&schedule, args.requests.seed);
            Ok(true)
        }
    }
}

/// The same time as the standard library has it.
pub fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}
