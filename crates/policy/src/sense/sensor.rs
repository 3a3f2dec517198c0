//! One temperature sensor that lags, rounds, and may be lost.
//!
//! The worst case is what it last said, plus the age of that times the steepest rise of a heat
//! sink (Oxide's hubris, `task/thermal`): a lost sensor makes control more careful by itself. What
//! is not a number, or what no running machine can have, is as if lost.
//!
//! What a sensor cannot show stays open: an offset, and what happens within its lag. The 10 K
//! between the set point and the red line, and the hardware's own throttling, are for that.

use crate::Reading;
use crate::units::{Celsius, Nanos};

/// Steepest rise to reckon with while nothing is known, K/s: 240 W (EADC §V-A) into the
/// 240 J/K of a half-kilogramme heat sink with its die.
const SLEW: f64 = 1.0;
/// Age up to which a reading is current: two intervals.
const CURRENT: Nanos = Nanos::from_secs(2);
/// What no silicon that runs can be above, °C.
const HOTTEST: f64 = 130.0;

/// A sensor's last reading that can be true.
#[derive(Debug, Clone, Copy)]
pub struct Sensor {
    /// When it was taken; the first time that the sensor was asked before there was any.
    at: Option<Nanos>,
    temperature: f64,
    spoken: bool,
}

impl Sensor {
    /// A sensor that is taken to have said `temperature` before it says anything.
    pub fn new(temperature: Celsius) -> Self {
        Self { at: None, temperature: temperature.0, spoken: false }
    }

    /// Takes what was read, if anything was; returns it if it is new and can be true, of a die
    /// that is not below `coldest`.
    pub fn read(&mut self, now: Nanos, reading: Option<Reading>, coldest: f64) -> Option<f64> {
        let before = *self.at.get_or_insert(now);
        let Reading { at, temperature: Celsius(temperature) } = reading?;
        let new = at <= now && (at > before || !self.spoken);
        if !new || !(coldest..=HOTTEST).contains(&temperature) {
            return None;
        }
        *self = Self { at: Some(at), temperature, spoken: true };
        Some(temperature)
    }

    /// What it last said.
    pub fn said(&self) -> Celsius {
        Celsius(self.temperature)
    }

    /// Whether its last reading is current.
    pub fn is_sound(&self, now: Nanos) -> bool {
        self.spoken && self.age(now) <= CURRENT.seconds() * 2.0
    }

    /// The worst case at `now`: what it last said if that is current, and more the older it is.
    pub fn worst(&self, now: Nanos) -> Celsius {
        self.worst_since(now, now)
    }

    /// The same of a reading that is not believed since `stuck`.
    pub fn worst_since(&self, now: Nanos, stuck: Nanos) -> Celsius {
        let age = self.age(now).max(now.saturating_sub(stuck).seconds());
        Celsius(self.temperature + SLEW * (age - CURRENT.seconds()).max(0.0))
    }

    fn age(&self, now: Nanos) -> f64 {
        self.at.map_or(0.0, |at| now.saturating_sub(at).seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(sensor: &mut Sensor, second: u64, temperature: f64) -> Option<f64> {
        let at = Nanos::from_secs(second);
        sensor.read(at, Some(Reading { at, temperature: Celsius(temperature) }), 15.0)
    }

    #[test]
    fn a_lost_sensor_grows_hotter_by_its_age() {
        let mut sensor = Sensor::new(Celsius(75.0));
        let worst = |sensor: &Sensor, second| sensor.worst(Nanos::from_secs(second)).0;
        assert_eq!(sensor.read(Nanos::from_secs(1000), None, 15.0), None);
        assert_eq!((worst(&sensor, 1000), worst(&sensor, 1012)), (75.0, 85.0));
        says(&mut sensor, 1013, 60.0);
        assert_eq!((worst(&sensor, 1015), worst(&sensor, 1035)), (60.0, 80.0));
        // One that repeats its last reading with its time says nothing.
        let old = Reading { at: Nanos::from_secs(1013), temperature: Celsius(60.0) };
        assert_eq!(sensor.read(Nanos::from_secs(1035), Some(old), 15.0), None);
        assert_eq!(worst(&sensor, 1035), 80.0);
        assert!(!sensor.is_sound(Nanos::from_secs(1035)));
    }

    #[test]
    fn what_cannot_be_is_as_if_lost() {
        for absurd in [255.0, 131.0, 0.0, 14.0, -273.0, f64::NAN, f64::INFINITY] {
            let mut sensor = Sensor::new(Celsius(75.0));
            says(&mut sensor, 1, 60.0);
            assert_eq!(says(&mut sensor, 11, absurd), None);
            assert_eq!(sensor.worst(Nanos::from_secs(11)), Celsius(68.0), "{absurd}");
        }
        let mut sensor = Sensor::new(Celsius(75.0));
        let (now, later) = (Nanos::from_secs(1), Nanos::from_secs(9));
        let early = Reading { at: later, temperature: Celsius(60.0) };
        assert_eq!(sensor.read(now, Some(early), 15.0), None, "nothing is read in the future");
    }
}
