//! Sixteen cores on one thread: whose clock is furthest behind has the next turn.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use ebb_policy::reactor::{
    Core, CoreSpec, Machine, Period, Placement, Queues, Scheduler, Shift, by_name,
};
use ebb_policy::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::super::Task;
use super::super::super::bell::{BLOCKED, WATCHING};
use super::super::super::clock::Clock;
use super::super::super::core::{Reactor, Rest};
use super::super::super::counters::Sleep;
use super::super::super::runtime::{Means, build};
use super::super::super::shared::Shared;
use super::super::super::wait::{Strategy, Waiter};
use super::task::{Connections, Seen};
use super::{CALM, Plan, time};

/// Time from a store to the first round of a core that dozes, and at most of one that blocks.
const DOZE_WAKE: Nanos = Nanos::from_micros(1);
const BLOCK_WAKE: Nanos = Nanos::from_micros(150);
/// What a round takes beside its polls.
const ROUND: Nanos = Nanos(100);
/// What work costs beside a sibling that works, and one that polls: `docs/models/reactor.md`.
const BESIDE_BUSY: f64 = 1.6;
const BESIDE_AWAKE: f64 = 1.15;
/// For how long somebody else has a core: the hypervisor, an interrupt.
pub const STALL: RangeInclusive<u64> = 100_000..=1_000_000;
/// Events kept for a failure.
const TAIL: usize = 40;

/// What the fine steps did.
#[derive(Debug, Default)]
pub struct Steps {
    pub fine: u64,
    /// Those of them that moved threads off a core that had fallen behind, by number, and how many
    /// cores had threads after it.
    pub spread: Vec<(u64, usize)>,
    /// Requests waiting in all queues as the last fine step saw them, and the most that any saw.
    pub waiting: u32,
    pub most_waiting: u32,
    tail: VecDeque<String>,
}

/// A scheduler under observation.
struct Watched {
    inner: Box<dyn Scheduler>,
    steps: Arc<Mutex<Steps>>,
}

impl Scheduler for Watched {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn start(&mut self, placement: &mut Placement) {
        self.inner.start(placement);
    }
    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        self.inner.coarse(period, placement);
    }
    fn fine_period(&self) -> Option<Nanos> {
        self.inner.fine_period()
    }
    fn fine(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        self.inner.fine(queues, placement);
        let mut steps = self.steps.lock().unwrap();
        steps.fine += 1;
        steps.waiting = queues.threads.iter().map(|queue| queue.depth).sum();
        steps.most_waiting = steps.most_waiting.max(steps.waiting);
        let is_burst = |shift: &Shift| match shift {
            Shift::Move { reason, .. } => reason.ends_with(":burst"),
            Shift::Wait { .. } | Shift::Speed { .. } => false,
        };
        if placement.shifts().iter().any(is_burst) {
            let used: BTreeSet<_> = placement.core_of().iter().collect();
            let number = steps.fine;
            steps.spread.push((number, used.len()));
            steps.tail.truncate(TAIL);
            steps.tail.push_front(format!("{} {:?}", queues.now, placement.shifts()));
        }
    }
}

/// A core and where it is in time.
struct Seat {
    reactor: Reactor,
    /// When it has its next turn; never while nothing but a ring ends its sleep.
    next: Nanos,
    /// Its last turn served requests.
    works: bool,
    sleeps: Option<Sleep>,
    slept: Nanos,
    since: Nanos,
    /// When somebody else has the core next.
    stall: Nanos,
}

pub struct World {
    pub plan: Plan,
    pub machine: Machine,
    seats: Vec<Seat>,
    shared: Arc<Shared>,
    pub steps: Arc<Mutex<Steps>>,
    pub seen: Arc<Mutex<Seen>>,
    random: Pcg64Mcg,
}

