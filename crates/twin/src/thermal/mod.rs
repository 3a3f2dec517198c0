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

use ebb_policy::units::{Celsius, Nanos};

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

impl Thermal {
    /// When the heat of a changed load has come through the sockets to 2 %: four time constants at
    /// the reference flow. Drives take longer, but draw no more when warm.
    #[must_use]
    pub fn settling(&self) -> Nanos {
        let SocketSpec { sink_to_air_k_per_w, sink_j_per_k, .. } = self.socket;
        Nanos::from_seconds(4.0 * sink_to_air_k_per_w * sink_j_per_k)
    }
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
    /// Heat capacity of a drive with its carrier, J/K; the drive model's when absent.
    pub j_per_k: Option<f64>,
    /// Where the host lets drives begin to slow down (NVMe: TMT1 of Host Controlled Thermal
    /// Management); the drive model's when absent.
    pub throttle: Option<Celsius>,
    /// Where they have slowed down as far as they go (TMT2); needed with `throttle`.
    pub throttle_full: Option<Celsius>,
    /// Share of its power budget for work that is left there; the drive model's when absent.
    pub throttle_floor: Option<f64>,
    /// What holds of the drives, once their model is found.
    #[serde(skip)]
    pub heat: Option<DriveHeat>,
}

const fn one_row() -> u16 {
    1
}

impl Bays {
    /// Takes from the drive model what is not stated here.
    pub(crate) fn inherit(&mut self, model: Option<&DriveHeat>) {
        let own = self.throttle.is_some() || self.throttle_full.is_some();
        let of_model = |of: fn(&DriveHeat) -> Option<Celsius>| model.and_then(of);
        let j_per_k = self.j_per_k.or(model.map(|model| model.j_per_k));
        self.heat = j_per_k.map(|j_per_k| DriveHeat {
            j_per_k,
            throttle: if own { self.throttle } else { of_model(|model| model.throttle) },
            throttle_full: if own {
                self.throttle_full
            } else {
                of_model(|model| model.throttle_full)
            },
            throttle_floor: self
                .throttle_floor
                .or(model.map(|model| model.throttle_floor))
                .unwrap_or(DriveHeat::FLOOR),
        });
    }
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
