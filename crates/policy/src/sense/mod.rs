//! What a reading is worth, for guard and policies alike. Nothing here is learnt: all of it can be
//! checked by hand.
//!
//! | file | what it says |
//! |---|---|
//! | `plausible.rs` | what can be sensed at all |
//! | `sensor.rs` | one temperature at worst: reading + age × slew |
//! | `stuck.rs` | a reading that should have moved |
//! | `estimate.rs` | the sockets' temperatures, now and one lag ahead |
//! | `thresholds.rs` | what they are held against |
//! | `drives.rs` | the drives' temperatures, and the air that they ask for |
//! | `air.rs` | the air that the fans give, and its resistance to heat |
//! | `load.rs` | how busy the processors are |
//! | `asked.rs` | what is known of a drive between two questions |
//! | `cpus.rs` | what users lose on CPUs |

pub(crate) mod air;
mod asked;
mod cpus;
pub(crate) mod drives;
pub(crate) mod estimate;
pub(crate) mod load;
pub(crate) mod plausible;
pub(crate) mod sensor;
pub(crate) mod stuck;
pub(crate) mod thresholds;

pub use asked::{Answers, Asked, DriveHealth};
pub use cpus::add_cpus;
pub use estimate::{Estimate, Estimator};
pub use thresholds::{EMERGENCY, RED_LINE, SET_POINT, Thresholds};

use crate::units::Nanos;

/// Lag of temperature sensors behind a change of load (EADC §VI-C; Kim et al., DATE 2014).
pub const LAG: Nanos = Nanos::from_secs(10);
/// Step of temperature readings, in kelvin (Kim et al., DATE 2014).
pub const QUANTUM: f64 = 1.0;

/// Weight of a new value in an exponential mean with time constant `tau`, after `dt` (seconds).
pub(crate) fn weight(dt: f64, tau: f64) -> f64 {
    -(-dt / tau).exp_m1()
}
