//! How hot each socket may be: its sensor (`sensor.rs`) watched against its load and the air.

use crate::Signals;
use crate::cooling::load::Load;
use crate::cooling::pi::resistance;
use crate::cooling::rise::Model;
use crate::cooling::sensor::{Causes, Sensor};
use crate::cooling::{LAG, Thresholds, weight};
use crate::possible::{COLDEST, is_inlet, is_power};
use crate::topology::Topology;
use crate::units::{Celsius, Nanos};

/// What a sensor that has never spoken is taken to have said at first, below the set point: warm
/// enough that its silence brings the fans up within a quarter of a minute.
const UNHEARD: Celsius = Celsius(10.0);
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
    /// The worst case now with what the sensor has not shown yet (`rise.rs`), or would not if it
    /// stood still wrongly (`still.rs`); no further than to where the hardware throttles.
    pub unseen: Celsius,
    /// Whether a current reading is behind it.
    pub sound: bool,
}

/// A socket's sensor and the load that explains its readings.
#[derive(Debug, Clone)]
struct Socket {
    sensor: Option<Sensor>,
    /// Cores on it, where known.
    cores: f64,
    /// Load of the last period in which it was known.
    last: Option<f64>,
    /// The load smoothed; the most of that ever.
    load: f64,
    largest: f64,
    /// The most of the load in the last [`RELIEF`].
    peak: f64,
}

/// The estimates of all sockets.
#[derive(Debug, Clone)]
pub struct Estimator {
    now: Nanos,
    sockets: Vec<Socket>,
    /// Whether activity is known by socket; the power of all of them otherwise.
    by_socket: bool,
    load: Load,
    thresholds: Thresholds,
    /// Where the hardware throttles; never, where nobody knows.
    throttle: Celsius,
    /// Air that the fans give, as a duty, and temperature of the inlet in °C, where they ever were
    /// known.
    air: Option<f64>,
    inlet: Option<f64>,
}

impl Estimator {
    /// For the sockets of `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let load = Load::new(topology);
        let socket =
            |cores| Socket { sensor: None, cores, last: None, load: 0.0, largest: 0.0, peak: 0.0 };
        Self {
            now: Nanos::ZERO,
            sockets: (0..usize::from(topology.sockets)).map(|s| socket(load.cores(s))).collect(),
            by_socket: topology.jobs > 0 || load.by_socket(),
            load,
            thresholds: Thresholds::new(topology),
            throttle: topology.throttle.unwrap_or(Celsius(f64::MAX)),
            air: None,
            inlet: None,
        }
    }

    /// Takes one period; `air` is what the fans give, as a duty, where known. What cannot be true
    /// counts as not sensed.
    pub fn update(&mut self, signals: &Signals, air: Option<f64>) {
        self.now = signals.now;
        let dt = signals.period.seconds();
        let inlet = signals.cooling.inlet.map(|reading| reading.temperature);
        let inlet = inlet.filter(|inlet| is_inlet(*inlet)).map(|inlet| inlet.0);
        let sensed = keep(&mut self.air, air) & keep(&mut self.inlet, inlet);
        // Nothing that runs is much colder than the air it takes in.
        let coldest = self.inlet.map_or(COLDEST, |inlet| inlet - 10.0);
        let (air, inlet) = (resistance(self.air()), self.inlet());
        let surroundings = Causes { load: 0.0, sensed, air, inlet, coldest, relief: 0.0 };
        for s in 0..self.sockets.len() {
            let load = if self.by_socket {
                self.load.work(signals, Some(s))
            } else {
                signals.power.cpu.filter(|power| is_power(*power)).map(|power| power.0)
            };
            let reading = signals.cooling.sockets.get(s).copied().flatten();
            let idle = if self.by_socket { IDLE } else { 0.0 };
            let sibling = self.sibling(s);
            let socket = &mut self.sockets[s];
            let causes = socket.causes(load, dt, idle, surroundings);
            let unheard = (self.thresholds.set_point - UNHEARD).0;
            let sensor = socket.sensor.get_or_insert_with(|| Sensor::new(signals.now, unheard));
            sensor.update(signals.now, reading, causes, sibling);
        }
    }

    /// What the temperatures are held against.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The air that the fans give, as a duty.
    pub(super) fn air(&self) -> f64 {
        self.air.unwrap_or(1.0)
    }

    /// `T_amb`, °C; the warm end of what data centres keep to where nobody measures it.
    pub(super) fn inlet(&self) -> f64 {
        self.inlet.unwrap_or(35.0)
    }

    /// The model of another socket, for sockets are built alike.
    fn sibling(&self, socket: usize) -> Model {
        let others = self.sockets.iter().enumerate().filter(|(s, _)| *s != socket);
        let models = others.filter_map(|(_, other)| Some(other.sensor.as_ref()?.model()));
        models.fold(Model::default(), Model::or)
    }

    /// Cores' worth of work on all of the server; `None` while that is not known.
    pub(super) fn work(&self, signals: &Signals) -> Option<f64> {
        self.load.work(signals, None)
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
            unseen: Celsius(sensor.unseen(self.now)).min(self.throttle.max(Celsius(worst))),
            sound: sensor.is_sound(self.now),
        })
    }

    /// The worst of each over all sockets: what the fans, which all sockets share, must handle.
    #[must_use]
    pub fn hottest(&self) -> Option<Estimate> {
        (0..self.sockets.len()).filter_map(|s| self.socket(s)).reduce(|a, b| Estimate {
            now: a.now.max(b.now),
            ahead: a.ahead.max(b.ahead),
            unseen: a.unseen.max(b.unseen),
            sound: a.sound && b.sound,
        })
    }
}

impl Socket {
    fn causes(&mut self, load: Option<f64>, dt: f64, idle: f64, surroundings: Causes) -> Causes {
        let sensed = keep(&mut self.last, load) & surroundings.sensed;
        let load = self.last.unwrap_or(0.0);
        self.load += (load - self.load) * weight(dt, SMOOTH);
        self.peak = load.max(self.peak * (-dt / RELIEF).exp());
        self.largest = self.largest.max(self.load);
        // Before the first load the cores' number says more of what counts at rest.
        let rest = idle * self.largest.max(self.cores);
        // Of the heat that is gone, the part between die and heat sink (`rise.rs`), generously.
        let gone = 1.0 - (load + rest) / (self.peak + rest).max(1e-9);
        let relief = 1.5 * gone / (1.0 + surroundings.air);
        Causes { load: load + rest, sensed, relief, ..surroundings }
    }
}

/// Keeps the last known value. Whether it is the present one; a plant that never tells it is as if
/// it never changed.
fn keep(last: &mut Option<f64>, now: Option<f64>) -> bool {
    *last = now.or(*last);
    now.is_some() || last.is_none()
}
