//! The prices, and PACER's promises once more with the reserve around it.

use proptest::prelude::*;

use super::*;
use crate::cpu::pacer::tests::plant::{Loop, Plant};
use crate::cpu::pacer::tests::{beside_jobs, job_cores, plants};

/// The Burst-Check's utilisation, and the period in seconds.
const U_MAX: f64 = 0.8;
const T: f64 = 0.5;

fn plus(plant: Plant, plf: f64) -> Loop<PacerPlus> {
    let policy = PacerPlus::new(&plant.topology, PacerParams::for_plf(plf)).unwrap();
    Loop::new(plant, policy)
}

/// Cores at the highest frequency that a group's setting is worth.
fn capacity(run: &Loop<PacerPlus>, g: usize) -> f64 {
    let group = run.in_force.group(g);
    f64::from(group.active) * (group.frequency / run.plant.topology.max_frequency())
}

/// A calm load, one burst of `seconds`, the calm load again.
fn burst_after_calm(seconds: u64) -> Loop<PacerPlus> {
    let mut run = plus(Plant::new(20e3), 0.2);
    run.run(120);
    run.plant.rate = 200e3;
    run.run(seconds);
    run.plant.rate = 20e3;
    run
}

fn demand(cores: f64, service: f64, sustained: f64) -> Demand {
    Demand { cores, service, sustained, ..Demand::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn cores_that_run_jobs_make_no_difference(plant in plants(), at in 0_usize..=3) {
        let mut without = plus(plant.clone(), 0.2);
        let mut with = plus(beside_jobs(plant, at), 0.2);
        let all_on = with.in_force.group(at);
        for period in 0..600 {
            without.step();
            with.step_with(|signals| job_cores(signals, at, period));
            let mut groups = with.groups();
            prop_assert_eq!(groups.remove(at), all_on);
            prop_assert_eq!(groups, without.groups(), "after {} periods", period);
        }
    }
}

proptest! {
    #[test]
    fn what_is_affordable_costs_what_is_in_the_purse(
        cores in 2.0..128.0, service in 1e-6..1e-2, share in 0.01..0.8, purse in 0.0..1e5,
        bunch in 1.0..1e5,
    ) {
        let w = share * cores / U_MAX;
        let stays = demand(cores, service, share * cores).affordable(purse, 0.0, U_MAX, T);
        let price: f64 = T * T / 2.0 * w * (w - stays) / (service * stays);
        prop_assert!((price - purse).abs() <= 1e-6 * purse.max(1e-3), "{price} {purse}");
        let at_once = demand(cores, service, 0.0).affordable(purse, bunch, U_MAX, T);
        let price: f64 = bunch * bunch * service / 2.0 * (1.0 / at_once - 1.0 / cores);
        prop_assert!((price - purse).abs() <= 1e-6 * purse.max(1e-3), "{price} {purse}");
    }

    #[test]
    fn more_in_the_purse_never_reserves_more_and_more_demand_never_less(
        cores in 2.0..128.0, service in 1e-6..1e-2, sustained in 0.0..200.0, purse in 0.0..1e5,
        bunch in 0.0..1e5, more in 1.0..10.0,
    ) {
        let at = |sustained, purse, bunch| {
            demand(cores, service, sustained).affordable(purse, bunch, U_MAX, T)
        };
        let now = at(sustained, purse, bunch);
        prop_assert!((0.0..=cores).contains(&now));
        prop_assert!(at(sustained, purse * more, bunch) <= now + 1e-9);
        prop_assert!(at(sustained * more, purse, bunch) >= now - 1e-9);
        prop_assert!(at(sustained, purse, bunch * more) >= now - 1e-9);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn mean_latency_keeps_plf(plant in plants(), plf in 0.02..1.0) {
        let noise = plant.noise;
        let mut run = plus(plant, plf);
        run.run(120);
        let (relative, _) = run.run(600);
        prop_assert!(relative <= 1.0 + plf + noise / 2.0, "{relative} with plf {plf}");
    }

    /// As PACER; the reserve adds no oscillation of its own.
    #[test]
    fn a_steady_load_has_a_steady_answer(plant in plants(), plf in 0.05..1.0) {
        let mut run = plus(plant, plf);
        run.run(120);
        let (_, changes) = run.run(600);
        prop_assert!(changes <= 80, "{changes} changes");
    }

    /// Whatever comes and goes: no setting is in force whose price is not in the purse.
    #[test]
    fn the_reserve_is_always_in_force(
        times in 1.5..18.0, plf in 0.05..0.5, calm in 20_u64..400, long in 1_u64..20,
    ) {
        let mut run = plus(Plant::new(20e3), plf);
        for (rate, seconds) in [(20e3, calm), (20e3 * times, long)].repeat(3) {
            run.plant.rate = rate;
            for _ in 0..2 * seconds {
                run.step();
                for g in 0..3 {
                    let reserve = run.policy.demand[g].reserve;
                    prop_assert!(capacity(&run, g) >= reserve - 1e-3, "group {g}");
                }
            }
        }
    }

    #[test]
    fn nonsense_passes(
        values in prop::collection::vec(
            (any::<f64>(), prop::option::of(0_u64..), prop::option::of(0_u64..)), 1..40),
    ) {
        let mut run = plus(Plant::new(60e3), 0.2);
        run.run(100);
        for (u, completed, latency) in values {
            run.step_with(|signals| {
                signals.groups[1].utilisation = Some(u);
                signals.io.completed = completed;
                signals.io.arrived = completed;
                signals.io.mean_latency = latency.map(Nanos);
            });
            prop_assert!(run.policy.purse.is_finite() && run.policy.purse >= 0.0);
            prop_assert!(run.policy.demand.iter().all(|d| d.reserve.is_finite()));
        }
    }
}

/// Where no burst was seen the reserve costs nothing: the setting is PACER's own.
#[test]
fn under_a_steady_load_it_saves_what_pacer_saves() {
    for rate in [2e3, 60e3, 240e3] {
        let plant = Plant::new(rate);
        let policy = Pacer::new(&plant.topology, PacerParams::for_plf(0.2)).unwrap();
        let (mut pacer, mut plus) = (Loop::new(plant.clone(), policy), plus(plant, 0.2));
        pacer.run(120);
        plus.run(120);
        for _ in 0..600 {
            pacer.step();
            plus.step();
            assert!(plus.cores() <= pacer.cores() + 3, "{} {}", plus.cores(), pacer.cores());
        }
    }
}

#[test]
fn without_tolerance_everything_stays_on() {
    let mut run = plus(Plant { noise: 0.01, ..Plant::new(60e3) }, 0.0);
    assert_eq!(run.run(300), (1.0, 0));
}

#[test]
fn the_second_burst_does_not_find_few_cores() {
    let mut run = burst_after_calm(10);
    run.run(300);
    assert!(run.cores() < 60, "{} cores: nothing is saved", run.cores());
    run.plant.rate = 200e3;
    let (relative, _) = run.run(10);
    assert!(relative < 1.2, "{relative}");
}

/// Days of calm earn what a burst under a deep saving would cost, and its memory fades.
#[test]
fn a_burst_long_ago_is_forgotten() {
    let mut run = burst_after_calm(10);
    run.run(60);
    let after = run.cores();
    run.run(4 * 86_400);
    assert!(f64::from(run.cores()) < 0.6 * f64::from(after), "{} {after}", run.cores());
}

/// One loss beyond what was earned puts everything back on.
#[test]
fn an_empty_purse_has_everything_on() {
    let mut run = plus(Plant { noise: 0.02, ..Plant::new(60e3) }, 0.2);
    run.run(100);
    assert!(run.policy.purse > 0.0 && run.cores() < 48);
    run.step_with(|signals| signals.io.mean_latency = Some(Nanos::from_secs(2)));
    assert_eq!(run.policy.purse, 0.0);
    let native: Vec<_> = InForce::new(&run.plant.topology).groups().collect();
    assert_eq!(run.groups(), native);
}

/// Work of a request is told from background work where periods without requests show the latter.
#[test]
fn background_work_is_no_request_s() {
    // A period of half a second, of four that are averaged.
    const RATE: f64 = 1.0 / 8.0;
    let mut demand = demand(32.0, 0.0, 0.0);
    for _ in 0..60 {
        demand.learn(0.16, 3, RATE);
        demand.learn(0.16 + 300.0 * 1e-4, 300, RATE);
    }
    assert!((demand.service / 1e-4 - 1.0).abs() < 0.1, "{}", demand.service);
}
