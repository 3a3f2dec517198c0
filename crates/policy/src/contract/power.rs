//! What a server draws, part by part.

use serde::{Deserialize, Serialize};

use super::units::{Nanos, Watts};

/// The least CPU time that a server is held to, in cores.
pub const LEAST_TIME: f64 = 0.05;
/// Its period.
pub const LEAST_PERIOD: Nanos = Nanos::from_millis(100);
/// The least bytes a second of each drive and way.
pub const LEAST_RATE: f64 = 1e6;

/// What a server draws, part by part, and what a request costs its cores: what is known of it
/// before any reading.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PowerModel {
    /// Packages outside the cores, at no frequency.
    pub uncore: Watts,
    /// What they draw beyond that at the highest frequency.
    pub uncore_dynamic: Watts,
    /// What they draw less while all cores stand still for want of CPU time.
    pub stopped_saving: Watts,
    /// A core that is on, at no frequency.
    pub core_static: Watts,
    /// What a busy core draws beyond that at the highest frequency.
    pub core_dynamic: Watts,
    /// A core that is parked.
    pub parked: Watts,
    /// Both dynamic parts go with the frequency to this power.
    pub exponent: f64,
    /// All but packages and traffic: board, fans at their most, drives ready for work.
    pub rest: Watts,
    /// What of it fans draw that may turn slower.
    #[serde(default)]
    pub fans: Watts,
    /// What of it drives do not draw while they rest.
    #[serde(default)]
    pub resting: Watts,
    /// Joules for each byte read, in drives, memory and network.
    pub read: f64,
    /// The same for each byte written.
    pub write: f64,
    /// What all traffic draws at its most.
    pub most_traffic: Watts,
    /// Share of what the wall supplies that reaches the parts.
    pub efficiency: f64,
    /// Seconds of service that a stop for want of CPU time costs in the long run.
    pub resume: f64,
    /// Time of which the meter of the whole server tells the mean; the control period where it is
    /// longer.
    pub meter_window: Nanos,
    /// What a request costs the cores of each group.
    pub work: Vec<RequestWork>,
}

/// What a request costs a core of a group.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestWork {
    /// Cycles for each request.
    pub cycles: f64,
    /// Further cycles for each byte.
    pub per_byte: f64,
    /// Further seconds for each other active core.
    pub contention: f64,
}

impl PowerModel {
    /// Power of the packages with `cores` on and `parked` parked, at `share` of the highest
    /// frequency, of which the cores may run for the share `time`.
    #[must_use]
    pub fn packages(&self, cores: f64, parked: f64, share: f64, time: f64) -> Watts {
        let scaled = share.powf(self.exponent);
        let core = self.core_static + self.core_dynamic * scaled;
        let uncore = self.uncore + self.uncore_dynamic * scaled;
        let running = uncore + core * cores;
        let stopped = uncore - self.stopped_saving + self.parked * cores;
        running * time + stopped * (1.0 - time) + self.parked * parked
    }

    /// At the wall, with traffic of `read` and `written` bytes a second.
    #[must_use]
    pub fn wall(&self, packages: Watts, read: f64, written: f64) -> Watts {
        let traffic = Watts(self.read * read + self.write * written);
        (packages + self.rest + traffic) * (1.0 / self.efficiency.max(0.1))
    }
}
