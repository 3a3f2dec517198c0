//! The total limit: what the whole server may draw, judged by its meter and by nothing learnt.
//!
//! ```text
//!   over it, or without a believable meter, for longer than the meter's lag and window + 1 s
//!   followed ─────────────────────────────────────────────────────────────────────────► safe
//!       ▲                                                                                │
//!       └─────────────────── good for all of `recovery` ─────────────────────────────────┘
//! ```
//!
//! *Safe* is the least that the server can be held to. By its nameplate that fits the budget
//! ([`Topology::least_power`]), or the budget is refused before the start.

use super::trust::lasting;
use crate::sense::plausible::is_power;
use crate::topology::{LEAST_PERIOD, LEAST_RATE, LEAST_TIME, Topology};
use crate::units::{Hertz, Nanos, Watts};
use crate::{Control, InForce, PolicyError, PowerSignals, Request, Signal, Signals, Wish};

/// What may be drawn beyond the budget for longer than the window: a meter's own error.
const SLACK: f64 = 1.05;
/// How long it may be drawn once the meter shows it.
const WINDOW: Nanos = Nanos::from_secs(1);
/// How far the processors' own meter moves, as a share of the budget, with the server's standing
/// still, before that is taken to be stuck.
const MOVED: f64 = 0.05;

/// Watches the whole server's power.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    pub(super) limit: Option<Watts>,
    enforced: bool,
    recovery: Nanos,
    /// Since when the limit is this.
    since: Option<Nanos>,
    /// Since when it has been exceeded, and since when no reading could be believed.
    over: Option<Nanos>,
    doubt: Nanos,
    good: Nanos,
    /// The reading when it last changed, and what the processors drew then.
    last: Option<(Watts, Option<Watts>)>,
    safe: Option<&'static str>,
}

impl Budget {
    pub(super) fn new(limit: Option<Watts>, enforced: bool, recovery: Nanos) -> Self {
        let zero = Nanos::ZERO;
        Self {
            limit,
            enforced,
            recovery,
            since: None,
            over: None,
            doubt: zero,
            good: zero,
            last: None,
            safe: None,
        }
    }

    pub(super) fn set(&mut self, limit: Option<Watts>) {
        if self.limit != limit {
            (self.limit, self.since, self.over) = (limit, None, None);
        }
    }

    /// One period, with a meter that tells means of `mean`: whether, and why, the safe setting must
    /// be in force.
    pub(super) fn judge(&mut self, signals: &Signals, mean: Nanos) -> Option<&'static str> {
        let Some(limit) = self.limit.filter(|_| self.enforced) else {
            self.safe = None;
            return None;
        };
        let since = *self.since.get_or_insert(signals.now);
        let age = signals.sources.of(Signal::Power, 0).age;
        let reading = self.reading(limit, signals);
        self.doubt = lasting(self.doubt, reading.is_none(), signals.period);
        let exceeded = reading.is_some_and(|power| power > limit * SLACK);
        let read = signals.now.saturating_sub(age).max(since);
        self.over = exceeded.then(|| self.over.unwrap_or(read));
        let good = reading.is_some_and(|power| power <= limit);
        self.good = lasting(self.good, good, signals.period);
        let window = age + mean + WINDOW;
        let long = |since: Nanos| signals.now.saturating_sub(since) >= window;
        if self.over.is_some_and(long) {
            self.safe = Some("guard:over-server-budget");
        } else if self.doubt >= window {
            self.safe = Some("guard:no-meter");
        } else if self.good >= self.recovery {
            self.safe = None;
        }
        self.safe
    }

    /// What the meter says, if that can be.
    fn reading(&mut self, limit: Watts, signals: &Signals) -> Option<Watts> {
        let PowerSignals { total, cpu, ssd, .. } = signals.power;
        let total = total.filter(|power| is_power(*power))?;
        let parts = cpu.unwrap_or_default() + ssd.unwrap_or_default();
        let last = self.last.filter(|(reading, _)| *reading == total);
        let (_, before) = *self.last.insert(last.unwrap_or((total, cpu)));
        let moved = before.zip(cpu).is_some_and(|(a, b)| (b - a).0.abs() > MOVED * limit.0);
        (total >= parts && !moved).then_some(total)
    }
}

