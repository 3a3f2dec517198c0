//! What the cores can be set to, what that draws, and how well it serves the load.

use super::{HELD, LEARN};
use crate::Signals;
use crate::topology::{PowerModel, RequestWork, Topology};
use crate::units::{Hertz, Nanos, Watts};

/// Period of the CPU time, and shorter ones for cores that can afford more stops. The least time of
/// a core is a millisecond of them, the least that Linux gives.
pub(super) const CPU_PERIOD: Nanos = Nanos::from_millis(100);
const SHORTER: [Nanos; 2] = [Nanos::from_millis(20), Nanos::from_millis(50)];
/// Steps of the CPU time within a whole, and the most cores that it is taken from.
const TIME_STEPS: u32 = 20;
const TIMED_CORES: u16 = 2;
/// How far the time of requests may be from what is known of it.
const KNOWN: f64 = 1.25;
/// How busy work that nobody waits for may make the cores; busier ones make requests wait.
pub(super) const BUSY: f64 = 0.7;

/// The cores of a group at a point, and what a request takes there.
#[derive(Debug, Clone, Copy)]
struct Serving {
    group: usize,
    cores: f64,
    frequency: Hertz,
    work: RequestWork,
}

impl Serving {
    /// Seconds that a request of `size` bytes takes on one of these cores.
    fn takes(&self, size: f64) -> f64 {
        let cycles = self.work.cycles + self.work.per_byte * size;
        (cycles / self.frequency.0 + self.work.contention * (self.cores - 1.0)).max(1e-12)
    }
}

/// A setting of the cores.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// Share of each group's cores, as so many of the largest group's.
    cores: u16,
    pub(super) frequency: Hertz,
    /// Share of the time for which they run.
    pub(super) time: f64,
    /// What the packages draw while all cores are busy, and one of these, by the model.
    pub(super) packages: f64,
    core: f64,
    /// The groups that serve I/O.
    serving: Vec<Serving>,
}

/// Requests of a kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Bytes of one, and how many come in a second, in the mean of some turns.
    pub(super) size: f64,
    pub(super) requests: f64,
    /// Bytes a second in the last turn.
    pub(super) bytes: f64,
}

impl Load {
    /// Takes in that so many requests of so many bytes came in `span` seconds.
    pub(super) fn learn(&mut self, (requests, bytes): (u64, u64), span: f64) {
        self.bytes = bytes as f64 / span;
        if requests > 0 {
            let size = bytes as f64 / requests as f64;
            self.size += if self.requests > 0.0 { LEARN } else { 1.0 } * (size - self.size);
        }
        self.requests += LEARN * (requests as f64 / span - self.requests);
    }
}

/// The cores.
#[derive(Debug, Clone)]
pub(super) struct Cpu {
    topology: Topology,
    model: PowerModel,
    /// The least first, all of them last.
    pub(super) points: Vec<Point>,
    /// Cores of each group that work other than requests keeps busy.
    others: Vec<f64>,
    /// Measured power of the packages as a share of the model's, and what a core without work draws
    /// as a share of what the model says of a busy one: all of it until it is known.
    pub(super) ratio: f64,
    waiting: f64,
}

impl Cpu {
    pub(super) fn new(topology: &Topology, model: &PowerModel) -> Self {
        let (topology, model) = (topology.clone(), model.clone());
        let others = vec![0.0; topology.groups.len()];
        let mut this =
            Self { topology, model, points: Vec::new(), others, ratio: 1.0, waiting: 1.0 };
        let (most, low) = (this.largest(), this.topology.min_frequency());
        let limitable = this.topology.limitable;
        let timed = if limitable.time { most.min(TIMED_CORES) } else { 0 };
        for cores in 1..=timed {
            let times = (1..TIME_STEPS).map(|step| f64::from(step) / f64::from(TIME_STEPS));
            times.for_each(|time| this.add(cores, low, time));
        }
        let slowest = if limitable.frequencies { low } else { this.topology.max_frequency() };
        let mut frequencies = this.topology.frequencies.clone();
        frequencies.retain(|frequency| *frequency >= slowest);
        for cores in if limitable.cores { 1 } else { most }..=most {
            frequencies.iter().for_each(|frequency| this.add(cores, *frequency, 1.0));
        }
        this
    }

