//! Whether what is recorded can have been: of a stranger's file nothing may reach a policy that no
//! plant could have told it.

use ebb_policy::table::SIGNALS;
use ebb_policy::units::{Hertz, Nanos};
use ebb_policy::{GroupSpec, PowerModel, Signals, Topology, Unit};

/// No server has more of anything.
const PARTS: usize = 4096;
/// No drive has more power states (NVMe Base: 32), not as many as numbers, and no cores have more
/// frequencies.
const STATES: usize = 256;
/// No count, and no time in nanoseconds, is larger: 36 years, an exabyte. Sums of several fit.
const MOST: u64 = 1 << 60;

/// Whether a plant can have such parts.
pub fn is_topology(topology: &Topology) -> bool {
    let Topology { groups, frequencies, drives, sockets, throttle, fans, jobs, power, .. } =
        topology;
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    let is_power = |value: f64| value.is_finite() && value >= 0.0;
    let group = |group: &GroupSpec| {
        let GroupSpec { cores, min_cores, socket, .. } = group;
        *cores > 0 && min_cores <= cores && socket.is_none_or(|socket| socket < *sockets)
    };
    let is_time = |time: &Nanos| time.0 <= MOST;
    let few = [groups.len(), drives.len(), fans.len(), (*sockets).into(), (*jobs).into()];
    few.iter().all(|count| *count <= PARTS)
        && (1..=STATES).contains(&frequencies.len())
        && frequencies.is_sorted()
        && frequencies.iter().all(|Hertz(frequency)| is_positive(*frequency))
        && groups.iter().all(group)
        && drives.iter().all(|drive| {
            drive.states.len() <= STATES
                && drive.states.iter().all(|state| {
                    is_power(state.max_power.0) && is_time(&state.entry) && is_time(&state.exit)
                })
                && drive.limit.is_none_or(|limit| limit.0.is_finite())
                && drive.idle_wakes.len() <= STATES
                && drive.idle_wakes.iter().all(is_time)
        })
        && throttle.is_none_or(|throttle| throttle.0.is_finite())
        && fans.iter().all(|fan| (0.0..=1.0).contains(&fan.min_duty) && is_power(fan.max_power.0))
        && power.as_ref().is_none_or(|power| is_model(power, groups.len()))
}

/// Whether what a server draws can be so, with work for at most `groups` groups.
fn is_model(power: &PowerModel, groups: usize) -> bool {
    let PowerModel { exponent, read, write, efficiency, resume, meter_window, work, .. } = power;
    let watts = [
        power.uncore,
        power.uncore_dynamic,
        power.stopped_saving,
        power.core_static,
        power.core_dynamic,
        power.parked,
        power.rest,
        power.fans,
        power.resting,
        power.most_traffic,
    ];
    let numbers = [*exponent, *read, *write, *efficiency, *resume];
    let of_work = work.iter().flat_map(|work| [work.cycles, work.per_byte, work.contention]);
    let all = watts.iter().map(|watts| watts.0).chain(numbers).chain(of_work);
    work.len() <= groups && meter_window.0 <= MOST && { all }
        .all(|one| one.is_finite() && one >= 0.0)
}

/// Whether signals are of such parts, with numbers that can be counted on.
pub fn is_of(signals: &Signals, topology: &Topology) -> bool {
    let own = Signals::new(topology);
    let shape = |signals: &Signals| {
        let Signals { groups, drives, cooling, jobs, .. } = signals;
        (groups.len(), drives.len(), cooling.sockets.len(), cooling.fans.len(), jobs.len())
    };
    if shape(signals) != shape(&own) {
        return false;
    }
    let counts = SIGNALS.iter().filter_map(|row| {
        let most = match row.unit {
            Unit::Count | Unit::Bytes => MOST as f64,
            Unit::Seconds => Nanos(MOST).seconds(),
            _ => return None,
        };
        Some((row, most))
    });
    let readings = signals.cooling.sockets.iter().flatten().chain(&signals.cooling.inlet);
    let jobs = signals.jobs.iter().flat_map(|job| [job.age.0, job.objective.unwrap_or_default().0]);
    let mut times = [signals.now.0, signals.period.0]
        .into_iter()
        .chain(readings.map(|reading| reading.at.0))
        .chain(jobs)
        .chain(signals.jobs.iter().map(|job| job.disk_bytes));
    times.all(|time| time <= MOST)
        && counts.into_iter().all(|(row, most)| {
            let parts = 0..row.domain.count(topology);
            let values = parts.filter_map(|part| (row.read)(signals, part));
            values.into_iter().all(|value| value <= most || value.is_nan())
        })
}
