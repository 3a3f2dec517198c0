//! Vibration and what it costs: a head pushed off its track must wait a revolution and try again.
//!
//! The head's displacement is taken as normal with a deviation proportional to the amplitude of
//! the vibration. Beyond the fault threshold, a share of the track pitch, the drive stops writing
//! (or cannot read) and repeats the track. A pass over a track is judged at several independent
//! instants; it fails if any is beyond:
//!
//! ```text
//! p(A) = 1 - (1 - erfc(margin / (A sqrt 2)))^samples
//! ```
//!
//! Below some amplitude nothing happens, above it throughput falls steeply: the shape of EADC
//! Fig. 5. Repetitions are independent, so their number is geometric.

use super::profile::Retry;
use crate::drive::Spread;

/// Chances that a pass over a track fails.
#[derive(Debug, Clone)]
pub(super) struct Retries {
    spec: Retry,
    read: f64,
    write: f64,
    random: Spread,
    /// Passes repeated so far.
    pub(super) count: u64,
}

impl Retries {
    pub(super) fn new(spec: &Retry, seed: u64) -> Self {
        let random = Spread::new(seed ^ 0x0FF_7AC);
        Self { spec: spec.clone(), read: 0.0, write: 0.0, random, count: 0 }
    }

    pub(super) fn set_amplitude(&mut self, amplitude: f64) {
        self.read = failure(amplitude, self.spec.read_margin, self.spec.samples);
        self.write = failure(amplitude, self.spec.write_margin, self.spec.samples);
    }

    /// Chance that one pass must be repeated.
    pub(super) fn chance(&self, write: bool) -> f64 {
        if write { self.write } else { self.read }
    }

    /// Repetitions of one pass over a track. After `limit` the drive's own recovery (offsets,
    /// slower reads) succeeds.
    pub(super) fn draw(&mut self, write: bool) -> u32 {
        let chance = self.chance(write);
        if chance <= 0.0 {
            return 0;
        }
        let threshold = (chance * f64::from(u32::MAX)) as u64;
        let mut repeated = 0;
        while repeated < self.spec.limit && self.random.below(1 << 32) < threshold {
            repeated += 1;
        }
        self.count += u64::from(repeated);
        repeated
    }
}

/// Chance that a pass fails at `amplitude`.
fn failure(amplitude: f64, margin: f64, samples: f64) -> f64 {
    if amplitude <= 0.0 {
        return 0.0;
    }
    let beyond = erfc(margin / (amplitude * std::f64::consts::SQRT_2));
    let chance = 1.0 - (1.0 - beyond).powf(samples);
    // A millionth of a revolution on average is nothing; a certain failure would never end.
    if chance < 1e-6 { 0.0 } else { chance.min(0.999) }
}

/// Complementary error function for x >= 0, within 1.2e-7 (Numerical Recipes, 6.2).
fn erfc(x: f64) -> f64 {
    const C: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let poly = C.iter().rev().fold(0.0, |sum, c| sum * t + c);
    t * (-x * x + poly).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erfc_is_that_of_tables() {
        for (x, value) in [(0.0, 1.0), (0.5, 0.479_500), (1.0, 0.157_299), (2.0, 0.004_677_7)] {
            assert!((erfc(x) - value).abs() < 1e-5, "{x}: {}", erfc(x));
        }
    }

    #[test]
    fn chances_rise_from_nothing_with_the_amplitude() {
        let chances: Vec<_> = (0..=20).map(|k| failure(f64::from(k) * 0.1, 1.87, 10.0)).collect();
        assert!(chances.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(chances[0], 0.0);
        assert!(chances[3] < 1e-4 && chances[20] < 1.0);
    }

    #[test]
    fn repetitions_are_geometric() {
        let spec = Retry { read_margin: 1.87, write_margin: 1.87, samples: 10.0, limit: 64 };
        let mut retries = Retries::new(&spec, 3);
        assert_eq!(retries.draw(true), 0, "a still drive repeats nothing");
        retries.set_amplitude(1.0);
        let p = retries.chance(true);
        let passes = 100_000;
        let total: u64 = (0..passes).map(|_| u64::from(retries.draw(true))).sum();
        let mean = total as f64 / passes as f64;
        assert!((mean / (p / (1.0 - p)) - 1.0).abs() < 0.03, "{mean}");
        assert_eq!(retries.count, total);
    }
}
