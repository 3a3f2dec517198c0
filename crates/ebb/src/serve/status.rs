//! What a running server does: looked at from its own thread, as the metrics and as JSON.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebb_dataplane::controller::Allowed;
use ebb_dataplane::reactor::{CoreState, CoreTotals, Monitor, Record, Sleep, Snapshot};
use ebb_dataplane::transport::{Counters, Distribution, Kind, Work};
use ebb_dataplane::{controller, device};
use ebb_policy::reactor::{FULL_SPEED, Shift, Wait};
use ebb_policy::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::energy::{Model, Rapl};
use super::facts::Facts;
use super::modelled::Reading;

/// Time between looks, which also keeps energy counters from wrapping twice.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Looks that shares and rates are taken over: ten seconds.
const WINDOW: usize = 11;
/// Changes of the placement that are shown.
const SHIFTS: usize = 20;

/// Version 1; also what GET /status at the metrics' address answers. Totals count from the start.
/// Everything was measured but what is called modelled.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ebb status --json")]
pub struct Status {
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    pub server: Server,
    /// Time that shares, rates and powers are taken over: about ten seconds, less at first.
    #[schemars(range(min = 0))]
    pub window_s: f64,
    #[schemars(length(min = 1))]
    pub cores: Vec<Core>,
    pub threads: Vec<Thread>,
    pub namespaces: Vec<Namespace>,
    /// The ways to namespaces; absent before version 0.2.
    #[serde(default)]
    pub paths: Vec<Path>,
    /// What hosts with limits may do in a second; absent before version 0.2.
    #[serde(default)]
    pub limits: Vec<Limit>,
    pub connections: Connections,
    /// Who gets in.
    #[serde(default)]
    pub access: Access,
    pub queues: Queues,
    pub rates: Rates,
    /// Time of I/O commands in the target, from the poll that takes a command up to the queueing of
    /// its answer; percentiles to an eighth above.
    pub service: Vec<Latency>,
    /// RAPL's domains where they can be read, else the model of the reactors' cores above the idle
    /// machine.
    pub energy: Vec<Energy>,
    /// Namespaces whose timing and power are modelled.
    pub drives: Vec<ModelledDrive>,
    pub shifts: Shifts,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    pub version: String,
    pub nqn: String,
    pub listen: Vec<SocketAddr>,
    pub scheduler: String,
    /// How cores doze on this machine.
    pub doze_by: String,
    #[schemars(range(min = 0))]
    pub uptime_s: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Core {
    /// From 0, the main one.
    pub core: u16,
    pub cpu: usize,
    /// Now.
    #[schemars(extend("enum" = ["polling", "dozing", "blocked", "napping"]))]
    pub state: String,
    /// How it was told to wait.
    #[schemars(extend("enum" = ["poll", "doze", "block", "nap"]))]
    pub wait: String,
    pub threads: u32,
    /// What the scheduler asks for, of the highest; `ebb run` sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub frequency_requested_share: Option<f64>,
    /// Polls that found work.
    #[schemars(range(max = 1))]
    pub busy_share: f64,
    /// Polls that found none.
    #[schemars(range(max = 1))]
    pub wasted_share: f64,
    #[schemars(range(max = 1))]
    pub asleep_share: f64,
    pub busy_s: f64,
    pub wasted_s: f64,
    /// By kind of sleep.
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["dozing", "blocked", "napping"] }, "required" = ["dozing",
            "blocked", "napping"]
        ),
        extend("additionalProperties" = { "type": "number", "minimum": 0 })
    )]
    pub asleep_s: BTreeMap<String, f64>,
    /// Times it fell asleep.
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["dozing", "blocked", "napping"] }, "required" = ["dozing",
            "blocked", "napping"]
        )
    )]
    pub sleeps: BTreeMap<String, u64>,
    /// Files the kernel would not watch, which keep it polling.
    pub unwatched_files: u64,
    /// Modelled, above the idle machine.
    pub power_modelled_w: f64,
    /// Modelled, above the idle machine.
    pub energy_modelled_j: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Thread {
    pub thread: u16,
    #[schemars(extend("enum" = ["listener", "connections"]))]
    pub kind: String,
    pub core: u16,
    pub busy_share: f64,
    pub busy_s: f64,
    pub commands: u64,
    /// Commands that wait to be taken up.
    pub depth: u32,
    pub moves: u64,
    pub connections: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Namespace {
    #[schemars(range(min = 1))]
    pub id: u32,
    pub bytes: u64,
    pub block_size: u32,
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["read", "write", "flush", "write_zeroes", "deallocate",
            "compare"] }, "required" = ["read", "write", "flush", "write_zeroes", "deallocate",
            "compare"]
        )
    )]
    pub work: BTreeMap<String, Done>,
    /// Its device has requests and completes none; absent before version 0.2.
    #[serde(default)]
    pub stalled: bool,
    /// How an array is; null for a device without members.
    pub health: Option<Health>,
}

