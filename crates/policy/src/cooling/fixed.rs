//! Fans at one duty throughout: how servers are swept (EADC §V-B), and what a controller of fans
//! has to beat.

use crate::cooling::set_fans;
use crate::topology::Topology;
use crate::{Policy, PolicyError, Request, Signals};

/// One duty for every fan.
#[derive(Debug, Clone)]
pub struct FixedFans {
    duty: f64,
}

impl FixedFans {
    /// For `topology`, whose fans turn no slower than they can.
    ///
    /// # Errors
    /// A duty that is not within 0 to 1.
    pub fn new(topology: &Topology, duty: f64) -> Result<Self, PolicyError> {
        PolicyError::within("duty", duty, 0.0, 1.0, "0 to 1")?;
        Ok(Self { duty: duty.max(topology.min_duty()) })
    }
}

impl Policy for FixedFans {
    fn name(&self) -> &'static str {
        "fixed-fans"
    }

    fn step(&mut self, _: &Signals, request: &mut Request) {
        set_fans(request, self.duty, "fixed:duty");
    }
}
