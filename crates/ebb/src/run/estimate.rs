//! What a policy saves, or would save, on this machine: modelled, by the power of a core in a
//! profile of the twin.

use ebb_host::Host;
use ebb_policy::units::{Hertz, Joules, Nanos, Watts};
use ebb_policy::{
    Applied, GroupSetting, GroupSignals, InForce, IoSignals, Origin, Percentiles, Plant, Signal,
    Signals, Source, Topology,
};
use ebb_record::recording::Found;
use ebb_twin::Profile;
use ebb_twin::profile::Wait;

use super::served::Watched;

/// Beyond this utilisation the model of waiting says nothing any more.
const SATURATED: f64 = 0.98;

/// A frequency is read with an error of no more, as a share.
const READ: f64 = 0.005;

/// How far, as shares, the truth may lie below and above what is estimated of a policy that acts.
const ACTED: [f64; 2] = [0.1, 0.1];
/// The same of one that only watches: on some servers fewer cores need less time for the same work,
/// on others more. By the servers and loads of `shadow.rs`.
const WATCHED: [f64; 2] = [0.25, 0.35];

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

/// What is other of fewer and slower cores.
const CORES: &[Signal] =
    &[Signal::CoresUtilisation, Signal::CoresBusiest, Signal::CoresWakes, Signal::CoresFrequency];

/// Power of the cores, by the `[cpu]` section of a profile.
#[derive(Debug, Clone)]
pub struct Core {
    fixed: Watts,
    dynamic: Watts,
    exponent: f64,
    rest: Rest,
    parked: Watts,
    /// What the packages draw besides at the highest frequency of the fastest group.
    uncore: Watts,
}

/// A core without work.
#[derive(Debug, Clone)]
enum Rest {
    /// Falls into idle states: the seconds after which each pays, and its power.
    Sleeps(Vec<(f64, Watts)>),
    /// It looks for work, with this share of a busy one's dynamic power.
    Polls(f64),
}

/// How long cores rest at a time, and how the governor of idle states chooses one: the bounds.
#[derive(Debug, Clone, Copy)]
enum Chooser {
    /// At random; it knows how long beforehand.
    Foresees,
    /// At random; it goes deeper as the core rests.
    Falls,
    /// Each time as long; it goes deeper as the core rests.
    FallsRegularly,
}

impl Chooser {
    const ALL: [Self; 3] = [Self::Foresees, Self::Falls, Self::FallsRegularly];

    /// The share of a core's rest that comes later than `after` seconds from its begin, or that it
    /// spends in states for such; each `gap` seconds in the mean. Where that is not known, all of
    /// it or none.
    fn longer(self, after: f64, gap: Option<f64>) -> f64 {
        match (self, gap.map(|gap| after / gap)) {
            (Self::Foresees, None) => 1.0,
            (_, None) => 0.0,
            (Self::Foresees, Some(times)) => (1.0 + times) * (-times).exp(),
            (Self::Falls, Some(times)) => (-times).exp(),
            (Self::FallsRegularly, Some(times)) => (1.0 - times).max(0.0),
        }
    }
}

impl Core {
    /// A core of `profile`.
    pub fn new(profile: &Profile) -> Self {
        let cpu = &profile.cpu;
        let states = cpu.idle_states.iter().map(|state| (state.after.seconds(), state.power));
        Self {
            fixed: cpu.core_static,
            dynamic: cpu.core_dynamic,
            exponent: cpu.frequency_exponent,
            rest: match cpu.wait {
                Wait::Sleep => Rest::Sleeps(states.collect()),
                Wait::Poll => Rest::Polls(cpu.poll_share),
            },
            parked: cpu.parked,
            uncore: cpu.uncore_dynamic,
        }
    }

    fn polls(&self) -> bool {
        matches!(self.rest, Rest::Polls(_))
    }

    /// At `speed`, a share of the highest.
    fn dynamic(&self, all: Watts, speed: f64) -> Watts {
        all * speed.powf(self.exponent)
    }

