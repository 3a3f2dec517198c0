//! Servers for the tests of this folder.

use proptest::prelude::*;

use crate::topology::{CoreRole, DriveSpec, GroupSpec, PowerStateSpec, Topology};
use crate::units::{Hertz, Nanos, Watts};
use crate::{PERIOD, Policy, PowerState, Request, Signals};

/// Caps of the PM1743 (PACMAN §VI-A).
pub const fn pm1743() -> [f64; 5] {
    [25.0, 21.0, 18.0, 14.0, 9.0]
}

fn state(max_power: f64, operational: bool) -> PowerStateSpec {
    let latency = Nanos::from_micros(100);
    PowerStateSpec { max_power: Watts(max_power), operational, entry: latency, exit: latency }
}

/// A server with one drive for each list of caps, and a non-operational state below them.
pub fn topology(drives: &[Vec<f64>]) -> Topology {
    let drive = |caps: &Vec<f64>| DriveSpec {
        states: caps.iter().map(|mp| state(*mp, true)).chain([state(0.05, false)]).collect(),
        ..DriveSpec::default()
    };
    let roles = [CoreRole::FrontEnd, CoreRole::KeyValue, CoreRole::ResourceVolume];
    Topology {
        groups: roles
            .map(|role| GroupSpec { role, cores: 16, min_cores: 2, socket: None })
            .to_vec(),
        frequencies: [1.5e9, 2.0e9, 2.6e9].map(Hertz).to_vec(),
        drives: drives.iter().map(drive).collect(),
        ..Topology::default()
    }
}

/// One period of `policy` alone; what it asks for is in force in the next. The drives' states.
pub fn step(
    policy: &mut dyn Policy,
    signals: &mut Signals,
    request: &mut Request,
) -> Vec<PowerState> {
    signals.now += PERIOD;
    signals.period = PERIOD;
    policy.step(signals, request);
    signals.in_force.follow(request);
    signals.in_force.states().collect()
}

/// One to twelve unlike drives of one to eight states, caps in tenths of a watt.
pub fn any_topology() -> impl Strategy<Value = Topology> {
    let caps = prop::collection::vec(40..300_u32, 1..8).prop_map(|mut caps| {
        caps.sort_unstable_by(|a, b| b.cmp(a));
        caps.into_iter().map(|deci| f64::from(deci) / 10.0).collect::<Vec<_>>()
    });
    prop::collection::vec(caps, 1..12).prop_map(|drives| topology(&drives))
}
