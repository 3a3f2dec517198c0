//! A server and its signals, drawn at random from a seed.

use ebb_policy::topology::{
    CoreRole, DriveSpec, FanSpec, GroupSpec, PowerModel, PowerStateSpec, RequestWork, Topology,
};
use ebb_policy::units::{Celsius, Hertz, Nanos, Watts};
use ebb_policy::{
    Applied, InForce, JobSignals, PERIOD, Plant, PowerState, QosClass, Reading, Signals,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Caps as drives declare them: Samsung PM1743 (PACMAN §VI-A), Kioxia CD6-R and CD8-V, Micron
/// 7450, Samsung PM1733.
const DRIVES: &[&[f64]] = &[
    &[25.0, 21.0, 18.0, 14.0, 9.0],
    &[27.5, 19.8, 17.6, 15.4, 12.1, 9.9],
    &[25.0, 12.0],
    &[25.0, 20.0, 18.0, 16.0, 14.0, 12.0, 10.0, 8.25],
    &[25.0],
];

/// One power state.
pub fn state(max_power: f64, operational: bool) -> PowerStateSpec {
    let latency = Nanos::from_micros(100);
    PowerStateSpec { max_power: Watts(max_power), operational, entry: latency, exit: latency }
}

/// Three core groups and `drives` unlike drives, each with a non-operational state at the end.
pub fn server(drives: usize) -> Topology {
    let drive = |caps: &&[f64]| DriveSpec {
        states: caps.iter().map(|w| state(*w, true)).chain([state(0.05, false)]).collect(),
        idle_wakes: vec![Nanos::from_micros(1), Nanos::from_micros(200)],
        ..DriveSpec::default()
    };
    let roles = [CoreRole::FrontEnd, CoreRole::KeyValue, CoreRole::ResourceVolume];
    Topology {
        groups: roles
            .map(|role| GroupSpec { role, cores: 16, min_cores: 2, socket: None })
            .to_vec(),
        frequencies: [1.5e9, 2.0e9, 2.6e9].map(Hertz).to_vec(),
        drives: DRIVES.iter().cycle().take(drives).map(drive).collect(),
        power: Some(PowerModel {
            uncore: Watts(60.0),
            uncore_dynamic: Watts(60.0),
            core_static: Watts(2.0),
            core_dynamic: Watts(4.0),
            exponent: 2.0,
            rest: Watts(100.0),
            read: 2e-9,
            write: 3e-9,
            efficiency: 0.9,
            work: vec![RequestWork { cycles: 5000.0, ..RequestWork::default() }; 3],
            ..PowerModel::default()
        }),
        ..Topology::default()
    }
}

/// The same with two sockets, six fans that shake the first drive, and twelve jobs.
#[allow(dead_code, reason = "not every test has heat")]
pub fn heated(drives: usize) -> Topology {
    let fan = FanSpec { min_duty: 0.2, max_power: Watts(50.0) };
    let mut topology = server(drives);
    topology.drives[0].rotational = true;
    Topology { sockets: 2, fans: vec![fan; 6], jobs: 12, ..topology }
}

/// The budget that is `share` of the way from the lowest caps to the highest.
#[allow(dead_code, reason = "not every test has a budget")]
pub fn budget(topology: &Topology, share: f64) -> Watts {
    let least = topology.lowest_drive_budget();
    let most: Watts = topology.drives.iter().map(|drive| drive.cap(0)).sum();
    least + (most - least) * share
}

/// A server whose sensors nobody can predict, and whose drives obey.
pub struct Weather {
    rng: Pcg64Mcg,
    /// Share of values that are missing, and of values that are absurd.
    bad: f64,
    /// What the drives report.
    pub states: Vec<PowerState>,
}

impl Plant for Weather {
    fn sense(&mut self, signals: &mut Signals) {
        signals.now += PERIOD;
        signals.period = PERIOD;
        self.serve(signals);
        self.heat(signals);
        signals.power.total = self.value(300.0..900.0).map(Watts);
    }

    fn apply(&mut self, given: &InForce, _: &mut Applied) {
        for (own, given) in self.states.iter_mut().zip(given.states()) {
            *own = given;
        }
    }
}

impl Weather {
    pub fn new(topology: &Topology, seed: u64, bad: f64) -> Self {
        let states = vec![0; topology.drives.len()];
        Self { rng: Pcg64Mcg::seed_from_u64(seed), bad, states }
    }

    fn value(&mut self, range: std::ops::Range<f64>) -> Option<f64> {
        if self.rng.random_bool(self.bad) {
            return None;
        }
        if self.rng.random_bool(self.bad / 10.0) {
            return Some([f64::NAN, f64::INFINITY, -1.0, 1e9][self.rng.random_range(0..4)]);
        }
        Some(self.rng.random_range(range))
    }

    /// Requests, cores, drives.
    fn serve(&mut self, signals: &mut Signals) {
        let idle = self.rng.random_bool(0.2);
        let requests = |n: Option<f64>| n.filter(|n| n.is_finite()).map(|n| n.max(0.0) as u64);
        let completed = if idle { Some(0.0) } else { self.value(1.0..1e6) };
        signals.io.completed = requests(completed);
        signals.io.arrived = signals.io.completed;
        signals.io.bytes = signals.io.completed.map(|n| n * 4096);
        signals.io.in_flight = requests(self.value(0.0..500.0));
        let latency = self.value(50.0..2000.0).filter(|_| !idle);
        signals.io.mean_latency = requests(latency).map(Nanos::from_micros);
        signals.io.max_latency =
            signals.io.mean_latency.map(|mean| Nanos(mean.0.saturating_mul(3)));
        signals.background_pending = requests(self.value(0.0..1e9));
        for g in 0..signals.groups.len() {
            let (utilisation, busiest) = (self.value(0.0..1.0), self.value(0.0..1.0));
            let frequency = self.value(1.5e9..2.6e9).map(Hertz);
            let group = &mut signals.groups[g];
            group.active = Some(8);
            (group.utilisation, group.busiest, group.frequency) = (utilisation, busiest, frequency);
        }
        for d in 0..self.states.len() {
            let ps = self.states[d];
            let power = self.value(4.0..25.0).map(Watts);
            let state = self.value(0.0..1.0).map(|_| ps);
            let drive = &mut signals.drives[d];
            (drive.power, drive.state) = (power, state);
        }
    }

    /// Temperatures that wander, jobs that come and go.
    fn heat(&mut self, signals: &mut Signals) {
        let at = signals.now;
        signals.power.cpu = self.value(50.0..250.0).map(Watts);
        signals.power.fans = self.value(5.0..300.0).map(Watts);
        signals.cooling.inlet =
            Some(Reading { at, temperature: Celsius(self.rng.random_range(20.0..30.0)) });
        // Slow enough for sensors that are watched for jumps: a minute and a half from 40 to 100.
        let phase = at.seconds() % 180.0 / 180.0;
        let wave = 70.0 + 30.0 * (phase * std::f64::consts::TAU).sin();
        for s in 0..signals.cooling.sockets.len() {
            let offset = self.rng.random_range(0.0..2.0) + 6.0 * s as f64;
            let reading = Reading { at, temperature: Celsius((wave + offset).round()) };
            let lost = self.rng.random_bool(self.bad);
            signals.cooling.sockets[s] = (!lost).then_some(reading);
        }
        for job in 0..signals.jobs.len() {
            signals.jobs[job] = JobSignals {
                present: self.rng.random_bool(0.8),
                class: QosClass::ALL[job % 4],
                socket: (job % 2) as u16,
                cpu: self.rng.random_range(0.0..1.0),
                disk_bytes: self.rng.random_range(0..50_000_000),
                waiting: self.rng.random_bool(0.2),
                ..JobSignals::default()
            };
        }
    }
}
