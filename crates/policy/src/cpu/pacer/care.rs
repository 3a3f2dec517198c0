//! What [`pacer-plus`](crate::cpu::PacerPlus) has PACER take care of; `pacer` has none of it.
//!
//! * **No leaps.** A step takes half of a group's cores at most, or doubles them. The guard parks
//!   no more at once, and each halving is measured before the next.
//! * **Each load by its own.** Latency is taken relative to what the load takes natively, which
//!   PACER is told. A loss under a load of which that is not known is none yet: everything is on
//!   until it is, and no saving is blamed. Once it is known the setting before comes back at once.
//! * **Noise.** A latency that differs by `l_div` from window to window is known to `l_div / √m`
//!   after `m` of them. Saving goes by the unfavourable ends of baseline and current latency, and
//!   the noisier the baseline was, the sooner it is learned again.
//! * **A reserve**, the share of the capacity that stays, told anew in every period.

use crate::units::Nanos;

/// A baseline lives at least this many times as long as it took to learn: a tenth of the time at
/// most goes into learning a latency that is noise.
const LEARNING_SHARE: u64 = 10;

/// Why nothing is saved: the plant has brought cores back. The setting is tried again once the
/// baseline is learned.
pub(in crate::cpu) const RECALLED: &str = "pacer-plus:recalled";

/// What it is told in every period.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cpu) struct Told {
    /// Share of the cores, and of cores times frequency, that stays.
    pub reserve: f64,
    /// What this period's requests take natively, in ns; 0 if there is no telling.
    pub l_native: f64,
    /// Whether that was seen under this load, and nothing waits any more.
    pub known: bool,
}

/// The state of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Care {
    pub told: Told,
    /// `l_div` when the baseline was learned.
    noise: f64,
    /// Windows that the baseline is of.
    windows: f64,
}

impl Care {
    /// The baseline was learned from so many windows.
    pub fn learn(&mut self, l_div: f64, windows: usize) {
        (self.noise, self.windows) = (l_div, windows as f64);
    }

    /// How long a baseline is trusted that took so long to learn: `age` if windows did not differ,
    /// and the shorter the closer their divergence came to the most that is `stable`.
    pub fn trusted_for(&self, age: Nanos, stable: f64, took: Nanos) -> Nanos {
        // A float converted to an integer saturates.
        let age = Nanos((age.0 as f64 * (1.0 - self.noise / stable)) as u64);
        age.max(Nanos(took.0.saturating_mul(LEARNING_SHARE)))
    }

    /// The highest that the current latency may well be, of so many windows.
    pub fn high(&self, l_avg: f64, l_div: f64, windows: usize) -> f64 {
        l_avg * (1.0 + self.noise.max(l_div) / (windows.max(1) as f64).sqrt())
    }

    /// The lowest that the baseline may well be.
    pub fn low(&self, l_baseline: f64) -> f64 {
        l_baseline * (1.0 - self.noise / self.windows.max(1.0).sqrt()).max(0.0)
    }

    /// Cores of a group of `cores` that the reserve is.
    pub fn cores(&self, cores: u16) -> u16 {
        (f64::from(cores) * self.told.reserve).ceil() as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(l_div: f64) -> Care {
        let mut care = Care::default();
        care.learn(l_div, 4);
        care
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
}
