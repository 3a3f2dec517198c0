//! A small server with heat: sockets one behind the other in the air of some fans, sensors that
//! lag and round, hardware that throttles, jobs, drives, and faults. Numbers are of the size that
//! EADC's E6 has.

use super::poison::{Field, poison};
use crate::sense::thresholds::EMERGENCY;
use crate::topology::{CoreRole, DriveSpec, FanSpec, GroupSpec, PowerStateSpec, Topology};
use crate::units::{Celsius, Hertz, Nanos, Rpm, Watts};
use crate::{
    DriveSignals, FanSignals, Guard, InForce, JobSignals, Limits, PERIOD, Policy, QosClass,
    Reading, Request, Signals,
};

/// Inner time step in seconds.
const DT: f64 = 0.1;
/// Steps in a period.
const STEPS: usize = 5;

/// What is wrong with a sensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SensorFault {
    Lost,
    Stuck,
    /// Says so much more than is true, in kelvin.
    Lies(f64),
    /// Says this, in °C.
    Absurd(f64),
}

/// What is wrong with a fan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FanFault {
    Dead,
    /// Keeps the speed that it has.
    Refuses,
}

/// A job: how busy it keeps a core, and bytes per second from the disks at their full speed.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub cpu: f64,
    pub disk: f64,
    pub class: QosClass,
}

/// Physics.
#[derive(Debug, Clone)]
pub struct Physics {
    pub ambient: f64,
    /// K/W: conduction to the heat sink, and convection from it at full speed.
    pub conduction: f64,
    pub convection: f64,
    /// J/K.
    pub capacity: f64,
    /// W per socket: idle, per busy core at the highest frequency, leakage at 60 °C.
    pub idle: f64,
    pub core: f64,
    pub leakage: f64,
    /// Growth of leakage per kelvin.
    pub growth: f64,
    /// W of all fans: what grows with the cube of the speed, and at rest; a dead one draws nothing.
    pub fans: f64,
    pub fans_idle: f64,
    /// Share of a socket's rise that the one behind it breathes, at full speed.
    pub preheat: f64,
    /// Seconds; pure dead time (a polled controller) or first order.
    pub lag: f64,
    pub dead_time: bool,
}

impl Default for Physics {
    fn default() -> Self {
        Self {
            ambient: 25.0,
            conduction: 0.25,
            convection: 0.15,
            capacity: 250.0,
            idle: 20.0,
            core: 9.0,
            leakage: 15.0,
            growth: 0.02,
            fans: 300.0,
            fans_idle: 6.0,
            preheat: 0.03,
            lag: 10.0,
            dead_time: false,
        }
    }
}

/// A socket's heat and sensor.
#[derive(Debug, Clone)]
struct Socket {
    sink: f64,
    die: f64,
    sensor: f64,
    /// The hardware slows it down.
    throttled: bool,
    past: std::collections::VecDeque<f64>,
    said: f64,
}

/// The server.
#[derive(Debug, Clone)]
pub struct Plant {
    pub physics: Physics,
    pub topology: Topology,
    pub jobs: Vec<Job>,
    /// Extra heat on every socket that no job accounts for, in busy cores.
    pub background: f64,
    pub sensor_faults: Vec<Option<SensorFault>>,
    pub fan_faults: Vec<Option<FanFault>>,
    pub curve: Option<super::super::Curve>,
    pub drive_power: f64,
    pub signals: Signals,
    sockets: Vec<Socket>,
    duties: Vec<f64>,
    speeds: Vec<f64>,
    pub drive: f64,
    placed: Vec<u16>,
    /// Bytes and CPU seconds done by each job.
    pub done: Vec<(f64, f64)>,
    /// Joules.
    pub energy: f64,
}

fn drive() -> DriveSpec {
    let max_power = Watts(12.0);
    let latency = Nanos::ZERO;
    DriveSpec {
        id: None,
        states: vec![PowerStateSpec {
            max_power,
            operational: true,
            entry: latency,
            exit: latency,
        }],
        limit: Some(Celsius(70.0)),
        rotational: true,
    }
}

impl Plant {
    /// Two sockets of eight cores, six fans, `jobs` on them in turn.
    pub fn new(physics: Physics, jobs: Vec<Job>) -> Self {
        Self::with(physics, jobs, 2, 6)
    }

