//! Sandman improved, ours. What differs from [`super::Sandman`], and why:
//!
//! * **A delay objective instead of a fixed depth.** Eight waiting requests are nothing at 0.5 µs
//!   each and a lot at 20 µs. Every fine step estimates how long the queues of a core will take,
//!   `Σ depth × service time + time since the poll`, with learned service times. The longest
//!   queue is not shortened by moving it, only the others are: while these alone are above the
//!   objective, the longest moves off. A bunch of requests on one connection wakes nobody.
//! * **A learned burst buffer.** A fixed one is too small where bursts keep coming and wasted where
//!   none do. It grows at once when a burst had to be spread and shrinks slowly without.
//! * **A main core that works and rests.** Threads are consolidated onto the main core first, so
//!   its polling is not paid for twice, and it works on a machine of one core. While all threads
//!   are there nothing else must be watched: after a learned time without work it blocks and the
//!   kernel wakes it. An idle target then costs next to nothing.
//! * **A learned reserve.** Only as many cores doze as bursts have needed of late; the others
//!   block, so that they reach deep idle states, which shallow sleep forbids. At least one dozes.
//! * **A whole core for a burst** when the siblings of awake cores are no help: beside a core that
//!   bursts itself, a second hyper-thread adds little.

use super::book::Book;
use super::pack::{self, CORE_LIMIT, send};
use super::sandman::FINE;
use super::{Core, Machine, Period, Placement, Queues, Scheduler, Thread, Wait};
use crate::PolicyError;
use crate::units::Nanos;

/// Delay in a core's queues that a client may notice: a fifth of a flash read.
pub const OBJECTIVE: Nanos = Nanos::from_micros(20);
/// Bounds of the burst buffer.
const BUFFER: (f64, f64) = (0.10, 0.50);
/// Growth of the buffer after a period with bursts, and decline after one without.
const GROWTH: f64 = 0.10;
const DECLINE: f64 = 0.01;
/// Share of the reserve that is forgotten each period.
const FORGET: f64 = 1.0 / 30.0;
/// Service time before any is learned.
const SERVICE: f64 = 2_000.0;
/// Weight of the newest period in what is learned.
const WEIGHT: f64 = 0.3;
/// Spinning for so many mean gaps misses one request in 3000 of a random stream.
const GAPS: f64 = 8.0;
/// Longest spin: traffic too rare for it is served as well by blocking soon.
const LONGEST_SPIN: f64 = 10e6;
/// Shortest spin: the next command of the same exchange comes within a round trip.
const SHORTEST_SPIN: f64 = 50e3;

/// The scheduler.
#[derive(Debug, Clone)]
pub struct SandmanPlus {
    objective: f64,
    book: Book,
    /// Nanoseconds a request keeps a core busy, by thread.
    service: Vec<f64>,
    /// Delay of the queues of each core at this fine step, in nanoseconds.
    delay: Vec<f64>,
    /// Longest time since a poll of a queue that is not empty, by core; zero between fine steps.
    waited: Vec<f64>,
    /// Share of a core kept free.
    buffer: f64,
    /// Cores beyond the awake ones that bursts needed of late.
    reserve: f64,
    /// Cores that bursts were spread to in this period.
    spread: u16,
}

impl SandmanPlus {
    /// With the default delay objective, for this machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let (cores, threads) = (machine.cores.len(), usize::from(machine.threads));
        Self {
            objective: OBJECTIVE.0 as f64,
            book: Book::new(cores, threads),
            service: vec![SERVICE; threads],
            delay: vec![0.0; cores],
            waited: vec![0.0; cores],
            buffer: 2.0 * BUFFER.0,
            reserve: 1.0,
            spread: 0,
        }
    }

    /// With a delay objective of so many microseconds.
    ///
    /// # Errors
    /// One that is not above zero.
    pub fn with_objective(machine: &Machine, micros: f64) -> Result<Self, PolicyError> {
        let (parameter, valid) = ("objective_us", "above 0");
        if micros <= 0.0 {
            return Err(PolicyError::Parameter { parameter, value: micros, valid });
        }
        Ok(Self { objective: micros * 1e3, ..Self::new(machine) })
    }

    /// Share of a core that is kept free for bursts at present.
    #[must_use]
    pub fn buffer(&self) -> f64 {
        self.buffer
    }

    fn learn(&mut self, period: &Period<'_>) {
        for (service, load) in self.service.iter_mut().zip(period.threads) {
            if load.requests > 0 {
                let now = load.busy.0 as f64 / load.requests as f64;
                *service += WEIGHT * (now - *service);
            }
        }
        let step = if self.spread > 0 { GROWTH } else { -DECLINE };
        self.buffer = (self.buffer + step).clamp(BUFFER.0, BUFFER.1);
        let needed = f64::from(self.spread);
        self.reserve = (self.reserve * (1.0 - FORGET)).max(needed).max(1.0);
        self.spread = 0;
    }

    /// How long the main core spins before it blocks.
    fn spin(period: &Period<'_>) -> Nanos {
        let requests: u64 = period.threads.iter().map(|load| load.requests).sum();
        let patience = GAPS * period.length.0 as f64 / requests.max(1) as f64;
        let spin = if patience <= LONGEST_SPIN { patience } else { 0.0 };
        Nanos(spin.max(SHORTEST_SPIN) as u64)
    }

    fn rest(&self, period: &Period<'_>, placement: &mut Placement) {
        let cores = self.book.len() as Core;
        let mut reserve = self.reserve.ceil() as u16;
        // Siblings of awake cores are the first to be woken, so they are the last to rest deeply.
        for beside_awake in [true, false] {
            for core in 1..cores {
                let awake = |b: Core| b == Machine::MAIN || self.book.used(b);
                let beside = pack::sibling(placement, core).is_some_and(awake);
                if self.book.used(core) {
                    placement.set_wait(core, Wait::Poll, "sandman-plus:wake");
                } else if beside == beside_awake {
                    let deep = Wait::Block { spin: Nanos::ZERO };
                    let wait = if reserve > 0 { Wait::Doze } else { deep };
                    reserve = reserve.saturating_sub(1);
                    placement.set_wait(core, wait, "sandman-plus:sleep");
                }
            }
        }
        let alone = (1..cores).all(|core| !self.book.used(core));
        let wait = if alone { Wait::Block { spin: Self::spin(period) } } else { Wait::Poll };
        placement.set_wait(Machine::MAIN, wait, "sandman-plus:main");
    }

    /// Where a queue of `from` goes: a dozing core beside one that has time, any dozing core, one
    /// that blocks, else the one with the fewest threads.
    fn refuge(&self, placement: &Placement, from: Core) -> Option<Core> {
        let cores = self.book.len() as Core;
        let count = |core: Core| self.book.count[usize::from(core)];
        let doze = |core: &Core| placement.waits()[usize::from(*core)] == Wait::Doze;
        let calm = |core: &Core| {
            let calm = |b: Core| count(b) > 0 && self.delay[usize::from(b)] < self.objective / 2.0;
            pack::sibling(placement, *core).is_some_and(calm)
        };
        let whole = |core: &Core| {
            pack::sibling(placement, *core).is_none_or(|b| b != Machine::MAIN && count(b) == 0)
        };
        let free = || (1..cores).filter(|core| count(*core) == 0);
        let dozing = || free().filter(doze);
        let to = dozing().find(calm).or_else(|| dozing().find(whole)).or_else(|| dozing().next());
        let to = to.or_else(|| free().find(whole)).or_else(|| free().next());
        let to = to.or_else(|| (0..cores).rev().min_by_key(|core| count(*core)))?;
        (count(to) + 1 < count(from)).then_some(to)
    }
}

