//! Leakage: exponential in temperature (EADC Eq. 1), proportional to voltage (Eq. 3).

use serde::Deserialize;

use ebb_policy::units::{Celsius, Watts};

/// Leakage of one socket, beside what the profile's `[cpu]` states.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leakage {
    /// Power at the reference temperature and the voltage of the highest frequency.
    pub power: Watts,
    /// Reference temperature.
    pub at: Celsius,
    /// Exponent per kelvin.
    pub per_kelvin: f64,
}

impl Leakage {
    /// Power at `celsius` and `voltage` as a share of that at the highest frequency.
    #[must_use]
    pub fn power(&self, celsius: f64, voltage: f64) -> f64 {
        self.power.0 * voltage * (self.per_kelvin * (celsius - self.at.0)).exp()
    }
}

/// Voltage as a share of that at the highest frequency, where dynamic power C V² f follows the
/// `exponent`-th power of `frequency` (as a share of the highest).
#[must_use]
pub fn voltage(frequency: f64, exponent: f64) -> f64 {
    frequency.powf((exponent - 1.0).max(0.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leakage_grows_by_the_same_factor_with_every_kelvin() {
        let leakage = Leakage { power: Watts(14.0), at: Celsius(67.0), per_kelvin: 0.045 };
        assert_eq!(leakage.power(67.0, 1.0), 14.0);
        for celsius in 20..100 {
            let celsius = f64::from(celsius);
            let ratio = leakage.power(celsius + 1.0, 1.0) / leakage.power(celsius, 1.0);
            assert!((ratio - 0.045f64.exp()).abs() < 1e-9);
        }
        assert_eq!(leakage.power(67.0, 0.8), 14.0 * 0.8);
    }

    #[test]
    fn voltage_makes_c_v2_f_the_profiles_dynamic_power() {
        for exponent in [1.0, 2.2, 3.0] {
            for frequency in [0.3, 0.5, 1.0] {
                let dynamic = voltage(frequency, exponent).powi(2) * frequency;
                assert!((dynamic - frequency.powf(exponent)).abs() < 1e-12);
            }
        }
    }
}