    pub fn with(physics: Physics, jobs: Vec<Job>, sockets: u16, fans: usize) -> Self {
        let group = |socket| GroupSpec {
            role: CoreRole::Compute,
            cores: 8,
            min_cores: 1,
            socket: Some(socket),
        };
        let rated = (physics.fans + physics.fans_idle) / fans as f64;
        let fan = FanSpec { min_duty: 0.2, max_power: Watts(rated) };
        let topology = Topology {
            groups: (0..sockets).map(group).collect(),
            frequencies: (10..=26).map(|step| Hertz(f64::from(step) * 1e8)).collect(),
            drives: vec![drive()],
            sockets,
            throttle: Some(EMERGENCY),
            fans: vec![fan; fans],
            jobs: jobs.len() as u16,
        };
        let ambient = physics.ambient;
        let past = std::iter::repeat_n(ambient, (physics.lag / DT) as usize).collect();
        let (sink, die, sensor, said) = (ambient, ambient, ambient, ambient);
        let socket = Socket { sink, die, sensor, throttled: false, past, said };
        Self {
            signals: Signals::new(&topology),
            sensor_faults: vec![None; usize::from(sockets)],
            fan_faults: vec![None; fans],
            curve: None,
            background: 0.0,
            drive_power: 6.0,
            sockets: vec![socket; usize::from(sockets)],
            duties: vec![0.3; fans],
            speeds: vec![0.3; fans],
            drive: ambient,
            placed: (0..jobs.len()).map(|job| (job % usize::from(sockets)) as u16).collect(),
            done: vec![(0.0, 0.0); jobs.len()],
            energy: 0.0,
            physics,
            topology,
            jobs,
        }
    }

    /// The hottest silicon, in truth.
    pub fn hottest(&self) -> f64 {
        self.sockets.iter().map(|socket| socket.die).fold(f64::MIN, f64::max)
    }

    /// Mean speed of the fans, as a share of full speed.
    pub fn air(&self) -> f64 {
        self.speeds.iter().sum::<f64>() / self.speeds.len() as f64
    }

    fn resistance(&self) -> f64 {
        self.physics.convection * self.air().max(0.03).powf(-0.8)
    }

    /// Where the hottest silicon ends with everything done for it: every healthy fan at full
    /// speed, the lowest frequency, jobs at their least.
    pub fn steady_rise(&self) -> f64 {
        let mut plant = self.clone();
        let mut request = Request::new(&plant.topology);
        for fan in 0..plant.speeds.len() {
            request.fan_duty.ask(fan, 1.0, "test:safe");
        }
        for socket in 0..plant.sockets.len() {
            request.frequency_cap.ask(socket, plant.topology.min_frequency(), "test:safe");
            plant.sockets[socket].sink = 60.0;
        }
        for job in 0..plant.jobs.len() {
            request.job_share.ask(job, crate::guard::MIN_JOB_SHARE, "test:safe");
        }
        let mut in_force = InForce::new(&plant.topology);
        in_force.follow(&request);
        for _ in 0..2000 {
            plant.sense(&in_force);
        }
        plant.hottest()
    }

    fn fan_power(&self) -> f64 {
        let alive = |(fault, _): &(&Option<FanFault>, _)| **fault != Some(FanFault::Dead);
        let fans = self.fan_faults.iter().zip(&self.speeds).filter(alive);
        let drawn =
            fans.map(|(_, speed)| self.physics.fans_idle + self.physics.fans * speed.powi(3));
        drawn.sum::<f64>() / self.speeds.len() as f64
    }

    /// Share of the disks' throughput that the vibration leaves.
    pub fn throughput(&self) -> f64 {
        self.curve.as_ref().map_or(1.0, |curve| curve.throughput(self.air()))
    }

    fn leakage(&self, die: f64) -> f64 {
        // Far beyond the red line the exponential means nothing any more.
        self.physics.leakage * (self.physics.growth * (die.min(130.0) - 60.0)).exp()
    }

