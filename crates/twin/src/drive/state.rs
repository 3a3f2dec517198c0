//! NVMe power states: what each allows, and how the drive moves between them.

use ebb_policy::PowerState;
use ebb_policy::units::{Nanos, Watts};

use super::meter::Meter;
use super::profile::State;
use super::{Drive, NEVER};

/// A power state, ready for use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cap {
    /// Inverse of the power that operations may draw; infinite where there is no I/O.
    pub(super) ns_per_nj: f64,
    pub(super) operational: bool,
    max_power: f64,
    entry: u64,
    exit: u64,
}

impl Cap {
    pub(super) fn new(state: &State, meter: &Meter) -> Self {
        let flow = meter.flow_within(state.max_power.0);
        Self {
            ns_per_nj: if state.operational { 1.0 / flow } else { f64::INFINITY },
            operational: state.operational,
            max_power: state.max_power.0,
            entry: state.entry.0,
            exit: state.exit.0,
        }
    }
}

/// A change of power state: under way, or to begin once the one under way is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// It cannot have begun before.
    after: u64,
    at: u64,
    from: PowerState,
    to: PowerState,
}

impl Drive {
    /// Set Features, Power Management. Commands wait until the new state is in force, which is
    /// after the exit latency of the old state and the entry latency of the new one; returns
    /// that instant. A number beyond the last state selects the last. Of several during a change
    /// the last one follows it.
    pub fn set_power_state(&mut self, now: Nanos, ps: PowerState) -> Nanos {
        let now = Nanos(now.0.max(self.clock));
        self.advance(now.0);
        self.stop_round(now.0);
        let ps = ps.min((self.caps.len() - 1) as PowerState);
        if ps == self.state {
            return self.change.map_or(now, |change| Nanos(change.at));
        }
        let (after, from) = match self.change {
            None => (now.0, self.state),
            // It has not begun: this one takes its place.
            Some(change) if now.0 < change.after => (change.after, change.from),
            Some(change) => (change.at, change.to),
        };
        let (old, new) = (self.caps[usize::from(from)], self.caps[usize::from(ps)]);
        let mut at = after;
        if from != ps {
            if !new.operational {
                at = at.max(self.meter.until().ceil() as u64);
            }
            at += old.exit + new.entry;
        }
        self.change = Some(Change { after, at, from, to: ps });
        self.change_at = at;
        self.state = ps;
        self.blocked_until = at;
        if new.operational {
            // Never above either state's limit while neither is surely in force.
            self.limit(now.0, self.ns_per_nj.max(self.rate(new)));
        }
        if at == now.0 {
            self.finish_change();
        }
        Nanos(at)
    }

    /// Puts a change of power state in force at its instant.
    #[cold]
    pub(super) fn finish_change(&mut self) {
        let Some(Change { at, to, .. }) = self.change.take() else { return };
        self.change_at = NEVER;
        self.meter.advance(at as f64);
        let cap = self.caps[usize::from(to)];
        if cap.operational {
            self.meter.set_ceiling(f64::INFINITY);
            self.limit(at, self.rate(cap));
        } else {
            self.stop_round(at);
            self.meter.set_ceiling(cap.max_power);
        }
    }

    /// Leaves the drive those of its idle states that it wakes from within `wake`; all when `None`.
    pub fn set_idle_wake(&mut self, now: Nanos, wake: Option<Nanos>) {
        self.advance(now.0.max(self.clock));
        self.meter.set_idle_wake(wake.map(|wake| wake.0));
    }

    /// Host-controlled and autonomous thermal management (NVMe Base, HCTM): a hot drive allows its
    /// work only `share` of what the power state does, above 0 up to 1. Base power stays.
    pub fn set_throttle(&mut self, now: Nanos, share: f64) {
        if share == self.throttle {
            return;
        }
        let now = now.0.max(self.clock);
        self.advance(now);
        self.throttle = share;
        let cap = self.caps[usize::from(self.state)];
        // A change under way takes the new share up when it is in force.
        if self.change.is_none() && cap.operational {
            self.limit(now, self.rate(cap));
        }
    }

    /// Set Features, Power Limit: the most that the drive draws in any operational state, from the
    /// call on; no limit when `None`. One below the lowest operational state's cap counts as that.
    pub fn set_power_limit(&mut self, now: Nanos, limit: Option<Watts>) {
        let now = now.0.max(self.clock);
        self.advance(now);
        let operational = self.caps.iter().filter(|cap| cap.operational);
        let least = operational.map(|cap| cap.max_power).fold(f64::INFINITY, f64::min);
        let rate = |limit: Watts| 1.0 / self.meter.flow_within(limit.0.max(least));
        self.limit_ns_per_nj = limit.map_or(0.0, rate);
        let cap = self.caps[usize::from(self.state)];
        if cap.operational {
            // While a change is under way neither its states' limits are exceeded.
            let floor = self.change.map_or(0.0, |_| self.ns_per_nj);
            self.limit(now, self.rate(cap).max(floor));
        }
    }

    /// Rate at which a state's cap, the power limit and heat let energy be earned.
    fn rate(&self, cap: Cap) -> f64 {
        cap.ns_per_nj.max(self.limit_ns_per_nj) / self.throttle
    }

    /// Changes the rate at which energy is earned, for pending work too.
    fn limit(&mut self, now: u64, ns_per_nj: f64) {
        let ahead = (self.paid - now as f64).max(0.0);
        self.paid = now as f64 + ahead * (ns_per_nj / self.ns_per_nj);
        self.ns_per_nj = ns_per_nj;
        if now as f64 <= self.meter.until() {
            self.account(now, 0.0, 0);
        }
    }

    /// An I/O command makes the drive return to its last operational state by itself
    /// (NVMe Base, Non-Operational Power States).
    #[cold]
    pub(super) fn leave_non_operational(&mut self, now: u64) {
        let last = self.caps.iter().rposition(|cap| cap.operational).unwrap_or(0);
        self.set_power_state(Nanos(now), last as PowerState);
    }
}
