//! Policies that know the future: what a causal one could at most reach.

pub mod cores;
pub mod reactors;
