//! What the policies promise, kept end to end in the twin.

#![allow(clippy::unwrap_used)]

mod budget;
#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod pacer;
mod pacer_plus;
mod together;
