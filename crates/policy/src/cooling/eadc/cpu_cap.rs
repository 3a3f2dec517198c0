//! The local controller of the CPU cap (Kim et al., DATE 2014): the share of the processors' work
//! that may be done, by temperature, dealt out to jobs (`throttle.rs`).

use crate::cooling::pi::{Gains, dead_zone};
use crate::sense::LAG;
use crate::units::Celsius;

/// `G`, what all of the cap warms a socket by in the end, in kelvin.
const G: f64 = 40.0;
/// `K_p` per kelvin and `K_i` per kelvin and second, as for the fans (`pi.rs`) with this `G`.
pub(super) const K_P: f64 = 60.0 / (G * 39.0);
pub(super) const K_I: f64 = K_P / 60.0;
/// Fastest rise of the cap per second near the set point. Ours: 40 K for all of it then come at
/// 0.4 K/s, 4 K within a sensor lag.
pub(super) const RISE: f64 = 0.01;
/// Distance below the set point from which no loop decides, in kelvin: the cap just comes back,
/// within two sensor lags by no more than what warms to the set point. At this distance that is
/// twice [`RISE`]; the loop then has four lags to stop it.
const FAR: f64 = 16.0;

/// Which way the cap may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Not at all.
    Hold,
    /// Down.
    Lower,
    /// Up.
    Raise,
}

/// The cap.
#[derive(Debug, Clone)]
pub struct CpuCap {
    /// In force, and what the loop alone would make of it.
    now: f64,
    wanted: f64,
    /// How far below the set point it is, the error now, and the one last answered, K.
    room: f64,
    error: f64,
    before: Option<f64>,
    least: f64,
    set_point: Celsius,
    gains: Gains,
    rise: f64,
}

impl CpuCap {
    /// A cap of `least` to 1 for sockets that are to be at `set_point`; near it it comes back by at
    /// most `rise` per second.
    pub fn new((least, set_point): (f64, Celsius), gains: Gains, rise: f64) -> Self {
        let (now, wanted, room, error, before) = (1.0, 1.0, 0.0, 0.0, None);
        Self { now, wanted, room, error, before, least, set_point, gains, rise }
    }

    /// The cap in force.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Whether it is in force.
    pub fn throttled(&self) -> bool {
        self.now < 1.0
    }

    /// Whether it wants to be lower.
    pub fn want_less(&self) -> bool {
        self.wanted < self.now
    }

    /// Whether it wants to be higher.
    pub fn want_more(&self) -> bool {
        self.wanted > self.now
    }

    /// Looks at the temperature `hot` after `dt` seconds.
    pub fn propose(&mut self, hot: Celsius, dt: f64) {
        let Gains { p, i } = self.gains;
        self.room = (self.set_point - hot).0;
        self.error = dead_zone(-self.room);
        let change = self.error - self.before.unwrap_or(self.error);
        let moved = p * change + i * self.error * dt;
        if self.error > 0.0 && moved < 0.0 {
            // What the proportional part would give back the integral part works off.
            self.before = self.before.map(|before| before - i / p * self.error * dt);
        }
        // Nobody is throttled below the set point, nor let go above it, for a toggling digit.
        let moved = match self.error {
            error if error > 0.0 => moved.max(0.0),
            error if error < 0.0 => moved.min(0.0),
            _ => 0.0,
        };
        let wanted = if self.room > FAR { 1.0 } else { self.now - moved };
        self.wanted = wanted.clamp(self.least, 1.0);
    }

    /// Puts in force what `turn` lets through. What is held back leaves its error to be answered.
    pub fn settle(&mut self, turn: Turn, dt: f64) {
        let next = match turn {
            Turn::Hold => self.now,
            Turn::Lower => self.wanted.min(self.now),
            Turn::Raise => {
                let rise = self.rise.max(self.room / (G * 2.0 * LAG.seconds()));
                self.wanted.clamp(self.now, self.now + rise * dt)
            }
        };
        // Below the set point nothing is owed to a rise: the cap goes on coming back.
        let free = next >= 1.0 || (self.wanted == self.now && self.error < 0.0);
        if next != self.now || free {
            self.before = Some(self.error);
        }
        self.now = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::thresholds::SET_POINT;

    fn new_cap() -> CpuCap {
        CpuCap::new((0.1, SET_POINT), Gains { p: K_P, i: K_I }, RISE)
    }

    /// Seconds that a cap at its least takes to come back at a constant temperature.
    fn back(hot: f64) -> usize {
        let mut cap = new_cap();
        cap.now = 0.1;
        let back = (0..1000).find(|_| {
            let before = cap.now();
            cap.propose(Celsius(hot), 1.0);
            cap.settle(Turn::Raise, 1.0);
            let (rose, room) = (cap.now() - before, SET_POINT.0 - hot);
            // Two lags of it warm by less than there is room for, 8 K at least.
            assert!(rose * G * 20.0 <= room.max(8.0) + 1e-9, "{rose} at {hot} °C");
            !cap.throttled()
        });
        back.unwrap_or(1000)
    }

    #[test]
    fn what_a_peak_took_is_no_reason_to_stay_too_hot() {
        let mut cap = new_cap();
        let mut hold = |hot: f64, seconds: u32| {
            for _ in 0..seconds {
                cap.propose(Celsius(hot), 1.0);
                cap.settle(Turn::Lower, 1.0);
            }
            cap.now()
        };
        hold(86.0, 1);
        let peak = hold(90.0, 1);
        // The peak's proportional part, less what is left of the error, is worked off in 200 s.
        assert_eq!(hold(87.0, 100), peak);
        assert!(hold(87.0, 200) < peak - 0.05, "{}", cap.now());
    }

    #[test]
    fn the_colder_it_is_the_sooner_a_cap_is_back() {
        assert!(back(50.0) < 25 && back(65.0) < 40, "{} {}", back(50.0), back(65.0));
        assert!(back(80.0) > 200, "near the set point the loop decides: {}", back(80.0));
        assert_eq!(back(84.5), 1000, "within the dead zone nothing comes back");
    }
}
