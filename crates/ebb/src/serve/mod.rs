//! `ebb serve`: block devices over NVMe/TCP, by reactors that follow the load.

mod access;
pub mod control;
mod devices;
pub mod energy;
mod facts;
mod limits;
mod metrics;
mod modelled;
mod options;
mod resources;
mod shown;
mod status;
pub mod status_text;
mod watch;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ebb_cli::progress::Progress;
use ebb_cli::{interrupt, out, usage};
use ebb_nvme::tls::Security;
use ebb_policy::reactor::{self as scheduling, Machine, Scheduler};
use ebb_target::controller::{Port, Subsystem};
use ebb_target::reactor::{self, Runtime, Snapshot, Task, probe, topology};
use ebb_target::transport::{Doors, Fleet, Group, Limits, Listener, Places, Removed, Steward};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Unflushed;
use crate::log;
use crate::metrics::http;
use crate::metrics::names::Names;
use crate::rpc::server::Socket;

use access::Vault;
use control::Control;
use energy::{Model, Rapl};
use facts::{Facts, GroupView, Told};
use modelled::Drives;
use resources::Audit;
use status::Observer;

pub use control::replies::{Host, Hosts};
pub use options::{Options, ServeArgs, address};
pub use status::{Core, Status};

/// Lightweight threads for each core: enough to move a part of a core's load.
const THREADS_PER_CORE: usize = 4;
/// The largest block that a namespace may have, bytes.
const MOST_BLOCK: u32 = 64 << 10;
/// How long devices are waited for at the end: a quarter less than systemd allows, see the unit.
const PATIENCE: Duration = Duration::from_secs(45);

/// Serves until it is told to stop.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let file = args.config.clone();
    let options = args.merged()?;
    if options.scheduler.as_deref() == Some("list") {
        let entries = scheduling::ENTRIES.iter();
        let lines = entries.map(|entry| format!("{:14}{}\n", entry.name, entry.summary));
        return out::print(lines.collect::<String>());
    }
    log::set(options.log_level.unwrap_or(log::level()));
    Names::of(options.metrics, &options.metrics_name)?;
    let metrics = options.metrics.map(|at| http::bind(at, &options.metrics_name));
    let metrics = metrics.transpose()?;
    let socket = options.control().map(|path| Socket::bind(&path, options.control_group));
    let mut socket = socket.transpose()?;
    let profile = energy::profile(options.power_profile.as_deref())?;
    let server = Server::start(&options, &Progress::new(false))?;
    // Until here a signal simply ends it: taking memory may last. From here on, the first one
    // does in order, and a second one at once.
    interrupt::watch()?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    let facts = server.facts.clone();
    control::note_governor(&facts.scheduler());
    facts.warning().iter().for_each(out::note);
    announce(&server)?;
    let observer = (metrics.is_some() || socket.is_some()).then(|| {
        let model = Model::new(profile, &server.machine);
        let rapl = rapl(options.powercap.as_deref());
        Arc::new(Observer::new(facts.clone(), server.runtime.monitor(), rapl, model))
    });
    watch::start(facts, observer.clone())?;
    if let (Some((listener, address)), Some(observer)) = (metrics, &observer) {
        http::start(listener, observer.clone())?;
        out::print(format_args!("metrics on http://{address}/metrics\n"))?;
    }
    let mut control = None;
    if let (Some(socket), Some(observer)) = (&mut socket, observer) {
        let methods = Arc::new(Control::new(&server, options, file, observer));
        socket.serve(methods.clone())?;
        control = Some(methods);
    }
    // Where systemd has started it; elsewhere nobody listens.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    signals.forever().next();
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    let deadline = Instant::now() + PATIENCE;
    drop(socket);
    conclude(&server.snapshot());
    let fleet = control.as_ref().and_then(|control| control.end(control::PATIENCE));
    let is_at_work = |id| control.as_ref().is_some_and(|control| control.is_at_work(id));
    server.end(fleet, deadline, is_at_work)
}

/// A server at work.
pub struct Server {
    subsystem: Arc<Subsystem>,
    /// What the reactors run on.
    pub machine: Machine,
    runtime: Runtime,
    facts: Arc<Facts>,
    doors: Arc<Doors>,
    stewards: Vec<Arc<Steward>>,
    vault: Arc<Vault>,
    /// What it needs of what the system gives.
    audit: Audit,
}

