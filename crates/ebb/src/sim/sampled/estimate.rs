//! What the windows drawn say of all, and how sure that is.
//!
//! A total is the sum over strata of the mean of the windows drawn times the number of windows. Its
//! variance comes from how windows of a stratum differ (Cochran, Sampling Techniques, 5.4), in the
//! mean over the strata of a class, for two windows may be alike by chance.
//!
//! The interval of a total has Student's t with Satterthwaite's degrees of freedom, of which there
//! are few where few strata make up most of the variance: either as it was found, or as it would be
//! if all windows differed by the same share of what they take, whichever has fewer.
//!
//! A ratio is that of two totals. A quantile is where the ratio of the requests that took no longer
//! is what is asked for. Their variances are those of the residuals.

use ebb_record::sampled::Interval;

use super::draw::Stratum;

/// Windows drawn of a stratum, by their numbers among all that are drawn.
#[derive(Debug)]
pub struct Estimate<'a> {
    strata: &'a [Stratum],
}

impl<'a> Estimate<'a> {
    /// From the windows of `strata`.
    pub fn new(strata: &'a [Stratum]) -> Self {
        Self { strata }
    }

    /// Each window drawn and how many it stands for.
    fn weights(&self) -> impl Iterator<Item = (usize, f64)> {
        self.strata.iter().flat_map(|stratum| {
            let weight = stratum.size as f64 / stratum.drawn.len() as f64;
            stratum.drawn.iter().map(move |window| (*window, weight))
        })
    }

    /// The sum of `value` over all windows.
    pub fn total(&self, value: impl Fn(usize) -> f64) -> f64 {
        self.weights().map(|(window, weight)| weight * value(window)).sum()
    }

    /// Half the width of the interval of [`Self::total`]; windows take `size`, roughly.
    pub fn half(&self, value: impl Fn(usize) -> f64, size: impl Fn(usize) -> f64) -> f64 {
        let (mut found, mut alike) = (Variance::default(), Variance::default());
        let many = |class: usize| {
            let strata = self.strata.iter().filter(move |one| one.class == class);
            strata.filter(|one| one.drawn.len() > 1)
        };
        let classes = self.strata.iter().map(|stratum| stratum.class).max();
        for class in 0..=classes.unwrap_or(0) {
            let freedom: f64 = many(class).map(|one| one.drawn.len() as f64 - 1.0).sum();
            if freedom == 0.0 {
                continue;
            }
            let (mut squares, mut sizes, mut factor) = (0.0, 0.0, 0.0);
            for Stratum { size: all, drawn, .. } in many(class) {
                let (all, count) = (*all as f64, drawn.len() as f64);
                let mean = |of: &dyn Fn(usize) -> f64| {
                    drawn.iter().map(|window| of(*window)).sum::<f64>() / count
                };
                let middle = mean(&value);
                squares +=
                    drawn.iter().map(|window| (value(*window) - middle).powi(2)).sum::<f64>();
                sizes += mean(&size).powi(2) * (count - 1.0);
                factor += all * all * (1.0 - count / all) / count;
            }
            found.add(factor * squares / freedom, freedom);
            alike.add(factor * sizes / freedom, freedom);
        }
        if found.sum == 0.0 {
            return 0.0;
        }
        student(found.freedom().min(alike.freedom())) * found.sum.sqrt()
    }

    /// The total of one over that of the other, and half the width of its interval; `None` where
    /// there is no other.
    pub fn ratio(
        &self,
        one: impl Fn(usize) -> f64 + Copy,
        other: impl Fn(usize) -> f64 + Copy,
    ) -> Option<(f64, f64)> {
        let all = self.total(other);
        let ratio = self.total(one) / all;
        (all > 0.0)
            .then(|| (ratio, self.half(|window| one(window) - ratio * other(window), one) / all))
    }

    /// The quantile `at` of what `counts` has, values with their numbers in a window, in ascending
    /// order, and its interval (Woodruff, JASA 1952); `None` where there is nothing.
    pub fn quantile(&self, at: f64, counts: &[Vec<(u64, u64)>]) -> Option<(f64, Interval)> {
        let mut all: Vec<(u64, f64)> = Vec::new();
        for (window, weight) in self.weights() {
            all.extend(
                counts[window].iter().map(|(value, count)| (*value, weight * *count as f64)),
            );
        }
        all.sort_unstable_by_key(|(value, _)| *value);
        let total: f64 = all.iter().map(|(_, weight)| weight).sum();
        let value = |at: f64| {
            let mut sum = 0.0;
            let reached = all.iter().find(|(_, weight)| {
                sum += weight;
                sum >= at * total
            });
            reached.or(all.last()).map(|(value, _)| *value as f64)
        };
        let found = value(at)?;
        let upto = |window: usize| -> f64 {
            let counts = counts[window].iter().take_while(|(value, _)| *value as f64 <= found);
            counts.map(|(_, count)| *count as f64).sum()
        };
        let of = |window: usize| counts[window].iter().map(|(_, count)| *count as f64).sum();
        let (_, half) = self.ratio(upto, of)?;
        Some((found, [value((at - half).max(0.0))?, value((at + half).min(1.0))?]))
    }
}