    /// Of a core at `speed` while it has no work, `gap` seconds at a time in the mean. Where that
    /// is not known, in the deepest of its states or in the shallowest.
    fn idle(&self, speed: f64, gap: Option<f64>, chooser: Chooser) -> Watts {
        let states = match &self.rest {
            Rest::Polls(share) => return self.fixed + self.dynamic(self.dynamic, speed) * *share,
            Rest::Sleeps(states) => states,
        };
        let mut power = states.first().map_or(self.fixed, |(_, power)| *power);
        for pair in states.windows(2) {
            power += (pair[1].1 - pair[0].1) * chooser.longer(pair[1].0, gap);
        }
        power
    }

    /// Of a group of so many cores.
    fn power(&self, cores: f64, runs: &Runs, chooser: Chooser) -> Watts {
        let Runs { active, speed, busy, gap, .. } = *runs;
        let working = (busy / speed).min(active);
        let each = self.fixed + self.dynamic(self.dynamic, speed);
        let idle = self.idle(speed, gap, chooser);
        each * working + idle * (active - working) + self.parked * (cores - active)
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
    /// The speed, as a share of the highest, that it keeps whatever the work.
    fn keeps(&self, lowest: f64) -> Option<f64> {
        match self.governor {
            "performance" => Some(1.0),
            "powersave" if !self.driver.contains("pstate") => Some(lowest),
            _ => None,
        }
    }

    /// What it leaves above the work by its definition: schedutil a quarter
    /// (`kernel/sched/cpufreq_schedutil.c`), the older governors no less; the firmware's own
    /// choice is not known.
    fn defined(&self) -> Option<f64> {
        matches!(self.governor, "schedutil" | "ondemand" | "conservative").then_some(1.25)
    }

    /// The speeds, as shares of `highest`, at which it would run cores that have work for `mean`
    /// of their time at full speed, and the busiest for `most`: the least and the most. A core
    /// that `polls` is always busy to it. Where its `headroom` above the work was seen, by that.
    fn speeds(
        &self,
        (mean, most): (f64, f64),
        polls: bool,
        headroom: Option<f64>,
        highest: Hertz,
    ) -> [f64; 2] {
        let lowest = (self.lowest / highest).min(1.0);
        let above = |work: f64, headroom: f64| (headroom * work).clamp(lowest, 1.0);
        match (self.keeps(lowest), headroom, self.defined()) {
            (Some(speed), ..) => [speed; 2],
            _ if polls => [1.0, 1.0],
            (_, Some(headroom), _) => [above(mean, headroom); 2],
            (_, _, Some(defined)) => [above(mean, defined), above(most, defined)],
            _ => [above(mean, 1.0), 1.0],
        }
    }

    /// How much faster than its work needs it lets a group run; at the lowest speed that is not to
    /// be seen.
    fn headroom(&self, runs: &Runs, highest: Hertz) -> Option<f64> {
        runs.headroom().filter(|_| runs.speed > 1.05 * (self.lowest / highest))
    }

    /// The speed that it gives `active` cores with the work of a group that it lets run so. At the
    /// lowest speed it may leave less above the work than is seen.
    fn follows(&self, native: &Runs, active: f64, highest: Hertz) -> f64 {
        let lowest = (self.lowest / highest).min(1.0);
        let moves = native.headroom().filter(|_| self.keeps(lowest).is_none());
        let Some(seen) = moves else { return native.speed };
        let at_most = || self.defined().map_or(seen, |defined| defined.min(seen));
        let headroom = self.headroom(native, highest).unwrap_or_else(at_most);
        (headroom * native.busy / active).clamp(lowest, 1.0)
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
    /// Seconds for which one of them has no work, in the mean; none where nobody counts them.
    gap: Option<f64>,
}

impl Runs {
    /// What was sensed of a group.
    fn of(signal: &GroupSignals, highest: Hertz) -> Option<Self> {
        let speed = signal.frequency.map_or(1.0, |of| (of / highest).clamp(0.05, 1.0));
        let speed = if speed > 1.0 - READ { 1.0 } else { speed };
        let (active, share) = (f64::from(signal.active?), signal.utilisation?);
        let most = signal.busiest.unwrap_or(share) * speed;
        let gap = signal.wakes.map(|wakes| (1.0 - share).max(0.0) / wakes);
        let gap = gap.filter(|gap| *gap > 0.0);
        Some(Self { active, speed, busy: share * active * speed, most, gap })
    }

    /// How much faster than their work needs they run; none without work.
    fn headroom(&self) -> Option<f64> {
        (self.busy > 0.0).then(|| self.speed * self.active / self.busy)
    }

    /// The same work on other cores: where it comes at random, each rests the longer the more
    /// there are.
    fn on(&self, active: f64, speed: f64) -> Self {
        Self { active, speed, gap: self.gap.map(|gap| gap * active / self.active), ..*self }
    }
}

/// What is in force of a group's cores and frequency, where it limits them.
fn limits(in_force: &InForce, topology: &Topology, group: usize) -> (Option<u16>, Option<Hertz>) {
    let (all, highest) = (topology.groups[group].cores, topology.max_frequency());
    let GroupSetting { active, frequency } = in_force.group(group);
    (Some(active).filter(|cores| *cores < all), Some(frequency).filter(|hertz| *hertz < highest))
}

/// What was saved so far against the governor found, at least and at most.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// Time that it is known of.
    time: Nanos,
    /// Energy that the cores would have taken besides: the bounds.
    energy: [Joules; 2],
    /// What the last period added to it, where that is known.
    last: Option<[Joules; 2]>,
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
        self.last = None;
        let highest = topology.max_frequency();
        self.headroom.resize(topology.groups.len(), None);
        let mut saved = [Watts(0.0); 2];
        // Of the fastest group: natively at least and at most, and now.
        let (mut fastest, mut now) = ([0.0_f64; 2], 0.0_f64);
        for (group, spec) in topology.groups.iter().enumerate() {
            let signal = &signals.groups[group];
            let Some(runs) = Runs::of(signal, highest) else { return };
            let cores = f64::from(spec.cores);
            let native = match natively.get(group).copied().flatten() {
                Some(native) => [native; 2],
                None if limits(&signals.in_force, topology, group) == (None, None) => {
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
                    speeds.map(|speed| runs.on(cores, speed))
                }
            };
            let all = native.map(|native| {
                let power = |of, chooser| core.power(cores, of, chooser);
                Chooser::ALL.map(|chooser| power(&native, chooser) - power(&runs, chooser))
            });
            let all = all.as_flattened().iter().copied();
            saved[0] += all.clone().reduce(Watts::min).unwrap_or_default();
            saved[1] += all.reduce(Watts::max).unwrap_or_default();
            now = now.max(runs.speed);
            for (fastest, native) in fastest.iter_mut().zip(native) {
                *fastest = fastest.max(native.speed);
            }
        }
        for (saved, fastest) in saved.iter_mut().zip(fastest) {
            *saved += core.dynamic(core.uncore, fastest) - core.dynamic(core.uncore, now);
        }
        self.time += signals.period;
        let last = saved.map(|saved| saved * signals.period);
        self.energy[0] += last[0];
        self.energy[1] += last[1];
        self.last = Some(last);
    }

