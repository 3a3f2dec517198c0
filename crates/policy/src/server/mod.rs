//! Who keeps one budget of watts for the whole server: they only cap what others ask for.

mod pass;
#[cfg(test)]
mod testing;
mod thunderbolt;
mod tide;

pub use pass::{Pass, Reading};
pub use thunderbolt::Thunderbolt;
pub use tide::Tide;

use crate::table::SIGNALS;
use crate::topology::Topology;
use crate::units::{Nanos, Watts};
use crate::{PolicyError, Request, Signal, Signals};

/// Refuses a meter of the whole server whose readings are too old to be used when they come: a
/// budget would be kept by the model alone.
///
/// # Errors
/// Such a meter, with the latest that could be used.
pub fn check_meter(lag: Nanos) -> Result<(), PolicyError> {
    let row = SIGNALS.iter().find(|row| row.signal == Signal::Power);
    let until = row.and_then(|row| row.worth).map_or(lag, |worth| worth.until);
    let valid = "readings of the whole server older than 5 s are not used, so no server budget can \
                 be kept by them: state a meter_lag of at most 5 s, of a meter that answers sooner";
    PolicyError::unless(lag <= until, "board.meter_lag in seconds", lag.seconds(), valid)
}

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
