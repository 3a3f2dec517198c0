//! Fans: duty to speed, speed to power and airflow, inertia, stall and failure.
//!
//! Speed follows the PWM duty along the fan's own table with a lag (rotor inertia); power is an
//! electronics floor plus the cube of the speed (EADC §V-C); airflow is proportional to speed
//! (fan laws, on the fixed flow resistance of a chassis). See docs/models/thermal.md.

use serde::Deserialize;

use ebb_policy::FanSpec;
use ebb_policy::units::{Nanos, Rpm, Watts};

/// The fans of a server, all alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fans {
    /// How many.
    pub count: u16,
    /// Points (PWM duty 0 to 1, rpm), both rising up to duty 1; straight lines between. Below the
    /// first point a fan holds that point's speed.
    pub pwm_to_rpm: Vec<(f64, f64)>,
    /// Duty below which the rotor stops; it starts again at the first point's duty.
    #[serde(default)]
    pub stall_duty: f64,
    /// Electronics of one fan, drawn also when its rotor is held.
    pub floor: Watts,
    /// Watts per rpm³ of one fan.
    pub watts_per_rpm3: f64,
    /// Time constant of a change of speed.
    pub inertia: Nanos,
    /// Air that one fan moves through this chassis at duty 1, m³/s.
    pub airflow_m3_s: f64,
    /// Air that comes back through each standing fan, as a share of what a turning one gives.
    #[serde(default)]
    pub backflow: f64,
    /// The board's own control: points (°C of the hottest socket's sensor, duty), both rising.
    /// A lost sensor means duty 1.
    pub firmware: Vec<(f64, f64)>,
    /// The same against the hottest drive; the higher duty counts.
    #[serde(default)]
    pub firmware_drives: Vec<(f64, f64)>,
}

/// What is wrong with one fan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FanFault {
    /// Nothing.
    #[default]
    None,
    /// The rotor is held: no air, electronics still powered.
    Stalled,
    /// No power: it coasts to a stop.
    Dead,
}

impl Fans {
    /// What policies know of each fan.
    #[must_use]
    pub fn spec(&self) -> FanSpec {
        let first = self.pwm_to_rpm.first().map_or(0.0, |point| point.0);
        FanSpec { min_duty: first.max(self.stall_duty), max_power: self.power(self.top()) }
    }
    /// Speed at duty 1.
    #[must_use]
    pub fn top(&self) -> Rpm {
        Rpm(self.pwm_to_rpm.last().map_or(0.0, |point| point.1))
    }
    /// Power of one turning fan.
    #[must_use]
    pub fn power(&self, speed: Rpm) -> Watts {
        self.floor + Watts(self.watts_per_rpm3 * speed.0.powi(3))
    }
    /// Speed that one fan settles at.
    #[must_use]
    pub fn speed(&self, duty: f64) -> Rpm {
        Rpm(if duty < self.stall_duty { 0.0 } else { line(&self.pwm_to_rpm, duty) })
    }
    /// What the board's own control asks for; `None` where a sensor was lost.
    #[must_use]
    pub fn firmware_duty(&self, socket: Option<f64>, drive: Option<f64>) -> f64 {
        let sockets = socket.map_or(1.0, |celsius| line(&self.firmware, celsius));
        let drives = match (self.firmware_drives.is_empty(), drive) {
            (true, _) => 0.0,
            (false, Some(celsius)) => line(&self.firmware_drives, celsius),
            (false, None) => 1.0,
        };
        sockets.max(drives)
    }
    /// Share of a change of speed that is still to come after `seconds`.
    #[must_use]
    pub fn left(&self, seconds: f64) -> f64 {
        let tau = self.inertia.seconds();
        if tau > 0.0 { (-seconds / tau).exp() } else { 0.0 }
    }
    /// Air through the chassis, m³/s.
    #[must_use]
    pub fn airflow(&self, fans: &[Fan]) -> f64 {
        let top = self.top().0.max(1.0);
        let (mut turning, mut standing, mut air) = (0.0, 0.0, 0.0);
        for share in fans.iter().map(|fan| fan.speed / top) {
            // A fan that coasts below a fiftieth of its top speed holds no air back.
            if share < 0.02 {
                standing += 1.0;
            } else {
                turning += 1.0;
            }
            air += share * self.airflow_m3_s;
        }
        if turning == 0.0 {
            return air;
        }
        air * turning / (turning + self.backflow * standing)
    }
}

/// One fan in time.
#[derive(Debug, Clone, Default)]
pub struct Fan {
    /// rpm.
    speed: f64,
    /// What it settles at, unless faulty.
    target: f64,
    fault: FanFault,
}

impl Fan {
    /// A fan that has settled at `duty`.
    #[must_use]
    pub fn new(fans: &Fans, duty: f64) -> Self {
        let speed = fans.speed(duty).0;
        Self { speed, target: speed, fault: FanFault::None }
    }
    /// Tachometer.
    #[must_use]
    pub fn speed(&self) -> Rpm {
        Rpm(self.speed)
    }
    /// Breaks or repairs it.
    pub fn set_fault(&mut self, fault: FanFault) {
        self.fault = fault;
    }

    /// Sets its duty.
    pub fn set_duty(&mut self, fans: &Fans, duty: f64) {
        let first = fans.pwm_to_rpm.first().map_or(0.0, |point| point.0);
        let stands = self.speed < 1.0;
        self.target = if stands && duty < first { 0.0 } else { fans.speed(duty).0 };
    }

    /// Lets a time pass that leaves this share of a change of speed ([`Fans::left`]); returns the
    /// mean power. Speed is exact, hence the same in one step or in many. Power takes speed to
    /// change evenly within the step: near enough for steps well below the inertia.
    pub fn step(&mut self, fans: &Fans, left: f64) -> Watts {
        let target = if self.fault == FanFault::None { self.target } else { 0.0 };
        let before = self.speed;
        if self.fault == FanFault::Stalled {
            self.speed = 0.0;
        } else if before != target {
            self.speed = target + (before - target) * left;
            if (self.speed - target).abs() < 0.5 {
                self.speed = target;
            }
        }
        match self.fault {
            FanFault::Dead => Watts(0.0),
            FanFault::Stalled => fans.floor,
            FanFault::None => {
                let cube = mean_cube(before, self.speed);
                fans.floor + Watts(fans.watts_per_rpm3 * cube)
            }
        }
    }
}

/// Mean of x³ on the straight line from `a` to `b`.
fn mean_cube(a: f64, b: f64) -> f64 {
    (a + b) * (a * a + b * b) / 4.0
}

/// The value at `x` on straight lines between points with rising x; the end values beyond.
pub(crate) fn line(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|(at, _)| *at < x);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((_, y)), None) | (None, Some((_, y))) => *y,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests;