    /// One period with this in force.
    pub fn sense(&mut self, in_force: &InForce) -> &Signals {
        self.obey(in_force);
        let top = self.topology.max_frequency();
        let ceiling = |s: usize| in_force.ceiling(Some(s as u16)).min(top) / top;
        let factors: Vec<f64> = (0..self.sockets.len()).map(ceiling).collect();
        let (mut cpu, mut fans) = (0.0, 0.0);
        let mut busy = vec![self.background; self.sockets.len()];
        for (j, job) in self.jobs.iter().enumerate() {
            busy[usize::from(self.placed[j])] += job.cpu * in_force.share(j);
        }
        for _ in 0..STEPS {
            cpu += self.heat(&busy, &factors) / STEPS as f64;
            fans += self.fan_power() / STEPS as f64;
        }
        let period = PERIOD.seconds();
        self.energy += (cpu + fans) * period;
        self.signals.now += PERIOD;
        self.signals.period = PERIOD;
        self.signals.power.cpu = Some(Watts(cpu));
        self.signals.power.fans = Some(Watts(fans));
        self.report(&busy, in_force, period);
        &self.signals
    }

    /// Fans, placement.
    fn obey(&mut self, in_force: &InForce) {
        let board = ((self.hottest() - 50.0) / 30.0).clamp(0.2, 1.0);
        for (f, duty) in in_force.fan_duty.values().enumerate() {
            if self.fan_faults[f].is_none() {
                self.duties[f] = duty.unwrap_or(board);
            }
        }
        for (placed, socket) in self.placed.iter_mut().zip(in_force.job_socket.values()) {
            *placed = socket.unwrap_or(*placed);
        }
    }

    /// One step; returns the processors' power.
    fn heat(&mut self, busy: &[f64], factors: &[f64]) -> f64 {
        for (f, speed) in self.speeds.iter_mut().enumerate() {
            let wanted = match self.fan_faults[f] {
                Some(FanFault::Dead) => 0.0,
                _ => self.duties[f],
            };
            *speed += (wanted - *speed) * DT / 2.0;
        }
        let convection = self.resistance();
        let (mut air, mut total) = (self.physics.ambient, 0.0);
        for s in 0..self.sockets.len() {
            // Dynamic power falls with f V^2, about the cube of the frequency.
            let lowest = self.topology.min_frequency() / self.topology.max_frequency();
            let factor = if self.sockets[s].throttled { lowest } else { factors[s] };
            let dynamic = self.physics.core * busy[s].min(8.0) * factor.powi(3);
            let power = self.physics.idle + dynamic + self.leakage(self.sockets[s].die);
            let (physics, socket) = (&self.physics, &mut self.sockets[s]);
            let out = (socket.sink - air) / convection;
            socket.sink += (power - out) * DT / physics.capacity;
            socket.die += (socket.sink + power * physics.conduction - socket.die) * DT / 1.0;
            let throttle = self.topology.throttle.map_or(f64::MAX, |at| at.0);
            let release = if socket.throttled { throttle - 5.0 } else { throttle };
            socket.throttled = socket.die >= release;
            air += physics.preheat * out * self.speeds.len() as f64
                / self.speeds.iter().sum::<f64>().max(0.2);
            socket.past.push_back(socket.die);
            let late = socket.past.pop_front().unwrap_or(socket.die);
            socket.sensor += (socket.die - socket.sensor) * DT / physics.lag.max(DT);
            if physics.dead_time {
                socket.sensor = late;
            }
            total += power;
        }
        let drive = self.physics.ambient + self.drive_power * 1.2 * self.air().powf(-0.8);
        self.drive += (drive - self.drive) * DT / 300.0;
        total
    }

