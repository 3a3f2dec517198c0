//! Whether what a policy saves in one part of the time counted is what it saves in the next.

use ebb_policy::units::{Nanos, Watts};
use ebb_record::sampled::Difference;
use ebb_record::text::number;
use ebb_twin::windows::WINDOW;

use super::sampled::student;

/// How wide the interval of a saving may be: as a share of it, or of the first policy's power.
const OF_SAVING: f64 = 0.05;
const OF_POWER: f64 = 0.005;
/// Parts of what has nothing that repeats itself, and how long they are at most: as PACER's
/// periods, so that long runs have as many with any policy.
const PARTS: usize = 8;
const LONGEST: Nanos = Nanos::from_secs(120);

/// What a run drew: on the whole, and in slots of the time counted.
#[derive(Debug, Clone, Copy)]
pub struct Drawn<'a> {
    pub mean: Watts,
    pub span: Nanos,
    pub joules: &'a [f64],
    pub slot: Nanos,
}

impl Drawn<'_> {
    /// Whole slots.
    fn slots(&self) -> usize {
        self.joules.len().min((self.span.0 / self.slot.0) as usize)
    }

    /// Mean power of each part of so many slots.
    fn parts(&self, slots: usize, length: usize) -> Vec<f64> {
        let window = (WINDOW.0 / self.slot.0) as usize;
        let group = if window > 0 && length.is_multiple_of(window) { window } else { 1 };
        let seconds = length as f64 * self.slot.seconds();
        let sum = |part: &[f64]| part.chunks(group).map(|one| one.iter().sum::<f64>()).sum::<f64>();
        self.joules[..slots].chunks_exact(length).map(|part| sum(part) / seconds).collect()
    }
}

/// What repeats itself, and how long that takes: 0 where nothing does.
#[derive(Debug, Clone, Copy)]
pub struct Repeats {
    /// What a policy does.
    pub policy: Nanos,
    /// The load.
    pub load: Nanos,
}

impl Repeats {
    /// Whether it is a policy that repeats itself, and no slower load.
    fn by_policy(&self) -> bool {
        self.policy > Nanos::ZERO && self.policy >= self.load
    }

    /// Slots of a part of so many: a policy's period, in whole windows of the SLA, or some turns of
    /// the load.
    fn part(&self, slots: usize, slot: Nanos) -> usize {
        let count = |time: Nanos| time.0.div_ceil(slot.0) as usize;
        if self.by_policy() {
            return count(Nanos(self.policy.0.next_multiple_of(WINDOW.0)));
        }
        let part = (slots / PARTS).min(count(LONGEST)).max(1);
        part.next_multiple_of(count(self.load).max(1))
    }
}

/// Watts that a policy saves, by what it saved in each part.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    saved: f64,
    /// Half the width of its 90 % interval; `None` of a single part.
    half: Option<f64>,
    /// How far the parts are from all that was counted, which may end amid one.
    off: f64,
    /// Mean power of the first policy.
    of: f64,
    repeats: Repeats,
}

impl Parts {
    /// Of `run` against `first`; `None` where no part was counted.
    pub fn new(run: Drawn<'_>, first: Drawn<'_>, repeats: Repeats) -> Option<Self> {
        let slots = run.slots().min(first.slots());
        let length = repeats.part(slots, run.slot);
        let pairs = first.parts(slots, length).into_iter().zip(run.parts(slots, length));
        let all: Vec<f64> = pairs.map(|(first, own)| first - own).collect();
        let saved = first.mean.0 - run.mean.0;
        let off = (saved - mean(&all)).abs();
        (!all.is_empty()).then(|| Self { saved, half: half(&all), off, of: first.mean.0, repeats })
    }

    /// Its interval, for the verdict, where a policy repeats itself.
    pub fn difference(&self) -> Option<Difference> {
        let half = self.half.filter(|_| self.repeats.by_policy())?;
        let saved_watts = [self.saved - half, self.saved + half];
        Some(Difference { saved_watts, saved_kwh_per_year: None, latency_mean_change: None })
    }