impl Server {
    /// Opens the namespaces, listens, and starts the reactors.
    ///
    /// # Errors
    /// Wrong options; a device, an address, a CPU or a thread that cannot be had.
    pub fn start(options: &Options, progress: &Progress) -> anyhow::Result<Self> {
        let cpus = options.cpus()?;
        let threads = options.threads.map_or(THREADS_PER_CORE * cpus.len(), usize::from);
        let mut limits = limits::of(options, threads)?;
        // The listener is a thread too.
        let all = (threads + 1) as u16;
        let mut machine = topology::machine(topology::SYSFS.as_ref(), &cpus, all)?;
        machine.wake = Some(probe::wake_up(cpus[0])?);
        let scheduler = scheduler(options, &machine)?;
        let plan = devices::Plan::read(&options.namespace)?;
        let vault = Arc::new(Vault::read(options)?);
        let mut config = limits::config(options, limits, vault.clone())?;
        config.places = config.places.max(plan.largest());
        let depth = config.max_queue_depth;
        let needs = resources::Plan {
            namespaces: plan.memory(),
            hosts: limits.most_memory(threads, depth, MOST_BLOCK, config.places),
            reactors: cpus.len() as u64,
            listeners: options.ports().len() as u64,
            has_metrics: options.metrics.is_some(),
            has_control: options.control().is_some(),
        };
        let mut audit = Audit::begin(&needs)?;
        let devices = plan.open(progress)?;
        config.namespaces = devices.namespaces;
        config.power = Some(devices.drives.clone());
        let subsystem = Subsystem::new(config).map_err(|error| usage(limits::named(&error)))?;
        let of_groups = threads as u64 * files_of_group(&subsystem, limits)?;
        let asked = options.max_connections.is_some();
        limits.connections = audit.connections(&needs, of_groups, limits.connections, asked)?;
        let Target { tasks, facts, doors, stewards } =
            target(options, limits, &subsystem, devices.drives, threads)?;
        let warning = access::warning(options, &subsystem.ports());
        facts.tell(|told| *told = Told { scheduler: scheduler.name().to_owned(), warning });
        control::begin(options, &subsystem)?;
        let facts = Arc::new(facts);
        let runtime = Runtime::start(reactor::Config::new(cpus, scheduler), tasks)?;
        Ok(Self { subsystem, machine, runtime, facts, doors, stewards, vault, audit })
    }

    /// The first address it listens on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.subsystem.ports().first().map(|port| port.address)
    }

    /// What its cores and threads have done so far.
    pub fn snapshot(&self) -> Snapshot {
        self.runtime.snapshot()
    }

    /// Ends it; clients lose their connections. For those that are in the same process.
    pub fn stop(self) {
        drop(self.runtime.stop());
    }

    /// Ends it for good: hosts lose their connections, then every namespace is flushed and closed,
    /// and what requests are at work on is waited for.
    ///
    /// # Errors
    /// Names those that were not in time; what serves them then ends with the process alone.
    fn end(
        self,
        fleet: Option<Fleet>,
        deadline: Instant,
        is_at_work: impl Fn(u32) -> bool,
    ) -> anyhow::Result<()> {
        for port in self.doors.ports() {
            self.doors.close(port.address);
        }
        let fleet = fleet
            .unwrap_or_else(|| Fleet::new(self.subsystem.clone(), self.stewards.clone(), PATIENCE));
        let mut ends = fleet.end(deadline.saturating_duration_since(Instant::now()));
        for (id, _, end) in &mut ends {
            while is_at_work(*id) && Instant::now() < deadline {
                std::thread::sleep(control::LOOK);
            }
            if is_at_work(*id) {
                *end = Removed::Waiting;
            }
        }
        let text = |(id, device, end): &(u32, String, Removed)| match end {
            Removed::Closed => None,
            Removed::Unflushed(status) => {
                Some(format!("namespace {id} could not be flushed: {status:?} ({device})"))
            }
            Removed::Waiting => {
                let within = PATIENCE.as_secs();
                Some(format!("namespace {id} is still stalled after {within} s ({device})"))
            }
        };
        let unsafe_ends: Vec<_> = ends.iter().filter_map(text).collect();
        if ends.iter().any(|(.., end)| *end == Removed::Waiting) {
            // Reactors and devices would wait for what the kernel does not give back.
            std::mem::forget(self);
        } else {
            self.stop();
        }
        match unsafe_ends.is_empty() {
            true => Ok(()),
            false => Err(Unflushed(unsafe_ends.join("; ")).into()),
        }
    }
}

