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

/// Limits that come back for a turn make requests wait, though nothing has changed.
#[test]
fn a_steady_load_that_fits_stays_without_limits() {
    let mut fitting = 0;
    for step in 0..40 {
        let mut plant = Fluid::new(Nanos::from_millis(500), 1.0, 65_536.0);
        (plant.demand, plant.waiting) = (5e9 + 0.2e9 * f64::from(step), Some(0.0));
        let mut cycle = plant.guarded(300.0, false, false);
        run(&mut cycle, &mut plant, 20);
        let is_free = |plant: &Fluid| plant.given.write_rate.values().all(|rate| rate.is_none());
        if !is_free(&plant) {
            continue;
        }
        fitting += 1;
        for turn in 0..120 {
            cycle.step(&mut plant);
            assert!(is_free(&plant), "{} B/s, turn {turn}", plant.demand);
        }
    }
    assert!(fitting >= 10);
}

/// Small requests by the clock that no running core within the budget serves would wait longer and
/// longer: stops serve them.
#[test]
fn requests_that_fall_behind_are_served_between_stops() {
    for lag in LAGS {
        let mut plant = Fluid::new(Nanos::from_millis(lag), 1.0, 4096.0);
        (plant.demand, plant.waiting) = (1.5e9, Some(0.0));
        let mut cycle = plant.guarded(260.0, false, false);
        let watts = run(&mut cycle, &mut plant, 90);
        let waiting = plant.waiting.unwrap();
        assert!(waiting < 0.1 * plant.demand, "lag {lag} ms: {waiting} B wait");
        assert!(watts[60..].iter().all(|watts| *watts <= 1.02 * 260.0), "{watts:?}");
    }
}

/// Stops are as short as the cores can afford.
#[test]
fn stops_are_short_where_they_cost_nothing() {
    let mut topology = server(DRIVES);
    topology.power.as_mut().unwrap().resume = 5.5e-3;
    let cpu = Cpu::new(&topology, topology.power.as_ref().unwrap());
    let point = cpu.points.iter().find(|point| point.time == 0.5).unwrap();
    let most = cpu.serves(point, 131_072.0);
    let of = |share: f64| cpu.period(point, 131_072.0, share * most).0 / 1_000_000;
    assert_eq!([0.0, 0.5, 0.8, 1.0, f64::INFINITY].map(of), [100, 20, 50, 100, 100]);
}
