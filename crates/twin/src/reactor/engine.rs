//! The engine: events in order of time, the scheduler's steps, the account at the end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use ebb_policy::reactor::{
    CoreLoad, Machine, Period, Placement, Queue, Queues, Scheduler, Shift, Speed, ThreadLoad, Wait,
};
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::TraceError;

use super::hyper_thread::{CoreState, Run};
use super::load::{Arrival, Arrivals, arrivals_rng};
use super::power::{Energy, Meter, State};
use super::{Profile, Setup, Shown, Software};
use crate::factors::{FACTORS, factors};
use crate::windows::Windows;

/// Latencies beyond are recorded as this, in nanoseconds.
const LONGEST: u64 = 600_000_000_000;
/// No event: the end of time.
const NEVER: Nanos = Nanos(u64::MAX);

/// What happens at an event's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A new frequency is in force.
    Speed(u16, Speed),
    /// The core is free, or has woken.
    Ready(u16),
    /// The core has spun long enough.
    Spun(u16),
    /// The drives finished a phase of a request.
    Drives(u32),
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub at: Nanos,
    pub thread: u16,
    pub write: bool,
    pub phase: u8,
    pub bytes: u32,
}

/// One lightweight thread.
#[derive(Debug, Default)]
pub(super) struct ThreadState {
    pub arrived: VecDeque<u32>,
    pub finished: VecDeque<u32>,
    pub load: ThreadLoad,
    pub polled: Nanos,
}

/// What has come together by some time.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    cores: f64,
    served: Nanos,
    asleep: Nanos,
    commands: u64,
    moves: u64,
    wakes: u64,
}

pub(super) struct Engine<'a> {
    pub profile: &'a Profile,
    scheduler: Box<dyn Scheduler + 'a>,
    pub placement: Placement,
    pub rng: Pcg64Mcg,
    /// Of the arrivals alone, so that they are the same whatever the scheduler does.
    arrivals_rng: Pcg64Mcg,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    arrivals: Arrivals,
    pub cores: Vec<CoreState>,
    pub threads: Vec<ThreadState>,
    pub queues: Vec<Queue>,
    /// Requests in all network queues.
    waiting: usize,
    pub flights: Vec<Flight>,
    pub free: Vec<u32>,
    pub meter: Meter,
    /// Cycles are this many times those of the target's own path.
    pub slower: f64,
    /// Work on the main core takes this many times as long, for its fine steps.
    pub watching: f64,
    read_times: Vec<u64>,
    write_times: Vec<u64>,
    duration: Nanos,
    pub warmup: Nanos,
    next_fine: Nanos,
    next_coarse: Nanos,
    next_tick: Nanos,
    pub shown: Shown,
    total: Account,
    /// The account at the end of the last coarse period.
    last: Account,
    loads: Vec<CoreLoad>,
    thread_loads: Vec<ThreadLoad>,
}

impl<'a> Engine<'a> {
    pub fn new(setup: Setup<'a>) -> Self {
        let Setup { profile, mut scheduler, load, software, duration, warmup, seed } = setup;
        let machine = profile.machine();
        let (cores, threads) = (machine.cores.len(), usize::from(machine.threads));
        let mut placement = Placement::even(machine);
        scheduler.start(&mut placement);
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let drive = &profile.drive;
        let read_times = times(drive.read, drive.variation);
        let write_times = times(drive.write, drive.variation);
        let next_fine = scheduler.fine_period().unwrap_or(NEVER);
        let watching = scheduler
            .fine_period()
            .map_or(1.0, |period| 1.0 + profile.cost.fine.0 as f64 / period.0 as f64);
        let mut engine = Self {
            profile,
            scheduler,
            rng,
            arrivals_rng: arrivals_rng(seed),
            events: BinaryHeap::new(),
            arrivals: Arrivals::new(load),
            cores: (0..cores).map(|_| CoreState::default()).collect(),
            threads: (0..threads).map(|_| ThreadState::default()).collect(),
            queues: vec![Queue::default(); threads],
            waiting: 0,
            flights: Vec::new(),
            free: Vec::new(),
            meter: Meter::new(&profile.power, cores / 2),
            slower: if software == Software::Kernel { profile.cost.kernel_factor } else { 1.0 },
            watching,
            read_times,
            write_times,
            duration,
            warmup,
            next_fine,
            next_coarse: profile.coarse,
            next_tick: profile.wake.tick,
            shown: empty(),
            total: Account::default(),
            last: Account::default(),
            loads: vec![CoreLoad::default(); cores],
            thread_loads: vec![ThreadLoad::default(); threads],
            placement,
        };
        for (thread, core) in engine.placement.core_of().iter().enumerate() {
            engine.cores[usize::from(*core)].threads.push(thread as u16);
        }
        for core in 0..cores {
            engine.go_idle(core, Nanos::ZERO);
        }
        engine
    }