    /// Why they tell nothing of a year.
    pub fn disagree(&self, policy: &str) -> Option<String> {
        let repeats = self.repeats.policy.max(self.repeats.load) > Nanos::ZERO;
        let near = (OF_SAVING * self.saved.abs()).max(OF_POWER * self.of);
        let Some(half) = self.half else {
            return (!repeats || self.off > near).then(|| {
                format!("{policy} is not counted for long enough; a longer --duration may show it")
            });
        };
        let sure = half.max(self.off);
        let part = if self.repeats.by_policy() { "period" } else { "part" };
        (sure > near).then(|| {
            format!(
                "what {policy} saves differs from {part} to {part} (± {} W); a longer --duration \
                 may show it",
                number(sure)
            )
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the width of the 90 % interval of the mean of `values`.
fn half(values: &[f64]) -> Option<f64> {
    let (count, mean) = (values.len() as f64, mean(values));
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| student(count - 1.0) * (square / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// Whether a run that saves so much in each second tells of a year.
    fn tells(saved: &[f64], (policy, load): (u64, u64)) -> Option<bool> {
        let own: Vec<f64> = saved.iter().map(|saved| 400.0 - saved).collect();
        let first = vec![400.0; saved.len()];
        let drawn = |joules| Drawn {
            mean: Watts(mean(joules)),
            span: Nanos(joules.len() as u64 * SECOND.0),
            joules,
            slot: SECOND,
        };
        let [policy, load] = [policy, load].map(Nanos::from_secs);
        let parts = Parts::new(drawn(&own), drawn(&first), Repeats { policy, load })?;
        assert_eq!(parts.difference().is_some(), parts.half.is_some() && policy > load);
        Some(parts.disagree("x").is_none())
    }

    #[test]
    fn parts_that_differ_tell_nothing_of_a_year() {
        let steady: Vec<f64> = (0..40).map(|at| 50.0 + 0.2 * f64::from(at % 3)).collect();
        assert_eq!(tells(&steady, (0, 0)), Some(true));
        assert_eq!((tells(&[], (0, 0)), tells(&[50.0], (0, 0))), (None, Some(false)));
        // At the start a policy still approaches it.
        let starting: Vec<f64> = [10.0, 30.0].into_iter().chain(steady.clone()).collect();
        assert_eq!(tells(&starting[..6], (0, 0)), Some(false));
        // Late it gives up.
        let late: Vec<f64> = steady.iter().copied().chain([0.0; 4]).collect();
        assert_eq!(tells(&late, (0, 0)), Some(false));
        // Nothing saved, and nothing learnt of it: within a two hundredth of the power.
        assert_eq!(tells(&[0.1, -0.1, 0.2, 0.0], (0, 0)), Some(true));
    }

    #[test]
    fn a_load_in_turns_is_compared_by_whole_ones() {
        // 2 s of load saves less than 8 s without.
        let load = |seconds: u32| -> Vec<f64> {
            (0..seconds).map(|at| if at % 10 < 2 { 10.0 } else { 60.0 }).collect()
        };
        assert_eq!(tells(&load(40), (0, 10)), Some(true));
        assert_eq!(tells(&load(10), (0, 10)), Some(true), "a whole one");
        assert_eq!(tells(&load(12), (0, 10)), Some(false), "and a bit of the next");
        assert_eq!(tells(&load(8), (0, 10)), None);
    }

    #[test]
    fn periods_of_a_policy_are_whole_windows() {
        let of = |values: &[f64]| {
            let saved: Vec<f64> = values.iter().flat_map(|value| [*value; 10]).collect();
            tells(&saved, (8, 0))
        };
        assert_eq!((of(&[]), of(&[50.0])), (None, Some(true)), "what one period is, the next is");
        assert_eq!((of(&[50.0, 50.2]), of(&[50.0, 60.0])), (Some(true), Some(false)));
        assert_eq!(of(&[50.0, 60.0, 40.0, 75.0, 30.0]), Some(false));
        assert_eq!(of(&[50.0, 51.0, 49.0, 50.5, 49.5]), Some(true));
    }
}
