//! `ebb load`: load on an NVMe/TCP target, measured or verified (docs/load.md).

pub mod args;
mod arrivals;
mod job;
mod meter;
mod plan;
mod random;
mod replay;
mod report;
mod session;
mod verify;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;

use ebb_target::initiator::{Controller, Error};
use ebb_trace::Op;

use crate::args::Changes;
use crate::input::Traces;
use crate::progress::Progress;
use crate::text;
use args::LoadArgs;
use arrivals::Arrivals;
use job::{Clock, Closed, Feed, Open, Sweep};
use meter::{Live, Meter};
use plan::{Pace, Plan};
use replay::{Reader, TraceReport};
use report::{Report, Verified};
use session::{Session, shares};
use verify::{Findings, Verifier};
use worker::{Shared, Worker};

/// Runs `ebb load`.
pub fn run(args: &LoadArgs) -> Result<()> {
    let traces = traces(args)?;
    let target = plan::target(args)?;
    let mut controller = Controller::connect(&target)?;
    let plan = Arc::new(Plan::new(args, target, &mut controller)?);
    let identity = controller.identity().clone();
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        verifier: plan.verify.then(|| Verifier::new(&plan)),
        broken: AtomicBool::new(false),
        live: plan.cores.iter().map(|_| Live::default()).collect(),
    });
    let mut load = Load {
        session: Session::new(plan.clone(), controller),
        shared,
        findings: Findings::default(),
        progress: Progress::new(args.quiet),
    };
    let mut ended = if plan.fill { load.sweep("fill", Op::Write)? } else { None };
    let mut measured = None;
    if ended.is_none() {
        let (done, lost) = load.measure(traces.as_ref())?;
        (measured, ended) = (Some(done), lost);
    }
    if ended.is_none() && plan.verify {
        ended = load.sweep("read back", Op::Read)?;
    }
    let verified = plan.verify.then(|| Verified::new(&load.findings, ended.is_none()));
    let outages = std::mem::take(&mut load.session.outages);
    let report = Report::new(&plan, identity, measured, ended, &outages, verified)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    load.session.close();
    let swept = load.findings.first_failure;
    let swept = swept.map(|why| format!("filling or reading back failed: {why}"));
    report.failure().or(swept).map_or(Ok(()), |why| Err(anyhow!(why)))
}

/// The trace to replay.
fn traces(args: &LoadArgs) -> Result<Option<Traces>> {
    let Some(file) = &args.work.trace else { return Ok(None) };
    let changes = Changes { rate_scale: args.work.speed, ..Changes::default() };
    let traces = Traces::new(vec![file.clone()], args.work.reading, changes)?;
    // A trace that cannot be read is told of before anything is sent.
    traces.open(None)?;
    Ok(Some(traces))
}

/// A load being run.
struct Load {
    session: Session,
    shared: Arc<Shared>,
    findings: Findings,
    progress: Progress,
}

/// What the counted part gave.
pub struct Measured {
    meter: Meter,
    /// From the first counted moment to the end, or to the last answer where that is later.
    elapsed: Duration,
    trace: Option<TraceReport>,
}

impl Load {
    /// Writes or reads everything once; returns the connection error that ended it early.
    fn sweep(&mut self, label: &str, op: Op) -> Result<Option<Error>> {
        let plan = self.shared.plan.clone();
        let clock = Clock { end: None, ..Clock::new(&plan) };
        let threads = plan.cores.len();
        let feed = |index| Box::new(Sweep::new(&plan, op, index, threads)) as Box<dyn Feed>;
        let mut workers: Vec<Worker> = (0..threads)
            .map(|index| Worker::new(index, self.shared.clone(), clock, feed(index)))
            .collect();
        let bytes = plan.spaces.iter().map(|s| s.blocks * u64::from(s.namespace.block_size)).sum();
        let bar = self.progress.bar(label, Some(bytes));
        let before = self.live()[1];
        let shared = self.shared.clone();
        let mut tick = || bar.set_position(live(&shared)[1].wrapping_sub(before));
        let worked = self.session.work(&mut workers, &self.shared, &clock, &mut tick);
        bar.finish_and_clear();
        for worker in workers {
            self.findings.merge(worker.findings);
        }
        Ok(worked.err())
    }

