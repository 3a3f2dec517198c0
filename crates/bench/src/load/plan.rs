//! What was asked for, checked against what the target has.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity};

use ebb_cli::usage;
use ebb_initiator::{Controller, Host, Namespace, Secrets, Target, Tls, discover};
use ebb_nvme::keys;
use ebb_nvme::pdu::Digests;
use ebb_policy::units::{Bytes, Nanos};

use super::args::{DigestKind, LoadArgs, Rw};
use super::arrivals::Schedule;

/// Requests outstanding per connection, at most, with a rate or a trace.
const OPEN_DEPTH: usize = 128;
/// Connections per core up to which completions are looked for all the time.
const POLLED: usize = 8;
/// Most bytes of one command where the target states no limit, and in sweeps.
const MOST_BYTES: u64 = 1 << 20;
/// Blocks whose state `--verify` keeps, at most: half a gibibyte of memory.
const MOST_VERIFIED: u64 = 1 << 26;

/// The part of a namespace in use.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// The namespace.
    pub namespace: Namespace,
    /// First block.
    pub first: u64,
    /// Blocks.
    pub blocks: u64,
}

/// When requests come.
#[derive(Debug, Clone)]
pub enum Pace {
    /// When one before is answered.
    Closed,
    /// By a schedule.
    Open(Schedule),
    /// As in a trace, faster by this factor.
    Trace(f64),
}

/// A load, ready to run.
#[derive(Debug)]
pub struct Plan {
    /// What to connect to.
    pub target: Target,
    /// Where requests go.
    pub spaces: Vec<Space>,
    /// Offsets and operations.
    pub rw: Rw,
    /// Share of reads.
    pub reads: f64,
    /// Bytes of a request.
    pub bytes: u64,
    /// Most bytes of one command.
    pub most_bytes: u64,
    /// Requests outstanding: per connection and namespace in a closed loop, else per connection.
    pub depth: usize,
    /// Connections.
    pub connections: u16,
    /// One thread for each: where it is to run.
    pub cores: Vec<Option<usize>>,
    /// Whether threads sleep while nothing happens.
    pub wait: bool,
    /// When requests come.
    pub pace: Pace,
    /// When to stop; `None` for the end of the trace.
    pub duration: Option<Duration>,
    /// What is not counted.
    pub warmup: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether all data is checked.
    pub verify: bool,
    /// Whether everything is written first.
    pub fill: bool,
    /// How long to try to connect again.
    pub reconnect: Option<Duration>,
    /// How long an answer may take.
    pub timeout: Duration,
}

fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}

/// Finds the target that was named, and its subsystem.
pub fn target(args: &LoadArgs) -> Result<Target> {
    let address = resolve(&args.connect)?;
    let mut target = Target::new(address, String::new());
    target.timeout = duration(args.check.timeout).max(Duration::from_millis(1));
    let has = |kind| args.digest.contains(&kind);
    target.digests = Digests { header: has(DigestKind::Header), data: has(DigestKind::Data) };
    if let Some(nqn) = &args.host_nqn {
        let [high, low] = [1, 2].map(|part| ebb_cli::random::text(nqn, part).to_le_bytes());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&high);
        id[8..].copy_from_slice(&low);
        target.host = Host { nqn: nqn.clone(), id };
    }
    target.secrets = secrets(args)?;
    target.tls = args.tls_key.as_deref().map(tls).transpose()?;
    target.subsystem = match &args.nqn {
        Some(nqn) => nqn.clone(),
        None => discovered(&target)?,
    };
    Ok(target)
}

/// The key for TLS.
fn tls(path: &Path) -> Result<Tls> {
    let keys = keys::read_tls(path, 1).map_err(|why| usage(format!("--tls-key {why}")))?;
    keys.into_iter().next().map(Tls::new).ok_or_else(|| usage("--tls-key: no key"))
}

/// The keys to authenticate with.
fn secrets(args: &LoadArgs) -> Result<Option<Secrets>> {
    let read = |option: &str, path: &PathBuf| {
        let mut keys = keys::read(path, 1).map_err(|why| usage(format!("{option} {why}")))?;
        Ok::<_, anyhow::Error>(keys.remove(0))
    };
    let Some(host) = &args.dhchap_secret else { return Ok(None) };
    let host = read("--dhchap-secret", host)?;
    let controller = args.dhchap_ctrl_secret.as_ref();
    let controller = controller.map(|path| read("--dhchap-ctrl-secret", path)).transpose()?;
    Ok(Some(Secrets::new(host, controller)))
}

fn resolve(text: &str) -> Result<SocketAddr> {
    let wrong = |why: &str| {
        usage(format!("--connect {text}: {why}; write an address and a port, 127.0.0.1:4420"))
    };
    let mut found = text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    found.next().ok_or_else(|| wrong("no address has this name"))
}

