//! The best known plan for reactors whose arrivals are known, at the same latency tolerance.
//!
//! The arrivals do not depend on what is done with them, so a first look at them tells the work
//! that comes for each thread in each slot of a millisecond. In each slot the fewest physical
//! cores are awake that take it and the next slot's work at no more than some share of their
//! time, its threads spread by what they bring; all others are blocked, and woken a slot ahead.
//! Of these shares (`FILLS`), and of constant numbers of cores, the one that draws least of those
//! that keep the tolerated p99 over the whole run is the plan.
//!
//! It is no optimum but the best that is known: it moves cores between slots and not between
//! requests, keeps one core polling wherever a request comes, and has one share for the whole run.

use ebb_policy::reactor::{
    Core, Machine, Period, Placement, Scheduler, StaticPolling, Thread, Wait,
};
use ebb_policy::units::Nanos;
use ebb_trace::TraceError;

use crate::reactor::{Load, Profile, Setup, Shown, Software, arrivals, run};

/// How far p99 may be above busy polling's: Sandman's slides, "within 5 % in corner cases".
pub const NEAR: f64 = 0.05;
/// Time for which cores are awake or not.
const SLOT: Nanos = Nanos::from_millis(1);
/// Shares of the awake cores' time that are tried, the largest first.
const FILLS: [f64; 7] = [0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2];
/// Why it moves threads and wakes cores.
const WHY: &str = "clairvoyant:slot";
/// Work of two hyper-threads of a core together, in that of one alone.
const BOTH: f64 = 1.25;

/// A run, to be repeated with what is known then; `E` is what can go wrong with its load.
pub struct Run<'a, E> {
    /// The server.
    pub profile: &'a Profile,
    /// What arrives, from its beginning.
    pub load: &'a dyn Fn() -> Result<Load, E>,
    /// Simulated time.
    pub duration: Nanos,
    /// Part of it, from the start, that is not counted.
    pub warmup: Nanos,
    /// Seed of everything random.
    pub seed: u64,
}

impl<E: From<TraceError>> Run<'_, E> {
    fn under(&self, profile: &Profile, by: Box<dyn Scheduler + '_>) -> Result<Shown, E> {
        let Self { duration, warmup, seed, .. } = *self;
        let (scheduler, load, software) = (by, (self.load)()?, Software::Target);
        Ok(run(Setup { profile, scheduler, load, software, duration, warmup, seed })?)
    }

    /// The run that draws least of those tried whose p99 is at most (1 + [`NEAR`]) times busy
    /// polling's; `None` where none keeps that.
    ///
    /// # Errors
    /// A load that cannot be had, or read.
    pub fn clairvoyant(&self) -> Result<Option<Shown>, E> {
        let polled = self.under(self.profile, Box::new(StaticPolling))?;
        let limit = polled.quantile(0.99) * (1.0 + NEAR);
        let work = self.work()?;
        let profile = Profile { coarse: SLOT, ..self.profile.clone() };
        let physical = self.profile.machine().cores.len() / 2;
        let alone = (1..=physical).map(|cores| Awake::Constant(cores, 2));
        let constants = alone.chain([Awake::Constant(2 * physical, 1)]);
        let mut best: Option<Shown> = None;
        for awake in FILLS.map(Awake::Fill).into_iter().chain(constants) {
            let shown = self.under(&profile, Box::new(Clairvoyant::new(&work, awake)))?;
            let less = best.as_ref().is_none_or(|best| shown.power() < best.power());
            if less && shown.quantile(0.99) <= limit {
                best = Some(shown);
            }
        }
        // Those of others are over the server's periods, not slots.
        let slots = (self.profile.coarse.0 / SLOT.0).max(1) as usize;
        Ok(best.map(|shown| {
            let periods = shown.periods.chunks_exact(slots).map(|slots| slots.iter().sum());
            Shown { peak: shown.power(), periods: periods.collect(), ..shown }
        }))
    }

    /// Seconds of an undisturbed hyper-thread that each thread's arrivals of a slot take.
    fn work(&self) -> Result<Vec<Vec<f32>>, E> {
        let threads = self.profile.threads;
        let mut slots = vec![vec![0.0; usize::from(threads)]; self.slots()];
        arrivals((self.load)()?, self.duration, threads, self.seed, |at, thread, write| {
            let slot = (at.0 / SLOT.0) as usize;
            slots[slot][usize::from(thread)] += self.profile.work(write) as f32;
        })?;
        Ok(slots)
    }

    fn slots(&self) -> usize {
        self.duration.0.div_ceil(SLOT.0) as usize
    }
}

