//! PACMAN-plus: our own variant. It keeps PACMAN's idea (caps follow measured power, §V-A) and
//! mends what its closed loop shows:
//!
//! * PACMAN raises a drive by one state per 5 s: 20 s from PS4 to PS0 while the burst lasts.
//!   Here all caps are divided anew in each `m_interval`, by as many states as fit.
//! * PACMAN takes power only from drives that do not use theirs. A drive that was idle while
//!   others took the budget stays at its lowest cap for as long as they are busy. Here watts go
//!   where they serve most, and no drive that waits for others is held below its SSPC cap.
//! * PACMAN gives what it saved to whom draws most. Here it goes to whom it serves most bytes.
//!
//! A drive serves `worth` bytes for a joule beyond what it draws without work, until it has what
//! its demand needs (`pacman_plus/demand.rs`). The caps are those with the largest sum of
//! alpha-fair utilities of the bytes per second `b`,
//!
//! ```text
//! U(b) = b^(1 - alpha),   b = worth * (power under the cap - power without work)
//! ```
//!
//! found state by state, since `U` is concave: where a watt adds most. A change of state makes the
//! drive stand still for its exit and entry latency. Caps change only where that gains more over
//! `p_interval` than the drives serve in that time.

mod demand;

use self::demand::{Demand, Sample};
use crate::PolicyError;
use crate::ssd::pacman::{M_INTERVAL, P_INTERVAL, Samples};
use crate::ssd::{CAP_TOLERANCE, PowerDesc, Sspc};
use crate::topology::{PowerState, PowerStateSpec, Topology};
use crate::units::{Nanos, Watts};
use crate::{Policy, Request, Signals};

/// What counts as all of it. A drive that draws this share of what drives like it draw at most in
/// its state is held back by it: drives that their caps hold back are less than 1 % apart. One that
/// is busy for this share of the time is busy throughout.
const FULL: f64 = 0.98;

/// Share of a cap that a drive held back by it draws at least, and share of its lowest cap that it
/// draws without work at most, before any was seen.
const LEAST: f64 = 0.9;

/// How much is given up for an even division: 0 looks at the sum of bytes alone, 1 is proportional
/// fairness (Mo and Walrand, ToN 2000). Of drives whose work hangs together the slowest decides,
/// and nothing tells which hang together.
const ALPHA: f64 = 0.4;

/// Share of its lowest cap that a drive draws at most without work, for what bytes cost. Where all
/// drives are always busy, the least that was seen is no guide.
const IDLE: f64 = 0.5;

/// Bytes per joule of a drive that was never seen at work: more than of any other, so that it is
/// tried first.
const UNTRIED: f64 = 1e15;

/// The share of a period for which a drive may stand still to find out whether its cap holds it
/// back where that is not sure.
const CHEAP: f64 = 0.01;

/// How likely a burst is that needs all of a cap, against what was seen lately.
const BURST: f64 = 0.01;

/// Divides the budget by measured power and bytes, every `m_interval`.
#[derive(Debug, Clone)]
pub struct PacmanPlus {
    budget: Watts,
    desc: PowerDesc,
    /// SSPC's states.
    fair: Vec<PowerState>,
    /// The first drive with the same caps: what is learnt of one holds for all like it.
    like: Vec<usize>,
    /// The most that drives like it drew in each state, and the least in any.
    ceilings: Vec<Vec<Watts>>,
    least: Vec<Watts>,
    started: bool,
    power: Samples,
    /// Of the last `m_interval`; `None` where nobody could read it.
    sample: Vec<Option<Watts>>,
    counts: Vec<Counts>,
    /// The state of each drive when the last sample ended.
    was: Vec<PowerState>,
    demand: Vec<Demand>,
    /// What each drive is worth in each of its states.
    utility: Vec<Vec<f64>>,
    /// The same with what a burst might add: what a change of state is judged by.
    value: Vec<Vec<f64>>,
    /// How long a drive stands still when it leaves and when it enters a state, in seconds.
    exit: Vec<Vec<f64>>,
    entry: Vec<Vec<f64>>,
    /// Whether any such change is short enough to be made for a trial alone.
    cheap: Vec<bool>,
    /// The drives for which a higher state turned out to change nothing in this sample.
    tried: Vec<usize>,
    /// What each has at the least.
    floor: Vec<PowerState>,
    /// What each gets.
    ps: Vec<PowerState>,
}

