//! What a running server does: looked at from its own thread, as the metrics and as JSON.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebb_policy::reactor::{FULL_SPEED, Shift, Wait};
use ebb_policy::units::Nanos;
use ebb_target::controller;
use ebb_target::controller::Allowed;
use ebb_target::reactor::{CoreState, CoreTotals, Monitor, Record, Sleep, Snapshot};
use ebb_target::transport::{Counters, Distribution, Kind, Work};

use super::access::Access;
use super::energy::{Model, Rapl};
use super::facts::Facts;
use super::modelled::Reading;
pub use super::shown::{
    Change, Connections, Core, Done, Energy, Health, Latency, Limit, ModelledDrive, Namespace,
    Path, Queues, Rates, Server, Shifts, Status, Thread,
};

/// Time between looks, which also keeps energy counters from wrapping twice.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Looks that shares and rates are taken over: ten seconds.
const WINDOW: usize = 11;
/// Changes of the placement that are shown.
const SHIFTS: usize = 20;

/// One look.
struct Look {
    at: Nanos,
    cores: Vec<CoreTotals>,
    threads: Vec<Nanos>,
    work: Work,
    measured: Vec<f64>,
    modelled: Vec<f64>,
    /// The modelled drives.
    drives: BTreeMap<u32, Reading>,
}

struct Meters {
    rapl: Rapl,
    model: Model,
    looks: VecDeque<Look>,
}

/// Looks at a server. Nothing that a reactor waits for is held meanwhile.
pub struct Observer {
    facts: Arc<Facts>,
    monitor: Monitor,
    meters: Mutex<Meters>,
}

impl Observer {
    /// Watches what `monitor` shows from now on.
    pub fn new(facts: Arc<Facts>, monitor: Monitor, rapl: Rapl, model: Model) -> Self {
        let observer = Self {
            facts,
            monitor,
            meters: Mutex::new(Meters { rapl, model, looks: VecDeque::new() }),
        };
        observer.sample();
        observer
    }

    /// To be called every [`PERIOD`].
    pub fn sample(&self) {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let look = self.look(&mut meters, &self.monitor.snapshot());
        if meters.looks.len() == WINDOW {
            meters.looks.pop_front();
        }
        meters.looks.push_back(look);
    }

    fn look(&self, meters: &mut Meters, snapshot: &Snapshot) -> Look {
        let cores: Vec<_> = snapshot.cores.iter().map(|core| core.totals).collect();
        meters.model.advance(&cores);
        meters.rapl.sample();
        let mut work = Work::default();
        for index in 0..self.facts.places {
            Kind::ALL.into_iter().for_each(|kind| work += self.work(index, kind));
        }
        Look {
            at: snapshot.at,
            cores,
            threads: snapshot.threads.iter().map(|thread| thread.busy).collect(),
            work,
            measured: meters.rapl.energies().map(|(_, joules, _)| joules).collect(),
            modelled: meters.model.joules().to_vec(),
            drives: self.facts.drives.readings(),
        }
    }

    fn work(&self, namespace: usize, kind: Kind) -> Work {
        let mut sum = Work::default();
        self.facts.groups.iter().for_each(|group| sum += group.service.work(namespace, kind));
        sum
    }

    /// The server now.
    pub fn status(&self) -> Status {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let meters = &mut *meters;
        let snapshot = self.monitor.snapshot();
        let now = self.look(meters, &snapshot);
        let before = meters.looks.front().unwrap_or(&now);
        let span = (now.at.0.saturating_sub(before.at.0) as f64 / 1e9).max(1e-9);
        Status {
            schema: 1,
            server: self.server(&snapshot),
            window_s: span,
            cores: cores(&snapshot, before, &now, span),
            threads: self.threads(&snapshot, before, span),
            namespaces: self.namespaces(),
            paths: self.paths(),
            limits: self.limits(),
            connections: self.connections(),
            access: Access::of(self.facts.subsystem.upgrade().as_deref(), self.facts.warning()),
            queues: self.queues(&snapshot),
            rates: Rates {
                io_per_s: (now.work.commands - before.work.commands) as f64 / span,
                bytes_per_s: (now.work.bytes - before.work.bytes) as f64 / span,
            },
            service: Kind::ALL.into_iter().map(|kind| self.latency(kind)).collect(),
            energy: energy(meters, before, &now, span),
            drives: drives(before, &now, span),
            shifts: shifts(&snapshot),
        }
    }

