//! Fans against data sheets and fan laws.

use proptest::prelude::*;

use super::*;

/// San Ace 9GA0812P1G61, 80 × 38 mm: 14.4 W and 10,500 rpm at full duty, 0.48 W and 2000 rpm at
/// none (fan_power_rpm.csv); the straight line between is the model's.
pub(crate) fn san_ace(count: u16) -> Fans {
    Fans {
        count,
        pwm_to_rpm: vec![(0.2, 2000.0), (1.0, 10_500.0)],
        stall_duty: 0.05,
        floor: Watts(0.383),
        watts_per_rpm3: 1.2108e-11,
        inertia: Nanos::from_millis(1500),
        airflow_m3_s: 0.0237,
        backflow: 0.3,
        firmware: vec![(40.0, 0.2), (80.0, 1.0)],
        firmware_drives: vec![(45.0, 0.2), (65.0, 1.0)],
    }
}

fn step(fan: &mut Fan, spec: &Fans, duty: f64, seconds: f64) -> Watts {
    fan.set_duty(spec, duty);
    fan.step(spec, spec.left(seconds))
}

#[test]
fn floor_and_cube_meet_both_points_of_the_data_sheet() {
    let fans = san_ace(6);
    assert!((fans.power(Rpm(10_500.0)).0 - 14.4).abs() < 0.01);
    assert!((fans.power(Rpm(2000.0)).0 - 0.48).abs() < 0.01);
}

#[test]
fn what_policies_know_follows_from_the_table() {
    let spec = san_ace(6).spec();
    assert_eq!(spec.min_duty, 0.2);
    assert!((spec.max_power.0 - 14.4).abs() < 0.01);
}

#[test]
fn a_stalled_fan_moves_no_air_and_a_dead_one_draws_nothing() {
    let spec = san_ace(1);
    let mut fan = Fan::new(&spec, 1.0);
    assert_eq!(fan.speed(), Rpm(10_500.0));
    fan.set_fault(FanFault::Stalled);
    assert_eq!((step(&mut fan, &spec, 1.0, 0.1), fan.speed()), (spec.floor, Rpm(0.0)));
    fan.set_fault(FanFault::None);
    step(&mut fan, &spec, 1.0, 30.0);
    assert_eq!(fan.speed(), Rpm(10_500.0));
    fan.set_fault(FanFault::Dead);
    assert_eq!(step(&mut fan, &spec, 1.0, 0.1), Watts(0.0));
    assert!(fan.speed().0 > 9000.0, "a dead fan coasts");
    step(&mut fan, &spec, 1.0, 60.0);
    assert_eq!(fan.speed(), Rpm(0.0));
}

#[test]
fn a_fan_that_stands_needs_its_starting_duty() {
    let spec = san_ace(1);
    let mut fan = Fan::new(&spec, 0.5);
    step(&mut fan, &spec, 0.04, 60.0);
    assert_eq!(fan.speed(), Rpm(0.0), "below the stalling duty");
    step(&mut fan, &spec, 0.1, 60.0);
    assert_eq!(fan.speed(), Rpm(0.0), "above it, but below the starting duty");
    step(&mut fan, &spec, 0.2, 60.0);
    assert_eq!(fan.speed(), Rpm(2000.0));
    step(&mut fan, &spec, 0.1, 60.0);
    assert_eq!(fan.speed(), Rpm(2000.0), "a turning fan holds its lowest speed");
}

#[test]
fn a_standing_fan_lets_air_back() {
    let spec = san_ace(4);
    let all = vec![Fan::new(&spec, 1.0); 4];
    let mut three = all.clone();
    three[0] = Fan::default();
    let (full, less) = (spec.airflow(&all), spec.airflow(&three));
    assert!((full - 4.0 * 0.0237).abs() < 1e-9);
    assert!((less / full - 0.75 / 1.1).abs() < 1e-9, "{}", less / full);
    assert_eq!(spec.airflow(&vec![Fan::default(); 4]), 0.0);
}

#[test]
fn firmware_takes_the_hottest_and_a_lost_sensor_for_the_worst() {
    let spec = san_ace(4);
    assert_eq!(spec.firmware_duty(Some(40.0), Some(40.0)), 0.2);
    assert!((spec.firmware_duty(Some(60.0), Some(40.0)) - 0.6).abs() < 1e-12);
    assert!((spec.firmware_duty(Some(40.0), Some(55.0)) - 0.6).abs() < 1e-12);
    assert_eq!(spec.firmware_duty(None, Some(40.0)), 1.0);
    assert_eq!(spec.firmware_duty(Some(40.0), None), 1.0);
    let blind = Fans { firmware_drives: Vec::new(), ..spec };
    assert_eq!(blind.firmware_duty(Some(40.0), None), 0.2);
}

proptest! {
    #[test]
    fn speed_power_and_air_never_fall_with_duty(low in 0.0..1.0f64, more in 0.0..1.0f64) {
        let spec = san_ace(1);
        let high = (low + more * (1.0 - low)).min(1.0);
        prop_assert!(spec.speed(low) <= spec.speed(high));
        prop_assert!(spec.power(spec.speed(low)) <= spec.power(spec.speed(high)));
        let air = |duty| spec.airflow(&[Fan::new(&spec, duty)]);
        prop_assert!(air(low) <= air(high));
    }

    #[test]
    fn one_step_is_as_good_as_many(from in 0.2..1.0, to in 0.2..1.0, seconds in 0.05..5.0) {
        let spec = san_ace(1);
        let (mut once, mut often) = (Fan::new(&spec, from), Fan::new(&spec, from));
        step(&mut once, &spec, to, seconds);
        for _ in 0..50 {
            step(&mut often, &spec, to, seconds / 50.0);
        }
        prop_assert!((once.speed().0 - often.speed().0).abs() < 1.0);
    }

    #[test]
    fn speed_stays_between_where_it_was_and_where_it_goes(
        from in 0.2..1.0, to in 0.2..1.0, steps in prop::collection::vec(0.01..3.0, 1..20),
    ) {
        let spec = san_ace(1);
        let mut fan = Fan::new(&spec, from);
        let (a, b) = (spec.speed(from).0, spec.speed(to).0);
        for seconds in steps {
            step(&mut fan, &spec, to, seconds);
            prop_assert!((a.min(b)..=a.max(b)).contains(&fan.speed().0));
        }
    }
}
