//! The controllers in closed loop with a server that has heat.

mod campaign;
mod eadc;
mod idle;
mod optimum;
mod plant;
mod poison;
mod safety;
mod steady;
mod thresholds;

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::guard::MIN_JOB_SHARE;
use crate::registry::{Settings, make};
use crate::sense::air::air;
use crate::sense::thresholds::{EMERGENCY, RED_LINE, SET_POINT};
use crate::units::Celsius;
use crate::{Policy, QosClass};
use plant::{FanFault, Job, Loop, Physics, Plant, SensorFault};

const POLICIES: [&str; 5] = ["dlb", "dtm", "jetc", "eadc", "eadc-plus"];

/// Fig. 5 as §V-B tells it: flat to 40 %, pronounced above 50 %, 60 % lost at full speed.
fn fig5() -> Curve {
    let points = [(0.0, 1.0), (0.4, 1.0), (0.5, 0.97), (0.6, 0.86), (0.8, 0.62), (1.0, 0.40)];
    Curve::new(points.to_vec()).unwrap()
}

/// The same servers, loads and faults in every run: a campaign with a seed.
fn seeded(cases: u32) -> ProptestConfig {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(4);
    ProptestConfig { cases, rng_seed, ..ProptestConfig::default() }
}

/// Servers with light and heavy heat sinks, strong and weak fans, both kinds of lag; `conduction`,
/// `capacity` and `lag` from these ranges.
fn any_physics(
    conduction: Range<f64>,
    capacity: Range<f64>,
    lag: Range<f64>,
) -> impl Strategy<Value = Physics> {
    (20.0..35.0_f64, conduction, 0.08..0.16_f64, capacity, lag, any::<bool>()).prop_map(
        |(ambient, conduction, convection, capacity, lag, dead_time)| Physics {
            ambient,
            conduction,
            convection,
            capacity,
            lag,
            dead_time,
            ..Physics::default()
        },
    )
}

fn policy(name: &str, plant: &Plant) -> Box<dyn Policy> {
    let settings = Settings { curve: plant.curve.clone(), ..Settings::default() };
    make(name, &plant.topology, &settings).unwrap()
}

fn looped(name: &str, plant: Plant) -> Loop {
    let policy = policy(name, &plant);
    Loop::new(plant, policy)
}

fn compute(cpu: f64) -> Job {
    Job { cpu, disk: 0.0, class: QosClass::Noncritical }
}

fn query() -> Job {
    Job { cpu: 0.3, disk: 150e6, class: QosClass::Critical }
}
