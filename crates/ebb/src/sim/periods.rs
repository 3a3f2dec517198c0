//! Whether what a policy saves in one of the periods that it repeats is what it saves in the next.

use ebb_policy::units::Nanos;
use ebb_record::sampled::Difference;
use ebb_record::text::number;
use ebb_twin::windows::WINDOW;

use super::run::RunResult;
use super::sampled::student;

/// How wide the interval of a saving may be: as a share of it, or of the first policy's power.
const OF_SAVING: f64 = 0.05;
const OF_POWER: f64 = 0.005;

/// Watts that a policy saves, by what it saved in each of its periods.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    saved: f64,
    /// Half the width of its 90 % interval.
    half: f64,
    /// Mean power of the first policy.
    of: f64,
}

impl Periods {
    /// Of `run` against `first`; `None` where fewer than two periods were counted, or nothing
    /// repeats itself.
    pub fn new(run: &RunResult, first: &RunResult, period: Nanos) -> Option<Self> {
        let slots = period.0.div_ceil(WINDOW.0) as usize;
        let seconds = slots as f64 * WINDOW.seconds();
        let watts = |run: &RunResult| -> Vec<f64> {
            let periods = run.joules.chunks_exact(slots.max(1));
            periods.map(|joules| joules.iter().sum::<f64>() / seconds).collect()
        };
        let pairs = watts(first).into_iter().zip(watts(run));
        let saved: Vec<f64> = pairs.map(|(first, own)| first - own).collect();
        let half = half(&saved).filter(|_| slots > 0)?;
        let of = first.outcome.mean_power().0;
        Some(Self { saved: of - run.outcome.mean_power().0, half, of })
    }

    /// Its interval, for the verdict.
    pub fn difference(&self) -> Difference {
        let saved_watts = [self.saved - self.half, self.saved + self.half];
        Difference { saved_watts, saved_kwh_per_year: None, latency_mean_change: None }
    }

    /// Why they tell nothing of a year.
    pub fn disagree(&self, policy: &str) -> Option<String> {
        let near = self.half <= (OF_SAVING * self.saved.abs()).max(OF_POWER * self.of);
        let sure = number(self.half);
        (!near).then(|| {
            format!(
                "what {policy} saves differs from period to period (± {sure} W); a longer \
                 --duration may show it"
            )
        })
    }
}

/// Half the width of the 90 % interval of the mean of `values`.
fn half(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| student(count - 1.0) * (square / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_that_differ_tell_nothing_of_a_year() {
        let of = |values: &[f64]| {
            let saved = values.iter().sum::<f64>() / values.len() as f64;
            let periods = Periods { saved, half: half(values)?, of: 400.0 };
            Some(periods.disagree("x").is_none())
        };
        assert_eq!((of(&[]), of(&[50.0])), (None, None), "of one nothing is known");
        assert_eq!(of(&[50.0, 50.2]), Some(true));
        assert_eq!(of(&[50.0, 60.0]), Some(false));
        assert_eq!(of(&[50.0, 60.0, 40.0, 75.0, 30.0]), Some(false));
        assert_eq!(of(&[50.0, 51.0, 49.0, 50.5, 49.5]), Some(true));
        // Nothing saved, and nothing learnt of it: within a two hundredth of the power.
        assert_eq!(of(&[0.1, -0.1, 0.2]), Some(true));
    }
}
