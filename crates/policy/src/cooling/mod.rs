//! Controllers of fans and heat: EADC and the baselines it is compared with (EADC §VII).
//!
//! | file | what it is |
//! |---|---|
//! | `dlb.rs` | the default: threads spread by number, a PI fan loop |
//! | `dtm.rs` | Choi et al.: work moved off the hottest socket, throttled near the emergency |
//! | `jetc.rs` | Ayoub et al.: placement and fans decided together, close to the limit |
//! | `eadc/` | aware of what fan vibration costs the disks |
//! | `default_fans.rs` | the fans of DLB and DTM |
//! | `pi.rs` | the fan loop that all of them share |
//! | `estimate.rs`, `sensor.rs` | how hot it may be, by sensors that lag, round, fail and lie |
//! | `load.rs` | how busy the processors are |
//! | `drives.rs` | how hot each drive may be |
//! | `rise.rs` | what load and air do to a die: what its sensor must show, and does not yet |
//! | `still.rs` | whether a reading that stands still is true |
//! | `placement.rs` | which socket a job runs on |

mod default_fans;
mod dlb;
pub(crate) mod drives;
mod dtm;
mod eadc;
mod estimate;
mod jetc;
mod load;
mod pi;
mod placement;
mod rise;
mod sensor;
mod still;
#[cfg(test)]
mod tests;

pub use dlb::Dlb;
pub use dtm::Dtm;
pub use eadc::{Curve, CurveError, Eadc};
pub use estimate::{Estimate, Estimator};
pub use jetc::Jetc;

use crate::possible::is_duty;
use crate::units::{Celsius, Nanos, Rpm};
use crate::{Column, Request, Signals, Topology};

/// Core thermal set point and fan trigger point (EADC §VII-A).
pub const SET_POINT: Celsius = Celsius(85.0);
/// Emergency threshold, at which hardware throttles by itself (EADC §VII-A).
pub const EMERGENCY: Celsius = Celsius(90.0);
/// `T_redline`, never to be crossed (EADC §IV-A gives no number). Ours: the same 5 K again above
/// the emergency threshold, where processors of that time trip or come close to it.
pub const RED_LINE: Celsius = Celsius(95.0);

/// What the temperatures of one server are held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// See [`SET_POINT`].
    pub set_point: Celsius,
    /// See [`EMERGENCY`].
    pub emergency: Celsius,
    /// See [`RED_LINE`].
    pub red_line: Celsius,
}

impl Thresholds {
    /// EADC's, or as much below them as the hardware of `topology` throttles earlier.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let earlier = EMERGENCY - topology.throttle.unwrap_or(EMERGENCY).min(EMERGENCY);
        Self {
            set_point: SET_POINT - earlier,
            emergency: EMERGENCY - earlier,
            red_line: RED_LINE - earlier,
        }
    }

    /// What `t` degrees here are to a server that throttles at [`EMERGENCY`].
    fn as_usual(&self, t: f64) -> f64 {
        t + (EMERGENCY - self.emergency).0
    }
}

/// Lag of temperature sensors behind a change of load (EADC §VI-C; Kim et al., DATE 2014).
pub const LAG: Nanos = Nanos::from_secs(10);
/// Step of temperature readings, in kelvin (Kim et al., DATE 2014).
pub const QUANTUM: f64 = 1.0;
/// Fan control and I/O monitoring interval (EADC §VI-B).
pub const INTERVAL: Nanos = Nanos::from_secs(1);
/// Least share of the time that a throttled job keeps: nothing starves, whoever throttles.
pub const MIN_JOB_SHARE: f64 = 0.1;

/// Most that fans slow down per second, as duty: full to a third takes 13 s, a little more than
/// the lag with which sensors show that it was too much. Speeding up is not limited.
pub const SLOW_DOWN: f64 = 0.05;

/// Speed below which a fan moves no air; the slowest server fans idle at several times that.
const STANDSTILL: Rpm = Rpm(200.0);

/// Lets every [`INTERVAL`] of a policy's periods through.
#[derive(Debug, Clone, Default)]
struct Interval {
    elapsed: Nanos,
}

impl Interval {
    /// Adds a period; the seconds since the last interval if one is over.
    fn due(&mut self, period: Nanos) -> Option<f64> {
        self.elapsed += period;
        (self.elapsed >= INTERVAL).then(|| std::mem::take(&mut self.elapsed).seconds())
    }
}

/// Weight of a new value in an exponential mean with time constant `tau`, after `dt` (seconds).
pub(crate) fn weight(dt: f64, tau: f64) -> f64 {
    -(-dt / tau).exp_m1()
}

/// The duty in force in all fans: what was given last, and before the first time what they
/// report. A fan that does not obey is not averaged in, or it would pull the others with it.
fn duty(signals: &Signals) -> f64 {
    let possible = |duty: &f64| is_duty(*duty);
    let given = signals.in_force.fan_duty.value(0).filter(possible);
    let fans = signals.cooling.fans.iter();
    let reported = || fans.filter_map(|fan| fan.duty.filter(possible)).reduce(f64::max);
    given.or_else(reported).unwrap_or(1.0).min(1.0)
}

/// The air that the fans give, as a mean duty: what each reports, or was `given`, and nothing
/// for one that stands still. `None` when neither is known of any fan.
pub(crate) fn air(signals: &Signals, given: &Column<f64>) -> Option<f64> {
    let fans = signals.cooling.fans.iter().zip(given.values());
    let known = fans.filter_map(|(fan, given)| {
        let still = fan.speed.is_some_and(|speed| speed < STANDSTILL);
        let duty = fan.duty.into_iter().chain(given).find(|duty| is_duty(*duty))?;
        Some(if still { 0.0 } else { duty })
    });
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), duty| (sum + duty, count + 1.0));
    (count > 0.0).then(|| (sum / count).min(1.0))
}

/// Share of the fans that blow, by the `air` that they give when asked for `duty`. One that refuses
/// to slow down is not counted on.
fn blowing(duty: f64, air: f64) -> f64 {
    if duty > 0.0 { (air / duty).clamp(0.05, 1.0) } else { 1.0 }
}

/// Runs every fan at `duty`: one air path, one speed.
fn set_fans(request: &mut Request, duty: f64, reason: &'static str) {
    for fan in 0..request.fan_duty.len() {
        request.fan_duty.ask(fan, duty, reason);
    }
}
