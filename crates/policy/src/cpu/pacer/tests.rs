//! PACER in closed loop with an analytic server: its promises as properties.

mod plant;

use plant::{Loop, Plant};
use proptest::prelude::*;

use super::*;
use crate::Signals;
use crate::units::Hertz;

fn pacer(plant: Plant, plf: f64, adaptors: Adaptors) -> Loop<Pacer> {
    let params = PacerParams { adaptors, ..PacerParams::for_plf(plf) };
    let pacer = Pacer::new(&plant.topology, params).unwrap();
    Loop::new(plant, pacer)
}

/// A run that has settled at 10 % pressure with the default `plf`.
fn settled() -> Loop<Pacer> {
    let mut run = pacer(Plant::new(60e3), 0.2, Adaptors::Both);
    run.run(100);
    assert_eq!(run.policy.state, State::Stable);
    assert!(run.cores() < 40 && run.ghz() < 2.6, "{} {}", run.cores(), run.ghz());
    run
}

fn is_native(run: &Loop<Pacer>) -> bool {
    run.controls.groups() == run.policy.native
        && run.controls.background() == BackgroundMode::Normal
}

/// Reasons of the last step.
fn reasons(run: &Loop<Pacer>) -> Vec<&'static str> {
    run.controls.decisions().iter().map(|decision| decision.reason).collect()
}

fn adaptors() -> impl Strategy<Value = Adaptors> {
    prop_oneof![Just(Adaptors::Both), Just(Adaptors::Cores), Just(Adaptors::Frequency)]
}