    fn server(&self, snapshot: &Snapshot) -> Server {
        Server {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            nqn: self.facts.nqn.clone(),
            listen: self.facts.listen(),
            scheduler: self.facts.scheduler(),
            doze_by: snapshot.strategy.name().to_owned(),
            uptime_s: snapshot.at.seconds(),
        }
    }

    fn threads(&self, snapshot: &Snapshot, before: &Look, span: f64) -> Vec<Thread> {
        let thread = |(index, state): (usize, &ebb_target::reactor::ThreadState)| {
            // The listener is the first.
            let group = index.checked_sub(1).and_then(|at| self.facts.groups.get(at));
            let busy = before.threads.get(index).copied().unwrap_or_default();
            Thread {
                thread: index as u16,
                kind: if group.is_some() { "connections" } else { "listener" }.to_owned(),
                core: state.core,
                busy_share: since(state.busy, busy) / span,
                busy_s: state.busy.seconds(),
                commands: group.map_or(0, |group| load(&group.counters.commands)),
                depth: state.depth,
                moves: state.moves,
                connections: group.map_or(0, |group| load(&group.counters.connections)),
            }
        };
        snapshot.threads.iter().enumerate().map(thread).collect()
    }

    fn namespaces(&self) -> Vec<Namespace> {
        let namespace = |namespace: controller::Namespace| {
            let (id, index) = (namespace.id, namespace.id as usize - 1);
            let geometry = namespace.device.geometry();
            let done = |kind: Kind| {
                let Work { commands, bytes, errors } = self.work(index, kind);
                (kind.name().to_owned(), Done { commands, bytes, errors })
            };
            let health = namespace.device.health().map(Health::from);
            let work = Kind::ALL.into_iter().map(done).collect();
            let stalled = self.facts.groups.iter().any(|group| group.service.is_stalled(index));
            let (bytes, block_size) = (geometry.bytes(), geometry.block_size);
            Namespace { id, bytes, block_size, work, stalled, health }
        };
        self.facts.namespaces().into_iter().map(namespace).collect()
    }

    fn paths(&self) -> Vec<Path> {
        let paths = self.facts.subsystem.upgrade().map(|subsystem| subsystem.paths());
        let path = |(listen, namespace, state): (SocketAddr, u32, controller::AnaState)| Path {
            listen,
            namespace,
            state: state.name().to_owned(),
        };
        paths.into_iter().flatten().map(path).collect()
    }

    fn limits(&self) -> Vec<Limit> {
        let Some(subsystem) = self.facts.subsystem.upgrade() else { return Vec::new() };
        let (set, lent) = (subsystem.allowed(), subsystem.lent());
        let hosts: BTreeSet<_> = set.keys().chain(lent.keys()).collect();
        let limit = |host: &String| {
            let Allowed { iops, bytes_per_second } = set.get(host).copied().unwrap_or_default();
            let lent_bytes_per_second = lent.get(host).copied();
            Limit { host: host.clone(), iops, bytes_per_second, lent_bytes_per_second }
        };
        hosts.into_iter().map(limit).collect()
    }

    fn connections(&self) -> Connections {
        let sum = |count: fn(&Counters) -> &AtomicU64| {
            self.facts.groups.iter().map(|group| load(count(&group.counters))).sum()
        };
        Connections {
            open: sum(|counters| &counters.connections),
            limit: self.facts.connections_limit,
            accepted: sum(|counters| &counters.accepted),
            refused: load(&self.facts.refused) + sum(|counters| &counters.displaced),
        }
    }

    fn queues(&self, snapshot: &Snapshot) -> Queues {
        let devices = self.facts.groups.iter().map(|group| load(&group.counters.under_way));
        let network = snapshot.threads.iter().map(|thread| u64::from(thread.depth));
        Queues { network: network.sum(), devices: devices.sum() }
    }

