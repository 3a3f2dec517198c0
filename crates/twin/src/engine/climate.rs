//! The climate of the server: fans, air, temperatures and what they do, joined once per control
//! period from the period's powers, in steps of 100 ms.

use ebb_policy::units::{Celsius, Joules, Nanos, Rpm};
use ebb_policy::{Applied, Column, Control, CoolingSignals, DriveSignals, FanSignals, Outcome};

use crate::fan::{Fan, FanFault, Fans};
use crate::faults::{Campaign, Fault, FaultEvent, Faults, Parts, Place};
use crate::outcome::{ThermalTotals, Trip, Weather};
use crate::profile::Profile;
use crate::thermal::{Air, Emergency, Heat, Network, Sensor, SensorFault, Thermal};
use crate::vibration::Vibration;

/// Longest step of the network, ns: far below the seconds in which a die answers.
const STEP: u64 = 100_000_000;

/// Fans, air and temperatures of one server.
#[derive(Debug)]
pub(super) struct Climate {
    spec: Thermal,
    fans_spec: Fans,
    vibration: Option<Vibration>,
    network: Network,
    fans: Vec<Fan>,
    /// Duty in force of each fan.
    duties: Vec<f64>,
    sensors: Vec<Sensor>,
    inlet: Sensor,
    /// At the inlet, without the fans.
    air: Air,
    drive_sensors: Vec<DriveSensor>,
    emergency: Vec<Emergency>,
    /// Voltage of each socket as a share of that at the highest frequency.
    voltages: Vec<f64>,
    /// Power of each socket without leakage, then with it; of each drive.
    socket_watts: Vec<f64>,
    heat: Vec<f64>,
    drive_watts: Vec<f64>,
    campaign: Option<Campaign>,
    /// Faults that began or ended in this period.
    pub(super) news: Vec<(FaultEvent, bool)>,
    pub(super) weather: Weather,
    totals: ThermalTotals,
    /// The first die that got so hot that the server switched itself off.
    pub(super) trip: Option<Trip>,
}

impl Climate {
    /// The climate that the profile describes, if it does; `faults` are of parts that it has.
    pub(super) fn new(profile: &Profile, seed: u64, faults: Option<Faults>) -> Option<Self> {
        let spec = profile.thermal.clone()?;
        let fans_spec = profile.fans.clone()?;
        let drives = usize::from(profile.drives.count);
        let network = Network::new(&spec, drives);
        let sockets = network.dies().len();
        let start = spec.socket.start.0;
        let sensor =
            |socket: usize| Sensor::new(&spec.sensor, start, seed ^ (0x7E3B << 32) ^ socket as u64);
        let duty = fans_spec.firmware_duty(Some(start), Some(spec.drive.start.0));
        let count = usize::from(fans_spec.count);
        let fan = Fan::new(&fans_spec, duty);
        let mut climate = Self {
            sensors: (0..sockets).map(sensor).collect(),
            inlet: Sensor::new(&spec.sensor, spec.inlet.0, seed ^ (0x71E7 << 32)),
            air: Air::new(spec.inlet.0, spec.altitude_m, 0.0, spec.draught_m3_s),
            emergency: vec![Emergency::default(); sockets],
            voltages: vec![1.0; sockets],
            socket_watts: vec![0.0; sockets],
            heat: vec![0.0; sockets],
            drive_watts: vec![0.0; drives],
            fans: vec![fan; count],
            duties: vec![duty; count],
            drive_sensors: vec![DriveSensor::new(spec.drive.start.0); drives],
            campaign: faults.map(|faults| Campaign::new(faults, Parts::of(profile))),
            news: Vec::new(),
            weather: Weather::new(sockets, count, drives),
            totals: ThermalTotals::default(),
            trip: None,
            vibration: profile.vibration,
            network,
            fans_spec,
            spec,
        };
        climate.note_temperatures();
        Some(climate)
    }

