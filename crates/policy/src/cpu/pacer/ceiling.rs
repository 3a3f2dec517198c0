//! The frequency ceilings over the cores that serve I/O. They belong to who keeps the heat; ours is
//! the rule of what PACER makes of them:
//!
//! * The frequency in force is the lower of PACER's and the ceiling, and `plf` is relative to
//!   *native under the ceiling*: heat slows a server down whoever steers its cores. A baseline that
//!   was learned under a lower ceiling would leave too much to be lost, so it is learned again when
//!   the ceiling has been lifted.
//! * While a ceiling moves nothing is learned and nothing more is saved: heat is being answered,
//!   and the answer is not to be mistaken for the load.
//!
//! A ceiling may alternate between two frequencies from second to second to keep one between them,
//! so its means count.

use crate::Signals;
use crate::topology::Topology;

/// Time constants of the means in seconds: of PACER's five windows, and of three sensor lags.
const NOW: f64 = 5.0;
const BEFORE: f64 = 30.0;

/// Ceilings by group, as shares of the highest frequency.
#[derive(Debug, Clone)]
pub(super) struct Ceilings {
    now: Vec<f64>,
    before: Vec<f64>,
    /// When the baseline was learned.
    learned: Vec<f64>,
    thresh: f64,
}

impl Ceilings {
    /// None so far; changes below `thresh` do not count.
    pub fn new(groups: usize, thresh: f64) -> Self {
        let none = vec![1.0; groups];
        Self { now: none.clone(), before: none.clone(), learned: none, thresh }
    }

    /// Takes one period.
    pub fn update(&mut self, topology: &Topology, signals: &Signals) {
        let dt = signals.period.seconds();
        let highest = topology.max_frequency();
        for g in topology.io_groups() {
            let share = (signals.in_force.ceiling(topology.groups[g].socket) / highest).min(1.0);
            for (mean, tau) in [(&mut self.now[g], NOW), (&mut self.before[g], BEFORE)] {
                *mean -= (share - *mean) * (-dt / tau).exp_m1();
            }
        }
    }

    /// The ceiling over a group now, as a share of the highest frequency.
    pub fn share(&self, group: usize) -> f64 {
        self.now[group]
    }

    /// Whether no ceiling has moved for a while.
    pub fn still(&self) -> bool {
        let moved = |(now, before): (&f64, &f64)| (now - before).abs() > self.thresh * before;
        !self.now.iter().zip(&self.before).any(moved)
    }

    /// Whether a ceiling is higher than when the baseline was learned.
    pub fn lifted(&self) -> bool {
        self.now.iter().zip(&self.learned).any(|(now, then)| now - then > self.thresh * then)
    }

    /// The baseline was learned.
    pub fn learn(&mut self) {
        self.learned.copy_from_slice(&self.now);
    }
}
