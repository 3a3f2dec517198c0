//! Energy over time and wear: work as phases of known power, power conditions between.
//! Units: W, ns, nJ (1 W for 1 ns is 1 nJ).

use std::iter::Sum;

use ebb_policy::units::Nanos;

use super::profile::HddProfile;

/// How often the mechanics did what wears them, and for how long they worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wear {
    /// Starts of the spindle.
    pub spin_ups: u64,
    /// Loads of the heads onto the platters.
    pub loads: u64,
    /// Seeks to another cylinder.
    pub seeks: u64,
    /// Revolutions lost to vibration, but those of reading ahead.
    pub retries: u64,
    /// Time for which the heads sought, waited for the platter, transferred or read ahead.
    pub busy: Nanos,
    /// Of it, what vibration cost: passes over tracks repeated, reading ahead included.
    pub lost: Nanos,
}

impl Wear {
    /// Share of the working time that vibration cost; `None` where there was none.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        (self.busy > Nanos::ZERO).then(|| self.lost.seconds() / self.busy.seconds())
    }

    /// What came on top of `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            spin_ups: self.spin_ups - before.spin_ups,
            loads: self.loads - before.loads,
            seeks: self.seeks - before.seeks,
            retries: self.retries - before.retries,
            busy: self.busy - before.busy,
            lost: self.lost - before.lost,
        }
    }
}

impl Sum for Wear {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            spin_ups: sum.spin_ups + one.spin_ups,
            loads: sum.loads + one.loads,
            seeks: sum.seeks + one.seeks,
            retries: sum.retries + one.retries,
            busy: sum.busy + one.busy,
            lost: sum.lost + one.lost,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Condition {
    /// Idle time after which it is entered; `u64::MAX` for only on demand.
    after: u64,
    power: f64,
    recovery: u64,
    peak: f64,
    peak_share: f64,
    unloaded: bool,
    stopped: bool,
    commanded: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Meter {
    ready: f64,
    conditions: Box<[Condition]>,
    /// Up to when energy is booked.
    booked: u64,
    drawn: f64,
    /// Work under way: power until each instant, last first.
    phases: Vec<(u64, f64)>,
    /// When the last work ends.
    pub(super) idle_since: u64,
    /// Condition demanded by the host, and since when.
    forced: Option<(usize, u64)>,
    pub(super) wear: Wear,
}

impl Meter {
    pub(super) fn new(profile: &HddProfile) -> Self {
        let condition = |idle: &super::profile::HddIdle| Condition {
            after: idle.after.map_or(u64::MAX, |after| after.0),
            power: idle.power.0,
            recovery: idle.recovery.0,
            peak: idle.recovery_peak.0,
            peak_share: idle.peak_share,
            unloaded: idle.unloaded,
            stopped: idle.stopped,
            commanded: idle.recovery.0 > 0,
        };
        Self {
            ready: profile.power.ready.0,
            conditions: profile.idle.iter().map(condition).collect(),
            booked: 0,
            drawn: 0.0,
            phases: Vec::with_capacity(4),
            idle_since: 0,
            forced: None,
            wear: Wear::default(),
        }
    }

    /// The deepest condition in force at `now`, when work ended at `idle_since`.
    fn condition(&self, now: u64) -> Option<usize> {
        let timed = self
            .conditions
            .iter()
            .rposition(|condition| now.saturating_sub(self.idle_since) >= condition.after);
        let forced = self.forced.filter(|(_, since)| *since <= now).map(|(index, _)| index);
        timed.max(forced)
    }

    /// Makes the drive ready at `now`: pays for the recovery and returns when it is over.
    pub(super) fn wake(&mut self, now: u64) -> u64 {
        self.advance(now);
        let condition = if now >= self.idle_since { self.condition(now) } else { None };
        self.forced = None;
        let Some(condition) = condition.map(|index| self.conditions[index]) else {
            return now.max(self.idle_since);
        };
        let peak = (condition.recovery as f64 * condition.peak_share) as u64;
        self.phases.clear();
        self.phases.push((now + condition.recovery, self.ready));
        self.phases.push((now + peak, condition.peak));
        self.idle_since = now + condition.recovery;
        self.wear.loads += u64::from(condition.unloaded);
        self.wear.spin_ups += u64::from(condition.stopped);
        now + condition.recovery
    }

    /// Adds work that starts at the end of all before: positioning, then transfer.
    pub(super) fn work(&mut self, positioned: u64, at: f64, done: u64, transfer: f64) {
        self.phases.insert(0, (positioned, at));
        self.phases.insert(0, (done, transfer));
        self.idle_since = done;
    }

    /// Adds energy of the electronics that takes no time of the mechanics, in W ns.
    pub(super) fn add(&mut self, energy: f64) {
        self.drawn += energy;
    }

    /// Enters the condition `number`, of those that can be demanded, when the work is done.
    pub(super) fn force(&mut self, number: usize, now: u64) -> u64 {
        self.advance(now);
        let mut commanded = self.conditions.iter().enumerate().filter(|(_, c)| c.commanded);
        let since = now.max(self.idle_since);
        self.forced = commanded.nth(number).map(|(index, _)| (index, since));
        since
    }

    /// Books energy up to `now`.
    pub(super) fn advance(&mut self, now: u64) {
        while self.booked < now {
            let (until, power) = match self.phases.last() {
                Some(&(until, power)) => (until, power),
                None => self.resting(now),
            };
            let end = until.min(now);
            self.drawn += (end.saturating_sub(self.booked)) as f64 * power;
            self.booked = self.booked.max(end);
            if until <= now && !self.phases.is_empty() {
                self.phases.pop();
            }
        }
    }

    /// Power at `booked`, without work, and until when it stays so.
    fn resting(&self, now: u64) -> (u64, f64) {
        let power = self.condition(self.booked).map_or(self.ready, |i| self.conditions[i].power);
        let timed = self.conditions.iter().map(|c| self.idle_since.saturating_add(c.after));
        let forced = self.forced.map(|(_, since)| since);
        let next = timed.chain(forced).filter(|at| *at > self.booked).min();
        (next.unwrap_or(now), power)
    }

    /// Energy drawn so far, in joules.
    pub(super) fn joules(&self) -> f64 {
        self.drawn * 1e-9
    }
}