    fn latency(&self, kind: Kind) -> Latency {
        let mut all = Distribution::default();
        self.facts.groups.iter().for_each(|group| all += &group.service.latency(kind));
        let quantile = |share| all.quantile(share).seconds();
        Latency {
            kind: kind.name().to_owned(),
            count: all.count(),
            sum_s: all.sum().seconds(),
            p50_s: quantile(0.5),
            p99_s: quantile(0.99),
            p999_s: quantile(0.999),
            max_s: all.max().seconds(),
            buckets: all.buckets().map(|(end, count)| (end.0, count)).collect(),
            octaves: all.octaves(),
        }
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn since(now: Nanos, before: Nanos) -> f64 {
    now.0.saturating_sub(before.0) as f64 / 1e9
}

fn cores(snapshot: &Snapshot, before: &Look, now: &Look, span: f64) -> Vec<Core> {
    let core = |(index, state): (usize, &CoreState)| {
        let (totals, old) = (&state.totals, &before.cores[index]);
        let (busy, wasted) = (since(totals.busy, old.busy), since(totals.wasted, old.wasted));
        let asleep = since(totals.all_asleep(), old.all_asleep());
        // Of what is accounted for: a core in a poll publishes that poll's time when it ends.
        let time = (busy + wasted + asleep).max(1e-9);
        Core {
            core: index as u16,
            cpu: state.cpu,
            state: state.sleeping.map_or("polling", sleep_name).to_owned(),
            wait: wait_name(state.wait).to_owned(),
            threads: state.threads,
            frequency_requested_share: Some(f64::from(state.speed) / f64::from(FULL_SPEED)),
            busy_share: busy / time,
            wasted_share: wasted / time,
            asleep_share: asleep / time,
            busy_s: totals.busy.seconds(),
            wasted_s: totals.wasted.seconds(),
            asleep_s: by_sleep(|way| totals.asleep[way].seconds()),
            sleeps: by_sleep(|way| totals.sleeps[way]),
            unwatched_files: totals.unwatched,
            power_modelled_w: (now.modelled[index] - before.modelled[index]) / span,
            energy_modelled_j: now.modelled[index],
        }
    };
    snapshot.cores.iter().enumerate().map(core).collect()
}

fn drives(before: &Look, now: &Look, span: f64) -> Vec<ModelledDrive> {
    let drive = |(namespace, drive): (&u32, &Reading)| {
        let old = before.drives.get(namespace).filter(|old| old.start == drive.start);
        // One that has come since counts from its start.
        let (joules, time) =
            old.map_or((0.0, drive.start.elapsed().as_secs_f64()), |old| (old.joules, span));
        ModelledDrive {
            namespace: *namespace,
            drive: drive.drive.clone(),
            power_state: drive.power_state,
            power_limit_w: drive.power_limit.map(|limit| limit.0),
            power_modelled_w: (drive.joules - joules) / time,
            energy_modelled_j: drive.joules,
        }
    };
    now.drives.iter().map(drive).collect()
}

fn by_sleep<T>(value: impl Fn(usize) -> T) -> BTreeMap<String, T> {
    Sleep::ALL.into_iter().map(|way| (sleep_name(way).to_owned(), value(way as usize))).collect()
}

fn sleep_name(sleep: Sleep) -> &'static str {
    match sleep {
        Sleep::Doze => "dozing",
        Sleep::Block => "blocked",
        Sleep::Nap => "napping",
    }
}

fn wait_name(wait: Wait) -> &'static str {
    match wait {
        Wait::Poll => "poll",
        // What the data plane makes of it.
        Wait::Doze | Wait::Halt => "doze",
        Wait::Block { .. } => "block",
        Wait::Nap { .. } => "nap",
    }
}

fn energy(meters: &Meters, before: &Look, now: &Look, span: f64) -> Vec<Energy> {
    let measured = meters.rapl.energies().enumerate().map(|(index, (domain, joules, readable))| {
        let power = (joules - before.measured[index]) / span;
        Energy {
            source: "measured".to_owned(),
            domain: domain.to_owned(),
            energy_j: joules,
            power_w: readable.then_some(power),
            profile: None,
        }
    });
    let mut all: Vec<Energy> = measured.collect();
    if all.is_empty() {
        let sum = |look: &Look| look.modelled.iter().sum::<f64>();
        all.push(Energy {
            source: "modelled".to_owned(),
            domain: "cores".to_owned(),
            energy_j: sum(now),
            power_w: Some((sum(now) - sum(before)) / span),
            profile: Some(meters.model.profile().to_owned()),
        });
    }
    all
}

fn shifts(snapshot: &Snapshot) -> Shifts {
    let change = |record: &Record| {
        let (what, reason) = match record.shift {
            Shift::Move { thread, from, to, reason } => {
                (format!("thread {thread} moves from core {from} to {to}"), reason)
            }
            Shift::Wait { core, wait, reason } => {
                (format!("core {core} waits by {}", wait_name(wait)), reason)
            }
            Shift::Speed { core, speed, reason } => {
                (format!("core {core} runs at {speed} ‰"), reason)
            }
        };
        Change { at_s: record.at.seconds(), what, reason: reason.to_owned() }
    };
    let hidden = snapshot.shifts.len().saturating_sub(SHIFTS);
    let last = snapshot.shifts[hidden..].iter().map(change).collect();
    let unmet_frequency_requests = snapshot.unmet_speeds;
    Shifts { total: snapshot.shifts_in_all, unmet_frequency_requests, last }
}
