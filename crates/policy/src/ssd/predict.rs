//! PACMAN's predict phase (§V-A, Algorithm 1) and the two predictors it is compared with
//! (§VI-D, Fig. 8).

use crate::ssd::PowerDesc;
use crate::topology::PowerState;
use crate::units::Watts;

/// How a drive's power over the next `p_interval` is estimated from the last one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Predictor {
    /// `P_est = mu + alpha * sigma + beta * gamma` (Algorithm 1, line 5).
    Statistical {
        /// Weight of the standard deviation.
        alpha: f64,
        /// Weight of the slope, in samples.
        beta: f64,
    },
    /// `mu` alone ("Mean" in Fig. 8).
    Mean,
    /// Exponential moving average over the window ("EMA" in Fig. 8).
    Ema {
        /// Weight of the newest sample, 0 to 1.
        weight: f64,
    },
}

impl Predictor {
    /// The paper's tuned weight of the standard deviation (§VI-A).
    pub const ALPHA: f64 = 0.48;
    /// The paper's tuned weight of the slope (§VI-A).
    pub const BETA: f64 = 0.56;
    /// The paper's statistical predictor with these weights.
    pub const STATISTICAL: Self = Self::Statistical { alpha: Self::ALPHA, beta: Self::BETA };

    /// The usual weight `2 / (n + 1)` for a window of `n` samples; the paper states none.
    #[must_use]
    pub fn ema(n: usize) -> Self {
        Self::Ema { weight: 2.0 / (n as f64 + 1.0) }
    }

    /// `P_est` from the power history `p`, oldest first; `None` where fewer than half of the
    /// samples are there: too little to act on.
    #[must_use]
    pub fn estimate(&self, p: &[Option<Watts>]) -> Option<Watts> {
        let known = p.iter().flatten().count();
        if known == 0 || known * 2 < p.len() {
            return None;
        }
        let estimate = match *self {
            Self::Statistical { alpha, beta } => {
                let Statistics { mu, sigma, gamma } = Statistics::of(p);
                mu + alpha * sigma + beta * gamma
            }
            Self::Mean => Statistics::of(p).mu,
            Self::Ema { weight } => {
                let ema = |mean: f64, p: f64| mean + weight * (p - mean);
                p.iter().flatten().map(|p| p.0).reduce(ema)?
            }
        };
        Some(Watts(estimate))
    }
}

/// Mean, standard deviation and slope of a power history with at least one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Statistics {
    /// `mu`: watts.
    mu: f64,
    /// `sigma`: watts, of the population (`std` without Bessel's correction, NumPy's default).
    sigma: f64,
    /// `gamma`: watts per sample. Line 3 calls `t_i` a time *index*, so the unit of time is the
    /// sample (`m_interval`), not the second; `beta = 0.56` was tuned in it.
    gamma: f64,
}

impl Statistics {
    /// Lines 1 to 4. A missing sample leaves a gap: the others keep their own time index.
    fn of(p: &[Option<Watts>]) -> Self {
        let samples = || p.iter().enumerate().filter_map(|(t, p)| p.map(|p| (t as f64, p.0)));
        let (mut n, mut sum_t, mut sum_p, mut sum_tp, mut sum_tt) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (t, p) in samples() {
            n += 1.0;
            sum_t += t;
            sum_p += p;
            sum_tp += t * p;
            sum_tt += t * t;
        }
        let mu = sum_p / n;
        let variance = samples().map(|(_, p)| (p - mu) * (p - mu)).sum::<f64>() / n;
        let spread = n * sum_tt - sum_t * sum_t;
        // One sample has no slope.
        let gamma = if spread > 0.0 { (n * sum_tp - sum_t * sum_p) / spread } else { 0.0 };
        Self { mu, sigma: variance.sqrt(), gamma }
    }
}

/// The two scores of a drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// `S_up`: headroom under the present cap; the smaller, the more a higher cap is needed.
    pub up: f64,
    /// `S_down`: headroom that would be left under the next lower cap.
    pub down: f64,
}

