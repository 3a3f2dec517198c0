//! Whole machines.

#![allow(clippy::unwrap_used)]

mod acting;
mod found;
mod hostile;
mod sensing;
mod tasks;
mod tree;
