//! Air: what a cubic metre of it carries at a given height and temperature.

/// Specific heat at constant pressure, J/(kg K).
const SPECIFIC_HEAT: f64 = 1006.0;
/// Gas constant of dry air, J/(kg K).
const GAS: f64 = 287.05;
/// Density at 20 °C and sea level, kg/m³: what the reference flow is stated for.
pub const REFERENCE_DENSITY: f64 = 101_325.0 / (GAS * 293.15);
/// Forced convection in turbulent flow: Nu ~ Re^0.8 (Dittus and Boelter).
const EXPONENT: f64 = 0.8;

/// Air that streams in at the inlet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Air {
    /// °C.
    pub inlet: f64,
    /// kg/m³.
    pub density: f64,
    /// m³/s.
    pub flow: f64,
}

impl Air {
    /// Air at `inlet` °C, `altitude` metres above sea level, `flow` m³/s of it; what remains when
    /// the fans stand is `draught`, in quadrature.
    #[must_use]
    pub fn new(inlet: f64, altitude: f64, flow: f64, draught: f64) -> Self {
        Self { inlet, density: density(inlet, altitude), flow: 0.0 }.at_flow(flow, draught)
    }
    /// The same air at another flow.
    #[must_use]
    pub fn at_flow(self, flow: f64, draught: f64) -> Self {
        Self { flow: flow.hypot(draught), ..self }
    }
    /// Heat that warms the stream by one kelvin, W/K.
    #[must_use]
    pub fn carries(&self) -> f64 {
        self.density * self.flow * SPECIFIC_HEAT
    }
    /// By how much a surface gives off heat better than at `reference` m³/s of reference air:
    /// with the power 0.8 of the *mass* flow, so that thin air cools worse.
    #[must_use]
    pub fn convection(&self, reference: f64) -> f64 {
        (self.density * self.flow / (REFERENCE_DENSITY * reference)).powf(EXPONENT)
    }
}

/// Density of dry air, kg/m³: ideal gas at the pressure of the International Standard Atmosphere
/// (ISO 2533) at `altitude` metres.
#[must_use]
pub fn density(celsius: f64, altitude: f64) -> f64 {
    let pressure = 101_325.0 * (1.0 - 2.255_77e-5 * altitude).powf(5.255_88);
    pressure / (GAS * (celsius + 273.15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn density_meets_the_standard_atmosphere() {
        // ISO 2533: 1.225 kg/m³ at 15 °C and 0 m; 0.9091 at 3000 m, where it is -4.5 °C.
        assert!((density(15.0, 0.0) - 1.225).abs() < 1e-3);
        assert!((density(-4.5, 3000.0) - 0.9091).abs() < 1e-3);
    }

    #[test]
    fn thin_and_slow_air_carries_less_and_cools_worse() {
        let at = |altitude, flow| Air::new(25.0, altitude, flow, 0.001);
        let (low, high, slow) = (at(0.0, 0.1), at(3048.0, 0.1), at(0.0, 0.05));
        for worse in [high, slow] {
            assert!(worse.carries() < low.carries());
            assert!(worse.convection(0.1) < low.convection(0.1));
        }
        let ratio = low.convection(0.1) / slow.convection(0.1);
        assert!((ratio - 2f64.powf(0.8)).abs() < 1e-3);
        assert!(at(0.0, 0.0).carries() > 0.0);
    }
}
