//! The digital twin: a storage server in virtual time.
//!
//! Requests queue one by one through the stages the PACER paper names (front-end, key/value,
//! resource volume, drive); power is integrated per component. The policies and the guard are
//! the very code that runs in production. See `docs/models/`.

pub mod drive;
mod drive_file;
pub mod engine;
mod factors;
pub mod fan;
pub mod faults;
pub mod hdd;
pub mod hindsight;
pub mod outcome;
pub mod profile;
pub mod reactor;
mod spells;
pub mod thermal;
pub mod vibration;
pub mod windows;

pub use drive_file::{DriveFile, DriveHeat};
pub use engine::{AsHost, Change, Run, TwinError, run, run_to_trip};
pub use outcome::{
    Energy, JobTotal, Observer, Outcome, PartTotal, Sample, Spell, ThermalTotals, Trip, Unobserved,
    Weather,
};
pub use profile::{Profile, ProfileError};
