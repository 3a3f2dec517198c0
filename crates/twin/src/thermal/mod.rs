//! Heat: where it goes, what it costs, what it does to the cores.
//!
//! One file is one idea: the [network] of heat capacities along the air path, the air
//! itself, sensors that lag and round, leakage that grows with temperature, the hardware's
//! emergency throttling. All pure; the engine joins them in `engine/climate.rs`. Equations and
//! constants: docs/models/thermal.md.

pub mod air;
pub mod emergency;
pub mod leakage;
pub mod network;
pub mod sensor;

use serde::Deserialize;

use ebb_policy::units::Celsius;

use crate::drive_file::DriveHeat;

pub use air::Air;
pub use emergency::{Emergency, EmergencySpec};
pub use leakage::Leakage;
pub use network::{Heat, Network};
pub use sensor::{Sensor, SensorFault, SensorSpec};

/// The thermal side of a server, as its profile states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thermal {
    /// Air at the inlet: `T_amb`.
    pub inlet: Celsius,
    /// Metres above sea level.
    #[serde(default)]
    pub altitude_m: f64,
    /// Flow at which the resistances to air hold, m³/s of air at 20 °C and sea level.
    pub reference_flow_m3_s: f64,
    /// Flow that remains when every fan stands, m³/s.
    pub draught_m3_s: f64,
    /// Sockets.
    pub socket: SocketSpec,
    /// Drives in their bays.
    pub drive: Bays,
    /// Leakage of a socket.
    pub leakage: Leakage,
    /// Sensors of the sockets.
    pub sensor: SensorSpec,
    /// Emergency throttling and trip.
    pub emergency: EmergencySpec,
}

/// A socket: a die on a heat sink in the air.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketSpec {
    /// One entry per socket: its row in the air path, from 0. Those of one row share the air,
    /// those of the next get it preheated.
    pub rows: Vec<u16>,
    /// Resistance from the die to its heat sink, K/W.
    pub die_to_sink_k_per_w: f64,
    /// Resistance from the heat sink to the air at the reference flow, K/W.
    pub sink_to_air_k_per_w: f64,
    /// Heat capacity of the die, J/K.
    pub die_j_per_k: f64,
    /// Heat capacity of the heat sink, J/K.
    pub sink_j_per_k: f64,
    /// Temperature at the start.
    pub start: Celsius,
}

/// The bays that the drives are in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bays {
    /// Rows of bays, one behind the other.
    #[serde(default = "one_row")]
    pub rows: u16,
    /// Resistance from a drive to the air at the reference flow, K/W.
    pub to_air_k_per_w: f64,
    /// Temperature at the start.
    pub start: Celsius,
    /// What the drive model says of heat, once it is found.
    #[serde(skip)]
    pub heat: Option<DriveHeat>,
}

const fn one_row() -> u16 {
    1
}

impl Bays {
    /// Heat capacity of a drive, J/K; none where nothing is known of it.
    #[must_use]
    pub fn j_per_k(&self) -> f64 {
        self.heat.as_ref().map_or(0.0, |heat| heat.j_per_k)
    }
    /// Share of its power budget for work that a drive at this temperature allows itself.
    #[must_use]
    pub fn factor(&self, celsius: f64) -> f64 {
        self.heat.as_ref().map_or(1.0, |heat| heat.factor(celsius))
    }
}

#[cfg(test)]
pub(crate) mod tests;
