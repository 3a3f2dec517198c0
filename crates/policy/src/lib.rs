//! Every controller of Ebb and its baselines, as pure functions of what was sensed.
//!
//! A [`Policy`] reads [`Signals`] and fills in a [`Request`]; it owns no clock, thread, file or
//! socket and does not allocate once running. The [`Guard`] is the last thing between any
//! policy and any plant: it makes of the request what is [`InForce`]. A [`cycle`] runs the two on
//! a plant. A folder is a resource (`cpu/`, `ssd/`), a file is one controller, written in the
//! symbols of the paper it comes from.

// What the documentation shows can be copied into the crate as it is.
extern crate self as ebb_policy;

mod contract;
pub mod cooling;
pub mod cpu;
pub mod cycle;
pub mod guard;
pub mod reactor;
pub mod registry;
pub mod sense;
pub mod server;
pub mod ssd;

pub use contract::class::QosClass;
pub use contract::control::{BackgroundMode, Combine, Control, ControlRow, Setting, Steward};
pub use contract::in_force::{
    Applied, Column, Decision, Given, GroupSetting, InForce, Outcome, RELEASED,
};
pub use contract::names::Names;
pub use contract::policy::{Policy, PolicyError};
pub use contract::request::{Conflict, Owner, Request, Wish, Wishes};
pub use contract::row::{Aggregation, Domain, Unit};
pub use contract::settling::Settling;
pub use contract::signal::Signal;
pub use contract::signals::{
    BestEffortSignals, CoolingSignals, DriveSignals, FanSignals, GroupSignals, IoSignals,
    JobSignals, OpSignals, Percentiles, PowerSignals, PressureSignals, Reading, Signals,
};
pub use contract::source::{Origin, Source, Sources};
pub use contract::topology::{
    CoreRole, DriveSpec, FanSpec, GroupSpec, Limitable, PowerModel, PowerState, PowerStateSpec,
    RequestWork, Topology,
};
pub use contract::{cpus, ladder, live, table, topology, units};
pub use cycle::{Cycle, Cycled, PERIOD, Plant};
pub use guard::{Guard, Limits, check_server_budget};

/// The worked example of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding-a-policy.md")]
struct AddingAPolicy;
