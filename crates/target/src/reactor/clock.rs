//! Time since the runtime began.

use std::time::Instant;

use ebb_policy::units::Nanos;

/// The kernel's monotonic clock, read without a system call (vDSO), the same on all cores.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }
    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        #[cfg(test)]
        if let Some(now) = super::tests::simulation::now() {
            return now;
        }
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}
