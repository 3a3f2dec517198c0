//! What the model promises: conservation, and that each way of waiting costs what it should.

use proptest::prelude::*;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use ebb_policy::reactor::{ENTRIES, Parts, Placement, Queues, Sandman, by_name};

use ebb_trace::{Op, Request, Source, TraceError};

use super::*;

const SECOND: Nanos = Nanos::from_secs(1);

/// A small server with a short coarse period, so that runs settle soon.
fn small() -> Profile {
    let profile = Profile::all_flash().unwrap();
    Profile { physical_cores: 4, threads: 16, coarse: Nanos::from_millis(20), ..profile }
}

fn shown_with(profile: &Profile, scheduler: Box<dyn Scheduler>, load: Load) -> Shown {
    shown_until(profile, scheduler, load, (Nanos::from_millis(400), Nanos::from_millis(200)))
}

fn shown_until(
    profile: &Profile,
    scheduler: Box<dyn Scheduler>,
    load: Load,
    (duration, warmup): (Nanos, Nanos),
) -> Shown {
    let software = Software::Target;
    run(Setup { profile, scheduler, load, software, duration, warmup, seed: 3 }).unwrap()
}

fn steady(rate: f64) -> Load {
    Load::Steps { steps: vec![(SECOND, rate)], writes: 0.0 }
}

fn shown(name: &str, rate: f64) -> Shown {
    let profile = small();
    let scheduler = by_name(name, &profile.machine()).unwrap();
    shown_with(&profile, scheduler, steady(rate))
}

/// All threads on one worker; what the fine steps see of their queues.
#[derive(Default)]
struct Looker(std::sync::Arc<std::sync::Mutex<Vec<(Nanos, u32)>>>);

impl Scheduler for Looker {
    fn name(&self) -> &'static str {
        "looker"
    }
    fn start(&mut self, placement: &mut Placement) {
        (0..placement.machine().threads).for_each(|one| placement.move_thread(one, 1, "test:one"));
    }
    fn fine_period(&self) -> Option<Nanos> {
        Some(Nanos::from_micros(10))
    }
    fn fine(&mut self, queues: &Queues<'_>, _: &mut Placement) {
        let waiting = queues.threads.iter().map(|queue| queue.depth).sum();
        self.0.lock().unwrap().push((queues.now, waiting));
    }
}

#[test]
fn the_fine_step_sees_what_waits_and_nothing_once_that_is_served() {
    let looker = Looker::default();
    let seen = looker.0.clone();
    // Four times what one core serves, for 2 ms, then as long nothing.
    let steps = vec![(Nanos::from_millis(2), 4e6), (SECOND, 0.0)];
    let load = Load::Steps { steps, writes: 0.0 };
    let shown = shown_until(&small(), Box::new(looker), load, (SECOND, Nanos::ZERO));
    assert!(shown.answered == shown.arrived && shown.arrived > 6000, "{}", shown.arrived);
    let seen = seen.lock().unwrap();
    let in_burst = seen.iter().rfind(|(at, _)| *at < Nanos::from_millis(2)).unwrap();
    assert!(u64::from(in_burst.1) > shown.arrived / 2, "{in_burst:?} of {}", shown.arrived);
    assert_eq!(seen.last().unwrap().1, 0);
}

/// Watts of the server with nothing to do under this scheduler.
fn idle(name: &str) -> f64 {
    shown(name, 0.0).power().0
}

#[test]
fn idle_power_is_what_the_waiting_draws() {
    let power = small().power;
    let others = 1.0 + power.others_per_cpu_watt;
    let floor = power.cpu_idle.0 + power.ssd_idle.0 + power.others_idle.0;
    let polling = |cores: f64| floor + cores * power.core_active.0 * others;
    let near = |a: f64, b: f64| (a - b).abs() < 0.01;
    assert!(near(idle("static"), polling(4.0)), "{}", idle("static"));
    // The main core and its sibling poll, the other three doze.
    let sandman = polling(1.0) + 3.0 * power.core_doze.0 * others;
    assert!(near(idle("sandman"), sandman), "{}", idle("sandman"));
    assert!(near(idle("interrupt"), floor), "{}", idle("interrupt"));
    assert!(idle("sandman-plus") < sandman);
}

