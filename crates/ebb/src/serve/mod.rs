//! `ebb serve`: block devices over NVMe/TCP, by reactors that follow the load.

mod devices;
pub mod energy;
mod metrics;
mod metrics_http;
mod modelled;
mod options;
mod status;
mod status_text;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use ebb_policy::reactor::{self as scheduling, Machine, Scheduler};
use ebb_target::controller::{Config, ConfigError, Namespace, Subsystem};
use ebb_target::reactor::{self, Runtime, Snapshot, Task, topology};
use ebb_target::transport::{Group, Limits, Listener};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::usage;
use crate::out;
use crate::progress::Progress;

use devices::ModelledDrives;
use energy::{Model, Rapl};
use status::{Facts, GroupView, Observer};

pub use options::{Options, ServeArgs};

/// Lightweight threads for each core: enough to move a part of a core's load.
const THREADS_PER_CORE: usize = 4;
/// Where metrics are served and the status is asked for when no address is given.
const DEFAULT_METRICS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9420));

/// Serves until it is told to stop.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    if let Some(address) = args.status {
        return show(address.unwrap_or(DEFAULT_METRICS), args.json);
    }
    if args.json {
        return Err(usage("--json belongs to --status"));
    }
    let options = args.merged()?;
    if options.scheduler.as_deref() == Some("list") {
        let entries = scheduling::ENTRIES.iter();
        let lines = entries.map(|entry| format!("{:14}{}\n", entry.name, entry.summary));
        return out::print(lines.collect::<String>());
    }
    let metrics = options.metrics.map(metrics_http::bind).transpose()?;
    let profile = energy::profile(options.power_profile.as_deref())?;
    let Server { subsystem, machine, runtime, facts } =
        Server::start(&options, &Progress::new(false))?;
    // Until here a signal simply ends it: taking memory may last. From here on, in order.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    if facts.scheduler == "governor" {
        out::note(
            "governor: nothing sets the frequencies it asks for, so cores poll at the one the \
             system chooses, as with static; ebb_frequency_requests_unmet_total counts them",
        );
    }
    announce(&subsystem, &facts.listen)?;
    if let Some((listener, address)) = metrics {
        let model = Model::new(profile, &machine);
        let rapl = rapl(options.powercap.as_deref());
        let observer = Observer::new(facts, runtime.monitor(), rapl, model);
        metrics_http::start(listener, observer)?;
        out::print(format_args!("metrics on http://{address}/metrics\n"))?;
    }
    signals.forever().next();
    conclude(&runtime.snapshot());
    drop(runtime.stop());
    Ok(())
}

/// A server at work.
pub struct Server {
    subsystem: Arc<Subsystem>,
    /// What the reactors run on.
    pub machine: Machine,
    runtime: Runtime,
    facts: Facts,
}

impl Server {
    /// Opens the namespaces, listens, and starts the reactors.
    ///
    /// # Errors
    /// Wrong options; a device, an address, a CPU or a thread that cannot be had.
    pub fn start(options: &Options, progress: &Progress) -> anyhow::Result<Self> {
        let cpus = options.cpus()?;
        let threads = options.threads.map_or(THREADS_PER_CORE * cpus.len(), usize::from);
        if threads == 0 {
            return Err(usage("--threads 0: connections need at least one thread"));
        }
        if options.max_connections == Some(0) {
            return Err(usage("--max-connections 0: nobody could connect"));
        }
        if options.buffers.is_some_and(|buffers| buffers < 4) {
            return Err(usage(
                "--buffers: a Compare takes two and as many are in reserve, so each thread needs \
                 at least 4",
            ));
        }
        // The listeners are threads too.
        let all = (threads + options.addresses().len()) as u16;
        let machine = topology::machine(topology::SYSFS.as_ref(), &cpus, all)?;
        let scheduler = scheduler(options, &machine)?;
        let (subsystem, drives) = subsystem(options, progress)?;
        let Target { tasks, mut facts } = target(options, &subsystem, threads)?;
        (facts.scheduler, facts.drives) = (scheduler.name().to_owned(), drives);
        let runtime = Runtime::start(reactor::Config::new(cpus, scheduler), tasks)?;
        Ok(Self { subsystem, machine, runtime, facts })
    }

    /// The first address it listens on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.facts.listen.first().copied()
    }

    /// What its cores and threads have done so far.
    pub fn snapshot(&self) -> Snapshot {
        self.runtime.snapshot()
    }

    /// Ends it; clients lose their connections.
    pub fn stop(self) {
        drop(self.runtime.stop());
    }
}

/// Prints the status of the server whose metrics are at `address`.
fn show(address: SocketAddr, json: bool) -> anyhow::Result<()> {
    let status = metrics_http::ask(address)?;
    match json {
        true => out::json(&status),
        false => out::print(status_text::text(&status)),
    }
}

/// RAPL below `folder`, or where the kernel shows it; says so where it must not be read.
pub fn rapl(folder: Option<&Path>) -> Rapl {
    let rapl = Rapl::open(folder.unwrap_or(energy::POWERCAP.as_ref()));
    if rapl.forbidden > 0 {
        out::note(
            "RAPL is there and may not be read, so energy is modelled; run as root or allow \
             reading energy_uj",
        );
    }
    rapl
}

fn scheduler(options: &Options, machine: &Machine) -> anyhow::Result<Box<dyn Scheduler>> {
    let name = options.scheduler.as_deref().unwrap_or("sandman-plus");
    scheduling::by_name(name, machine).map_err(|error| usage(error.to_string()))
}