/// What a drive counted of the running `m_interval`.
#[derive(Debug, Clone, Default)]
struct Counts {
    bytes: Option<u64>,
    /// Busy time, and the time for which it is known, in seconds.
    busy: f64,
    known: f64,
}

impl PacmanPlus {
    /// For `budget`, or every drive in state 0 without one.
    ///
    /// # Errors
    /// A budget below the sum of the drives' lowest caps.
    pub fn new(topology: &Topology, budget: Option<Watts>) -> Result<Self, PolicyError> {
        let fair = Sspc::new(topology, budget)?.states().to_vec();
        let desc = PowerDesc::new(topology);
        let drives = desc.drives();
        let caps = |d| (0..=desc.deepest(d)).map(|ps| desc.cap(d, ps)).collect::<Vec<_>>();
        let caps: Vec<_> = (0..drives).map(caps).collect();
        let like = |d| caps.iter().position(|other| *other == caps[d]).unwrap_or(d);
        let times = |of: fn(&PowerStateSpec) -> Nanos| -> Vec<Vec<f64>> {
            let states = topology.drives.iter().map(|drive| drive.operational());
            states.map(|states| states.iter().map(|state| of(state).seconds()).collect()).collect()
        };
        let (exit, entry) = (times(|state| state.exit), times(|state| state.entry));
        let slowest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let stall = |d: usize| slowest(&exit[d]) + slowest(&entry[d]);
        let cheap: Vec<_> = (0..drives).map(|d| stall(d) <= CHEAP * M_INTERVAL.seconds()).collect();
        let ceilings = |d: usize| {
            let share = if cheap[d] { LEAST } else { 1.0 };
            caps[d].iter().map(|cap| *cap * share).collect::<Vec<_>>()
        };
        let ceilings: Vec<_> = (0..drives).map(ceilings).collect();
        let least = |caps: &Vec<Watts>| caps.last().copied().unwrap_or_default() * LEAST;
        Ok(Self {
            budget: budget.unwrap_or_else(|| desc.sum(&vec![0; drives])),
            like: (0..drives).map(like).collect(),
            least: caps.iter().map(least).collect(),
            ceilings,
            desc,
            started: false,
            power: Samples::new(drives),
            sample: vec![None; drives],
            counts: vec![Counts::default(); drives],
            was: fair.clone(),
            demand: (0..drives).map(|_| Demand::new()).collect(),
            utility: caps.iter().map(|of| vec![0.0; of.len()]).collect(),
            value: caps.iter().map(|of| vec![0.0; of.len()]).collect(),
            exit,
            entry,
            cheap,
            tried: Vec::with_capacity(drives),
            floor: fair.clone(),
            ps: fair.clone(),
            fair,
        })
    }

    /// Counts one period.
    fn count(&mut self, signals: &Signals) {
        for (counts, drive) in self.counts.iter_mut().zip(&signals.drives) {
            if let (Some(read), Some(written)) = (drive.read_bytes, drive.written_bytes) {
                counts.bytes = Some(counts.bytes.unwrap_or(0) + read + written);
            }
            if let Some(share) = drive.utilisation.filter(|share| share.is_finite()) {
                counts.busy += signals.period.seconds() * share.clamp(0.0, 1.0);
                counts.known += signals.period.seconds();
            }
        }
    }

