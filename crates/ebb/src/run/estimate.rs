//! What a policy saves, or would save, on this machine: modelled, by the power of a core in a
//! profile of the twin.

use ebb_host::Host;
use ebb_policy::units::{Hertz, Joules, Nanos, Watts};
use ebb_policy::{
    Applied, InForce, IoSignals, Origin, Percentiles, Plant, Signal, Signals, Source,
};
use ebb_twin::Profile;

use super::served::Watched;

/// Beyond this utilisation the model of waiting says nothing any more.
const SATURATED: f64 = 0.98;

/// What grows where cores are fewer and slower.
const LATENCIES: &[Signal] = &[
    Signal::LatencyMean,
    Signal::LatencyP50,
    Signal::LatencyP99,
    Signal::LatencyP999,
    Signal::ReadLatencyMean,
    Signal::ReadLatencyP50,
    Signal::ReadLatencyP99,
    Signal::ReadLatencyP999,
    Signal::WriteLatencyMean,
    Signal::WriteLatencyP50,
    Signal::WriteLatencyP99,
    Signal::WriteLatencyP999,
];

/// Power of a core, by the `[cpu]` section of a profile.
#[derive(Debug, Clone, Copy)]
pub struct Core {
    fixed: Watts,
    dynamic: Watts,
    exponent: f64,
    idle: Watts,
    parked: Watts,
}

impl Core {
    /// A core of `profile`.
    pub fn new(profile: &Profile) -> Self {
        let cpu = &profile.cpu;
        // Between requests, but never for long: the shallowest state.
        let idle = cpu.idle_states.first().map_or(cpu.core_static, |state| state.power);
        Self {
            fixed: cpu.core_static,
            dynamic: cpu.core_dynamic,
            exponent: cpu.frequency_exponent,
            idle,
            parked: cpu.parked,
        }
    }

    /// Of `active` of `cores` that share work of `busy` cores at the highest frequency, at `speed`
    /// of it.
    fn power(&self, cores: f64, active: f64, speed: f64, busy: f64) -> Watts {
        let working = (busy / speed).min(active);
        let working_power = self.fixed + self.dynamic * speed.powf(self.exponent);
        working_power * working + self.idle * (active - working) + self.parked * (cores - active)
    }
}

/// What was saved so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Saved {
    /// Time that it is known of.
    pub time: Nanos,
    /// Energy that the cores, and the drives' caps, would have taken besides.
    pub energy: Joules,
    /// Energy that the cores would have taken natively.
    pub native: Joules,
}

/// One group in numbers: all cores, active ones, their speed as a share, work in cores at full
/// speed.
fn work(signals: &Signals, group: usize, highest: Hertz) -> Option<f64> {
    let signal = &signals.groups[group];
    let speed = signal.frequency.map_or(1.0, |frequency| (frequency / highest).clamp(0.05, 1.0));
    Some(signal.utilisation? * f64::from(signal.active?) * speed)
}

impl Saved {
    /// Adds a period in which `signals` were sensed under what was in force.
    pub fn add(&mut self, core: &Core, host: &Host, signals: &Signals) {
        let topology = host.topology();
        let highest = topology.max_frequency();
        let (mut saved, mut native) = (Watts(0.0), Watts(0.0));
        for (group, spec) in topology.groups.iter().enumerate() {
            let signal = &signals.groups[group];
            let (Some(busy), Some(active)) = (work(signals, group, highest), signal.active) else {
                return;
            };
            let cores = f64::from(spec.cores);
            let speed = signal.frequency.map_or(1.0, |f| (f / highest).clamp(0.05, 1.0));
            let all = core.power(cores, cores, 1.0, busy);
            native += all;
            saved += all - core.power(cores, f64::from(active), speed, busy);
        }
        self.time += signals.period;
        self.energy += saved * signals.period;
        self.native += native * signals.period;
    }

    /// As a sentence; none where nothing is known.
    pub fn text(&self, would: bool, profile: &str) -> Option<String> {
        if self.time == Nanos::ZERO || self.native.0 <= 0.0 {
            return None;
        }
        let Watts(watts) = self.energy / self.time;
        let share = 100.0 * (self.energy / self.native);
        let kwh = watts * 8.766;
        let verb = if would { "would save" } else { "saved" };
        if watts.abs() < 0.05 {
            return Some(format!("estimate, with the cores of {profile}: {verb} nothing"));
        }
        Some(format!(
            "estimate, with the cores of {profile}: {verb} {watts:.1} W of the cores' power \
             ({share:.1} %), {kwh:.0} kWh a year at this load"
        ))
    }
}

