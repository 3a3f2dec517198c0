//! A machine of noise: 16 cores, 8 drives.

use ebb_policy::topology::{CoreRole, DriveSpec, FanSpec, GroupSpec, Limitable, PowerStateSpec};
use ebb_policy::units::{Celsius, Hertz, Nanos, Rpm, Watts};
use ebb_policy::{
    Applied, Control, InForce, OpSignals, Origin, Outcome, PERIOD, Percentiles, Plant, Reading,
    Signal, Signals, Source, Topology,
};

/// 16 cores, 8 drives, two sockets, three fans, two jobs.
pub fn topology() -> Topology {
    let group = |role, socket| GroupSpec { role, cores: 8, min_cores: 1, socket: Some(socket) };
    let state = |watts, operational| PowerStateSpec {
        max_power: Watts(watts),
        operational,
        entry: Nanos::from_micros(5),
        exit: Nanos::from_micros(50),
    };
    let states = vec![state(25.0, true), state(14.0, true), state(9.5, true), state(3.0, false)];
    let drive = |number| DriveSpec {
        id: Some(format!("S64F{number}")),
        states: states.clone(),
        limit: Some(Celsius(70.0)),
        idle_wakes: vec![Nanos::from_micros(300), Nanos::from_millis(2)],
        rotational: false,
    };
    Topology {
        groups: vec![group(CoreRole::FrontEnd, 0), group(CoreRole::ResourceVolume, 1)],
        frequencies: (8..=26).map(|step| Hertz(f64::from(step) * 1e8)).collect(),
        drives: (0..8).map(drive).collect(),
        sockets: 2,
        throttle: Some(Celsius(95.0)),
        fans: vec![FanSpec { min_duty: 0.2, max_power: Watts(0.0) }; 3],
        jobs: 2,
        power: None,
        limitable: Limitable::default(),
    }
}

/// A machine whose readings are noise, all bits of it; some are old or missing, and now and then
/// one is nonsense.
pub struct Noise {
    state: u64,
    nonsense: bool,
}

impl Noise {
    pub fn new(nonsense: bool) -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, nonsense }
    }

    pub fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn is(&mut self, one_in: u64) -> bool {
        self.next().is_multiple_of(one_in)
    }

    fn op(&mut self, completed: u64) -> OpSignals {
        let latency = Nanos(80_000 + self.next() % 40_000);
        OpSignals {
            completed: Some(completed),
            bytes: Some(completed * 8192 + self.next() % 4096 * 512),
            mean_latency: Some(latency),
            percentiles: (!self.is(3)).then(|| Percentiles {
                p50: latency,
                p99: Nanos(latency.0 * 4),
                p999: Nanos(latency.0 * 9),
            }),
        }
    }

    fn drives(&mut self, signals: &mut Signals) {
        for drive in 0..signals.drives.len() {
            let age = Nanos(signals.now.0 % 10_000_000_000);
            let (busy, bytes) = (self.share(), self.next() % (1 << 28));
            let signal = &mut signals.drives[drive];
            signal.utilisation = Some(busy);
            signal.time = Some(Nanos((busy * 2e9) as u64));
            signal.read_bytes = Some(bytes & !511);
            signal.written_bytes = Some((bytes / 3) & !511);
            signal.power = Some(Watts(5.0 + 15.0 * busy));
            signal.temperature = Some(Celsius(40.0 + (signals.now.0 >> 34) as f64));
            signal.state = Some(signals.in_force.state(drive));
            for of in [Signal::DriveState, Signal::DriveTemperature] {
                signals.sources.set(of, drive, Source { age, origin: Origin::Measured });
            }
            let modelled = Source { age: Nanos::ZERO, origin: Origin::Modelled };
            signals.sources.set(Signal::DrivePower, drive, modelled);
        }
    }
}

impl Plant for Noise {
    fn sense(&mut self, signals: &mut Signals) {
        signals.period = Nanos(PERIOD.0 + self.next() % 100_000);
        signals.now += signals.period;
        let load = 1000 + 4000 * (signals.now.0 >> 35 & 1);
        let (reads, writes) = (load + self.next() % 200, load / 3 + self.next() % 100);
        (signals.io.reads, signals.io.writes) = (self.op(reads), self.op(writes));
        let (io, all) = (&mut signals.io, reads + writes);
        (io.completed, io.arrived) = (Some(all), Some(all + self.state % 7));
        io.bytes = Some(io.reads.bytes.unwrap() + io.writes.bytes.unwrap());
        (io.mean_latency, io.in_flight) = (io.reads.mean_latency, Some(self.state % 30));
        for group in 0..signals.groups.len() {
            let (busy, wakes) = (self.share() * 0.5, self.share() * 3e4);
            let frequency = 8e8 + (self.next() % 1_800_000) as f64 * 1e3;
            let active = signals.in_force.group(group).active;
            let signal = &mut signals.groups[group];
            (signal.active, signal.utilisation) = (Some(active), Some(busy));
            (signal.busiest, signal.wakes) = (Some((busy * 1.7).min(1.0)), Some(wakes));
            signal.frequency = Some(Hertz(frequency));
        }
        self.drives(signals);
        signals.power.cpu = Some(Watts(40.0 + 60.0 * self.share()));
        signals.power.total = (!self.is(5)).then_some(Watts(300.0));
        signals.pressure.io = Some(self.share() * 0.1);
        let at = Nanos(signals.now.0 - self.next() % 400_000_000);
        for socket in 0..signals.cooling.sockets.len() {
            let temperature = Celsius(60.0 + (self.next() % 20) as f64);
            signals.cooling.sockets[socket] = Some(Reading { at, temperature });
        }
        for fan in &mut signals.cooling.fans {
            (fan.duty, fan.speed) = (Some(0.4), Some(Rpm(4000.0 + (self.state % 50) as f64)));
        }
        if self.nonsense && self.is(40) {
            signals.groups[0].utilisation = Some(f64::from_bits(0x7ff8_dead_beef_0001));
            signals.power.cpu = Some(Watts(f64::NEG_INFINITY));
        }
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        if given.state(1) > 0 && self.is(2) {
            applied.set(Control::PowerState, 1, Outcome::Refused);
        }
    }
}