prop_compose! {
    fn plants()(
        rate in 2e3..560e3,
        other in 0.0..600e-6,
        service in prop::collection::vec(10e-6..85e-6, 3),
        pooled in any::<bool>(),
        noise in prop_oneof![Just(0.0), 0.0..0.02],
        random in 1_u64..,
    ) -> Plant {
        // The middle group has 16 cores, the last 32: a third and two thirds of the work.
        let service = vec![service[0], service[1] / 3.0, service[2] / 1.5];
        Plant { other, service, pooled, noise, random, ..Plant::new(rate) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The promise, over ten minutes after settling, excursions and all. The tolerance is what
    /// the baseline, a mean of five noisy windows, may be off by.
    #[test]
    fn mean_latency_keeps_plf(plant in plants(), plf in 0.02..1.0, adaptors in adaptors()) {
        let noise = plant.noise;
        let mut run = pacer(plant, plf, adaptors);
        run.run(120);
        let (relative, _) = run.run(600);
        prop_assert!(relative <= 1.0 + plf + noise / 2.0, "{relative} with plf {plf}");
    }

    /// No oscillation: in ten minutes, five times the life of a floor and of a baseline, at most
    /// a dozen periods with changes each time, three of which are the baseline's.
    #[test]
    fn a_steady_load_has_a_steady_answer(plant in plants(), plf in 0.05..1.0) {
        let mut run = pacer(plant, plf, Adaptors::Both);
        run.run(120);
        let (_, changes) = run.run(600);
        prop_assert!(changes <= 60, "{changes} changes");
    }

    /// Absurd and missing values neither panic nor stick: afterwards PACER saves again.
    #[test]
    fn nonsense_passes(
        values in prop::collection::vec(
            (any::<f64>(), prop::option::of(0_u64..), prop::option::of(0_u64..)), 1..40),
    ) {
        let mut run = settled();
        for (u, completed, latency) in values {
            run.step_with(|signals| {
                signals.groups[1].utilisation = Some(u);
                signals.io.completed = completed;
                signals.io.mean_latency = latency.map(Nanos);
            });
        }
        run.run(200);
        prop_assert!(run.cores() < 40, "{} cores", run.cores());
    }
}

#[test]
fn power_is_saved_where_the_load_is_low() {
    for pooled in [true, false] {
        let plant = || Plant { pooled, ..Plant::new(60e3) };
        for (adaptors, cores, ghz) in
            [(Adaptors::Both, 32, 2.6), (Adaptors::Cores, 32, 2.6), (Adaptors::Frequency, 96, 2.1)]
        {
            let mut run = pacer(plant(), 0.2, adaptors);
            run.run(120);
            assert!(run.cores() <= cores, "{adaptors:?}: {} cores", run.cores());
            assert!(run.ghz() <= ghz, "{adaptors:?}: {} GHz", run.ghz());
        }
    }
}

#[test]
fn an_ablation_leaves_the_other_control_alone() {
    let mut run = pacer(Plant::new(60e3), 0.2, Adaptors::Cores);
    run.run(300);
    assert_eq!(run.ghz(), 2.6);
    let mut run = pacer(Plant::new(60e3), 0.2, Adaptors::Frequency);
    run.run(300);
    assert_eq!(run.cores(), 96);
}

#[test]
fn without_tolerance_or_at_full_load_everything_stays_on() {
    for (rate, plf) in [(60e3, 0.0), (540e3, 0.2)] {
        let mut run = pacer(Plant { noise: 0.01, ..Plant::new(rate) }, plf, Adaptors::Both);
        assert_eq!(run.run(300), (1.0, 0), "{rate} {plf}");
    }
}

#[test]
fn a_burst_brings_native_back_within_one_period() {
    let quadruple: fn(&mut Signals) = |signals| {
        signals.io.mean_latency = signals.io.mean_latency.map(|l| Nanos(l.0 * 4));
    };
    let busy: fn(&mut Signals) = |signals| signals.groups[1].utilisation = Some(0.81);
    for (reason, burst) in [("pacer:burst-latency", quadruple), ("pacer:burst-utilisation", busy)] {
        let mut run = settled();
        run.step_with(burst);
        assert!(is_native(&run));
        assert_eq!(run.policy.state, State::Unstable);
        assert!(reasons(&run).iter().all(|why| *why == reason), "{:?}", reasons(&run));
    }
}

#[test]
fn idle_after_thirty_seconds_races_rests_and_wakes_on_a_request() {
    let mut run = settled();
    let kept = run.controls.groups().to_vec();
    run.plant.rate = 0.0;
    let pending = |signals: &mut Signals| signals.background_pending = Some(1 << 30);
    for _ in 0..59 {
        run.step_with(pending);
        assert_eq!(run.controls.groups(), kept);
    }
    run.step_with(pending);
    assert_eq!(run.controls.background(), BackgroundMode::Race);
    assert_eq!(run.controls.groups(), run.policy.native);
    run.step_with(|signals| signals.background_pending = Some(0));
    assert_eq!(run.controls.background(), BackgroundMode::Race);
    // The guard may take two periods to park that many.
    run.step_with(|signals| signals.background_pending = Some(0));
    assert_eq!(run.controls.groups(), kept);
    run.step_with(|signals| signals.io.arrived = Some(1));
    assert_eq!(run.policy.state, State::Unstable);
    assert!(is_native(&run));
}

/// Latency that swings to either side, three seconds each: l_div is 0.64 to 0.96 of `swing`,
/// however the windows fall.
fn swing(run: &mut Loop<Pacer>, swing: f64, periods: usize) {
    for period in 0..periods {
        let factor = if period / 6 % 2 == 0 { 1.0 - swing } else { 1.0 + swing };
        run.step_with(|signals| {
            let scaled = |l: Nanos| Nanos((l.0 as f64 * factor) as u64);
            signals.io.mean_latency = signals.io.mean_latency.map(scaled);
        });
    }
}

#[test]
fn hysteresis_keeps_the_state_between_the_thresholds() {
    // 0.13 to 0.19: between the thresholds, 0.1 and 0.25.
    let mut run = pacer(Plant::new(60e3), 0.2, Adaptors::Both);
    swing(&mut run, 0.2, 600);
    assert_eq!(run.policy.state, State::Unstable);
    assert!(is_native(&run));

    // Not to be disturbed by the age of the baseline.
    let params = PacerParams { baseline_age: Nanos::from_secs(3600), ..PacerParams::default() };
    let plant = Plant::new(60e3);
    let mut run = Loop::new(plant.clone(), Pacer::new(&plant.topology, params).unwrap());
    run.run(100);
    for _ in 0..12 {
        swing(&mut run, 0.2, 12);
        assert_eq!(run.policy.state, State::Stable);
    }

    // 0.29 to 0.43: beyond both.
    let mut run = settled();
    swing(&mut run, 0.45, 14);
    assert_eq!(run.policy.state, State::Unstable);
    assert!(is_native(&run));
}

#[test]
fn groups_are_sized_each_on_its_own_utilisation() {
    let cores = |service: [f64; 3]| {
        let plant = Plant { service: service.to_vec(), ..Plant::new(60e3) };
        let mut run = pacer(plant, 0.3, Adaptors::Cores);
        run.run(110);
        run.controls.groups().iter().map(|group| group.active).collect::<Vec<_>>()
    };
    let even = cores([80e-6, 26e-6, 53e-6]);
    let front = cores([240e-6, 26e-6, 53e-6]);
    assert!(front[0] > 2 * even[0], "{even:?} {front:?}");
    assert!(front[1] <= even[1] + 1 && front[2] <= even[2] + 1, "{even:?} {front:?}");
}

#[test]
fn missing_signals_change_nothing() {
    let mut run = settled();
    let kept = run.controls.groups().to_vec();
    // Fewer periods than the guard has patience for.
    for _ in 0..3 {
        run.step_with(|signals| {
            signals.io = Default::default();
            signals.groups.iter_mut().for_each(|group| group.utilisation = None);
        });
        assert_eq!(run.controls.groups(), kept);
    }
}

#[test]
fn frequency_is_one_of_the_available_ones() {
    let mut run = settled();
    for _ in 0..600 {
        run.step();
        let available = &run.plant.topology.frequencies;
        let f: Hertz = run.controls.groups()[0].frequency;
        assert!(available.contains(&f) && run.controls.groups().iter().all(|g| g.frequency == f));
    }
}
