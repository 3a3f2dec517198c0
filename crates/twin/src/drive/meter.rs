//! Energy over time: the operations' energy spread over the time they take, the base power
//! under it, and the idle states between. Units: W, ns, nJ (1 W for 1 ns is 1 nJ).

use super::profile::DriveProfile;

#[derive(Debug, Clone, Copy)]
struct IdleStep {
    after: f64,
    power: f64,
    wake: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Meter {
    ready: f64,
    /// Base power above `ready` when fully awake.
    awake: f64,
    /// `awake / knee`.
    slope: f64,
    idle: Box<[IdleStep]>,
    /// How many of them it may enter.
    allowed: usize,
    /// Power of the non-operational state in force; infinite in an operational one.
    ceiling: f64,
    /// Everything up to here is in `drawn`.
    last: f64,
    drawn: f64,
    /// Energy of accepted work not yet drawn; flows at `flow` until `until`.
    pending: f64,
    flow: f64,
    until: f64,
}

impl Meter {
    pub(super) fn new(profile: &DriveProfile) -> Self {
        let power = &profile.power;
        let step = |idle: &super::profile::Idle| IdleStep {
            after: idle.after.0 as f64,
            power: idle.power.0,
            wake: idle.wake.0,
        };
        Self {
            ready: power.ready.0,
            awake: power.active.0 - power.ready.0,
            slope: (power.active.0 - power.ready.0) / power.knee.0,
            idle: profile.idle.iter().map(step).collect(),
            allowed: profile.idle.len(),
            ceiling: f64::INFINITY,
            last: 0.0,
            drawn: 0.0,
            pending: 0.0,
            flow: 0.0,
            until: 0.0,
        }
    }

    /// The most power that operations may draw so that the drive stays within `cap`: the
    /// inverse of `ready + flow + min(awake, slope * flow)`.
    pub(super) fn flow_within(&self, cap: f64) -> f64 {
        let resting = (cap - self.ready) / (1.0 + self.slope);
        resting.max(cap - self.ready - self.awake)
    }

    /// Accounts for everything up to `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: f64) {
        if now <= self.last {
            return;
        }
        let base = self.ready + self.awake.min(self.slope * self.flow);
        if now < self.until {
            let drained = self.flow * (now - self.last);
            self.pending = (self.pending - drained).max(0.0);
            self.drawn += drained + base * (now - self.last);
        } else {
            if self.until > self.last {
                self.drawn += self.pending + base * (self.until - self.last);
                self.pending = 0.0;
                self.flow = 0.0;
                self.last = self.until;
            }
            self.drawn += self.idle_energy(self.last - self.until, now - self.until);
        }
        self.last = now;
    }

    /// Energy between two instants of one idle period, counted from its start.
    fn idle_energy(&self, from: f64, to: f64) -> f64 {
        let mut energy = 0.0;
        let (mut at, mut power) = (from, self.ready);
        for step in &self.idle[..self.allowed] {
            if step.after >= to {
                break;
            }
            if step.after > at {
                energy += power.min(self.ceiling) * (step.after - at);
                at = step.after;
            }
            power = step.power;
        }
        energy + power.min(self.ceiling) * (to - at)
    }

    /// Delay of a command that arrives at `now`: the wake-up from the idle state in force.
    #[inline]
    pub(super) fn wake(&self, now: f64) -> u64 {
        let idle_for = now - self.until;
        if idle_for <= 0.0 {
            return 0;
        }
        let idle = &self.idle[..self.allowed];
        idle.iter().rev().find(|step| step.after <= idle_for).map_or(0, |step| step.wake)
    }

    /// Leaves the drive those idle states that it wakes from within `wake` ns, or all.
    pub(super) fn set_idle_wake(&mut self, wake: Option<u64>) {
        let bears = |step: &&IdleStep| wake.is_none_or(|wake| step.wake <= wake);
        self.allowed = self.idle.iter().take_while(bears).count();
    }

    /// Adds the energy of work accepted at `now`, to flow evenly until `until` together with
    /// all that is pending, or longer where it must not flow faster than 1 / `ns_per_nj`.
    #[inline]
    pub(super) fn add(&mut self, now: f64, energy: f64, until: f64, ns_per_nj: f64) {
        self.pending += energy;
        self.until = until.max(now + self.pending * ns_per_nj);
        let span = self.until - now;
        self.flow = if span > 0.0 { self.pending / span } else { 0.0 };
    }

    /// Takes back energy that was added for work now given up.
    pub(super) fn cancel(&mut self, now: f64) {
        self.pending = 0.0;
        self.flow = 0.0;
        self.until = now;
    }

    /// Limits the drive to `ceiling` while it idles (a non-operational state).
    pub(super) fn set_ceiling(&mut self, ceiling: f64) {
        self.ceiling = ceiling;
    }

    /// When all accepted work is done and paid for.
    pub(super) fn until(&self) -> f64 {
        self.until
    }

    /// Energy drawn so far, in joules.
    pub(super) fn joules(&self) -> f64 {
        self.drawn * 1e-9
    }
}
