//! Dynamic load balancing, the paper's default baseline: "thread migration to minimize the length
//! difference between task queues, but does not monitor temperatures. It uses a
//! proportional-integral (PI) fan controller and keeps all modules active" (EADC §VII).

use crate::cooling::default_fans::DefaultFans;
use crate::cooling::placement::Placement;
use crate::sense::thresholds::Thresholds;
use crate::topology::Topology;
use crate::{Policy, Request, Signals};

/// The controller.
#[derive(Debug, Clone)]
pub struct Dlb {
    fans: DefaultFans,
    placement: Placement,
}

impl Dlb {
    /// DLB for `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let fans = DefaultFans::new(topology, Thresholds::new(topology));
        Self { fans, placement: Placement::new(topology) }
    }
}

impl Policy for Dlb {
    fn name(&self) -> &'static str {
        "dlb"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        if self.fans.step(signals, request, "dlb:temperature").is_some() {
            self.placement.by_number(signals, request, "dlb:queue-length");
        }
    }
}