    /// Where the power of each socket without leakage goes before [`Climate::step`], W.
    pub(super) fn socket_watts(&mut self) -> &mut [f64] {
        &mut self.socket_watts
    }
    /// Whether the hardware slows this socket down.
    pub(super) fn throttled(&self, socket: u16) -> bool {
        self.emergency.get(usize::from(socket)).is_some_and(|socket| socket.throttled())
    }
    /// Whether the cores of this socket keep their frequency whatever is asked.
    pub(super) fn refuses_frequency(&self, socket: u16) -> bool {
        self.is_active(Fault::FrequencyRefusing(socket))
    }
    /// Says of which controls what is given is not taken.
    pub(super) fn refusals(&self, applied: &mut Applied) {
        for event in self.campaign.iter().flat_map(Campaign::active) {
            match event.fault {
                Fault::StateRefusing(drive) => {
                    applied.set(Control::PowerState, usize::from(drive), Outcome::Refused);
                }
                Fault::FanRefusing(fan) => {
                    applied.set(Control::FanDuty, usize::from(fan), Outcome::Refused);
                }
                Fault::SharesRefusing => applied.refuse_all(Control::JobShare),
                _ => {}
            }
        }
    }
    /// Whether jobs keep their shares whatever is asked.
    pub(super) fn refuses_shares(&self) -> bool {
        self.is_active(Fault::SharesRefusing)
    }
    fn is_active(&self, fault: Fault) -> bool {
        let active = self.campaign.as_ref().map_or(&[][..], |campaign| campaign.active());
        active.iter().any(|event| event.fault == fault)
    }
    /// Share of its power budget for work that each drive allows itself.
    pub(super) fn drive_factors(&self) -> impl Iterator<Item = f64> + '_ {
        self.network.drives().iter().map(|celsius| self.spec.drive.factor(*celsius))
    }
    /// What the run came to so far; starts anew after warm-up.
    pub(super) fn totals(&self) -> &ThermalTotals {
        &self.totals
    }
    pub(super) fn restart(&mut self) {
        self.totals = ThermalTotals::default();
    }

    /// Lets a period of `length` that ends at `now` pass with the powers in
    /// [`Climate::socket_watts`] and of the drives, each socket at its `voltage`, fans as given.
    /// After a trip the period is lived through to its end, so that its books can be closed.
    pub(super) fn step(
        &mut self,
        now: u64,
        length: u64,
        voltage: impl Fn(usize) -> f64,
        drives: &[DriveSignals],
        given: &Column<f64>,
    ) {
        for (watts, drive) in self.drive_watts.iter_mut().zip(drives) {
            *watts = drive.power.unwrap_or_default().0;
        }
        for (socket, own) in self.voltages.iter_mut().enumerate() {
            *own = voltage(socket);
        }
        self.news.clear();
        let (mut leakage, mut fans) = (0.0, 0.0);
        let steps = length.div_ceil(STEP).max(1);
        let seconds = length as f64 * 1e-9 / steps as f64;
        let left = self.fans_spec.left(seconds);
        for step in 1..=steps {
            let at = now - length + length * step / steps;
            let known = self.news.len();
            self.break_and_mend(Nanos(at));
            if step == 1 || self.news.len() > known {
                self.turn(given);
            }
            let blown = self.fans.iter_mut().map(|fan| fan.step(&self.fans_spec, left).0).sum();
            fans += blown * seconds;
            leakage += self.leak() * seconds;
            if seconds > 0.0 {
                self.warm(blown, seconds);
            }
            self.feel(Nanos(at));
        }
        for (sensor, celsius) in self.drive_sensors.iter_mut().zip(self.network.drives()) {
            sensor.observe(*celsius);
        }
        self.weather.leakage = Joules(leakage);
        self.weather.fans = Joules(fans);
        self.note(length);
    }

    /// Puts faults in force that begin by `at`, and ends those that end.
    fn break_and_mend(&mut self, at: Nanos) {
        let Self { campaign, sensors, inlet, drive_sensors, fans, news, .. } = self;
        let Some(campaign) = campaign else { return };
        campaign.advance(at, |event, begins| {
            news.push((*event, begins));
            let fan_fault = |fault| if begins { fault } else { FanFault::None };
            let mut set_sensor = |place, fault| {
                let fault = if begins { fault } else { SensorFault::None };
                match place {
                    Place::Socket(socket) => sensors[usize::from(socket)].set_fault(fault),
                    Place::Drive(drive) => drive_sensors[usize::from(drive)].fault = fault,
                    Place::Inlet => inlet.set_fault(fault),
                }
            };
            match event.fault {
                Fault::SensorLost(place) => set_sensor(place, SensorFault::Lost),
                Fault::SensorStuck(place) => set_sensor(place, SensorFault::Stuck),
                Fault::SensorLying(place, off) => set_sensor(place, SensorFault::Lying(off)),
                Fault::FanStalled(fan) => {
                    fans[usize::from(fan)].set_fault(fan_fault(FanFault::Stalled));
                }
                Fault::FanDead(fan) => fans[usize::from(fan)].set_fault(fan_fault(FanFault::Dead)),
                Fault::FanRefusing(_)
                | Fault::FrequencyRefusing(_)
                | Fault::StateRefusing(_)
                | Fault::SharesRefusing => {}
            }
        });
    }

    /// Sets the fans' duties as given, or as the board's own control has them.
    fn turn(&mut self, given: &Column<f64>) {
        let hottest = |hottest: Option<f64>, sensor: &Sensor| {
            hottest.zip(sensor.reading()).map(|(a, reading)| a.max(reading.temperature.0))
        };
        let socket = self.sensors.iter().fold(Some(f64::NEG_INFINITY), hottest);
        let hottest = |hottest: Option<f64>, sensor: &DriveSensor| {
            hottest.zip(sensor.reading()).map(|(a, reading)| a.max(reading))
        };
        let drive = self.drive_sensors.iter().fold(Some(f64::NEG_INFINITY), hottest);
        let firmware = self.fans_spec.firmware_duty(socket, drive);
        let refusing = self.campaign.as_ref().map_or(&[][..], |campaign| campaign.active());
        for (index, (fan, duty)) in self.fans.iter_mut().zip(&mut self.duties).enumerate() {
            let refuses = |e: &FaultEvent| e.fault == Fault::FanRefusing(index as u16);
            if !refusing.iter().any(refuses) {
                *duty = given.value(index).unwrap_or(firmware).clamp(0.0, 1.0);
            }
            fan.set_duty(&self.fans_spec, *duty);
        }
    }

    /// Adds leakage to the sockets' heat; returns all of it, W.
    fn leak(&mut self) -> f64 {
        let mut sum = 0.0;
        let sockets = self.socket_watts.iter().zip(&self.voltages).zip(self.network.dies());
        for (heat, ((watts, voltage), die)) in self.heat.iter_mut().zip(sockets) {
            let leakage = self.spec.leakage.power(die, *voltage);
            sum += leakage;
            *heat = watts + leakage;
        }
        sum
    }

    fn warm(&mut self, fans: f64, seconds: f64) {
        let flow = self.fans_spec.airflow(&self.fans);
        let air = self.air.at_flow(flow, self.spec.draught_m3_s);
        let heat = Heat { drives: &self.drive_watts, fans, sockets: &self.heat };
        self.network.step(&air, &heat, seconds);
    }

    /// Sensors of inlet and sockets read, the hardware throttles or switches off.
    fn feel(&mut self, now: Nanos) {
        self.inlet.observe(now, self.spec.inlet.0);
        let sockets = self.sensors.iter_mut().zip(&mut self.emergency).enumerate();
        for (socket, (sensor, emergency)) in sockets {
            let die = self.network.die(socket);
            sensor.observe(now, die);
            emergency.observe(&self.spec.emergency, die);
            // A die whose temperature is no number is not one that runs on.
            if die.is_nan() || die >= self.spec.emergency.trip.0 {
                let (socket, temperature) = (socket as u16, Celsius(die));
                self.trip.get_or_insert(Trip { socket, at: now, temperature });
            }
        }
    }

    fn note_temperatures(&mut self) {
        let weather = &mut self.weather;
        for (socket, die) in weather.sockets.iter_mut().zip(self.network.dies()) {
            *socket = Celsius(die);
        }
        for (throttled, socket) in weather.throttled.iter_mut().zip(&self.emergency) {
            *throttled = socket.throttled();
        }
        for (drive, celsius) in weather.drives.iter_mut().zip(self.network.drives()) {
            *drive = Celsius(*celsius);
        }
        let top = self.fans_spec.top().0.max(1.0);
        for (speed, fan) in weather.fan_speeds.iter_mut().zip(&self.fans) {
            *speed = fan.speed();
        }
        let shares = self.fans.iter().map(|fan| fan.speed().0 / top);
        weather.vibration = self.vibration.map_or(0.0, |source| source.amplitude(shares));
        weather.exhaust = Celsius(self.network.exhaust());
    }

    /// Takes the period's numbers down. What throttled in it is what was in force at its start.
    fn note(&mut self, length: u64) {
        let before = self.weather.throttled.iter().filter(|throttled| **throttled).count() as u64;
        let slowed = self.drive_factors_were().filter(|factor| *factor < 1.0).count() as u64;
        self.note_temperatures();
        let duty = self.duties.iter().sum::<f64>() / self.duties.len().max(1) as f64;
        let totals = &mut self.totals;
        totals.socket_throttled.0 += before * length;
        totals.drive_throttled.0 += slowed * length;
        totals.add(&self.weather, duty, Nanos(length));
    }

    /// Factors that were in force in the period that ends: by the temperatures noted before it.
    fn drive_factors_were(&self) -> impl Iterator<Item = f64> + '_ {
        self.weather.drives.iter().map(|celsius| self.spec.drive.factor(celsius.0))
    }

    /// Tells the sensors' readings.
    pub(super) fn sense(&self, cooling: &mut CoolingSignals, drives: &mut [DriveSignals]) {
        cooling.inlet = self.inlet.reading();
        for (signal, sensor) in cooling.sockets.iter_mut().zip(&self.sensors) {
            *signal = sensor.reading();
        }
        for ((signal, fan), duty) in cooling.fans.iter_mut().zip(&self.fans).zip(&self.duties) {
            *signal = FanSignals { duty: Some(*duty), speed: Some(fan.speed()) };
        }
        // NVMe states a drive's temperature in whole kelvins.
        for (signal, sensor) in drives.iter_mut().zip(&self.drive_sensors) {
            signal.temperature = sensor.reading().map(|celsius| Celsius(celsius.round()));
        }
    }
}

/// The sensor of a drive: without lag.
#[derive(Debug, Clone, Copy)]
struct DriveSensor {
    celsius: f64,
    fault: SensorFault,
}

impl DriveSensor {
    fn new(celsius: f64) -> Self {
        Self { celsius, fault: SensorFault::None }
    }
    fn observe(&mut self, celsius: f64) {
        if self.fault != SensorFault::Stuck {
            self.celsius = celsius;
        }
    }
    /// What it says, °C.
    fn reading(self) -> Option<f64> {
        match self.fault {
            SensorFault::Lost => None,
            SensorFault::Lying(off) => Some(self.celsius + off),
            SensorFault::None | SensorFault::Stuck => Some(self.celsius),
        }
    }
}

impl Weather {
    fn new(sockets: usize, fans: usize, drives: usize) -> Self {
        Self {
            sockets: vec![Celsius(0.0); sockets],
            throttled: vec![false; sockets],
            drives: vec![Celsius(0.0); drives],
            fan_speeds: vec![Rpm(0.0); fans],
            leakage: Joules(0.0),
            fans: Joules(0.0),
            vibration: 0.0,
            exhaust: Celsius(0.0),
        }
    }
}
