//! The last thing between any policy and any plant.
//!
//! ```text
//!             absurd value, stopped clock, no I/O counters
//!   trusting ─────────────────────────────────────────────► native
//!       ▲                                                      │
//!       └──────────────── good for all of `recovery` ──────────┘
//! ```
//!
//! In either state what leaves the guard is within the topology's bounds and the [`Limits`].
//! Whatever it gives instead of what was asked for has a reason that starts with `guard:`.

mod budget;
mod thermal;
mod trust;

use crate::sense::{EMERGENCY, RED_LINE};
use crate::ssd::{CAP_TOLERANCE, PowerDesc};
use crate::topology::{GroupSpec, PowerState, Topology};
use crate::units::{Celsius, Hertz, Nanos, Watts};
use crate::{InForce, Request, Signal, Signals};

use budget::Budget;
pub use budget::check_server_budget;
use thermal::Thermal;
pub use thermal::{MIN_JOB_SHARE, SLOW_DOWN};
use trust::Trust;

/// Time in which no more than [`Limits::park_share`] of a group is parked.
pub const PARK_INTERVAL: Nanos = Nanos::from_millis(500);

/// What no policy may exceed, and when signals are no longer believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Most that the caps of all drives may sum to; no limit when `None`.
    pub ssd_budget: Option<Watts>,
    /// Most that the whole server may draw; no limit when `None`. Policies sense it.
    pub server_budget: Option<Watts>,
    /// Whether the guard itself keeps it.
    pub budget_guard: bool,
    /// Frequency floor; the topology's lowest when `None`.
    pub min_frequency: Option<Hertz>,
    /// Largest share of a group's cores that may be parked within [`PARK_INTERVAL`] (at least one
    /// core). Bringing cores back is never limited.
    pub park_share: f64,
    /// Time without required I/O counters, with a clock that stands still, or with a drive that
    /// does not take a lower cap, after which the guard acts.
    pub patience: Nanos,
    /// Time without a fault after which a policy is trusted again.
    pub recovery: Nanos,
    /// Socket temperature from which the fans run at full speed, whoever owns them; lower where
    /// the hardware throttles earlier.
    pub emergency: Celsius,
    /// Socket temperature that is never to be crossed; lower where the hardware throttles earlier.
    pub red_line: Celsius,
    /// Drive temperature from which the fans run at full speed, whoever owns them; each drive's own
    /// limit ([`crate::DriveSpec::hottest`]) when `None`.
    pub drive: Option<Celsius>,
}

impl Limits {
    /// No thermal limits: a policy meets the hardware's own throttling alone. For runs that repeat
    /// what was measured of policies that no such guard stood behind.
    #[must_use]
    pub fn without_heat() -> Self {
        let never = Celsius(f64::INFINITY);
        Self { emergency: never, red_line: never, drive: Some(never), ..Self::default() }
    }
}

impl Default for Limits {
    /// Half a group at a time, 2 s of patience, 5 s of recovery; no budget; EADC's temperatures,
    /// the drives' own limits.
    fn default() -> Self {
        Self {
            ssd_budget: None,
            server_budget: None,
            budget_guard: true,
            min_frequency: None,
            park_share: 0.5,
            patience: Nanos::from_secs(2),
            recovery: Nanos::from_secs(5),
            emergency: EMERGENCY,
            red_line: RED_LINE,
            drive: None,
        }
    }
}

/// Enforces [`Limits`] and the topology's bounds on whatever is asked for.
#[derive(Debug)]
pub struct Guard {
    topology: Topology,
    limits: Limits,
    desc: PowerDesc,
    trust: Trust,
    thermal: Thermal,
    budget: Budget,
    /// What left the guard last.
    in_force: InForce,
    /// Why no policy is followed at present.
    native: Option<&'static str>,
    /// When cores of each group were last parked.
    parked_at: Vec<Option<Nanos>>,
    /// Since when each drive has had to be at the cap it was given, and reports a higher one.
    disobeys: Vec<Option<Nanos>>,
    /// Caps of drives that keep a higher cap than given; zero for the others.
    taken: Vec<Watts>,
}

