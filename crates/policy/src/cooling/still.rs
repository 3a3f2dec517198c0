//! A reading that stands still: nothing happens, or the sensor is stuck?
//!
//! * **Heat** tells for sure: load and air have warmed the die (`rise.rs`) by [`CHANGE`] over the
//!   coolest that this reading showed, and the sensor has had time to show it. Then it is stuck
//!   until it moves. That the heat is gone again does not mend it: the next heat would go unseen.
//! * **Pace** makes doubtful: the reading was rising steadily, stands still, and nothing has cooled
//!   the die meanwhile. Then it may have gone on as before. That comes slowly, so that a sound
//!   reading falls with the first air that doubt brings, which ends it.

use crate::cooling::rise::{GENEROUS, Rise, State};
use crate::cooling::{LAG, QUANTUM, weight};

/// Kelvin by which a sensor must show less than load and air have done before it is stuck; time
/// that it has from half of that on, in seconds: its lag once more.
const CHANGE: f64 = 6.0;
const SOONEST: f64 = LAG.0 as f64 / 1e9;
/// Time constant of the coolest state, in seconds: what passes sooner a sensor does not show.
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
    /// What the die was then, and the coolest that it should have shown since.
    moved_under: State,
    coolest: State,
    /// By how many kelvin it is warmer than the coolest, and cooler than when it moved.
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
            moved_under: State::default(),
            coolest: State::default(),
            warmer: 0.0,
            cooler: 0.0,
            since: None,
            stuck: false,
        }
    }

    /// `temperature` is read at `at` (s) of a die of which this is known.
    pub fn read(&mut self, at: f64, temperature: f64, die: &Rise) {
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
            (self.moved_under, self.coolest) = (die.now(), die.shown());
            (self.warmer, self.cooler) = (0.0, 0.0);
            (self.since, self.stuck) = (None, false);
            return;
        }
        let shown = die.shown();
        if die.between(self.coolest, shown) < 0.0 {
            self.coolest.follow(shown, weight(dt, COOLING));
        }
        self.warmer = die.between(self.coolest, die.now());
        self.cooler = die.between(die.now(), self.moved_under);
        let owed = die.between(self.coolest, shown);
        if owed < CHANGE / 2.0 {
            self.since = None;
        } else {
            let since = *self.since.get_or_insert(at);
            self.stuck |= owed >= CHANGE && at - since > SOONEST;
        }
    }

    /// Whether it cannot be true.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Kelvin by which load and air have warmed the die over the coolest that this reading showed.
    pub fn warmer(&self) -> f64 {
        self.warmer.max(0.0)
    }

    /// The most that this may be, once a sensor should show more of it than rounding and the
    /// model's error: what to reckon with before it is stuck for sure.
    pub fn suspect(&self) -> f64 {
        if self.since.is_some() { GENEROUS * self.warmer() } else { 0.0 }
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
    use crate::cooling::rise::Model;
    use crate::cooling::sensor::Causes;

    /// A die whose load and readings are given, one a second. 4 K per unit of heat are learnt.
    struct Die {
        at: f64,
        rise: Rise,
        still: Still,
    }

    impl Die {
        fn new() -> Self {
            let (rise, still) = (Rise::default(), Still::new());
            let mut die = Self { at: 0.0, rise, still };
            for second in 0..600 {
                die.read(10.0, if second % 2 == 0 { 61.0 } else { 60.0 });
                die.rise.learn(40.0, 1.0);
            }
            die
        }

        fn read(&mut self, load: f64, temperature: f64) {
            self.at += 1.0;
            self.rise.update(self.at, Causes::test(load), Model::default());
            self.still.read(self.at, temperature, &self.rise);
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
