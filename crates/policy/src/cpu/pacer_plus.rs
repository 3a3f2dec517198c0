//! `pacer-plus`, ours: PACER with a trigger inside the period, and the drives' idle states.
//!
//! A load that jumps meets the few cores of the calm before until PACER's next step. What queues
//! meanwhile grows with the square of that time, so half a second costs more latency than hours
//! within `plf` have saved up, and none of it can be foreseen the first time. A reserve for all of
//! it would cost more than a quick answer: here the plant itself is told to bring all cores back as
//! soon as [`RECALL`] requests wait for each active one of a group ([`crate::Request::recall`]),
//! which takes it milliseconds. Those of all groups come back, for requests pass through all. PACER
//! then finds itself in Unstable, as after a burst of its own finding.
//!
//! What a recall comes too late for, larger bunches of requests that are worked off in
//! milliseconds, is held against what `plf` has allowed: an account has, over the last hour or so,
//!
//! ```text
//! E = Σ (1 + plf) · l_baseline − l     over the requests completed under a saving
//!   + Σ plf · l                        over those under native
//! ```
//!
//! As long as a saving may have left something waiting `l` counts as `l_baseline` at most under
//! native. Where the load is heavier than the baseline's, that is no measure of what the saving
//! took: such a period is judged once the latency under a heavier load is known (`heavier.rs`).
//!
//! While the account is overdrawn everything stays on. Otherwise it says how deep saving may go. A
//! bunch takes longer in inverse proportion to the capacity that it meets, so with a share `s` of
//! all it takes `B · (1 / s − 1)` more than natively, and the account can pay for it once more if
//!
//! ```text
//! s ≥ 1 / (1 + E / B)
//! ```
//!
//! `B` follows from the bunch that took most in the last hour or so. Before one has come it is what
//! would double the latency of a period's requests at half the capacity.
//!
//! In silence nothing is measured, and nobody waits: after five seconds of it cores go that no
//! other work needs, as deep as the account allows and as the first requests after former silences
//! have borne (`wakes.rs`). Before a baseline is known half of them may go. What those requests
//! bear goes on under the next ones.
//!
//! PACER inside takes care of what it does not by itself (`pacer/care.rs`): it parks no more than
//! half at a time, knows reads from writes, and saves only what the noise of the load lets it be
//! sure of. Then it can look after 1.5 s where PACER takes 5.
//!
//! Drives may enter the idle states (`ssd/apst.rs`) that a tenth of `plf` allows, at all times; the
//! other nine are PACER's, whose baseline has their wake-ups in it.

mod heavier;
mod spans;
mod wakes;

use self::heavier::{Heavier, Period};
use self::spans::Spans;
use self::wakes::Wakes;
use crate::PolicyError;
use crate::cpu::pacer::{Pacer, PacerParams, RECALLED, Reserve};
use crate::ssd::Apst;
use crate::topology::Topology;
use crate::units::Nanos;
use crate::{IoSignals, PERIOD, Policy, Request, Settling, Signals};

/// Requests on a core, waiting or worked on, at which the load is no longer what the cores were
/// chosen for. At the utilisation that PACER allows itself, 70 %, a core of a group has three at a
/// time or fewer.
const RECALL: u16 = 16;

/// Requests that a group must have for it: one core that is 70 % busy has as many for 0.7⁶⁴ = 10⁻¹⁰
/// of the time, and several less often. Sixteen it has for 0.3 %.
const CROWD: u16 = 64;

/// Windows of a period each by which a load is stable. PACER waits longer for it; here the account
/// pays for what so short a look misses.
const WINDOWS: usize = 3;

/// Age at which a baseline is learned again. It takes half of PACER's time, and so costs as much.
const AGE: Nanos = Nanos::from_secs(60);

/// Latencies are not looked at more closely than this.
const FINEST: f64 = 0.02;

/// The drives' share of `plf`. Shallow states wake within microseconds and save most of what drives
/// can save; deep ones take as long as a request does.
pub const DRIVES: f64 = 0.1;

/// Share of the capacity that stays in silence before a baseline is known. The guard parks no more
/// than half at a time.
const UNTRIED: f64 = 0.5;

/// Time in which what the account has fades to 1/e, in seconds.
const HOUR: f64 = 3600.0;