    /// Mean power, at least and at most, of who `would` save it or has; none where none is known.
    pub fn range(&self, would: bool) -> Option<[Watts; 2]> {
        let energy = wider(self.energy, would);
        (self.time > Nanos::ZERO).then(|| energy.map(|energy| energy / self.time))
    }

    /// Energy that the last period saved, or would have, at least and at most.
    pub fn last(&self, would: bool) -> Option<[Joules; 2]> {
        self.last.map(|last| wider(last, would))
    }

    /// As a sentence; none where nothing is known.
    pub fn text(&self, would: bool, profile: &str) -> Option<String> {
        // None is printed as -0.0.
        let shown = |watts: Watts| if watts.0.abs() < 0.05 { 0.0 } else { watts.0 };
        let [least, most] = self.range(would)?.map(shown);
        let verb = if would { "would save" } else { "saved" };
        let head = format!("estimate, with the cores of {profile}, against the governor found:");
        if [least, most] == [0.0; 2] {
            return Some(format!("{head} {verb} nothing"));
        }
        Some(format!(
            "{head} {verb} {least:.1} to {most:.1} W of the cores' power; ebb-lab trial measures it"
        ))
    }
}

/// The bounds with what the truth may lie beyond them.
fn wider([least, most]: [Joules; 2], would: bool) -> [Joules; 2] {
    let [below, above] = if would { WATCHED } else { ACTED };
    [Joules(least.0 - least.0.abs() * below), Joules(most.0 + most.0.abs() * above)]
}

