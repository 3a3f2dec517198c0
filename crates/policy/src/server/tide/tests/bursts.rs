//! Loads that come in bursts.

use super::*;

/// A burst does not exceed the budget before the next turn.
#[test]
fn a_burst_meets_limits_that_are_there_before() {
    let mut plant = Fluid::new(Nanos::from_secs(1), 1.0, 131_072.0);
    let mut cycle = plant.cycle(330.0, false);
    cycle.step(&mut plant);
    for demand in [1e8, f64::INFINITY, 1e8, f64::INFINITY, 5e9, f64::INFINITY] {
        plant.demand = demand;
        let watts = run(&mut cycle, &mut plant, 20);
        assert!(watts.iter().all(|watts| *watts <= 1.02 * 330.0), "{demand}: {watts:?}");
    }
    assert!(plant.served > 5e9, "{} B/s", plant.served);
}

/// What comes again and fits is not held back at once each time. What is more than all before may
/// exceed the budget until the next turn, and not again in the next minutes.
#[test]
fn a_burst_that_is_known_and_fits_meets_no_limits() {
    for lag in LAGS {
        let mut plant = Fluid::new(Nanos::from_millis(lag), 1.0, 131_072.0);
        plant.demand = 1e8;
        let mut cycle = plant.guarded(300.0, false, false);
        run(&mut cycle, &mut plant, 10);
        let is_free = |plant: &Fluid| plant.given.write_rate.values().all(|rate| rate.is_none());
        let mut burst = |plant: &mut Fluid, demand: f64| {
            plant.demand = demand;
            let from = plant.watts.len();
            cycle.step(plant);
            let first = plant.served;
            run(&mut cycle, plant, 9);
            plant.demand = 1e8;
            run(&mut cycle, plant, 20);
            let over = plant.watts[from..].iter().filter(|watts| **watts > 300.0).count();
            (first, over)
        };
        burst(&mut plant, 3e9);
        for _ in 0..5 {
            assert_eq!((burst(&mut plant, 3e9), is_free(&plant)), ((3e9, 0), true), "{lag} ms");
        }
        let (_, over) = burst(&mut plant, f64::INFINITY);
        assert!(over <= 1 && !is_free(&plant), "{lag} ms: {over}");
        for _ in 0..3 {
            let (first, over) = burst(&mut plant, f64::INFINITY);
            assert!(first > 5e9 && over == 0 && !is_free(&plant), "{lag} ms: {first} {over}");
        }
    }
}
