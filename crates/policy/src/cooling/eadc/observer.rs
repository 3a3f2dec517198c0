//! One socket's heat, observed: what temperature it goes to, at any fan duty and any heat.
//!
//! ```text
//! dT/dt = (T_end - T) / (TAU g)        T_end = T_in + theta h g        g = 1 - C + C r / r(1/2)
//! ```
//!
//! `h` is the socket's heat in cores' worth of work (`sense/load.rs`), `r` the air's resistance
//! (`sense/air.rs`), and `theta`, kelvin per unit at half speed, is what is learnt: by how much the
//! reading departs from the model (a Luenberger observer). So a trend that is still hidden in the
//! sink is known before the sensor has all of it, and nothing has to stand still to be learnt from.

use crate::sense::air::resistance;

/// `C`: share of convection in a heat sink's resistance at half speed; 0.6 to 0.8 in the servers
/// that we know of.
const CONVECTION: f64 = 0.7;
/// `TAU`: time constant of a heat sink at half speed, in seconds.
const TAU: f64 = 100.0;
/// Gains of the observer, per second: `T` follows the readings within 20 s, twice their lag, and
/// `theta` as fast as keeps the pair from swinging: `(1 / TAU + FOLLOW)^2 TAU / 4`.
const FOLLOW: f64 = 0.05;
const LEARN: f64 = 0.09;
/// What a socket at full load is taken to be above the air at half speed before anything is known,
/// in kelvin.
const GUESS: f64 = 60.0;

/// The observer of one socket.
#[derive(Debug, Clone, Copy)]
pub struct Observer {
    temperature: Option<f64>,
    theta: f64,
}

/// `g` at `duty`.
fn relative(duty: f64) -> f64 {
    1.0 - CONVECTION + CONVECTION * resistance(duty) / resistance(0.5)
}

impl Observer {
    /// Of a socket whose heat at full load is `full`.
    pub fn new(full: f64) -> Self {
        Self { temperature: None, theta: GUESS / full.max(1.0) }
    }

    /// Takes `dt` seconds at this `heat` and `air`, at whose end the sensor reads `read`.
    pub fn update(&mut self, read: f64, heat: f64, (inlet, air): (f64, f64), dt: f64) {
        let g = relative(air);
        let now = self.temperature.unwrap_or(read);
        let model = now + (inlet + self.theta * heat * g - now) * (dt / (TAU * g)).min(1.0);
        let error = read - model;
        self.temperature = Some(model + error * (FOLLOW * dt).min(1.0));
        let learnt = self.theta + LEARN * dt * error / (heat * g).max(1e-3);
        self.theta = learnt.clamp(0.0, 10.0 * GUESS);
    }

    /// Nothing is read: what was learnt stays.
    pub fn lose(&mut self) {
        self.temperature = None;
    }

    /// `T_end` at this heat and duty, °C.
    pub fn end(&self, heat: f64, inlet: f64, duty: f64) -> f64 {
        inlet + self.theta * heat * relative(duty)
    }

    /// The heat that ends at `limit`.
    pub fn bearable(&self, limit: f64, inlet: f64, duty: f64) -> f64 {
        ((limit - inlet) / (self.theta * relative(duty)).max(1e-6)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_where_a_socket_goes_before_the_socket_is_there() {
        // A sink a quarter worse than guessed, as slow or faster, read in whole kelvin.
        let (heat, inlet, air, k) = (10.0, 30.0, 0.7, 7.5);
        let end = inlet + k * heat * relative(air);
        let mut observer = Observer::new(10.0);
        for tau in [60.0, 100.0] {
            observer = Observer::new(10.0);
            let mut t = 40.0_f64;
            for second in 0..400 {
                t += (end - t) / (tau * relative(air));
                observer.update(t.round(), heat, (inlet, air), 1.0);
                let off = (observer.end(heat, inlet, air) - end).abs();
                assert!(second < 30 || off < 11.0, "{off} after {second} s");
                assert!(second != 30 || off < 0.5 * (end - t), "{off}, {t} of {end}");
                assert!(second < 250 || off < 3.0, "{off} after {second} s");
            }
        }
        // At another duty and heat by the same law.
        let other = inlet + k * 4.0 * relative(0.3);
        assert!((observer.end(4.0, inlet, 0.3) - other).abs() < 3.0);
        assert!((observer.bearable(other, inlet, 0.3) - 4.0).abs() < 0.3);
    }
}
