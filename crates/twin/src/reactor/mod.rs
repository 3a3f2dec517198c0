//! A polled storage target in virtual time: reactors, lightweight threads, network queues.
//!
//! The schedulers are the very code that runs in the target (`ebb_policy::reactor`). See
//! `docs/models/reactor.md`.

mod cores;
mod engine;
mod hyper_thread;
mod load;
mod power;
mod profile;
mod serve;
#[cfg(test)]
mod tests;

use hdrhistogram::Histogram;

use ebb_policy::reactor::Scheduler;
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::TraceError;

use crate::windows::Windows;

pub use load::{Load, arrivals};
pub use power::Energy;
pub use profile::{Power, Profile, ReactorProfileError};

/// Whose I/O path the requests take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Software {
    /// The target's own, in user space.
    Target,
    /// The kernel's, at `kernel_factor` of the profile times the cost.
    Kernel,
}

/// One run.
pub struct Setup<'a> {
    /// The server.
    pub profile: &'a Profile,
    /// What steers it.
    pub scheduler: Box<dyn Scheduler + 'a>,
    /// What arrives.
    pub load: Load,
    /// Whose I/O path.
    pub software: Software,
    /// Simulated time.
    pub duration: Nanos,
    /// Part of it, from the start, that is not counted.
    pub warmup: Nanos,
    /// Seed of everything random.
    pub seed: u64,
}

/// What a run showed, without the warm-up.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Latency from arrival at the client to the answer there, in nanoseconds; of those that
    /// arrived and were answered in the time counted.
    pub latency: Histogram<u64>,
    /// Energy by component.
    pub energy: Energy,
    /// Time counted.
    pub span: Nanos,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests answered, whenever they arrived.
    pub answered: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Bytes that the answered ones read or wrote.
    pub bytes: u64,
    /// All latencies together, exactly.
    pub waited: Nanos,
    /// The same window by window.
    pub windows: Windows,
    /// Time that hyper-threads spent on requests.
    pub served: Nanos,
    /// Time that hyper-threads were asleep, in whatever state.
    pub asleep: Nanos,
    /// Largest mean power of a coarse period.
    pub peak: Watts,
    /// Energy of each coarse period that counts as a whole.
    pub periods: Vec<f64>,
    /// Threads moved from core to core.
    pub moves: u64,
    /// Times a core was woken from sleep.
    pub wakes: u64,
    /// End of each coarse period in seconds and the hyper-threads that were awake then.
    pub awake: Vec<(f64, u16)>,
}

impl Shown {
    /// Mean power of the server.
    #[must_use]
    pub fn power(&self) -> Watts {
        self.energy.total() / self.span
    }
    /// Exact mean latency in nanoseconds; `None` without requests.
    #[must_use]
    pub fn mean_latency(&self) -> Option<f64> {
        (!self.latency.is_empty()).then(|| self.waited.0 as f64 / self.latency.len() as f64)
    }
    /// A quantile of latency in microseconds.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 * 1e-3
    }
}

/// Runs one experiment.
///
/// # Errors
/// An unreadable trace.
pub fn run(setup: Setup<'_>) -> Result<Shown, TraceError> {
    engine::Engine::new(setup).run()
}
