//! Sandman (slides, "Scheduling Flow Overview" to "Detecting I/O Bursts").
//!
//! One main core polls and runs the scheduler; the I/O threads live on worker cores.
//!
//! Every second ("Monitoring Resource Wastage"):
//!
//! 1. the threads of the least loaded worker are consolidated onto others, if all of them fit: a
//!    core fits a thread while its own load and the thread's together leave a burst buffer free
//!    that its threads share;
//! 2. siblings sleep together: the threads of an active core whose sibling is free move to a
//!    free core whose sibling is awake anyway;
//! 3. workers without threads sleep shallowly at full frequency, woken by a store.
//!
//! Every 10 µs ("Detecting I/O Bursts"): while the network queues of a core are deep, the thread
//! with the deepest moves off it to a sleeping one, siblings of awake cores first.
//!
//! What the slides leave open, and what is done here: the numbers below, each with its reason;
//! "network queues" are those of all threads of a core, summed, since a core falls behind by what
//! all of them wait for (a depth by thread does not see one that many shallow queues overload); a
//! worker above the core limit is relieved every second too, as a load can rise without ever
//! making a queue deep; when no core sleeps any more, it moves to the core with the fewest
//! threads; the main core takes threads only when no worker is left, or exists.
//! Consolidation is to the fullest core that fits, so that the emptiest ones empty.
//! Two cores are paired as siblings only if both keep to the limit at the speed that sharing a
//! physical core leaves them.

use std::ops::Range;

use super::book::Book;
use super::pack::{self, CORE_LIMIT, send};
use super::{Core, Machine, Period, Placement, Queues, Scheduler, Thread, Wait};
use crate::PolicyError;
use crate::units::Nanos;

/// The fine period (slides: 10 µs).
pub const FINE: Nanos = Nanos::from_micros(10);

/// What the slides name and give no number for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SandmanParams {
    /// Share of a core kept free for bursts, shared by its threads (assumed).
    pub burst_buffer: f64,
    /// Requests waiting in the queues of a core that are a burst: what takes it longer than a fine
    /// period at 1 to 2 µs a request (assumed).
    pub burst_depth: f64,
}

impl Default for SandmanParams {
    fn default() -> Self {
        Self { burst_buffer: 0.20, burst_depth: 8.0 }
    }
}

impl SandmanParams {
    /// Refuses what no core could be filled by, and a burst of nothing.
    ///
    /// # Errors
    /// The parameter that is out of its range.
    pub fn check(&self) -> Result<(), PolicyError> {
        let Self { burst_buffer, burst_depth } = *self;
        let (fits, valid) =
            ((0.0..CORE_LIMIT).contains(&burst_buffer), "0 to below the core limit, 0.8");
        PolicyError::unless(fits, "burst_buffer", burst_buffer, valid)?;
        PolicyError::unless(burst_depth >= 1.0, "burst_depth", burst_depth, "one request or more")
    }
}

/// Which parts of Sandman work, for the ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Cores sleep shallowly (else in interrupt mode, as under the dynamic scheduler).
    pub doze: bool,
    /// Siblings sleep together.
    pub siblings: bool,
    /// Bursts are detected every 10 µs.
    pub bursts: bool,
}

impl Parts {
    /// The complete Sandman.
    pub const ALL: Self = Self { doze: true, siblings: true, bursts: true };
}

/// The scheduler.
#[derive(Debug, Clone)]
pub struct Sandman {
    parts: Parts,
    params: SandmanParams,
    book: Book,
    /// Requests waiting in the queues of each core at this fine step.
    depth: Vec<u32>,
}

