//! PACER: cores and frequency follow the load as far as users' I/O latency allows.
//!
//! ```text
//!                 system stable; recalculate the baseline
//!              ┌────────────────────────────────────────────┐
//!   start ► Unstable ◄────── burst, or unstable ────────  Stable ◄─┐ Parameter Update and
//!            ▲    │            (or baseline old)            │   └──┘ adjust resources
//!            │    └─────► Idle ◄── no request for 30 s ─────┘
//!            └── request ──┘                                            (Fig. 9)
//! ```
//!
//! | file | part of the paper |
//! |---|---|
//! | `mod.rs` | the state machine, §IV-B, Fig. 9 |
//! | `window.rs` | Stability-Check's `l_i`, `l_avg`, `l_div` |
//! | `checks.rs` | Burst-Check, Idle-Check |
//! | `tune.rs` | Parameter Update, and which adaptor acts when, §IV-C |
//! | `loss.rs` | `loss_cur`, `loss_distance` |
//! | `core_adaptor.rs` | Core Adaptor: `u_desired`, `n_desired`, `α`, `β`; core groups, §IV-E |
//! | `freq_adaptor.rs` | Freq Adaptor: `f_desired`, `γ` |
//! | `ceiling.rs` | ours: the ceilings of who keeps the heat |
//! | `exchange.rs` | ours: cores for frequency, in `pacer-plus` alone |
//! | `base.rs` | ours: a frequency that costs next to nothing, in `pacer-plus` alone |
//! | `gain.rs` | ours: whether a saving saves, in `pacer-plus` alone |
//! | `kinds.rs` | ours: reads and writes, large and small apart, in `pacer-plus` alone |
//! | `idle.rs` | Background Task Scheduler, §IV-D |
//! | `memory.rs` | ours: no limit cycles |
//! | `params.rs` | the hyperparameters |
//!
//! The Task Migrator (§IV-D) is the plant's: cores beyond `active` finish what they have and take
//! no new work. Groups of cores that run jobs are not PACER's: no latency says how many of them are
//! needed. Leaving Stable is printed with `l_div < l_unstable_thresh`, which contradicts the
//! prose ("exceeds") and the hysteresis; it is `>` here.

mod base;
mod care;
mod ceiling;
mod checks;
mod core_adaptor;
mod exchange;
mod freq_adaptor;
mod gain;
mod idle;
mod kinds;
mod loss;
mod memory;
mod params;
mod tune;
mod window;

use crate::PolicyError;
use crate::topology::Topology;
use crate::units::{Hertz, Nanos};
use crate::{BackgroundMode, GroupSetting, InForce, IoSignals, Policy, Request, Signals};

use base::Base;
use care::Care;
pub(in crate::cpu) use care::{LEARNING_SHARE, RECALLED};
use ceiling::Ceilings;
use checks::{BurstCheck, IdleCheck};
use core_adaptor::CoreAdaptor;
use exchange::Exchange;
use gain::Gain;
use idle::Background;
use memory::Memory;
pub use params::{Adaptors, PacerParams};
use tune::RESUME;
use window::{Load, Ops, Windows, utilisation};

/// How long no request has come when cores go that nothing was measured of. Bursts that follow each
/// other sooner would each meet few cores.
const SILENCE: Nanos = Nanos::from_secs(5);

/// The states of Fig. 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No power saving; waiting for a stable load.
    Unstable,
    /// Saving power within `plf`.
    Stable,
    /// No user requests; background work races to its end.
    Idle,
}

/// Shares of the capacity that stay whatever is saved: while requests come, and in Idle.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cpu) struct Reserve {
    pub awake: f64,
    pub asleep: f64,
}