#[test]
fn one_request_takes_the_time_of_its_parts() {
    let profile = small();
    let (cost, drive) = (&profile.cost, &profile.drive);
    let cycles = cost.request_cycles + cost.command_cycles + cost.reply_cycles;
    let work = cycles / cost.frequency.0 * 1e6 * cost.sibling_polling;
    let least = work + drive.read.micros() + drive.fabric.micros();
    let mean = shown("static", 20_000.0).latency.mean() * 1e-3;
    // Two empty rounds' halves and two looks at the thread on top.
    assert!(mean > least && mean < least + 2.0, "{mean} against {least}");
}

#[test]
fn interrupts_and_naps_cost_latency_and_save_power_when_the_load_is_light() {
    let polled = shown("static", 2000.0);
    for name in ["interrupt", "hybrid"] {
        let other = shown(name, 2000.0);
        assert!(other.quantile(0.5) > polled.quantile(0.5) + 3.0, "{name}");
        assert!(other.power().0 < polled.power().0, "{name}");
        assert!(other.wakes > 500, "{name} {}", other.wakes);
    }
}

#[test]
fn a_governor_slows_requests_down_and_saves_power() {
    let (polled, governed) = (shown("static", 20_000.0), shown("governor", 20_000.0));
    assert!(governed.power().0 < 0.9 * polled.power().0);
    assert!(governed.quantile(0.99) > polled.quantile(0.99) + 1.0);
}

#[test]
fn bursts_are_spread_within_microseconds_where_they_are_looked_for() {
    // 20 ms of rest, 20 ms of half of what all cores can do, over and over.
    let burst = || {
        let step = Nanos::from_millis(20);
        Load::Steps { steps: vec![(step, 2_000.0), (step, 1e6)], writes: 0.0 }
    };
    let mut profile = small();
    profile.coarse = Nanos::from_millis(40);
    let with = |parts| {
        let scheduler = Sandman::with(&profile.machine(), parts);
        shown_with(&profile, Box::new(scheduler), burst())
    };
    let polled = by_name("static", &profile.machine()).unwrap();
    let polled = shown_with(&profile, polled, burst());
    let all = with(Parts::ALL);
    let blind = with(Parts { bursts: false, ..Parts::ALL });
    assert!(all.quantile(0.99) < 1.5 * polled.quantile(0.99), "{}", all.quantile(0.99));
    assert!(blind.quantile(0.99) > 3.0 * all.quantile(0.99), "{}", blind.quantile(0.99));
}

#[test]
fn a_steady_high_load_is_no_burst_for_sandman_plus() {
    // 150 kIOPS for each of four cores; the second that counts comes after others to learn in.
    let mut profile = small();
    profile.coarse = Nanos::from_millis(100);
    let run = |name: &str| {
        let scheduler = by_name(name, &profile.machine()).unwrap();
        let (load, software) = (steady(600e3), Software::Target);
        let (duration, warmup) = (Nanos::from_millis(1500), Nanos::from_millis(1000));
        let profile = &profile;
        run(Setup { profile, scheduler, load, software, duration, warmup, seed: 3 }).unwrap()
    };
    let (polled, sandman, plus) = (run("static"), run("sandman"), run("sandman-plus"));
    assert!(plus.power() < sandman.power());
    assert!(plus.moves <= 8, "{}", plus.moves);
    assert!(plus.quantile(0.99) < 1.05 * polled.quantile(0.99), "{}", plus.quantile(0.99));
}

#[test]
fn short_bursts_that_follow_each_other_soon_do_not_move_threads_each_time() {
    // 1 ms of bursts every 50 ms; what is saved once the width is learned.
    let (calm, burst) = (Nanos::from_millis(49), Nanos::from_millis(1));
    for (rate, least) in [(600e3, 0.3), (2.4e6, 0.1)] {
        let steps = || vec![(calm, 40e3), (burst, rate)];
        let run = |name: &str| {
            let profile = Profile::all_flash().unwrap();
            let scheduler = by_name(name, &profile.machine()).unwrap();
            let load = Load::Steps { steps: steps(), writes: 0.0 };
            shown_until(&profile, scheduler, load, (Nanos::from_secs(8), Nanos::from_secs(6)))
        };
        let (polled, plus) = (run("static"), run("sandman-plus"));
        let (moves, p99) = (plus.moves / 2, plus.quantile(0.99) / polled.quantile(0.99));
        let saved = 1.0 - plus.power() / polled.power();
        assert!(moves <= 100, "{rate}: {moves} moves a second");
        assert!(p99 <= 1.05, "{rate}: p99 times {p99}");
        assert!(saved > least, "{rate}: {saved} saved");
    }
}