    pub fn push(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    pub fn wait(&self, core: usize) -> Wait {
        self.placement.waits()[core]
    }

    /// The time of some drive commands that run side by side.
    pub fn drive_time(&mut self, commands: u32, write: bool) -> Nanos {
        let mut slowest = 0;
        for _ in 0..commands {
            let draw = self.rng.random_range(0..FACTORS);
            let times = if write { &self.write_times } else { &self.read_times };
            slowest = slowest.max(times[draw]);
        }
        self.total.commands += u64::from(commands);
        Nanos(slowest)
    }

    pub fn run(mut self) -> Result<Shown, TraceError> {
        let mut before = None;
        let mut arrival = self.arrive()?;
        loop {
            let event = self.events.peek().map_or(NEVER, |Reverse((at, _))| *at);
            let step = self.next_coarse.min(self.next_fine).min(self.next_tick);
            let at = arrival.map_or(NEVER, |arrival| arrival.at);
            let now = event.min(step).min(at);
            if before.is_none() && now >= self.warmup {
                before = Some(self.account(self.warmup));
            }
            if now >= self.duration {
                break;
            }
            if now == step {
                self.step(now);
            } else if now == event {
                if let Some(Reverse((_, event))) = self.events.pop() {
                    self.handle(now, event);
                }
            } else if let Some(one) = arrival {
                self.enqueue(one);
                arrival = self.arrive()?;
            }
        }
        let after = self.account(self.duration);
        let before = before.unwrap_or_default();
        let span = self.duration.saturating_sub(self.warmup);
        let energy = self.energy(span, &before, &after);
        let (served, asleep) = (after.served - before.served, after.asleep - before.asleep);
        let (moves, wakes) = (after.moves - before.moves, after.wakes - before.wakes);
        let peak = if span > Nanos::ZERO { energy.total() / span } else { Watts(0.0) };
        let peak = Watts(self.shown.peak.0.max(peak.0));
        Ok(Shown { energy, span, served, asleep, moves, wakes, peak, ..self.shown })
    }

    /// What was drawn between two accounts that are `span` apart.
    fn energy(&self, span: Nanos, from: &Account, to: &Account) -> Energy {
        let (served, commands) = (to.served - from.served, to.commands - from.commands);
        Energy::of(&self.profile.power, span, to.cores - from.cores, served, commands)
    }

    fn arrive(&mut self) -> Result<Option<Arrival>, TraceError> {
        let threads = self.placement.machine().threads;
        self.arrivals.next(self.duration, threads, &mut self.arrivals_rng)
    }

    fn account(&mut self, now: Nanos) -> Account {
        for core in 0..self.cores.len() {
            self.rested(core, now);
        }
        Account { cores: self.meter.energy(now), ..self.total }
    }

    fn enqueue(&mut self, arrival: Arrival) {
        let Arrival { at, thread, write, bytes } = arrival;
        let flight = Flight { at, thread, write, phase: 0, bytes };
        let id = match self.free.pop() {
            Some(id) => {
                self.flights[id as usize] = flight;
                id
            }
            None => {
                self.flights.push(flight);
                self.flights.len() as u32 - 1
            }
        };
        self.shown.arrived += u64::from(at >= self.warmup);
        let index = usize::from(thread);
        self.threads[index].arrived.push_back(id);
        let depth = self.threads[index].arrived.len() as u32;
        self.queues[index].depth = depth;
        let load = &mut self.threads[index].load;
        load.peak_depth = load.peak_depth.max(depth);
        self.waiting += 1;
        self.kick(self.core_of(thread), at, Nanos::ZERO);
    }

    /// Takes the oldest request out of a network queue.
    pub fn take(&mut self, thread: usize) -> Option<u32> {
        let id = self.threads[thread].arrived.pop_front()?;
        self.queues[thread].depth -= 1;
        self.waiting -= 1;
        Some(id)
    }

    pub fn core_of(&self, thread: u16) -> usize {
        usize::from(self.placement.core_of()[usize::from(thread)])
    }

    /// Books time on requests.
    pub fn serve_time(&mut self, thread: usize, core: usize, time: Nanos) {
        self.total.served += time;
        self.threads[thread].load.busy += time;
        self.cores[core].busy += time;
    }

    /// Books time that a core was asleep.
    pub fn sleep_time(&mut self, core: usize, time: Nanos) {
        self.total.asleep += time;
        self.cores[core].asleep += time;
    }

    pub fn woken(&mut self) {
        self.total.wakes += 1;
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Speed(core, speed) => self.meter.set_speed(usize::from(core), now, speed),
            Event::Ready(core) => self.ready(usize::from(core), now),
            Event::Spun(core) => self.spun(usize::from(core), now),
            Event::Drives(id) => {
                let thread = self.flights[id as usize].thread;
                self.threads[usize::from(thread)].finished.push_back(id);
                self.kick(self.core_of(thread), now, Nanos::ZERO);
            }
        }
    }

