//! `ebb load`: load on an NVMe/TCP target, measured or verified (docs/load.md).

pub mod args;
pub mod arrivals;
mod job;
pub mod meter;
mod plan;
mod replay;
mod report;
mod session;
mod verify;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use ebb_initiator::{Controller, Error, Identity};
use ebb_trace::Op;

use crate::latency::Latency;
use crate::measured::{Live, Show};
pub use args::LoadArgs;
use arrivals::{Arrivals, Phase};
use ebb_cli::args::Changes;
use ebb_cli::input::Traces;
use ebb_cli::progress::Progress;
use ebb_cli::{Interrupted, out};
use job::{Clock, Closed, Feed, Open, Sweep};
use meter::Meter;
use plan::{Pace, Plan};
use replay::{Reader, TraceReport};
pub use report::Report;
use report::Verified;
use session::{Session, shares};
use verify::{Findings, Verifier};
use worker::{Shared, Worker};

/// Runs `ebb load`.
pub fn run(args: &LoadArgs) -> Result<()> {
    let mut load = Load::connect(args, Progress::new(args.quiet))?;
    // From now on there is something to report; before, a signal simply ends us.
    load.stop_on_signals()?;
    let plan = load.shared.plan.clone();
    let mut ended = if plan.fill { load.fill()? } else { None };
    let mut measured = None;
    if ended.is_none() {
        let (done, early) = load.measure()?;
        (measured, ended) = (Some(done), early);
    }
    if ended.is_none() && plan.verify {
        ended = load.sweep("read back", Op::Read)?;
    }
    let verified = plan.verify.then(|| Verified::new(&load.findings, ended.is_none()));
    let outages = std::mem::take(&mut load.session.outages);
    let identity = load.identity.clone();
    let interrupted = matches!(ended, Some(Ended::Interrupted));
    let report = Report::new(&plan, identity, measured, ended, &outages, verified)?;
    if args.json {
        out::json(&report)?;
    } else {
        out::print(report.text())?;
    }
    let swept = load.findings.first_failure.take();
    load.close();
    let swept = swept.map(|why| format!("filling or reading back failed: {why}"));
    match report.failure().or(swept) {
        Some(why) if interrupted => Err(anyhow::Error::from(Interrupted).context(why)),
        Some(why) => Err(anyhow!(why)),
        None => Ok(()),
    }
}

/// The trace to replay.
fn traces(args: &LoadArgs) -> Result<Option<Traces>> {
    let Some(file) = &args.work.trace else { return Ok(None) };
    let changes = Changes { rate_scale: args.work.speed, ..Changes::default() };
    let traces = Traces::new(vec![file.clone()], args.work.reading, changes)?.for_runs(1, false)?;
    // A trace that cannot be read is told of before anything is sent.
    traces.check(None)?;
    Ok(Some(traces))
}

