//! What EADC's loops can be told. Section VI gives no gains; the defaults are ours, by
//! Skogestad's rules (`pi.rs`, `cpu_cap.rs`).

use crate::PolicyError;
use crate::cooling::eadc::cpu_cap;
use crate::cooling::pi;
use crate::sense::thresholds::{SET_POINT, Thresholds};
use crate::topology::Topology;
use crate::units::Celsius;

/// Gains and thresholds of EADC.
#[derive(Debug, Clone, PartialEq)]
pub struct EadcParams {
    /// `K_p` of the fan loop, per kelvin.
    pub fan_gain: f64,
    /// `K_p / K_i` of the fan loop, s.
    pub fan_reset: f64,
    /// `K_p` of the CPU cap, per kelvin.
    pub cap_gain: f64,
    /// `K_p / K_i` of the CPU cap, s.
    pub cap_reset: f64,
    /// Fastest rise of a CPU cap near the set point, per second.
    pub cap_rise: f64,
    /// Difference of the sockets' temperatures that is worth moving a job, K. Ours: 3 K, clear
    /// of rounding and noise.
    pub hot_spot: f64,
    /// Temperature that no socket is to exceed, °C: stated to be 85 (§VII-A).
    pub set_point: f64,
}

impl Default for EadcParams {
    fn default() -> Self {
        Self {
            fan_gain: pi::K_P,
            fan_reset: pi::K_P / pi::K_I,
            cap_gain: cpu_cap::K_P,
            cap_reset: cpu_cap::K_P / cpu_cap::K_I,
            cap_rise: cpu_cap::RISE,
            hot_spot: 3.0,
            set_point: SET_POINT.0,
        }
    }
}

impl EadcParams {
    /// The thresholds of `topology`, with this set point where it is the lower one.
    pub(super) fn thresholds(&self, topology: &Topology) -> Thresholds {
        let own = Thresholds::new(topology);
        Thresholds { set_point: own.set_point.min(Celsius(self.set_point)), ..own }
    }

    /// Refuses what cannot work, naming the parameter.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let check = PolicyError::within;
        check("fan_gain", self.fan_gain, 1e-3, 1.0, "0.001 to 1 per kelvin")?;
        check("fan_reset", self.fan_reset, 10.0, 10_000.0, "10 to 10000 s")?;
        check("cap_gain", self.cap_gain, 1e-3, 1.0, "0.001 to 1 per kelvin")?;
        check("cap_reset", self.cap_reset, 10.0, 10_000.0, "10 to 10000 s")?;
        check("cap_rise", self.cap_rise, 1e-4, 1.0, "0.0001 to 1 per second")?;
        check("hot_spot", self.hot_spot, 0.0, 50.0, "0 to 50 K")?;
        check("set_point", self.set_point, 40.0, SET_POINT.0, "40 to 85 °C")
    }
}
