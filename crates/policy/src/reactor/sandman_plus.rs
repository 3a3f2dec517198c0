//! Sandman improved, ours. What differs from [`super::Sandman`], and why:
//!
//! * **A delay objective instead of a fixed depth.** Eight waiting requests are nothing at 0.5 µs
//!   each and a lot at 20 µs. Every fine step estimates how long the queues of a core will take,
//!   `Σ depth × service time + time since the poll`, with learned service times. The longest
//!   queue is not shortened by moving it, only the others are: while these alone are above the
//!   objective, the longest moves off. A bunch of requests on one connection wakes nobody.
//! * **Chance is no burst.** The queue of a core that is half busy passes any fixed objective many
//!   times a second. A burst is what passes, too, what would come together by chance no more than
//!   once in a coarse period at the load that the core is known to have.
//! * **A core that was away is no burst.** A hypervisor or an interrupt takes it for up to a
//!   millisecond, and what waits then has come at the known rate. Only what waits beyond that
//!   counts. Where threads were spread and no more came than the awake cores have room for, they
//!   are packed at the first look, and nothing is learned from it.
//! * **The end of a burst is looked for.** Its cores are packed again 10 ms after its load has
//!   fallen by half, not in the second after.
//! * **Packed as narrowly as bursts allow.** An account of what requests waited for since threads
//!   were packed says onto how many cores: one, until bursts delay more than one request in a
//!   hundred by the objective. A few cores more take most of a batch's wait; keeping all that a
//!   burst took awake for the next costs many times as much.
//! * **A learned burst buffer.** A fixed one is too small where bursts keep coming and wasted where
//!   none do. It grows at once when a burst had to be spread and shrinks slowly without.
//! * **A main core that works and rests.** Threads are consolidated onto the main core first, so
//!   its polling is not paid for twice, and it works on a machine of one core. All threads start
//!   there. While they are there nothing else must be watched, and the core may block until the
//!   kernel wakes it. Where a wake-up is within what a request may be delayed by, it does so after
//!   a learned spin ([`super::gaps`]): its time follows the load, from next to nothing to polling.
//!   Where it is not, one may be paid once a lull and not by each request of a thin stream: the
//!   core blocks only once nobody has asked for anything in ten seconds.
//! * **Threads by halves.** A core that falls behind shares its threads with one other, which may
//!   do the same 10 µs later. Moving one queue at a time to a core of its own woke them all.
//! * **Two depths of sleep.** Hyper-threads beside awake ones doze, which costs nothing. Whole
//!   cores rest deeply, for which shallow sleep is no substitute: it draws half of polling. Only
//!   as many halt lightly as bursts have needed before deep ones were awake, at least one; a
//!   burst wakes deep ones in their place, and gives threads to none that is still waking.
//! * **Siblings are filled for the speed that sharing leaves**, as they are when they are paired.
//! * **A whole core for a burst** when the siblings of awake cores are no help: beside a core that
//!   bursts itself, a second hyper-thread adds little.

use super::book::Book;
use super::gaps::Gaps;
use super::pack::{self, CORE_LIMIT, send};
use super::sandman::FINE;
use super::{Core, Machine, Period, Placement, Queue, Queues, Scheduler, Thread, Wait};
use crate::PolicyError;
use crate::units::Nanos;