    fn step(&mut self, now: Nanos) {
        if now == self.next_coarse {
            self.next_coarse += self.profile.coarse;
            self.coarse(now);
        } else if now == self.next_fine {
            self.fine(now);
        } else {
            self.next_tick += self.profile.wake.tick;
            self.deepen(now);
        }
    }

    fn coarse(&mut self, now: Nanos) {
        let length = self.profile.coarse;
        let account = self.account(now);
        if now.saturating_sub(self.warmup) >= length {
            let energy = self.energy(length, &self.last, &account).total();
            self.shown.peak = Watts(self.shown.peak.0.max((energy / length).0));
            self.shown.periods.push(energy.0);
        }
        self.last = account;
        for core in 0..self.cores.len() {
            let state = &mut self.cores[core];
            let busy = std::mem::take(&mut state.busy).min(length);
            let asleep = std::mem::take(&mut state.asleep).min(length.saturating_sub(busy));
            let wasted = length.saturating_sub(busy).saturating_sub(asleep);
            self.loads[core] = CoreLoad { busy, wasted, asleep };
        }
        for (load, thread) in self.thread_loads.iter_mut().zip(&mut self.threads) {
            *load = std::mem::take(&mut thread.load);
        }
        let awake = |core: &usize| self.meter.state(*core) == State::Active;
        let awake = (0..self.cores.len()).filter(awake).count();
        self.shown.awake.push((now.seconds(), awake as u16));
        let (cores, threads) = (&self.loads, &self.thread_loads);
        self.placement.begin();
        let period = Period { now, length, cores, threads };
        self.scheduler.coarse(&period, &mut self.placement);
        self.carry_out(now);
    }

    fn fine(&mut self, now: Nanos) {
        let main = usize::from(Machine::MAIN);
        if self.cores[main].run == Run::Blocked {
            // Nobody looks until something wakes the main core.
            self.next_fine = NEVER;
            return;
        }
        if self.cores[main].serves_until > now {
            self.next_fine = self.cores[main].serves_until;
            return;
        }
        self.resume_fine(now);
        for (queue, thread) in self.queues.iter_mut().zip(&self.threads) {
            queue.since_poll = now.saturating_sub(thread.polled);
        }
        self.placement.begin();
        let queues = Queues { now, threads: &self.queues };
        self.scheduler.fine(&queues, &mut self.placement);
        self.carry_out(now);
    }

    /// The main core looks again one period from `now`.
    pub fn resume_fine(&mut self, now: Nanos) {
        self.next_fine = self.scheduler.fine_period().map_or(NEVER, |period| now + period);
    }

    /// Does what the scheduler asked for, in its order.
    fn carry_out(&mut self, now: Nanos) {
        for index in 0..self.placement.shifts().len() {
            match self.placement.shifts()[index] {
                Shift::Move { thread, from, to, .. } => {
                    self.total.moves += 1;
                    let list = &mut self.cores[usize::from(from)].threads;
                    list.retain(|one| *one != thread);
                    self.cores[usize::from(to)].threads.push(thread);
                    let state = &self.threads[usize::from(thread)];
                    if !state.arrived.is_empty() || !state.finished.is_empty() {
                        self.kick(usize::from(to), now, self.profile.cost.message);
                    }
                }
                Shift::Wait { core, .. } => self.rewait(usize::from(core), now),
                Shift::Speed { core, speed, .. } => {
                    self.push(now + self.profile.wake.frequency_lag, Event::Speed(core, speed));
                }
            }
        }
    }
}

fn times(mean: Nanos, variation: f64) -> Vec<u64> {
    let time = |factor| (mean.0 as f64 * f64::from(factor)).round() as u64;
    factors(variation).into_iter().map(time).collect()
}

fn empty() -> Shown {
    let latency = Histogram::new_with_bounds(1, LONGEST, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants and valid"));
    Shown {
        latency,
        energy: Energy::default(),
        span: Nanos::ZERO,
        arrived: 0,
        answered: 0,
        reads: 0,
        bytes: 0,
        waited: Nanos::ZERO,
        windows: Windows::default(),
        served: Nanos::ZERO,
        asleep: Nanos::ZERO,
        peak: Watts(0.0),
        periods: Vec::new(),
        moves: 0,
        wakes: 0,
        awake: Vec::new(),
    }
}
