//! PACMAN: power caps moved between drives by their measured power (PACMAN §V, Algorithms 1
//! and 2). Starts from SSPC, then repeats Measure, Predict and Control.
//!
//! Where the paper leaves a choice:
//!
//! * **Initial `P_save`**: what SSPC leaves of the budget. In the paper 16 x 14 W is the budget
//!   exactly, so this is its 0 there; elsewhere the slack would be lost for ever.
//! * **`P_save` carried over** (line 1) is, by induction over lines 5 and 12, the budget less
//!   the sum of caps. It is computed so each time, from the states in force, which keeps it true
//!   when somebody else changes a state or the guard steps in, and free of rounding drift.
//! * **A drive lowered in line 6 is in `D_up` again in line 8** and may get back what nobody
//!   else took. Its `S_up`, from before the lowering, puts it behind every drive that needs
//!   power. Kept as written: with nobody hungry, idle drives keep their caps for the next
//!   burst. Only net changes are written to the devices.
//! * **Line 15 breaks** at the first drive that is too expensive, although a cheaper step may
//!   follow. Kept: the hungriest drive saves up over the phases instead of being starved by
//!   drives that were idle a moment ago.
//! * **No power reading**: fewer than half the window's samples give no estimate; the drive is
//!   neither in `D` nor in `D_up`, and its cap counts in full.
//! * **A drive that reports another state than asked for** (in transition, reset, throttled by
//!   hand) counts with the larger of the two caps and is left alone for the phase: the plant
//!   puts the asked state back.
//! * **No budget**: the sum of all `MP(0)`, with which lines 3 to 15 change nothing on balance.

use crate::PolicyError;
use crate::ssd::predict::{Predictor, Scores};
use crate::ssd::{CAP_TOLERANCE, PowerDesc, Sspc};
use crate::topology::{PowerState, Topology};
use crate::units::{Joules, Nanos, Watts};
use crate::{DriveSignals, Policy, Request, Signals};

/// `p_interval` (§VI-A).
pub const P_INTERVAL: Nanos = Nanos::from_secs(5);
/// `m_interval` (§VI-A). Periods that are shorter make one sample together.
pub const M_INTERVAL: Nanos = Nanos::from_millis(500);

/// `N`: power samples in a window.
pub(super) const N: usize = (P_INTERVAL.0 / M_INTERVAL.0) as usize;

/// The PACMAN controller with one of its predictors.
#[derive(Debug, Clone)]
pub struct Pacman {
    name: &'static str,
    predictor: Predictor,
    budget: Watts,
    desc: PowerDesc,
    sspc: Sspc,
    started: bool,
    history: History,
    /// Scratch, one per drive: allocated here so that a step allocates nothing.
    ps: Vec<PowerState>,
    scores: Vec<Option<Scores>>,
    d_up: Vec<usize>,
}

impl Pacman {
    /// PACMAN as published: the statistical predictor.
    ///
    /// # Errors
    /// A budget below the sum of the drives' lowest caps.
    pub fn new(topology: &Topology, budget: Option<Watts>) -> Result<Self, PolicyError> {
        Self::with("pacman", Predictor::STATISTICAL, topology, budget)
    }

    /// With weights `(alpha, beta)` of one's own for the statistical predictor.
    ///
    /// # Errors
    /// As [`Self::new`], and weights beyond 0 to 10.
    pub fn weighted(
        (alpha, beta): (f64, f64),
        topology: &Topology,
        budget: Option<Watts>,
    ) -> Result<Self, PolicyError> {
        for (parameter, value) in [("alpha", alpha), ("beta", beta)] {
            PolicyError::within(parameter, value, 0.0, 10.0, "0 to 10")?;
        }
        Self::with("pacman", Predictor::Statistical { alpha, beta }, topology, budget)
    }

    /// With the mean as predictor (§VI-D).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn mean(topology: &Topology, budget: Option<Watts>) -> Result<Self, PolicyError> {
        Self::with("pacman-mean", Predictor::Mean, topology, budget)
    }

    /// With the exponential moving average as predictor (§VI-D).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn ema(topology: &Topology, budget: Option<Watts>) -> Result<Self, PolicyError> {
        Self::with("pacman-ema", Predictor::ema(N), topology, budget)
    }

    fn with(
        name: &'static str,
        predictor: Predictor,
        topology: &Topology,
        budget: Option<Watts>,
    ) -> Result<Self, PolicyError> {
        let sspc = Sspc::new(topology, budget)?;
        let desc = PowerDesc::new(topology);
        let drives = desc.drives();
        Ok(Self {
            name,
            predictor,
            budget: budget.unwrap_or_else(|| desc.sum(&vec![0; drives])),
            desc,
            sspc,
            started: false,
            history: History::new(drives),
            ps: vec![0; drives],
            scores: vec![None; drives],
            d_up: Vec::with_capacity(drives),
        })
    }

    /// Algorithm 1 for every drive; returns `P_save` for the states in force.
    fn predict(&mut self, signals: &Signals) -> Watts {
        let mut p_save = self.budget;
        for d in 0..self.ps.len() {
            let ps = signals.in_force.state(d);
            self.ps[d] = ps;
            let reported = signals.drives.get(d).and_then(|drive| drive.state).unwrap_or(ps);
            p_save -= self.desc.cap(d, ps).max(self.desc.cap(d, reported));
            self.scores[d] = (reported == ps)
                .then(|| self.predictor.estimate(self.history.of(d)))
                .flatten()
                .map(|p_est| Scores::of(&self.desc, d, ps, p_est));
        }
        p_save
    }
}