/// Delay in a core's queues that a client may notice: as long as nobody looks.
const OBJECTIVE: Nanos = FINE;
/// A wake-up that each request may pay where no objective is stated: about a read from flash.
const USUAL_WAKE: Nanos = Nanos::from_micros(100);
/// Core time that a microsecond's delay of a request is worth, and that a wake-up is at most: with
/// it 1,000 requests a second are polled for with 30 % of a core, whatever their gaps.
const WORTH: u64 = 20;
const DEAREST: Nanos = Nanos::from_micros(300);
/// Bounds of the burst buffer.
const BUFFER: (f64, f64) = (0.10, 0.50);
/// Growth of the buffer after a period with bursts, and decline after one without.
const GROWTH: f64 = 0.10;
const DECLINE: f64 = 0.01;
/// Share of the reserve that is forgotten each period: bursts minutes apart still find it.
const FORGET: f64 = 1.0 / 300.0;
/// Service time before any is learned.
const SERVICE: f64 = 2_000.0;
/// A core that rests deeply.
const DEEP: Wait = Wait::Block { spin: Nanos::ZERO };
/// How long one takes to wake, at most: C6 of today's servers. What is not known is taken for it.
const DEEP_WAKE: Nanos = Nanos::from_micros(300);
/// What a burst takes within this time from its begin, it would have needed at once: a deep core
/// wakes within half of it, and falls behind a second time.
const ONSET: Nanos = Nanos(2 * DEEP_WAKE.0);
/// How often is looked whether a burst is over. A pause in it that is shorter ends none.
const WINDOW: Nanos = Nanos::from_millis(10);
/// Share of the requests that packed threads may delay by the objective: what p99 leaves out.
const LATE: f64 = 0.01;
/// Periods without any such delay, or more with some, after which threads are packed closer.
const CALM: f64 = 30.0;
/// What a period allows fades by so much each period: bursts ten seconds apart still count, and a
/// thin stream after them packs threads closer every twenty.
const FADE: f64 = 0.15;
/// Weight of the newest period in what is learned.
const WEIGHT: f64 = 0.3;
/// Without requests for so long a server is idle: the one that ends it may pay a wake-up. Of a
/// random stream of one a second, one in 20,000 does.
const IDLE: Nanos = Nanos::from_secs(10);

/// The scheduler.
#[derive(Debug, Clone)]
pub struct SandmanPlus {
    objective: f64,
    book: Book,
    /// Nanoseconds a request keeps a core busy, by thread.
    service: Vec<f64>,
    /// Requests per nanosecond in the last period, by thread.
    rate: Vec<f64>,
    /// Delay of the queues of each core at this fine step, in nanoseconds.
    delay: Vec<f64>,
    /// Longest time since a poll of a queue that is not empty, by core; zero between fine steps.
    waited: Vec<f64>,
    /// Share of a core kept free.
    buffer: f64,
    /// Physical cores that bursts needed of late before deep ones were awake.
    reserve: f64,
    /// Cores that bursts were spread to in this period.
    spread: u16,
    /// When the last burst began to take cores, and how many whole ones it took since.
    burst: (Nanos, u16),
    /// The most that any burst of this period took so.
    taken: u16,
    /// `spread` and `taken` before cores were taken for what is not known to be a burst yet.
    doubted: Option<(u16, u16)>,
    /// From when on each core can be given threads at once.
    ready: Vec<Nanos>,
    /// How often cores are looked at in a coarse period, all together.
    looks: f64,
    /// When this window began; none while no burst has cores.
    window: Option<Nanos>,
    /// Requests completed by then, by thread.
    counted: Vec<u64>,
    /// Requests per second in the busiest window of the burst.
    peak: f64,
    /// Cores that threads are packed onto, at least.
    width: u16,
    /// Nanoseconds that requests may still wait because threads are packed, and the most that a
    /// period of late has added.
    account: f64,
    allowed: f64,
    /// When was looked last, and how many requests waited on cores that were behind then.
    looked: Nanos,
    behind: f64,
    /// How long a core takes to wake, and whether each request may pay that.
    wake: Nanos,
    wakes: bool,
    /// Percent of `latency` that a request may be delayed by, where it is stated so.
    percent: Option<f64>,
    /// Mean time that requests take, in nanoseconds.
    latency: f64,
    gaps: Gaps,
}

