//! What a policy saves, or would save, on this machine: modelled, by the power of a core in a
//! profile of the twin.

use ebb_host::Host;
use ebb_policy::units::{Hertz, Joules, Nanos, Watts};
use ebb_policy::{
    Applied, GroupSignals, InForce, IoSignals, Origin, Percentiles, Plant, Signal, Signals, Source,
    Topology,
};
use ebb_twin::Profile;
use ebb_twin::profile::Wait;

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
    /// Without work, in the deepest idle state and in the shallowest: which ones this server's
    /// cores use between requests is not known.
    idle: [Idle; 2],
    parked: Watts,
}

/// A core without work.
#[derive(Debug, Clone, Copy)]
enum Idle {
    /// In an idle state.
    Sleeps(Watts),
    /// It looks for work, with this share of a busy one's dynamic power.
    Polls(f64),
}

impl Core {
    /// A core of `profile`.
    pub fn new(profile: &Profile) -> Self {
        let cpu = &profile.cpu;
        let powers = || cpu.idle_states.iter().map(|state| state.power);
        let idle = match cpu.wait {
            Wait::Sleep => [powers().reduce(Watts::min), powers().reduce(Watts::max)],
            Wait::Poll => [None; 2],
        };
        Self {
            fixed: cpu.core_static,
            dynamic: cpu.core_dynamic,
            exponent: cpu.frequency_exponent,
            idle: idle.map(|power| power.map_or(Idle::Polls(cpu.poll_share), Idle::Sleeps)),
            parked: cpu.parked,
        }
    }

    fn polls(&self) -> bool {
        matches!(self.idle, [Idle::Polls(_), _])
    }

    /// Of `active` of `cores` that share work of `busy` cores at the highest frequency, at `speed`
    /// of it, each `idle` while it has none.
    fn power(&self, cores: f64, active: f64, speed: f64, busy: f64, idle: Idle) -> Watts {
        let working = (busy / speed).min(active);
        let dynamic = self.dynamic * speed.powf(self.exponent);
        let working_power = self.fixed + dynamic;
        let idle = match idle {
            Idle::Sleeps(power) => power,
            Idle::Polls(share) => self.fixed + dynamic * share,
        };
        working_power * working + idle * (active - working) + self.parked * (cores - active)
    }
}

/// What steered a group's frequency when the machine was found.
#[derive(Debug, Clone, Copy)]
pub struct Governed<'a> {
    /// The governor.
    pub governor: &'a str,
    /// The driver below it.
    pub driver: &'a str,
    /// The lowest frequency.
    pub lowest: Hertz,
}

impl Governed<'_> {
    /// The speeds, as shares of `highest`, at which it would run cores that have work for `mean`
    /// of their time at full speed, and the busiest for `most`: the least and the most. A core
    /// that `polls` is always busy to it. Where its `headroom` above the work was seen, by that;
    /// schedutil leaves a quarter (`kernel/sched/cpufreq_schedutil.c`), the older governors no
    /// less; the firmware's own choice is not known.
    fn speeds(
        &self,
        (mean, most): (f64, f64),
        polls: bool,
        headroom: Option<f64>,
        highest: Hertz,
    ) -> [f64; 2] {
        let lowest = (self.lowest / highest).min(1.0);
        let above = |work: f64, headroom: f64| (headroom * work).clamp(lowest, 1.0);
        match (self.governor, headroom) {
            ("performance", _) => [1.0, 1.0],
            ("powersave", _) if !self.driver.contains("pstate") => [lowest, lowest],
            _ if polls => [1.0, 1.0],
            (_, Some(headroom)) => [above(mean, headroom); 2],
            ("schedutil" | "ondemand" | "conservative", _) => {
                [above(mean, 1.25), above(most, 1.25)]
            }
            _ => [above(mean, 1.25), 1.0],
        }
    }

    /// How much faster than its work needs it lets a group run; at the lowest speed that is not to
    /// be seen.
    fn headroom(&self, runs: &Runs, highest: Hertz) -> Option<f64> {
        let is_free = runs.busy > 0.0 && runs.speed > 1.05 * (self.lowest / highest);
        is_free.then(|| runs.speed * runs.active / runs.busy)
    }

    /// The speed that it gives cores with `times` the work each that they had at speed `was`.
    fn follows(&self, was: f64, times: f64, highest: Hertz) -> f64 {
        match self.governor {
            "performance" => was,
            "powersave" if !self.driver.contains("pstate") => was,
            _ => (was * times).clamp((self.lowest / highest).min(1.0), 1.0),
        }
    }
}

