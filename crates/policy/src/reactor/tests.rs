//! The promises that every scheduler keeps, whatever the loads.

use proptest::prelude::*;

use super::*;

/// Physical cores of two hyper-threads each: 0 and 1 are siblings, 2 and 3, and so on.
pub(super) fn machine(physical: usize, threads: u16) -> Machine {
    let core = |core: usize| CoreSpec { sibling: Some(core as Core ^ 1), node: 0 };
    Machine { cores: (0..2 * physical).map(core).collect(), threads, wake: None }
}

/// One core, no sibling.
fn single(threads: u16) -> Machine {
    Machine { cores: vec![CoreSpec { sibling: None, node: 0 }], threads, wake: None }
}

const SECOND: Nanos = Nanos::from_secs(1);
/// What each request takes.
const LATENCY: Nanos = Nanos::from_micros(100);

/// What one second shows when each thread asks for this share of a core, at 2 µs a request.
pub(super) fn period(placement: &Placement, loads: &[f64]) -> (Vec<CoreLoad>, Vec<ThreadLoad>) {
    let mut asked = vec![0.0_f64; placement.machine().cores.len()];
    for (core, load) in placement.core_of().iter().zip(loads) {
        asked[usize::from(*core)] += load;
    }
    let time = |share: f64| Nanos::from_seconds(share);
    let threads = placement.core_of().iter().zip(loads).map(|(core, load)| {
        let busy = load / asked[usize::from(*core)].max(1.0);
        let busy = time(busy);
        let requests = busy.0 / 2000;
        ThreadLoad { busy, requests, latency: Nanos(requests * LATENCY.0), peak_depth: 1 }
    });
    let cores = asked.iter().map(|asked| {
        let busy = time(asked.min(1.0));
        CoreLoad { busy, wasted: SECOND - busy, asleep: Nanos::ZERO }
    });
    (cores.collect(), threads.collect())
}

/// A placement under a scheduler, with every shift carried out and checked as a plant would.
pub(super) struct Plant {
    pub scheduler: Box<dyn Scheduler>,
    pub placement: Placement,
    core_of: Vec<Core>,
    waits: Vec<Wait>,
    now: Nanos,
    /// Requests that each thread has completed.
    pub requests: u64,
    /// When one was last worked on.
    pub worked: Nanos,
}

impl Plant {
    pub fn new(name: &str, machine: &Machine) -> Self {
        let mut placement = Placement::even(machine.clone());
        let (core_of, waits) = (placement.core_of().to_vec(), placement.waits().to_vec());
        let mut scheduler = by_name(name, machine).unwrap();
        scheduler.start(&mut placement);
        let (now, requests, worked) = (SECOND, 0, Nanos::ZERO);
        let mut plant = Self { scheduler, placement, core_of, waits, now, requests, worked };
        plant.carry_out();
        plant
    }

    /// No thread ever sits on a core that I/O does not wake, not even between two shifts.
    fn carry_out(&mut self) {
        for shift in self.placement.shifts() {
            match *shift {
                Shift::Move { thread, from, to, .. } => {
                    let at = std::mem::replace(&mut self.core_of[usize::from(thread)], to);
                    assert_eq!(at, from, "{shift:?}");
                }
                Shift::Wait { core, wait, .. } => self.waits[usize::from(core)] = wait,
                Shift::Speed { .. } => {}
            }
            for core in &self.core_of {
                let wait = self.waits[usize::from(*core)];
                assert!(!matches!(wait, Wait::Doze | Wait::Halt), "after {shift:?}");
            }
        }
        assert_eq!(self.core_of, self.placement.core_of());
        assert_eq!(self.waits, self.placement.waits());
        let cores = self.waits.len();
        assert!(self.core_of.iter().all(|core| usize::from(*core) < cores));
    }