impl SandmanPlus {
    /// With the default delay objective, for this machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let (cores, threads) = (machine.cores.len(), usize::from(machine.threads));
        let wake = machine.wake.unwrap_or(DEEP_WAKE);
        Self {
            objective: OBJECTIVE.0 as f64,
            book: Book::new(cores, threads),
            service: vec![SERVICE; threads],
            rate: vec![0.0; threads],
            delay: vec![0.0; cores],
            waited: vec![0.0; cores],
            buffer: 2.0 * BUFFER.0,
            reserve: 1.0,
            spread: 0,
            burst: (Nanos::ZERO, 0),
            taken: 0,
            doubted: None,
            ready: vec![Nanos::ZERO; cores],
            looks: 1.0,
            window: None,
            counted: vec![0; threads],
            peak: 0.0,
            width: 1,
            account: 0.0,
            allowed: 0.0,
            looked: Nanos::ZERO,
            behind: 0.0,
            wake,
            wakes: wake <= USUAL_WAKE,
            percent: None,
            latency: 0.0,
            gaps: Gaps::new(Nanos(WORTH * wake.0).min(DEAREST)),
        }
    }

    /// With a delay objective of so many microseconds.
    ///
    /// # Errors
    /// One that is not above zero.
    pub fn with_micros(machine: &Machine, micros: f64) -> Result<Self, PolicyError> {
        PolicyError::unless(micros > 0.0, "objective_us", micros, "above 0")?;
        let (usual, objective) = (Self::new(machine), micros * 1e3);
        Ok(Self { objective, wakes: usual.wake.0 as f64 <= objective, ..usual })
    }

    /// With a delay objective in percent of the mean time that requests are learned to take.
    ///
    /// # Errors
    /// One that is not above zero.
    pub fn with_percent(machine: &Machine, percent: f64) -> Result<Self, PolicyError> {
        PolicyError::unless(percent > 0.0, "objective_percent", percent, "above 0")?;
        Ok(Self { percent: Some(percent), wakes: false, ..Self::new(machine) })
    }

    /// Share of a core that is kept free for bursts at present.
    #[must_use]
    pub fn buffer(&self) -> f64 {
        self.buffer
    }

    fn learn(&mut self, period: &Period<'_>) {
        let learned = self.service.iter_mut().zip(&mut self.rate);
        for ((service, rate), load) in learned.zip(period.threads) {
            *rate = load.requests as f64 / period.length.0 as f64;
            if load.requests > 0 {
                let now = load.busy.0 as f64 / load.requests as f64;
                *service += WEIGHT * (now - *service);
            }
        }
        let requests: u64 = period.threads.iter().map(|load| load.requests).sum();
        if requests > 0 {
            self.weigh(requests);
            let time: u64 = period.threads.iter().map(|load| load.latency.0).sum();
            let mean = time as f64 / requests as f64;
            let first = self.latency == 0.0;
            self.latency += if first { mean } else { WEIGHT * (mean - self.latency) };
        }
        if let Some(percent) = self.percent {
            let given = percent / 100.0 * self.latency;
            // Queues are looked at no more often.
            self.objective = given.max(OBJECTIVE.0 as f64);
            self.wakes = self.wake.0 as f64 <= given;
        }
        self.looks = (period.length.0 / FINE.0 * self.book.len() as u64).max(1) as f64;
        let step = if self.spread > 0 { GROWTH } else { -DECLINE };
        self.buffer = (self.buffer + step).clamp(BUFFER.0, BUFFER.1);
        self.window = self.window.filter(|_| self.spread > 0);
        let needed = f64::from(self.taken);
        self.reserve = (self.reserve * (1.0 - FORGET)).max(needed).max(1.0);
        (self.spread, self.taken) = (0, 0);
        self.doubted = self.doubted.map(|_| (0, 0));
    }

    /// Packs wider where requests have waited for longer than is allowed, closer after enough
    /// periods in which they have not. A width begins with the allowance of one period.
    fn weigh(&mut self, requests: u64) {
        let allowed = LATE * self.objective * requests as f64;
        self.allowed = allowed.max(self.allowed * (1.0 - FADE));
        self.account += allowed;
        self.width = match self.account {
            debt if debt < 0.0 => (2 * self.width).min(self.book.len() as u16),
            calm if calm > CALM * self.allowed => (self.width / 2).max(1),
            _ => return,
        };
        self.account = self.allowed;
    }

    /// How the main core waits while all threads are there. Where a wake-up is beyond the
    /// objective and bursts keep coming it polls: the past second says nothing of when the next one
    /// does.
    fn alone(&self, now: Nanos) -> Wait {
        let is_idle = self.gaps.quiet(now) >= IDLE && self.window.is_none();
        match self.wakes || is_idle {
            true => Wait::Block { spin: self.gaps.spin() },
            false => Wait::Poll,
        }
    }

    /// Learns from the last work, and lets a main core that rests wait accordingly. Where a wake-up
    /// is beyond the objective the first request has paid for all that follow.
    fn learn_gap(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        let worked = queues.threads.iter().map(|queue| queue.worked).max();
        let is_news = worked.is_some_and(|at| self.gaps.learn(at));
        let main = placement.waits()[usize::from(Machine::MAIN)];
        if is_news && matches!(main, Wait::Block { .. }) {
            placement.set_wait(Machine::MAIN, self.alone(queues.now), "sandman-plus:gap");
        }
    }

    /// Whether the hyper-thread beside `core` keeps their physical core awake.
    fn beside_awake(&self, placement: &Placement, core: Core) -> bool {
        let awake = |b: Core| match b {
            Machine::MAIN => placement.waits()[usize::from(b)] == Wait::Poll,
            _ => self.book.used(b),
        };
        pack::sibling(placement, core).is_some_and(awake)
    }

    /// Whether a lower-numbered hyper-thread beside `core` is halted already: the shallower one
    /// decides what their physical core draws.
    fn beside_light(&self, placement: &Placement, core: Core) -> bool {
        let light = |b: Core| b < core && placement.waits()[usize::from(b)] == Wait::Halt;
        pack::sibling(placement, core).is_some_and(light)
    }

    /// Whether others than the main core have threads.
    fn is_spread(&self) -> bool {
        (1..self.book.len() as Core).any(|core| self.book.used(core))
    }

    /// Whether more cores have threads than they are packed onto.
    fn is_wide(&self) -> bool {
        let used = (0..self.book.len() as Core).filter(|core| self.book.used(*core));
        used.count() > usize::from(self.width)
    }

    fn rest(&mut self, now: Nanos, placement: &mut Placement) {
        let cores = self.book.len() as Core;
        for core in (1..cores).filter(|core| self.book.used(*core)) {
            placement.set_wait(core, Wait::Poll, "sandman-plus:wake");
        }
        let wait = if self.is_spread() { Wait::Poll } else { self.alone(now) };
        placement.set_wait(Machine::MAIN, wait, "sandman-plus:main");
        self.rest_free(placement, self.reserve.ceil() as u16, Some(DEEP), now);
    }

    /// Where threads of `from` go: a core that wakes at once beside one that has time, a whole
    /// physical one, any other; else the awake one with the fewest threads.
    fn refuge(&self, placement: &Placement, from: Core, now: Nanos) -> Option<Core> {
        let cores = self.book.len() as Core;
        let count = |core: Core| self.book.count[usize::from(core)];
        let light = |core: &Core| {
            let at = usize::from(*core);
            placement.waits()[at] != DEEP && self.ready[at] <= now
        };
        let calm = |core: Core| self.delay[usize::from(core)] < self.objective / 2.0;
        let beside_calm =
            |core: &Core| pack::sibling(placement, *core).is_some_and(|b| count(b) > 0 && calm(b));
        let whole = |core: &Core| {
            pack::sibling(placement, *core).is_none_or(|b| b != Machine::MAIN && count(b) == 0)
        };
        let free = || (1..cores).filter(|core| count(*core) == 0).filter(light);
        let to = free().find(beside_calm).or_else(|| free().find(whole)).or_else(|| free().next());
        let awake = (0..cores).rev().filter(|core| *core == Machine::MAIN || count(*core) > 0);
        let to = to.or_else(|| awake.min_by_key(|core| count(*core)))?;
        (count(to) + 1 < count(from)).then_some(to)
    }
}