/// The controller.
#[derive(Debug, Clone)]
pub struct Pacer {
    params: PacerParams,
    topology: Topology,
    /// Everything on, as `Unstable` wants it; with care, at the frequency of `base.rs`.
    native: Vec<GroupSetting>,
    /// What is tolerated over everything on at the highest frequency.
    whole: f64,
    base: Base,
    state: State,
    windows: Windows,
    burst: BurstCheck,
    idle: IdleCheck,
    background: Background,
    cores: CoreAdaptor,
    memory: Memory,
    ceilings: Ceilings,
    /// Only inside `pacer-plus`.
    care: Option<Care>,
    exchange: Exchange,
    gain: Gain,
    /// `l_baseline` in ns, and when it was last learned.
    l_baseline: f64,
    /// The 99th percentile then, where it is sensed.
    tail_baseline: Option<f64>,
    learned_at: Nanos,
    /// How long the baseline, and a floor, is to be trusted.
    trusted_for: Nanos,
    /// The last setting that was measured to keep `plf`; with care, after a silence, the one
    /// that was about to be, or that the first requests have borne.
    kept: Vec<GroupSetting>,
    /// Core-seconds that a request took there in each group, where that is known.
    kept_work: Vec<Option<f64>>,
    /// Since when the baseline is being learned, and how long that took last.
    learning: Option<Nanos>,
    took: Nanos,
    /// Since when windows are left out, and when such a load was last learned.
    lighter_since: Option<Nanos>,
    light_at: Nanos,
    /// Windows that there had been when the last silence began.
    rested: Option<u64>,
    /// Whether this one keeps everything on.
    spared: bool,
    /// Unstable only to learn the baseline again: go back to `kept` if it has not changed.
    relearning: bool,
    /// For how long to go on asking for `kept`.
    resume: Nanos,
    /// Cores and frequencies that were in force in the period that ended: what was measured.
    in_force: Vec<GroupSetting>,
    /// The setting that the windows are of.
    measured: Vec<GroupSetting>,
    /// Cores and frequencies that are asked for.
    asked: Vec<GroupSetting>,
}

