//! Load on storage: `ebb load` and `ebb replay`, and what is measured of requests.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic on a closed pipe: see `ebb_cli`.

pub mod latency;
pub mod load;
pub mod measured;
pub mod replay;
pub mod thread;
