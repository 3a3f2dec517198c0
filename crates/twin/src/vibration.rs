//! Vibration: linear in fan speed (EADC §V-C), plus what the rack brings (EADC §V-B, Fig. 6).
//!
//! Amplitudes are relative: 1 is the server of Fig. 5 with all fans at full speed.

use serde::Deserialize;

/// Where vibration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vibration {
    /// Relative amplitude with all fans at full speed.
    pub full_speed: f64,
    /// Relative amplitude from outside the server.
    #[serde(default)]
    pub external: f64,
}

impl Vibration {
    /// Relative amplitude, where each fan turns at this share of its top speed. A standing fan
    /// brings nothing.
    pub fn amplitude(&self, shares: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = shares.len().max(1) as f64;
        self.external + self.full_speed * shares.sum::<f64>() / count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplitude_is_linear_in_speed_and_the_rack_comes_on_top() {
        let vibration = Vibration { full_speed: 0.8, external: 0.25 };
        let at = |share: f64| vibration.amplitude([share; 6].into_iter());
        assert_eq!(at(0.0), 0.25);
        assert!((at(1.0) - 1.05).abs() < 1e-12);
        for step in 1..10 {
            let rise = at(f64::from(step) / 10.0) - at(f64::from(step - 1) / 10.0);
            assert!((rise - 0.08).abs() < 1e-12);
        }
    }

    #[test]
    fn a_dead_fan_shakes_nothing() {
        let vibration = Vibration { full_speed: 1.0, external: 0.0 };
        assert_eq!(vibration.amplitude([1.0, 0.0].into_iter()), 0.5);
        assert_eq!(vibration.amplitude([0.0; 0].into_iter()), 0.0);
    }
}
