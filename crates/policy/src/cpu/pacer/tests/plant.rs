//! A small analytic server: each group a queue, latency = other + Σ service / f · (1 + queueing).

use crate::topology::{CoreRole, GroupSpec, Topology};
use crate::units::{Hertz, Nanos};
use crate::{
    GroupSetting, GroupSignals, Guard, InForce, IoSignals, Limits, PERIOD, Policy, Request, Signals,
};

/// The server and what it is asked to do.
#[derive(Debug, Clone)]
pub struct Plant {
    pub topology: Topology,
    /// Requests per second.
    pub rate: f64,
    /// CPU seconds per request in each group at the highest frequency.
    pub service: Vec<f64>,
    /// Latency that no core and no frequency changes, in seconds.
    pub other: f64,
    /// One queue per group (M/M/n, Sakasegawa's approximation) or one per core (M/M/1).
    pub pooled: bool,
    /// Relative standard deviation, about, of a period's mean latency.
    pub noise: f64,
    pub signals: Signals,
    pub random: u64,
}

impl Plant {
    pub fn new(rate: f64) -> Self {
        let group = |role, cores| GroupSpec { role, cores, min_cores: 2, socket: None };
        let topology = Topology {
            groups: vec![
                group(CoreRole::FrontEnd, 48),
                group(CoreRole::KeyValue, 16),
                group(CoreRole::ResourceVolume, 32),
            ],
            frequencies: (6..=20).map(|step| Hertz(f64::from(step) * 0.13e9)).collect(),
            ..Topology::default()
        };
        Self {
            signals: Signals::new(&topology),
            topology,
            rate,
            service: vec![80e-6, 26e-6, 53e-6],
            other: 150e-6,
            pooled: true,
            noise: 0.0,
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }

    pub fn utilisation(&self, g: usize, control: GroupSetting) -> f64 {
        let slow = self.topology.max_frequency() / control.frequency;
        self.rate * self.service[g] * slow / f64::from(control.active)
    }

    /// Mean latency in seconds.
    pub fn latency(&self, groups: &[GroupSetting]) -> f64 {
        let cpu = groups.iter().enumerate().map(|(g, control)| {
            let service = self.service[g] * (self.topology.max_frequency() / control.frequency);
            let u = self.utilisation(g, *control);
            let n = f64::from(control.active);
            let wait = match (u < 0.99, self.pooled) {
                (false, _) => 1000.0,
                (true, true) => u.powf((2.0 * (n + 1.0)).sqrt() - 1.0) / (n * (1.0 - u)),
                (true, false) => u / (1.0 - u),
            };
            service * (1.0 + wait)
        });
        self.other + cpu.sum::<f64>()
    }

    /// What `groups` come to under the ceilings in force.
    pub fn under(&self, in_force: &InForce, groups: &[GroupSetting]) -> Vec<GroupSetting> {
        let ceilings = self.topology.groups.iter().map(|group| in_force.ceiling(group.socket));
        let each = groups.iter().zip(ceilings);
        each.map(|(group, f)| GroupSetting { frequency: group.frequency.min(f), ..*group })
            .collect()
    }

    pub fn native_latency(&self) -> f64 {
        self.latency(&InForce::new(&self.topology).groups().collect::<Vec<_>>())
    }

    /// Sum of two uniform numbers: mean 0, standard deviation 1.
    fn random(&mut self) -> f64 {
        let mut uniform = || {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (self.random >> 11) as f64 / (1_u64 << 53) as f64
        };
        (uniform() + uniform() - 1.0) * 6_f64.sqrt()
    }

    /// One period with this in force.
    pub fn sense(&mut self, in_force: &InForce) -> &Signals {
        let noisy = 1.0 + self.noise * self.random();
        let groups: Vec<_> = in_force.groups().collect();
        let groups = self.under(in_force, &groups);
        let latency = self.latency(&groups) * noisy;
        let requests = (self.rate * PERIOD.seconds()) as u64;
        let mean_latency = (requests > 0).then_some(Nanos::from_seconds(latency));
        self.signals.now += PERIOD;
        self.signals.period = PERIOD;
        self.signals.io = IoSignals {
            arrived: Some(requests),
            completed: Some(requests),
            bytes: Some(requests * 8192),
            mean_latency,
            in_flight: Some(0),
            ..IoSignals::default()
        };
        for (g, control) in groups.into_iter().enumerate() {
            let u = self.utilisation(g, control).min(1.0);
            self.signals.groups[g] = GroupSignals {
                active: Some(control.active),
                utilisation: Some(u),
                busiest: Some(u),
                wakes: None,
                frequency: Some(control.frequency),
            };
        }
        &self.signals
    }
}

/// A policy in closed loop with a plant, behind the guard.
pub struct Loop<P> {
    pub plant: Plant,
    pub policy: P,
    pub in_force: InForce,
    pub request: Request,
    guard: Guard,
}

impl<P: Policy> Loop<P> {
    pub fn new(plant: Plant, policy: P) -> Self {
        let (in_force, request) = (InForce::new(&plant.topology), Request::new(&plant.topology));
        let guard = Guard::new(&plant.topology, Limits::default());
        Self { plant, policy, in_force, request, guard }
    }

    /// One period; `change` edits what is sensed.
    pub fn step_with(&mut self, change: impl FnOnce(&mut Signals)) {
        self.plant.sense(&self.in_force);
        change(&mut self.plant.signals);
        let signals = &mut self.plant.signals;
        signals.in_force.clone_from(&self.in_force);
        self.policy.step(signals, &mut self.request);
        self.in_force.clone_from(self.guard.enforce(&self.request, signals));
    }

    pub fn step(&mut self) {
        self.step_with(|_| {});
    }

    /// Runs, and returns the mean latency over that time relative to native, and the number of
    /// changes of controls.
    pub fn run(&mut self, seconds: u64) -> (f64, usize) {
        let (mut sum, mut changes) = (0.0, 0);
        for _ in 0..seconds * 2 {
            sum += self.plant.latency(&self.groups()) / self.plant.native_latency();
            self.step();
            changes += usize::from(!self.reasons().is_empty());
        }
        (sum / (seconds * 2) as f64, changes)
    }

    /// Reasons of the last step's decisions.
    pub fn reasons(&self) -> Vec<&'static str> {
        let Signals { in_force, now, .. } = &self.plant.signals;
        self.in_force.decisions(in_force, *now).map(|decision| decision.reason).collect()
    }

    pub fn groups(&self) -> Vec<GroupSetting> {
        self.in_force.groups().collect()
    }

    pub fn cores(&self) -> u16 {
        self.in_force.groups().map(|group| group.active).sum()
    }

    pub fn ghz(&self) -> f64 {
        self.in_force.group(0).frequency.0 / 1e9
    }
}
