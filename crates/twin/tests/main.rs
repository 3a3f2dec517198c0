//! The twin from outside: all in one program, so that it is built once and its tests share the
//! cores.

#![allow(clippy::unwrap_used, clippy::panic)]

mod as_host;
mod bases;
mod common;
mod cooling;
mod disk_activity;
mod eadc_servers;
mod engine;
mod feed_forward;
mod jobs;
mod levers;
mod limits;
mod operating_point;
mod policies;
mod settling;
mod thermal;
mod thermal_faults;
mod thermal_rest;
mod together;
mod traces;