impl Pacer {
    /// PACER for `topology`.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(topology: &Topology, params: PacerParams) -> Result<Self, PolicyError> {
        params.validate()?;
        let native: Vec<_> = InForce::new(topology).groups().collect();
        let groups = native.len();
        Ok(Self {
            topology: topology.clone(),
            whole: params.plf,
            base: Base::default(),
            state: State::Unstable,
            windows: Windows::new(&params, groups),
            burst: BurstCheck::new(&params),
            idle: IdleCheck::new(&params),
            background: Background::default(),
            cores: CoreAdaptor::new(params.alpha, params.beta, params.max_utilisation),
            memory: Memory::new(groups),
            ceilings: Ceilings::new(groups, params.stable_thresh),
            care: None,
            exchange: Exchange::new(&native),
            gain: Gain::default(),
            l_baseline: 0.0,
            tail_baseline: None,
            learned_at: Nanos::ZERO,
            trusted_for: params.baseline_age,
            kept: native.clone(),
            kept_work: vec![None; groups],
            learning: None,
            took: Nanos::ZERO,
            lighter_since: None,
            light_at: Nanos::ZERO,
            rested: None,
            spared: false,
            relearning: false,
            resume: Nanos::ZERO,
            in_force: native.clone(),
            measured: native.clone(),
            asked: native.clone(),
            native,
            params,
        })
    }

    /// The same with the care of `pacer-plus`.
    pub(in crate::cpu) fn careful(mut self) -> Self {
        self.care = Some(Care::default());
        self
    }

    /// `l_baseline` in ns of the reads and writes of a period, once it is known.
    pub(in crate::cpu) fn l_baseline(&self, io: &IoSignals) -> Option<f64> {
        let baseline = |care: Care| care.low(care.baseline(self.l_baseline, &Ops::of(io)));
        (self.l_baseline > 0.0).then(|| self.care.map_or(self.l_baseline, baseline))
    }

    /// Requests per second of the load of which the baseline is.
    pub(in crate::cpu) fn baseline_rate(&self) -> f64 {
        self.care.map_or(f64::NAN, |care| care.rate())
    }

    /// How many times the baseline a period's load takes natively, being light; 1 if it is not.
    pub(in crate::cpu) fn lighter(&self, signals: &Signals) -> f64 {
        let load = Load::of(&signals.io).per(signals.period);
        self.care.map_or(1.0, |care| care.lighter(&load))
    }

    /// Whether it was learned what a period's requests take natively, by kind, size and number.
    pub(in crate::cpu) fn knows(&self, signals: &Signals) -> bool {
        let load = Load::of(&signals.io).per(signals.period);
        self.care.is_some_and(|care| care.knows(&Ops::of(&signals.io)) && !care.is_lighter(&load))
    }

    /// Whether `n` requests are the first after a silence, and enough to tell.
    pub(in crate::cpu) fn wakes(&self, n: f64) -> bool {
        self.state == State::Idle && n >= self.params.burst_requests as f64
    }

    /// Capacity of a setting as a share of all: that of the group with the least.
    pub(in crate::cpu) fn capacity(&self, of: impl Fn(usize) -> GroupSetting) -> f64 {
        let highest = self.highest();
        let share = |g: usize| {
            let (group, all) = (of(g), self.topology.groups[g].cores.max(1));
            f64::from(group.active) / f64::from(all) * (group.frequency / highest).min(1.0)
        };
        self.topology.io_groups().map(share).fold(1.0, f64::min)
    }

    /// One period; nothing is saved if `held` says why.
    pub(in crate::cpu) fn step_held(
        &mut self,
        held: Option<&'static str>,
        reserve: Reserve,
        signals: &Signals,
        request: &mut Request,
    ) {
        if let Some(care) = &mut self.care {
            care.reserve = reserve.awake;
        }
        if self.care.is_some() {
            let same = self.in_force.iter().copied().eq(signals.in_force.groups());
            let left = self.capacity(|g| signals.in_force.group(g));
            self.gain.see(signals, same, left);
            self.see_work(signals);
        }
        self.adopt(&signals.in_force, request);
        let moved = self.care.is_some() && self.rebase(self.state == State::Unstable);
        self.ceilings.update(&self.topology, signals);
        let load = Load::of(&signals.io).per(signals.period);
        let natively = self.care.map_or(1.0, |care| care.natively(&load).max(1.0));
        let l_baseline = self.mixed(&Ops::of(&signals.io)) * natively;
        let expected = l_baseline * (1.0 + self.params.plf);
        let burst = self.burst.check(signals, &self.topology, expected);
        let idle = self.idle.check(&signals.io, signals.period);
        let count = self.windows.count();
        match self.state {
            State::Idle => self.idle(signals, (idle, held.is_some()), request),
            _ if self.care.is_some() && self.idle.silent(SILENCE) => {
                self.begin_rest();
                self.idle(signals, (idle, held.is_some()), request);
            }
            _ if idle => {
                self.windows.clear();
                self.enter_idle();
                self.race(request);
            }
            State::Stable if moved => self.learn_again(request, "pacer-plus:base"),
            State::Unstable => {
                if moved {
                    self.windows.clear();
                }
                self.unstable(signals, held.is_some(), request);
            }
            State::Stable => self.stable(signals, held.or(burst), request),
        }
        if self.windows.count() > count {
            self.see_variation();
        }
        if let Some(care) = &mut self.care
            && self.state == State::Idle
        {
            care.reserve = reserve.awake.max(reserve.asleep);
        }
        self.keep_reserve(request);
        if self.had(&self.asked) {
            return;
        }
        // Nothing is measured in Idle: what was before goes on where that setting comes back.
        if self.state == State::Idle || self.asked == self.measured {
            self.windows.paused();
        } else {
            self.windows.changed();
            self.measured.copy_from_slice(&self.asked);
        }
    }

    /// `l_baseline`, were reads and writes those of `ops`.
    fn mixed(&self, ops: &Ops) -> f64 {
        self.care.map_or(self.l_baseline, |care| care.mixed(self.l_baseline, ops))
    }

    /// Hears of the window that was closed last.
    fn see_variation(&mut self) {
        let (l, load, ops) = self.windows.last();
        let same = self.windows.since_change() > 1;
        let known = self.l_baseline > 0.0;
        let expected = if known { self.mixed(&ops) } else { 1.0 };
        if let Some(care) = &mut self.care {
            let natively = if known { care.natively(&load) } else { 1.0 };
            care.vary(l / (natively * expected), same);
        }
    }

    /// `l_div`. Where the mix alone makes latencies differ the load is none the less stable.
    fn l_div(&self) -> f64 {
        let is_known = self.l_baseline > 0.0;
        self.windows.l_div(|ops| if is_known { self.mixed(ops) } else { 1.0 })
    }

    /// Asks for a number of cores.
    fn ask_active(&mut self, g: usize, active: u16, request: &mut Request, reason: &'static str) {
        self.asked[g].active = active;
        request.active_cores.ask(g, active, reason);
    }

    /// Asks for a frequency.
    fn ask_frequency(&mut self, g: usize, f: Hertz, request: &mut Request, reason: &'static str) {
        self.asked[g].frequency = f;
        request.frequency.ask(g, f, reason);
    }

    /// Asks for what `wanted` says in every group that serves I/O.
    fn set(
        &mut self,
        request: &mut Request,
        wanted: fn(&Self, usize) -> GroupSetting,
        reason: &'static str,
    ) {
        self.each_io_group(|pacer, g| {
            let GroupSetting { active, frequency } = wanted(pacer, g);
            pacer.ask_active(g, active, request, reason);
            pacer.ask_frequency(g, frequency, request, reason);
        });
    }

    /// Does something for each group that serves I/O.
    fn each_io_group(&mut self, mut step: impl FnMut(&mut Self, usize)) {
        for g in 0..self.asked.len() {
            if self.topology.serves_io(g) {
                step(self, g);
            }
        }
    }

    /// Everything on, for [`Self::set`].
    fn all(&self, group: usize) -> GroupSetting {
        self.native[group]
    }

    /// What was in force, for [`Self::set`].
    fn given(&self, group: usize) -> GroupSetting {
        self.in_force[group]
    }

    /// The last setting that kept `plf`, for [`Self::set`].
    fn last_kept(&self, group: usize) -> GroupSetting {
        self.kept[group]
    }

    /// Whether just `wanted` was in force.
    fn had(&self, wanted: &[GroupSetting]) -> bool {
        self.topology.io_groups().all(|g| self.in_force[g] == wanted[g])
    }

    /// Raises what is asked for to the reserve: cores of each group, and the one frequency of all.
    fn keep_reserve(&mut self, request: &mut Request) {
        let Some(care) = self.care.filter(|care| care.reserve > 0.0) else { return };
        let highest = self.highest();
        let mut least = Hertz(0.0);
        self.each_io_group(|pacer, g| {
            let cores = pacer.topology.groups[g].cores;
            if pacer.asked[g].active < care.cores(cores, 1.0) {
                pacer.ask_active(g, care.cores(cores, 1.0), request, "pacer-plus:reserve");
            }
            let share = f64::from(pacer.asked[g].active) / f64::from(cores);
            least = least.max(highest * (care.reserve / share));
        });
        let f = self.topology.frequency_at_least(least).min(highest);
        self.each_io_group(|pacer, g| {
            if pacer.asked[g].frequency < f {
                pacer.ask_frequency(g, f, request, "pacer-plus:reserve");
            }
        });
    }

    /// Goes on from what was in force: the next saving is measured against it, whoever set it.
    fn adopt(&mut self, in_force: &InForce, request: &mut Request) {
        for (own, given) in self.in_force.iter_mut().zip(in_force.groups()) {
            *own = given;
        }
        if !self.had(&self.asked) {
            // Somebody else, such as the guard, has changed it: what was measured so far belongs
            // to another setting, and no saving of ours can be blamed.
            self.windows.clear();
            self.memory.acquit();
            self.set(request, Self::given, "pacer:as-given");
            self.measured.copy_from_slice(&self.asked);
        }
    }

    fn enter_unstable(&mut self, request: &mut Request, reason: &'static str) {
        self.state = State::Unstable;
        self.windows.clear();
        self.kept.copy_from_slice(&self.native);
        (self.relearning, self.resume) = (false, Nanos::ZERO);
        self.set(request, Self::all, reason);
        request.ask_background(BackgroundMode::Normal, reason);
    }

    fn enter_idle(&mut self) {
        self.state = State::Idle;
        self.memory.acquit();
        (self.relearning, self.resume) = (false, Nanos::ZERO);
        self.background = Background::default();
    }

    fn race(&mut self, request: &mut Request) {
        self.set(request, Self::all, "pacer:idle-race");
        request.ask_background(BackgroundMode::Race, "pacer:idle-race");
    }

    fn unstable(&mut self, signals: &Signals, held: bool, request: &mut Request) {
        self.learning.get_or_insert(signals.now);
        self.set(request, Self::all, "pacer:unstable");
        let count = self.windows.count();
        let complete = self.windows.add(signals);
        let closed = self.windows.count() > count && self.had(&self.native);
        if closed && !self.hear_light(signals.now) && !held && self.has_heard(signals.now) {
            // The light load is gone before it was learned as a whole; the other one is known.
            (self.state, self.resume, self.learning) = (State::Stable, RESUME, None);
            self.relearning = false;
            self.windows.clear();
            self.resume(signals.period, request);
            return;
        }
        let calm = complete && self.l_div() < self.params.stable_thresh;
        // A load that the Burst-Check would throw out again at once is not stable.
        if calm && !held && self.ceilings.still() && !self.burst.busy(signals, &self.topology) {
            self.enter_stable((signals.now, signals.period), request);
        }
    }

    /// Idle with care: what is on is the reserve at least, so it begins sooner and races later.
    fn begin_rest(&mut self) {
        if self.state == State::Stable && self.asked != self.native {
            // A saving that was begun is measured when requests are back.
            self.kept.copy_from_slice(&self.asked);
        }
        self.windows.paused();
        // Nothing was measured of a burst that came and went while the cores came back: the next
        // one meets all of them.
        let count = Some(self.windows.count());
        self.spared = self.state == State::Unstable && self.rested == count;
        self.rested = count.filter(|_| !self.spared);
        self.enter_idle();
    }

    /// What other work takes, of users' requests there being none; the reserve comes on top.
    fn rest(&mut self, signals: &Signals, request: &mut Request) {
        let (u_max, highest) = (self.params.max_utilisation, self.topology.max_frequency());
        let most = self.highest();
        self.each_io_group(|pacer, g| {
            let sensed = signals.groups.get(g);
            let work =
                sensed.and_then(|group| Some(utilisation(group)? * f64::from(group.active?)));
            let spec = &pacer.topology.groups[g];
            let wanted = core_adaptor::desired(1.0, work.unwrap_or(f64::INFINITY), u_max);
            let half = pacer.in_force[g].active.div_ceil(2);
            let active = wanted.max(spec.min_cores).max(half).clamp(1, spec.cores);
            let share = work.map_or(1.0, |work| work / (u_max * f64::from(active)));
            let f = pacer.topology.frequency_at_least(highest * share.min(1.0));
            pacer.ask_active(g, active, request, "pacer-plus:silence");
            pacer.ask_frequency(g, f.min(most), request, "pacer-plus:silence");
        });
    }

    fn stable(&mut self, signals: &Signals, burst: Option<&'static str>, request: &mut Request) {
        if let Some(reason @ RECALLED) = burst {
            self.learn_again(request, reason);
        } else if let Some(reason) = burst {
            // If it came right after a saving, that saving is to blame.
            let forget_at = signals.now + self.trusted_for;
            self.memory.blame(&self.in_force, &self.topology, true, forget_at);
            self.enter_unstable(request, reason);
        } else if self.ceilings.lifted() && self.ceilings.still() {
            self.learn_again(request, "pacer:ceiling-lifted");
        } else if self.resume > Nanos::ZERO {
            self.resume(signals.period, request);
        } else if self.windows.add(signals) && !self.leave_out(signals.now) {
            if self.l_div() > self.params.unstable_thresh {
                self.memory.acquit();
                // What has changed without harm is measured anew where it is.
                if self.is_slow() && self.is_lighter() {
                    self.learn_again(request, "pacer-plus:lighter");
                } else if self.is_slow() || self.care.is_none() {
                    self.enter_unstable(request, "pacer:latency-diverged");
                } else {
                    self.windows.keep_last();
                }
            } else {
                self.tune((signals.now, signals.period), request);
            }
        }
    }

    /// Users are back. With care, once the baseline is learned and as long as it is trusted, they
    /// keep what the silence has left if that kept `plf` in the period before, or else meet what
    /// kept it last.
    fn wake(&mut self, signals: &Signals, held: bool, request: &mut Request) {
        let reason = "pacer:user-request";
        request.ask_background(BackgroundMode::Normal, reason);
        let age = signals.now.saturating_sub(self.learned_at);
        let learned = self.l_baseline > 0.0 && age < self.trusted_for;
        if self.care.is_none() {
            self.enter_unstable(request, reason);
        } else if held || !learned {
            (self.state, self.relearning) = (State::Unstable, self.kept != self.native);
            self.unstable(signals, held, request);
        } else {
            if self.bears(signals) {
                self.kept.copy_from_slice(&self.in_force);
            }
            (self.state, self.resume, self.learning) = (State::Stable, RESUME, None);
            self.set(request, Self::last_kept, reason);
        }
    }

    /// Whether the requests of a period were served within `plf` by what was in force.
    fn bears(&self, signals: &Signals) -> bool {
        let Some(care) = self.care.filter(|_| self.params.tail.is_none()) else { return false };
        let Some((n, l)) = window::completions(&signals.io) else { return false };
        let l_baseline = care.low(care.baseline(self.l_baseline, &Ops::of(&signals.io)));
        n >= self.params.burst_requests
            && care.high(l, 0.0, 1) <= (1.0 + self.params.plf) * l_baseline
            && self.topology.io_groups().all(|g| {
                let u = signals.groups.get(g).and_then(utilisation);
                u.is_some_and(|u| u <= self.params.max_utilisation)
            })
    }

    /// No requests, for long enough to race if `long`; nothing is saved afterwards if `held`.
    fn idle(&mut self, signals: &Signals, (long, held): (bool, bool), request: &mut Request) {
        if signals.io.arrived.is_some_and(|n| n > 0) {
            self.wake(signals, held, request);
        } else if long && !self.background.resting(signals.background_pending, signals.period) {
            self.race(request);
        } else if self.care.is_none() {
            self.set(request, Self::last_kept, "pacer:idle-rest");
        } else if self.spared && !long || !self.gain.may_be(signals.now) {
            self.set(request, Self::all, "pacer-plus:learning");
        } else {
            self.rest(signals, request);
        }
    }
}

impl Policy for Pacer {
    fn name(&self) -> &'static str {
        match self.params.adaptors {
            Adaptors::Both => "pacer",
            Adaptors::Cores => "pacer-cores",
            Adaptors::Frequency => "pacer-freq",
        }
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        self.step_held(None, Reserve::default(), signals, request);
    }
}

#[cfg(test)]
pub(in crate::cpu) mod tests;