/// What bursts have asked for is kept for no thin stream that comes after them.
#[test]
fn threads_are_packed_again_once_bursts_are_over() {
    let (calm, burst) = ((Nanos::from_millis(49), 40e3), (Nanos::from_millis(1), 2.4e6));
    let thin = (Nanos::from_secs(100), 100.0);
    let steps = || [[calm, burst].repeat(160), vec![thin]].concat();
    let run = |name: &str| {
        let profile = Profile::all_flash().unwrap();
        let scheduler = by_name(name, &profile.machine()).unwrap();
        let load = Load::Steps { steps: steps(), writes: 0.0 };
        shown_until(&profile, scheduler, load, (Nanos::from_secs(100), Nanos::from_secs(70)))
    };
    let saved = 1.0 - run("sandman-plus").power() / run("static").power();
    assert!(saved > 0.35, "{saved} saved");
}

/// 128 requests on 64 volumes at one moment, now and then.
struct Batches {
    rng: Pcg64Mcg,
    at: Nanos,
}

impl Source for Batches {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        self.at += Nanos(self.rng.random_range(1_000_000..5_000_000));
        let (at, op, bytes, offset, stream) = (self.at, Op::Read, 4096, 0, 0);
        batch.extend((0..128).map(|index| {
            let device = index % 64;
            Request { at, device, op, bytes, offset, stream, recorded_latency: None }
        }));
        Ok(())
    }
}

#[test]
fn batches_of_which_each_finds_threads_packed_are_met_by_more_cores() {
    let run = |name: &str| {
        let profile = Profile::all_flash().unwrap();
        let scheduler = by_name(name, &profile.machine()).unwrap();
        let batches = Batches { rng: Pcg64Mcg::seed_from_u64(3), at: Nanos::ZERO };
        let load = Load::Trace(Box::new(batches));
        shown_until(&profile, scheduler, load, (Nanos::from_secs(12), Nanos::from_secs(8)))
    };
    let (polled, plus) = (run("static"), run("sandman-plus"));
    let p99 = plus.quantile(0.99) / polled.quantile(0.99);
    let saved = 1.0 - plus.power() / polled.power();
    assert!(p99 <= 1.05, "p99 times {p99}");
    assert!(saved > 0.05, "{saved} saved");
}

#[test]
fn raid_5_writes_take_two_rounds_of_drives() {
    let mut profile = small();
    let writes = || Load::Steps { steps: vec![(SECOND, 5_000.0)], writes: 1.0 };
    let mut run = |raid| {
        profile.raid.used = raid;
        let scheduler = by_name("static", &profile.machine()).unwrap();
        shown_with(&profile, scheduler, writes())
    };
    let (plain, raid) = (run(false), run(true));
    assert!(raid.quantile(0.5) > plain.quantile(0.5) + profile.drive.read.micros());
    assert!(raid.energy.ssd > plain.energy.ssd);
}

