//! What every policy promises, and the table: all in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod budget;
mod common;
mod no_allocation;
mod ownership;
mod table;
