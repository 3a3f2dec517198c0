//! Who keeps one budget of watts for the whole server: they only cap what others ask for.

mod pass;
#[cfg(test)]
mod testing;
mod thunderbolt;
mod tide;

pub use pass::{Pass, Reading};
pub use thunderbolt::Thunderbolt;
pub use tide::Tide;

use crate::topology::Topology;
use crate::units::Watts;
use crate::{Request, Signals};

/// Cores of all groups that serve I/O.
fn io_cores(topology: &Topology) -> f64 {
    topology.io_groups().map(|group| f64::from(topology.groups[group].cores)).sum()
}

/// The budget and what the server draws, where there are both.
fn sensed(signals: &Signals) -> Option<(Watts, Option<Watts>)> {
    Some((signals.server_budget?, signals.power.total))
}

/// Takes back all limits: there is no budget.
fn release(request: &mut Request) {
    for group in 0..request.core_limit.len() {
        request.core_limit.release(group);
        request.frequency_limit.release(group);
    }
    request.package_limit.release(0);
    request.cpu_time.release(0);
    request.cpu_period.release(0);
    request.best_effort_rate.release(0);
    lift(request);
}

/// Takes back the limits of drives.
fn lift(request: &mut Request) {
    for drive in 0..request.read_rate.len() {
        request.read_rate.release(drive);
        request.write_rate.release(drive);
    }
}
