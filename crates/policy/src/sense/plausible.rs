//! What can be sensed at all. One judgement for the guard, which stops believing whoever says
//! something else, and for models that learn, into which nothing else may get: a single NaN would
//! stay in a mean for ever. NaN is in no range.

use crate::topology::{DriveSpec, GroupSpec};
use crate::units::{Celsius, Hertz, Rpm, Watts};
use crate::{DriveSignals, FanSignals, GroupSignals, JobSignals, Signals};

/// Averages over a period may overshoot 1 by the jitter of its two ends.
const MAX_SHARE: f64 = 1.05;
/// Boost clocks may exceed the highest settable frequency, by less than this factor.
const MAX_FREQUENCY_FACTOR: f64 = 2.0;
/// A mean over a whole period above this multiple of `MP(0)` is not a drive's power.
const MAX_DRIVE_POWER_FACTOR: f64 = 3.0;
/// Twice what the largest single servers are supplied with.
const MAX_SERVER_POWER: Watts = Watts(20_000.0);
/// Twice the speed of the fastest fans of one rack unit.
const MAX_SPEED: Rpm = Rpm(100_000.0);
/// No server runs that is colder, °C.
pub const COLDEST: f64 = -40.0;
/// Composite temperatures outside are conversion errors (0 K means "not reported").
const DRIVES: std::ops::RangeInclusive<f64> = COLDEST..=150.0;
/// Air in which a server can run.
const INLETS: std::ops::RangeInclusive<f64> = COLDEST..=70.0;

/// Whether power can be that of a server or of a part of it.
pub fn is_power(power: Watts) -> bool {
    (0.0..=MAX_SERVER_POWER.0).contains(&power.0)
}

/// Whether a server can take in air this warm.
pub fn is_inlet(temperature: Celsius) -> bool {
    INLETS.contains(&temperature.0)
}

/// Whether a drive can say that it is this warm.
pub fn is_drive_temperature(temperature: Celsius) -> bool {
    DRIVES.contains(&temperature.0)
}

/// Whether a fan can have this duty.
pub fn is_duty(duty: f64) -> bool {
    (0.0..=MAX_SHARE).contains(&duty)
}

/// Whether a job can have kept a core busy for this share of a period.
pub fn is_job(job: &JobSignals) -> bool {
    !job.present || is_share(job.cpu)
}

fn is_share(share: f64) -> bool {
    (0.0..=MAX_SHARE).contains(&share)
}

/// What is impossible of a core group, as the guard's reason.
pub fn absurd_group(
    group: &GroupSignals,
    spec: &GroupSpec,
    highest: Hertz,
) -> Option<&'static str> {
    let GroupSignals { active, utilisation, busiest, frequency, .. } = *group;
    let clock = |f: Hertz| (0.0..=highest.0 * MAX_FREQUENCY_FACTOR).contains(&f.0);
    if active.is_some_and(|active| active > spec.cores) {
        Some("guard:absurd-core-count")
    } else if !utilisation.is_none_or(is_share) || !busiest.is_none_or(is_share) {
        Some("guard:absurd-utilisation")
    } else if !frequency.is_none_or(clock) {
        Some("guard:absurd-frequency")
    } else {
        None
    }
}

/// What is impossible of a drive.
pub fn absurd_drive(drive: &DriveSignals, spec: &DriveSpec) -> Option<&'static str> {
    // Of one whose states nobody knows only what no part of a server draws is impossible.
    let most = match spec.operational() {
        [] => MAX_SERVER_POWER,
        [fastest, ..] => fastest.max_power * MAX_DRIVE_POWER_FACTOR,
    };
    if !drive.power.is_none_or(|power| (0.0..=most.0).contains(&power.0)) {
        Some("guard:absurd-drive-power")
    } else if !drive.temperature.is_none_or(is_drive_temperature) {
        Some("guard:absurd-temperature")
    } else {
        None
    }
}

/// What is impossible of inlet, fans and jobs. The sockets' temperatures are left to the thermal
/// models, which know more of what they can be.
pub fn absurd_surroundings(signals: &Signals) -> Option<&'static str> {
    let turns = |speed: Rpm| (0.0..=MAX_SPEED.0).contains(&speed.0);
    let fan = |fan: &FanSignals| fan.duty.is_none_or(is_duty) && fan.speed.is_none_or(turns);
    if !signals.cooling.inlet.is_none_or(|reading| is_inlet(reading.temperature)) {
        Some("guard:absurd-temperature")
    } else if !signals.cooling.fans.iter().all(fan) {
        Some("guard:absurd-fan")
    } else if !signals.jobs.iter().all(is_job) {
        Some("guard:absurd-job")
    } else {
        None
    }
}
