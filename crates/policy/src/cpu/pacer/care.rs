//! What [`pacer-plus`](crate::cpu::PacerPlus) has PACER take care of; `pacer` has none of it.
//!
//! * **No leaps.** A step takes half of a group's cores at most, or doubles them. The guard parks
//!   no more at once, and each halving is measured before the next.
//! * **Reads and writes, large and small apart** (`kinds.rs`). The baseline is that of the present
//!   mix, for a shift from slow reads to fast writes hides a loss, and one back looks like a burst.
//! * **Noise.** A latency that differs by `l_div` from window to window is known to `l_div / √m`
//!   after `m` of them. Saving goes by the unfavourable ends of baseline and current latency.
//! * **A baseline that stays.** Found unchanged, it lives twice as long, up to four times.
//! * **A baseline that falls.** A saving makes no request faster: no baseline is above the latency
//!   under one. The noisier it was, the sooner it is learned again.
//! * **A lighter load.** Fewer requests and fewer bytes make no saving slower. A latency that is
//!   higher all the same is so natively, where idle cores sleep deeply: learned again, no blame.
//!   Once learned, it is expected of such a load: windows of it are left out while it is brief, and
//!   it is the baseline of what follows until it has grown as old as one.
//! * **A reserve**, the share of the capacity that stays, told anew in every period.

use crate::cpu::pacer::kinds::Kinds;
use crate::cpu::pacer::loss::loss_cur;
use crate::cpu::pacer::window::{Load, Ops};
use crate::units::Nanos;

/// A baseline lives at least this many times as long as it took to learn: a tenth of the time at
/// most goes into learning a latency that is noise.
pub(in crate::cpu) const LEARNING_SHARE: u64 = 10;

/// Why nothing is saved: the plant has brought cores back. The setting is tried again once the
/// baseline is learned.
pub(in crate::cpu) const RECALLED: &str = "pacer-plus:recalled";

/// How often the life of a baseline doubles at most.
const DOUBLINGS: u32 = 2;

/// Share of requests and bytes by which a load is far below another.
const LIGHTER: f64 = 0.25;

/// What a window and the one before differ by counts up to here, over so many of them; and so much
/// of it is what three of them differ from their mean.
const DIFFER: f64 = 0.25;
const OVER: f64 = 20.0;
const OF_THREE: f64 = 0.58;

/// The state of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Care {
    /// Share of the cores, and of cores times frequency, that stays.
    pub reserve: f64,
    /// `l_div` when the baseline was learned.
    noise: f64,
    /// What `l_div` usually is: that of few windows may be small by chance.
    pub usual: f64,
    before: f64,
    varied: f64,
    /// Windows that the baseline is of.
    windows: f64,
    /// How often it was found unchanged at the end of its life.
    confirmed: u32,
    kinds: Kinds,
    /// The load of which the baseline is, per second.
    load: Load,
    /// That which takes natively what is expected, and whether it is the lighter of two.
    of: Load,
    is_light: bool,
    /// What it takes over what was learned of reads and writes.
    scale: f64,
    /// How many times as long as a load a far lighter one takes natively.
    light: f64,
    /// Latency under a saving over the baseline, the lowest since it was learned; at most 1.
    fallen: f64,
}

impl Care {
    /// The baseline `l_avg`, in place of `old`, was learned from so many windows, under `load`.
    pub fn learn(
        &mut self,
        (old, l_avg): (f64, f64),
        l_div: f64,
        (windows, load, last): (usize, Load, Load),
        ops: &Ops,
    ) {
        let by = l_avg / self.mixed(old, ops);
        // Of windows that take as long the last is of one load.
        if last.below(&self.of, LIGHTER) {
            (self.light, self.is_light) = (by.max(1.0), true);
        } else if self.of.below(&last, LIGHTER) {
            (self.light, self.is_light) = (by.recip().max(1.0), false);
        }
        (self.load, self.of, self.scale) = (load, last, 1.0);
        (self.noise, self.windows, self.fallen) = (l_div, windows as f64, 1.0);
        self.kinds.learn(l_avg, ops);
    }

