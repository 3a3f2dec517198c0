//! The hardware's own emergency throttling, and its last resort.
//!
//! ```text
//!            die at `at` or above
//!   normal ─────────────────────────► throttled ───► tripped (die at `trip`: power off)
//!      ▲                                  │
//!      └──────── die below `release` ─────┘
//! ```
//!
//! Reactive, by the die itself and not by the lagging sensor: what DTM and JETC run into (EADC
//! §VII-A).

use serde::Deserialize;

use ebb_policy::units::{Celsius, Hertz};

/// Thresholds and the throttled frequency.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmergencySpec {
    /// Die temperature from which on the cores are slowed down: `T_D`.
    pub at: Celsius,
    /// Die temperature below which they are let go again.
    pub release: Celsius,
    /// Frequency then: `f_D`.
    pub frequency: Hertz,
    /// Die temperature at which the server switches itself off.
    pub trip: Celsius,
    /// Share of a core's time at the highest frequency that waits for what lies outside it: the
    /// `α λ` of Eq. 2 against the core's own cycles.
    pub uncore_share: f64,
}

impl EmergencySpec {
    /// How many times longer work takes at `frequency` as a share of the highest: with
    /// t = k (c + f/f0 α λ) / f (Eq. 2), only the core's own cycles stretch.
    #[must_use]
    pub fn slowdown(&self, frequency: f64) -> f64 {
        (1.0 - self.uncore_share) / frequency + self.uncore_share
    }
}

/// The state of one socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Emergency {
    throttled: bool,
}

impl Emergency {
    /// Whether the socket is slowed down.
    #[must_use]
    pub fn throttled(self) -> bool {
        self.throttled
    }
    /// Takes note of the die; returns whether the socket is slowed down from now on.
    pub fn observe(&mut self, spec: &EmergencySpec, celsius: f64) -> bool {
        self.throttled = celsius >= spec.at.0 || self.throttled && celsius >= spec.release.0;
        self.throttled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> EmergencySpec {
        EmergencySpec {
            at: Celsius(90.0),
            release: Celsius(85.0),
            frequency: Hertz(1.2e9),
            trip: Celsius(105.0),
            uncore_share: 0.1,
        }
    }

    #[test]
    fn throttling_holds_until_the_die_is_below_release() {
        let mut socket = Emergency::default();
        let path = [89.9, 90.0, 87.0, 85.0, 84.9, 89.0, 90.1];
        let throttled = path.map(|celsius| socket.observe(&spec(), celsius));
        assert_eq!(throttled, [false, true, true, true, false, false, true]);
    }

    #[test]
    fn half_the_frequency_costs_less_than_twice_the_time() {
        assert_eq!(spec().slowdown(1.0), 1.0);
        assert!((spec().slowdown(0.5) - 1.9).abs() < 1e-12);
    }
}