/// A way to a namespace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    pub listen: SocketAddr,
    #[schemars(range(min = 1))]
    pub namespace: u32,
    /// ANA state.
    #[schemars(extend("enum" = ["optimized", "non-optimized", "inaccessible", "change"]))]
    pub state: String,
}

/// What a host may do in a second.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    pub host: String,
    /// I/O commands.
    #[schemars(range(min = 1))]
    pub iops: Option<u64>,
    #[schemars(range(min = 1))]
    pub bytes_per_second: Option<u64>,
    /// Bytes a second that a budget (`ebb run`) allows it for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub lent_bytes_per_second: Option<u64>,
}

/// How an array is.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// One more failure loses data.
    pub degraded: bool,
    /// Too many members failed: nothing is written.
    pub read_only: bool,
    /// Members that are not used, by name.
    pub failed: Vec<String>,
    /// The member that is being rebuilt.
    pub rebuilding: Option<String>,
    /// How much of it is done.
    #[schemars(range(min = 0, max = 1))]
    pub rebuilt_share: Option<f64>,
    /// What is wrong and what to do.
    pub text: String,
}

impl From<device::Health> for Health {
    fn from(health: device::Health) -> Self {
        Self {
            degraded: health.is_degraded(),
            read_only: health.read_only,
            text: health.to_string(),
            failed: health.failed.into_iter().map(|failed| failed.name).collect(),
            rebuilt_share: health.rebuilding.as_ref().map(|it| it.done as f64 / it.of as f64),
            rebuilding: health.rebuilding.map(|it| it.name),
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Answered.
    pub commands: u64,
    /// Of those that succeeded.
    pub bytes: u64,
    /// Of those answered.
    pub errors: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    pub open: u64,
    pub limit: u32,
    pub accepted: u64,
    /// Closed for being too many.
    pub refused: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// Commands that wait for threads to take them up.
    pub network: u64,
    /// Requests that the devices have not completed.
    pub devices: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Rates {
    pub io_per_s: f64,
    pub bytes_per_s: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Latency {
    #[schemars(
        extend("enum" = ["read", "write", "flush", "write_zeroes", "deallocate", "compare"])
    )]
    pub kind: String,
    pub count: u64,
    pub sum_s: f64,
    pub p50_s: f64,
    pub p99_s: f64,
    pub p999_s: f64,
    pub max_s: f64,
    /// Upper end in nanoseconds and how many, of those that are not empty, since the start.
    pub buckets: Vec<(u64, u64)>,
    /// For the metrics: upper ends and counts.
    #[serde(skip)]
    pub octaves: Vec<(Option<Nanos>, u64)>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Energy {
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    pub source: String,
    /// RAPL's name, such as package-0 or package-0/dram, or `cores` for the model of our cores.
    pub domain: String,
    pub energy_j: f64,
    /// Null while the counter cannot be read.
    pub power_w: Option<f64>,
    /// What the model stands on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// A namespace whose timing and power are those of the twin's model of a drive.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelledDrive {
    #[schemars(range(min = 1))]
    pub namespace: u32,
    pub drive: String,
    pub power_state: u8,
    /// The power limit set (Feature 23h); absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub power_limit_w: Option<f64>,
    pub power_modelled_w: f64,
    #[schemars(range(min = 0))]
    pub energy_modelled_j: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Shifts {
    pub total: u64,
    /// Changes of frequencies that the scheduler asked for; the server itself sets none.
    pub unmet_frequency_requests: u64,
    /// The last twenty, oldest first.
    pub last: Vec<Change>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    #[schemars(range(min = 0))]
    pub at_s: f64,
    pub what: String,
    /// Scheduler:why.
    pub reason: String,
}

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
        let thread = |(index, state): (usize, &ebb_dataplane::reactor::ThreadState)| {
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

#[cfg(test)]
crate::schema::written!("serve-status-1", Status);
