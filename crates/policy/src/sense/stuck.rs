//! Stuck-at detection: a reading that stands still. Nothing happens, or is the sensor stuck?
//!
//! A die's rise over the inlet grows with the heat that it gives off and with the resistance to
//! the air. So a reading that has not moved since these were `h` should by now say
//!
//! ```text
//! T_in + (T - T_in) h(now) / h        h = heat given off * (1 + r) / 2
//! ```
//!
//! Half of the resistance is that of the die to its heat sink, the other half `r` of the air at
//! the fans' speed: about what heat sinks have. It need not be exact: the difference that counts
//! is several steps of the reading, and a sound one ends it by moving at all. It does so at the
//! latest with the air of the full fans to which a stuck one leads.

use crate::sense::air::resistance;
use crate::sense::{LAG, QUANTUM, weight};
use crate::units::Nanos;

/// Kelvin by which a reading must be below what it should be.
const CHANGE: f64 = 6.0;
/// Time constant of the heat, in seconds, as of a heat sink of 0.2 K/W and 300 J/K: what passes
/// sooner need not show.
const SMOOTH: f64 = 60.0;

/// What a reading's standstill tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct StuckAt {
    /// `h` of the last periods, and the most of it that a reading may still show.
    heat: Option<f64>,
    recent: f64,
    /// The reading when it last moved, and `h` then.
    moved: Option<(f64, f64)>,
    since: Option<Nanos>,
}

impl StuckAt {
    /// Takes a period of `dt` seconds with so much heat given off, in any unit, and air.
    pub fn heat(&mut self, given_off: f64, air: f64, dt: f64) {
        let now = given_off * (1.0 + resistance(air)) / 2.0;
        let heat = self.heat.get_or_insert(now);
        *heat += (now - *heat) * weight(dt, SMOOTH);
        self.recent = heat.max(self.recent * (-dt / LAG.seconds()).exp());
    }

    /// `temperature` is read at `now`, with the inlet at `inlet` °C.
    pub fn read(&mut self, now: Nanos, temperature: f64, inlet: f64) {
        let heat = self.heat.unwrap_or_default();
        match self.moved {
            Some((said, then)) if (temperature - said).abs() < QUANTUM / 2.0 => {
                let rise = (said - inlet).max(0.0);
                let missing = heat * rise > then * (rise + CHANGE);
                self.since = missing.then(|| self.since.unwrap_or(now));
            }
            _ => (self.moved, self.since) = (Some((temperature, self.recent)), None),
        }
    }

    /// Since when the reading cannot be believed: one lag after it should have begun to move.
    pub fn since(&self) -> Option<Nanos> {
        self.since.map(|since| since + LAG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes of one load and air with a reading of 65 °C, over an inlet of 25 °C, then two
    /// minutes of another. Whether it is found stuck in the end.
    fn stuck(before: (f64, f64), after: (f64, f64), reads: impl Fn(u64) -> f64) -> bool {
        let mut stuck = StuckAt::default();
        for second in 0..720 {
            let (work, air) = if second < 600 { before } else { after };
            stuck.heat(2.0 + work, air, 1.0);
            stuck.read(Nanos::from_secs(second), reads(second), 25.0);
        }
        stuck.since().is_some_and(|since| since < Nanos::from_secs(680))
    }

    #[test]
    fn a_reading_that_does_not_follow_load_or_air_is_stuck() {
        assert!(stuck((4.0, 0.5), (6.0, 0.5), |_| 65.0), "half as much work again");
        assert!(stuck((4.0, 0.5), (4.0, 0.3), |_| 65.0), "slower fans");
        assert!(!stuck((4.0, 0.5), (4.0, 0.5), |_| 65.0), "nothing happens");
        assert!(!stuck((4.0, 0.5), (4.5, 0.5), |_| 65.0), "hardly anything");
        assert!(!stuck((4.0, 0.5), (2.0, 0.5), |_| 65.0), "cooler: it is safe");
    }

    #[test]
    fn one_that_moves_is_not() {
        let rises = |second: u64| 65.0 + (second.saturating_sub(610) / 8) as f64;
        assert!(!stuck((4.0, 0.5), (8.0, 0.5), rises));
        let finely = |second: u64| 65.0 + 0.6 * (second % 2) as f64;
        assert!(!stuck((4.0, 0.5), (8.0, 0.5), finely));
    }

    #[test]
    fn a_reading_is_right_again_when_the_heat_is_gone_and_a_dip_before_changes_nothing() {
        let mut stuck = StuckAt::default();
        let mut run = |work: f64, from: u64, to: u64| {
            for second in from..to {
                stuck.heat(2.0 + work, 0.5, 1.0);
                stuck.read(Nanos::from_secs(second), 65.0, 25.0);
            }
            stuck.since().is_some()
        };
        assert!(!run(4.0, 0, 600) && !run(0.0, 600, 605) && !run(4.0, 605, 700));
        assert!(run(8.0, 700, 760));
        assert!(!run(4.0, 760, 860));
    }
}
