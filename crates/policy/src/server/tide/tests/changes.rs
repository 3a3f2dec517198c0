//! What a server does, or may do, changes.

use super::*;

/// Drives that rested and fans that stood draw more as a load comes: what they did not draw before
/// is not spent.
#[test]
fn what_rested_is_not_spent_when_it_works() {
    for lag in LAGS {
        let mut plant = Fluid::new(Nanos::from_millis(lag), 1.0, 131_072.0);
        plant.topology.power.as_mut().unwrap().resting = Watts(60.0);
        plant.rests = 60.0;
        plant.demand = 1e8;
        let mut cycle = plant.cycle(330.0, true);
        run(&mut cycle, &mut plant, 20);
        plant.demand = f64::INFINITY;
        let watts = run(&mut cycle, &mut plant, 60);
        let over = longest_over(&watts, 1.02 * 330.0);
        assert!(over <= lag as f64 / 1e3 + 1.0, "lag {lag} ms: {over} s over: {watts:?}");
        assert!(mean(&watts[60..]) > 0.93 * 330.0, "lag {lag} ms: {watts:?}");
    }
}

/// Drives that clean up draw more for each byte than the model can explain: that is learnt beyond
/// the budget, and with a meter that is not late never forgotten.
#[test]
fn drives_that_clean_up_do_not_exceed_the_budget() {
    for lag in LAGS {
        let mut plant = Fluid::new(Nanos::from_millis(lag), 1.0, 131_072.0);
        let mut cycle = plant.guarded(285.0, false, false);
        run(&mut cycle, &mut plant, 30);
        plant.truth.write *= 4.0;
        let watts = run(&mut cycle, &mut plant, 60);
        let over = longest_over(&watts, 1.05 * 285.0);
        assert!(over <= lag as f64 / 1e3 + 1.0, "lag {lag} ms: {over} s over: {watts:?}");
        if lag < 1000 {
            let most = watts[60..].iter().fold(0.0_f64, |most, watts| most.max(*watts));
            assert!(most <= 1.05 * 285.0, "lag {lag} ms: {watts:?}");
        }
    }
}

/// Traffic that costs less than the model says needs no margin for minutes, however late the meter.
#[test]
fn what_draws_less_than_it_should_gets_its_watts_soon() {
    for (lag, share) in LAGS.iter().flat_map(|lag| [0.7, 0.8, 0.9].map(|share| (*lag, share))) {
        let mut plant = Fluid::new(Nanos::from_millis(lag), 1.0, 131_072.0);
        plant.truth.write *= share;
        plant.demand = 1e8;
        let mut cycle = plant.guarded(330.0, true, false);
        run(&mut cycle, &mut plant, 20);
        plant.demand = f64::INFINITY;
        let watts = run(&mut cycle, &mut plant, 60);
        assert!(longest_over(&watts, 330.0) <= PERIOD.seconds(), "lag {lag} ms: {watts:?}");
        let (soon, settled) = (mean(&watts[40..60]), mean(&watts[100..]));
        assert!(soon > 0.99 * settled, "{share}, lag {lag} ms: {soon} W, then {settled} W");
    }
}

/// Where all cores at full speed fit, nothing is limited, though others might be quicker.
#[test]
fn a_budget_within_which_all_cores_fit_limits_none_of_them() {
    let mut plant = Fluid::new(Nanos::from_millis(500), 1.0, 4096.0);
    plant.demand = 1e9;
    let mut cycle = plant.guarded(300.0, false, false);
    run(&mut cycle, &mut plant, 30);
    assert!(plant.given.group(0).active < 8, "nothing is limited");
    cycle.set_server_budget(Some(Watts(480.0)));
    run(&mut cycle, &mut plant, 30);
    let group = plant.given.group(0);
    assert_eq!((group.active, group.frequency), (8, plant.topology.max_frequency()));
}

/// Meter, model and load are known when a budget comes: nobody waits for them again.
#[test]
fn a_budget_that_comes_later_stops_nobody() {
    for lag in LAGS {
        let mut plant = Fluid::new(Nanos::from_millis(lag), 1.0, 4096.0);
        plant.demand = 1e9;
        let mut cycle = plant.guarded(300.0, false, false);
        for _ in 0..3 {
            cycle.set_server_budget(None);
            run(&mut cycle, &mut plant, 20);
            assert!(plant.given.core_limit.at(0).given.is_none());
            cycle.set_server_budget(Some(Watts(300.0)));
            for _ in 0..20 {
                cycle.step(&mut plant);
                let watts = plant.watts.last().copied().unwrap_or_default();
                let bounded = plant.given.core_limit.at(0).given.is_some();
                assert!(plant.served == 1e9 && bounded, "lag {lag} ms: {}", plant.served);
                assert!(watts <= 1.02 * 300.0 || watts > 400.0, "lag {lag} ms: {watts} W");
            }
            assert!(plant.watts[plant.watts.len() - 19..].iter().all(|watts| *watts < 306.0));
        }
    }
}

/// Stops serve the bytes of a load that would take more than there is, and no small one after it.
#[test]
fn stops_end_with_the_load_that_they_are_for() {
    let mut plant = Fluid::new(Nanos::from_millis(500), 1.0, 131_072.0);
    let mut cycle = plant.cycle(280.0, false);
    let stopped = |plant: &Fluid| plant.given.cpu_time.value(0).is_some();
    for _ in 0..3 {
        plant.demand = f64::INFINITY;
        run(&mut cycle, &mut plant, 30);
        assert!(stopped(&plant));
        plant.demand = 3e8;
        run(&mut cycle, &mut plant, 2);
        assert!(!stopped(&plant));
        let watts = run(&mut cycle, &mut plant, 20);
        assert!(!stopped(&plant) && watts.iter().all(|watts| *watts <= 280.0), "{watts:?}");
    }
}

/// What had waited and is caught up is no demand.
#[test]
fn a_backlog_is_no_peak() {
    let mut peak = Peak::new(1);
    let traffic = [[2.0, 4.0]];
    let turn = |peak: &mut Peak, came: f64| {
        let (watts, held) = ((6.0, 1e9), (false, f64::INFINITY));
        peak.learn((1000, 4_000_000), &traffic, watts, (came, 1e-4), held, 0.5);
        (peak.load(0.0).requests, peak.watts, peak.drives[0])
    };
    assert_eq!(turn(&mut peak, 0.25), (500.0, 1.5, [0.5, 1.0]));
    assert_eq!(turn(&mut peak, 1.0), (2000.0, 6.0, [2.0, 4.0]));
}
