//! The air that the fans give, and what resistance it leaves to heat.

use crate::sense::plausible::{COLDEST, is_duty, is_inlet};
use crate::units::Rpm;
use crate::{Column, Signals};

/// Exponent of the convective resistance by fan speed (Dittus and Boelter, turbulent flow).
const CONVECTION: f64 = 0.8;
/// Air that moves by itself, as a duty: convection goes on when every fan stands still.
const LEAST: f64 = 0.03;
/// Speed below which a fan moves no air; the slowest server fans idle at several times that.
const STANDSTILL: Rpm = Rpm(200.0);

/// `r`: relative resistance to the air at `duty`; 1 at full speed.
pub fn resistance(duty: f64) -> f64 {
    duty.clamp(LEAST, 1.0).powf(-CONVECTION)
}

/// The duty with resistance `r`.
pub fn duty_of(r: f64) -> f64 {
    r.max(1.0).powf(-1.0 / CONVECTION)
}

/// The duty that carries the same heat at a temperature difference that is `ratio` of what
/// `duty` needs; used to look ahead.
pub fn duty_for(duty: f64, ratio: f64) -> f64 {
    duty_of(resistance(duty) * ratio.max(1e-3))
}

/// Share of the fans that blow, by the `air` that they give when asked for `duty`. One that refuses
/// to slow down is not counted on.
pub fn blowing(duty: f64, air: f64) -> f64 {
    if duty > 0.0 { (air / duty).clamp(0.05, 1.0) } else { 1.0 }
}

/// The air that the fans give, as a mean duty: what each reports, or was `given`, and nothing
/// for one that stands still. `None` when neither is known of any fan.
pub fn air(signals: &Signals, given: &Column<f64>) -> Option<f64> {
    let fans = signals.cooling.fans.iter().zip(given.values());
    let known = fans.filter_map(|(fan, given)| {
        let still = fan.speed.is_some_and(|speed| speed < STANDSTILL);
        let duty = fan.duty.into_iter().chain(given).find(|duty| is_duty(*duty))?;
        Some(if still { 0.0 } else { duty })
    });
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), duty| (sum + duty, count + 1.0));
    (count > 0.0).then(|| (sum / count).min(1.0))
}

/// Air and inlet as they were when they were last known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings {
    air: Option<f64>,
    inlet: Option<f64>,
}

impl Surroundings {
    /// Takes one period in which the fans were `given` these duties.
    pub fn update(&mut self, signals: &Signals, given: &Column<f64>) {
        let inlet = signals.cooling.inlet.map(|reading| reading.temperature);
        self.air = air(signals, given).or(self.air);
        self.inlet = inlet.filter(|t| is_inlet(*t)).map(|t| t.0).or(self.inlet);
    }

    /// The air that the fans give, as a duty.
    pub fn air(&self) -> f64 {
        self.air.unwrap_or(1.0)
    }

    /// `T_amb`, °C; the warm end of what data centres keep to where nobody measures it.
    pub fn inlet(&self) -> f64 {
        self.inlet.unwrap_or(35.0)
    }

    /// What no die that runs is below, °C: it is hardly colder than the air that it is in.
    pub fn coldest(&self) -> f64 {
        self.inlet.map_or(COLDEST, |inlet| inlet - 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Watts;
    use crate::{FanSpec, InForce, Request, Topology};

    #[test]
    fn a_smaller_difference_needs_more_air() {
        assert_eq!(duty_for(0.5, 1.0), 0.5);
        assert!(duty_for(0.5, 0.8) > 0.6 && duty_for(0.5, 1.2) < 0.4);
    }

    #[test]
    fn a_fan_that_says_nothing_possible_is_not_taken_to_blow() {
        let fan = FanSpec { min_duty: 0.2, max_power: Watts(10.0) };
        let topology = Topology { fans: vec![fan; 6], ..Topology::default() };
        let (mut signals, mut request) = (Signals::new(&topology), Request::new(&topology));
        (0..6).for_each(|fan| request.fan_duty.ask(fan, 0.3, "test:held"));
        let (mut given, board) = (InForce::new(&topology), InForce::new(&topology));
        given.follow(&request);
        assert!((air(&signals, &given.fan_duty).unwrap() - 0.3).abs() < 1e-9);
        for value in [f64::NAN, -1.0, 1e30, f64::INFINITY] {
            signals.cooling.fans.iter_mut().for_each(|fan| fan.duty = Some(value));
            assert!((air(&signals, &given.fan_duty).unwrap() - 0.3).abs() < 1e-9, "{value}");
            assert_eq!(air(&signals, &board.fan_duty), None, "{value}");
        }
        signals.cooling.fans[0].duty = Some(0.6);
        assert_eq!(air(&signals, &board.fan_duty), Some(0.6));
    }
}