/// The machine under a policy that only watches: what is decided is not done.
pub struct Shadow<'a> {
    /// The machine.
    pub machine: Watched<'a>,
    /// What each group does without it.
    pub natively: &'a mut Vec<Option<Runs>>,
    /// What was sensed, where the signals say otherwise.
    pub found: &'a mut Option<Box<Found>>,
    /// How long requests take without it.
    pub latency: &'a mut Option<Nanos>,
}

impl Plant for Shadow<'_> {
    fn sense(&mut self, signals: &mut Signals) {
        self.machine.sense(signals);
        *self.latency = signals.io.mean_latency;
        let host = &*self.machine.host;
        let found = Found::of(signals);
        *self.natively = imagine(signals, host.topology(), |group| governed(host, group));
        *self.found = (found != Found::of(signals)).then(|| Box::new(found));
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
/// cores; a request waits for all of the CPU time that it takes, more than is true of any server,
/// so that a saving is rather understated. Returns what each group did.
pub fn imagine<'a>(
    signals: &mut Signals,
    topology: &Topology,
    found: impl Fn(usize) -> Option<Governed<'a>>,
) -> Vec<Option<Runs>> {
    let highest = topology.max_frequency();
    let mut longer = Longer { times: 1.0, by: signals.io.completed.map(|_| 0.0) };
    let period = signals.period;
    let natively = signals.groups.iter().map(|signal| Runs::of(signal, highest));
    let natively: Vec<_> = natively.collect();
    for (group, native) in natively.iter().enumerate() {
        let (cores, ceiling) = limits(&signals.in_force, topology, group);
        let known = native.filter(|_| (cores, ceiling) != (None, None));
        let Some(native @ Runs { speed: was, busy, .. }) = known else { continue };
        let signal = &mut signals.groups[group];
        let active = cores.or(signal.active).unwrap_or(1).max(1);
        let follows =
            found(group).map_or(was, |found| found.follows(&native, active.into(), highest));
        let ceiling = ceiling.map_or(1.0, |ceiling| (ceiling / highest).clamp(0.05, 1.0));
        let speed = follows.min(ceiling);
        let before = signal.utilisation.unwrap_or_default();
        let after = busy / (f64::from(active) * speed);
        let (is, was) = (took(after, active.into()) / speed, took(before, native.active) / was);
        longer.times = longer.times.max(is / was);
        if let (Some(by), Some(requests)) = (&mut longer.by, signals.io.completed) {
            let each = busy * period.seconds() / requests.max(1) as f64;
            *by += each * (is - was).max(0.0);
        }
        signal.busiest = signal.busiest.map(|busiest| {
            (busiest * after / before.max(f64::MIN_POSITIVE)).clamp(after.min(1.0), 1.0)
        });
        signal.utilisation = Some(after.min(1.0));
        let gap = native.on(active.into(), speed).gap;
        signal.wakes = gap.map(|gap| (1.0 - after).max(0.0) / gap);
        (signal.active, signal.frequency) = (Some(active), Some(highest * speed));
        for of in CORES {
            modelled(signals, *of, group);
        }
    }
    if longer.times > 1.0 {
        longer.lengthen(signals);
    }
    cap(signals, topology);
    natively
}