    pub fn coarse(&mut self, loads: &[f64]) {
        if loads.iter().any(|load| *load > 0.0) {
            self.worked = self.now;
            self.fine(&vec![0; loads.len()]);
        }
        let (cores, threads) = period(&self.placement, loads);
        self.placement.begin();
        let period = Period { now: self.now, length: SECOND, cores: &cores, threads: &threads };
        self.scheduler.coarse(&period, &mut self.placement);
        self.carry_out();
    }

    pub fn fine(&mut self, depths: &[u32]) {
        let (since_poll, requests, worked) = (Nanos::from_micros(1), self.requests, self.worked);
        let queue = |depth: &u32| Queue { depth: *depth, since_poll, requests, worked };
        let queues: Vec<Queue> = depths.iter().map(queue).collect();
        self.placement.begin();
        self.scheduler.fine(&Queues { now: self.now, threads: &queues }, &mut self.placement);
        self.carry_out();
    }

    pub fn later(&mut self, time: Nanos) {
        self.now += time;
    }

    /// Shifts of the last step.
    pub fn changed(&self) -> usize {
        self.placement.shifts().len()
    }

    /// The load of each core when each thread asks for this share.
    fn core_loads(&self, loads: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.waits.len()];
        for (core, load) in self.core_of.iter().zip(loads) {
            sums[usize::from(*core)] += load;
        }
        sums
    }
}

/// A machine, and loads for its threads.
fn loaded(most: f64) -> impl Strategy<Value = (Machine, Vec<f64>)> {
    (0_usize..9, prop::collection::vec(0.0..most, 1..40)).prop_map(|(physical, loads)| {
        let threads = loads.len() as u16;
        let machine = if physical == 0 { single(threads) } else { machine(physical, threads) };
        (machine, loads)
    })
}

