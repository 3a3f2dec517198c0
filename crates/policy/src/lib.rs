//! Every controller of Ebb and its baselines, as pure functions of what was sensed.
//!
//! A [`Policy`] reads [`Signals`] and sets [`Controls`]; it owns no clock, thread, file or
//! socket and does not allocate once running. The [`Guard`] is the last thing between any
//! policy and any plant. A folder is a resource (`cpu/`, `ssd/`), a file is one controller,
//! written in the symbols of the paper it comes from.

pub mod controls;
pub mod cooling;
pub mod cpu;
pub mod guard;
mod possible;
pub mod reactor;
pub mod registry;
pub mod signals;
pub mod ssd;
pub mod topology;
pub mod units;

pub use controls::{BackgroundMode, ControlName, Controls, Decision, FanControl, GroupControl};
pub use guard::{Guard, Limits};
pub use signals::{
    CoolingSignals, DriveSignals, FanSignals, GroupSignals, IoSignals, JobSignals, PowerSignals,
    QosClass, Reading, Signals,
};
pub use topology::{CoreRole, DriveSpec, FanSpec, GroupSpec, PowerState, PowerStateSpec, Topology};

/// A controller: a pure function from what was sensed to what is asked for.
pub trait Policy: Send {
    /// The name by which the registry, the reports and the command line know it.
    fn name(&self) -> &'static str;

    /// One control period. `controls` holds what is in force; a policy changes only what it
    /// owns and gives a reason with each change.
    ///
    /// Called every [`PERIOD`]; a policy with a longer cycle counts periods.
    fn step(&mut self, signals: &Signals, controls: &mut Controls);
}

/// The control period: PACER's burst window (§IV-B, 500 ms) and PACMAN's `m_interval` (§VI-A).
pub const PERIOD: units::Nanos = units::Nanos::from_millis(500);