impl Drop for World {
    fn drop(&mut self) {
        time::end();
        if std::thread::panicking() {
            self.steps.lock().unwrap().tail.iter().for_each(|line| eprintln!("{line}"));
            let (seed, scheduler) = (self.plan.seed, self.plan.scheduler);
            eprintln!(
                "{scheduler} failed under seed {seed}; once more:\n  EBB_SEED={seed} \
                 EBB_SIMULATIONS=1 cargo test -p ebb-target --lib simulation::bursts"
            );
        }
    }
}

/// The sibling of each core of several: the next one, or, as on most servers, the one half of all
/// away.
fn machine(plan: &Plan) -> Machine {
    let cores = plan.cores;
    let beside = |core: usize| if plan.pairs { core ^ 1 } else { (core + cores / 2) % cores };
    let sibling = |core: usize| (plan.siblings && cores > 1).then(|| beside(core) as Core);
    let core = |core| CoreSpec { sibling: sibling(core), node: 0 };
    Machine { cores: (0..cores).map(core).collect(), threads: plan.threads, wake: plan.wake }
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
        let seen = Arc::<Mutex<Seen>>::default();
        let tasks = Connections::of(&plan, &mut random, &seen);
        Self::of(plan, random, seen, tasks)
    }

    /// Of other tasks than a plan's.
    pub fn of(
        plan: Plan,
        mut random: Pcg64Mcg,
        seen: Arc<Mutex<Seen>>,
        tasks: Vec<Box<dyn Task>>,
    ) -> Self {
        time::set(Nanos::ZERO, 1.0);
        let machine = machine(&plan);
        let steps = Arc::<Mutex<Steps>>::default();
        let inner = by_name(plan.scheduler, &machine).unwrap();
        let scheduler = Box::new(Watched { inner, steps: Arc::clone(&steps) });
        let (clock, strategy) = (Clock::start(), Strategy::Spin);
        let means = Means { waiter: Waiter::new(strategy, clock).unwrap(), clock, strategy };
        let cpus: Vec<usize> = (0..plan.cores).collect();
        let (shared, reactors) =
            build(&cpus, machine.clone(), scheduler, plan.coarse, tasks, means).unwrap();
        let seat = |mut reactor: Reactor| {
            reactor.begin();
            let zero = Nanos::ZERO;
            let stall = Self::stall(&plan, zero, &mut random);
            Seat {
                reactor,
                next: zero,
                works: false,
                sleeps: None,
                slept: zero,
                since: zero,
                stall,
            }
        };
        let seats = reactors.into_iter().map(seat).collect();
        Self { plan, machine, seats, shared, steps, seen, random }
    }

    /// Lets time pass until every core is beyond `end`.
    pub fn run_until(&mut self, end: Nanos) {
        loop {
            let first = (0..self.seats.len()).min_by_key(|core| self.seats[*core].next);
            let Some(core) = first.filter(|core| self.seats[*core].next < end) else { return };
            self.turn(core);
        }
    }

    /// When somebody has a core the next time.
    fn stall(plan: &Plan, now: Nanos, random: &mut Pcg64Mcg) -> Nanos {
        let Some(every) = plan.stalls else { return Nanos(u64::MAX) };
        now + Nanos((-(1.0 - random.random::<f64>()).ln() * every.0 as f64) as u64)
    }

    fn turn(&mut self, core: usize) {
        let begun = self.seats[core].next;
        if begun >= self.seats[core].stall {
            let until = begun + Nanos(self.random.random_range(STALL));
            let seat = &mut self.seats[core];
            (seat.next, seat.stall) = (until, Self::stall(&self.plan, until, &mut self.random));
            return;
        }
        let slowdown = self.slowdown(core, begun);
        let seat = &mut self.seats[core];
        time::set(begun, slowdown);
        if let Some(how) = seat.sleeps.take() {
            seat.reactor.post().bell.retract();
            seat.reactor.awake(how);
            seat.slept += begun - seat.since;
        }
        time::pass(ROUND);
        let rest = seat.reactor.turn();
        seat.next = super::now().unwrap();
        seat.works = time::worked();
        if let Some(rest) = rest {
            Self::fall_asleep(seat, rest, self.plan.wake);
        }
        self.ring(begun);
    }

    /// How much longer work takes on `core` for what its sibling does.
    fn slowdown(&self, core: usize, now: Nanos) -> f64 {
        let Some(beside) = self.machine.cores[core].sibling else { return 1.0 };
        let beside = &self.seats[usize::from(beside)];
        match beside.sleeps {
            Some(_) => 1.0,
            None if beside.works && beside.next > now => BESIDE_BUSY,
            None => BESIDE_AWAKE,
        }
    }

    /// As the reactor's own sleep, but for the waiting.
    fn fall_asleep(seat: &mut Seat, Rest { how, until }: Rest, wake: Option<Nanos>) {
        let reactor = &mut seat.reactor;
        reactor.fall_asleep(how);
        reactor.post().bell.announce(if how == Sleep::Block { BLOCKED } else { WATCHING });
        (seat.sleeps, seat.since) = (Some(how), seat.next);
        if !reactor.has_mail() {
            let wake = wake.filter(|_| how == Sleep::Block).unwrap_or_default();
            seat.next = until.map_or(Nanos(u64::MAX), |until| until + wake);
        }
    }

    /// Whoever has been rung in a turn that began at `begun` wakes.
    fn ring(&mut self, begun: Nanos) {
        for seat in &mut self.seats {
            let Some(how) = seat.sleeps else { continue };
            if seat.reactor.post().bell.is_rung() {
                let wake = match how {
                    Sleep::Block => Nanos(self.random.random_range(DOZE_WAKE.0..=BLOCK_WAKE.0)),
                    Sleep::Doze | Sleep::Nap => DOZE_WAKE,
                };
                seat.next = seat.next.min(begun.max(seat.since) + wake);
            }
        }
    }

    /// Which cores sleep now.
    pub fn asleep(&self) -> Vec<bool> {
        self.seats.iter().map(|seat| seat.sleeps.is_some()).collect()
    }

    /// Time that all cores were awake until now, each wake-up included.
    pub fn awake(&self) -> Nanos {
        let wake = self.plan.wake.unwrap_or_default();
        let of = |seat: &Seat| {
            let at = if seat.sleeps.is_some() { seat.since } else { seat.next };
            let (totals, _) = seat.reactor.post().counters.read(at);
            at.saturating_sub(seat.slept) + Nanos(wake.0 * totals.sleeps[Sleep::Block as usize])
        };
        self.seats.iter().map(of).fold(Nanos::ZERO, |sum, one| sum + one)
    }

    /// Physical cores both of whose hyper-threads sleep.
    pub fn whole(&self) -> usize {
        let asleep = self.asleep();
        let sibling = |core: usize| usize::from(self.machine.cores[core].sibling.unwrap());
        (0..self.seats.len()).filter(|core| asleep[*core] && asleep[sibling(*core)]).count() / 2
    }

    /// What must hold at any time: every thread is in one place, and the time of every core is
    /// counted as busy, wasted or asleep, as the simulation saw it.
    pub fn check(&self) {
        let all = self.seats.iter().flat_map(|seat| &seat.reactor.threads);
        let mut threads: Vec<u16> = all.map(|thread| thread.index).collect();
        threads.sort_unstable();
        assert!(threads.windows(2).all(|pair| pair[0] < pair[1]), "a thread is there twice");
        for (core, seat) in self.seats.iter().enumerate() {
            let at = if seat.sleeps.is_some() { seat.since } else { seat.next };
            let (totals, _) = self.shared.posts[core].counters.read(at);
            assert_eq!(totals.all_asleep(), seat.slept, "core {core} counts its sleep wrong");
            let sum = totals.busy + totals.wasted + totals.all_asleep();
            let missing = at.0 - sum.0;
            assert!(missing <= CALM.0, "core {core} lost {missing} ns of its time");
        }
    }

    /// Threads held by cores: all of them, when none is on its way.
    pub fn held(&self) -> usize {
        self.seats.iter().map(|seat| seat.reactor.threads.len()).sum()
    }
}