/// Why a load ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The connection is gone.
    #[error(transparent)]
    Lost(#[from] Error),
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

/// A load that is connected to its target.
pub struct Load {
    session: Session,
    identity: Identity,
    shared: Arc<Shared>,
    traces: Option<Traces>,
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

impl Measured {
    /// Latencies of all requests, in nanoseconds from their intended starts.
    ///
    /// # Errors
    /// None: histograms of equal form always merge.
    pub fn latency(&self) -> Result<Latency> {
        self.meter.requests.latency()
    }
    /// Latencies of the requests of the first 10 ms of bursts, where there are bursts.
    pub fn onset(&self) -> Option<&Latency> {
        self.meter.phases.as_ref().map(|phases| &phases[Phase::Onset as usize])
    }
    /// Time counted.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.meter.errors.values().sum()
    }
    /// Requests that were due and never sent.
    pub fn unsent(&self) -> u64 {
        self.meter.unsent
    }
}

impl Load {
    /// Connects to the target and checks the options against what it has.
    ///
    /// # Errors
    /// Wrong options, a trace that cannot be read, a target that cannot be reached.
    pub fn connect(args: &LoadArgs, progress: Progress) -> Result<Self> {
        let traces = traces(args)?;
        let target = plan::target(args)?;
        let mut controller = Controller::connect(&target)?;
        let plan = Arc::new(Plan::new(args, target, &mut controller)?);
        let identity = controller.identity().clone();
        let shared = Arc::new(Shared {
            plan: plan.clone(),
            verifier: plan.verify.then(|| Verifier::new(&plan)),
            broken: AtomicBool::new(false),
            stop: Arc::default(),
            live: plan.cores.iter().map(|_| Live::default()).collect(),
        });
        let session = Session::new(plan, controller);
        Ok(Self { session, identity, shared, traces, findings: Findings::default(), progress })
    }

    /// Lets SIGINT and SIGTERM end the load with a report; the second one ends the process.
    fn stop_on_signals(&self) -> Result<()> {
        for signal in [SIGINT, SIGTERM] {
            let stop = &self.shared.stop;
            flag::register_conditional_shutdown(signal, 1, stop.clone())?;
            flag::register(signal, stop.clone())?;
        }
        Ok(())
    }

    /// Writes everything once; returns what ended it early.
    ///
    /// # Errors
    /// None that belong to the target: those are returned.
    pub fn fill(&mut self) -> Result<Option<Ended>> {
        self.sweep("fill", Op::Write)
    }

    /// Writes or reads everything once.
    fn sweep(&mut self, label: &str, op: Op) -> Result<Option<Ended>> {
        let plan = self.shared.plan.clone();
        let clock = Clock { end: None, ..Clock::new(&plan) };
        let threads = plan.cores.len();
        let feed = |index| Box::new(Sweep::new(&plan, op, index, threads)) as Box<dyn Feed>;
        let mut workers: Vec<Worker> = (0..threads)
            .map(|index| Worker::new(index, self.shared.clone(), clock, feed(index)))
            .collect();
        let bytes = plan.spaces.iter().map(|s| s.blocks * u64::from(s.namespace.block_size)).sum();
        let bar = self.progress.bar(label, Some(bytes));
        let before = Live::sum(&self.shared.live)[1];
        let shared = self.shared.clone();
        let mut tick = || bar.set_position(Live::sum(&shared.live)[1].wrapping_sub(before));
        let worked = self.session.work(&mut workers, &self.shared, &clock, &mut tick);
        bar.finish_and_clear();
        for worker in workers {
            self.findings.merge(worker.findings);
        }
        Ok(self.early(worked))
    }

    /// The load itself, and what ended it early.
    ///
    /// # Errors
    /// A trace that turns out not to be readable.
    pub fn measure(&mut self) -> Result<(Measured, Option<Ended>)> {
        let plan = self.shared.plan.clone();
        let clock = Clock::new(&plan);
        let (reader, feeds) = feeds(&plan, self.traces.as_ref(), clock)?;
        let mut workers = Vec::new();
        for (index, feed) in feeds.into_iter().enumerate() {
            let mut worker = Worker::new(index, self.shared.clone(), clock, feed);
            worker.measure()?;
            workers.push(worker);
        }
        let length = plan.duration.map(|duration| duration.as_millis() as u64);
        let bar = self.progress.bar("load", length);
        let shared = self.shared.clone();
        let mut show = Show::new(&bar, &shared.live);
        let mut tick = || show.tick(Some(clock.start.elapsed().as_millis() as u64));
        let worked = self.session.work(&mut workers, &self.shared, &clock, &mut tick);
        bar.finish_and_clear();
        let (early, stopped) = (self.early(worked), Instant::now());
        let due = if early.is_some() { Some(stopped) } else { clock.end };
        // All at once: a trace's reader serves them in turn and waits for the one that is full.
        std::thread::scope(|scope| {
            for worker in &mut workers {
                scope.spawn(move || worker.finish(due));
            }
        });
        let mut meter = Meter::new(plan.has_bursts())?;
        for mut worker in workers {
            self.findings.merge(std::mem::take(&mut worker.findings));
            if let Some(part) = worker.meter.take() {
                meter.merge(&part)?;
            }
        }
        let trace = reader.map(Reader::finish).transpose()?;
        // Until the planned end, unless it was never reached; and at least to the last answer.
        let planned = clock.end.filter(|_| early.is_none());
        let end = planned.max(meter.last).unwrap_or(stopped);
        let elapsed = end.saturating_duration_since(clock.counted);
        Ok((Measured { meter, elapsed, trace }, early))
    }

    fn early(&self, worked: Result<(), Error>) -> Option<Ended> {
        match worked {
            _ if self.shared.stop.load(Ordering::Relaxed) => Some(Ended::Interrupted),
            worked => worked.err().map(Ended::Lost),
        }
    }

    /// Ends all connections in order, as far as the target takes part.
    pub fn close(self) {
        self.session.close();
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
            Pace::Closed | Pace::Trace(_) => {
                Box::new(Closed::new(plan, clock, range.start, range.len()))
            }
        };
        feed
    });
    Ok((None, feeds.collect()))
}