/// The controller.
#[derive(Debug, Clone)]
pub struct PacerPlus {
    pacer: Pacer,
    apst: Apst,
    topology: Topology,
    /// What is tolerated, and what of it is left where savings start (`pacer/base.rs`).
    whole: f64,
    plf: f64,
    /// `E` in ns, summed over requests.
    account: f64,
    /// `B` in ns of the worst bunch.
    bunch: f64,
    /// Capacity in the period before.
    before: f64,
    /// Requests and periods of the last hour or so.
    requests: f64,
    periods: f64,
    /// Whether no request came in the last period.
    silent: bool,
    /// How much longer it may have taken for its light load alone.
    light: f64,
    heavier: Heavier,
    wakes: Wakes,
    spans: Spans,
}

impl PacerPlus {
    /// `pacer-plus` for `topology`; the parameters are PACER's.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(topology: &Topology, params: PacerParams) -> Result<Self, PolicyError> {
        params.validate()?;
        let (whole, drives) = (params.plf, DRIVES * params.plf);
        let plf = (1.0 + whole) / (1.0 + drives) - 1.0;
        let params = PacerParams { plf, ..Self::own(params) };
        Ok(Self {
            pacer: Pacer::new(topology, params)?.careful(),
            apst: Apst::new(topology, drives),
            topology: topology.clone(),
            whole,
            plf: whole,
            account: 0.0,
            bunch: 0.0,
            before: 1.0,
            requests: 0.0,
            periods: 0.0,
            silent: false,
            light: 1.0,
            heavier: Heavier::new(),
            wakes: Wakes::default(),
            spans: Spans::new(),
        })
    }

    /// Its own pace. What is not known better than half of `plf` cannot be steered within it: where
    /// that is less than PACER's thresholds are made for, windows have as many more requests.
    fn own(params: PacerParams) -> PacerParams {
        let stable_thresh = params.stable_thresh.min(params.plf / 2.0);
        let more = (params.stable_thresh / stable_thresh.max(FINEST)).powi(2);
        let window_requests = (params.window_requests as f64 * more) as u64;
        let own = PacerParams { window: PERIOD, windows: WINDOWS, baseline_age: AGE, ..params };
        PacerParams { stable_thresh, window_requests, ..own }
    }

    /// When a steady load of `iops` finds it settled. How deep the account lets it go shows when it
    /// has learned twice.
    #[must_use]
    pub fn settling(params: PacerParams, iops: f64) -> Settling {
        let Settling { after, period } = Self::own(params).settling(iops);
        Settling { after: after + period, period }
    }

    /// Books what a period left of the tolerated loss, or took.
    fn book(&mut self, signals: &Signals) {
        let fade = (-signals.period.seconds() / HOUR).exp();
        self.requests = self.requests * fade + signals.io.completed.unwrap_or(0) as f64;
        self.periods = self.periods * fade + 1.0;
        let IoSignals { completed: Some(n @ 1..), mean_latency: Some(l), .. } = signals.io else {
            return;
        };
        let Some(l_baseline) = self.pacer.l_baseline(&signals.io) else { return };
        let (l, n) = (l.0 as f64, n as f64);
        // A period at full capacity still ends what the one before has left waiting.
        let now = self.pacer.capacity(|g| signals.in_force.group(g));
        let capacity = now.min(std::mem::replace(&mut self.before, now));
        let n_baseline = self.pacer.baseline_rate() * signals.period.seconds();
        let period = Period { n, l, l_baseline, n_baseline, capacity };
        let native = self.heavier.latency(&period);
        // What a saving has added to requests of a load that was not learned, nobody knows.
        let natively = match capacity < 1.0 && self.pacer.knows(signals) {
            true if self.heavier.knows(&period) => [native, native],
            true => [l, native],
            false => [l, l],
        };
        let taken = (l * n, natively.map(|native| native * n));
        if self.spans.add(signals.period, taken, capacity, self.plf) {
            self.heavier.seek(signals.now);
        }
        if self.pacer.wakes(n) {
            self.wakes.add((l / native - 1.0) / self.plf, now);
        }
        self.account *= fade;
        self.bunch *= fade;
        self.heavier.fade(fade);
        self.wakes.fade(fade);
        // A saving makes no lighter load slower: it takes as long natively. But for what the load
        // before has left waiting.
        let light = self.pacer.lighter(signals);
        let natively = (1.0 + self.plf) * l_baseline..=(1.0 + self.plf) * light * l_baseline;
        if std::mem::replace(&mut self.light, light) > 1.0 && natively.contains(&l) {
            return;
        }
        if capacity < 1.0 {
            self.heavier.clean = false;
            if let Some(period) = self.heavier.wait(period) {
                self.charge(&period);
            }
            return;
        }
        self.heavier.clean |= l <= (1.0 + self.plf) * l_baseline;
        let native = if self.heavier.clean { l } else { l.min(l_baseline) };
        self.account += self.plf * native * n;
        if period.heavier() && self.heavier.clean {
            self.heavier.learn(n, l);
            while let Some(period) = self.heavier.judged() {
                self.charge(&period);
            }
        }
    }

    /// Books what a saving left of the tolerated loss, or took.
    fn charge(&mut self, period: &Period) {
        let left = self.left(period);
        self.account += left;
        self.bunch = self.bunch.max(-left / (1.0 / period.capacity - 1.0));
    }

    /// What a period under a saving left of the tolerated loss, in ns summed over its requests.
    fn left(&self, period: &Period) -> f64 {
        let native = self.heavier.latency(period);
        let most = (1.0 + self.plf) * period.l_baseline - period.l;
        let left = (1.0 + self.plf) * native - period.l;
        left.min(most.max(self.plf * period.l_baseline)) * period.n
    }

    /// The share `s` of the capacity with which the account can pay for the worst bunch once more.
    fn reserve(&self) -> f64 {
        let l_baseline = self.pacer.l_baseline(&IoSignals::default());
        let Some(l_baseline) = l_baseline else { return if self.silent { UNTRIED } else { 1.0 } };
        let bunch = |of: &Period| -self.left(of) / (1.0 / of.capacity - 1.0);
        let bunch = self.heavier.waiting().map(bunch).fold(self.bunch, f64::max);
        let bunch = bunch.max(l_baseline * self.requests / self.periods);
        (1.0 / (1.0 + self.balance().max(0.0) / bunch)).max(self.spans.reserve())
    }

    /// The account, with what waits to be judged held against it in full.
    fn balance(&self) -> f64 {
        self.account + self.heavier.waiting().map(|period| self.left(period)).sum::<f64>()
    }

    /// Whether a group that may be recalled was found with more than was in force. A recall brings
    /// the highest frequency: one that is nearer to that in force was measured, and a little off.
    fn recalled(&self, signals: &Signals) -> bool {
        let highest = self.topology.max_frequency();
        let may_be = |g: &usize| signals.in_force.recall.value(*g).is_some();
        self.topology.io_groups().filter(may_be).any(|g| {
            let (found, given) = (signals.groups.get(g), signals.in_force.group(g));
            let active = found.and_then(|group| group.active);
            let frequency = found.and_then(|group| group.frequency);
            active.is_some_and(|active| active > given.active)
                || frequency.is_some_and(|is| {
                    given.frequency < highest && is - given.frequency > highest - is
                })
        })
    }
}

impl Policy for PacerPlus {
    fn name(&self) -> &'static str {
        "pacer-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        self.plf = (1.0 + self.whole) / self.pacer.based() - 1.0;
        self.book(signals);
        self.silent = signals.io.arrived == Some(0);
        let held = if self.recalled(signals) {
            Some(RECALLED)
        } else if self.balance() < 0.0 {
            Some("pacer-plus:overdrawn")
        } else {
            self.heavier.is_sought(signals.now).then_some("pacer-plus:heavier")
        };
        let reserve = Reserve { awake: self.reserve(), asleep: self.wakes.reserve() };
        self.pacer.step_held(held, reserve, signals, request);
        self.apst.step(signals, request);
        for g in self.topology.io_groups() {
            let active = request.active_cores.get(g).unwrap_or(self.topology.groups[g].cores);
            let most = RECALL.max(CROWD.div_ceil(active.max(1)));
            request.recall.ask(g, most, "pacer-plus:recall");
        }
    }
}

#[cfg(test)]
mod tests;
