//! The limits of `ebb serve`: numbers that make sense, and the memory that they imply.

use std::sync::Arc;

use anyhow::Result;
use ebb_cli::{text, usage};
use ebb_policy::units::{Bytes, Nanos};
use ebb_target::controller::{Config, ConfigError};
use ebb_target::device;
use ebb_target::transport::Limits;

use super::access::{self, Vault};
use super::devices;
use super::options::Options;

/// Threads there may be, each with descriptors and buffers of its own.
const THREADS: usize = 4096;
/// Connections there may be: commands under way know theirs by 16 bits.
const CONNECTIONS: u32 = 65_535;
/// Namespaces there may be, by the largest number, unless a larger one is given at start. Hosts
/// make room for the ANA log by it.
const PLACES: u32 = 32;
/// Buffers that a thread needs.
const BUFFERS: u32 = 4;

/// The transport's limits, with `threads` threads.
///
/// # Errors
/// Names the option that is out of its range.
pub fn of(options: &Options, threads: usize) -> Result<Limits> {
    let default = Limits::default();
    let bytes = |given: Option<Bytes>, default: u32| {
        given.map_or(default, |bytes| bytes.0.min(u32::MAX.into()) as u32)
    };
    let max_transfer = bytes(options.max_transfer, default.max_transfer);
    let limits = Limits {
        connections: options.max_connections.unwrap_or(default.connections),
        max_transfer,
        max_h2c_data: max_transfer.max(4096),
        in_capsule: bytes(options.in_capsule, default.in_capsule),
        buffers: options.buffers.unwrap_or(default.buffers),
        silence: options.stall_after.unwrap_or(default.silence),
        secure: !options.tls_key.is_empty(),
        ..default
    };
    if !(1..=THREADS).contains(&threads) {
        return Err(usage(format!("--threads {threads}: must be 1 to {THREADS}")));
    }
    if !(1..=CONNECTIONS).contains(&limits.connections) {
        let given = limits.connections;
        return Err(usage(format!("--max-connections {given}: must be 1 to {CONNECTIONS}")));
    }
    if limits.silence == Nanos::ZERO {
        return Err(usage("--stall-after 0: must be above 0"));
    }
    if limits.buffers < BUFFERS {
        return Err(usage(format!(
            "--buffers {}: a Compare takes two and leaves as many to others, so each thread needs \
             at least {BUFFERS}",
            limits.buffers
        )));
    }
    Ok(limits)
}

/// The subsystem but for its namespaces, checked.
///
/// # Errors
/// Names the option that is not right.
pub fn config(options: &Options, limits: Limits, vault: Arc<Vault>) -> Result<Config> {
    let nqn = options.nqn.clone().unwrap_or_else(devices::default_nqn);
    let mut config = Config::new(nqn, Vec::new());
    config.serial = devices::serial(&config.nqn);
    config.max_transfer = limits.max_transfer;
    config.in_capsule = limits.in_capsule;
    config.max_io_queues = options.max_queues.unwrap_or(config.max_io_queues);
    config.max_queue_depth = options.queue_depth.unwrap_or(config.max_queue_depth);
    if !options.allow_host.is_empty() {
        config.allowed_hosts = Some(options.allow_host.clone());
    }
    config.authentication = Some(access::rules(options, vault.clone())?);
    config.tls = Some(vault);
    config.places = PLACES;
    config.check().map_err(|error| usage(named(&error)))?;
    Ok(config)
}

/// An error with the option that it is about.
pub fn named(error: &ConfigError) -> String {
    let option = match error {
        ConfigError::Nqn { .. } => "--nqn or --allow-host",
        ConfigError::Number { field: "a namespace's identifier", .. } => "--namespace",
        ConfigError::Number { field: "the largest transfer", .. } => "--max-transfer",
        ConfigError::Number { field: "the queue depth", .. } => "--queue-depth",
        ConfigError::Number { field: "the number of I/O queues", .. } => "--max-queues",
        ConfigError::Number { field: "the data in a capsule", .. } => "--in-capsule",
        _ => return error.to_string(),
    };
    format!("{option}: {error}")
}

/// Refuses limits that let hosts use more memory than the `namespaces` leave: a bound that cannot
/// be kept is none. How much there is, if the system says.
///
/// # Errors
/// Says how much is there and which options say how much is needed.
pub fn fit(namespaces: u64, hosts: u64) -> Result<Option<u64>> {
    match device::room() {
        Some(room) if namespaces.saturating_add(hosts) > room => {
            Err(too_much(namespaces, hosts, room))
        }
        room => Ok(room),
    }
}

fn too_much(namespaces: u64, hosts: u64, room: u64) -> anyhow::Error {
    let [namespaces, hosts, room] =
        [namespaces, hosts, room].map(|bytes| text::bytes(bytes as f64));
    usage(format!(
        "the namespaces take {namespaces} of memory and hosts may use {hosts}, but only {room} \
         can be had; ask for smaller ones or add ',lazy', or lower --max-connections, \
         --queue-depth, --threads, --buffers or --max-transfer"
    ))
}