impl Guard {
    /// A guard for `topology`, with everything released.
    #[must_use]
    pub fn new(topology: &Topology, limits: Limits) -> Self {
        let drives = topology.drives.len();
        Self {
            topology: topology.clone(),
            desc: PowerDesc::new(topology),
            trust: Trust::new(&limits),
            budget: Budget::new(limits.server_budget, limits.budget_guard, limits.recovery),
            thermal: Thermal::new(topology, &limits),
            limits,
            in_force: InForce::new(topology),
            native: None,
            parked_at: vec![None; topology.groups.len()],
            disobeys: vec![None; drives],
            taken: vec![Watts(0.0); drives],
        }
    }

    /// Another budget from now on.
    pub(crate) fn set_ssd_budget(&mut self, budget: Option<Watts>) {
        self.limits.ssd_budget = budget;
    }

    /// Another budget of the whole server from now on.
    pub(crate) fn set_server_budget(&mut self, budget: Option<Watts>) {
        self.budget.set(budget);
    }

    /// The budget of the whole server.
    pub(crate) fn server_budget(&self) -> Option<Watts> {
        self.budget.limit
    }

    /// What left the guard last.
    #[must_use]
    pub fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// Why no policy is followed at present: signals that cannot be believed.
    #[must_use]
    pub fn native(&self) -> Option<&'static str> {
        self.native
    }

    /// Gives of `request` what is within the limits; *native* on signals that cannot be believed.
    /// Call it once per period.
    pub fn enforce(&mut self, request: &Request, signals: &Signals) -> &InForce {
        let distrust = self.trust.judge(&self.topology, signals);
        self.native = distrust.cores;
        let mean = self.topology.power.as_ref().map_or(Nanos::ZERO, |power| power.meter_window);
        let safe = self.budget.judge(signals, mean);
        budget::bound(&self.topology, request, safe, &mut self.in_force);
        for group in 0..self.topology.groups.len() {
            self.bound_cores(group, distrust.cores, request, signals.now);
            self.bound_frequency(group, distrust.cores, request);
        }
        let native = distrust.cores.map(|reason| (None, reason));
        for group in 0..self.topology.groups.len() {
            let native = native.map(|(_, reason)| (None, reason));
            self.in_force.recall.give(group, request.recall.wish(group), native);
        }
        self.in_force.background.give(0, request.background.wish(0), native);
        self.watch_drives(signals);
        self.bound_drives(distrust.drives, request, signals.now);
        self.thermal.bound(signals, distrust.drives, &self.topology, request, &mut self.in_force);
        self.check();
        &self.in_force
    }

    /// What is given is possible and within the budget: better no server under control than one
    /// given a wrong watt.
    ///
    /// # Panics
    /// Where it is not.
    fn check(&self) {
        let given = &self.in_force;
        for (g, spec) in self.topology.groups.iter().enumerate() {
            let active = given.group(g).active;
            let least = spec.min_cores.max(1).min(spec.cores);
            assert!((least..=spec.cores).contains(&active), "{active} of {} cores", spec.cores);
        }
        let frequencies = given.frequency.values().chain(given.frequency_cap.values());
        for frequency in frequencies.flatten() {
            assert!(frequency.0.is_finite() && frequency.0 >= 0.0, "{frequency}");
        }
        for share in given.fan_duty.values().chain(given.job_share.values()).flatten() {
            assert!((0.0..=1.0).contains(&share), "a share of {share}");
        }
        let caps = |state: &dyn Fn(usize) -> PowerState| {
            let counted = |d| self.desc.cap(d, state(d)).max(self.taken[d]);
            (0..self.taken.len()).map(counted).sum::<Watts>()
        };
        if let Some(budget) = self.limits.ssd_budget {
            let (sum, least) = (caps(&|d| given.state(d)), caps(&|_| PowerState::MAX));
            let kept = sum <= (budget + CAP_TOLERANCE).max(least);
            assert!(kept || !budget.0.is_finite(), "caps of {sum} under a budget of {budget}");
        }
    }

    fn bound_cores(
        &mut self,
        g: usize,
        distrust: Option<&'static str>,
        request: &Request,
        now: Nanos,
    ) {
        let GroupSpec { cores, min_cores, .. } = self.topology.groups[g];
        let before = self.in_force.group(g).active;
        let wanted = request.active_cores.get(g).unwrap_or(cores);
        let least = min_cores.max(1).min(cores);
        let rested = |at: Nanos| now.saturating_sub(at) >= PARK_INTERVAL;
        let park = match self.parked_at[g].is_none_or(rested) {
            true => (self.limits.park_share * f64::from(cores)).ceil().max(1.0) as u16,
            false => 0,
        };
        let fewest = before.saturating_sub(park);
        let ruling = match distrust {
            Some(reason) => Some((None, reason)),
            None if wanted > cores => Some((Some(cores), "guard:max-cores")),
            None if wanted < least.max(fewest) && least >= fewest => {
                Some((Some(least), "guard:min-cores"))
            }
            None if wanted < fewest => Some((Some(fewest), "guard:park-rate")),
            None => None,
        };
        self.in_force.active_cores.give(g, request.active_cores.wish(g), ruling);
        if self.in_force.group(g).active < before {
            self.parked_at[g] = Some(now);
        }
    }

    fn bound_frequency(&mut self, g: usize, distrust: Option<&'static str>, request: &Request) {
        let floor = self.limits.min_frequency.unwrap_or_default();
        let available = |wanted| Some(self.topology.frequency_at_least(wanted));
        let ruling = match (distrust, request.frequency.get(g)) {
            (Some(reason), _) => Some((None, reason)),
            (None, None) => None,
            (None, Some(wanted)) if !wanted.0.is_finite() => Some((None, "guard:absurd-request")),
            (None, Some(wanted)) if wanted < floor => {
                Some((available(floor), "guard:min-frequency"))
            }
            (None, Some(wanted)) => Some((available(wanted), "guard:unavailable-frequency")),
        };
        self.in_force.frequency.give(g, request.frequency.wish(g), ruling);
    }

    /// Finds drives that have a higher cap than was given: a refused or lost write. What counts is
    /// what was *read* `patience` after the cap was lowered, whatever the pace of reading: an older
    /// reading tells of the state before, and a drive in transition gets there within that time.
    fn watch_drives(&mut self, signals: &Signals) {
        for (d, drive) in signals.drives.iter().enumerate().take(self.taken.len()) {
            let given = self.desc.cap(d, self.in_force.state(d));
            let reported = drive.state.map_or(given, |ps| self.desc.cap(d, ps));
            let read = signals.now.saturating_sub(signals.sources.of(Signal::DriveState, d).age);
            let begun = signals.now.saturating_sub(signals.period);
            let since = (reported > given).then(|| self.disobeys[d].unwrap_or(begun));
            let is_stuck = |since: Nanos| read >= since + self.limits.patience;
            self.taken[d] = if since.is_some_and(is_stuck) { reported } else { Watts(0.0) };
            self.disobeys[d] = since;
        }
    }

    /// Operational states only, with a sum of caps within the budget: where more is asked for,
    /// every drive above the uniform cap that fits comes down to it (SSPC). That cap
    /// always fits where anything does, and asks nothing of the policy's internals.
    fn bound_drives(&mut self, distrust: Option<&'static str>, request: &Request, now: Nanos) {
        let asked = |d: usize| match (distrust, request.power_state.get(d)) {
            (Some(_), _) | (None, None) => 0,
            (None, Some(ps)) => ps.min(self.desc.deepest(d)),
        };
        let counted = |d| self.desc.cap(d, asked(d)).max(self.taken[d]);
        let sum = (0..self.taken.len()).map(counted).sum::<Watts>();
        // A budget that is no number is kept by nothing: the deepest caps.
        let kept = |budget: Watts| (0.0..=(budget + CAP_TOLERANCE).0).contains(&sum.0);
        let level =
            self.limits.ssd_budget.filter(|budget| !kept(*budget)).map(|budget| {
                self.desc.uniform_level(budget, |d| self.taken[d]).unwrap_or_default()
            });
        let why = match (distrust, level) {
            (Some(reason), _) => reason,
            (None, Some(_)) => "guard:over-budget",
            (None, None) => "guard:not-operational",
        };
        for d in 0..self.taken.len() {
            let fits = level.map_or(0, |level| self.desc.state_at(d, level));
            let ps = asked(d).max(fits);
            let native = ps == 0 && (distrust.is_some() || request.power_state.get(d).is_none());
            let given = (!native).then_some(ps);
            if self.desc.cap(d, ps) < self.desc.cap(d, self.in_force.state(d)) {
                self.disobeys[d] = Some(now);
            }
            self.in_force.power_state.give(d, request.power_state.wish(d), Some((given, why)));
            let released = distrust.map(|reason| (None, reason));
            self.in_force.idle_wake.give(d, request.idle_wake.wish(d), released);
        }
    }
}

#[cfg(test)]
mod tests;
