//! Controllers of cores and frequency.

mod native;

pub use native::Native;
