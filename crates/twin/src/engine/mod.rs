//! The engine: one run of one policy over one workload, in virtual time.
//!
//! Sequential and deterministic: the same run gives the same bytes. One file is one idea: the
//! event queue, I/Os in flight, cores, drives, the path of a request, the write-back log,
//! background work, the meters, the climate, the control loop.

mod array;
mod background;
mod best_effort;
mod cache;
mod climate;
mod cores;
mod device;
mod drive_queue;
mod events;
mod governor;
mod idle;
mod io;
mod jobs;
mod latency;
mod log;
mod meter;
mod network;
mod path;
mod pilot;
mod prefetch;
mod quota;
mod rate;
mod senses;
mod stripes;
mod supply;
mod waiting;
mod weather;

use std::collections::VecDeque;
use std::ops::Range;

use ebb_policy::live::{WATCH, limitable};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Conflict, Cycle, InForce, Limits, PERIOD, Policy, Request, Topology};
use ebb_trace::generate::Job;
use ebb_trace::{TraceError, Workload};

use crate::faults::Faults;
use crate::hdd::Wear;
use crate::outcome::{Energy, Observer, Outcome, Trip};
use crate::profile::{DriveModel, Profile};
use array::Array;
use background::Backlog;
use best_effort::BestEffort;
use cache::ReadCache;
use climate::Climate;
use cores::Cores;
use events::{Event, Events};
use governor::Governing;
use io::{Ios, NONE, Queue};
use jobs::Jobs;
use meter::Meter;
use network::Network;
pub use senses::AsHost;
use senses::Senses;
use supply::{Due, Supply};

/// One run: a server, a policy, a workload.
pub struct Run<'a> {
    /// The server.
    pub profile: &'a Profile,
    /// The policy; made for [`Run::profile`]'s topology.
    pub policy: Box<dyn Policy>,
    /// Who caps what the policy asks for; nobody when `None`.
    pub coordinator: Option<Box<dyn Policy>>,
    /// What the operator holds by hand, beside the policy; nothing when `None`.
    pub operator: Option<Request>,
    /// What the guard enforces.
    pub limits: Limits,
    /// What the drives' measured power is held against; enforced only if in [`Run::limits`], so
    /// that an uncapped reference can be measured too.
    pub ssd_budget: Option<Watts>,
    /// What the operator states anew in the course of the run, in the order of time.
    pub changes: Vec<Change>,
    /// Where requests come from.
    pub workload: Workload,
    /// Jobs for the cores that run them, beside the requests.
    pub jobs: Vec<Job>,
    /// Seed of everything random inside the server; the same for runs to be compared.
    pub seed: u64,
    /// When to stop taking requests; at the workload's end when `None`.
    pub duration: Option<Nanos>,
    /// Time at the start that is simulated but not counted, rounded up to control periods.
    pub warmup: Nanos,
    /// Parts of the run to be counted one by one, in order and apart: each begins and, but for one
    /// at the run's end, ends on a multiple of [`WINDOW`](crate::windows::WINDOW).
    pub spells: Vec<Range<Nanos>>,
    /// Injected faults of sensors, fans, frequencies, power states and job shares.
    pub faults: Option<Faults>,
    /// What a host would sense and could set of it; all, exactly and at once, when `None`.
    pub senses: Option<AsHost>,
}

impl<'a> Run<'a> {
    /// This policy alone over the whole workload, nothing held, injected or left out.
    #[must_use]
    pub fn of(
        profile: &'a Profile,
        policy: Box<dyn Policy>,
        workload: Workload,
        seed: u64,
    ) -> Self {
        Self {
            profile,
            policy,
            coordinator: None,
            operator: None,
            limits: Limits::default(),
            ssd_budget: None,
            changes: Vec::new(),
            workload,
            jobs: Vec::new(),
            seed,
            duration: None,
            warmup: Nanos::ZERO,
            spells: Vec::new(),
            faults: None,
            senses: None,
        }
    }
}

/// A new tolerance or budget from a time on.
pub struct Change {
    /// From the first control period that ends then or later.
    pub at: Nanos,
    /// The policy, made for them; the one before goes on when `None`.
    pub policy: Option<Box<dyn Policy>>,
    /// What the drives' measured power is held against.
    pub ssd_budget: Option<Watts>,
    /// What of it the guard enforces.
    pub limit: Option<Watts>,
    /// The budget of the whole server ([`Limits::server_budget`]).
    pub server_budget: Option<Watts>,
}