/// A group at work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Runs {
    /// Cores that take work.
    active: f64,
    /// Their speed as a share of the highest.
    speed: f64,
    /// Their work, in cores at full speed.
    busy: f64,
    /// The work of the busiest of them.
    most: f64,
}

impl Runs {
    /// What was sensed of a group.
    fn of(signal: &GroupSignals, highest: Hertz) -> Option<Self> {
        let speed = signal.frequency.map_or(1.0, |of| (of / highest).clamp(0.05, 1.0));
        let (active, share) = (f64::from(signal.active?), signal.utilisation?);
        let most = signal.busiest.unwrap_or(share) * speed;
        Some(Self { active, speed, busy: share * active * speed, most })
    }
}

/// What is in force of a group's cores and frequency.
fn given(in_force: &InForce, group: usize) -> (Option<u16>, Option<Hertz>) {
    (in_force.active_cores.at(group).given, in_force.frequency.at(group).given)
}

/// What was saved so far against the governor found, at least and at most.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Time that it is known of.
    time: Nanos,
    /// Energy that the cores would have taken besides: the bounds.
    energy: [Joules; 2],
    /// How much faster than its work needs each group's governor last let it run by itself.
    headroom: Vec<Option<f64>>,
}

impl Saved {
    /// Adds a period in which `signals` were sensed under what was in force, or modelled as if it
    /// had been beside what each group then did `natively`; `found` says what steers it.
    pub fn add<'a>(
        &mut self,
        core: &Core,
        topology: &Topology,
        natively: &[Option<Runs>],
        found: impl Fn(usize) -> Option<Governed<'a>>,
        signals: &Signals,
    ) {
        let highest = topology.max_frequency();
        self.headroom.resize(topology.groups.len(), None);
        let mut saved = [Watts(0.0); 2];
        for (group, spec) in topology.groups.iter().enumerate() {
            let Some(runs) = Runs::of(&signals.groups[group], highest) else { return };
            let cores = f64::from(spec.cores);
            let native = match natively.get(group).copied().flatten() {
                Some(native) => [native; 2],
                None if given(&signals.in_force, group) == (None, None) => {
                    let seen = found(group).and_then(|found| found.headroom(&runs, highest));
                    self.headroom[group] = seen.or(self.headroom[group]);
                    [runs; 2]
                }
                None => {
                    let most = runs.most.max(runs.busy / cores);
                    let speeds = found(group).map_or([1.0; 2], |found| {
                        let work = (runs.busy / cores, most);
                        found.speeds(work, core.polls(), self.headroom[group], highest)
                    });
                    speeds.map(|speed| Runs { active: cores, speed, ..runs })
                }
            };
            let each = |native: &Runs, idle: Idle| {
                let power = |of: &Runs| core.power(cores, of.active, of.speed, of.busy, idle);
                power(native) - power(&runs)
            };
            let all = native.map(|native| core.idle.map(|idle| each(&native, idle)));
            let all = all.as_flattened().iter().copied();
            saved[0] += all.clone().reduce(Watts::min).unwrap_or_default();
            saved[1] += all.reduce(Watts::max).unwrap_or_default();
        }
        self.time += signals.period;
        self.energy[0] += saved[0] * signals.period;
        self.energy[1] += saved[1] * signals.period;
    }

    /// As a sentence; none where nothing is known.
    pub fn text(&self, would: bool, profile: &str) -> Option<String> {
        if self.time == Nanos::ZERO {
            return None;
        }
        // None is printed as -0.0.
        let watts =
            |energy: Joules| Some((energy / self.time).0).filter(|watts| watts.abs() >= 0.05);
        let [least, most] = self.energy.map(|energy| watts(energy).unwrap_or_default());
        let verb = if would { "would save" } else { "saved" };
        let head = format!("estimate, with the cores of {profile}, against the governor found:");
        if [least, most] == [0.0; 2] {
            return Some(format!("{head} {verb} nothing"));
        }
        // A policy that only watches goes less far than it would: see `imagine`.
        let more = if would { " or more" } else { "" };
        Some(format!(
            "{head} {verb} {least:.1} to {most:.1} W{more} of the cores' power; ebb-lab trial \
             measures it"
        ))
    }
}