/// Which hyper-threads are awake.
#[derive(Debug, Clone, Copy)]
enum Awake {
    /// Those that take each slot's work at this share of their time.
    Fill(f64),
    /// So many, from 0 on in steps of so many.
    Constant(usize, usize),
}

/// The scheduler, with what will come.
struct Clairvoyant<'a> {
    work: &'a [Vec<f32>],
    awake: Awake,
    /// Threads by their work in this slot.
    order: Vec<Thread>,
    /// Work given to each core.
    given: Vec<f32>,
}

impl<'a> Clairvoyant<'a> {
    fn new(work: &'a [Vec<f32>], awake: Awake) -> Self {
        let threads = work.first().map_or(0, Vec::len) as Thread;
        Self { work, awake, order: (0..threads).collect(), given: Vec::new() }
    }

    /// Work of a slot in all.
    fn all(&self, slot: usize) -> f64 {
        self.work.get(slot).map_or(0.0, |work| work.iter().map(|one| f64::from(*one)).sum())
    }

    /// Hyper-threads that take a slot's work: so many, from 0 on in steps of so many. Both of a
    /// core only where one of each does not do.
    fn need(&self, slot: usize, placement: &Placement) -> (usize, usize) {
        let fill = match self.awake {
            Awake::Constant(cores, step) => return (cores, step),
            Awake::Fill(fill) => fill,
        };
        let (work, room) = (self.all(slot), SLOT.seconds() * fill);
        let physical = placement.machine().cores.len() / 2;
        let cores = ((work / (room * BOTH)).ceil() as usize).clamp(1, physical);
        if work <= room * cores as f64 { (cores, 2) } else { (2 * cores, 1) }
    }

    /// Gives `slot`'s threads to the hyper-threads that it needs, the largest to the one with the
    /// least so far.
    fn place(&mut self, slot: usize, (count, step): (usize, usize), placement: &mut Placement) {
        let Some(work) = self.work.get(slot) else { return };
        let of = |thread: &Thread| work[usize::from(*thread)];
        self.given.clear();
        self.given.resize(count, 0.0);
        self.order.sort_by(|a, b| of(b).total_cmp(&of(a)));
        for thread in &self.order {
            let least = (0..count).min_by(|a, b| self.given[*a].total_cmp(&self.given[*b]));
            let least = least.unwrap_or(usize::from(Machine::MAIN));
            // Those without requests spread too, for what comes after.
            self.given[least] += of(thread) + 1e-9;
            placement.move_thread(*thread, (least * step) as Core, WHY);
        }
    }
}

impl Scheduler for Clairvoyant<'_> {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        let slot = (period.now.0 / SLOT.0) as usize;
        let (now, next) = (self.need(slot, placement), self.need(slot + 1, placement));
        let rest = Wait::Block { spin: Nanos::ZERO };
        let nothing = self.all(slot) + self.all(slot + 1) == 0.0;
        let among = |core: usize, (count, step): (usize, usize)| {
            core.is_multiple_of(step) && core / step < count
        };
        let cores = placement.machine().cores.len();
        for core in (0..cores).filter(|core| among(*core, now) || among(*core, next)) {
            // Without requests only what is still under way wakes it.
            placement.set_wait(core as Core, if nothing { rest } else { Wait::Poll }, WHY);
        }
        // Those that only the next slot needs are still waking.
        self.place(slot, now, placement);
        for core in (0..cores).filter(|core| !among(*core, now) && !among(*core, next)) {
            placement.set_wait(core as Core, rest, WHY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::reactor::by_name;

    #[test]
    fn who_knows_the_load_needs_less_power_than_who_learns_it() {
        let steps = [50e3, 800e3, 50e3, 0.0].map(|rate| (Nanos::from_millis(100), rate)).to_vec();
        let load = || Ok::<_, TraceError>(Load::Steps { steps: steps.clone(), writes: 0.1 });
        let mut profile = Profile::all_flash().unwrap();
        profile.coarse = Nanos::from_millis(50);
        let (duration, warmup) = (Nanos::from_millis(1200), Nanos::from_millis(400));
        let this = Run { profile: &profile, load: &load, duration, warmup, seed: 5 };
        let of =
            |name: &str| this.under(&profile, by_name(name, &profile.machine()).unwrap()).unwrap();
        let (polled, known) = (of("static"), this.clairvoyant().unwrap().unwrap());
        assert_eq!(known.arrived, polled.arrived, "the same requests");
        assert!(known.quantile(0.99) <= 1.05 * polled.quantile(0.99));
        for name in ["static", "dynamic", "sandman", "sandman-plus"] {
            assert!(known.power() < of(name).power(), "{name}");
        }
    }
}
