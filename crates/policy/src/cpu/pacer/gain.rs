//! Whether a saving saves at all, by the meter; only inside `pacer-plus`.
//!
//! On some servers a core that is parked draws as much as one that sleeps, and then a saving only
//! costs latency. What is drawn with everything on is held against what is drawn under savings,
//! however deep they are; where they do not pay, everything comes back for a while.
//!
//! The load is hardly ever the same in both. What a request more takes shows wherever the load
//! changes and the setting does not, and so does how far off that is.

use crate::units::Nanos;
use crate::{Request, Signals};

use super::Pacer;
use super::exchange::MOST_FAILURES;

/// Share of the power that a saving of all of the capacity must save, and in proportion if it takes
/// less. Less is not worth any latency.
const LEAST: f64 = 0.01;
/// Standard errors by which it must be less. Three: periods that follow each other are alike.
const SURE: f64 = 3.0;
/// Periods under a saving by which it is judged at least; by which it is given back unless it seems
/// to pay, sure or not; and the most that a mean is of.
const FEWEST: f64 = 20.0;
const ENOUGH: f64 = 60.0;
const MOST: f64 = 240.0;
/// Loads that differ by this factor and less are compared.
const ALIKE: f64 = 2.0;
/// So many times as long as a saving was tried in vain, at first, none is tried again.
const PAUSE: u64 = 10;

/// Requests per second and watts, and the share of the capacity, each the mean of so many periods.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    periods: f64,
    rate: f64,
    watts: f64,
    capacity: f64,
}

impl Level {
    fn add(&mut self, rate: f64, watts: f64, capacity: f64) {
        self.periods = (self.periods + 1.0).min(MOST);
        self.rate += (rate - self.rate) / self.periods;
        self.watts += (watts - self.watts) / self.periods;
        self.capacity += (capacity - self.capacity) / self.periods;
    }
}

/// What is drawn with everything on and under savings, and since when nothing is to be saved.
#[derive(Debug, Clone, Default)]
pub(super) struct Gain {
    /// Under the setting in force.
    here: Level,
    /// Products of the deviations from its mean, over all settings, and how many are free.
    rates: f64,
    both: f64,
    watts: f64,
    free: f64,
    native: Level,
    saving: Level,
    failures: u32,
    not_before: Nanos,
}

impl Gain {
    /// A period under the `same` setting as the one before, or not, with so much capacity.
    pub fn see(&mut self, signals: &Signals, same: bool, capacity: f64) {
        let Some(watts) = signals.power.cpu.or(signals.power.total) else { return };
        let Some(n @ 1..) = signals.io.completed else { return };
        let (rate, watts) = (n as f64 / signals.period.seconds(), watts.0);
        if !(rate.is_finite() && watts.is_finite()) {
            return;
        }
        if !same {
            self.here = Level::default();
            // The wall's meter lags behind.
            if signals.power.cpu.is_none() {
                return;
            }
        }
        let before = self.here;
        self.here.add(rate, watts, capacity);
        if before.periods > 0.0 {
            let (rates, drawn) = (rate - before.rate, watts - before.watts);
            let fade = 1.0 - 1.0 / MOST;
            self.rates = self.rates * fade + rates * (rate - self.here.rate);
            self.both = self.both * fade + rates * (watts - self.here.watts);
            self.watts = self.watts * fade + drawn * (watts - self.here.watts);
            self.free = self.free * fade + 1.0;
        }
        let level = if capacity < 1.0 { &mut self.saving } else { &mut self.native };
        level.add(rate, watts, capacity);
    }

    /// Everything on is another setting from now on.
    pub fn restart(&mut self) {
        (self.native, self.saving) = (Level::default(), Level::default());
    }

    /// Watts that one request a second more draws.
    fn slope(&self) -> f64 {
        if self.rates > 0.0 { (self.both / self.rates).max(0.0) } else { 0.0 }
    }

    /// What draws `watts` under requests of one rate, under such of another; `None` if that is too
    /// far away to tell.
    pub fn at(&self, watts: f64, from: f64, to: f64) -> Option<f64> {
        let alike = from.max(to) <= ALIKE * from.min(to);
        alike.then(|| watts + self.slope() * (to - from))
    }

    /// Whether savings may be tried.
    pub fn may_be(&self, now: Nanos) -> bool {
        now >= self.not_before
    }

    /// Watts that were saved since this was judged last over those that must be, and how far off
    /// that may be.
    fn saved(&self) -> Option<(f64, f64)> {
        let (native, saving) = (self.native, self.saving);
        let expected = self.at(native.watts, native.rate, saving.rate)?;
        let least = LEAST * native.watts * (1.0 - saving.capacity);
        let noise = (self.watts - self.slope() * self.both).max(0.0) / self.free;
        let away = (saving.rate - native.rate).powi(2);
        let slope = if away > 0.0 { away / self.rates } else { 0.0 };
        let error = noise * (1.0 / native.periods + 1.0 / saving.periods + slope);
        Some((expected - saving.watts - least, SURE * error.sqrt()))
    }

    /// Judges what was saved; true if that was nothing.
    fn judge(&mut self, now: Nanos, period: Nanos) -> bool {
        let known = self.saving.periods >= FEWEST && self.native.periods > 1.0;
        let Some((more, error)) = self.saved().filter(|_| known) else { return false };
        if more > error {
            (self.failures, self.saving) = (0, Level::default());
        }
        if more >= if self.saving.periods < ENOUGH { -error } else { 0.0 } {
            return false;
        }
        let tried = Nanos((self.saving.periods * period.0 as f64) as u64);
        self.not_before = now + Nanos((tried.0 * PAUSE) << self.failures);
        self.failures = (self.failures + 1).min(MOST_FAILURES);
        self.saving = Level::default();
        true
    }
}

impl Pacer {
    /// Judges what savings save; true if that is nothing, and everything comes back.
    pub(super) fn saves_nothing(
        &mut self,
        (now, period): (Nanos, Nanos),
        request: &mut Request,
    ) -> bool {
        if self.had(&self.native) || !self.gain.judge(now, period) {
            return false;
        }
        self.memory.acquit();
        self.kept.copy_from_slice(&self.native);
        self.set(request, Self::all, "pacer-plus:saves-nothing");
        true
    }
}
