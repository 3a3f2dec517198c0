//! The reactors' own code on sixteen simulated cores, in virtual time: `docs/simulation.md`.

mod rest;
mod steady;
mod task;
mod world;

use ebb_policy::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub use self::time::now;
use self::world::World;

const CALM: Nanos = Nanos::from_millis(40);
const BURST: Nanos = Nanos::from_millis(4);
const BURSTS: u64 = 3;

/// Virtual time of this thread, if it has any.
pub mod time {
    use std::cell::Cell;

    use ebb_policy::units::Nanos;

    thread_local! {
        static NOW: Cell<Option<Nanos>> = const { Cell::new(None) };
        static SLOWDOWN: Cell<f64> = const { Cell::new(1.0) };
        static WORKED: Cell<bool> = const { Cell::new(false) };
    }

    pub fn now() -> Option<Nanos> {
        NOW.get()
    }
    /// A core has its turn from `now` on, on which work takes so much longer.
    pub fn set(now: Nanos, slowdown: f64) {
        NOW.set(Some(now));
        SLOWDOWN.set(slowdown);
        WORKED.set(false);
    }
    /// Time as the wall clock tells it again.
    pub fn end() {
        NOW.set(None);
    }
    pub fn pass(time: Nanos) {
        NOW.set(NOW.get().map(|now| now + time));
    }
    /// A request is served.
    pub fn work(time: Nanos) {
        pass(Nanos((time.0 as f64 * SLOWDOWN.get()) as u64));
        WORKED.set(true);
    }
    /// Whether one was in this turn.
    pub fn worked() -> bool {
        WORKED.get()
    }
}

/// What a run is made of.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub scheduler: &'static str,
    pub cores: usize,
    pub threads: u16,
    /// What a core that blocks takes to wake for I/O, as the scheduler knows; none blocks else.
    pub wake: Option<Nanos>,
    /// Every core has a sibling, and whether that is its neighbour.
    pub siblings: bool,
    pub pairs: bool,
    /// What a request takes.
    pub request: Nanos,
    /// How often, on average, somebody else has each core for [`world::STALL`]; never if absent.
    pub stalls: Option<Nanos>,
    /// How unevenly requests are spread over threads: 1 for evenly.
    pub skew: f64,
    pub coarse: Nanos,
    /// Requests per second.
    pub calm: f64,
    pub burst: f64,
}

impl Plan {
    fn of(seed: u64, scheduler: &'static str) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0xc0_7e5);
        Self {
            seed,
            scheduler,
            cores: 16,
            wake: None,
            threads: random.random_range(16..=64),
            siblings: true,
            pairs: random.random(),
            request: task::REQUEST,
            stalls: None,
            skew: [1.0, 1.5][random.random_range(0..2)],
            coarse: Nanos::from_millis(10),
            calm: random.random_range(5e3..100e3),
            burst: random.random_range(800e3..2.4e6),
        }
    }

    /// When the burst `number`, from 0, begins.
    fn begin(&self, number: u64) -> Nanos {
        Nanos(number * (CALM + BURST).0 + CALM.0)
    }

    fn end(&self) -> Nanos {
        self.begin(BURSTS)
    }

    /// Requests per second at `at`, and until when.
    fn rate(&self, at: Nanos) -> (f64, Nanos) {
        let begin = self.begin(at.0 / (CALM + BURST).0);
        if at < begin { (self.calm, begin) } else { (self.burst, begin + BURST) }
    }
}

/// Fine steps from the begin of a burst to the first that moves threads for it, and to one after
/// which at least as many cores have threads as its requests keep busy. The most seen in 900 bursts
/// are 10 and 19.
const FIRST: u64 = 16;
const ENOUGH: u64 = 32;

/// One run with all that must hold in it. What happened.
fn run(plan: Plan) -> u64 {
    let mut world = World::new(plan);
    for number in 0..BURSTS {
        world.run_until(plan.begin(number));
        world.check();
        // As published, the main core and one worker, its sibling, poll. A load that is chance may
        // keep sandman-plus one more core awake, and each burst that waited doubles them.
        let (asleep, whole) = (world.asleep().iter().filter(|core| **core).count(), world.whole());
        let is_plus = plan.scheduler == "sandman-plus";
        let awake = if is_plus { 2.max(1 << number) } else { 2 };
        assert!(asleep >= plan.cores - awake, "{asleep} cores asleep before a burst");
        let least = plan.cores / 2 - if is_plus { awake.div_ceil(2) + 1 } else { 1 };
        assert!(whole >= least, "{whole} physical cores asleep before a burst");
        let before = world.steps.lock().unwrap().fine;
        world.run_until(plan.begin(number) + BURST);
        let steps = world.steps.lock().unwrap();
        let mut spread =
            steps.spread.iter().map(|(step, used)| (step.saturating_sub(before), used));
        let first = spread.clone().find(|(step, _)| *step > 0).map(|(step, _)| step);
        assert!(first.is_some_and(|step| step <= FIRST), "a burst is caught at {first:?}");
        let needed = (plan.burst * task::REQUEST.seconds()).ceil() as usize;
        let enough = spread.find(|(step, used)| *step > 0 && **used >= needed);
        assert!(enough.is_some_and(|(step, _)| step <= ENOUGH), "{needed} cores: {enough:?}");
    }
    world.run_until(plan.end() + CALM);
    world.check();
    let seen = world.seen.lock().unwrap();
    assert_eq!((seen.answered, world.held()), (seen.arrived, plan.threads.into()), "lost");
    let steps = world.steps.lock().unwrap();
    assert!(steps.most_waiting > 0 && steps.waiting == 0, "{} wait at the end", steps.waiting);
    seen.trace
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn bursts_are_caught_and_spare_cores_sleep() {
    let (first, seeds) = (number("EBB_SEED").unwrap_or(1), number("EBB_SIMULATIONS").unwrap_or(4));
    for seed in first..first + seeds {
        for scheduler in ["sandman", "sandman-plus"] {
            run(Plan::of(seed, scheduler));
        }
    }
}

#[test]
fn a_seed_replays_exactly() {
    let plan = Plan::of(1, "sandman-plus");
    assert_eq!(run(plan), run(plan));
}
