//! `POWER_DESC`: what each drive can be capped to, and how a budget is shared out uniformly.

use crate::PolicyError;
use crate::topology::{PowerState, Topology};
use crate::units::Watts;

/// Slack in comparisons of sums of caps. The finest step a descriptor can state is 0.1 mW (NVMe
/// Base, Power State Descriptor, MXPS); a hundredth of it only absorbs binary rounding, so that
/// three drives of 19.8 W do fit 59.4 W.
pub const CAP_TOLERANCE: Watts = Watts(1e-6);

/// The operational power states of all drives: `POWER_DESC` of PACMAN's algorithms.
///
/// Relies on what the NVMe specification promises: each state's maximum power is at most that
/// of the state before.
#[derive(Debug, Clone)]
pub struct PowerDesc {
    /// `MP` by drive and power state.
    caps: Vec<Vec<Watts>>,
    /// Every cap that occurs, highest first.
    levels: Vec<Watts>,
}

impl PowerDesc {
    /// The descriptors of `topology`'s drives.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let caps: Vec<Vec<Watts>> = topology
            .drives
            .iter()
            .map(|drive| drive.operational().iter().map(|state| state.max_power).collect())
            .collect();
        let mut levels = caps.concat();
        levels.sort_by(|a, b| b.0.total_cmp(&a.0));
        levels.dedup();
        Self { caps, levels }
    }

    /// Number of drives.
    #[must_use]
    pub fn drives(&self) -> usize {
        self.caps.len()
    }

    /// Every cap that any drive can have, highest first.
    #[must_use]
    pub fn levels(&self) -> &[Watts] {
        &self.levels
    }

    /// `MP(PS)` of drive `d`, or `None` where `PS` is not in its descriptors.
    #[must_use]
    pub fn mp(&self, d: usize, ps: PowerState) -> Option<Watts> {
        self.caps[d].get(usize::from(ps)).copied()
    }

    /// `MP(PS)` of drive `d`, where a state beyond the operational ones counts as the deepest
    /// of them: a cap never counts for less than what the drive takes when it serves I/O.
    #[must_use]
    pub fn cap(&self, d: usize, ps: PowerState) -> Watts {
        self.mp(d, ps.min(self.deepest(d))).unwrap_or_default()
    }

    /// The deepest operational state of drive `d`.
    #[must_use]
    pub fn deepest(&self, d: usize) -> PowerState {
        (self.caps[d].len().saturating_sub(1)).min(usize::from(PowerState::MAX)) as PowerState
    }

    /// Sum of the caps of `states`, one for each drive.
    #[must_use]
    pub fn sum(&self, states: &[PowerState]) -> Watts {
        states.iter().enumerate().map(|(d, ps)| self.cap(d, *ps)).sum()
    }

    /// The fastest state of drive `d` whose cap is at most `level`, else its deepest.
    #[must_use]
    pub fn state_at(&self, d: usize, level: Watts) -> PowerState {
        let within = self.caps[d].iter().position(|mp| *mp <= level);
        within.map_or(self.deepest(d), |ps| ps as PowerState)
    }

    /// The highest cap that all drives can be held to, each as near below it as its own states
    /// allow, so that the sum fits `budget`; `None` where even the lowest caps do not fit.
    /// `taken(d)` is what drive `d` counts for at the least (zero, unless it does not obey).
    ///
    /// With equal drives this is the one power state of SSPC (PACMAN §III). With unequal ones a
    /// common state number would mean unlike caps, so the watts are what is uniform.
    #[must_use]
    pub fn uniform_level(&self, budget: Watts, taken: impl Fn(usize) -> Watts) -> Option<Watts> {
        let counted = |d, level| self.cap(d, self.state_at(d, level)).max(taken(d));
        let sum = |level| (0..self.drives()).map(|d| counted(d, level)).sum::<Watts>();
        self.levels.iter().copied().find(|level| sum(*level) <= budget + CAP_TOLERANCE)
    }

    /// The states of [`Self::uniform_level`], or state 0 everywhere without a budget.
    ///
    /// # Errors
    /// A budget that is no number or below the sum of the lowest caps.
    pub fn uniform(&self, budget: Option<Watts>) -> Result<Vec<PowerState>, PolicyError> {
        let Some(budget) = budget else { return Ok(vec![0; self.drives()]) };
        let valid = "a finite number of watts";
        PolicyError::unless(budget.0.is_finite(), "ssd_budget", budget.0, valid)?;
        let lowest = (0..self.drives()).map(|d| self.cap(d, PowerState::MAX)).sum::<Watts>();
        // A server without drives has no level and fits any budget.
        let level = match self.uniform_level(budget, |_| Watts(0.0)) {
            None if lowest > budget + CAP_TOLERANCE => {
                return Err(PolicyError::Budget { budget, lowest, drives: self.drives() });
            }
            level => level.unwrap_or_default(),
        };
        Ok((0..self.drives()).map(|d| self.state_at(d, level)).collect())
    }
}
