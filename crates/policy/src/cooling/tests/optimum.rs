//! The temperature that EADC finds is the one where fans and leakage together need least.

use super::*;
use crate::{InForce, Request};

/// Heat, and what is drawn, with the fans held at a duty for long.
fn held(plant: &Plant, duty: f64) -> (f64, f64) {
    let mut plant = plant.clone();
    let mut request = Request::new(&plant.topology);
    for fan in 0..request.fan_duty.len() {
        request.fan_duty.ask(fan, duty, "test:held");
    }
    let mut in_force = InForce::new(&plant.topology);
    in_force.follow(&request);
    for _ in 0..4000 {
        plant.sense(&in_force);
    }
    let power = plant.signals.power;
    (plant.hottest(), (power.cpu.unwrap() + power.fans.unwrap()).0)
}

#[test]
fn it_finds_the_minimum_of_several_servers() {
    let plain = Physics::default;
    let fault = |dead: usize, fault| [vec![Some(fault); dead], vec![None; 6 - dead]].concat();
    for (what, physics, jobs, faults) in [
        ("as it is", plain(), 8, vec![None; 6]),
        ("twice the leakage", Physics { leakage: 30.0, ..plain() }, 8, vec![None; 6]),
        ("steep leakage", Physics { growth: 0.035, leakage: 8.0, ..plain() }, 8, vec![None; 6]),
        ("small fans", Physics { fans: 60.0, ..plain() }, 8, vec![None; 6]),
        ("a warm inlet", Physics { ambient: 33.0, ..plain() }, 8, vec![None; 6]),
        ("a late sensor", Physics { dead_time: true, ..plain() }, 8, vec![None; 6]),
        ("half of the fans dead", plain(), 5, fault(3, FanFault::Dead)),
        ("half dead, small", Physics { fans: 60.0, ..plain() }, 5, fault(3, FanFault::Dead)),
        ("half dead, leaky", Physics { leakage: 20.0, ..plain() }, 5, fault(3, FanFault::Dead)),
        ("one that refuses", plain(), 5, fault(1, FanFault::Refuses)),
        ("half that refuse", plain(), 5, fault(3, FanFault::Refuses)),
    ] {
        let mut plant = Plant::new(physics, vec![compute(1.0); jobs]);
        plant.fan_faults = faults;
        // Or what is throttled would need the least.
        plant.topology.throttle = None;
        let sweep = (10..=50).map(|step| held(&plant, f64::from(step) * 0.02));
        let below = sweep.filter(|(t, _)| *t <= SET_POINT.0 + 1.0);
        let (best, least) = below.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let mut eadc = looped("eadc", plant);
        eadc.run(900);
        let (mut heat, mut power) = (0.0, 0.0);
        for _ in 0..1200 {
            eadc.step();
            heat += eadc.plant.hottest() / 1200.0;
            let drawn = eadc.plant.signals.power;
            power += (drawn.cpu.unwrap() + drawn.fans.unwrap()).0 / 1200.0;
        }
        println!("{what}: {heat:.1} of {best:.1} °C, {power:.1} of {least:.1} W");
        assert!(power <= 1.01 * least, "{what}: {power} of {least} W at {heat} of {best} °C");
        // The curve is flat near its minimum, and EADC also moves jobs.
        assert!((heat - best).abs() <= 5.0, "{what}: {heat} of {best} °C");
    }
}

#[test]
fn another_load_has_another_optimum() {
    let mut eadc = looped("eadc", Plant::new(Physics::default(), vec![compute(1.0); 6]));
    eadc.run(900);
    let light = eadc.plant.hottest();
    eadc.plant.background = 4.0;
    eadc.run(900);
    assert!(eadc.plant.hottest() > light + 3.0, "{light} {}", eadc.plant.hottest());
}