impl Sandman {
    /// The complete scheduler, for this machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        Self::with(machine, Parts::ALL)
    }

    /// With some of its parts only.
    #[must_use]
    pub fn with(machine: &Machine, parts: Parts) -> Self {
        let book = Book::new(machine.cores.len(), usize::from(machine.threads));
        let depth = vec![0; machine.cores.len()];
        Self { parts, params: SandmanParams::default(), book, depth }
    }

    /// The complete scheduler with these parameters.
    ///
    /// # Errors
    /// Parameters out of range.
    pub fn with_params(machine: &Machine, params: SandmanParams) -> Result<Self, PolicyError> {
        params.check()?;
        Ok(Self { params, ..Self::new(machine) })
    }

    /// Consolidation fills a core up to here.
    fn fill(&self) -> f64 {
        CORE_LIMIT - self.params.burst_buffer
    }

    /// Workers; the main core itself on a machine of one core.
    fn workers(&self) -> Range<Core> {
        let cores = self.book.len() as Core;
        if cores > 1 { 1..cores } else { 0..1 }
    }

    /// Threads that a burst drove onto the main core go back to a worker with room.
    fn leave_main(&mut self, placement: &mut Placement) {
        let workers = self.workers();
        if workers.contains(&Machine::MAIN) {
            return;
        }
        for thread in 0..self.book.thread.len() as Thread {
            if placement.core_of()[usize::from(thread)] != Machine::MAIN {
                continue;
            }
            let load = self.book.thread[usize::from(thread)];
            let full = pack::fullest(&self.book, workers.clone(), load, self.fill());
            let to = full.or_else(|| pack::free(&self.book, placement, workers.clone()));
            if let Some(to) = to {
                send(placement, thread, to, "sandman:leave-main");
                self.book.shift(thread, Machine::MAIN, to);
            }
        }
    }

    /// Where a burst on `from` can go: a sleeping core, else the one with the fewest threads, the
    /// main core last of equals.
    fn refuge(&self, placement: &Placement, from: Core) -> Option<Core> {
        let count = |core: Core| self.book.count[usize::from(core)];
        let emptiest = || (0..self.book.len() as Core).rev().min_by_key(|core| count(*core));
        let free = pack::free(&self.book, placement, self.workers());
        let to = free.or_else(emptiest)?;
        (count(to) + 1 < count(from)).then_some(to)
    }

    /// Whether so many waiting requests of a core are a burst.
    fn deep(&self, waiting: u32) -> bool {
        f64::from(waiting) >= self.params.burst_depth
    }

    fn sleep(&self, placement: &mut Placement) {
        let rest = if self.parts.doze { Wait::Doze } else { Wait::Block { spin: Nanos::ZERO } };
        for core in self.workers() {
            if self.book.used(core) {
                placement.set_wait(core, Wait::Poll, "sandman:wake");
            } else {
                placement.set_wait(core, rest, "sandman:sleep");
            }
        }
    }
}

impl Scheduler for Sandman {
    fn name(&self) -> &'static str {
        "sandman"
    }

    /// Threads off the main core.
    fn start(&mut self, placement: &mut Placement) {
        let workers = self.workers();
        for thread in 0..placement.machine().threads {
            let to = workers.start + thread % workers.len() as Core;
            placement.move_thread(thread, to, "sandman:start");
        }
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        let workers = self.workers();
        self.book.read(period, placement);
        self.leave_main(placement);
        let fill = self.fill();
        let book = &mut self.book;
        pack::relieve(book, placement, workers.clone(), fill, "sandman:overload");
        let pick = |book: &Book, _: &Placement, from: Core, load: f64| {
            pack::fullest(book, workers.clone().filter(|to| *to != from), load, fill)
        };
        pack::consolidate(book, placement, workers.clone(), pick, "sandman:consolidate");
        if self.parts.siblings {
            pack::pair_siblings(book, placement, workers.clone(), "sandman:sibling");
        }
        self.sleep(placement);
    }

    fn fine_period(&self) -> Option<Nanos> {
        self.parts.bursts.then_some(FINE)
    }

    fn fine(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        let all: u32 = queues.threads.iter().map(|queue| queue.depth).sum();
        if !self.deep(all) {
            return;
        }
        self.depth.fill(0);
        for (queue, core) in queues.threads.iter().zip(placement.core_of()) {
            self.depth[usize::from(*core)] += queue.depth;
        }
        if self.depth.iter().all(|depth| !self.deep(*depth)) {
            return;
        }
        self.book.place(placement);
        for from in 0..self.depth.len() as Core {
            while self.deep(self.depth[usize::from(from)]) {
                let depth = |thread: Thread| queues.threads[usize::from(thread)].depth;
                let Some(to) = self.refuge(placement, from) else { break };
                let on = placement.threads_on(from);
                let Some(thread) = on.max_by_key(|thread| depth(*thread)) else { break };
                send(placement, thread, to, "sandman:burst");
                self.book.shift(thread, from, to);
                self.depth[usize::from(from)] -= depth(thread);
                self.depth[usize::from(to)] += depth(thread);
            }
        }
    }
}
