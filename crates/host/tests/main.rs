//! Whole machines.

#![allow(clippy::unwrap_used)]

mod found;
mod tree;
