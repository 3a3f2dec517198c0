//! Policies that know the future: what a causal one could at most reach.

pub mod caps;
pub mod cores;
pub mod fans;
pub mod reactors;
