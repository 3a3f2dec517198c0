//! Devices against a model: what was written is what is read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod file;
mod volatile;