impl Scheduler for SandmanPlus {
    fn name(&self) -> &'static str {
        "sandman-plus"
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        self.learn(period);
        self.book.read(period, placement);
        let (all, workers) = (0..self.book.len() as Core, 1..self.book.len() as Core);
        let fill = CORE_LIMIT - self.buffer;
        let book = &mut self.book;
        pack::relieve(book, placement, all.clone(), fill, "sandman-plus:overload");
        let pick = |book: &Book, from: Core, load: f64| {
            let main = book.fits(Machine::MAIN, load, fill).then_some(Machine::MAIN);
            let others = workers.clone().filter(|to| *to != from);
            main.or_else(|| pack::fullest(book, others, load, fill))
        };
        pack::consolidate(book, placement, workers.clone(), pick, "sandman-plus:consolidate");
        pack::pair_siblings(book, placement, workers, "sandman-plus:sibling");
        self.rest(period, placement);
    }

    fn fine_period(&self) -> Option<Nanos> {
        Some(FINE)
    }

    fn fine(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        // One request waits for nobody but itself.
        if queues.threads.iter().all(|queue| queue.depth < 2) {
            return;
        }
        self.delay.fill(0.0);
        for (thread, queue) in queues.threads.iter().enumerate() {
            let core = usize::from(placement.core_of()[thread]);
            self.delay[core] += self.backlog(thread, queue.depth);
            // The oldest has waited up to the last poll; a core that just woke is no burst.
            let waited = (queue.since_poll.0 as f64).min(self.objective / 2.0);
            if queue.depth > 0 {
                self.waited[core] = self.waited[core].max(waited);
            }
        }
        for (delay, waited) in self.delay.iter_mut().zip(&mut self.waited) {
            *delay += std::mem::take(waited);
        }
        // Cheap and mostly the end: what the longest queue contributes is looked at after.
        if self.delay.iter().all(|delay| *delay <= self.objective) {
            return;
        }
        self.book.place(placement);
        for core in 0..self.book.len() as Core {
            self.spread(core, queues, placement);
        }
    }
}

impl SandmanPlus {
    /// Time that `depth` requests of `thread` take.
    fn backlog(&self, thread: usize, depth: u32) -> f64 {
        f64::from(depth) * self.service[thread]
    }

    /// Moves the longest queues off `core` until what is left beside the longest meets the
    /// objective.
    fn spread(&mut self, core: Core, queues: &Queues<'_>, placement: &mut Placement) {
        let at = usize::from(core);
        while self.book.count[at] > 1 {
            let backlog = |thread: Thread| {
                let thread = usize::from(thread);
                self.backlog(thread, queues.threads[thread].depth)
            };
            let on = placement.threads_on(core);
            let Some(thread) = on.max_by(|a, b| backlog(*a).total_cmp(&backlog(*b))) else { break };
            let longest = backlog(thread);
            if self.delay[at] - longest <= self.objective {
                break;
            }
            let Some(to) = self.refuge(placement, core) else { break };
            if !self.book.used(to) {
                self.spread += 1;
            }
            send(placement, thread, to, "sandman-plus:burst");
            // While a worker has threads its queues must be watched.
            placement.set_wait(Machine::MAIN, Wait::Poll, "sandman-plus:burst");
            self.book.shift(thread, core, to);
            self.delay[at] -= longest;
            self.delay[usize::from(to)] += longest;
        }
    }
}
