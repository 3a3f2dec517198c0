//! The data plane from outside: all in one program, so that it is built once and its tests share
//! the cores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod devices;
mod simulation;
mod transport;
