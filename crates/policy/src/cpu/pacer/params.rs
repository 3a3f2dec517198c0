//! PACER's hyperparameters. Each says whether the paper states it or we chose it, and why.

use crate::units::Nanos;
use crate::{PERIOD, PolicyError, Settling};

/// Which of the two power-saving methods may act (§V-A3 evaluates them one by one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adaptors {
    /// PACER: cores first, then frequency.
    Both,
    /// Core Adaptor only: power gating.
    Cores,
    /// Freq Adaptor only: DVFS.
    Frequency,
}

/// A baseline lives at least this many times as long as it took to learn: with few requests the
/// windows are long, and no more than a twentieth of the time should go into learning. Ours.
pub(super) const LEARNING_SHARE: u64 = 20;

/// So many times as long as it learns, PACER takes from the start until it holds what it saves:
/// measured, see `settling.rs` in the twin's tests.
const LEARNINGS: f64 = 5.0;

/// What PACER can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct PacerParams {
    /// `plf`: tolerated relative increase of the mean latency, 0 to 10. Stated: 0.2 (§V).
    pub plf: f64,
    /// Tolerated relative increase of the 99th percentile, up to 10, where that is sensed; any
    /// where `None`. Ours: the paper promises the mean alone.
    pub tail: Option<f64>,
    /// `n`: length of one latency window. Ours: 1 s, two control periods.
    pub window: Nanos,
    /// Completions a window needs; it grows until it has them. Ours: 200, which puts the mean of
    /// requests that vary as much as their mean within 7 % (one standard deviation).
    pub window_requests: u64,
    /// A window closes here whatever it has, unless it has nothing. Ours: 10 s, so that a server
    /// with a request now and then is still measured.
    pub window_longest: Nanos,
    /// `k`: windows averaged. Ours: 5; with `n` = 1 s the first saving comes 5.5 s after a
    /// change of load, within the 10 s that §V-A4 waits for PACER to settle.
    pub windows: usize,
    /// `l_stable_thresh`: divergence below which the load is stable. Ours: 0.1, half the default
    /// `plf`, since what is not known better than that cannot be steered within it.
    pub stable_thresh: f64,
    /// `l_unstable_thresh`: divergence above which it no longer is; must exceed
    /// `stable_thresh` (stated, §IV-B). Ours: 0.25.
    pub unstable_thresh: f64,
    /// `l_burst_thresh`: divergence of one 500 ms window that is a burst. Ours: 1, a doubling:
    /// nothing that one step of PACER itself brings about within `plf`.
    pub burst_thresh: f64,
    /// Completions a 500 ms window needs before its latency counts as a burst. Ours: 20.
    pub burst_requests: u64,
    /// Utilisation above which there is a burst. Stated: 80 % (§IV-B).
    pub burst_utilisation: f64,
    /// Time without user requests after which the server is idle. Stated: 30 s (§IV-B).
    pub idle_after: Nanos,
    /// `α`: growth of the total utilisation when cores are taken away. Stated to be a "small
    /// slope" to be measured; ours: 1.05.
    pub alpha: f64,
    /// `β`: how far the desired utilisation moves for a loss distance of 1. Ours:
    /// min(0.1, plf / 2), see [`PacerParams::for_plf`].
    pub beta: f64,
    /// `γ` as a share of the step that would use up `plf` if latency were proportional to 1/f
    /// (see `freq_adaptor.rs`). Ours: 1.
    pub gamma: f64,
    /// Bound of the desired utilisation. Ours: 0.7, clear of the burst threshold.
    pub max_utilisation: f64,
    /// Loss distances from 0 to this are close enough: nothing changes. Ours: 0.1, which is to
    /// say that a loss from 0.9 `plf` to `plf` is what was wanted.
    pub deadband: f64,
    /// Age at which the baseline is learned again at full resources, and at which a setting
    /// that broke `plf` may be tried again; `LEARNING_SHARE` makes it longer where learning
    /// takes long. Ours: 2 min, for 4.4 % of the time at full power.
    pub baseline_age: Nanos,
    /// Methods in use.
    pub adaptors: Adaptors,
}

impl Default for PacerParams {
    fn default() -> Self {
        Self::for_plf(0.2)
    }
}

