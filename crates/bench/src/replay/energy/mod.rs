//! What a replay cost in energy: meters, their samples on one clock, and the integral over the
//! measured time.

mod accuracy;
mod external;
mod heading;
mod integral;
mod meters;
mod parse;
mod sampler;

pub use accuracy::Accuracy;
pub use external::{command, file};
pub use integral::Curve;
pub use meters::{Found, MeterKind};
pub use sampler::{Clock, Sampler, Taken};
