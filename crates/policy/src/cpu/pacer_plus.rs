//! `pacer-plus`, ours: PACER with a reserve for bursts that the tolerated loss pays for.
//!
//! PACER keeps `plf` while the load is steady, but a load that jumps meets the few cores of the
//! calm before for up to a control period `T`, and one such moment can outweigh hours within
//! `plf`. PACER has no notion of it: what it measures before the jump is a perfect setting. Here
//! every setting also has a price, the latency that the worst burst seen would add under it, and
//! it is taken only when that price is in the purse:
//!
//! ```text
//! purse   E += Σ (1 + plf) · l_baseline − l   over the requests of each period; never below 0
//! reserve   the least capacity κ (cores × relative frequency) with  price(κ) ≤ E
//! ```
//!
//! So `E` is the latency that `plf` has allowed so far and that was not used. The better and the
//! longer the promise has been kept, the deeper PACER may go; a burst that hits empties the purse,
//! and what it would have taken to serve it stays on until the next one is paid for in advance.
//! With an empty purse everything stays on. Two prices, for each group of `C` cores with `s`
//! core-seconds of work per request; what is queued at a core is served there, also when more
//! cores come:
//!
//! * **A load that jumps and stays.** The most work of one period, which keeps `w` cores as busy as
//!   the Burst-Check bears, comes back. At `κ < w` a queue grows for the period until PACER reacts,
//!   to `(w − κ) T/s`, and its last request waits for `(w − κ) T/κ` more:
//!   `½ · T² · w (w − κ)/(s κ)`; nothing at `κ ≥ w`.
//! * **A bunch within a period.** The largest number `b` of requests by which one period exceeded
//!   both its neighbours may have come all at once: `½ · b² · s · (1/κ − 1/C)`.
//!
//! `w`, `b` and `E` fade over a day: loads have days, and a burst whose price a day does not earn
//! is not risked. Nothing else is a constant of time, since how long a reserve is held follows from
//! what it is worth. A burst larger than any before cannot be reserved for: see
//! docs/policies/pacer-plus.md for its bound.

use crate::PolicyError;
use crate::cpu::pacer::{Pacer, PacerParams, completions, utilisation};
use crate::topology::Topology;
use crate::units::{Hertz, Nanos};
use crate::{BackgroundMode, GroupSetting, InForce, Policy, Request, Signals};

/// Time in which what was learned and what was saved up fades to 1/e. Ours: a day.
const MEMORY: Nanos = Nanos::from_secs(86_400);

/// Completions that a period needs to show the work of a request; with fewer it counts as quiet
/// and shows the background's work. Ours: as many as the Burst-Check asks for.
const ENOUGH: u64 = 20;

/// Time over which work is averaged. Ours: 4 s, some of PACER's windows.
const AVERAGED: Nanos = Nanos::from_secs(4);

/// The load's worst behaviour, as one core group sees it.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    /// `C`.
    cores: f64,
    /// `s`: core-seconds of work per request at the highest frequency; 0 while unknown.
    service: f64,
    /// Core-seconds of work in a quiet period.
    background: f64,
    /// Most work of one period, in cores.
    sustained: f64,
    /// The capacity to be kept, in cores at the highest frequency.
    reserve: f64,
}

impl Demand {
    /// Learns `s` from the `work` in core-seconds of a period, a `rate` of the averaged time, and
    /// its completions.
    fn learn(&mut self, work: f64, completed: u64, rate: f64) {
        if completed < ENOUGH {
            self.background = work.min(self.background + rate * work);
            return;
        }
        self.background = self.background.min(work);
        let service = (work - self.background) / completed as f64;
        let known = if self.service > 0.0 { self.service } else { service };
        self.service = known + rate * (service - known);
    }

    /// The least capacity whose price is in the purse.
    fn affordable(&self, purse: f64, bunch: f64, u_max: f64, period: f64) -> f64 {
        let Self { cores, service, sustained, .. } = *self;
        // ½ T² w (w − κ)/(s κ) = E, solved for κ.
        let w = (sustained / u_max).min(cores);
        let weight = period * period * w / 2.0;
        let stays = if weight > 0.0 { w / (1.0 + purse * service / weight) } else { 0.0 };
        // ½ b² s (1/κ − 1/C) = E, solved for κ.
        let weight = bunch * bunch * service / 2.0;
        let at_once = if weight > 0.0 { 1.0 / (1.0 / cores + purse / weight) } else { 0.0 };
        stays.max(at_once).clamp(0.0, cores)
    }
}

/// The controller: PACER between floors.
#[derive(Debug, Clone)]
pub struct PacerPlus {
    pacer: Pacer,
    topology: Topology,
    plf: f64,
    u_max: f64,
    /// Of each group; nothing of those that run jobs.
    demand: Vec<Demand>,
    /// `b`, in requests.
    bunch: f64,
    /// Arrivals of the last two periods, the later one first.
    arrived: [f64; 2],
    /// `E`, in seconds of latency summed over requests.
    purse: f64,
    /// The last period was slower than `plf` allows under a saving of ours.
    late: bool,
}

