//! The server's side: the twin's models of cores, heat, fans and sensors, in steps.

use std::collections::VecDeque;
use std::fmt::Write;

use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_twin::Profile;
use ebb_twin::fan::{Fan, FanFault, Fans};
use ebb_twin::thermal::leakage::voltage;
use ebb_twin::thermal::{Air, Emergency, Heat, Network, Sensor, SensorFault, Thermal};

use crate::Error;
use crate::kernel::{Commands, Kernel, Work};

/// Longest step of the network, seconds: that of the twin's engine.
const STEP: f64 = 0.1;

/// One server.
pub struct Server {
    profile: Profile,
    thermal: Thermal,
    fans_spec: Fans,
    network: Network,
    fans: Vec<Fan>,
    /// What they were told to turn at, by whoever has them.
    duties: Vec<f64>,
    sockets: Vec<Socket>,
    inlet: Sensor,
    /// Power of a drive, taken as constant: the host of the drives has what they really draw.
    drive_watts: Vec<f64>,
    /// Of the whole server at the wall, W, and since the start, J.
    wall: f64,
    wall_joules: f64,
    /// The same since the meter's lag.
    walls: VecDeque<(Nanos, f64)>,
    /// What one more watt of a drive adds there.
    drive_watt: f64,
    /// The faults in force, as they were told.
    faults: String,
}

struct Socket {
    sensor: Sensor,
    emergency: Emergency,
    /// Highest frequency that its firmware allows, for heat or for its power limit.
    clamp: Option<Hertz>,
    /// With leakage, W.
    watts: f64,
    /// Since the start, J.
    joules: f64,
}

impl Server {
    /// The server that a profile with heat describes, with the CPUs that the kernel has.
    pub fn new(profile: Profile, kernel: &Kernel) -> Result<Self, Error> {
        let (Some(thermal), Some(fans_spec)) = (profile.thermal.clone(), profile.fans.clone())
        else {
            return Err(format!("profile '{}' has no [thermal]", profile.name).into());
        };
        let groups = profile.topology().groups;
        let cores: usize = groups.iter().map(|group| usize::from(group.cores)).sum();
        if cores != kernel.cpus() {
            return Err(format!("{} CPUs, the profile has {cores} cores", kernel.cpus()).into());
        }
        let start = thermal.socket.start.0;
        let socket = |number: usize| Socket {
            sensor: Sensor::new(&thermal.sensor, start, number as u64),
            emergency: Emergency::default(),
            clamp: None,
            watts: 0.0,
            joules: 0.0,
        };
        let duty = fans_spec.firmware_duty(Some(start), None);
        let drives = usize::from(profile.drives.count);
        let ready = profile.drive().map_or(0.0, |drive| drive.power.ready.0);
        Ok(Self {
            network: Network::new(&thermal, drives),
            fans: vec![Fan::new(&fans_spec, duty); usize::from(fans_spec.count)],
            duties: vec![duty; usize::from(fans_spec.count)],
            sockets: (0..usize::from(profile.sockets())).map(socket).collect(),
            inlet: Sensor::new(&thermal.sensor, thermal.inlet.0, u64::MAX),
            drive_watts: vec![ready; drives],
            wall: 0.0,
            wall_joules: 0.0,
            walls: VecDeque::new(),
            drive_watt: 1.0,
            faults: String::new(),
            profile,
            thermal,
            fans_spec,
        })
    }

    /// Breaks what the lines say, and mends everything else.
    pub fn break_by(&mut self, faults: &str) -> Result<(), Error> {
        if self.faults == faults {
            return Ok(());
        }
        self.faults = faults.to_owned();
        self.fans.iter_mut().for_each(|fan| fan.set_fault(FanFault::None));
        self.sockets.iter_mut().for_each(|socket| socket.sensor.set_fault(SensorFault::None));
        self.inlet.set_fault(SensorFault::None);
        for line in faults.lines() {
            self.break_one(line).ok_or_else(|| format!("no such fault: {line}"))?;
        }
        Ok(())
    }

    fn break_one(&mut self, line: &str) -> Option<()> {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["fan", number, how] = words[..] {
            let fault = match how {
                "stalled" => FanFault::Stalled,
                "dead" => FanFault::Dead,
                _ => return None,
            };
            self.fans.get_mut(number.parse::<usize>().ok()?)?.set_fault(fault);
            return Some(());
        }
        let (sensor, how) = match &words[..] {
            ["inlet", how @ ..] => (&mut self.inlet, how),
            ["socket", number, how @ ..] => {
                (&mut self.sockets.get_mut(number.parse::<usize>().ok()?)?.sensor, how)
            }
            _ => return None,
        };
        sensor.set_fault(match how {
            ["lost"] => SensorFault::Lost,
            ["stuck"] => SensorFault::Stuck,
            ["lying", off] => SensorFault::Lying(off.parse().ok()?),
            _ => return None,
        });
        Some(())
    }

