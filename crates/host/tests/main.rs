//! Whole machines.

#![allow(clippy::unwrap_used)]

mod acting;
mod changing;
mod contact;
mod cpusets;
mod drives;
mod fans;
mod found;
mod holds;
mod hostile;
mod idle_wake;
mod jobs;
mod latency;
mod nonsense;
mod places;
mod reactors;
mod real;
mod recall;
mod refusing;
mod restoring;
mod sensing;
mod tasks;
mod throttle;
mod tree;