impl Scores {
    /// Lines 6 to 11.
    #[must_use]
    pub fn of(desc: &PowerDesc, d: usize, ps: PowerState, p_est: Watts) -> Self {
        let up = match ps.checked_sub(1).and_then(|faster| desc.mp(d, faster)) {
            Some(_) => (desc.cap(d, ps) - p_est).0,
            None => f64::INFINITY,
        };
        let down = match ps.checked_add(1).and_then(|deeper| desc.mp(d, deeper)) {
            Some(mp) => (mp - p_est).0,
            None => f64::NEG_INFINITY,
        };
        Self { up, down }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ssd::testing::{pm1743, topology};

    fn history(watts: &[f64]) -> Vec<Option<Watts>> {
        watts.iter().map(|w| Some(Watts(*w))).collect()
    }

    fn estimate(predictor: Predictor, watts: &[f64]) -> f64 {
        predictor.estimate(&history(watts)).unwrap().0
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn statistical_by_hand() {
        // mu 13, sigma sqrt(5), gamma 2 W per sample: 13 + 0.48 * 2.23607 + 0.56 * 2.
        let p = [10.0, 12.0, 14.0, 16.0];
        let want = 13.0 + 0.48 * 5.0_f64.sqrt() + 1.12;
        assert!(close(estimate(Predictor::STATISTICAL, &p), want));
        // A falling load: the same spread, the slope's sign turned.
        let want = 13.0 + 0.48 * 5.0_f64.sqrt() - 1.12;
        assert!(close(estimate(Predictor::STATISTICAL, &[16.0, 14.0, 12.0, 10.0]), want));
    }

    #[test]
    fn steady_power_predicts_itself_with_every_predictor() {
        for predictor in [Predictor::STATISTICAL, Predictor::Mean, Predictor::ema(10)] {
            assert!(close(estimate(predictor, &[11.5; 10]), 11.5), "{predictor:?}");
        }
    }

    #[test]
    fn mean_and_ema_by_hand() {
        let p = [8.0, 8.0, 16.0];
        assert!(close(estimate(Predictor::Mean, &p), 32.0 / 3.0));
        // Weight 2 / (3 + 1): 8, 8, 8 + 0.5 * 8.
        assert!(close(estimate(Predictor::ema(3), &p), 12.0));
    }

    #[test]
    fn gaps_keep_their_place_in_time() {
        let mut p = history(&[10.0, 12.0, 14.0, 16.0]);
        p[1] = None;
        let Statistics { gamma, .. } = Statistics::of(&p);
        assert!(close(gamma, 2.0), "{gamma}");
    }

    #[test]
    fn too_few_samples_predict_nothing() {
        let mut p = vec![None; 10];
        for predictor in [Predictor::STATISTICAL, Predictor::Mean, Predictor::ema(10)] {
            assert_eq!(predictor.estimate(&p), None);
        }
        p[..4].fill(Some(Watts(9.0)));
        assert_eq!(Predictor::STATISTICAL.estimate(&p), None);
        p[4] = Some(Watts(9.0));
        assert_eq!(Predictor::STATISTICAL.estimate(&p), Some(Watts(9.0)));
        assert_eq!(Predictor::Mean.estimate(&[]), None);
        assert_eq!(Predictor::Mean.estimate(&[Some(Watts(3.0))]), Some(Watts(3.0)));
    }

    #[test]
    fn scores_by_hand() {
        // PM1743 at PS3 (14 W; next lower 9 W), 12 W estimated.
        let desc = PowerDesc::new(&topology(&[pm1743().to_vec()]));
        let at = |ps, p_est| Scores::of(&desc, 0, ps, Watts(p_est));
        assert_eq!(at(3, 12.0), Scores { up: 2.0, down: -3.0 });
        assert_eq!(at(0, 12.0), Scores { up: f64::INFINITY, down: 9.0 });
        assert_eq!(at(4, 12.0), Scores { up: -3.0, down: f64::NEG_INFINITY });
    }

    proptest! {
        #[test]
        fn the_estimate_moves_with_the_history(
            p in prop::collection::vec(0.0..40.0_f64, 1..20), add in 0.0..20.0_f64,
        ) {
            let shifted: Vec<_> = p.iter().map(|p| p + add).collect();
            for predictor in [Predictor::STATISTICAL, Predictor::Mean, Predictor::ema(10)] {
                let moved = estimate(predictor, &shifted) - estimate(predictor, &p);
                prop_assert!((moved - add).abs() < 1e-6, "{predictor:?}: {moved} for {add}");
            }
        }

        #[test]
        fn a_slower_state_has_less_headroom_both_ways(
            ps in 1..4_u8, p_est in 0.0..30.0_f64,
        ) {
            let desc = PowerDesc::new(&topology(&[pm1743().to_vec()]));
            let here = Scores::of(&desc, 0, ps, Watts(p_est));
            let deeper = Scores::of(&desc, 0, ps + 1, Watts(p_est));
            prop_assert!(deeper.up < here.up && deeper.down < here.down);
        }
    }
}