impl Scheduler for SandmanPlus {
    fn name(&self) -> &'static str {
        "sandman-plus"
    }

    fn start(&mut self, placement: &mut Placement) {
        for thread in 0..placement.machine().threads {
            placement.move_thread(thread, Machine::MAIN, "sandman-plus:start");
        }
        self.book.place(placement);
        self.rest(Nanos::ZERO, placement);
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        self.learn(period);
        self.book.read(period, placement);
        let (all, fill) = (0..self.book.len() as Core, self.fill());
        pack::relieve(&mut self.book, placement, all, fill, "sandman-plus:overload");
        self.pack(period.now, placement);
    }

    fn fine_period(&self) -> Option<Nanos> {
        Some(FINE)
    }

    fn fine(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        // They have waited on until now. That the main core was away for long
        // is no fault of packing.
        let since = queues.now.saturating_sub(self.looked).min(DEEP_WAKE);
        self.account -= std::mem::take(&mut self.behind) * since.0 as f64;
        self.looked = queues.now;
        self.learn_gap(queues, placement);
        if self.watch(queues, placement) {
            return;
        }
        // One request waits for nobody but itself.
        if queues.threads.iter().all(|queue| queue.depth < 2) {
            return;
        }
        self.delay.fill(0.0);
        for (thread, queue) in queues.threads.iter().enumerate() {
            let core = usize::from(placement.core_of()[thread]);
            self.delay[core] += self.backlog(thread, queue);
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
        // The queues must be watched now, and those of workers that get threads.
        placement.set_wait(Machine::MAIN, Wait::Poll, "sandman-plus:burst");
        self.book.place(placement);
        for core in 0..self.book.len() as Core {
            self.spread(core, queues, placement);
        }
        // Deep cores wake in the place of those that the burst took.
        self.rest_free(placement, self.reserve.ceil() as u16, None, queues.now);
    }
}

