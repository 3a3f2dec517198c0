//! The local controllers of the CPU cap (Kim et al., DATE 2014): the share of the processors'
//! work that may be done, by temperature. EADC has one for the server, whose cap is dealt out to
//! jobs (`throttle.rs`); its variant has one per socket, whose cap is a frequency (`ceilings.rs`).

use crate::cooling::SET_POINT;
use crate::cooling::pi::dead_zone;

/// `K_p` per kelvin and `K_i` per kelvin and second, as for the fans (`pi.rs`) with `G` = 40 K
/// for all of the cap, which is about what full load warms a socket by.
const K_P: f64 = 60.0 / (40.0 * 39.0);
const K_I: f64 = K_P / 60.0;
/// Fastest rise of a cap per second. Ours: 40 K for all of it then come at 0.4 K/s, 4 K within a
/// sensor lag.
const RISE: f64 = 0.01;

/// Which way the caps may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Not at all.
    Hold,
    /// Those that want to be lower.
    Lower,
    /// Those that want to be higher.
    Raise,
}

/// One loop.
#[derive(Debug, Clone, Copy)]
struct Cap {
    /// In force, and what the loop alone would make of it.
    now: f64,
    wanted: f64,
    /// Error now, and the one last answered, K.
    error: f64,
    before: Option<f64>,
}

/// The loops, all with the same bounds.
#[derive(Debug, Clone)]
pub struct CpuCaps {
    caps: Vec<Cap>,
    least: f64,
}

impl CpuCaps {
    /// `count` caps between `least` and 1.
    pub fn new(count: u16, least: f64) -> Self {
        let cap = Cap { now: 1.0, wanted: 1.0, error: 0.0, before: None };
        Self { caps: vec![cap; usize::from(count)], least }
    }

    /// The cap in force at `index`.
    pub fn at(&self, index: usize) -> f64 {
        self.caps.get(index).map_or(1.0, |cap| cap.now)
    }

    /// Whether any is in force.
    pub fn throttled(&self) -> bool {
        self.caps.iter().any(|cap| cap.now < 1.0)
    }

    /// Whether one can go no lower.
    pub fn exhausted(&self) -> bool {
        self.caps.iter().any(|cap| cap.now <= self.least)
    }

    /// Whether any wants to be lower.
    pub fn want_less(&self) -> bool {
        self.caps.iter().any(|cap| cap.wanted < cap.now)
    }

    /// Whether any wants to be higher.
    pub fn want_more(&self) -> bool {
        self.caps.iter().any(|cap| cap.wanted > cap.now)
    }

    /// Looks at the temperatures `hot` after `dt` seconds.
    pub fn propose(&mut self, hot: impl Fn(usize) -> f64, dt: f64) {
        for (index, cap) in self.caps.iter_mut().enumerate() {
            cap.error = dead_zone(hot(index) - SET_POINT.0);
            let change = cap.error - cap.before.unwrap_or(cap.error);
            let moved = K_P * change + K_I * cap.error * dt;
            // Nobody is throttled below the set point, nor let go above it, for a toggling digit.
            let moved = match cap.error {
                error if error > 0.0 => moved.max(0.0),
                error if error < 0.0 => moved.min(0.0),
                _ => 0.0,
            };
            cap.wanted = (cap.now - moved).clamp(self.least, 1.0);
        }
    }

    /// Puts in force what `turn` lets through. What is held back leaves its error to be answered.
    pub fn settle(&mut self, turn: Turn, dt: f64) {
        for cap in &mut self.caps {
            let next = match turn {
                Turn::Hold => cap.now,
                Turn::Lower => cap.wanted.min(cap.now),
                Turn::Raise => cap.wanted.clamp(cap.now, cap.now + RISE * dt),
            };
            // Below the set point nothing is owed to a rise: the cap goes on coming back.
            let free = next >= 1.0 || (cap.wanted == cap.now && cap.error < 0.0);
            if next != cap.now || free {
                cap.before = Some(cap.error);
            }
            cap.now = next;
        }
    }
}
