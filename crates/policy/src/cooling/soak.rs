//! How far a die rises over the inlet for the load of its socket and the air: what tells apart
//! heat and a sensor that is stuck or lies.
//!
//! ```text
//! rise = k h      h = (load + soak(load resistance)) / 2
//! ```
//!
//! Half of the rise is between die and heat sink, which follows the load within seconds; the other
//! half is between heat sink and air, which soaks up with the time constant `R C` and so is slow
//! where fans are. `k` is learnt while the sensor is sound. It is a first-order model of a server
//! that nobody measured, and is used where a factor of [`GENEROUS`] either way does no harm.

use crate::cooling::sensor::Causes;
use crate::cooling::weight;

/// `R C` of a heat sink at full fan speed, in seconds: 0.15 K/W and 300 J/K.
pub const SOAK: f64 = 45.0;
/// Time constant of what is learnt, in seconds; a few of the heat sink's.
pub const LEARN: f64 = 600.0;
/// Sound readings before what it can be at most is known, in seconds.
const ENOUGH: f64 = 300.0;
/// How far the truth may be from the model: by that factor, twice if it is another socket's, and so
/// many kelvin.
pub const GENEROUS: f64 = 1.5;
const MARGIN: f64 = 10.0;

/// The model of one socket.
#[derive(Debug, Clone, Default)]
pub struct Soak {
    at: Option<f64>,
    load: f64,
    sink: f64,
    /// `h`; when the temperature was known last, and its least since.
    h: f64,
    known: f64,
    least: f64,
    /// Of `k`: means of rise times `h`, and of `h` squared.
    sums: (f64, f64),
    sibling: Option<f64>,
    /// Seconds of sound readings so far.
    learnt: f64,
}

impl Soak {
    /// Time has come to `now` (seconds) under `causes`; `sibling` is the `k` of another socket.
    pub fn update(&mut self, now: f64, causes: Causes, sibling: Option<f64>) {
        self.sibling = sibling;
        let dt = now - self.at.replace(now).unwrap_or(now);
        self.load = causes.load;
        let sink = causes.load * causes.air;
        self.sink += (sink - self.sink) * weight(dt.max(0.0), SOAK * causes.air);
        self.h = (self.load + self.sink) / 2.0;
        self.least = self.least.min(self.h);
    }

    /// A sound sensor says that it is `rise` kelvin over the inlet, `dt` seconds after the last.
    /// Least squares over all such at first, over the last ones later.
    pub fn learn(&mut self, rise: f64, dt: f64) {
        if dt > 0.0 {
            self.learnt += dt;
            let weight = dt / self.learnt.min(LEARN).max(dt);
            let (product, square) = self.sums;
            self.sums.0 += (rise.max(0.0) * self.h - product) * weight;
            self.sums.1 += (self.h * self.h - square) * weight;
        }
    }

    /// `k`, once it is more than how a heat sink warms up that nobody knew before; never where
    /// nobody tells the load.
    pub fn learnt(&self) -> Option<f64> {
        (self.learnt >= ENOUGH).then(|| self.k()).filter(|k| *k > 0.0)
    }

    /// Kelvin per unit of `h`.
    fn k(&self) -> f64 {
        self.sums.0 / self.sums.1.max(1e-9)
    }

    /// `k` as far as anything is sure of it.
    fn sure(&self) -> Option<f64> {
        self.learnt().or(self.sibling)
    }

    /// The temperature is known at this moment.
    pub fn known(&mut self) {
        (self.known, self.least) = (self.h, self.h);
    }

    /// `h`.
    pub fn h(&self) -> f64 {
        self.h
    }

    /// How much further than at `h` it rises now, in kelvin; negative when less far.
    pub fn since(&self, h: f64) -> f64 {
        self.k() * (self.h - h)
    }

    /// Most of its rise that a die can have lost since its temperature was known.
    pub fn lost(&self) -> f64 {
        (1.0 - self.least / (GENEROUS * self.known).max(1e-9)).max(0.0)
    }

    /// The least and the most that a die at this heat can rise, in kelvin; no most before enough is
    /// known.
    pub fn bounds(&self) -> (f64, f64) {
        let Some(k) = self.sure() else { return (0.0, f64::MAX) };
        let generous = if self.learnt().is_some() { GENEROUS } else { GENEROUS.powi(2) };
        (k * self.h / generous - MARGIN, k * self.h * generous + MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most that a die at 10 K over 20 °C of inlet can rise after ten minutes at `load`.
    fn most(load: f64) -> f64 {
        let mut soak = Soak::default();
        for second in 0..600 {
            soak.update(f64::from(second), Causes::test(load), None);
            soak.learn(10.0, 1.0);
        }
        soak.bounds().1
    }

    #[test]
    fn where_nobody_tells_the_load_nothing_bounds_the_rise() {
        assert_eq!(most(0.0), f64::MAX);
        assert!((20.0..30.0).contains(&most(5.0)), "{}", most(5.0));
    }
}