/// How many times its own CPU time a piece of work takes where so many `cores` are busy for a share
/// `load` of their time: it waits for whichever is free first (Sakasegawa, An approximation formula
/// L_q = α·ρ^β/(1 − ρ), 1977).
fn took(load: f64, cores: f64) -> f64 {
    let load = load.min(SATURATED);
    1.0 + load.powf((2.0 * (cores + 1.0)).sqrt() - 1.0) / (cores * (1.0 - load))
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

/// What requests take longer on fewer and slower cores.
struct Longer {
    /// So many times as long, where all of it is the cores'.
    times: f64,
    /// By so many seconds in the mean; none where requests are not counted.
    by: Option<f64>,
}

impl Longer {
    /// All of users' latencies: the least that both allow. A wait in a queue is distributed
    /// exponentially, so that of one request in n it is ln n of the mean.
    fn lengthen(&self, signals: &mut Signals) {
        let longer = |latency: Nanos, of_mean: f64| {
            let was = latency.seconds();
            let by = self.by.map_or(f64::INFINITY, |by| by * of_mean);
            Nanos::from_seconds((was * self.times).min(was + by))
        };
        let IoSignals { mean_latency, percentiles, reads, writes, .. } = &mut signals.io;
        for (mean, percentiles) in [
            (mean_latency, percentiles),
            (&mut reads.mean_latency, &mut reads.percentiles),
            (&mut writes.mean_latency, &mut writes.percentiles),
        ] {
            *mean = mean.map(|mean| longer(mean, 1.0));
            *percentiles = percentiles.map(|Percentiles { p50, p99, p999 }| Percentiles {
                p50: longer(p50, 2_f64.ln()),
                p99: longer(p99, 100_f64.ln()),
                p999: longer(p999, 1000_f64.ln()),
            });
        }
        for of in LATENCIES {
            modelled(signals, *of, 0);
        }
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
        let gaps = [None, Some(1e-4), Some(f64::INFINITY)];
        for (chooser, gap) in Chooser::ALL.into_iter().flat_map(|one| gaps.map(|gap| (one, gap))) {
            let all = Runs { active: 24.0, speed: 1.0, busy: 3.0, most: 0.2, gap };
            let at = |active, speed| core.power(24.0, &all.on(active, speed), chooser).0;
            assert!(at(24.0, 1.0) >= at(6.0, 1.0));
            assert!(at(6.0, 1.0) > at(6.0, 0.6));
            // Work that does not fit keeps all active cores busy and no more.
            let full = Runs { busy: 2.0, ..all.on(2.0, 1.0) };
            assert!((at(2.0, 1.0) - core.power(24.0, &full, chooser).0).abs() < 1e-9);
        }
    }

    #[test]
    fn limits_that_keep_a_budget_of_the_server_count() {
        let topology = Profile::load("generic-1u").unwrap().topology();
        let mut request = ebb_policy::Request::new(&topology);
        let mut in_force = InForce::new(&topology);
        assert_eq!(limits(&in_force, &topology, 0), (None, None));
        request.core_limit.ask(0, 2, "test:");
        request.frequency_limit.ask(0, Hertz(1e9), "test:");
        in_force.follow(&request);
        assert_eq!(limits(&in_force, &topology, 0), (Some(2), Some(Hertz(1e9))));
    }

    #[test]
    fn a_core_that_rests_longer_rests_deeper() {
        let core = Core::new(&Profile::load("generic-1u").unwrap());
        for chooser in Chooser::ALL {
            let at = |gap: f64| core.idle(1.0, Some(gap), chooser).0;
            assert!((at(1e-9) - 1.0).abs() < 1e-6, "C1");
            assert!((at(f64::INFINITY) - 0.1).abs() < 1e-6, "C6");
            assert!([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1].windows(2).all(|g| at(g[0]) >= at(g[1])));
        }
        let at = Chooser::ALL.map(|chooser| core.idle(1.0, Some(6e-4), chooser).0);
        assert!(at.is_sorted() && at[0] > 0.1 && at[2] < 0.71, "{at:?}");
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
