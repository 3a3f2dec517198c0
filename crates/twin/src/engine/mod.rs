//! The engine: one run of one policy over one workload, in virtual time.

use ebb_policy::units::Nanos;
use ebb_policy::{Limits, Policy};
use ebb_trace::{TraceError, Workload};

use crate::outcome::{Observer, Outcome};
use crate::profile::Profile;

/// One run: a server, a policy, a workload.
pub struct Run<'a> {
    /// The server.
    pub profile: &'a Profile,
    /// The policy; made for [`Run::profile`]'s topology.
    pub policy: Box<dyn Policy>,
    /// What the guard enforces.
    pub limits: Limits,
    /// Where requests come from.
    pub workload: Workload,
    /// Seed of everything random inside the server; the same for runs to be compared.
    pub seed: u64,
    /// When to stop taking requests; at the workload's end when `None`.
    pub duration: Option<Nanos>,
    /// Time at the start that is simulated but not counted.
    pub warmup: Nanos,
}

/// Why a run could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum TwinError {
    /// The trace could not be read on.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A request the server cannot serve.
    #[error("request {number} at {at}: {reason}")]
    Request {
        /// Which, from 1.
        number: u64,
        /// When it arrived.
        at: Nanos,
        /// What is wrong and what to do.
        reason: String,
    },
}

/// Simulates `run` to its end.
///
/// # Errors
/// When the workload's trace is unreadable or asks for what the server does not have.
pub fn run(run: Run<'_>, observer: &mut dyn Observer) -> Result<Outcome, TwinError> {
    todo!()
}