/// Asks the server whose metrics are at `address` for its status.
///
/// # Errors
/// When it cannot be reached or does not answer as it should.
pub fn ask(address: SocketAddr) -> anyhow::Result<Status> {
    let json = http::ask(address).with_context(|| {
        format!("no status from {address}; is `ebb serve --metrics {address}` running?")
    })?;
    serde_json::from_slice(&json)
        .with_context(|| format!("what answers at {address} is not an `ebb serve` of this version"))
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

/// Descriptors that a group opens, counted on one.
fn files_of_group(subsystem: &Arc<Subsystem>, limits: Limits) -> anyhow::Result<u64> {
    let before = resources::open_files()?;
    let _group = group(subsystem, limits, &Arc::new(Places::new(1, 1)))?;
    Ok(resources::open_files()?.saturating_sub(before))
}

fn group(
    subsystem: &Arc<Subsystem>,
    limits: Limits,
    places: &Arc<Places>,
) -> anyhow::Result<Group> {
    let group = Group::new(subsystem.clone(), limits, places.clone());
    group.context("cannot open the namespaces' devices")
}

/// The lightweight threads, and how to look at and change them from outside.
struct Target {
    /// First the listener, then the groups.
    tasks: Vec<Box<dyn Task>>,
    facts: Facts,
    doors: Arc<Doors>,
    stewards: Vec<Arc<Steward>>,
}

fn target(
    options: &Options,
    limits: Limits,
    subsystem: &Arc<Subsystem>,
    drives: Arc<Drives>,
    threads: usize,
) -> anyhow::Result<Target> {
    let places = Arc::new(Places::new(limits.connections, threads));
    let groups = (0..threads).map(|_| group(subsystem, limits, &places));
    let groups = groups.collect::<anyhow::Result<Vec<_>>>()?;
    let listener = Listener::new(groups.iter().map(Group::inbox).collect(), places);
    let listener = listener.context("cannot make the listener's files")?;
    let (doors, refused) = (listener.doors(), listener.refused());
    for port in options.ports() {
        control::listen(&doors, port)?;
    }
    subsystem.set_ports(&doors.ports());
    let view = |group: &Group| GroupView { counters: group.counters(), service: group.service() };
    let facts = Facts {
        nqn: subsystem.nqn().to_owned(),
        subsystem: Arc::downgrade(subsystem),
        places: subsystem.places(),
        connections_limit: limits.connections,
        refused,
        groups: groups.iter().map(view).collect(),
        drives,
        told: Default::default(),
    };
    let stewards = groups.iter().map(Group::steward).collect();
    let mut tasks: Vec<Box<dyn Task>> = vec![Box::new(listener)];
    tasks.extend(groups.into_iter().map(|group| Box::new(group) as Box<dyn Task>));
    Ok(Target { tasks, facts, doors, stewards })
}

fn announce(server: &Server) -> anyhow::Result<()> {
    let (mut to, subsystem) = (out::stdout(), &server.subsystem);
    writeln!(to, "subsystem {}", subsystem.nqn())?;
    for namespace in subsystem.namespaces() {
        let geometry = namespace.device.geometry();
        let size = ebb_policy::units::Bytes(geometry.bytes());
        let block = geometry.block_size;
        let what = namespace.device.describe();
        writeln!(to, "namespace {}: {size} in blocks of {block} B, {what}", namespace.id)?;
    }
    writeln!(to, "{}", server.audit.table())?;
    for Port { address, security } in subsystem.ports() {
        writeln!(to, "listening on {address}")?;
        if let Some(security) = security {
            writeln!(to, "{} on {address}", access::words(security == Security::Required))?;
        }
    }
    Ok(to.flush()?)
}

/// What each core did, at the end.
fn conclude(snapshot: &Snapshot) {
    let requests: u64 = snapshot.threads.iter().map(|thread| thread.requests).sum();
    out::note(format_args!("{requests} I/O commands in {:.1} s", snapshot.at.seconds()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_waits_longer_for_the_end_than_the_server_does_for_its_devices() {
        let unit = include_str!("../../../../packaging/systemd/ebb-serve.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
        assert_eq!(PATIENCE * 4, Duration::from_secs(limit.unwrap().parse().unwrap()) * 3);
    }
}
