//! What several commands share: their errors, options, output, progress and text.

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic on a closed pipe: see `out`.

pub mod args;
mod error;
mod flow;
pub mod input;
pub mod interrupt;
pub mod out;
pub mod output;
pub mod parallel;
pub mod progress;
pub mod random;
pub mod text;

pub use error::{Interrupted, Unwritten, Usage, usage};
