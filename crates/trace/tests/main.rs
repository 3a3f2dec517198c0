//! Traces from outside: all in one program, so that it is built once and its tests share the
//! cores.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod any_bytes;
mod reading;
mod real_traces;
mod reported;
mod round_trip;
