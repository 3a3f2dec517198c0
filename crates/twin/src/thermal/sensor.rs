//! Temperature sensors as servers have them: late, rounded, noisy, read now and then.
//!
//! About 10 s of lag and 1 K of rounding (EADC §VI-C and its reference 25, Kim et al., DATE
//! 2014). The lag is a transport delay: a reading says what the die was that long ago, and claims
//! to be fresh.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use ebb_policy::Reading;
use ebb_policy::units::{Celsius, Nanos};

/// What a sensor is like.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensorSpec {
    /// Time by which readings are late; rounded to readings.
    pub lag: Nanos,
    /// Time between two readings.
    pub interval: Nanos,
    /// Readings are multiples of this; 0 K does not round.
    pub step: Celsius,
    /// Standard deviation of the noise before rounding.
    pub noise: Celsius,
}

/// What is wrong with a sensor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SensorFault {
    /// Nothing.
    #[default]
    None,
    /// It gives no reading.
    Lost,
    /// It repeats its last reading as if it were new.
    Stuck,
    /// It is off by so many kelvins.
    Lying(f64),
}

/// One sensor in time.
#[derive(Debug, Clone)]
pub struct Sensor {
    spec: SensorSpec,
    random: Pcg64Mcg,
    /// True temperatures at the last readings, as a ring; `oldest` is the next to be said.
    past: Vec<f64>,
    oldest: usize,
    /// When the next reading is due, ns.
    due: u64,
    last: Reading,
    fault: SensorFault,
}

impl Sensor {
    /// A sensor of something that has been at `celsius` for long.
    #[must_use]
    pub fn new(spec: &SensorSpec, celsius: f64, seed: u64) -> Self {
        let readings = (spec.lag.0 + spec.interval.0 / 2) / spec.interval.0.max(1);
        let mut sensor = Self {
            spec: *spec,
            random: Pcg64Mcg::seed_from_u64(seed),
            past: vec![celsius; readings as usize],
            oldest: 0,
            due: spec.interval.0,
            last: Reading::default(),
            fault: SensorFault::None,
        };
        sensor.last.temperature = sensor.say(celsius);
        sensor
    }
    /// Breaks or repairs it.
    pub fn set_fault(&mut self, fault: SensorFault) {
        self.fault = fault;
    }

    /// Time has come to `now`, where the truth is `celsius`; call it at least once per interval.
    pub fn observe(&mut self, now: Nanos, celsius: f64) {
        if now.0 < self.due {
            return;
        }
        self.due = now.0 + self.spec.interval.0 - (now.0 - self.due) % self.spec.interval.0.max(1);
        let late = match self.past.get_mut(self.oldest) {
            Some(past) => std::mem::replace(past, celsius),
            None => celsius,
        };
        self.oldest = (self.oldest + 1) % self.past.len().max(1);
        let said = self.say(late);
        self.last.at = now;
        if self.fault != SensorFault::Stuck {
            self.last.temperature = said;
        }
    }

    /// What it says: its last reading.
    #[must_use]
    pub fn reading(&self) -> Option<Reading> {
        match self.fault {
            SensorFault::Lost => None,
            SensorFault::Lying(off) => {
                let temperature = Celsius(self.last.temperature.0 + off);
                Some(Reading { temperature, ..self.last })
            }
            SensorFault::None | SensorFault::Stuck => Some(self.last),
        }
    }

    fn say(&mut self, celsius: f64) -> Celsius {
        let noise: f64 = StandardNormal.sample(&mut self.random);
        let noisy = celsius + noise * self.spec.noise.0;
        let step = self.spec.step.0;
        Celsius(if step > 0.0 { (noisy / step).round() * step } else { noisy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: SensorSpec = SensorSpec {
        lag: Nanos::from_secs(10),
        interval: Nanos::from_secs(1),
        step: Celsius(1.0),
        noise: Celsius(0.0),
    };

    /// Readings of a step from 40 °C to 80 °C at 5 s, every 100 ms.
    fn step_response(spec: &SensorSpec) -> Vec<(u64, f64)> {
        let mut sensor = Sensor::new(spec, 40.0, 1);
        let mut said = Vec::new();
        for tick in 1..300u64 {
            let now = Nanos::from_millis(100 * tick);
            sensor.observe(now, if tick < 50 { 40.0 } else { 80.0 });
            said.push((now.0 / 1_000_000, sensor.reading().unwrap().temperature.0));
        }
        said
    }

    #[test]
    fn a_step_shows_after_the_lag() {
        let rise = |spec: &SensorSpec| {
            step_response(spec).into_iter().find(|(_, said)| *said == 80.0).map(|(at, _)| at)
        };
        assert_eq!(rise(&SPEC), Some(15_000));
        assert_eq!(rise(&SensorSpec { lag: Nanos::ZERO, ..SPEC }), Some(5_000));
    }

    #[test]
    fn readings_are_rounded_and_the_noise_is_as_wide_as_stated() {
        let spec = SensorSpec { noise: Celsius(0.5), lag: Nanos::ZERO, ..SPEC };
        let smooth = SensorSpec { step: Celsius(0.0), ..spec };
        let collect = |spec: &SensorSpec| -> Vec<f64> {
            let mut sensor = Sensor::new(spec, 60.3, 9);
            let said = |second| {
                sensor.observe(Nanos::from_secs(second), 60.3);
                sensor.reading().unwrap().temperature.0
            };
            (1..4000).map(said).collect()
        };
        assert!(collect(&spec).iter().all(|said| said.fract() == 0.0));
        let said = collect(&smooth);
        let mean = said.iter().sum::<f64>() / said.len() as f64;
        let variance = said.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / said.len() as f64;
        assert!((mean - 60.3).abs() < 0.05 && (variance.sqrt() - 0.5).abs() < 0.03);
    }

    #[test]
    fn faults_show_as_they_are_and_end() {
        let mut sensor = Sensor::new(&SensorSpec { lag: Nanos::ZERO, ..SPEC }, 40.0, 1);
        let mut at = |second, celsius, fault| {
            sensor.set_fault(fault);
            sensor.observe(Nanos::from_secs(second), celsius);
            sensor.reading().map(|reading| (reading.at.seconds(), reading.temperature.0))
        };
        assert_eq!(at(1, 50.0, SensorFault::None), Some((1.0, 50.0)));
        assert_eq!(at(2, 60.0, SensorFault::Lost), None);
        assert_eq!(at(3, 70.0, SensorFault::None), Some((3.0, 70.0)));
        assert_eq!(at(4, 80.0, SensorFault::Stuck), Some((4.0, 70.0)));
        assert_eq!(at(5, 80.0, SensorFault::Lying(-15.0)), Some((5.0, 65.0)));
        assert_eq!(at(6, 80.0, SensorFault::None), Some((6.0, 80.0)));
    }
}