impl SandmanPlus {
    /// Consolidation fills a core up to here.
    fn fill(&self) -> f64 {
        CORE_LIMIT - self.buffer
    }

    /// Packs threads onto few cores by the loads in the book, and lets the others rest. A server
    /// without requests needs one.
    fn pack(&mut self, now: Nanos, placement: &mut Placement) {
        let (workers, fill) = (1..self.book.len() as Core, self.fill());
        let width = if self.gaps.quiet(now) < IDLE { self.width } else { 1 };
        let most = (self.counted.len() as u16).div_ceil(width);
        let book = &mut self.book;
        let pick = |book: &Book, placement: &Placement, from: Core, load: f64| {
            let room = |to: &Core| {
                let few = book.count[usize::from(*to)] < most;
                *to != from && few && pack::shares(book, placement, from, *to, load)
            };
            let main = Some(Machine::MAIN).filter(|main| book.fits(*main, load, fill));
            main.filter(room)
                .or_else(|| pack::fullest(book, workers.clone().filter(room), load, fill))
        };
        pack::consolidate(book, placement, workers.clone(), pick, "sandman-plus:consolidate");
        pack::pair_siblings(book, placement, workers.clone(), "sandman-plus:sibling");
        self.rest(now, placement);
    }

    /// While a burst has cores: packs once a window had less than half of its busiest one's load.
    /// Whether it did.
    fn watch(&mut self, queues: &Queues<'_>, placement: &mut Placement) -> bool {
        let Some(since) = self.window else { return false };
        let length = queues.now.saturating_sub(since);
        if length < WINDOW {
            return false;
        }
        let came = |(queue, before): (&Queue, &u64)| queue.requests.saturating_sub(*before);
        let came = queues.threads.iter().zip(&self.counted).map(came);
        let all: u64 = came.clone().sum();
        let rate = all as f64 / length.seconds();
        self.peak = self.peak.max(rate);
        let over = match self.doubted.take() {
            Some(before) if !self.rises() => {
                (self.spread, self.taken, self.window) = (before.0, before.1, None);
                true
            }
            Some(_) => false,
            None => rate < self.peak / 2.0,
        };
        if over {
            for (thread, requests) in came.enumerate() {
                let busy = requests as f64 * self.service[thread];
                self.book.thread[thread] = (busy / length.0 as f64).min(1.0);
            }
            self.peak = rate;
            self.book.place(placement);
            self.pack(queues.now, placement);
            self.window = self.window.filter(|_| self.is_wide());
        }
        if self.window.is_some() {
            self.begin_window(queues);
        }
        over
    }

    /// Whether more has come than the cores in use at the known load have room for.
    fn rises(&self) -> bool {
        let known: f64 = self.rate.iter().sum();
        self.peak * self.fill() > 1e9 * known * CORE_LIMIT
    }

    fn begin_window(&mut self, queues: &Queues<'_>) {
        self.window = Some(queues.now);
        for (counted, queue) in self.counted.iter_mut().zip(queues.threads) {
            *counted = queue.requests;
        }
    }

    /// Counts a core that a burst takes.
    fn take(&mut self, placement: &Placement, to: Core, queues: &Queues<'_>) {
        if self.book.used(to) {
            return;
        }
        if self.window.is_none() {
            self.peak = 0.0;
            self.begin_window(queues);
        }
        self.doubted.get_or_insert((self.spread, self.taken));
        let now = queues.now;
        self.spread += 1;
        if now.saturating_sub(self.burst.0) > ONSET {
            self.burst = (now, 0);
        }
        self.burst.1 += u16::from(!self.beside_awake(placement, to));
        self.taken = self.taken.max(self.burst.1);
    }

