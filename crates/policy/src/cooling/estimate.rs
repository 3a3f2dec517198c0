//! How hot each socket may be: its sensor (`sensor.rs`) watched against its load and the air.

use crate::cooling::pi::resistance;
use crate::cooling::sensor::{Causes, Sensor};
use crate::cooling::{LAG, SET_POINT, weight};
use crate::topology::Topology;
use crate::units::{Celsius, Hertz, Nanos};
use crate::{GroupSignals, JobSignals, Signals};

/// What a sensor that has never spoken is taken to have said at first: warm enough that its
/// silence brings the fans up within a quarter of a minute.
const UNHEARD: f64 = SET_POINT.0 - 10.0;
/// Averages of load, in seconds: long against slices and disk waits, short against heat.
const SMOOTH: f64 = 10.0;
/// How long a fall of the load explains a falling die, in seconds: twice the lag.
const RELIEF: f64 = 20.0;
/// Power of an idle socket as a share of the largest seen, where only activity is known.
const IDLE: f64 = 0.25;

/// How hot it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The worst case now, by the sensor.
    pub now: Celsius,
    /// The same one [`LAG`] ahead if it goes on rising as it does: where the silicon may be
    /// while the sensor still lags behind.
    pub ahead: Celsius,
    /// The same with what a load that has just come adds before the sensor shows it.
    pub surged: Celsius,
    /// How fast it changes, in K/s.
    pub rate: f64,
    /// Whether a current reading is behind it.
    pub sound: bool,
}

/// A socket's sensor and the load that explains its readings.
#[derive(Debug, Clone)]
struct Socket {
    sensor: Option<Sensor>,
    /// Load of the last period, and smoothed.
    at_once: f64,
    load: f64,
    largest: f64,
    peak: f64,
}

/// The estimates of all sockets.
#[derive(Debug, Clone)]
pub struct Estimator {
    now: Nanos,
    sockets: Vec<Socket>,
    /// Whether activity is known by socket; the power of all of them otherwise.
    by_socket: bool,
    /// Socket of each group, where known.
    groups: Vec<Option<u16>>,
    highest: Hertz,
}

impl Estimator {
    /// For the sockets of `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let groups: Vec<_> = topology.groups.iter().map(|group| group.socket).collect();
        let socket = Socket { sensor: None, at_once: 0.0, load: 0.0, largest: 0.0, peak: 0.0 };
        Self {
            now: Nanos::ZERO,
            sockets: vec![socket; usize::from(topology.sockets)],
            by_socket: topology.jobs > 0 || groups.iter().any(Option::is_some),
            groups,
            highest: topology.max_frequency(),
        }
    }

    /// Takes one period; `air` is what the fans give, as a duty.
    pub fn update(&mut self, signals: &Signals, air: f64) {
        self.now = signals.now;
        let dt = signals.period.seconds();
        let air = resistance(air);
        let inlet = inlet(signals);
        for s in 0..self.sockets.len() {
            let load = if self.by_socket {
                self.activity(signals, s)
            } else {
                signals.power.cpu.map_or(0.0, |power| power.0)
            };
            let reading = signals.cooling.sockets.get(s).copied().flatten();
            let idle = if self.by_socket { IDLE } else { 0.0 };
            let sibling = self.sibling(s);
            let socket = &mut self.sockets[s];
            let causes = socket.causes(load, dt, idle, (air, inlet));
            let sensor = socket.sensor.get_or_insert_with(|| Sensor::new(signals.now, UNHEARD));
            sensor.update(signals.now, reading, causes, sibling);
        }
    }

    /// What the sensors of other sockets tell of heat, for sockets are built alike.
    fn sibling(&self, socket: usize) -> Option<f64> {
        let others = self.sockets.iter().enumerate().filter(|(s, _)| *s != socket);
        others.filter_map(|(_, other)| other.sensor.as_ref()?.heat()).reduce(f64::max)
    }

    /// Cores' worth of work at the highest frequency on `socket`; groups that are on no one socket
    /// count nowhere.
    fn activity(&self, signals: &Signals, socket: usize) -> f64 {
        let here = |on: &Option<u16>| on.map(usize::from) == Some(socket);
        let groups = || signals.groups.iter().zip(&self.groups).filter(|(_, on)| here(on));
        let busy =
            |group: &GroupSignals| group.utilisation.unwrap_or(0.0) * f64::from(group.active);
        // Power falls with `f V^2`, between the square and the cube; a lower bound on the fall.
        let pace = |group: &GroupSignals| {
            group.frequency.map_or(1.0, |f| (f / self.highest).clamp(0.0, 1.0).powi(2))
        };
        let on_groups = groups().map(|(group, _)| busy(group) * pace(group)).sum::<f64>();
        let pace = groups().map(|(group, _)| pace(group)).reduce(f64::max).unwrap_or(1.0);
        let jobs =
            signals.jobs.iter().filter(|job| job.present && usize::from(job.socket) == socket);
        on_groups + pace * jobs.map(|job: &JobSignals| job.cpu).sum::<f64>()
    }

    /// The estimate of `socket`; `None` before the first update and for sockets that are not.
    #[must_use]
    pub fn socket(&self, socket: usize) -> Option<Estimate> {
        let socket = self.sockets.get(socket)?;
        let sensor = socket.sensor.as_ref()?;
        let (worst, rate) = (sensor.worst(self.now), sensor.rate());
        Some(Estimate {
            now: Celsius(worst),
            ahead: Celsius(worst + rate.max(0.0) * LAG.seconds()),
            surged: Celsius(worst + sensor.surge(socket.at_once)),
            rate,
            sound: sensor.is_sound(self.now),
        })
    }

    /// The worst of each over all sockets: what the fans, which all sockets share, must handle.
    #[must_use]
    pub fn hottest(&self) -> Option<Estimate> {
        (0..self.sockets.len()).filter_map(|s| self.socket(s)).reduce(|a, b| Estimate {
            now: a.now.max(b.now),
            ahead: a.ahead.max(b.ahead),
            surged: a.surged.max(b.surged),
            rate: if a.ahead >= b.ahead { a.rate } else { b.rate },
            sound: a.sound && b.sound,
        })
    }
}

impl Socket {
    fn causes(&mut self, load: f64, dt: f64, idle: f64, (air, inlet): (f64, f64)) -> Causes {
        self.load += (load - self.load) * weight(dt, SMOOTH);
        self.peak = load.max(self.peak * (-dt / RELIEF).exp());
        self.largest = self.largest.max(self.load);
        let rest = idle * self.largest;
        // Of the heat that is gone, the part between die and heat sink (`soak.rs`), generously.
        let gone = 1.0 - (load + rest) / (self.peak + rest).max(1e-9);
        let relief = 1.5 * gone / (1.0 + air);
        self.at_once = load + rest;
        Causes { load: self.load + rest, air, inlet, relief }
    }
}

/// `T_amb`, °C; the warm end of what data centres keep to where nobody measures it.
pub(super) fn inlet(signals: &Signals) -> f64 {
    let known = signals.cooling.inlet.map(|reading| reading.temperature.0);
    known.filter(|t| (-30.0..=70.0).contains(t)).unwrap_or(35.0)
}