/// The machine under a policy that only watches: what is decided is not done, so what would follow
/// from it is modelled; where nothing is decided, everything is as sensed. The work stays what it
/// is and comes to fewer and slower cores; all of the latency is taken to be theirs, more than is
/// true of any server, so that a saving is rather understated.
pub struct Shadow<'a> {
    /// The machine.
    pub machine: Watched<'a>,
}

impl Plant for Shadow<'_> {
    fn sense(&mut self, signals: &mut Signals) {
        self.machine.sense(signals);
        let topology = self.machine.host.topology();
        let highest = topology.max_frequency();
        let mut stretch = 1.0_f64;
        for group in 0..topology.groups.len() {
            let given = &signals.in_force;
            let given = (given.active_cores.at(group).given, given.frequency.at(group).given);
            let Some(busy) = work(signals, group, highest).filter(|_| given != (None, None)) else {
                continue;
            };
            let signal = &mut signals.groups[group];
            let active = given.0.or(signal.active).unwrap_or(1);
            let frequency = given.1.or(signal.frequency).unwrap_or(highest);
            let speed_of = |frequency: Hertz| (frequency / highest).clamp(0.05, 1.0);
            let (was, speed) = (speed_of(signal.frequency.unwrap_or(highest)), speed_of(frequency));
            let before = signal.utilisation.unwrap_or_default();
            let after = busy / (f64::from(active.max(1)) * speed);
            let wait = |load: f64| 1.0 / (1.0 - load.min(SATURATED));
            stretch = stretch.max(wait(after) / wait(before) * was / speed);
            signal.busiest = signal.busiest.map(|busiest| {
                (busiest * after / before.max(f64::MIN_POSITIVE)).clamp(after.min(1.0), 1.0)
            });
            signal.utilisation = Some(after.min(1.0));
            (signal.active, signal.frequency) = (Some(active), Some(frequency));
            for of in [Signal::CoresUtilisation, Signal::CoresBusiest, Signal::CoresFrequency] {
                modelled(signals, of, group);
            }
        }
        if stretch > 1.0 {
            lengthen(signals, stretch);
        }
        let mut total = signals.power.ssd;
        for (drive, spec) in topology.drives.iter().enumerate() {
            let Some(state) = signals.in_force.power_state.at(drive).given else { continue };
            let signal = &mut signals.drives[drive];
            if let Some(power) = &mut signal.power {
                let capped = power.min(spec.cap(state));
                total = total.map(|total| total - (*power - capped));
                *power = capped;
            }
            signal.state = Some(state);
            modelled(signals, Signal::DrivePower, drive);
            modelled(signals, Signal::DriveState, drive);
            modelled(signals, Signal::SsdPower, 0);
        }
        signals.power.ssd = total;
    }

    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

/// All of users' latencies, so many times as long.
fn lengthen(signals: &mut Signals, times: f64) {
    let longer = |latency: Nanos| Nanos::from_seconds(latency.seconds() * times);
    let IoSignals { mean_latency, percentiles, reads, writes, .. } = &mut signals.io;
    for (mean, percentiles) in [
        (mean_latency, percentiles),
        (&mut reads.mean_latency, &mut reads.percentiles),
        (&mut writes.mean_latency, &mut writes.percentiles),
    ] {
        *mean = mean.map(longer);
        *percentiles = percentiles.map(|Percentiles { p50, p99, p999 }| Percentiles {
            p50: longer(p50),
            p99: longer(p99),
            p999: longer(p999),
        });
    }
    for of in LATENCIES {
        modelled(signals, *of, 0);
    }
}

fn modelled(signals: &mut Signals, signal: Signal, part: usize) {
    let age = Nanos::ZERO;
    signals.sources.set(signal, part, Source { age, origin: Origin::Modelled });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_and_slower_cores_draw_less_for_the_same_work() {
        let core = Core::new(&Profile::load("generic-1u").unwrap());
        let at = |active: f64, speed: f64| core.power(24.0, active, speed, 3.0).0;
        assert!(at(24.0, 1.0) > at(6.0, 1.0));
        assert!(at(6.0, 1.0) > at(6.0, 0.6));
        // Work that does not fit keeps all active cores busy and no more.
        assert!((at(2.0, 1.0) - core.power(24.0, 2.0, 1.0, 2.0).0).abs() < 1e-9);
    }
}