proptest! {
    /// [`Plant`] asserts the golden rule and that every thread is on one core that exists.
    #[test]
    fn threads_are_never_lost_nor_left_asleep(
        (machine, loads) in loaded(1.2),
        steps in prop::collection::vec((any::<bool>(), 0_u32..40, any::<u64>()), 1..40),
    ) {
        for entry in ENTRIES {
            let mut plant = Plant::new(entry.name, &machine);
            for (coarse, depth, bits) in &steps {
                // Some threads are quiet, others not, differently at each step.
                let quiet = |thread: usize| bits >> (thread % 64) & 1 == 0;
                if *coarse {
                    let load = |(t, load): (usize, &f64)| if quiet(t) { 0.0 } else { *load };
                    plant.coarse(&loads.iter().enumerate().map(load).collect::<Vec<_>>());
                } else {
                    let depth = |t: usize| if quiet(t) { 0 } else { depth + t as u32 % 7 };
                    plant.fine(&(0..loads.len()).map(depth).collect::<Vec<_>>());
                }
            }
        }
    }

    /// Under constant load the schedulers that promise it come to rest.
    #[test]
    fn there_is_no_ping_pong_under_constant_load((machine, loads) in loaded(0.9)) {
        // Overload shows each thread less than it asks for: not a constant load.
        let most = 0.499 * machine.cores.len() as f64;
        let scale = (most / loads.iter().sum::<f64>()).min(1.0);
        let loads: Vec<f64> = loads.iter().map(|load| load * scale).collect();
        for name in ["static", "interrupt", "sandman", "sandman-plus"] {
            let mut plant = Plant::new(name, &machine);
            let settle = 4 * machine.cores.len() + 60;
            for _ in 0..settle {
                plant.coarse(&loads);
            }
            let mut moves = 0;
            for _ in 0..10 {
                plant.coarse(&loads);
                let moved = |shift: &&Shift| matches!(shift, Shift::Move { .. });
                moves += plant.placement.shifts().iter().filter(moved).count();
            }
            prop_assert_eq!(moves, 0, "{}", name);
        }
    }

    /// A core that got threads by consolidation keeps its burst buffer.
    #[test]
    fn consolidation_leaves_the_burst_buffer((machine, loads) in loaded(0.5)) {
        for (name, fill) in [("sandman", 0.6), ("sandman-plus", 0.7)] {
            let mut plant = Plant::new(name, &machine);
            for _ in 0..5 {
                let before = plant.core_loads(&loads);
                plant.coarse(&loads);
                let joined = plant.placement.shifts().iter().filter_map(|shift| match *shift {
                    Shift::Move { to, reason, .. } if reason.ends_with(":consolidate") => Some(to),
                    _ => None,
                });
                let after = plant.core_loads(&loads);
                for core in joined.map(usize::from) {
                    // What was measured may be less than asked for where a core was overloaded.
                    let overloaded = before.iter().any(|load| *load > 1.0);
                    prop_assert!(overloaded || after[core] <= fill + 1e-6, "{} {:?}", name, after);
                }
            }
        }
    }

    /// A burst everywhere uses every core, the main one where nothing else is left.
    #[test]
    fn a_burst_on_every_queue_reaches_every_core(physical in 1_usize..9, per_core in 1_u16..4) {
        for name in ["sandman", "sandman-plus"] {
            let machine = machine(physical, 2 * physical as u16 * per_core);
            let threads = usize::from(machine.threads);
            let mut plant = Plant::new(name, &machine);
            for _ in 0..50 {
                plant.coarse(&vec![0.0; threads]);
            }
            for _ in 0..40 {
                plant.fine(&vec![64; threads]);
                plant.later(Nanos::from_micros(100));
            }
            let on = |core: usize| plant.placement.threads_on(core as Core).count();
            let spread: Vec<usize> = (0..2 * physical).map(on).collect();
            let workers = &spread[1..];
            prop_assert!(workers.iter().all(|count| *count > 0), "{} {:?}", name, spread);
            let (least, most) = (workers.iter().min().unwrap(), workers.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{} {:?}", name, spread);
        }
    }
}

#[test]
fn names_are_unique_and_lead_to_what_they_name() {
    for entry in ENTRIES {
        assert_eq!(by_name(entry.name, &machine(2, 4)).unwrap().name(), entry.name);
    }
    let message = by_name("sandmann", &machine(2, 4)).err().unwrap().to_string();
    assert!(message.contains("'sandmann'") && message.contains("sandman-plus"), "{message}");
}

#[test]
fn parameters_are_stated_after_the_name_and_kept_within_their_ranges() {
    let machine = machine(4, 16);
    assert!(by_name("sandman(burst_buffer=0.3, burst_depth=16)", &machine).is_ok());
    assert!(by_name("sandman-plus( objective_us = 35 )", &machine).is_ok());
    for (name, says) in [
        ("sandman(depth=1)", "'depth=1' is no parameter of sandman; it takes burst_buffer, burst"),
        ("sandman(burst_buffer=0.8)", "burst_buffer = 0.8 is out of range"),
        ("sandman(burst_buffer=-0.1)", "burst_buffer = -0.1 is out of range"),
        ("sandman(burst_depth=0.5)", "burst_depth = 0.5 is out of range"),
        ("sandman-plus(objective_us=0)", "objective_us = 0 is out of range"),
        ("sandman-plus(objective_percent=0)", "objective_percent = 0 is out of range"),
        ("sandman-plus(objective_us=9, objective_percent=5)", "stated without objective_us"),
        ("static(x=1)", "it takes nothing"),
    ] {
        let error = by_name(name, &machine).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(says)), "{name}: {error:?}");
    }
    // Twice the depth: what was a burst is none.
    let mut plant = Plant::new("sandman(burst_depth=16)", &machine);
    plant.coarse(&[0.0; 16]);
    let depths: Vec<u32> = (0..16).map(|thread| if thread < 5 { 3 } else { 0 }).collect();
    plant.fine(&depths);
    assert_eq!(plant.changed(), 0);
}

#[test]
fn an_idle_sandman_keeps_one_worker_awake_beside_the_main_core() {
    let mut plant = Plant::new("sandman", &machine(4, 16));
    for _ in 0..3 {
        plant.coarse(&[0.0; 16]);
    }
    // The main core's sibling: no other physical core is awake.
    assert_eq!(plant.placement.core_of(), [1; 16]);
    assert_eq!(plant.placement.waits()[..2], [Wait::Poll; 2]);
    assert_eq!(plant.placement.waits()[2..], [Wait::Doze; 6]);
}