fn limits(options: &Options) -> Limits {
    let default = Limits::default();
    let bytes = |given: Option<ebb_policy::units::Bytes>, default: u32| {
        given.map_or(default, |bytes| bytes.0.min(u32::MAX.into()) as u32)
    };
    let max_transfer = bytes(options.max_transfer, default.max_transfer);
    Limits {
        connections: options.max_connections.unwrap_or(default.connections),
        max_transfer,
        max_h2c_data: max_transfer.max(4096),
        in_capsule: bytes(options.in_capsule, default.in_capsule),
        buffers: options.buffers.unwrap_or(default.buffers),
        ..default
    }
}

/// An error with the option that it is about.
fn named(error: &ConfigError) -> String {
    let option = match error {
        ConfigError::Nqn { .. } => "--nqn or --allow-host",
        ConfigError::Number { field: "the largest transfer", .. } => "--max-transfer",
        ConfigError::Number { field: "the queue depth", .. } => "--queue-depth",
        ConfigError::Number { field: "the number of I/O queues", .. } => "--max-queues",
        ConfigError::Number { field: "the data in a capsule", .. } => "--in-capsule",
        _ => return error.to_string(),
    };
    format!("{option}: {error}")
}

/// The subsystem, and those of its namespaces that are modelled drives.
fn subsystem(
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<(Arc<Subsystem>, ModelledDrives)> {
    let limits = limits(options);
    let devices = devices::open(&options.namespace, progress)?;
    let nqn = options.nqn.clone().unwrap_or_else(devices::default_nqn);
    let mut config = Config::new(nqn, devices.namespaces);
    let drives: Vec<_> = devices.modelled.iter().map(|(_, drive)| drive.clone()).collect();
    if let Some((power, states)) = modelled::Power::of(&drives)? {
        config.power_states = states;
        config.power = Some(power);
    }
    config.serial = devices::serial();
    config.max_transfer = limits.max_transfer;
    config.in_capsule = limits.in_capsule;
    config.max_io_queues = options.max_queues.unwrap_or(config.max_io_queues);
    config.max_queue_depth = options.queue_depth.unwrap_or(config.max_queue_depth);
    if !options.allow_host.is_empty() {
        config.allowed_hosts = Some(options.allow_host.clone());
    }
    let subsystem = Subsystem::new(config).map_err(|error| usage(named(&error)))?;
    Ok((subsystem, devices.modelled))
}

/// The lightweight threads, and how to look at them from outside.
struct Target {
    /// First the listeners, then the groups.
    tasks: Vec<Box<dyn Task>>,
    facts: Facts,
}

fn target(options: &Options, subsystem: &Arc<Subsystem>, threads: usize) -> anyhow::Result<Target> {
    let limits = limits(options);
    let open = Arc::new(AtomicU64::new(0));
    let mut groups = Vec::with_capacity(threads);
    for _ in 0..threads {
        let group = Group::new(subsystem.clone(), limits, open.clone());
        groups.push(group.context("cannot open the namespaces' devices")?);
    }
    let inboxes: Vec<_> = groups.iter().map(Group::inbox).collect();
    let mut facts = facts(subsystem, limits, &groups);
    let mut tasks: Vec<Box<dyn Task>> = Vec::new();
    for address in options.addresses() {
        let inboxes = inboxes.clone();
        let listener = Listener::bind(address, inboxes, open.clone(), limits.connections)
            .with_context(|| {
                format!("cannot listen on {address}; choose another with --listen ADDRESS:PORT")
            })?;
        facts.listen.push(listener.address()?);
        facts.refused.push(listener.refused());
        tasks.push(Box::new(listener));
    }
    subsystem.set_addresses(facts.listen.clone());
    tasks.extend(groups.into_iter().map(|group| Box::new(group) as Box<dyn Task>));
    Ok(Target { tasks, facts })
}

/// What is known before the listeners are.
fn facts(subsystem: &Subsystem, limits: Limits, groups: &[Group]) -> Facts {
    let namespace = |namespace: &Namespace| {
        let geometry = namespace.device.geometry();
        (namespace.id, geometry.bytes(), geometry.block_size)
    };
    let view = |group: &Group| GroupView { counters: group.counters(), service: group.service() };
    Facts {
        nqn: subsystem.nqn().to_owned(),
        scheduler: String::new(),
        listen: Vec::new(),
        namespaces: subsystem.namespaces().iter().map(namespace).collect(),
        connections_limit: limits.connections,
        refused: Vec::new(),
        drives: Vec::new(),
        groups: groups.iter().map(view).collect(),
    }
}

fn announce(subsystem: &Subsystem, addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let mut to = out::stdout();
    writeln!(to, "subsystem {}", subsystem.nqn())?;
    for namespace in subsystem.namespaces() {
        let geometry = namespace.device.geometry();
        let size = ebb_policy::units::Bytes(geometry.bytes());
        let block = geometry.block_size;
        let what = namespace.device.describe();
        writeln!(to, "namespace {}: {size} in blocks of {block} B, {what}", namespace.id)?;
    }
    for address in addresses {
        writeln!(to, "listening on {address}")?;
    }
    Ok(to.flush()?)
}

/// What each core did, at the end.
fn conclude(snapshot: &Snapshot) {
    let requests: u64 = snapshot.threads.iter().map(|thread| thread.requests).sum();
    out::note(format_args!("{requests} commands in {:.1} s", snapshot.at.seconds()));
    for core in &snapshot.cores {
        let share = |time: ebb_policy::units::Nanos| {
            100.0 * time.seconds() / snapshot.at.seconds().max(1e-9)
        };
        out::note(format_args!(
            "cpu {}: {:.1} % busy, {:.1} % polling for nothing, {:.1} % asleep",
            core.cpu,
            share(core.totals.busy),
            share(core.totals.wasted),
            share(core.totals.all_asleep()),
        ));
    }
}
