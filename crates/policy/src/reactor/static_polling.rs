//! Busy polling, the baseline of the study: threads spread evenly, every core polls at the
//! highest frequency, whatever the load (SPDK's `static` scheduler; slides, "Measurement Study").

use super::Scheduler;

/// Never changes anything: the placement it is given is busy polling.
#[derive(Debug, Clone, Copy, Default)]
pub struct StaticPolling;

impl Scheduler for StaticPolling {
    fn name(&self) -> &'static str {
        "static"
    }
}