/// Gives of `request` what is possible, or the safe setting for the reason `safe`; nothing of what
/// the plant does not have.
pub(super) fn bound(
    topology: &Topology,
    request: &Request,
    safe: Option<&'static str>,
    given: &mut InForce,
) {
    let rule = Rule { topology, safe };
    for g in topology.io_groups() {
        let spec = &topology.groups[g];
        let least = spec.min_cores.max(1).min(spec.cores);
        let within = |cores: u16| cores.clamp(least, spec.cores);
        let wish = request.core_limit.wish(g);
        given.core_limit.give(g, wish, rule.of(Control::CoreLimit, wish, least, within));
        let wish = request.frequency_limit.wish(g);
        let lowest = topology.min_frequency();
        let within = |wanted: Hertz| {
            let fits = topology.frequencies.iter().rev().find(|f| **f <= wanted);
            fits.copied().unwrap_or(lowest)
        };
        let ruling = rule.of(Control::FrequencyLimit, wish, lowest, within);
        given.frequency_limit.give(g, wish, ruling);
    }
    let positive = |watts: Watts| Watts(watts.0.clamp(0.0, 1e6));
    let wish = request.package_limit.wish(0);
    let ruling = rule.of(Control::PackageLimit, wish, Watts(0.0), positive);
    given.package_limit.give(0, wish, ruling);
    let wish = request.cpu_time.wish(0);
    let within = |cores: f64| cores.clamp(LEAST_TIME, 1e5);
    given.cpu_time.give(0, wish, rule.of(Control::CpuTime, wish, LEAST_TIME, within));
    let wish = request.cpu_period.wish(0);
    let within = |period: Nanos| period.clamp(Nanos::from_millis(1), Nanos::from_secs(1));
    given.cpu_period.give(0, wish, rule.of(Control::CpuPeriod, wish, LEAST_PERIOD, within));
    let within = |rate: f64| rate.clamp(LEAST_RATE, 1e12);
    for d in 0..topology.drives.len() {
        let wish = request.read_rate.wish(d);
        given.read_rate.give(d, wish, rule.of(Control::ReadRate, wish, LEAST_RATE, within));
        let wish = request.write_rate.wish(d);
        given.write_rate.give(d, wish, rule.of(Control::WriteRate, wish, LEAST_RATE, within));
    }
    let wish = request.best_effort_rate.wish(0);
    let ruling = rule.of(Control::BestEffortRate, wish, LEAST_RATE, within);
    given.best_effort_rate.give(0, wish, ruling);
}

/// The guard's word on wishes.
struct Rule<'a> {
    topology: &'a Topology,
    safe: Option<&'static str>,
}

impl Rule<'_> {
    /// The safe value, or what of a wish is possible; the least where it is no number.
    fn of<T: crate::Setting>(
        &self,
        control: Control,
        wish: Option<Wish<T>>,
        least: T,
        within: impl Fn(T) -> T,
    ) -> Option<(Option<T>, &'static str)> {
        if !control.is_in(self.topology) {
            return Some((None, "guard:not-here"));
        }
        if let Some(reason) = self.safe {
            return Some((Some(least), reason));
        }
        let wanted = wish?.value;
        if wanted.number().is_nan() {
            return Some((Some(least), "guard:absurd-request"));
        }
        Some((Some(within(wanted)), "guard:limit-range"))
    }
}

/// Refuses a budget that a server cannot be held to where its meter fails.
///
/// # Errors
/// Such a budget, with the least that could be kept.
pub fn check_server_budget(topology: &Topology, budget: Watts) -> Result<(), PolicyError> {
    let valid = "a number of watts, on a server of which it is known what it draws";
    let Some(least) = topology.least_power().filter(|_| budget.0.is_finite()) else {
        return PolicyError::unless(false, "server_budget", budget.0, valid);
    };
    let least = Watts(least.0.ceil());
    if budget < least { Err(PolicyError::ServerBudget { budget, least }) } else { Ok(()) }
}
