//! The frequency from which savings start; only inside `pacer-plus`.
//!
//! Where requests spend a small part of their latency on CPUs, a frequency below the highest costs
//! them less than `plf`, whatever else makes latencies differ. That follows from the work of the
//! cores and needs no latency that is stable. So it is in force where PACER has everything on, and
//! savings are measured against it; of `plf` they have what it leaves.
//!
//! What waits for CPUs in a bunch is not known, and takes as much longer as the cores are slower.
//! So nothing is done where the frequency can fall only a little.

use crate::Signals;
use crate::units::Hertz;

use super::Pacer;
use super::window::{completions, utilisation};

/// The share of `plf` that it may take, and beyond which it rises again.
const SHARE: f64 = 0.75;
const TOO_MUCH: f64 = 0.9;
/// It is half of the highest frequency at most.
const HALF: f64 = 0.5;
/// Load of moments over that of half a second.
const PEAK: f64 = 4.0;
/// Requests of which a latency is the mean.
const REQUESTS: u64 = 200;
/// Time constants in periods: of the work of a request; of the lowest latency and highest load.
const WORK: f64 = 20.0;
const EXTREMES: f64 = 240.0;

/// What the cores do, at the highest frequency.
#[derive(Debug, Clone, Default)]
pub(super) struct Base {
    /// CPU time of a request in ns.
    work: Option<f64>,
    /// Utilisation of the busiest group were all of its cores active, the highest lately.
    busiest: f64,
    /// Lowest mean latency lately in ns, and the requests that the next is of.
    latency: Option<f64>,
    open: (u64, f64),
}

impl Base {
    /// What a frequency of `share` of the highest adds to the lowest latency, as a share of it.
    fn loss(&self, share: f64) -> Option<f64> {
        let (work, latency) = (self.work?, self.latency?);
        let left = 1.0 - PEAK * self.busiest / share;
        Some(if left > 0.0 { (work / (share * left) - work).max(0.0) / latency } else { f64::MAX })
    }
}

impl Pacer {
    /// The frequency from which savings start.
    pub(super) fn highest(&self) -> Hertz {
        self.topology.io_groups().next().map_or(Hertz(0.0), |g| self.native[g].frequency)
    }

    /// How many times as long requests may take there.
    pub(in crate::cpu) fn based(&self) -> f64 {
        (1.0 + self.whole) / (1.0 + self.params.plf)
    }

    /// Takes in one period.
    pub(super) fn see_work(&mut self, signals: &Signals) {
        let Some((n @ 20.., l)) = completions(&signals.io) else { return };
        let (max, seconds) = (self.topology.max_frequency(), signals.period.seconds());
        let (mut work, mut busiest) = (0.0, 0.0_f64);
        for g in self.topology.io_groups() {
            let Some(group) = signals.groups.get(g) else { return };
            let Some((u, active)) = utilisation(group).zip(group.active) else { return };
            let share = signals.in_force.group(g).frequency.min(max) / max;
            let busy = u * f64::from(active) * share;
            work += busy * seconds * 1e9 / n as f64;
            busiest = busiest.max(busy / f64::from(self.topology.groups[g].cores.max(1)));
        }
        let base = &mut self.base;
        base.work = Some(base.work.map_or(work, |old| old + (work - old) / WORK));
        base.busiest = busiest.max(base.busiest + (busiest - base.busiest) / EXTREMES);
        base.open = (base.open.0 + n, base.open.1 + n as f64 * l);
        if base.open.0 >= REQUESTS {
            let (n, sum) = std::mem::take(&mut base.open);
            let l = sum / n as f64;
            let slowly = |old: f64| l.min(old + (l - old) / EXTREMES);
            base.latency = Some(base.latency.map_or(l, slowly));
        }
    }

    /// Where savings start from now on; whether that is elsewhere than before. It `may` fall only
    /// where nothing is measured against it.
    pub(super) fn rebase(&mut self, may: bool) -> bool {
        let (max, before) = (self.topology.max_frequency(), self.highest());
        let loss = |f: Hertz| if f < max { self.base.loss(f / max) } else { Some(0.0) };
        let keeps = |f: &Hertz| {
            let most = if *f == before { TOO_MUCH } else { SHARE };
            *f <= max * HALF
                && self.params.tail.is_none()
                && loss(*f).is_some_and(|loss| loss <= most * self.whole)
        };
        let lowest = self.topology.frequencies.iter().copied().find(keeps).unwrap_or(max);
        // One that is higher than another that would do does, too.
        let f = if may { lowest } else { lowest.max(before) };
        self.params.plf = (1.0 + self.whole) / (1.0 + loss(f).unwrap_or(0.0).min(self.whole)) - 1.0;
        self.each_io_group(|pacer, g| {
            pacer.native[g].frequency = f;
            pacer.kept[g].frequency = pacer.kept[g].frequency.min(f);
        });
        if f != before {
            self.gain.restart();
        }
        f != before
    }
}
