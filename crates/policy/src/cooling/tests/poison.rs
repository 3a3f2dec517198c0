//! What cannot be true gets into no model: when it is over, all is as before.

use super::safety::Stoker;
use super::*;
use crate::units::{Celsius, Hertz, Nanos, Rpm, Watts};
use crate::{InForce, Reading, Request, Signals};

/// Every number that is sensed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field {
    Utilisation,
    Busiest,
    Frequency,
    Job,
    FanDuty,
    FanSpeed,
    Inlet,
    Socket,
    Cpu,
    Fans,
    Ssd,
    Total,
    DrivePower,
    DriveTemperature,
}

const FIELDS: [Field; 14] = [
    Field::Utilisation,
    Field::Busiest,
    Field::Frequency,
    Field::Job,
    Field::FanDuty,
    Field::FanSpeed,
    Field::Inlet,
    Field::Socket,
    Field::Cpu,
    Field::Fans,
    Field::Ssd,
    Field::Total,
    Field::DrivePower,
    Field::DriveTemperature,
];

/// Says `value` everywhere in `field`.
pub fn poison(signals: &mut Signals, field: Field, value: f64) {
    let reading = |at: Nanos| Some(Reading { at, temperature: Celsius(value) });
    let now = signals.now;
    for group in &mut signals.groups {
        match field {
            Field::Utilisation => group.utilisation = Some(value),
            Field::Busiest => group.busiest = Some(value),
            Field::Frequency => group.frequency = Some(Hertz(value)),
            _ => {}
        }
    }
    for fan in &mut signals.cooling.fans {
        match field {
            Field::FanDuty => fan.duty = Some(value),
            Field::FanSpeed => fan.speed = Some(Rpm(value)),
            _ => {}
        }
    }
    let power = &mut signals.power;
    match field {
        Field::Job => signals.jobs.iter_mut().for_each(|job| job.cpu = value),
        Field::Inlet => signals.cooling.inlet = reading(now),
        Field::Socket => signals.cooling.sockets.fill(reading(now)),
        Field::Cpu => power.cpu = Some(Watts(value)),
        Field::Fans => power.fans = Some(Watts(value)),
        Field::Ssd => power.ssd = Some(Watts(value)),
        Field::Total => power.total = Some(Watts(value)),
        Field::DrivePower => signals.drives[0].power = Some(Watts(value)),
        Field::DriveTemperature => signals.drives[0].temperature = Some(Celsius(value)),
        _ => {}
    }
}

/// A number that nothing can have.
fn any_poison() -> impl Strategy<Value = f64> {
    let usual = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30, f64::MAX, -1e3];
    prop_oneof![3 => prop::sample::select(usual.to_vec()), 1 => 1e13..1e300_f64]
}

fn possible(in_force: &InForce) -> bool {
    let shares = in_force.fan_duty.values().chain(in_force.job_share.values());
    let caps = in_force.frequency_cap.values();
    shares.flatten().all(|share| (0.0..=1.0).contains(&share))
        && caps.flatten().all(|cap| cap.0.is_finite() && cap.0 > 0.0)
}

fn made(name: &str, plant: Plant) -> Loop {
    if name == "stoker" { Loop::new(plant, Box::new(Stoker)) } else { looped(name, plant) }
}

/// A server with little to do (by jobs, or known by its power only), whose sensors say `value` in
/// `field` for a while if anything; then it is well again, then both temperatures stick and all the
/// work comes. The hottest silicon, and whether the fans went to full speed.
fn sticks_later(name: &str, by_jobs: bool, lie: Option<(Field, f64, u64)>) -> (f64, bool) {
    let (jobs, background) = if by_jobs { (16, 0.0) } else { (0, 1.6) };
    let mut plant = Plant::new(Physics::default(), vec![compute(0.2); jobs]);
    plant.background = background;
    if !by_jobs {
        plant.topology.groups.iter_mut().for_each(|group| group.socket = None);
    }
    let mut looped = made(name, plant);
    looped.run(600);
    if let Some((field, value, seconds)) = lie {
        looped.poison = Some((field, value));
        for _ in 0..2 * seconds {
            looped.step();
            assert!(possible(&looped.in_force), "{name}, {field:?}: {:?}", looped.in_force);
        }
        looped.poison = None;
    }
    looped.run(240);
    looped.plant.sensor_faults.fill(Some(SensorFault::Stuck));
    looped.run(5);
    looped.plant.jobs.iter_mut().for_each(|job| job.cpu = 1.0);
    looped.plant.background *= 5.0;
    let mut full = false;
    for _ in 0..1200 {
        looped.step();
        assert!(possible(&looped.in_force), "{name}, {lie:?}: {:?}", looped.in_force);
        full |= looped.duty() == 1.0;
    }
    (looped.peak, full)
}

proptest! {
    #![proptest_config(seeded(24))]
    #[test]
    fn a_stuck_sensor_is_found_after_any_value_that_cannot_be(
        field in prop::sample::select(FIELDS.to_vec()),
        value in any_poison(),
        seconds in 1..120_u64,
    ) {
        for name in POLICIES.into_iter().chain(["stoker"]) {
            let (peak, full) = sticks_later(name, true, Some((field, value, seconds)));
            prop_assert!(full && peak < RED_LINE.0, "{name}: {peak}");
        }
    }
}

#[test]
fn without_any_lie_it_is_found_too() {
    for name in POLICIES.into_iter().chain(["stoker"]) {
        let (peak, full) = sticks_later(name, true, None);
        assert!(full && peak < RED_LINE.0, "{name}: {peak}");
    }
}

/// Power tells less than jobs do; a lie must not leave less than that.
#[test]
fn where_only_power_is_known_a_lie_changes_nothing_for_later() {
    let (honest, full) = sticks_later("stoker", false, None);
    assert!(full);
    for value in [f64::NAN, 1e30, f64::INFINITY, -1e30] {
        let (peak, full) = sticks_later("stoker", false, Some((Field::Cpu, value, 60)));
        assert!(full && peak < honest + 1.0, "{value}: {peak}, {honest} without");
    }
}

#[test]
fn a_fan_that_says_nothing_possible_is_not_taken_to_blow() {
    let plant = Plant::new(Physics::default(), vec![]);
    let mut signals = Signals::new(&plant.topology);
    let mut request = Request::new(&plant.topology);
    (0..6).for_each(|fan| request.fan_duty.ask(fan, 0.3, "test:held"));
    let (mut given, board) = (InForce::new(&plant.topology), InForce::new(&plant.topology));
    given.follow(&request);
    assert!((air(&signals, &given.fan_duty).unwrap() - 0.3).abs() < 1e-9);
    for value in [f64::NAN, -1.0, 1e30, f64::INFINITY] {
        poison(&mut signals, Field::FanDuty, value);
        assert!((air(&signals, &given.fan_duty).unwrap() - 0.3).abs() < 1e-9, "{value}");
        assert_eq!(air(&signals, &board.fan_duty), None, "{value}");
    }
    signals.cooling.fans[0].duty = Some(0.6);
    assert_eq!(air(&signals, &board.fan_duty), Some(0.6));
}
