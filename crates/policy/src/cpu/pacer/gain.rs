//! Whether a saving saves at all, by the meter; only inside `pacer-plus`.
//!
//! On some servers a core that is parked draws as much as one that sleeps, and then a saving only
//! costs latency. The power with everything on is known from when the baseline was learned; what is
//! in force once nothing is left to save must draw less, or everything comes back for a while.

use crate::Request;
use crate::units::Nanos;

use super::Pacer;
use super::exchange::{MOST_FAILURES, PAUSE, Trial};

/// Share of the power that a saving must save: less is noise.
const LEAST: f64 = 0.0025;

/// The most of the capacity that may be left: what a step or two saves may be too little to see.
const HALF: f64 = 0.5;

/// What was drawn with everything on, and since when nothing is to be saved.
#[derive(Debug, Clone, Default)]
pub(super) struct Gain {
    native: Option<Trial>,
    failures: u32,
    not_before: Nanos,
}

impl Gain {
    /// The baseline was learned, under so much power and load.
    pub fn learn(&mut self, native: Option<Trial>) {
        self.native = native;
    }

    /// Whether savings may be tried.
    pub fn may_be(&self, now: Nanos) -> bool {
        now >= self.not_before
    }
}

impl Pacer {
    /// Judges what is in force, once for each baseline; true if it saves nothing and everything
    /// comes back.
    pub(super) fn saves_nothing(&mut self, now: Nanos, request: &mut Request) -> bool {
        let is_deep = self.capacity(|g| self.in_force[g]) <= HALF;
        let settled = self.care.is_some() && self.windows.unchanged() && is_deep;
        let Some((native, watts)) = self.gain.native.zip(self.windows.watts()) else {
            return false;
        };
        if !settled || !native.is_like(self.windows.load().requests()) {
            return false;
        }
        self.gain.native = None;
        if watts < native.watts * (1.0 - LEAST) {
            self.gain.failures = 0;
            return false;
        }
        self.gain.not_before = now + Nanos(PAUSE.0 << self.gain.failures);
        self.gain.failures = (self.gain.failures + 1).min(MOST_FAILURES);
        self.memory.acquit();
        self.kept.copy_from_slice(&self.native);
        self.set(request, Self::all, "pacer-plus:saves-nothing");
        true
    }
}