    /// The baseline was learned again, and is the `same` or not, after all its life or sooner.
    pub fn confirm(&mut self, same: bool, whole: bool) {
        match (same, whole) {
            (true, true) => self.confirmed = (self.confirmed + 1).min(DOUBLINGS),
            (true, false) => {}
            (false, _) => self.confirmed = 0,
        }
    }

    /// How long a baseline is trusted that took so long to learn: `age` if windows did not differ,
    /// and the shorter the closer their divergence came to the most that is `stable`; twice as long
    /// each time that it had not changed.
    pub fn trusted_for(&self, age: Nanos, stable: f64, took: Nanos) -> Nanos {
        // A float converted to an integer saturates.
        let age = (age.0 << self.confirmed) as f64;
        let age = Nanos((age * (1.0 - self.noise / stable)) as u64);
        age.max(Nanos(took.0.saturating_mul(LEARNING_SHARE)))
    }

    /// The baseline `l_baseline`, were reads and writes those of `ops`.
    pub fn mixed(&self, l_baseline: f64, ops: &Ops) -> f64 {
        self.scale * self.kinds.expected(ops).unwrap_or(l_baseline)
    }

    /// Whether that was learned of such reads and writes.
    pub fn knows(&self, ops: &Ops) -> bool {
        self.kinds.knows(ops)
    }

    /// The same, no higher than the latency under a saving has shown.
    pub fn baseline(&self, l_baseline: f64, ops: &Ops) -> f64 {
        self.fallen * self.mixed(l_baseline, ops)
    }

    /// Sees a latency of at most `high` under a saving and `load`.
    pub fn see(&mut self, high: f64, load: Load, l_baseline: f64, ops: &Ops) {
        let fallen = high / self.mixed(l_baseline, ops);
        if fallen < self.fallen {
            (self.fallen, self.load) = (fallen, load);
        }
    }

    /// Requests per second of the baseline's load.
    pub fn rate(&self) -> f64 {
        self.load.requests()
    }

    /// Whether `load` is far below the baseline's.
    pub fn is_lighter(&self, load: &Load) -> bool {
        load.below(&self.load, LIGHTER)
    }

    /// How many times what is expected `load` takes natively, of two loads that were learned.
    pub fn natively(&self, load: &Load) -> f64 {
        let light = self.light.max(1.0);
        match self.is_light {
            true if self.of.below(load, LIGHTER) => light.recip(),
            false if load.below(&self.of, LIGHTER) => light,
            _ => 1.0,
        }
    }

    /// How many times the baseline `load` has taken natively, if it is far below the baseline's.
    pub fn lighter(&self, load: &Load) -> f64 {
        if self.is_lighter(load) { self.natively(load).max(1.0) / self.fallen } else { 1.0 }
    }

    /// Whether what is expected is what the lighter of two loads takes.
    pub fn is_light(&self) -> bool {
        self.is_light
    }

    /// Whether a load is far lighter than the one that was learned.
    pub fn is_below(&self, load: &Load) -> bool {
        !self.is_light && load.below(&self.of, LIGHTER)
    }

    /// What one window of such a load took with everything on, which may be too brief to be
    /// learned. What is `known` it can only raise, for it may hold the end of a heavier one.
    /// Whether it counts.
    pub fn hear(&mut self, l: f64, l_baseline: f64, ops: &Ops, known: bool) -> bool {
        let by = l / self.mixed(l_baseline, ops);
        let tells = !known || by >= self.light;
        if tells {
            self.light = by.max(1.0);
        }
        tells
    }

    /// The same, expecting what the lighter load, which is back as `load`, was learned to take.
    pub fn lightened(self, load: Load) -> Self {
        let scale = self.scale * if self.is_light { 1.0 } else { self.light.max(1.0) };
        Self { load, of: load, is_light: true, fallen: 1.0, scale, ..self }
    }