/// Why a run could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum TwinError {
    /// The trace could not be read on.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A request the server cannot serve.
    #[error("request {number} at {at}: {reason}")]
    Request {
        /// Which, from 1.
        number: u64,
        /// When it arrived.
        at: Nanos,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The server cannot be simulated.
    #[error("{0}")]
    Setup(String),
    /// A die got so hot that the server switched itself off.
    #[error(transparent)]
    Trip(#[from] Trip),
}

/// The end of time.
const NEVER: u64 = u64::MAX;
/// Longest latency told apart in the histogram, nanoseconds: one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Everything of one run.
struct Engine<'a> {
    profile: &'a Profile,
    now: u64,
    /// When the last control period ended.
    period_start: u64,
    /// When the present one ends.
    next_tick: u64,
    /// End of warm-up; 0 once it is over.
    warmup: u64,
    /// When to stop taking requests; the end of time for the workload's end.
    until: u64,
    seed: u32,
    events: Events,
    ios: Ios,
    supply: Supply,
    due: Due,
    network: Option<Network>,
    cores: Cores,
    array: Array,
    /// What had worn each drive's mechanics by the end of warm-up.
    worn: Vec<Wear>,
    cache: Option<ReadCache>,
    backlog: Option<Backlog>,
    best_effort: Option<BestEffort>,
    jobs: Option<Jobs>,
    governing: Option<Governing>,
    senses: Option<Senses>,
    meter: Meter,
    /// What the control cycle has put in force, and whether it has run at all.
    in_force: InForce,
    opened: bool,
    /// Energy of the last control period.
    drawn: Energy,
    climate: Option<Climate>,
    /// Requests so far.
    arrivals: u64,
    users_in_flight: u64,
    ssd_budget: Option<Watts>,
    /// Changes still to be made.
    changes: VecDeque<Change>,
    /// When the last request was to be sent, and when the last user got an answer.
    last_request: u64,
    last_answer: u64,
    /// Size of the write-back buffer; 0 writes through.
    write_buffer: u64,
    /// Acknowledged bytes not yet on the drives.
    unflushed: u64,
    /// Writes that wait for room in the write-back buffer.
    stalled: Queue,
    /// Bytes in the open chunk of the log.
    log_filled: u64,
    /// Where the log's next chunk goes.
    log_address: u64,
}

/// Simulates `run` to its end.
///
/// # Errors
/// When the workload's trace is unreadable or asks for what the server does not have, or the
/// server switches itself off for heat.
pub fn run(run: Run<'_>, observer: &mut dyn Observer) -> Result<Outcome, TwinError> {
    let outcome = run_to_trip(run, observer)?;
    match outcome.trip {
        Some(trip) => Err(trip.into()),
        None => Ok(outcome),
    }
}

/// Simulates `run` to its end or, as [`Outcome::trip`] tells, to the end of the control period in
/// which the server switched itself off for heat.
///
/// # Errors
/// When the workload's trace is unreadable or asks for what the server does not have.
pub fn run_to_trip(run: Run<'_>, observer: &mut dyn Observer) -> Result<Outcome, TwinError> {
    let (mut engine, mut cycle) = Engine::new(run)?;
    engine.open(&mut cycle, observer);
    let served = engine.serve(&mut cycle, observer);
    match served.and_then(|()| engine.rest(&mut cycle, observer)) {
        Ok(()) | Err(TwinError::Trip(_)) => Ok(engine.close()),
        Err(error) => Err(error),
    }
}

/// What policies see of the server.
fn plant(profile: &Profile, model: &DriveModel, senses: Option<AsHost>) -> Topology {
    let mut topology = profile.topology_of(model);
    if let Some(how) = senses {
        topology.limitable = limitable(how.throttle, how.throttle);
    }
    topology
}