#[test]
fn siblings_sleep_together_while_both_keep_to_the_limit() {
    // Three loads that only fit on a core each; the main core's sibling takes one.
    let mut plant = Plant::new("sandman", &machine(4, 3));
    plant.coarse(&[0.4, 0.4, 0.4]);
    plant.coarse(&[0.4, 0.4, 0.4]);
    let awake: Vec<bool> = plant.placement.waits().iter().map(|wait| *wait == Wait::Poll).collect();
    assert_eq!(awake, [true, true, true, true, false, false, false, false]);
}

#[test]
fn a_burst_wakes_the_sibling_of_an_awake_core_first() {
    let mut plant = Plant::new("sandman", &machine(4, 4));
    for _ in 0..3 {
        plant.coarse(&[0.0; 4]);
    }
    plant.fine(&[0, 7, 0, 0]);
    assert_eq!(plant.changed(), 0);
    // Core 1 and its sibling, the main core, are awake: a whole core must wake, then its sibling.
    plant.fine(&[20, 20, 0, 0]);
    assert_eq!(plant.placement.core_of(), [3, 2, 1, 1]);
}

#[test]
fn many_shallow_queues_of_one_core_are_a_burst_of_it() {
    let mut plant = Plant::new("sandman", &machine(4, 8));
    for _ in 0..3 {
        plant.coarse(&[0.0; 8]);
    }
    plant.fine(&[1, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!(plant.changed(), 0);
    plant.fine(&[1; 8]);
    let moved = plant.placement.core_of().iter().filter(|core| **core != 1).count();
    assert_eq!(moved, 1, "seven of eight are no burst any more");
}

#[test]
fn an_idle_sandman_plus_rests_on_every_core() {
    for machine in [machine(4, 16), single(16)] {
        let mut plant = Plant::new("sandman-plus", &machine);
        for _ in 0..400 {
            plant.coarse(&[0.0; 16]);
        }
        assert!(plant.placement.core_of().iter().all(|core| *core == Machine::MAIN));
        let spin = gaps::SHORTEST;
        assert_eq!(plant.placement.waits()[0], Wait::Block { spin });
        // One physical core is the reserve, the others rest deeply, the main core's sibling too.
        let deep = Wait::Block { spin: Nanos::ZERO };
        let rest = [deep, Wait::Halt, Wait::Halt, deep, deep, deep, deep];
        assert_eq!(plant.placement.waits()[1..], rest[..machine.cores.len() - 1]);
    }
}

#[test]
fn sandman_plus_halves_a_burst_and_waits_for_cores_that_sleep_deeply() {
    let mut plant = Plant::new("sandman-plus", &machine(4, 16));
    for _ in 0..3 {
        plant.coarse(&[0.0; 16]);
    }
    let on = |plant: &Plant| -> Vec<usize> {
        (0..8).map(|core| plant.placement.threads_on(core).count()).collect()
    };
    // Its reserve is one physical core: half of the threads go there, and to its sibling once
    // nothing else is light; cores that were deep are on their way, and get none yet.
    plant.fine(&[20; 16]);
    let spread = on(&plant);
    assert!(spread[2] > 0 && spread[4..] == [0; 4], "{spread:?}");
    assert_eq!(plant.placement.waits()[4], Wait::Halt);
    // A millisecond later they are awake.
    plant.later(Nanos::from_millis(1));
    plant.fine(&[20; 16]);
    assert!(on(&plant)[4] > 0, "{:?}", on(&plant));
}

#[test]
fn sandman_plus_measures_delay_by_what_requests_cost() {
    // Two threads on the main core, 2 µs a request: what waits beside the longest queue counts.
    let mut plant = Plant::new("sandman-plus", &machine(2, 2));
    for _ in 0..3 {
        plant.coarse(&[0.05, 0.05]);
    }
    plant.fine(&[3, 2]);
    assert_eq!(plant.changed(), 0);
    plant.fine(&[30, 2]);
    assert_eq!(plant.changed(), 0);
    plant.fine(&[30, 15]);
    assert_ne!(plant.placement.core_of()[0], Machine::MAIN);
    assert_eq!(plant.placement.waits()[0], Wait::Poll, "the worker's queues must be watched");
}

#[test]
fn sandman_plus_takes_the_queue_of_a_busy_core_for_no_burst() {
    let spreads = |load: f64, depth: u32| {
        let mut plant = Plant::new("sandman-plus", &machine(2, 4));
        for _ in 0..5 {
            plant.coarse(&[load / 4.0; 4]);
        }
        plant.fine(&[depth; 4]);
        plant.changed() > 0
    };
    // 12 µs beside the longest queue: much for a core without work, chance for one half busy.
    assert!(spreads(0.01, 2));
    assert!(!spreads(0.5, 2));
    // 24 µs come together by chance less than once a second.
    assert!(spreads(0.5, 4));
}

#[test]
fn sandman_plus_counts_what_waits_for_as_long_as_it_waits() {
    // For 10 ms of each second eight requests wait on a core that is half busy: 80 ms of waiting,
    // of 25 that packing may cost. A main core under load looks less often than every 10 µs.
    for look in [10, 50, 250] {
        let mut plant = Plant::new("sandman-plus", &machine(2, 4));
        for _ in 0..5 {
            plant.coarse(&[0.125; 4]);
            for _ in 0..10_000 / look {
                plant.later(Nanos::from_micros(look));
                plant.fine(&[2; 4]);
            }
        }
        plant.coarse(&[0.125; 4]);
        // What a burst spreads is packed again, as closely as that waiting allows.
        plant.fine(&[20; 4]);
        plant.coarse(&[0.125; 4]);
        let used: std::collections::BTreeSet<_> = plant.placement.core_of().iter().collect();
        assert!(used.len() > 1, "looking every {look} µs");
    }
}

#[test]
fn sandman_plus_packs_as_soon_as_a_burst_is_over() {
    let mut plant = Plant::new("sandman-plus", &machine(4, 16));
    for _ in 0..3 {
        plant.coarse(&[0.001; 16]);
    }
    let main = |plant: &Plant| plant.placement.threads_on(Machine::MAIN).count();
    plant.fine(&[20; 16]);
    assert!(main(&plant) < 16);
    let window = |plant: &mut Plant, requests: u64| {
        plant.later(Nanos::from_millis(10));
        plant.requests += requests;
        plant.fine(&[0; 16]);
    };
    // 16 threads of 500 requests at 2 µs are 1.6 cores; of 300 still more than half of it.
    window(&mut plant, 500);
    window(&mut plant, 300);
    assert!(main(&plant) < 16);
    window(&mut plant, 20);
    assert_eq!(main(&plant), 16);
    assert_eq!(plant.placement.waits()[0], Wait::Poll);
}

#[test]
fn sandman_plus_rests_after_bursts_that_followed_each_other_soon() {
    let mut plant = Plant::new("sandman-plus", &machine(4, 16));
    let windows = |plant: &mut Plant, count: usize, requests: u64| {
        for _ in 0..count {
            plant.later(Nanos::from_millis(10));
            plant.requests += requests;
            plant.fine(&[0; 16]);
        }
    };
    for _ in 0..3 {
        plant.coarse(&[0.001; 16]);
    }
    for _ in 0..8 {
        plant.worked = plant.now;
        plant.fine(&[20; 16]);
        windows(&mut plant, 2, 500);
        windows(&mut plant, 5, 0);
    }
    for _ in 0..12 {
        windows(&mut plant, 100, 0);
        plant.coarse(&[0.0; 16]);
    }
    assert!(plant.placement.core_of().iter().all(|core| *core == Machine::MAIN));
    assert!(matches!(plant.placement.waits()[0], Wait::Block { .. }));
}

#[test]
fn sandman_plus_fills_two_siblings_for_the_speed_that_sharing_leaves() {
    let mut plant = Plant::new("sandman-plus", &machine(4, 16));
    let loads = [0.12; 16];
    for _ in 0..30 {
        plant.coarse(&loads);
    }
    for pair in plant.core_loads(&loads).chunks(2) {
        let most = pack::CORE_LIMIT / pack::SIBLING_COST + 1e-9;
        let shared = pair.iter().all(|load| *load > 0.0);
        assert!(!shared || pair.iter().all(|load| *load <= most), "{pair:?}");
    }
}

/// A machine whose cores take so long to wake.
fn waking(micros: u64) -> Machine {
    Machine { wake: Some(Nanos::from_micros(micros)), ..machine(2, 1) }
}

fn spin(plant: &Plant) -> Option<Nanos> {
    match plant.placement.waits()[0] {
        Wait::Block { spin } => Some(spin),
        _ => None,
    }
}

/// Lets a request come after each of these gaps, in microseconds.
fn requests(plant: &mut Plant, gaps: impl IntoIterator<Item = u64>) {
    for gap in gaps {
        plant.later(Nanos::from_micros(gap));
        plant.worked = plant.now;
        plant.fine(&[0]);
    }
}

#[test]
fn sandman_plus_starts_at_rest() {
    for wake in [15, 300] {
        let plant = Plant::new("sandman-plus", &Machine { threads: 16, ..waking(wake) });
        assert_eq!(plant.placement.core_of(), [Machine::MAIN; 16]);
        assert!(plant.placement.waits().iter().all(|wait| *wait != Wait::Poll), "{wake}");
    }
}

#[test]
fn sandman_plus_rests_its_main_core_once_nobody_has_asked_for_long() {
    let mut plant = Plant::new("sandman-plus", &waking(300));
    // One request a second: each would pay the wake-up.
    for _ in 0..5 {
        requests(&mut plant, [1_000_000]);
        plant.coarse(&[2e-6]);
        assert_eq!(spin(&plant), None);
    }
    for quiet in 1..=12 {
        plant.later(SECOND);
        plant.coarse(&[0.0]);
        plant.fine(&[0]);
        assert_eq!(spin(&plant).is_some(), quiet >= 10, "{quiet} s");
    }
    // The next request ends it at once.
    requests(&mut plant, [100_000]);
    assert_eq!(spin(&plant), None);
    plant.coarse(&[2e-6]);
    assert_eq!(spin(&plant), None);
}

#[test]
fn sandman_plus_polls_for_requests_as_far_as_that_pays() {
    let mut plant = Plant::new("sandman-plus", &waking(15));
    let mut after = |gap: u64| {
        requests(&mut plant, [gap].repeat(300));
        plant.coarse(&[0.01]);
        spin(&plant).unwrap()
    };
    // One a second and 1,000: hardly. 10,000: until the stream has ended for long. And back.
    assert_eq!([after(1_000_000), after(1_000)], [gaps::SHORTEST; 2]);
    assert!(after(100) > Nanos::from_millis(8));
    assert_eq!(after(10_000), gaps::SHORTEST);
}

#[test]
fn sandman_plus_may_wake_for_each_request_where_the_objective_allows_it() {
    for (stated, wake, rests) in [
        ("", 15, true),
        ("", 100, true),
        ("", 101, false),
        ("(objective_us=14)", 15, false),
        ("(objective_us=15)", 15, true),
        ("(objective_us=299)", 300, false),
        ("(objective_us=300)", 300, true),
        // Of the 100 us that requests take.
        ("(objective_percent=14)", 15, false),
        ("(objective_percent=15)", 15, true),
    ] {
        let mut plant = Plant::new(&format!("sandman-plus{stated}"), &waking(wake));
        requests(&mut plant, [10_000; 3]);
        plant.coarse(&[1e-4]);
        assert_eq!(spin(&plant).is_some(), rests, "{stated} {wake}");
    }
}