fn discovered(target: &Target) -> Result<String> {
    let mut names: Vec<String> =
        discover(target)?.into_iter().filter(|found| found.is_usable()).map(|f| f.nqn).collect();
    names.sort();
    names.dedup();
    match names.as_slice() {
        [name] => Ok(name.clone()),
        [] => Err(usage(format!("{} offers no subsystem: name one with --nqn", target.address))),
        names => Err(usage(format!(
            "{} offers several subsystems: choose one with --nqn: {}",
            target.address,
            names.join(", ")
        ))),
    }
}

impl Plan {
    /// Checks the options against the target.
    pub fn new(args: &LoadArgs, target: Target, controller: &mut Controller) -> Result<Self> {
        let (work, pace, check) = (&args.work, &args.pace, &args.check);
        let rw = work.rw.unwrap_or(Rw::Randread);
        check_options(args, rw)?;
        let cores = match &args.cores {
            Some(list) => list.0.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let connections = args.connections.unwrap_or(cores.len() as u16);
        if usize::from(connections) < cores.len() {
            return Err(usage(format!(
                "--connections {connections} leaves some of the {} cores without one",
                cores.len()
            )));
        }
        let per_core = usize::from(connections).div_ceil(cores.len());
        let most_bytes = controller.identity().most_bytes.unwrap_or(u64::MAX).min(MOST_BYTES);
        let trace = work.trace.is_some();
        let kind = match (trace, pace.rate, pace.burst) {
            (true, ..) => Pace::Trace(work.speed.unwrap_or(1.0)),
            (_, None, None) => Pace::Closed,
            (_, rate, burst) => Pace::Open(Schedule {
                rate: rate.map_or(0.0, |rate| rate.0),
                burst,
                ramp: pace.ramp.unwrap_or_default(),
                arrival: pace.arrival,
            }),
        };
        let closed = matches!(kind, Pace::Closed);
        let default = if trace { None } else { Some(Nanos::from_secs(10)) };
        let plan = Self {
            spaces: spaces(args, controller)?,
            rw,
            reads: match rw {
                _ if rw.is_mixed() => f64::from(work.mix.unwrap_or(50)) / 100.0,
                _ => f64::from(u8::from(!rw.writes())),
            },
            bytes: work.block_size.map_or(4096, |size| size.0),
            most_bytes,
            depth: match pace.queue_depth {
                Some(depth) => depth.into(),
                None if closed => 1,
                None => OPEN_DEPTH.min(controller.most_outstanding()),
            },
            connections,
            wait: args.wait || (!args.poll && per_core > POLLED),
            cores,
            pace: kind,
            duration: pace.duration.or(default).map(duration),
            warmup: duration(pace.warmup),
            seed: work.seed,
            verify: check.verify,
            fill: check.fill,
            reconnect: check.reconnect.map(duration),
            timeout: target.timeout,
            target,
        };
        plan.check_sizes(work.block_size.is_some())?;
        plan.check_queues(controller)?;
        Ok(plan)
    }

    /// Whether requests come in bursts.
    pub fn has_bursts(&self) -> bool {
        matches!(&self.pace, Pace::Open(schedule) if schedule.burst.is_some())
    }

    /// Commands that one connection must be able to have outstanding.
    pub fn outstanding(&self) -> usize {
        match self.pace {
            Pace::Closed => self.depth * self.spaces.len(),
            _ => self.depth,
        }
    }

    fn check_sizes(&self, given: bool) -> Result<()> {
        let bytes = self.bytes;
        for space in &self.spaces {
            let Namespace { id, block_size, .. } = space.namespace;
            let block = u64::from(block_size);
            if !matches!(self.pace, Pace::Trace(_)) {
                if bytes == 0 || !bytes.is_multiple_of(block) {
                    let given = if given { "" } else { " (the default)" };
                    return Err(usage(format!(
                        "--block-size {}{given} is not a multiple of namespace {id}'s blocks of {}",
                        Bytes(bytes),
                        Bytes(block),
                    )));
                }
                if bytes / block > space.blocks {
                    return Err(usage(format!(
                        "--block-size {} is more than the {} in use of namespace {id}",
                        Bytes(bytes),
                        Bytes(space.blocks * block),
                    )));
                }
            }
            if bytes > self.most_bytes || block > self.most_bytes {
                return Err(usage(format!(
                    "--block-size {}: the target takes at most {} at once",
                    Bytes(bytes.max(block)),
                    Bytes(self.most_bytes),
                )));
            }
            if self.verify && space.blocks > MOST_VERIFIED {
                return Err(usage(format!(
                    "--verify keeps the state of at most {MOST_VERIFIED} blocks per namespace, \
                     but {} of namespace {id} are in use; choose a part with --offset and --size",
                    space.blocks
                )));
            }
        }
        Ok(())
    }

    fn check_queues(&self, controller: &mut Controller) -> Result<()> {
        let granted = controller.set_queues(self.connections)?;
        if granted < self.connections {
            return Err(usage(format!(
                "--connections {}: the target grants {granted} I/O queues",
                self.connections
            )));
        }
        let most = controller.most_outstanding();
        if self.outstanding() > most {
            return Err(usage(format!(
                "--queue-depth {}: {} outstanding per connection are more than the {most} that \
                 the target's queues hold; use more connections",
                self.depth,
                self.outstanding()
            )));
        }
        Ok(())
    }
}

fn check_options(args: &LoadArgs, rw: Rw) -> Result<()> {
    let (work, pace) = (&args.work, &args.pace);
    if let Some(list) = &args.cores {
        let allowed = sched_getaffinity(None)?;
        let may = |core: usize| core < CpuSet::MAX_CPU && allowed.is_set(core);
        if let Some(core) = list.0.iter().find(|core| !may(**core)) {
            return Err(usage(format!("--cores: this process may not run on core {core}")));
        }
    }
    if work.mix.is_some() && (!rw.is_mixed() || work.trace.is_some()) {
        return Err(usage("--mix is the share of reads of --rw rw or randrw"));
    }
    if work.trace.is_none()
        && (work.reading.format.is_some() || work.reading.columns.is_some() || work.reading.lenient)
    {
        return Err(usage("--format and --lenient say how to read a --trace"));
    }
    if let Some(total) = pace.duration
        && total <= pace.warmup
    {
        return Err(usage(format!(
            "--duration {total} must be longer than --warmup {}, which it includes",
            pace.warmup
        )));
    }
    if let Some(speed) = work.speed
        && !(speed.is_finite() && speed > 0.0)
    {
        return Err(usage(format!("--speed {speed}: a factor above 0 is needed, such as 2")));
    }
    let reads_only = work.trace.is_none() && (!rw.writes() || work.mix == Some(100));
    if args.check.verify && !args.check.fill && reads_only {
        return Err(usage(
            "--verify proves what this run has written, and only reads are asked for: add --fill, \
             or choose --rw randrw",
        ));
    }
    Ok(())
}

fn spaces(args: &LoadArgs, controller: &mut Controller) -> Result<Vec<Space>> {
    let all = controller.namespaces()?;
    let list = || all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let chosen = if args.namespaces.is_empty() { &all } else { &args.namespaces };
    if chosen.is_empty() {
        return Err(usage(format!("{} has no namespaces", args.connect)));
    }
    let mut spaces: Vec<Space> = Vec::new();
    for id in chosen {
        if !all.contains(id) {
            return Err(usage(format!("--namespace {id}: the target has {}", list())));
        }
        if spaces.iter().any(|space| space.namespace.id == *id) {
            return Err(usage(format!("--namespace {id} is named twice")));
        }
        let namespace = controller.namespace(*id)?;
        spaces.push(space(args, namespace)?);
    }
    Ok(spaces)
}

fn space(args: &LoadArgs, namespace: Namespace) -> Result<Space> {
    let Namespace { id, block_size, blocks } = namespace;
    let block = u64::from(block_size);
    let (offset, size) = (args.work.offset.0, args.work.size.map(|size| size.0));
    let aligned = offset.is_multiple_of(block) && size.is_none_or(|s| s.is_multiple_of(block));
    if !aligned {
        return Err(usage(format!(
            "--offset and --size must be multiples of namespace {id}'s blocks of {}",
            Bytes(block),
        )));
    }
    let first = offset / block;
    let rest = blocks.saturating_sub(first);
    let count = size.map_or(rest, |size| size / block);
    if count == 0 || count > rest {
        return Err(usage(format!(
            "--offset {} and --size leave nothing of namespace {id}, or go beyond its {}",
            args.work.offset,
            Bytes(namespace.bytes()),
        )));
    }
    Ok(Space { namespace, first, blocks: count })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// One namespace of 4 KiB blocks, requests of one block, a closed loop of depth 1.
    pub fn plan(blocks: u64, first: u64, connections: u16, random: bool) -> Plan {
        let namespace = Namespace { id: 1, block_size: 4096, blocks: first + blocks };
        Plan {
            target: Target::new(SocketAddr::from(([127, 0, 0, 1], 4420)), "nqn"),
            spaces: vec![Space { namespace, first, blocks }],
            rw: if random { Rw::Randread } else { Rw::Read },
            reads: 1.0,
            bytes: 4096,
            most_bytes: 64 << 10,
            depth: 1,
            connections,
            cores: vec![None],
            wait: true,
            pace: Pace::Closed,
            duration: None,
            warmup: Duration::ZERO,
            seed: 1,
            verify: false,
            fill: false,
            reconnect: None,
            timeout: Duration::from_secs(1),
        }
    }
}