impl PacerParams {
    /// The defaults for a tolerated loss of `plf`.
    ///
    /// With queueing in front of a core the latency grows about as 1/(1 − u), so a step `Δu` adds
    /// at least the loss `Δu`; the Core Adaptor's loop gain is then about `β / plf`, and one half
    /// approaches `plf` from below. At most 0.1 for a large `plf`, where steps of the size of the
    /// whole utilisation range would be leaps in the dark.
    #[must_use]
    pub fn for_plf(plf: f64) -> Self {
        Self {
            plf,
            tail: None,
            window: Nanos::from_secs(1),
            window_requests: 200,
            window_longest: Nanos::from_secs(10),
            windows: 5,
            stable_thresh: 0.1,
            unstable_thresh: 0.25,
            burst_thresh: 1.0,
            burst_requests: 20,
            burst_utilisation: 0.8,
            idle_after: Nanos::from_secs(30),
            alpha: 1.05,
            beta: (plf / 2.0).min(0.1),
            gamma: 1.0,
            max_utilisation: 0.7,
            deadband: 0.1,
            baseline_age: Nanos::from_secs(120),
            adaptors: Adaptors::Both,
        }
    }

    /// When a steady load of `iops` finds it settled: windows grow until they have requests enough.
    #[must_use]
    pub fn settling(&self, iops: f64) -> Settling {
        let (shortest, longest) = (self.window.seconds(), self.window_longest.seconds());
        let window = (self.window_requests as f64 / iops).clamp(shortest, longest);
        let learning = self.windows as f64 * window + PERIOD.seconds();
        let learned = Nanos::from_seconds(learning * LEARNING_SHARE as f64);
        let after = Nanos::from_seconds((learning * LEARNINGS).ceil());
        Settling { after, period: self.baseline_age.max(learned) }
    }

    /// Refuses what cannot work, naming the parameter.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let within = PolicyError::within;
        within("plf", self.plf, 0.0, 10.0, "0 to 10")?;
        within("tail", self.tail.unwrap_or(1.0), 0.001, 10.0, "0.1% to 1000%")?;
        let seconds = self.window.seconds();
        within("window", seconds, 0.5, 3600.0, "500 ms to 1 h")?;
        let longest = self.window_longest.seconds();
        within("window_longest", longest, seconds, 3600.0, "the window's length to 1 h")?;
        within("windows", self.windows as f64, 2.0, 1000.0, "2 to 1000")?;
        within("stable_thresh", self.stable_thresh, 0.0, 10.0, "0 to 10")?;
        let hysteresis = self.unstable_thresh > self.stable_thresh;
        let valid = "more than stable_thresh";
        PolicyError::unless(hysteresis, "unstable_thresh", self.unstable_thresh, valid)?;
        within("burst_thresh", self.burst_thresh, 0.0, 100.0, "0 to 100")?;
        within("burst_utilisation", self.burst_utilisation, 0.05, 1.0, "5% to 100%")?;
        within("alpha", self.alpha, 1.0, 2.0, "1 to 2")?;
        within("beta", self.beta, 0.0, 1.0, "0 to 1")?;
        within("gamma", self.gamma, 0.0, 4.0, "0 to 4")?;
        let top = self.burst_utilisation;
        within("max_utilisation", self.max_utilisation, 0.01, top, "1% to burst_utilisation")?;
        within("deadband", self.deadband, 0.0, 0.99, "0 to 0.99")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_for_every_plf() {
        for plf in [0.0, 0.01, 0.05, 0.2, 1.0, 10.0] {
            assert_eq!(PacerParams::for_plf(plf).validate(), Ok(()), "{plf}");
        }
    }

    #[test]
    fn errors_name_the_parameter_and_what_is_valid() {
        for plf in [f64::NAN, f64::INFINITY, -0.1, 10.1] {
            let error = PacerParams::for_plf(plf).validate().unwrap_err().to_string();
            assert!(error.contains("plf") && error.contains("0 to 10"), "{error}");
        }
        let swapped = PacerParams { unstable_thresh: 0.05, ..PacerParams::default() };
        assert!(swapped.validate().unwrap_err().to_string().contains("unstable_thresh"));
        let high = PacerParams { max_utilisation: 0.9, ..PacerParams::default() };
        assert!(high.validate().unwrap_err().to_string().contains("max_utilisation"));
    }
}