/// The machine under a policy that only watches: what is decided is not done.
pub struct Shadow<'a> {
    /// The machine.
    pub machine: Watched<'a>,
    /// What each group does without it.
    pub natively: &'a mut Vec<Option<Runs>>,
}

impl Plant for Shadow<'_> {
    fn sense(&mut self, signals: &mut Signals) {
        self.machine.sense(signals);
        let host = &*self.machine.host;
        *self.natively = imagine(signals, host.topology(), |group| governed(host, group));
    }

    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

/// What steered the frequency of `group` of a host when it was found.
pub fn governed(host: &Host, group: usize) -> Option<Governed<'_>> {
    let policy = host.governor(group)?;
    let (governor, driver) = (&*policy.governor, &*policy.driver);
    Some(Governed { governor, driver, lowest: policy.lowest })
}

/// Models what would follow from what is in force in `signals`, which were sensed without it; where
/// nothing is, everything is as sensed. The work stays what it is and comes to fewer and slower
/// cores; all of the latency is taken to be theirs, more than is true of any server, so that a
/// saving is rather understated. Returns what each group did.
fn imagine<'a>(
    signals: &mut Signals,
    topology: &Topology,
    found: impl Fn(usize) -> Option<Governed<'a>>,
) -> Vec<Option<Runs>> {
    let highest = topology.max_frequency();
    let mut stretch = 1.0_f64;
    let natively = signals.groups.iter().map(|signal| Runs::of(signal, highest));
    let natively: Vec<_> = natively.collect();
    for (group, native) in natively.iter().enumerate() {
        let (cores, ceiling) = given(&signals.in_force, group);
        let known = native.filter(|_| (cores, ceiling) != (None, None));
        let Some(Runs { active: were, speed: was, busy, .. }) = known else { continue };
        let signal = &mut signals.groups[group];
        let active = cores.or(signal.active).unwrap_or(1).max(1);
        let times = were / f64::from(active);
        let follows = found(group).map_or(was, |found| found.follows(was, times, highest));
        let ceiling = ceiling.map_or(1.0, |ceiling| (ceiling / highest).clamp(0.05, 1.0));
        let speed = follows.min(ceiling);
        let before = signal.utilisation.unwrap_or_default();
        let after = busy / (f64::from(active) * speed);
        let wait = |load: f64| 1.0 / (1.0 - load.min(SATURATED));
        stretch = stretch.max(wait(after) / wait(before) * was / speed);
        signal.busiest = signal.busiest.map(|busiest| {
            (busiest * after / before.max(f64::MIN_POSITIVE)).clamp(after.min(1.0), 1.0)
        });
        signal.utilisation = Some(after.min(1.0));
        (signal.active, signal.frequency) = (Some(active), Some(highest * speed));
        for of in [Signal::CoresUtilisation, Signal::CoresBusiest, Signal::CoresFrequency] {
            modelled(signals, of, group);
        }
    }
    if stretch > 1.0 {
        lengthen(signals, stretch);
    }
    cap(signals, topology);
    natively
}

/// Drives draw at most what their power state lets them.
fn cap(signals: &mut Signals, topology: &Topology) {
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
mod shadow;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_and_slower_cores_draw_less_for_the_same_work() {
        let core = Core::new(&Profile::load("generic-1u").unwrap());
        for idle in core.idle {
            let at = |active: f64, speed: f64| core.power(24.0, active, speed, 3.0, idle).0;
            assert!(at(24.0, 1.0) >= at(6.0, 1.0));
            assert!(at(6.0, 1.0) > at(6.0, 0.6));
            // Work that does not fit keeps all active cores busy and no more.
            assert!((at(2.0, 1.0) - core.power(24.0, 2.0, 1.0, 2.0, idle).0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_reference_is_the_governor_found() {
        let speeds = |governor, driver, headroom| {
            let found = Governed { governor, driver, lowest: Hertz(0.9e9) };
            found.speeds((0.2, 0.6), false, headroom, Hertz(3e9))
        };
        assert_eq!(speeds("performance", "acpi-cpufreq", Some(2.0)), [1.0, 1.0]);
        assert_eq!(speeds("powersave", "acpi-cpufreq", None), [0.3, 0.3]);
        assert_eq!(speeds("schedutil", "acpi-cpufreq", None), [0.3, 0.75]);
        assert_eq!(speeds("schedutil", "acpi-cpufreq", Some(2.0)), [0.4, 0.4]);
        assert_eq!(speeds("powersave", "intel_pstate", None), [0.3, 1.0]);
    }
}
