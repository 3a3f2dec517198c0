//! The thermal side of a run: its totals, its injected faults, its columns of the time series.

use serde::Serialize;

use ebb_policy::{Control, InForce, QosClass, Signals, Topology};
use ebb_twin::faults::FaultEvent;
use ebb_twin::hdd::Wear;
use ebb_twin::{Sample, ThermalTotals, Trip};

/// What the thermal side of a run came to.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ThermalSummary {
    /// Hottest die at the end of any control period.
    pub hottest_socket_celsius: f64,
    /// Hottest die, mean over time.
    pub mean_socket_celsius: f64,
    /// Hottest drive at the end of any control period.
    pub hottest_drive_celsius: f64,
    /// Leakage, part of the processors' energy.
    pub leakage_joules: f64,
    /// Duty of the fans, mean over fans and time.
    pub mean_fan_duty: f64,
    /// Relative amplitude of vibration, mean over time.
    pub mean_vibration: f64,
    /// Socket time slowed down by the hardware's emergency throttling, all sockets together.
    pub socket_throttled_seconds: f64,
    /// Drive time slowed down by heat, all drives together.
    pub drive_throttled_seconds: f64,
}

impl ThermalSummary {
    /// The numbers of `totals`.
    pub fn new(totals: &ThermalTotals) -> Self {
        Self {
            hottest_socket_celsius: totals.hottest_socket.0,
            mean_socket_celsius: totals.mean_socket().0,
            hottest_drive_celsius: totals.hottest_drive.0,
            leakage_joules: totals.leakage.0,
            mean_fan_duty: totals.mean_duty(),
            mean_vibration: totals.mean_vibration(),
            socket_throttled_seconds: totals.socket_throttled.seconds(),
            drive_throttled_seconds: totals.drive_throttled.seconds(),
        }
    }
}

/// How a server switched itself off for heat.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TripLine {
    /// When, since the start of the run.
    pub at_s: f64,
    /// Whose die was too hot.
    pub socket: u16,
    /// How hot.
    pub celsius: f64,
}

impl TripLine {
    /// `trip` in numbers.
    pub fn new(trip: &Trip) -> Self {
        Self { at_s: trip.at.seconds(), socket: trip.socket, celsius: trip.temperature.0 }
    }
}

/// One injected fault.
#[derive(Debug, Clone, Serialize)]
pub struct FaultLine {
    /// When it began.
    pub from_s: f64,
    /// When it ends; may lie after the end of the run.
    pub until_s: f64,
    /// What failed: `fan3`, `socket0`, `drive5`, `inlet`, `jobs`.
    pub of: String,
    /// How: `fault:fan-stalled`.
    pub reason: &'static str,
    /// In words.
    pub what: String,
}

impl FaultLine {
    /// `event` in words and numbers.
    pub fn new(event: &FaultEvent) -> Self {
        Self {
            from_s: event.from.seconds(),
            until_s: event.until.seconds(),
            of: event.fault.part(),
            reason: event.fault.reason(),
            what: event.fault.to_string(),
        }
    }
}

/// Names of the columns of the thermal side; none where the server has no sockets of its own.
/// They stand before those of the drives.
pub fn columns(topology: &Topology) -> Vec<String> {
    let mut names = Vec::new();
    if topology.sockets == 0 {
        return names;
    }
    for socket in 0..topology.sockets {
        for what in ["celsius", "reading_celsius", "throttled"] {
            names.push(format!("socket{socket}_{what}"));
        }
    }
    for fan in 0..topology.fans.len() {
        names.push(format!("fan{fan}_duty"));
        names.push(format!("fan{fan}_rpm"));
    }
    names.extend(REST.map(str::to_owned));
    if topology.jobs > 0 {
        names.extend(JOBS.map(str::to_owned));
        let admit = Control::Admit.row().name;
        names.extend(QosClass::ALL.map(|class| format!("{admit}_{}", class.name())));
    }
    names
}

/// Columns of the thermal side that are not of each part.
const REST: [&str; 6] = [
    "leakage_w",
    "vibration",
    "hottest_drive_celsius",
    "exhaust_celsius",
    "revolutions_lost",
    "vibration_loss",
];
/// Columns of jobs; what each one was told is in the log of decisions.
const JOBS: [&str; 4] = ["jobs_running", "jobs_waiting", "job_share_mean", "job_share_least"];

/// One row, in the order of [`columns`]; a lost sensor is absent. `wear` is this period's.
pub fn fill(row: &mut Vec<f64>, sample: &Sample<'_>, wear: &Wear) {
    let Sample { signals, in_force, length, .. } = sample;
    let Some(weather) = sample.weather else { return };
    let (cooling, seconds) = (&signals.cooling, length.seconds());
    let sockets = weather.sockets.iter().zip(&weather.throttled).zip(&cooling.sockets);
    for ((die, throttled), reading) in sockets {
        row.push(die.0);
        row.push(reading.map_or(f64::NAN, |reading| reading.temperature.0));
        row.push(f64::from(u8::from(*throttled)));
    }
    for fan in &cooling.fans {
        row.push(fan.duty.unwrap_or(f64::NAN));
        row.push(fan.speed.map_or(f64::NAN, |speed| speed.0));
    }
    let hottest = weather.drives.iter().map(|drive| drive.0).fold(f64::NAN, f64::max);
    row.extend([weather.leakage.0 / seconds, weather.vibration, hottest, weather.exhaust.0]);
    row.extend([wear.retries as f64, wear.loss().unwrap_or(f64::NAN)]);
    if !signals.jobs.is_empty() {
        jobs(row, signals, in_force);
    }
}

/// Jobs that run and wait, the shares of the former, and which classes are let in.
fn jobs(row: &mut Vec<f64>, signals: &Signals, in_force: &InForce) {
    let shares = in_force.job_share.values().map(|share| share.unwrap_or(1.0));
    let there = signals.jobs.iter().zip(shares).filter(|(job, _)| job.present);
    let (mut running, mut waiting, mut sum, mut least) = (0.0, 0.0, 0.0, f64::NAN);
    for (job, share) in there {
        if job.waiting {
            waiting += 1.0;
        } else {
            running += 1.0;
            sum += share;
            least = share.min(least);
        }
    }
    // Without any there is no mean: 0 / 0.
    row.extend([running, waiting, sum / running, least]);
    row.extend(QosClass::ALL.map(|class| f64::from(u8::from(in_force.admits(class)))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    #[test]
    fn only_servers_with_heat_have_its_columns() {
        let columns_of = |name| columns(&Server::load(name).unwrap().topology);
        assert!(columns_of("generic-1u").is_empty());
        let hot = columns_of("thermal-1u");
        assert_eq!(hot.len(), 2 * 3 + 6 * 2 + 6);
        assert_eq!((hot[0].as_str(), hot[6].as_str()), ("socket0_celsius", "fan0_duty"));
        let with_jobs = columns_of("eadc-e6");
        assert_eq!(with_jobs.len(), 2 * 3 + 6 * 2 + 6 + 4 + 4);
        assert_eq!(with_jobs.last().unwrap(), "admit_noncritical");
    }
}