impl Policy for Pacman {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        if !self.started {
            // The period that just ended was before SSPC: it is no measurement.
            self.started = true;
            self.sspc.step(signals, request);
            return;
        }
        self.history.measure(&signals.drives, signals.period);
        if !self.history.is_full() {
            return;
        }
        let p_save = self.predict(signals);
        self.history.clear();
        control(&self.desc, &self.scores, &mut self.ps, &mut self.d_up, p_save);
        for (d, ps) in self.ps.iter().copied().enumerate() {
            let raised = ps < signals.in_force.state(d);
            let why = if raised { "pacman:power-needed" } else { "pacman:power-unused" };
            request.power_state.ask(d, ps, why);
        }
    }
}

/// Algorithm 2, in the order of its lines: moves `ps` and returns what is left of `p_save`.
/// A drive without scores is left out of `D`.
fn control(
    desc: &PowerDesc,
    scores: &[Option<Scores>],
    ps: &mut [PowerState],
    d_up: &mut Vec<usize>,
    mut p_save: Watts,
) -> Watts {
    let step = |d: usize, from: PowerState, to: PowerState| desc.cap(d, from) - desc.cap(d, to);
    let score = |d: usize| scores[d].map_or(f64::INFINITY, |s| s.up);
    for (d, s) in scores.iter().enumerate() {
        // `S_down` is minus infinity where there is no deeper state (line 4's second test).
        if s.is_some_and(|s| s.down > 0.0) {
            p_save += step(d, ps[d], ps[d] + 1);
            ps[d] += 1;
        }
    }
    d_up.clear();
    d_up.extend((0..ps.len()).filter(|d| scores[*d].is_some() && ps[*d] > 0));
    // Ties go to the lower index: a run is the same every time.
    d_up.sort_unstable_by(|a, b| score(*a).total_cmp(&score(*b)).then(a.cmp(b)));
    for d in d_up.iter().copied() {
        let delta = step(d, ps[d] - 1, ps[d]);
        if p_save + CAP_TOLERANCE < delta {
            break;
        }
        p_save -= delta;
        ps[d] -= 1;
    }
    p_save
}

/// The sample being taken of each drive: its mean power over an `m_interval`.
#[derive(Debug, Clone)]
pub(super) struct Samples {
    length: Nanos,
    /// Energy, and the time for which it is known.
    drives: Vec<(Joules, Nanos)>,
}

impl Samples {
    pub fn new(drives: usize) -> Self {
        Self { length: Nanos::ZERO, drives: vec![(Joules(0.0), Nanos::ZERO); drives] }
    }

    /// Adds a period; whether the sample is complete. A reading that is no number is no reading.
    pub fn add(&mut self, drives: &[DriveSignals], period: Nanos) -> bool {
        self.length += period;
        for ((energy, known), drive) in self.drives.iter_mut().zip(drives) {
            if let Some(power) = drive.power.filter(|power| power.0.is_finite()) {
                *energy += power * period;
                *known += period;
            }
        }
        self.length >= M_INTERVAL
    }

    /// The sample of each drive; the next one begins.
    pub fn take(&mut self) -> impl Iterator<Item = Option<Watts>> + '_ {
        self.length = Nanos::ZERO;
        self.drives.iter_mut().map(|drive| {
            let (energy, known) = std::mem::replace(drive, (Joules(0.0), Nanos::ZERO));
            (known > Nanos::ZERO).then(|| energy / known)
        })
    }
}

/// The power samples of the running window.
#[derive(Debug, Clone)]
struct History {
    /// `N` for each drive.
    samples: Vec<Option<Watts>>,
    /// Samples taken, up to `N`.
    taken: usize,
    open: Samples,
}

impl History {
    fn new(drives: usize) -> Self {
        Self { samples: vec![None; drives * N], taken: 0, open: Samples::new(drives) }
    }

    /// One period.
    fn measure(&mut self, drives: &[DriveSignals], period: Nanos) {
        if self.open.add(drives, period) {
            for (window, power) in self.samples.chunks_exact_mut(N).zip(self.open.take()) {
                window[self.taken] = power;
            }
            self.taken += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.taken == N
    }

    fn clear(&mut self) {
        self.taken = 0;
    }

    /// `P_d`.
    fn of(&self, d: usize) -> &[Option<Watts>] {
        &self.samples[d * N..(d + 1) * N]
    }
}

#[cfg(test)]
mod tests;
