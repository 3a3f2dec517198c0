//! A reading that stands still: nothing happens, or the sensor is stuck?
//!
//! * **Heat** tells for sure: since it was coolest under this reading, load and air have warmed the
//!   die (`soak.rs`) by [`CHANGE`], and the sensor has had time to show it. Then it is stuck until
//!   it moves. That the heat is gone again does not mend it: the next heat would go unseen.
//! * **Pace** makes doubtful: the reading was rising steadily, stands still, and nothing has cooled
//!   the die meanwhile. Then it may have gone on as before. That comes slowly, so that a sound
//!   reading falls with the first air that doubt brings, which ends it.

use crate::cooling::QUANTUM;
use crate::cooling::soak::{GENEROUS, Soak};
use crate::cooling::weight;

/// Kelvin by which load and air must have warmed the die before a reading that stands still is
/// stuck; time that it has to move from half of that on, in seconds: half as long again as the lag.
const CHANGE: f64 = 6.0;
const SOONEST: f64 = 15.0;
/// Time constant of the least heat, in seconds: what passes sooner a sensor does not show.
const COOLING: f64 = 15.0;
/// Time constant of the mean that a rising reading is ahead of, in seconds: several quanta long.
const PACE: f64 = 30.0;
/// Time within which a steady rise goes on at least, in seconds, or that of two quanta.
const FOLLOW: f64 = 30.0;
/// Longest time constant of a heat sink to reckon with, in seconds: a rise of a kelvin in a second
/// has so many to go.
const SINK: f64 = 250.0;

/// What a reading's moves tell. Times in seconds, temperatures in °C.
#[derive(Debug, Clone)]
pub struct Still {
    /// When it was read last, if ever, and a mean of what it said.
    at: Option<f64>,
    mean: f64,
    /// What it said when it last moved, when that was, and how fast it was rising then, in K/s.
    said: f64,
    moved_at: f64,
    pace: f64,
    /// Heat then, and the least since.
    moved_under: f64,
    least: f64,
    /// By how many kelvin there is more heat now than at the least, and less than when it moved.
    warmer: f64,
    cooler: f64,
    /// Since when it is too much warmer.
    since: Option<f64>,
    stuck: bool,
}

impl Still {
    /// Nothing was read so far.
    pub fn new() -> Self {
        Self {
            at: None,
            mean: 0.0,
            said: f64::MAX,
            moved_at: 0.0,
            pace: 0.0,
            moved_under: 0.0,
            least: 0.0,
            warmer: 0.0,
            cooler: 0.0,
            since: None,
            stuck: false,
        }
    }

    /// `temperature` is read at `at` (s).
    pub fn read(&mut self, at: f64, temperature: f64, soak: &Soak) {
        let dt = at - self.at.replace(at).unwrap_or(at);
        let moved = (temperature - self.said).abs();
        self.mean += (temperature - self.mean) * weight(dt, PACE);
        if moved > CHANGE {
            // A jump is no rise.
            self.mean = temperature;
        }
        if moved >= QUANTUM / 2.0 {
            // The mean of a reading that toggles is less than a quantum away.
            self.pace = ((temperature - self.mean - QUANTUM) / PACE).max(0.0);
            (self.said, self.moved_at) = (temperature, at);
            (self.moved_under, self.least) = (soak.h(), soak.h());
            (self.warmer, self.cooler, self.since, self.stuck) = (0.0, 0.0, None, false);
            return;
        }
        self.least += (soak.h() - self.least).min(0.0) * weight(dt, COOLING);
        self.warmer = soak.since(self.least);
        self.cooler = -soak.since(self.moved_under);
        if self.warmer < CHANGE / 2.0 {
            self.since = None;
        } else {
            let since = *self.since.get_or_insert(at);
            self.stuck |= self.warmer >= CHANGE && at - since > SOONEST;
        }
    }

    /// Whether it cannot be true.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Kelvin by which load and air have warmed the die since it was coolest under this reading.
    pub fn warmer(&self) -> f64 {
        self.warmer.max(0.0)
    }

    /// Kelvin by which it may have warmed at most, once that is more than rounding and the model's
    /// error: what to reckon with before it is stuck for sure.
    pub fn suspect(&self) -> f64 {
        if self.since.is_some() { GENEROUS * self.warmer } else { 0.0 }
    }

    /// Kelvin by which the die may have gone on rising since it moved.
    pub fn doubt(&self, now: f64) -> f64 {
        if self.pace == 0.0 || self.cooler > 2.0 * QUANTUM {
            return 0.0;
        }
        let late = now - self.moved_at - (2.0 * QUANTUM / self.pace).max(FOLLOW);
        (late * self.pace).clamp(0.0, SINK * self.pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cooling::sensor::Causes;

    /// A die whose load and readings are given, one a second. 4 K per unit of heat are learnt.
    struct Die {
        at: f64,
        soak: Soak,
        still: Still,
    }

    impl Die {
        fn new() -> Self {
            let (soak, still) = (Soak::default(), Still::new());
            let mut die = Self { at: 0.0, soak, still };
            for second in 0..600 {
                die.read(10.0, if second % 2 == 0 { 61.0 } else { 60.0 });
                die.soak.learn(40.0, 1.0);
            }
            die
        }

        fn read(&mut self, load: f64, temperature: f64) {
            self.at += 1.0;
            self.soak.update(self.at, Causes::test(load), None);
            self.still.read(self.at, temperature, &self.soak);
        }
    }

    #[test]
    fn a_stuck_sensor_stays_so_until_it_moves() {
        let mut die = Die::new();
        for _ in 0..60 {
            die.read(15.0, 60.0);
        }
        assert!(die.still.is_stuck(), "{} K more", die.still.warmer());
        for _ in 0..600 {
            die.read(2.0, 60.0);
        }
        assert!(die.still.is_stuck(), "the heat is gone, and it shows none of that");
        die.read(2.0, 59.0);
        assert!(!die.still.is_stuck());
    }

    #[test]
    fn steps_finer_than_a_kelvin_are_moves_too() {
        let mut die = Die::new();
        for second in 0..200 {
            die.read(14.0, 60.0 + 0.125 * f64::from(second.min(110)));
            assert!(!die.still.is_stuck());
        }
    }

    #[test]
    fn a_small_change_is_no_reason_to_doubt() {
        let mut die = Die::new();
        for second in 0..600 {
            die.read(10.5, if second % 7 < 3 { 60.0 } else { 61.0 });
            assert!(!die.still.is_stuck());
            assert_eq!(die.still.doubt(die.at), 0.0, "it toggles");
        }
        for _ in 0..600 {
            die.read(10.5, 90.0);
            assert_eq!(die.still.doubt(die.at), 0.0, "it jumped");
        }
    }

    #[test]
    fn a_steady_rise_may_have_gone_on() {
        for cooled in [false, true] {
            let mut die = Die::new();
            for second in 0..100 {
                die.read(10.0, 60.0 + f64::from(second / 10));
            }
            assert_eq!(die.still.doubt(die.at), 0.0, "it rises");
            for _ in 0..150 {
                die.read(if cooled { 8.0 } else { 10.0 }, 69.0);
            }
            let doubt = die.still.doubt(die.at);
            // At 0.1 K/s, for what is left of 150 s after 30 s, by a mean that is a quantum behind.
            let expected = if cooled { 0.0..=0.0 } else { 5.0..=12.0 };
            assert!(expected.contains(&doubt), "{doubt} K, cooled: {cooled}");
            die.read(10.0, 68.0);
            assert_eq!(die.still.doubt(die.at), 0.0, "it fell");
        }
    }
}