    /// Cores without threads doze beside awake ones; `reserve` other physical ones halt, not that
    /// of a main core that rests, and the others wait as `others` says, or as before.
    fn rest_free(
        &mut self,
        placement: &mut Placement,
        mut reserve: u16,
        others: Option<Wait>,
        now: Nanos,
    ) {
        for core in 1..self.book.len() as Core {
            if self.book.used(core) {
                continue;
            }
            let wait = if self.beside_awake(placement, core) {
                Some(Wait::Doze)
            } else if self.beside_light(placement, core) {
                Some(Wait::Halt)
            } else if reserve > 0 && pack::sibling(placement, core) != Some(Machine::MAIN) {
                reserve -= 1;
                Some(Wait::Halt)
            } else {
                others
            };
            let Some(wait) = wait else { continue };
            if placement.waits()[usize::from(core)] == DEEP && wait != DEEP {
                self.ready[usize::from(core)] = now + DEEP_WAKE;
            }
            placement.set_wait(core, wait, "sandman-plus:sleep");
        }
    }

    /// Time that the requests take that wait for `thread`, beyond those that the known rate brings
    /// between two polls. A core that stays away for longer than a window needs help anyway.
    fn backlog(&self, thread: usize, queue: &Queue) -> f64 {
        let usual = self.rate[thread] * queue.since_poll.min(WINDOW).0 as f64;
        (f64::from(queue.depth) - usual).max(0.0) * self.service[thread]
    }

    /// What waits on `core` when a burst has come: more than the objective, and than what comes
    /// together by chance at the load it is known to have.
    ///
    /// Work before a queue of random arrivals passes `x` with a probability of `exp(-y x / s)`,
    /// `load (exp(y) - 1) = y` for equal services `s`, to which `1 - load - ln(load)` is a close
    /// lower bound. The `x` told is passed at one look in all of a period.
    fn burst_from(&self, core: Core, placement: &Placement) -> f64 {
        let (mut load, mut squares) = (0.0, 0.0);
        for thread in placement.threads_on(core).map(usize::from) {
            load += self.book.thread[thread];
            squares += self.book.thread[thread] * self.service[thread];
        }
        let full = load.clamp(f64::MIN_POSITIVE, self.fill());
        let service = squares / load.max(f64::MIN_POSITIVE);
        self.objective.max(service * self.looks.ln() / (1.0 - full - full.ln()))
    }

    /// Halves the threads of `core` with another one, the longest queues first, until what is left
    /// beside the longest is no burst.
    fn spread(&mut self, core: Core, queues: &Queues<'_>, placement: &mut Placement) {
        let at = usize::from(core);
        if let Some((_, longest)) = self.longest(core, queues, placement)
            && self.delay[at] - longest > self.objective
        {
            let depth = |thread: Thread| f64::from(queues.threads[usize::from(thread)].depth);
            self.behind += placement.threads_on(core).map(depth).sum::<f64>();
        }
        while let Some((_, longest)) = self.longest(core, queues, placement)
            && self.delay[at] - longest > self.burst_from(core, placement)
        {
            let Some(to) = self.refuge(placement, core, queues.now) else { break };
            self.take(placement, to, queues);
            while self.book.count[usize::from(to)] + 1 < self.book.count[at]
                && let Some((thread, backlog)) = self.longest(core, queues, placement)
            {
                send(placement, thread, to, "sandman-plus:burst");
                // Moving costs about as much: what is moved all the time is not packed well.
                self.account -= self.objective;
                self.book.shift(thread, core, to);
                self.delay[at] -= backlog;
                self.delay[usize::from(to)] += backlog;
            }
        }
    }

    /// The longest queue of several on `core`.
    fn longest(
        &self,
        core: Core,
        queues: &Queues<'_>,
        placement: &Placement,
    ) -> Option<(Thread, f64)> {
        let backlog = |thread: Thread| {
            let at = usize::from(thread);
            (thread, self.backlog(at, &queues.threads[at]))
        };
        let on = placement.threads_on(core).map(backlog);
        on.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| self.book.count[usize::from(core)] > 1)
    }
}