    /// Cores of the largest group.
    fn largest(&self) -> u16 {
        let groups = &self.topology.groups;
        self.topology.io_groups().map(|g| groups[g].cores).max().unwrap_or(1).max(1)
    }

    /// The cores of group `g` at a point.
    pub(super) fn cores(&self, g: usize, point: &Point) -> u16 {
        let spec = &self.topology.groups[g];
        let part = f64::from(point.cores) / f64::from(self.largest()) * f64::from(spec.cores);
        (part.ceil() as u16).clamp(spec.min_cores.max(1).min(spec.cores), spec.cores)
    }

    fn add(&mut self, cores: u16, frequency: Hertz, time: f64) {
        let core = self.core(frequency);
        let mut point = Point { cores, frequency, time, packages: 0.0, core, serving: Vec::new() };
        let groups = self.topology.io_groups();
        let of = |g| self.serving(g, f64::from(self.cores(g, &point)), frequency);
        let serving = groups.map(of).collect();
        point.packages = self.packages(&|g| (self.cores(g, &point), frequency), time);
        point.serving = serving;
        self.points.push(point);
    }

    /// So many cores of group `g`.
    fn serving(&self, group: usize, cores: f64, frequency: Hertz) -> Serving {
        let work = self.model.work.get(group).copied().unwrap_or_default();
        Serving { group, cores, frequency, work }
    }

    /// What the packages draw by the model, where each group that serves I/O has these cores on at
    /// that frequency for the share `time`; the others are busy.
    fn packages(&self, setting: &dyn Fn(usize) -> (u16, Hertz), time: f64) -> f64 {
        let (mut on, mut parked, mut jobs, mut highest) = (0.0, 0.0, 0.0, Hertz(0.0));
        for (g, spec) in self.topology.groups.iter().enumerate() {
            if self.topology.serves_io(g) {
                let (active, frequency) = setting(g);
                on += f64::from(active);
                parked += f64::from(spec.cores.saturating_sub(active));
                highest = highest.max(frequency);
            } else {
                jobs += f64::from(spec.cores);
            }
        }
        let share = highest / self.topology.max_frequency();
        let serving = self.model.packages(on, parked, share, time);
        (serving + (self.model.core_static + self.model.core_dynamic) * jobs).0
    }

    /// What a busy core draws at that frequency.
    fn core(&self, frequency: Hertz) -> f64 {
        let highest = self.topology.max_frequency();
        let share = if frequency < highest { frequency / highest } else { 1.0 };
        let scaled = share.powf(self.model.exponent);
        (self.model.core_static + self.model.core_dynamic * scaled).0
    }

    /// What the packages draw at what was in force, with such a load; learns from what they drew.
    pub(super) fn in_force(&mut self, signals: &Signals, load: Load) -> f64 {
        let group = |g: usize| {
            let setting = signals.in_force.group(g);
            (setting.active, setting.frequency)
        };
        let cores: f64 = self.topology.io_groups().map(|g| f64::from(group(g).0)).sum();
        let time = signals.in_force.cpu_time.value(0).unwrap_or(f64::INFINITY);
        let time = (time / cores.max(1.0)).min(1.0);
        let (mut waits, mut highest) = (0.0, Hertz(0.0));
        for g in self.topology.io_groups() {
            let (active, frequency) = group(g);
            let of = f64::from(active);
            let busy =
                self.others[g] + load.requests * self.serving(g, of, frequency).takes(load.size);
            let known = signals.groups[g].utilisation.is_some();
            waits += if known { (of * time - busy).max(0.0) } else { 0.0 };
            highest = highest.max(frequency);
        }
        let waits = waits * self.core(highest);
        let works = (self.packages(&group, time) - waits).max(1e-3);
        let of = |this: &Self| this.ratio * works + this.waiting * waits;
        let missed = signals.power.cpu.map(|Watts(packages)| packages - of(self));
        // What draws more than it should is believed at once. Each part has missed as it draws.
        let learn = |missed: f64| if missed > 0.0 { missed } else { LEARN * missed };
        let part = missed.map(|missed| learn(missed) / (works * works + waits * waits));
        if let Some(part) = part.filter(|part| part.is_finite()) {
            self.ratio = (self.ratio + part * works).clamp(0.5, 2.0);
            self.waiting = (self.waiting + part * waits).clamp(0.0, self.ratio);
        }
        of(self)
    }

