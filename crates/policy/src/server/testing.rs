//! A server of eight cores for tests, as `pass-10` draws.

use crate::topology::{
    CoreRole, DriveSpec, GroupSpec, PowerModel, PowerStateSpec, RequestWork, Topology,
};
use crate::units::{Hertz, Nanos, Watts};

/// With so many drives.
pub fn server(drives: usize) -> Topology {
    let state = PowerStateSpec {
        max_power: Watts(25.0),
        operational: true,
        entry: Nanos::ZERO,
        exit: Nanos::ZERO,
    };
    let drive = DriveSpec { states: vec![state], ..DriveSpec::default() };
    let role = CoreRole::FrontEnd;
    Topology {
        groups: vec![GroupSpec { role, cores: 8, min_cores: 1, socket: None }],
        frequencies: [0.8, 1.2, 1.6, 2.1, 2.6, 3.0, 3.4].map(|ghz| Hertz(ghz * 1e9)).to_vec(),
        drives: vec![drive; drives],
        power: Some(PowerModel {
            uncore: Watts(66.0),
            uncore_dynamic: Watts(98.0),
            stopped_saving: Watts(30.0),
            core_static: Watts(3.9),
            core_dynamic: Watts(5.6),
            parked: Watts(0.4),
            exponent: 2.8,
            rest: Watts(95.4 + 5.9 * drives as f64),
            fans: Watts(0.0),
            resting: Watts(0.0),
            read: 1.7e-9,
            write: 3.3e-9,
            most_traffic: Watts(10.0 * drives as f64),
            efficiency: 0.91,
            resume: 0.0,
            meter_window: Nanos::ZERO,
            work: vec![RequestWork { cycles: 3000.0, per_byte: 25.0 / 1024.0, contention: 140e-9 }],
        }),
        ..Topology::default()
    }
}