    /// Lets `seconds` pass that end at `now`; what sensors say then, for the kernel.
    pub fn pass(&mut self, now: Nanos, seconds: f64, commands: &Commands, work: &[Work]) -> String {
        let mut watts = vec![0.0; self.sockets.len()];
        let mut leakage = vec![0.0; self.sockets.len()];
        let own = |socket: usize| work.iter().enumerate().filter(move |(_, w)| w.socket == socket);
        for (socket, sum) in watts.iter_mut().enumerate() {
            let cores = || own(socket).map(|(cpu, work)| (commands.frequency(cpu), work));
            *sum = self.socket_watts(cores(), Hertz(f64::INFINITY));
            let highest = cores().map(|(frequency, _)| frequency.0).fold(0.0, f64::max);
            leakage[socket] = self.leakage(socket, highest);
            let mut clamp = self.limited(commands.limit(socket), leakage[socket], &cores);
            let die = self.network.die(socket);
            let this = &mut self.sockets[socket];
            if this.emergency.observe(&self.thermal.emergency, die) {
                let slow = self.thermal.emergency.frequency;
                clamp = Some(clamp.map_or(slow, |clamp| clamp.min(slow)));
            }
            this.clamp = clamp;
            this.watts = *sum + leakage[socket];
            this.joules += this.watts * seconds;
        }
        self.turn(commands);
        let fans = self.warm(seconds);
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            socket.sensor.observe(now, self.network.die(number));
        }
        self.inlet.observe(now, self.thermal.inlet.0);
        (self.wall, self.drive_watt) = self.at_the_wall(fans);
        self.wall_joules += self.wall * seconds;
        self.sensed(now)
    }

    /// Power of the cores of a socket and of what lies around them, without leakage, where no
    /// core is faster than `clamp`.
    fn socket_watts<'a>(
        &self,
        cores: impl Iterator<Item = (Hertz, &'a Work)>,
        clamp: Hertz,
    ) -> f64 {
        let cpu = &self.profile.cpu;
        let core = |(frequency, work): (Hertz, &Work)| {
            let Some(busy) = work.busy else { return cpu.parked.0 };
            let dynamic = cpu.dynamic(frequency.min(clamp)).0;
            let awake = cpu.core_static.0 + dynamic * cpu.poll_share;
            // What no state counts is on its way into one.
            let (mut known, mut idle) = (0.0, 0.0);
            for (name, share) in &work.idle {
                let state = cpu.idle_states.iter().find(|state| state.name == *name);
                known += share;
                idle += share * state.map_or(awake, |state| state.power.0);
            }
            let idle = if known > 0.0 { idle / known } else { awake };
            busy * (cpu.core_static.0 + dynamic) + (1.0 - busy) * idle
        };
        cpu.uncore.0 / self.sockets.len() as f64 + cores.map(core).sum::<f64>()
    }

    /// The highest frequency that keeps a socket within its power limit, if any does not.
    fn limited<'a, C: Iterator<Item = (Hertz, &'a Work)>>(
        &self,
        limit: Watts,
        leakage: f64,
        cores: &impl Fn() -> C,
    ) -> Option<Hertz> {
        let steps = &self.profile.cpu.frequencies;
        let within = |step: &&Hertz| self.socket_watts(cores(), **step) + leakage <= limit.0;
        let step = steps.iter().rev().find(within).or(steps.first())?;
        (Some(step) != steps.last()).then_some(*step)
    }

    fn leakage(&self, socket: usize, frequency: f64) -> f64 {
        let cpu = &self.profile.cpu;
        let highest = cpu.frequencies.last().map_or(1.0, |highest| highest.0);
        let voltage = voltage(frequency / highest, cpu.frequency_exponent);
        self.thermal.leakage.power(self.network.die(socket), voltage)
    }

    /// Sets the fans' duties as commanded, or as the board's own control has them.
    fn turn(&mut self, commands: &Commands) {
        let mut readings = self.sockets.iter().map(|socket| socket.sensor.reading());
        let hottest = readings.try_fold(f64::NEG_INFINITY, |hottest, reading| {
            reading.map(|reading| hottest.max(reading.temperature.0))
        });
        let drive = self.network.drives().iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let firmware = self.fans_spec.firmware_duty(hottest, Some(drive));
        let duty = |fan| commands.duty(fan).unwrap_or(firmware);
        self.duties = (0..self.fans.len()).map(duty).collect();
        for (fan, duty) in self.fans.iter_mut().zip(&self.duties) {
            fan.set_duty(&self.fans_spec, *duty);
        }
    }

    /// Lets the fans turn and everything warm or cool; mean power of the fans.
    fn warm(&mut self, seconds: f64) -> f64 {
        let steps = (seconds / STEP).ceil().max(1.0);
        let length = seconds / steps;
        let left = self.fans_spec.left(length);
        let air = Air::new(self.thermal.inlet.0, self.thermal.altitude_m, 0.0, 0.0);
        let sockets: Vec<_> = self.sockets.iter().map(|socket| socket.watts).collect();
        let mut sum = 0.0;
        for _ in 0..steps as u32 {
            let fans: f64 = self.fans.iter_mut().map(|fan| fan.step(&self.fans_spec, left).0).sum();
            let flow = self.fans_spec.airflow(&self.fans);
            let heat = Heat { drives: &self.drive_watts, fans, sockets: &sockets };
            if length > 0.0 {
                let air = air.at_flow(flow, self.thermal.draught_m3_s);
                self.network.step(&air, &heat, length);
            }
            sum += fans;
        }
        sum / steps
    }

    /// The watts at the wall, and what one more watt of a drive adds there.
    fn at_the_wall(&self, fans: f64) -> (f64, f64) {
        let board = &self.profile.board;
        let sockets: f64 = self.sockets.iter().map(|socket| socket.watts).sum();
        let drives: f64 = self.drive_watts.iter().sum();
        let delivered =
            sockets + drives + fans + board.memory.0 + board.nic.0 + board.fans.0 + board.other.0;
        let wall = |delivered: f64| delivered / self.profile.psu.efficiency(Watts(delivered));
        (wall(delivered), wall(delivered + 1.0) - wall(delivered))
    }

    fn sensed(&mut self, now: Nanos) -> String {
        self.walls.push_back((now, self.wall));
        let seen = now.saturating_sub(self.profile.board.meter_lag);
        while self.walls.get(1).is_some_and(|(at, _)| *at <= seen) {
            self.walls.pop_front();
        }
        let told = self.walls.front().map_or(0.0, |(_, wall)| *wall);
        let mut lines = String::new();
        let say = |sensor: &Sensor| match sensor.reading() {
            Some(reading) => ((reading.temperature.0 * 1e3) as i64).to_string(),
            None => "none".to_owned(),
        };
        for (number, socket) in self.sockets.iter().enumerate() {
            let clamp = socket.clamp.map_or(0.0, |clamp| clamp.0 / 1e3);
            let (temperature, micros) = (say(&socket.sensor), socket.watts * 1e6);
            let _ = writeln!(lines, "temp{number} {temperature}\nclamp{number} {clamp:.0}");
            let _ = writeln!(lines, "draw{number} {micros:.0}");
        }
        for (number, (fan, duty)) in (1..).zip(self.fans.iter().zip(&self.duties)) {
            let (speed, duty) = (fan.speed().0, (duty * 255.0).round());
            let _ = writeln!(lines, "fan{number} {speed:.0}\nauto{number} {duty:.0}");
        }
        let _ = writeln!(lines, "inlet {}\npower {:.0}", say(&self.inlet), told * 1e6);
        lines
    }

    /// What is true now, as JSON; `unix` is the time of day, seconds since 1970.
    pub fn truth(&self, now: Nanos, unix: f64, left_out: f64) -> String {
        let dies: Vec<_> = self.network.dies().collect();
        let throttled: Vec<_> = self.sockets.iter().map(|s| s.emergency.throttled()).collect();
        let watts: Vec<_> = self.sockets.iter().map(|socket| socket.watts).collect();
        let joules: f64 = self.sockets.iter().map(|socket| socket.joules).sum();
        let speeds: Vec<_> = self.fans.iter().map(|fan| fan.speed().0).collect();
        // NaN is no JSON: a sensor that does not answer says -1.
        let reading = |sensor: &Sensor| sensor.reading().map_or(-1.0, |it| it.temperature.0);
        let readings: Vec<_> = self.sockets.iter().map(|socket| reading(&socket.sensor)).collect();
        format!(
            r#"{{"seconds":{},"unix":{unix},"left_out_s":{left_out},"dies":{dies:?},"#,
            now.seconds()
        ) + &format!(r#""throttled":{throttled:?},"#)
            + &format!(r#""watts":{watts:?},"wall_joules":{},"#, self.wall_joules)
            + &format!(r#""readings":{readings:?},"duties":{:?},"#, self.duties)
            + &format!(r#""speeds":{speeds:?},"wall":{},"joules":{joules},"#, self.wall)
            + &format!(r#""drives":{:?},"drive_watt":{}}}"#, self.drive_watts, self.drive_watt)
    }
}