    /// A window took so many times what is expected, under the setting of the one before or not.
    pub fn vary(&mut self, times: f64, same: bool) {
        let before = std::mem::replace(&mut self.before, times);
        if same && before > 0.0 {
            let differ = (times / before - 1.0).abs().min(DIFFER);
            self.varied = (self.varied + 1.0).min(OVER);
            self.usual += (OF_THREE * differ - self.usual) / self.varied;
        }
    }

    /// The highest that the current latency may well be, of so many windows.
    pub fn high(&self, l_avg: f64, l_div: f64, windows: usize) -> f64 {
        l_avg * (1.0 + self.noise.max(l_div) / (windows.max(1) as f64).sqrt())
    }

    /// The loss that there may well be.
    pub fn at_worst(&self, high: f64, l_baseline: f64) -> f64 {
        let noise = Self { noise: self.noise.max(self.usual), ..*self };
        loss_cur(high, noise.low(l_baseline))
    }

    /// The lowest that the baseline may well be.
    pub fn low(&self, l_baseline: f64) -> f64 {
        l_baseline * (1.0 - self.noise / self.windows.max(1.0).sqrt()).max(0.0)
    }

    /// Cores of a group of `cores` that the reserve is, were each `slower` times as slow as at the
    /// highest frequency.
    pub fn cores(&self, cores: u16, slower: f64) -> u16 {
        (f64::from(cores) * self.reserve * slower).ceil().min(f64::from(cores)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(l_div: f64) -> Care {
        let mut care = Care::default();
        let latency = [30.0 * 120.0, 10.0 * 40.0];
        let ops = Ops { number: [30.0, 10.0], latency, bytes: [30.0, 10.0] };
        care.learn((0.0, 100.0), l_div, (4, Load::default(), Load::default()), &ops);
        care
    }

    #[test]
    fn no_baseline_is_above_the_latency_under_a_saving() {
        let mut care = learned(0.0);
        let ops = Ops::default();
        care.see(130.0, Load::default(), 100.0, &ops);
        assert_eq!(care.baseline(100.0, &ops), 100.0);
        care.see(90.0, Load::default(), 100.0, &ops);
        care.see(95.0, Load::default(), 100.0, &ops);
        assert_eq!(care.baseline(100.0, &ops), 90.0);
    }

    #[test]
    fn noise_narrows_what_may_be_lost_and_ages_the_baseline() {
        let (age, stable) = (Nanos::from_secs(120), 0.1);
        let steady = learned(0.0);
        assert_eq!((steady.high(100.0, 0.0, 1), steady.low(100.0)), (100.0, 100.0));
        assert_eq!(steady.trusted_for(age, stable, Nanos::from_secs(2)), age);
        let noisy = learned(0.08);
        assert!((noisy.high(100.0, 0.0, 1) - 108.0).abs() < 1e-9);
        assert!((noisy.high(100.0, 0.0, 4) - 104.0).abs() < 1e-9);
        assert!((noisy.low(100.0) - 96.0).abs() < 1e-9);
        let trusted = noisy.trusted_for(age, stable, Nanos::from_secs(2));
        assert!((trusted.seconds() - 24.0).abs() < 1e-6, "{trusted:?}");
        assert_eq!(noisy.trusted_for(age, stable, Nanos::from_secs(9)), Nanos::from_secs(90));
    }

    #[test]
    fn a_baseline_that_stays_is_learned_again_less_often() {
        let mut care = learned(0.0);
        let mut lives = |same, whole| {
            care.confirm(same, whole);
            care.trusted_for(Nanos::from_secs(60), 0.1, Nanos::ZERO)
        };
        for (same, whole, minutes) in [
            (true, false, 1),
            (true, true, 2),
            (true, false, 2),
            (true, true, 4),
            (true, true, 4),
            (false, true, 1),
        ] {
            assert_eq!(lives(same, whole), Nanos::from_secs(60 * minutes));
        }
    }
}