    /// Learns from the sample that ends. The state that counts is the reported one: a write may
    /// take longer than a period.
    fn measure(&mut self, signals: &Signals) {
        for (sample, power) in self.sample.iter_mut().zip(self.power.take()) {
            *sample = power;
        }
        let drives = 0..self.ps.len();
        let reported = |d: usize| signals.drives.get(d).and_then(|drive| drive.state);
        let asked = |d: usize| signals.in_force.state(d);
        let state = |d: usize| reported(d).unwrap_or(asked(d)).min(self.desc.deepest(d));
        let stalls: f64 = drives.clone().map(|d| self.stall(d, self.was[d], state(d))).sum();
        let disturbed = stalls > CHEAP * M_INTERVAL.seconds();
        self.tried.clear();
        for d in drives {
            let state = state(d);
            let steady = std::mem::replace(&mut self.was[d], state) == state;
            let counts = std::mem::take(&mut self.counts[d]);
            let Some(power) = self.sample[d] else { continue };
            let (like, at) = (self.like[d], usize::from(state));
            self.least[like] = self.least[like].min(power.max(Watts(0.0)));
            if steady {
                let ceiling = &mut self.ceilings[like][at];
                *ceiling = ceiling.max(power.min(self.desc.cap(d, state)));
            }
            // What drives serve while one stands still, which others may wait for, tells nothing.
            if disturbed {
                continue;
            }
            let busy = (counts.known > 0.0).then(|| counts.busy / counts.known);
            let (least, bytes, idle) = (self.least[like], counts.bytes, self.idle(d));
            let sample =
                Sample { busy, power, bytes, least, idle, ceiling: self.ceilings[like][at] };
            if let Some((held, free)) = self.demand[d].add(sample, state) {
                self.tried.push(d);
                let ceiling = &mut self.ceilings[like][usize::from(held)];
                *ceiling = ceiling.max((free * (1.0 / (FULL * FULL))).min(self.desc.cap(d, held)));
            }
        }
        for tried in &self.tried {
            let (served, patience) = self.demand[*tried].trial();
            let like = |d: &usize| self.like[*d] == self.like[*tried] && !self.cheap[*d];
            for d in (0..self.ps.len()).filter(like) {
                self.demand[d].believe(served, patience);
            }
        }
    }

    /// First what busy drives need, then the rest to all, against the next burst. A drive that
    /// cannot be read keeps its fair share; so does one that its cap holds back although it is not
    /// busy throughout.
    fn divide(&mut self) {
        for d in 0..self.ps.len() {
            let (demand, deepest) = (&self.demand[d], self.desc.deepest(d));
            self.ps[d] = match () {
                () if self.sample[d].is_none() => self.fair[d],
                () if !demand.active || demand.saturated() => deepest,
                () => self.suits(d).max(self.fair[d]),
            };
        }
        self.floor.clone_from(&self.ps);
        for against_bursts in [false, true] {
            for d in 0..self.ps.len() {
                let demand = &self.demand[d];
                let counts = self.sample[d].is_some() && (against_bursts || demand.active);
                let worth = demand.worth().unwrap_or(UNTRIED);
                let idle = self.idle(d);
                for (ps, utility) in self.utility[d].iter_mut().enumerate() {
                    let cap = self.desc.cap(d, ps as PowerState);
                    let (power, share) = match against_bursts {
                        true => (cap, 1.0),
                        false => (demand.power_under(cap), demand.share()),
                    };
                    let bytes = worth * share * (power - idle).0.max(0.0);
                    *utility = if counts { bytes.powf(1.0 - ALPHA) } else { 0.0 };
                    let value = &mut self.value[d][ps];
                    match against_bursts {
                        false => *value = *utility,
                        true if demand.worth().is_some() => *value += BURST * *utility,
                        true => {}
                    }
                }
            }
            self.raise();
        }
    }

    /// What drive `d` draws without work at most.
    fn idle(&self, d: usize) -> Watts {
        self.least[self.like[d]].min(self.desc.cap(d, PowerState::MAX) * IDLE)
    }