    fn report(&mut self, busy: &[f64], in_force: &InForce, period: f64) {
        let top = self.topology.max_frequency();
        let now = self.signals.now;
        for (s, socket) in self.sockets.iter_mut().enumerate() {
            let honest = socket.sensor.round();
            let said = match self.sensor_faults[s] {
                None => Some(honest),
                Some(SensorFault::Lost) => None,
                Some(SensorFault::Stuck) => Some(socket.said),
                Some(SensorFault::Lies(by)) => Some(honest + by),
                Some(SensorFault::Absurd(value)) => Some(value),
            };
            socket.said = said.unwrap_or(socket.said);
            self.signals.cooling.sockets[s] =
                said.map(|t| Reading { at: now, temperature: Celsius(t) });
            self.signals.groups[s].active = 8;
            self.signals.groups[s].frequency = Some(in_force.ceiling(Some(s as u16)).min(top));
            self.signals.groups[s].utilisation = Some((busy[s] / 8.0).min(1.0));
        }
        self.signals.cooling.inlet =
            Some(Reading { at: now, temperature: Celsius(self.physics.ambient) });
        for (f, fan) in self.signals.cooling.fans.iter_mut().enumerate() {
            let speed = Some(Rpm(self.speeds[f] * 10_000.0));
            *fan = FanSignals { duty: Some(self.duties[f]), speed };
        }
        let left = self.throughput();
        for (j, job) in self.jobs.iter().enumerate() {
            let share = in_force.share(j);
            let (bytes, cpu) = (job.disk * left * share * period, job.cpu * share);
            self.done[j].0 += bytes;
            self.done[j].1 += cpu * period;
            self.signals.jobs[j] = JobSignals {
                present: true,
                class: job.class,
                socket: self.placed[j],
                cpu,
                disk_bytes: bytes as u64,
                waiting: false,
                ..JobSignals::default()
            };
        }
        self.signals.io.arrived = Some(1);
        self.signals.io.completed = Some(1);
        self.signals.io.mean_latency = Some(Nanos::from_millis(1));
        self.signals.io.bytes = Some(self.signals.jobs.iter().map(|job| job.disk_bytes).sum());
        self.signals.drives[0] = DriveSignals {
            power: Some(Watts(self.drive_power)),
            state: Some(0),
            temperature: Some(Celsius(self.drive.round())),
            utilisation: None,
            ..DriveSignals::default()
        };
    }
}

/// A policy in closed loop with the plant, behind the guard.
pub struct Loop {
    pub plant: Plant,
    pub policy: Box<dyn Policy>,
    pub in_force: InForce,
    request: Request,
    guard: Guard,
    /// What the signals say instead of the truth.
    pub poison: Option<(Field, f64)>,
    /// Nobody measures the inlet.
    pub blind: bool,
    /// Hottest silicon so far.
    pub peak: f64,
}

impl Loop {
    pub fn new(plant: Plant, policy: Box<dyn Policy>) -> Self {
        let (in_force, request) = (InForce::new(&plant.topology), Request::new(&plant.topology));
        let guard = Guard::new(&plant.topology, Limits::default());
        Self { plant, policy, in_force, request, guard, poison: None, blind: false, peak: f64::MIN }
    }

    /// One period.
    pub fn step(&mut self) {
        self.plant.sense(&self.in_force);
        let mut signals = self.plant.signals.clone();
        if self.blind {
            signals.cooling.inlet = None;
        }
        if let Some((field, value)) = self.poison {
            poison(&mut signals, field, value);
        }
        signals.in_force.clone_from(&self.in_force);
        self.policy.step(&signals, &mut self.request);
        self.in_force.clone_from(self.guard.enforce(&self.request, &signals));
        self.plant.signals.in_force.clone_from(&signals.in_force);
        self.peak = self.peak.max(self.plant.hottest());
    }

    pub fn run(&mut self, seconds: u64) {
        for _ in 0..2 * seconds {
            self.step();
        }
    }

    /// Whether the guard gives something else than is asked for, but for a fan that is to slow
    /// down too fast.
    pub fn guarded(&self) -> bool {
        self.in_force.held().any(|(_, _, reason)| reason != "guard:fan-rate")
    }

    /// Shares of the time for which jobs may run.
    pub fn shares(&self) -> Vec<f64> {
        (0..self.plant.jobs.len()).map(|job| self.in_force.share(job)).collect()
    }

    /// The duty of the first fan; full when the board has it.
    pub fn duty(&self) -> f64 {
        self.in_force.fan_duty.value(0).unwrap_or(1.0)
    }

    /// Runs, and returns how the duty moved meanwhile: from, to, and how often it turned round
    /// by more than a hundredth.
    pub fn swing(&mut self, seconds: u64) -> (f64, f64, usize) {
        let (mut low, mut high, mut turns) = (1.0_f64, 0.0_f64, 0);
        let (mut last, mut up) = (self.duty(), None);
        for _ in 0..2 * seconds {
            self.step();
            let duty = self.duty();
            (low, high) = (low.min(duty), high.max(duty));
            if (duty - last).abs() > 1e-2 {
                turns += usize::from(up == Some(duty < last));
                up = Some(duty > last);
                last = duty;
            }
        }
        (low, high, turns)
    }
}