impl<'a> Engine<'a> {
    fn new(run: Run<'a>) -> Result<(Self, Cycle), TwinError> {
        let Run { profile, policy, limits, ssd_budget, workload, jobs, seed, duration, .. } = run;
        let model = profile.model().ok_or_else(|| {
            TwinError::Setup(format!("unknown drive model '{}'", profile.drives.model))
        })?;
        let topology = plant(profile, model, run.senses);
        let mut cycle = Cycle::new(&topology, policy, limits);
        let refused = |error: Conflict| TwinError::Setup(error.to_string());
        if let Some(coordinator) = run.coordinator {
            cycle = cycle.coordinated(coordinator).map_err(refused)?;
        }
        if let Some(operator) = run.operator {
            cycle = cycle.held(operator).map_err(refused)?;
        }
        if let Some(faults) = &run.faults {
            faults.check(profile).map_err(TwinError::Setup)?;
        }
        let climate = Climate::new(profile, seed, run.faults);
        let (mut events, mut due) = (Events::new(), Due::new());
        let backlog = profile.background.clone().map(Backlog::new);
        if let Some(interval) = backlog.as_ref().and_then(Backlog::interval) {
            events.push(interval, Event::Background);
        }
        let jobs = Jobs::new(profile, jobs)?;
        if jobs.is_some() {
            events.push(0, Event::Slice);
        }
        let governing = Governing::new(profile, &mut events);
        let (cache, until) = (profile.cache.as_ref(), duration.map_or(NEVER, |until| until.0));
        let engine = Self {
            now: 0,
            period_start: 0,
            next_tick: PERIOD.0,
            warmup: run.warmup.0,
            until,
            seed: seed as u32 ^ (seed >> 32) as u32,
            meter: Meter::new(profile, LONGEST, &run.spells, &workload.parts())
                .map_err(|error| TwinError::Setup(format!("latency histogram: {error}")))?,
            best_effort: BestEffort::of(workload.parts()),
            supply: Supply::start(workload, until, &mut events, &mut due)?,
            due,
            events,
            ios: Ios::default(),
            network: Network::new(profile),
            cores: Cores::new(profile).watched(run.senses.map(|_| WATCH)),
            array: Array::new(profile, model, seed),
            worn: vec![Wear::default(); usize::from(profile.drives.count)],
            cache: cache.filter(|cache| cache.size.0 > 0).map(ReadCache::new),
            backlog,
            jobs,
            governing,
            senses: run.senses.map(|how| Senses::new(how, profile, model, seed)),
            in_force: InForce::new(&topology),
            opened: false,
            drawn: Energy::default(),
            climate,
            arrivals: 0,
            users_in_flight: 0,
            ssd_budget,
            changes: run.changes.into(),
            last_request: 0,
            last_answer: 0,
            write_buffer: cache.map_or(0, |cache| cache.write_buffer.0),
            unflushed: 0,
            stalled: Queue::EMPTY,
            log_filled: 0,
            log_address: 0,
            profile,
        };
        Ok((engine, cycle))
    }

    /// Works through arrivals and events in time order until users' requests are all answered.
    fn serve(&mut self, cycle: &mut Cycle, observer: &mut dyn Observer) -> Result<(), TwinError> {
        self.send_due()?;
        let mut coming = self.supply.next_time(self.until);
        loop {
            // An arrival held up by overload comes as soon as there is room.
            let room = self.ios.len() < path::MOST_IN_FLIGHT;
            let arrival = coming.filter(|_| room).map(|at| at.max(self.now));
            let event = self.events.next_time();
            if coming.is_none() && self.finished() {
                return Ok(());
            }
            if self.next_tick <= arrival.unwrap_or(event).min(event) {
                self.now = self.next_tick;
                self.next_tick += PERIOD.0;
                self.tick(cycle, observer)?;
            } else if let Some(arrival) = arrival
                && arrival < event
            {
                self.now = arrival;
                if let Some(request) = self.supply.take() {
                    self.arrive(&request, NONE)?;
                }
                self.supply.refill()?;
                coming = self.supply.next_time(self.until);
            } else {
                self.now = event;
                self.handle()?;
                self.send_due()?;
            }
        }
    }

    /// Lets the slots send that have their next request ready.
    fn send_due(&mut self) -> Result<(), TwinError> {
        if self.due.is_empty() {
            return Ok(());
        }
        // Where they are: what was just written piece by piece is slow to be copied at large.
        let mut due = std::mem::take(&mut self.due);
        for (slot, request) in due.iter().rev() {
            self.arrive(request, *slot)?;
        }
        debug_assert!(self.due.is_empty(), "a request was answered as it arrived");
        due.clear();
        self.due = due;
        Ok(())
    }

    /// Whether no user waits and none will come.
    fn finished(&self) -> bool {
        self.users_in_flight == 0 && !self.supply.has_planned() && !self.jobs_go_on()
    }

