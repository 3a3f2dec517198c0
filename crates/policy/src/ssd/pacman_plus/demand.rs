//! What a drive would draw and serve, from what it drew and served while it was busy.

use std::collections::VecDeque;

use super::FULL;
use crate::ssd::pacman::N;
use crate::topology::PowerState;
use crate::units::Watts;

/// More than any drive draws.
const UNKNOWN: Watts = Watts(f64::INFINITY);

/// One `m_interval` of a drive.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Share of the time in which it had something to serve; `None` where nobody counts it.
    pub busy: Option<f64>,
    pub power: Watts,
    pub bytes: Option<u64>,
    /// The least that drives like it draw: what they draw without work.
    pub least: Watts,
    /// What it draws without work at most, for what its bytes cost.
    pub idle: Watts,
    /// The most that drives like it draw under the same cap.
    pub ceiling: Watts,
}

/// The demand of one drive.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The power that it needed while it was busy, in the last [`N`] such samples: what it needed
    /// then it needs again after a rest. Where its cap held it back, what it is known to need
    /// beyond it, else without bound until it shows that.
    wanted: VecDeque<Watts>,
    /// Bytes, and watts beyond those without work; they fade as fast as the window does.
    bytes: f64,
    above: f64,
    /// Whether it is busy, and for which known share of the time.
    pub active: bool,
    share: Option<f64>,
    /// Its power in the sample before, and whether its cap held it back.
    before: Option<Watts>,
    held_back: bool,
    /// Under which state it seemed held back last, and its power there.
    held: Option<(PowerState, Watts)>,
    /// For how many samples it was held back since, and for how many it is believed to need no
    /// more: twice as many after each trial that changed nothing.
    repeats: usize,
    patience: usize,
    /// What it served in the last sample.
    served: Option<u64>,
}

impl Demand {
    pub fn new() -> Self {
        let wanted = VecDeque::with_capacity(N + 1);
        Self {
            wanted,
            bytes: 0.0,
            above: 0.0,
            active: false,
            share: None,
            before: None,
            held_back: false,
            held: None,
            repeats: 0,
            patience: N,
            served: None,
        }
    }

    /// One more sample. Where nobody counts its busy time, a drive that serves no bytes is idle.
    ///
    /// Where it turns out that a higher state changed nothing: the state that did not hold it back,
    /// and its power there.
    pub fn add(&mut self, sample: Sample, state: PowerState) -> Option<(PowerState, Watts)> {
        let share = sample.busy.unwrap_or(if sample.bytes == Some(0) { 0.0 } else { 1.0 });
        self.active = share > 1.0 - FULL;
        if !self.active {
            self.before = None;
            self.held = None;
            return None;
        }
        self.share = sample.busy;
        let power = (sample.power - sample.least * (1.0 - share)) * (1.0 / share);
        let held_back = power > sample.ceiling * FULL;
        // A drive that was held back takes a while to use more: as long as its power still rises it
        // has not shown what it needs.
        let rising = self.before.replace(power).is_none_or(|before| power * FULL > before);
        if self.held_back && !held_back && rising {
            return None;
        }
        self.held_back = held_back;
        let mut answer = None;
        if held_back {
            self.held = Some((state, power));
        } else if let Some((held, was)) = self.held.take() {
            answer = (state < held && power * FULL <= was).then_some((held, was));
            self.patience = if answer.is_some() { self.patience.saturating_mul(2) } else { N };
        }
        // What it showed under a higher cap holds under this one, for a while also where that was
        // not more than it draws now.
        let near = |known: Watts| known > sample.ceiling * FULL && self.repeats < self.patience;
        let known = self.wanted.back().filter(|known| **known > sample.ceiling || near(**known));
        let wanted = if held_back { *known.unwrap_or(&UNKNOWN) } else { power };
        self.repeats = if held_back { self.repeats + 1 } else { 0 };
        self.resolve(wanted);
        self.wanted.push_back(wanted);
        if self.wanted.len() > N {
            self.wanted.pop_front();
        }
        let above = (sample.power - sample.idle).0;
        let kept = 1.0 - 1.0 / N as f64;
        self.above = self.above * kept + above;
        self.bytes = self.bytes * kept + sample.bytes.map_or(above, |bytes| bytes as f64);
        self.served = sample.bytes;
        answer
    }

    /// What it served in the last sample, and for how many it is believed to need no more.
    pub fn trial(&self) -> (Option<u64>, usize) {
        (self.served, self.patience)
    }

    /// A higher state changed nothing for a drive like this one. If that serves as many bytes, the
    /// two wait for each other, and a higher state would change nothing here.
    pub fn believe(&mut self, served: Option<u64>, patience: usize) {
        let alike = |(a, b): (u64, u64)| a.min(b) as f64 >= a.max(b) as f64 * FULL;
        let Some((_, power)) = self.held.filter(|_| self.served.zip(served).is_some_and(alike))
        else {
            return;
        };
        self.resolve(power);
        self.repeats = 0;
        self.patience = patience;
    }

    /// It needed `wanted` wherever that was not known.
    fn resolve(&mut self, wanted: Watts) {
        for before in self.wanted.iter_mut().filter(|before| **before == UNKNOWN) {
            *before = wanted;
        }
    }

    /// Whether it is known to have been busy throughout, so that its cap alone decides what it
    /// serves. One that is not waits for others too: for who asks, or for drives beside it.
    pub fn saturated(&self) -> bool {
        self.share.is_some_and(|share| share >= FULL)
    }

    /// Bytes for what it draws beyond a drive without work, alike for all where nobody counts them;
    /// `None` before it was seen at work.
    pub fn worth(&self) -> Option<f64> {
        (self.above > 0.0).then(|| self.bytes / self.above)
    }

    /// The most that it wanted; without bound before that can be told.
    pub fn most(&self) -> Watts {
        let most = self.wanted.iter().copied().fold(Watts(0.0), Watts::max);
        if self.wanted.len() < N { UNKNOWN } else { most }
    }

    /// Its mean power while it is busy under `cap`.
    pub fn power_under(&self, cap: Watts) -> Watts {
        let sum: Watts = self.wanted.iter().map(|wanted| wanted.min(cap)).sum();
        if self.wanted.is_empty() { cap } else { sum * (1.0 / self.wanted.len() as f64) }
    }

    /// The share of the time in which it is busy.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(1.0)
    }
}
