//! Whether a saving saves at all, by the meter. Ours.
//!
//! On some servers a core that is parked draws as much as one that sleeps, or more, and work that
//! takes longer at a lower frequency draws what that saves. What is drawn with everything on is
//! held against what is drawn under savings, however deep they are; where they do not pay,
//! everything comes back for a while. The frequency of `base.rs` is judged by the same rule.
//!
//! Loads are compared within octaves of their rate, silence with silence. What a request more takes
//! there shows wherever the load changes and the setting does not, and so does how far off that is.

use crate::units::Nanos;
use crate::{Request, Signals};

use super::Pacer;
use super::exchange::MOST_FAILURES;

/// Share of the power that a saving of all of the capacity must save, and in proportion if it takes
/// less. Less is not worth any latency.
const LEAST: f64 = 0.01;
/// Standard errors by which it must be less. Three: periods that follow each other are alike.
const SURE: f64 = 3.0;
/// Periods under a saving by which it is judged at least, and sooner each time it has failed; by
/// which it is given back unless it seems to pay, sure or not; and the most that a mean is of.
const FEWEST: f64 = 20.0;
const ENOUGH: f64 = 60.0;
const MOST: f64 = 240.0;
/// Periods with everything on before a silence is saved in.
const KNOWN: f64 = 4.0;
/// Loads that differ by this factor and less are compared. A rate is below 2³⁰ a second.
const ALIKE: f64 = 2.0;
const OCTAVES: usize = 32;
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

/// The octave of a rate; silence is one by itself.
fn octave(rate: f64) -> usize {
    // A float converted to an integer saturates.
    if rate > 0.0 { (rate.log2().max(0.0) as usize + 1).min(OCTAVES - 1) } else { 0 }
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
    native: [Level; OCTAVES],
    saving: [Level; OCTAVES],
    /// Whether what was judged last has paid.
    pays: bool,
    failures: u32,
    not_before: Nanos,
}

impl Gain {
    /// A period with so much capacity, under the setting of the one before.
    fn see(&mut self, rate: f64, watts: f64, capacity: f64) {
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
        level[octave(rate)].add(rate, watts, capacity);
    }

    /// Everything on is another setting from now on.
    pub fn restart(&mut self) {
        (self.native, self.saving) = Default::default();
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

    /// Octaves in which both are known.
    fn known(&self) -> impl Iterator<Item = (&Level, &Level)> {
        let both = self.native.iter().zip(&self.saving);
        both.filter(|(native, saving)| native.periods > 1.0 && saving.periods > 0.0)
    }

    /// Watts that were saved since this was judged last over those that must be, how far off that
    /// may be, and periods.
    fn saved(&self) -> (f64, f64, f64) {
        let slope = self.slope();
        let noise = (self.watts - slope * self.both).max(0.0) / self.free.max(1.0);
        let (mut sum, mut square, mut periods) = (0.0, 0.0, 0.0);
        for (native, saving) in self.known() {
            let expected = native.watts + slope * (saving.rate - native.rate);
            let least = LEAST * native.watts * (1.0 - saving.capacity);
            let away = (saving.rate - native.rate).powi(2);
            let away = if away > 0.0 { away / self.rates } else { 0.0 };
            let error = noise * (1.0 / native.periods + 1.0 / saving.periods + away);
            sum += saving.periods * (expected - saving.watts - least);
            square += saving.periods.powi(2) * error;
            periods += saving.periods;
        }
        (sum / periods, SURE * square.sqrt() / periods, periods)
    }

    /// Judges what was saved; true if that was nothing.
    pub fn judge(&mut self, now: Nanos, period: Nanos) -> bool {
        let (more, error, periods) = self.saved();
        if periods < FEWEST / f64::from(1 + self.failures) {
            return false;
        }
        if more > error {
            (self.pays, self.failures, self.saving) = (true, 0, Default::default());
        }
        if more >= if periods < ENOUGH { -error } else { 0.0 } {
            return false;
        }
        let tried = Nanos((periods.max(FEWEST) * period.0 as f64) as u64);
        self.not_before = now + Nanos((tried.0 * PAUSE) << self.failures);
        (self.pays, self.failures) = (false, (self.failures + 1).min(MOST_FAILURES));
        self.saving = Default::default();
        true
    }

    /// Whether a saving was tried by itself for long enough, as far as a meter tells.
    pub fn tried(&self) -> bool {
        let periods = |levels: &[Level]| levels.iter().map(|level| level.periods).sum::<f64>();
        self.pays || periods(&self.native) == 0.0 || periods(&self.saving) >= ENOUGH
    }
}

/// What the processors draw, or else the server.
fn drawn(signals: &Signals) -> Option<f64> {
    signals.power.cpu.or(signals.power.total).map(|watts| watts.0).filter(|w| w.is_finite())
}

impl Pacer {
    /// Takes in what a period drew, under what was in force in it.
    pub(super) fn see_power(&mut self, signals: &Signals) {
        let changed = !self.in_force.iter().copied().eq(signals.in_force.groups());
        if changed {
            (self.gain.here, self.base.gain.here) = Default::default();
            // The wall's meter lags behind.
            if signals.power.cpu.is_none() {
                return;
            }
        }
        let Some((n, watts)) = signals.io.completed.zip(drawn(signals)) else { return };
        let rate = n as f64 / signals.period.seconds();
        let capacity = self.capacity(|g| signals.in_force.group(g));
        if rate.is_finite() {
            self.gain.see(rate, watts, capacity);
            if capacity >= 1.0 {
                let f = signals.in_force.group(self.first()).frequency;
                let share = (f / self.topology.max_frequency()).min(1.0);
                self.base.gain.see(rate, watts, share);
            }
        }
    }

    /// Judges what a silence saves, among others; true if nothing may go in it, or not yet: where
    /// there is a meter, everything is on for some periods first.
    pub(super) fn stays_on(&mut self, signals: &Signals) -> bool {
        if self.gain.judge(signals.now, signals.period) {
            self.kept.copy_from_slice(&self.native);
        }
        let unknown = drawn(signals).is_some() && self.gain.native[0].periods < KNOWN;
        unknown || !self.gain.may_be(signals.now)
    }

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
        self.set(request, Self::all, "pacer:saves-nothing");
        true
    }
}
