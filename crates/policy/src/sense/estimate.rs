//! How hot the sockets are, for policies: now by the sensors, at worst, and one lag ahead by their
//! trend.

use crate::Signals;
use crate::sense::air::Surroundings;
use crate::sense::load::Load;
use crate::sense::sensor::Sensor;
use crate::sense::thresholds::Thresholds;
use crate::sense::{LAG, QUANTUM};
use crate::topology::Topology;
use crate::units::{Celsius, Nanos};

/// What a sensor that has never spoken is taken to have said at first, below the set point: warm
/// enough that its silence brings the fans up within a quarter of a minute.
pub const UNHEARD: Celsius = Celsius(10.0);
/// Span of the trend, in seconds.
const SPAN: f64 = 15.0;
/// Readings kept for the trend.
const KEPT: usize = 16;
/// More than this between two readings, in kelvin, is no trend: no heat sink warms up so fast.
const JUMP: f64 = 8.0;

/// How hot it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The worst case now, by the sensor.
    pub now: Celsius,
    /// The same one [`LAG`] ahead if it goes on rising as it does: where the silicon may be
    /// while the sensor still lags behind.
    pub ahead: Celsius,
    /// Whether a current reading is behind it.
    pub sound: bool,
}

/// The last readings, a ring. Times in seconds.
#[derive(Debug, Clone, Default)]
struct Trend {
    kept: [(f64, f64); KEPT],
    next: usize,
    filled: usize,
    last: f64,
}

impl Trend {
    fn add(&mut self, at: f64, temperature: f64) {
        if (temperature - self.last).abs() > JUMP {
            (self.next, self.filled) = (0, 0);
        }
        self.last = temperature;
        self.kept[self.next] = (at, temperature);
        self.next = (self.next + 1) % KEPT;
        self.filled = (self.filled + 1).min(KEPT);
    }

    /// How fast it changes, in K/s, by least squares over the last [`SPAN`]. Zero unless it has
    /// moved by two quanta: one may be rounding. EADC extends the band-limited predictor of its
    /// reference [24]; on readings in whole kelvin its coefficients amplify nothing but rounding.
    fn rate(&self, now: f64) -> f64 {
        let recent = || self.kept[..self.filled].iter().filter(move |(at, _)| *at >= now - SPAN);
        let n = recent().count() as f64;
        let (low, high) =
            recent().fold((f64::MAX, f64::MIN), |(low, high), (_, t)| (low.min(*t), high.max(*t)));
        if n < 3.0 || high - low < 2.0 * QUANTUM {
            return 0.0;
        }
        let (x, y) = recent().fold((0.0, 0.0), |(x, y), (at, t)| (x + at / n, y + t / n));
        let (xy, xx) = recent().fold((0.0, 0.0), |(xy, xx), (at, t)| {
            (xy + (at - x) * (t - y), xx + (at - x) * (at - x))
        });
        if xx > 0.0 { xy / xx } else { 0.0 }
    }
}

/// The estimates of all sockets.
#[derive(Debug, Clone)]
pub struct Estimator {
    now: Nanos,
    sockets: Vec<(Sensor, Trend)>,
    load: Load,
    surroundings: Surroundings,
}

impl Estimator {
    /// For the sockets of `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let sensor = Sensor::new(Thresholds::new(topology).set_point - UNHEARD);
        let sockets = vec![(sensor, Trend::default()); usize::from(topology.sockets)];
        let (load, surroundings) = (Load::new(topology), Surroundings::default());
        Self { now: Nanos::ZERO, sockets, load, surroundings }
    }

    /// Takes one period. What cannot be true counts as not sensed.
    pub fn update(&mut self, signals: &Signals) {
        self.now = signals.now;
        self.surroundings.update(signals, &signals.in_force.fan_duty);
        let coldest = self.surroundings.coldest();
        for ((sensor, trend), reading) in self.sockets.iter_mut().zip(&signals.cooling.sockets) {
            if let Some(temperature) = sensor.read(signals.now, *reading, coldest) {
                trend.add(signals.now.seconds(), temperature);
            }
        }
    }

    /// The air that the fans give, as a duty.
    pub(crate) fn air(&self) -> f64 {
        self.surroundings.air()
    }

    /// `T_amb`, °C.
    pub(crate) fn inlet(&self) -> f64 {
        self.surroundings.inlet()
    }

    /// Cores' worth of work on all of the server; `None` while that is not known.
    pub(crate) fn work(&self, signals: &Signals) -> Option<f64> {
        self.load.work(signals, None)
    }

    /// The estimate of `socket`; `None` for sockets that are not.
    #[must_use]
    pub fn socket(&self, socket: usize) -> Option<Estimate> {
        let (sensor, trend) = self.sockets.get(socket)?;
        let worst = sensor.worst(self.now);
        let rising = trend.rate(self.now.seconds()).max(0.0);
        let ahead = worst + Celsius(rising * LAG.seconds());
        Some(Estimate { now: worst, ahead, sound: sensor.is_sound(self.now) })
    }

    /// The worst of each over all sockets: what the fans, which all sockets share, must handle.
    #[must_use]
    pub fn hottest(&self) -> Option<Estimate> {
        self.worst_of(|_| true)
    }

    /// The same of the sockets that are read: what work may be held back for. A sensor that is lost
    /// asks for air alone.
    #[must_use]
    pub fn hottest_read(&self) -> Option<Estimate> {
        self.worst_of(|estimate| estimate.sound)
    }

    fn worst_of(&self, counts: impl Fn(&Estimate) -> bool) -> Option<Estimate> {
        let sockets = (0..self.sockets.len()).filter_map(|socket| self.socket(socket));
        sockets.filter(counts).reduce(|a, b| Estimate {
            now: a.now.max(b.now),
            ahead: a.ahead.max(b.ahead),
            sound: a.sound && b.sound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_no_trend() {
        let mut trend = Trend::default();
        for second in 1..=110 {
            let t = if second > 100 { 86.0 } else { 64.0 } + f64::from(second % 2);
            trend.add(f64::from(second), t);
            assert!(trend.rate(f64::from(second)) < 0.2, "{second} s");
        }
    }

    #[test]
    fn a_steady_rise_is_one_and_rounding_is_none() {
        let rate = |t: fn(u32) -> f64| {
            let mut trend = Trend::default();
            (0..60).for_each(|second| trend.add(f64::from(second), t(second)));
            trend.rate(59.0)
        };
        assert!((rate(|second| 50.0 + f64::from(second) * 0.3) - 0.3).abs() < 1e-6);
        assert_eq!(rate(|second| 60.0 + f64::from(second % 2)), 0.0);
    }
}