    /// Watts that cores without work save at a point where only other work than requests is done,
    /// and joules that a byte of requests of `size` costs these cores.
    pub(super) fn saves(&self, point: &Point, size: f64) -> (f64, f64) {
        let (mut waits, mut takes) = (0.0, 0.0);
        for of in &point.serving {
            waits += (of.cores * point.time - self.others[of.group]).max(0.0);
            takes += of.takes(size) / size;
        }
        let watts = (self.ratio - self.waiting) * point.core;
        (watts * waits, watts * takes)
    }

    /// Seconds that a request takes at the cores at a point, without waiting, and how busy such a
    /// load makes the busiest of the groups.
    pub(super) fn alone(&self, point: &Point, load: Load) -> (f64, f64) {
        let (mut sum, mut most) = (0.0, 0.0_f64);
        for of in &point.serving {
            let service = of.takes(load.size);
            let busy = (load.requests * service + self.others[of.group]) / (of.cores * point.time);
            (sum, most) = (sum + service, most.max(busy));
        }
        (sum, most)
    }

    /// Takes in what the cores did at `point` beside `load`, as far as that is known: as many tasks
    /// as keep cores busy now do so at any point.
    pub(super) fn learn(&mut self, signals: &Signals, point: usize, load: Load) {
        for g in 0..self.others.len() {
            let group = &signals.groups[g];
            let busy = group.utilisation.zip(group.active);
            let busy = busy.map_or(0.0, |(share, active)| share * f64::from(active));
            let point = &self.points[point];
            let of = self.serving(g, f64::from(self.cores(g, point)), point.frequency);
            let own = load.requests * of.takes(load.size);
            self.others[g] = (busy - KNOWN * own).max(0.0);
        }
    }

    /// The 99th percentile of the seconds that requests spend at the cores at a point: M/M/c, whose
    /// probability to wait is about ρ^(√(2(c+1)) − 1) (Sakasegawa 1977). Infinite where more come
    /// than are served.
    pub(super) fn latency(&self, point: &Point, load: Load) -> f64 {
        let of = |of: &Serving| {
            let (cores, service) = (of.cores, of.takes(load.size));
            let busy = (load.requests * service + self.others[of.group]) / (cores * point.time);
            if busy >= 1.0 {
                return f64::INFINITY;
            }
            let waits = busy.powf((2.0 * (cores + 1.0)).sqrt() - 1.0);
            let wait = (100.0 * waits).ln().max(0.0) * service / (cores * (1.0 - busy));
            service + wait + (1.0 - point.time) * CPU_PERIOD.seconds()
        };
        point.serving.iter().map(of).sum()
    }

    /// Bytes a second of requests of `size` that the cores can serve beside `load` at a point, and
    /// still rest for a part of the time.
    pub(super) fn leaves(&self, point: &Point, load: Load, size: f64) -> f64 {
        let of = |of: &Serving| {
            let users = load.requests * of.takes(load.size);
            let free = BUSY * of.cores * point.time - users - self.others[of.group];
            size * free.max(0.0) / of.takes(size)
        };
        point.serving.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// Bytes a second that the cores can serve of requests of `size` at a point.
    pub(super) fn serves(&self, point: &Point, size: f64) -> f64 {
        let of = |of: &Serving| of.cores * point.time / of.takes(size);
        let kept = self.kept(point, CPU_PERIOD);
        size * kept * point.serving.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// What stops leave of that: each costs a part of the run before the next one.
    fn kept(&self, point: &Point, period: Nanos) -> f64 {
        let (resume, run) = (self.model.resume, point.time * period.seconds());
        if point.time < 1.0 { 1.0 - resume / (run + resume * 4.0 / 3.0) } else { 1.0 }
    }

    /// The shortest period in which the cores serve so many bytes a second, where that is known.
    pub(super) fn period(&self, point: &Point, size: f64, bytes: f64) -> Nanos {
        let whole = self.serves(point, size) / self.kept(point, CPU_PERIOD);
        let serves =
            |period: &Nanos| bytes > 0.0 && whole * self.kept(point, *period) * HELD >= bytes;
        SHORTER.into_iter().find(serves).unwrap_or(CPU_PERIOD)
    }
}