impl PacerPlus {
    /// `pacer-plus` for `topology`; the parameters are PACER's.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(topology: &Topology, params: PacerParams) -> Result<Self, PolicyError> {
        let demand = |cores: u16| Demand { cores: cores.into(), ..Demand::default() };
        let (plf, u_max) = (params.plf, params.burst_utilisation);
        Ok(Self {
            pacer: Pacer::new(topology, params)?,
            topology: topology.clone(),
            plf,
            u_max,
            demand: topology.groups.iter().map(|group| demand(group.cores)).collect(),
            bunch: 0.0,
            arrived: [f64::INFINITY; 2],
            purse: 0.0,
            late: false,
        })
    }

    /// Takes in the load of one period.
    fn observe(&mut self, signals: &Signals) {
        let period = signals.period.seconds();
        let rate = (period / AVERAGED.seconds()).min(1.0);
        let keep = (-period / MEMORY.seconds()).exp();
        let racing = signals.in_force.background() == BackgroundMode::Race;
        if let (Some((completed, _)), false) = (completions(&signals.io), racing) {
            for g in self.topology.io_groups() {
                let Some(group) = signals.groups.get(g) else { continue };
                let demand = &mut self.demand[g];
                let f = group.frequency.unwrap_or(self.topology.max_frequency());
                let speed = (f / self.topology.max_frequency()).clamp(0.0, 1.0);
                if let (Some(u), Some(active)) = (utilisation(group), group.active) {
                    let work = u * f64::from(active) * speed * period;
                    demand.learn(work, completed, rate);
                }
            }
        }
        let arrived = self.plausible(signals.io.arrived, period);
        let [last, before] = self.arrived;
        self.arrived = [arrived, last];
        // Not known counts as infinitely many: no bunch then stands out.
        let alone = last - before.max(arrived);
        let alone = if last.is_finite() { alone.max(0.0) } else { 0.0 };
        self.bunch = (self.bunch * keep).max(alone);
        for demand in &mut self.demand {
            let work = if arrived.is_finite() { arrived * demand.service / period } else { 0.0 };
            demand.sustained = (demand.sustained * keep).max(work);
        }
        self.purse *= keep;
    }

    /// Arrivals, at most what keeps all cores busy: more is a lie, or no reserve's business.
    fn plausible(&self, arrived: Option<u64>, period: f64) -> f64 {
        let most = |demand: &Demand| match demand.service > 0.0 {
            true => demand.cores * period / demand.service,
            false => f64::INFINITY,
        };
        let most = self.demand.iter().map(most).fold(f64::INFINITY, f64::min);
        arrived.map_or(f64::INFINITY, |n| (n as f64).min(most))
    }

    /// Books what a period left of the tolerated loss, or took.
    fn book(&mut self, signals: &Signals) {
        let Some((completed, latency)) = completions(&signals.io) else { return };
        let Some(l_baseline) = self.pacer.l_baseline() else { return };
        let requests = self.plausible(Some(completed), signals.period.seconds());
        let limit = (1.0 + self.plf) * l_baseline;
        let native = self.pacer.all_on(&signals.in_force);
        let was_late = std::mem::replace(&mut self.late, false);
        let left = if native && !(was_late && latency > limit) {
            // Nothing is lost under native, however slow it is; nor does a slow one earn more.
            self.plf * latency.min(l_baseline)
        } else {
            // What a saving has left behind in the queues is still its loss.
            self.late = latency > limit;
            limit - latency
        };
        self.purse = (self.purse + left * 1e-9 * requests).max(0.0);
    }

    /// Keeps PACER's next savings above the reserve.
    fn raise_floors(&mut self, period: Nanos, in_force: &InForce) {
        let highest = self.topology.max_frequency();
        let floors = self.pacer.floors();
        floors.frequency = Hertz(0.0);
        for g in self.topology.io_groups() {
            let demand = &mut self.demand[g];
            let GroupSetting { active, frequency } = in_force.group(g);
            let period = period.seconds();
            demand.reserve = demand.affordable(self.purse, self.bunch, self.u_max, period);
            floors.cores[g] = cores(demand.reserve, frequency / highest);
            let speed = demand.reserve / f64::from(active.max(1));
            let least = self.topology.frequency_at_least(highest * speed.min(1.0));
            floors.frequency = floors.frequency.max(least);
        }
    }

    /// Puts the reserve in force where the setting is below it.
    fn lift(&self, request: &mut Request) {
        let highest = self.topology.max_frequency();
        let share = self.demand.iter().map(|d| d.reserve / d.cores.max(1.0)).fold(0.0, f64::max);
        let least = self.topology.frequency_at_least(highest * share.min(1.0));
        for g in self.topology.io_groups() {
            let demand = &self.demand[g];
            let GroupSetting { active, frequency } = self.pacer.asked(g);
            let f = frequency.max(least);
            let reserve = cores(demand.reserve, f / highest).min(demand.cores as u16);
            request.frequency.ask(g, f, "pacer-plus:reserve");
            request.active_cores.ask(g, active.max(reserve), "pacer-plus:reserve");
        }
    }
}

/// Cores that make up `capacity` at a share `speed` of the highest frequency.
fn cores(capacity: f64, speed: f64) -> u16 {
    // A float converted to an integer saturates. Not one core more for a rounding error.
    (capacity / speed.max(f64::EPSILON) - 1e-6).ceil() as u16
}

impl Policy for PacerPlus {
    fn name(&self) -> &'static str {
        "pacer-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        if signals.period > Nanos::ZERO {
            self.observe(signals);
            self.book(signals);
            self.raise_floors(signals.period, &signals.in_force);
        }
        self.pacer.step(signals, request);
        self.lift(request);
    }
}

#[cfg(test)]
mod tests;
