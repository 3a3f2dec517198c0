//! Plans for a load that is known: the best that was found in hindsight, to judge policies by. None
//! is a bound, and none says what is possible.

pub mod budget;
pub mod caps;
pub mod cores;
mod descent;
pub mod fans;
pub mod reactors;