    /// Carries out the next event.
    fn handle(&mut self) -> Result<(), TwinError> {
        match self.events.pop() {
            Some(Event::CoreDone(core)) if self.cores.is_due(self.now, core) => {
                let (io, next) = self.cores.done(&self.ios, &mut self.events, self.now, core);
                if let Some(next) = next {
                    self.look_ahead(next);
                }
                self.stage_done(io);
            }
            Some(Event::Served(io)) => self.served(io),
            Some(Event::DiskDone(_, io)) => {
                self.array.done(&self.ios, &mut self.events, self.now, io);
                self.served(io);
            }
            Some(Event::Slot(slot)) => {
                if let Some(request) = self.supply.planned(slot) {
                    self.arrive(&request, slot)?;
                }
            }
            Some(Event::Background) => {
                if let Some(backlog) = &mut self.backlog {
                    backlog.accrue(self.now);
                    if let Some(interval) = backlog.interval() {
                        self.events.push(self.now + interval, Event::Background);
                    }
                    self.start_tasks();
                }
            }
            Some(Event::PowerState(_)) => self.array.written(&mut self.events, self.now),
            Some(Event::Access(drive)) => {
                self.array.access_ended(&mut self.events, self.now, drive);
            }
            Some(Event::Burst(job)) => return self.burst(job),
            Some(Event::Slice) => return self.slice(),
            Some(Event::Arrived(io)) => self.enter(io),
            Some(Event::BestEffort) => self.best_effort_enters(),
            Some(Event::Admitted(io)) => {
                self.array.admit(&mut self.ios, &mut self.events, self.now, io);
            }
            Some(Event::Rated(drive, way)) => {
                self.array.rated(&mut self.ios, &mut self.events, self.now, (drive, way));
            }
            Some(Event::Room(drive)) => {
                self.array.room(&self.ios, &mut self.events, self.now, drive);
            }
            Some(Event::Governor) => {
                if let Some(governing) = &mut self.governing {
                    governing.look(&mut self.cores, &mut self.events, self.now);
                }
            }
            Some(Event::Watch) => self.cores.look(&mut self.events, self.now),
            Some(Event::PowerLimit) => self.cores.keep_power(&mut self.events, self.now),
            Some(Event::CoreDone(_)) | None => {}
        }
        Ok(())
    }

    /// When the last request came, or the end asked for.
    fn asked(&self) -> u64 {
        if self.until == NEVER { self.last_request } else { self.until }
    }

    /// Lets time pass to the end of the run.
    fn rest(&mut self, cycle: &mut Cycle, observer: &mut dyn Observer) -> Result<(), TwinError> {
        let end = self.asked().max(self.last_answer).max(self.now);
        while self.next_tick < end {
            while self.events.next_time() <= self.next_tick {
                self.now = self.events.next_time();
                // Users are served: what is left is background work, which cannot fail.
                let _ = self.handle();
            }
            self.now = self.next_tick;
            self.next_tick += PERIOD.0;
            self.tick(cycle, observer)?;
        }
        self.now = end;
        if end > self.period_start {
            self.tick(cycle, observer)?;
        }
        Ok(())
    }

    /// Closes the books.
    fn close(self) -> Outcome {
        let (end, asked) = (Nanos(self.now), Nanos(self.asked()));
        let mut outcome = self.meter.finish();
        outcome.trip = self.climate.as_ref().and_then(|climate| climate.trip);
        outcome.thermal = self.climate.as_ref().map(|climate| *climate.totals());
        outcome.most_capped = self.array.most_capped();
        let worn = self.array.wear().zip(&self.worn);
        for (total, (wear, before)) in outcome.drives.iter_mut().zip(worn) {
            total.wear = wear.since(before);
        }
        (outcome.end, outcome.asked) = (end, asked);
        // A server that tripped may have had temperatures beyond all numbers.
        if outcome.trip.is_none() {
            assert_books_balance(&outcome);
            let all = self.until < NEVER || self.supply.is_used_up();
            assert!(all, "every request that was read is served");
        }
        outcome.jobs = self.jobs.as_ref().map(Jobs::totals).unwrap_or_default();
        if let Some(backlog) = &self.backlog {
            outcome.background_done = backlog.done();
            outcome.background_pending = backlog.pending();
        }
        outcome
    }
}

/// Every joule is in one account and every request in one row.
///
/// # Panics
/// Where they are not.
fn assert_books_balance(outcome: &Outcome) {
    let close = |sum: f64, total: f64| (sum - total).abs() <= 1e-6 * total.abs().max(1.0);
    let (ssd, drives) = (outcome.energy.ssd.0, outcome.drives.iter());
    let sum = drives.map(|drive| drive.energy.0).sum::<f64>();
    assert!(close(sum, ssd), "drives took {sum} J each for itself, {ssd} J together");
    let Energy { cpu, ssd, memory, nic, fans, other, psu_loss } = outcome.energy;
    for joules in [cpu, ssd, memory, nic, fans, other, psu_loss] {
        assert!(joules.0 >= 0.0 && joules.0.is_finite(), "{:?}", outcome.energy);
    }
    assert!(
        outcome.latency.len() <= outcome.requests,
        "latencies are of requests that were served"
    );
    assert!(outcome.reads <= outcome.requests);
}
