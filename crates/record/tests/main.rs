//! The record of a plant that is not the twin: a server of two core groups, two drives and a few
//! sensors, some of which fail.
#![allow(clippy::unwrap_used, clippy::panic)]

mod noise;
mod plant;
mod recorded;
mod recording;
