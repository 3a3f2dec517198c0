//! Controllers of cores and frequency.

mod constant;
mod native;
mod ondemand;
mod pacer;
mod pacer_plus;

pub use constant::Constant;
pub use native::Native;
pub use ondemand::Ondemand;
pub use pacer::{Adaptors, Pacer, PacerParams};
pub use pacer_plus::{DRIVES, PacerPlus};

use crate::units::Hertz;

/// The closest available frequency, the lower of two equally close.
fn closest(frequencies: &[Hertz], wanted: Hertz) -> Hertz {
    let off = |f: &Hertz| (f.0 - wanted.0).abs();
    let closest = frequencies.iter().copied().min_by(|a, b| off(a).total_cmp(&off(b)));
    closest.unwrap_or(wanted)
}