#[test]
fn a_profile_may_say_only_in_what_it_differs_from_a_shipped_one() {
    for name in Profile::names() {
        assert_eq!(Profile::find(name).unwrap().unwrap().name, name);
    }
    let text = "name = 'a'\nsummary = ''\nbase = 'all-flash-raid5'\n[power]\ncore_doze = '2 W'";
    let profile = Profile::parse("a", text).unwrap();
    assert!(profile.raid.used && profile.power.core_doze.0 == 2.0 && profile.threads == 64);
    for (text, says) in [
        ("name = 'a'\nbase = 'b'", "choose from all-flash, all-flash-raid5"),
        ("name = 'a'\nbase = 'all-flash'\nsumary = ''", "unknown field `sumary`"),
        ("base = 'all-flash'\n[cost]\nbatch = 0", "cost.batch: must be above zero"),
    ] {
        let error = Profile::parse("a", text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(Profile::find("asg-1115s").is_none());
}

/// Latencies that differ by what the scheduler does, and by nothing else.
fn even_drives() -> Profile {
    let mut profile = Profile::all_flash().unwrap();
    profile.drive.variation = 0.0;
    profile.coarse = Nanos::from_millis(20);
    profile
}

fn shown_between(name: &str, load: Load, warmup: Nanos, duration: Nanos) -> Shown {
    let profile = &even_drives();
    let scheduler = by_name(name, &profile.machine()).unwrap();
    let software = Software::Target;
    run(Setup { profile, scheduler, load, software, duration, warmup, seed: 3 }).unwrap()
}

#[test]
fn after_a_long_lull_one_request_pays_one_wake_up() {
    // 12 s of rest, 1 s of 200 requests, three times.
    let steps = [(Nanos::from_secs(12), 0.0), (SECOND, 200.0)];
    let load = || Load::Steps { steps: steps.to_vec(), writes: 0.0 };
    let run = |name| shown_between(name, load(), Nanos::ZERO, Nanos::from_secs(39));
    let (polled, plus) = (run("static"), run("sandman-plus"));
    let wake = even_drives().wake;
    let wake = (wake.c6_exit + wake.interrupt + wake.block).micros();
    assert!(plus.quantile(1.0) < polled.quantile(1.0) + 1.05 * wake, "{}", plus.quantile(1.0));
    let late = ((polled.quantile(1.0) + wake / 2.0) * 1e3) as u64;
    assert_eq!(plus.latency.count_between(late, u64::MAX), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// What the docs promise of steady loads holds for the thinnest, where no wake-up is shared,
    /// and for writes, which take a third of a read's time.
    #[test]
    fn no_steady_load_is_too_thin_for_sandman_plus(
        decades in 0.0..4.0_f64,
        writes in 0.0..=1.0_f64,
    ) {
        let rate = 10_f64.powf(decades);
        let span = Nanos::from_seconds((100.0 / rate).clamp(1.0, 30.0));
        let load = || Load::Steps { steps: vec![(SECOND, rate)], writes };
        let run = |name| shown_between(name, load(), SECOND, SECOND + span);
        let (polled, plus) = (run("static"), run("sandman-plus"));
        let later = (plus.latency.mean() - polled.latency.mean()) * 1e-3;
        prop_assert!(later < 3.0, "{rate}/s, {writes} written: {later} us");
        // Where drives do not vary, the longest of two rounds over all threads is the tail.
        for q in [0.99, 1.0] {
            let later = plus.quantile(q) - polled.quantile(q);
            prop_assert!(later < 9.0, "{rate}/s, {writes} written: {q} {later} us");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Nothing is lost, energy is never below the floor nor above everything on, and the same
    /// seed gives the same run.
    #[test]
    fn requests_and_energy_are_conserved(
        rates in prop::collection::vec(0.0..300_000.0, 1..4),
        writes in 0.0..1.0,
        raid: bool,
        scheduler in 0..ENTRIES.len(),
    ) {
        let mut profile = small();
        profile.raid.used = raid;
        let once = || {
            let mut steps: Vec<_> =
                rates.iter().map(|rate| (Nanos::from_millis(40), *rate)).collect();
            // Long enough at rest for everything to be answered before the end.
            steps.push((Nanos::from_millis(400 - 40 * steps.len() as u64 % 400), 0.0));
            let load = Load::Steps { steps, writes };
            let scheduler = by_name(ENTRIES[scheduler].name, &profile.machine()).unwrap();
            let (duration, warmup) = (Nanos::from_millis(400), Nanos::ZERO);
            let software = Software::Target;
            let (profile, seed) = (&profile, 9);
            run(Setup { profile, scheduler, load, software, duration, warmup, seed }).unwrap()
        };
        let shown = once();
        prop_assert_eq!(shown.arrived, shown.answered);
        prop_assert_eq!(shown.answered, shown.latency.len());
        let power = &profile.power;
        let floor = power.cpu_idle + power.ssd_idle + power.others_idle;
        let cores = power.core_active.0 + power.core_serving.0;
        let most = floor.0 + 4.0 * cores * (1.0 + power.others_per_cpu_watt) + power.ssd_range.0;
        prop_assert!(shown.power() >= floor && shown.power().0 < most);
        prop_assert!(shown.peak >= shown.power());
        let idle = Nanos(8 * shown.span.0).saturating_sub(shown.served);
        prop_assert!(shown.asleep.0 <= idle.0 + 8 * 100_000);
        let parts = shown.energy.cpu + shown.energy.ssd + shown.energy.others;
        prop_assert_eq!(parts, shown.energy.total());
        let again = once();
        prop_assert_eq!(again.energy, shown.energy);
        prop_assert_eq!(again.latency, shown.latency);
    }
}
