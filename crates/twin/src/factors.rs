//! Log-normal factors on service times: mean 1, a stated variation, the same for every seed.

use std::f64::consts::SQRT_2;
use std::sync::OnceLock;

/// Entries of a table; a power of two.
pub(crate) const FACTORS: usize = 1024;

/// One factor from the middle of each of [`FACTORS`] equally likely ranges. Their mean is 1 and
/// their coefficient of variation is `cv` (0 to 3): moments of drawn factors would move waits with
/// the seed, by tens of percent where `cv` is 2.
pub(crate) fn factors(cv: f64) -> Vec<f32> {
    let middles = MIDDLES.get_or_init(middles);
    // The middles leave the tails out, so sigma is a little above ln(1 + cv²)'s root.
    let (mut low, mut high) = (0.0, 4.0);
    for _ in 0..60 {
        let sigma = 0.5 * (low + high);
        let of = |power: f64| middles.iter().map(|z| (power * sigma * z).exp()).sum::<f64>();
        let square = of(2.0) * FACTORS as f64 / of(1.0).powi(2);
        if square < 1.0 + cv * cv { low = sigma } else { high = sigma }
    }
    let scale = middles.iter().map(|z| (low * z).exp()).sum::<f64>() / FACTORS as f64;
    middles.iter().map(|z| ((low * z).exp() / scale) as f32).collect()
}

static MIDDLES: OnceLock<Vec<f64>> = OnceLock::new();

/// Quantiles of the standard normal distribution.
fn middles() -> Vec<f64> {
    let quantile = |index| {
        let wanted = (index as f64 + 0.5) / FACTORS as f64;
        let (mut low, mut high) = (-9.0_f64, 9.0_f64);
        while high - low > 1e-12 {
            let middle = 0.5 * (low + high);
            if 0.5 * libm::erfc(-middle / SQRT_2) < wanted { low = middle } else { high = middle }
        }
        low
    };
    (0..FACTORS).map(quantile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variation_are_as_stated() {
        for cv in [0.0, 0.1, 0.4, 1.0, 1.2, 2.0, 3.0] {
            let factors = factors(cv);
            let mean = |power| {
                factors.iter().map(|f| f64::from(*f).powi(power)).sum::<f64>() / FACTORS as f64
            };
            assert!((mean(1) - 1.0).abs() < 1e-6, "{cv}: mean {}", mean(1));
            let variance = mean(2) - mean(1).powi(2);
            assert!((variance - cv * cv).abs() < 1e-5 * (1.0 + cv * cv), "{cv}: {variance}");
            assert!(factors.is_sorted(), "{cv}");
        }
    }

    #[test]
    fn middles_are_normal_quantiles() {
        let middles = middles();
        // Φ(1.959964) = 0.975; the middles' own share is half an entry off.
        let below = middles.iter().filter(|z| **z < 1.959_964).count();
        assert!(below.abs_diff(FACTORS * 975 / 1000) <= 1, "{below}");
        assert!((middles[0] + middles[FACTORS - 1]).abs() < 1e-9);
    }
}