/// The variance of a sum, and of how many windows each part of it is known.
#[derive(Default)]
struct Variance {
    sum: f64,
    squares: f64,
}

impl Variance {
    fn add(&mut self, part: f64, freedom: f64) {
        self.sum += part;
        self.squares += part * part / freedom;
    }

    /// Satterthwaite's degrees of freedom.
    fn freedom(&self) -> f64 {
        if self.squares > 0.0 { self.sum * self.sum / self.squares } else { f64::INFINITY }
    }
}

/// Student's t that leaves 5 % above it, by the degrees of freedom: from three on by the expansion
/// in Abramowitz and Stegun, 26.7.5, which is within 0.3 %.
pub fn student(freedom: f64) -> f64 {
    if freedom < 2.0 {
        return 6.314;
    }
    if freedom < 3.0 {
        return 2.920;
    }
    let z = 1.6449_f64;
    let powers = |terms: &[(f64, i32)]| -> f64 {
        terms.iter().map(|(factor, power)| factor * z.powi(*power)).sum()
    };
    z + powers(&[(1.0, 3), (1.0, 1)]) / (4.0 * freedom)
        + powers(&[(5.0, 5), (16.0, 3), (3.0, 1)]) / (96.0 * freedom.powi(2))
        + powers(&[(3.0, 7), (19.0, 5), (17.0, 3), (-15.0, 1)]) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_cli::random::Random;

    #[test]
    fn student_is_that_of_the_tables() {
        for (freedom, t) in [(1.0, 6.314), (2.0, 2.920), (3.0, 2.353), (10.0, 1.812), (1e6, 1.645)]
        {
            assert!((student(freedom) / t - 1.0).abs() < 0.003, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn a_total_has_its_interval() {
        let strata = [(0, 1, vec![0]), (1, 10, vec![1, 2])].map(|(class, size, drawn)| Stratum {
            class,
            size,
            drawn,
        });
        let estimate = Estimate::new(&strata);
        let values = [100.0, 3.0, 5.0];
        assert_eq!(estimate.total(|window| values[window]), 140.0);
        // 10² · (1 - 2/10) / 2 · 2 = 80.
        let half = estimate.half(|window| values[window], |window| values[window]);
        assert!((half - 6.314 * 80.0_f64.sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(
            estimate.ratio(|window| 2.0 * values[window], |window| values[window]),
            Some((2.0, 0.0))
        );
        let counts = [vec![(7, 90)], vec![(7, 1)], vec![(9, 1)]];
        assert_eq!(estimate.quantile(0.5, &counts).unwrap().0, 7.0);
        assert_eq!(estimate.quantile(0.95, &counts).unwrap(), (7.0, [7.0, 9.0]));
        assert_eq!(estimate.quantile(0.5, &[const { Vec::new() }; 3]), None);
    }

    /// Totals of what follows the order of the strata and a noise that grows with it.
    #[test]
    fn nine_of_ten_intervals_hold_the_total() {
        let mut random = Random::new(1, 1);
        let mut held = 0;
        for _ in 0..1_000 {
            let noise = |random: &mut Random| 1.0 + random.gap();
            let values: Vec<f64> = (0..600).map(|at| f64::from(at) * noise(&mut random)).collect();
            let strata: Vec<_> = (0..20)
                .map(|stratum| {
                    let first = 30 * stratum;
                    let one = first + random.below(30) as usize;
                    let other = (one - first + 1 + random.below(29) as usize) % 30 + first;
                    Stratum { class: stratum / 5, size: 30, drawn: vec![one, other] }
                })
                .collect();
            let estimate = Estimate::new(&strata);
            let (total, half) =
                (estimate.total(|at| values[at]), estimate.half(|at| values[at], |at| values[at]));
            held += u32::from((total - values.iter().sum::<f64>()).abs() <= half);
        }
        assert!((870..=930).contains(&held), "{held}");
    }
}
