//! Controllers of fans and heat: EADC and the baselines it is compared with (EADC §VII).
//!
//! | file | what it is |
//! |---|---|
//! | `dlb.rs` | the default: threads spread by number, a PI fan loop |
//! | `dtm.rs` | Choi et al.: work moved off the hottest socket, throttled near the emergency |
//! | `jetc.rs` | Ayoub et al.: placement and fans decided together, close to the limit |
//! | `eadc/` | aware of what fan vibration costs the disks |
//! | `fixed.rs` | fans at one speed throughout |
//! | `default_fans.rs` | the fans of DLB and DTM |
//! | `pi.rs` | the fan loop that all of them share |
//! | `placement.rs` | which socket a job runs on |

mod default_fans;
mod dlb;
mod dtm;
mod eadc;
mod fixed;
mod jetc;
mod pi;
mod placement;

pub use dlb::Dlb;
pub use dtm::Dtm;
pub use eadc::{Curve, CurveError, Eadc, EadcParams, EadcPlus, PlusParams};
pub use fixed::FixedFans;
pub use jetc::Jetc;

use crate::sense::plausible::is_duty;
use crate::units::Nanos;
use crate::{Request, Signals};

/// Fan control and I/O monitoring interval (EADC §VI-B).
pub const INTERVAL: Nanos = Nanos::from_secs(1);

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

/// The duty in force in all fans: what was given last, and before the first time what they
/// report. A fan that does not obey is not averaged in, or it would pull the others with it.
fn duty(signals: &Signals) -> f64 {
    let possible = |duty: &f64| is_duty(*duty);
    let given = signals.in_force.fan_duty.value(0).filter(possible);
    let fans = signals.cooling.fans.iter();
    let reported = || fans.filter_map(|fan| fan.duty.filter(possible)).reduce(f64::max);
    given.or_else(reported).unwrap_or(1.0).min(1.0)
}

/// Runs every fan at `duty`: one air path, one speed.
fn set_fans(request: &mut Request, duty: f64, reason: &'static str) {
    for fan in 0..request.fan_duty.len() {
        request.fan_duty.ask(fan, duty, reason);
    }
}