    fn live(&self) -> [u64; 3] {
        live(&self.shared)
    }

    /// The load itself, and the connection error that ended it early.
    fn measure(&mut self, traces: Option<&Traces>) -> Result<(Measured, Option<Error>)> {
        let plan = self.shared.plan.clone();
        let clock = Clock::new(&plan);
        let (reader, feeds) = feeds(&plan, traces, clock)?;
        let mut workers = Vec::new();
        for (index, feed) in feeds.into_iter().enumerate() {
            let mut worker = Worker::new(index, self.shared.clone(), clock, feed);
            worker.measure()?;
            workers.push(worker);
        }
        let length = plan.duration.map(|duration| duration.as_millis() as u64);
        let bar = self.progress.bar("load", length);
        let mut show = Show::new(&bar, &self.shared, clock);
        let worked = self.session.work(&mut workers, &self.shared, &clock, &mut || show.tick());
        bar.finish_and_clear();
        let stopped = Instant::now();
        let mut meter = Meter::new(plan.has_bursts())?;
        for mut worker in workers {
            worker.finish();
            self.findings.merge(std::mem::take(&mut worker.findings));
            if let Some(part) = worker.meter.take() {
                meter.merge(&part)?;
            }
        }
        let trace = reader.map(Reader::finish).transpose()?;
        let lost = worked.err();
        // Until the planned end, unless it was never reached; and at least to the last answer.
        let planned = clock.end.filter(|_| lost.is_none());
        let end = planned.max(meter.last).unwrap_or(stopped);
        let elapsed = end.saturating_duration_since(clock.counted);
        Ok((Measured { meter, elapsed, trace }, lost))
    }
}

/// Of each thread.
type Feeds = Vec<Box<dyn Feed>>;

/// Where the jobs of each thread come from.
fn feeds(plan: &Plan, traces: Option<&Traces>, clock: Clock) -> Result<(Option<Reader>, Feeds)> {
    let threads = plan.cores.len();
    if let Some(traces) = traces {
        let (reader, feeds) = Reader::start(traces, plan, clock)?;
        let feeds = feeds.into_iter().map(|feed| Box::new(feed) as Box<dyn Feed>).collect();
        return Ok((Some(reader), feeds));
    }
    let feeds = shares(plan.connections.into(), threads).enumerate().map(|(index, range)| {
        let feed: Box<dyn Feed> = match &plan.pace {
            Pace::Open(schedule) => {
                let arrivals = Arrivals::new(schedule, index, threads, plan.seed);
                Box::new(Open::new(plan, arrivals, clock, index, threads))
            }
            Pace::Closed | Pace::Trace => {
                Box::new(Closed::new(plan, clock, range.start, range.len()))
            }
        };
        feed
    });
    Ok((None, feeds.collect()))
}

/// Requests, bytes and the sum of latencies of all threads so far.
fn live(shared: &Shared) -> [u64; 3] {
    let mut sum = [0_u64; 3];
    for live in &shared.live {
        for (sum, value) in sum.iter_mut().zip(live.read()) {
            *sum = sum.wrapping_add(value);
        }
    }
    sum
}

/// The progress line: what happened in the last second.
struct Show<'a> {
    bar: &'a ProgressBar,
    shared: &'a Shared,
    clock: Clock,
    last: Instant,
    before: [u64; 3],
}

impl<'a> Show<'a> {
    fn new(bar: &'a ProgressBar, shared: &'a Shared, clock: Clock) -> Self {
        Self { bar, shared, clock, last: Instant::now(), before: live(shared) }
    }

    fn tick(&mut self) {
        self.bar.set_position(self.clock.start.elapsed().as_millis() as u64);
        let seconds = self.last.elapsed().as_secs_f64();
        if seconds < 1.0 {
            return;
        }
        let now = live(self.shared);
        let [requests, bytes, nanos] =
            [0, 1, 2].map(|i| now[i].wrapping_sub(self.before[i]) as f64);
        self.bar.set_message(format!(
            "{} IOPS  {} MB/s  mean {}",
            text::grouped(requests / seconds),
            text::grouped(bytes / seconds * 1e-6),
            text::seconds(nanos / requests.max(1.0) * 1e-9),
        ));
        (self.last, self.before) = (Instant::now(), now);
    }
}
