//! Whole machines.

#![allow(clippy::unwrap_used)]

mod acting;
mod found;
mod sensing;
mod tree;