    /// How long drive `d` stands still when it goes from one state to another, in seconds.
    fn stall(&self, d: usize, from: PowerState, to: PowerState) -> f64 {
        match from == to {
            true => 0.0,
            false => self.exit[d][usize::from(from)] + self.entry[d][usize::from(to)],
        }
    }

    /// Keeps the states in force unless others are worth the time for which drives stand still.
    fn settle(&mut self, signals: &Signals) {
        let mut ps = std::mem::take(&mut self.ps);
        let drives = 0..ps.len();
        let now = |d: usize| signals.in_force.state(d).min(self.desc.deepest(d));
        // What a drive has if nothing changes that need not.
        let kept = |d: usize| now(d).min(self.floor[d]);
        let profit = |d: usize, to: PowerState| {
            let value = |ps: PowerState| self.value[d][usize::from(ps)];
            let more = value(to) - value(now(d));
            P_INTERVAL.seconds() * more - self.stall(d, now(d), to) * value(now(d))
        };
        for d in drives.clone() {
            if ps[d] < kept(d) && profit(d, ps[d]) < 0.0 {
                ps[d] = kept(d);
            }
        }
        let mut left = self.budget - self.desc.sum(&ps);
        // Nobody is lowered without need; last whom it costs most.
        loop {
            let more = |d: usize| self.desc.cap(d, now(d)) - self.desc.cap(d, ps[d]);
            let fits = |d: &usize| ps[*d] > now(*d) && more(*d) <= left + CAP_TOLERANCE;
            let lowered = drives.clone().filter(fits).map(|d| (profit(d, ps[d]), d));
            let Some((_, d)) = lowered.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            left -= more(d);
            ps[d] = now(d);
        }
        let all: f64 = drives.clone().map(|d| profit(d, ps[d])).sum();
        let sum: Watts = drives.clone().map(|d| self.desc.cap(d, kept(d))).sum();
        if all <= 0.0 && sum <= self.budget + CAP_TOLERANCE {
            drives.for_each(|d| ps[d] = kept(d));
        }
        self.ps = ps;
    }

    /// The deepest state that would not have held drive `d` back.
    fn suits(&self, d: usize) -> PowerState {
        let most = self.demand[d].most();
        let holds_back =
            |ps: PowerState| most > self.ceilings[self.like[d]][usize::from(ps)] * FULL;
        (0..=self.desc.deepest(d)).rev().find(|ps| !holds_back(*ps)).unwrap_or(0)
    }

    /// Raises drives as far as the budget goes, state by state, where a watt adds most utility.
    fn raise(&mut self) {
        let mut left = self.budget - self.desc.sum(&self.ps);
        loop {
            let step = |d: usize| self.desc.cap(d, self.ps[d] - 1) - self.desc.cap(d, self.ps[d]);
            let gain = |d: usize| {
                let at = |ps: PowerState| self.utility[d][usize::from(ps)];
                (at(self.ps[d] - 1) - at(self.ps[d])) / step(d).max(CAP_TOLERANCE).0
            };
            let fits = |d: &usize| self.ps[*d] > 0 && step(*d) <= left + CAP_TOLERANCE;
            let gains = (0..self.ps.len()).filter(fits).map(|d| (gain(d), d));
            let best = gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((gain, d)) = best else { return };
            if gain <= 0.0 {
                return;
            }
            left -= step(d);
            self.ps[d] -= 1;
        }
    }
}

impl Policy for PacmanPlus {
    fn name(&self) -> &'static str {
        "pacman-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        // The period before the first step was under other caps: SSPC, as PACMAN starts.
        if self.started {
            self.count(signals);
            if self.power.add(&signals.drives, signals.period) {
                self.measure(signals);
                self.divide();
                self.settle(signals);
            }
        }
        self.started = true;
        for (d, ps) in self.ps.iter().copied().enumerate() {
            let raised = ps < signals.in_force.state(d);
            let why = if raised { "pacman-plus:power-needed" } else { "pacman-plus:power-unused" };
            request.power_state.ask(d, ps, why);
        }
    }
}

#[cfg(test)]
mod tests;
