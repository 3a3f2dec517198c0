//! The fan loop: a proportional-integral controller in velocity form.
//!
//! * **Velocity form**: what is computed is a change of what is in force. There is no stored
//!   integral that could wind up while the fans are at a bound, refuse, or are in other hands,
//!   and taking over from anybody is free of bumps.
//! * **In the air's resistance, not in duty**. Convection improves with about the 0.8th power of
//!   speed (Dittus and Boelter, turbulent flow), so a step of duty moves the temperature nine
//!   times as far at 30 % as at 100 %. Kim et al. (DATE 2014) adapt the gains to the operating
//!   fan speed for this reason; here the loop steers `ln r` with `r = duty^-0.8`: what a step of
//!   it adds to a heat sink's heat is a share of the power, whatever the speed.
//! * **Half a quantum of play** in what is read, so that a toggling digit moves nothing.
//! * **A dead zone of one quantum** around the target: between two readings nobody knows more,
//!   and acting on a toggling last digit is an oscillation (Kim et al.: "eliminating the fan
//!   speed oscillation caused by temperature quantization"; their method is not in the abstract,
//!   which is all that we could read).

use crate::guard::SLOW_DOWN;
use crate::sense::QUANTUM;
use crate::sense::air::{duty_of, resistance};

/// `K_p`, per kelvin. By Skogestad's rules for internal model control, `K_p = 1 / (k (lambda +
/// theta))`: `theta` = 13 s (sensor 10 s, fan 2 s, interval 1 s), `lambda` = 2 `theta`, and `k`,
/// in K/s per unit of `ln r`, the power of a socket over the heat capacity of its sink: 150 W on
/// 300 J/K are 0.5. A plant that is four times as steep stays stable.
pub(super) const K_P: f64 = 1.0 / (0.5 * 39.0);
/// `K_i` = `K_p / (4 (lambda + theta))`, per kelvin and second: slow enough for heavy heat sinks.
pub(super) const K_I: f64 = K_P / (4.0 * 39.0);

/// Distance below the target within which fans at their low bound answer to a rise, in kelvin:
/// what a heat sink warms by within two sensor lags at full load.
const IDLE_BAND: f64 = 8.0;

/// `error` less a dead zone of a quantum on either side.
pub fn dead_zone(error: f64) -> f64 {
    error - error.clamp(-QUANTUM, QUANTUM)
}

/// A loop's gains.
#[derive(Debug, Clone, Copy)]
pub struct Gains {
    /// `K_p`, per kelvin.
    pub p: f64,
    /// `K_i`, per kelvin and second.
    pub i: f64,
}

/// The loop of all fans.
#[derive(Debug, Clone, Copy)]
pub struct Pi {
    gains: Gains,
    /// The error of the last interval, after the dead zone.
    before: Option<f64>,
    /// The error with half a quantum of play on either side.
    seen: Option<f64>,
}

impl Default for Pi {
    fn default() -> Self {
        Self::new(Gains { p: K_P, i: K_I })
    }
}

impl Pi {
    /// One with these gains.
    pub fn new(gains: Gains) -> Self {
        Self { gains, before: None, seen: None }
    }

    /// The duty to follow `duty`, when the temperature is `error` kelvin above the target and
    /// `dt` seconds have passed; within `low` and `high`.
    pub fn step(&mut self, duty: f64, error: f64, dt: f64, (low, high): (f64, f64)) -> f64 {
        let half = QUANTUM / 2.0;
        let seen = self.seen.map_or(error, |seen| seen.clamp(error - half, error + half));
        self.seen = Some(seen);
        let error = dead_zone(seen);
        let change = error - self.before.replace(error).unwrap_or(error);
        let r = resistance(duty);
        let low = low.min(high);
        // Far below the target at the low bound a rise of the temperature is no reason to act:
        // a loop with a stored integral would have wound down as far.
        if duty <= low && error < -IDLE_BAND {
            return low;
        }
        let moved = self.gains.p * change + self.gains.i * error * dt;
        let mut next = if moved == 0.0 { duty } else { duty_of(r * (-moved).exp()) };
        let slowest = duty - SLOW_DOWN * dt;
        if next < slowest {
            // What the rate holds back of the proportional part is owed, or a reading that
            // toggles would ratchet the fans up.
            next = slowest;
            let owed = (moved - (r / resistance(next)).ln()) / self.gains.p;
            self.before = Some(error - owed);
        }
        next.clamp(low, high)
    }

    /// The target has changed: the error that it makes is no change of the temperature.
    pub fn restart(&mut self) {
        *self = Self::new(self.gains);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_a_quantum_of_the_target_nothing_moves() {
        let mut pi = Pi::default();
        for error in [0.0, 1.0, -1.0, 0.5, -0.5, 1.0] {
            assert_eq!(pi.step(0.37, error, 1.0, (0.2, 1.0)), 0.37);
        }
    }

    #[test]
    fn time_at_a_bound_leaves_nothing_to_unwind() {
        let mut pi = Pi::default();
        let mut duty = 0.3;
        for _ in 0..1000 {
            duty = pi.step(duty, 20.0, 1.0, (0.2, 0.6));
        }
        assert_eq!(duty, 0.6);
        // Below the dead zone it comes down at once, however long it was held.
        assert!(pi.step(duty, -2.0, 1.0, (0.2, 0.6)) < 0.6);
    }

    #[test]
    fn a_toggling_reading_moves_to_and_fro_by_the_same() {
        let (mut pi, mut duty) = (Pi::default(), 0.8);
        for step in 0..210 {
            let error = if step % 20 < 10 { -2.0 } else { -1.0 };
            let next = pi.step(duty, error, 1.0, (0.2, 1.0));
            assert!((next - duty).abs() <= 0.13, "{duty} {next}");
            duty = next;
        }
        assert!(duty < 0.8, "it does not ratchet up: {duty}");
    }

    #[test]
    fn a_kelvin_moves_slow_fans_less_than_fast_ones() {
        let moved = |duty: f64| Pi::default().step(duty, 11.0, 1.0, (0.0, 1.0)) - duty;
        assert!(moved(0.8) > 2.0 * moved(0.3), "{} {}", moved(0.8), moved(0.3));
        assert!(moved(0.3) > 0.0);
    }
}
