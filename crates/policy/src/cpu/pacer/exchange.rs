//! More cores at a lower frequency, in place of fewer at a higher one; only inside `pacer-plus`.
//!
//! PACER takes cores first and then frequency, whatever each of them draws. Where polling cores
//! draw with the square of their frequency and more, twice as many at half the frequency serve
//! the same load with less power. Which way is cheaper no policy can know, but the meter does: when
//! nothing is left to save, cores are doubled and the frequency falls as far as the load and the
//! reserve allow. What draws less from then on stays, and the next exchange follows; what does not,
//! or breaks `plf`, is taken back.

use crate::units::{Hertz, Nanos};
use crate::{GroupSetting, IoSignals, Request};

use super::Pacer;
use super::loss;

/// Share of the power that an exchange must save: less is noise.
const GAIN: f64 = 0.01;
/// A frequency that is worth twice the cores is this share of the one before at most.
const LOWER: f64 = 0.75;
/// Time until the next try after one that failed, at first; it doubles up to 64 times.
const PAUSE: Nanos = Nanos::from_secs(60);
pub(super) const MOST_FAILURES: u32 = 6;

/// What was drawn and served before.
#[derive(Debug, Clone, Copy)]
struct Trial {
    watts: f64,
    rate: f64,
}

/// The exchange that is tried, and how the last ones ended.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    trial: Option<Trial>,
    /// What was in force before it, and what was asked for.
    before: Vec<GroupSetting>,
    asked: Vec<GroupSetting>,
    /// Whether one has saved power: then no core goes at the price of a higher frequency.
    pub pays: bool,
    failures: u32,
    not_before: Nanos,
}

impl Exchange {
    /// None yet; `native` is everything on.
    pub fn new(native: &[GroupSetting]) -> Self {
        let (before, asked) = (native.to_vec(), native.to_vec());
        Self { trial: None, before, asked, pays: false, failures: 0, not_before: Nanos::ZERO }
    }
}

impl Pacer {
    /// Tries an exchange where there is one.
    pub(super) fn exchange(&mut self, now: Nanos, request: &mut Request) {
        let Some(watts) = self.windows.watts() else { return };
        let is_known = self.windows.unchanged() && now >= self.exchange.not_before;
        if self.care.is_none() || !is_known {
            return;
        }
        self.exchange.before.copy_from_slice(&self.in_force);
        self.exchange.asked.copy_from_slice(&self.in_force);
        for g in self.topology.io_groups() {
            let group = &mut self.exchange.asked[g];
            group.active = group.active.saturating_mul(2).min(self.topology.groups[g].cores);
        }
        let more = self.exchange.asked != self.in_force;
        let f_cur = self.frequency(&self.in_force);
        let least = self.least_frequency(f_cur);
        let keeps = |f: &Hertz| *f >= least && self.foreseen(f_cur / *f);
        let f = self.topology.frequencies.iter().copied().find(keeps);
        let Some(f) = f.filter(|f| more && *f <= f_cur * LOWER) else { return };
        // The last saving has kept `plf`, and is not to blame for this.
        self.memory.acquit();
        self.each_io_group(|pacer, g| pacer.exchange.asked[g].frequency = f);
        self.set(request, |pacer, g| pacer.exchange.asked[g], "pacer-plus:exchange");
        self.exchange.trial = Some(Trial { watts, rate: self.windows.load().requests() });
    }

    /// The frequency that the cores to be asked for need for the load and the reserve; not below
    /// a floor, nor
    /// below half of the present one.
    fn least_frequency(&self, f_cur: Hertz) -> Hertz {
        let limit = self.params.max_utilisation;
        let need = |g: usize| {
            let cores = f64::from(self.exchange.asked[g].active.max(1));
            let work = self.windows.work(g).unwrap_or(f64::INFINITY);
            let share = cores / f64::from(self.topology.groups[g].cores.max(1));
            let reserve = self.care.map_or(0.0, |care| care.reserve);
            (f_cur * (work / (limit * cores))).max(self.highest() * (reserve / share))
        };
        let least = self.topology.io_groups().map(need).fold(Hertz(0.0), Hertz::max);
        least.max(self.memory.frequency_floor()).max(f_cur * 0.5)
    }

    /// Whether `plf` is kept, as far as can be told before, where those cores are `slower` times
    /// as slow: what a request takes on each core is known, and it waits there as in a queue of its
    /// own.
    fn foreseen(&self, slower: f64) -> bool {
        let (l_cur, rate) = (self.windows.l_avg(), self.windows.load().requests());
        let Some(l_baseline) = self.l_baseline(&IoSignals::default()) else { return false };
        let time = |work: f64, cores: u16| work / rate / (1.0 - work / f64::from(cores)).max(0.0);
        let more = |g: usize| {
            let work = self.windows.work(g).unwrap_or(f64::INFINITY);
            time(work * slower, self.exchange.asked[g].active) - time(work, self.in_force[g].active)
        };
        let more = self.topology.io_groups().map(more).sum::<f64>() * 1e9;
        l_cur + more.max(0.0) <= (1.0 + self.params.plf) * l_baseline
    }

    /// Judges an exchange that is in force; true when it was taken back.
    pub(super) fn judge_exchange(&mut self, now: Nanos, request: &mut Request) -> bool {
        let Some(trial) = self.exchange.trial.take() else { return false };
        if !self.had(&self.exchange.asked) {
            return false;
        }
        let (loss, _) = self.losses(self.windows.l_avg());
        let keeps = loss::loss_distance(self.params.plf, loss) >= 0.0;
        if keeps && !self.windows.unchanged() {
            self.exchange.trial = Some(trial);
            return true;
        }
        let rate = self.windows.load().requests();
        let known = self.windows.watts().zip(self.gain.at(trial.watts, trial.rate, rate));
        if keeps && known.is_some_and(|(watts, before)| watts < before * (1.0 - GAIN)) {
            (self.exchange.pays, self.exchange.failures) = (true, 0);
            return false;
        }
        self.exchange.not_before = now + Nanos(PAUSE.0 << self.exchange.failures);
        self.exchange.failures = (self.exchange.failures + 1).min(MOST_FAILURES);
        self.kept.copy_from_slice(&self.exchange.before);
        self.set(request, Self::last_kept, "pacer-plus:exchange-back");
        true
    }
}
