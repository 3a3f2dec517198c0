//! What a subsystem is made of, and whether that makes sense.

use std::sync::Arc;

use ebb_nvme::Status;
use ebb_nvme::fabrics::{self, DISCOVERY_NQN, MAX_CONTROLLER};
use ebb_nvme::log::warning;
use ebb_policy::units::Watts;
use thiserror::Error;

use super::auth::{Rules, TlsKeys};
use super::ports::Port;
use crate::device::{self, Device};

/// The transport has other uses for the numbers of the last places.
pub(crate) const MAX_QUEUE_DEPTH: u16 = u16::MAX - 1;
/// Largest namespace identifier, and so the most namespaces.
pub const MAX_NAMESPACES: u32 = 1024;
/// Power state descriptors in Identify Controller.
pub const MAX_POWER_STATES: usize = 32;
/// Bytes of a page, the unit of MDTS.
const PAGE: u32 = 4096;

/// A namespace: a block device as hosts see it.
#[derive(Clone)]
pub struct Namespace {
    /// NSID, 1 to [`MAX_NAMESPACES`].
    pub id: u32,
    /// What it stands on.
    pub device: Arc<dyn Device>,
    /// UUID, in the order it is written. The same for as long as the data is.
    pub uuid: [u8; 16],
    /// NGUID, big-endian; likewise.
    pub nguid: [u8; 16],
    /// Refuses what would change it.
    pub read_only: bool,
}

/// A power state (Base Figure 276).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerState {
    /// The most it draws; 0 for not stated.
    pub max_power: Watts,
    /// Draws this when idle, if known.
    pub idle_power: Option<Watts>,
    /// Draws this under load, if known.
    pub active_power: Option<Watts>,
    /// The most time to enter it, µs.
    pub entry_latency: u32,
    /// The most time to leave it, µs.
    pub exit_latency: u32,
    /// Rank of throughput and latency among the states, 0 the best: reads.
    pub read_rank: u8,
    /// Likewise of writes.
    pub write_rank: u8,
    /// Whether it does I/O at all.
    pub is_operational: bool,
}

/// Power management (features 02h and 23h) of what the subsystem stands on.
pub trait PowerControl: Send + Sync {
    /// The power states, at most [`MAX_POWER_STATES`], from the one with the most power down; none
    /// for a single one that is not described. They may change as namespaces come and go.
    fn states(&self) -> Vec<PowerState>;
    /// Goes to power state `state`, one of them.
    ///
    /// # Errors
    /// The status to answer the host with.
    fn set(&self, state: u8) -> Result<(), Status>;
    /// The power state it is in.
    fn get(&self) -> u8;
    /// Whether it takes a power limit.
    fn takes_limit(&self) -> bool;
    /// Draws no more than this in any state; `None` ends the limit. Asked only if it takes one.
    fn limit(&self, power: Option<Watts>);
    /// Enters by itself only idle states, which are those that are not operational, that it wakes
    /// from within so many microseconds; none at 0, which is how it begins.
    fn idle(&self, longest: u32);
}

/// How the subsystem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Condition {
    /// Composite temperature in kelvins, if there is a sensor.
    pub temperature: Option<u16>,
    /// Bits of [`warning`]. Of the temperature, thresholds that hosts set decide as well.
    pub warning: u8,
}

/// The health of what the subsystem stands on.
pub trait Health: Send + Sync {
    /// Now. Called at most about once a second and for each SMART log.
    fn read(&self) -> Condition;
}

/// The subsystem to serve.
pub struct Config {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Serial number, up to 20 characters of ASCII.
    pub serial: String,
    /// Model, up to 40.
    pub model: String,
    /// Firmware revision, up to 8.
    pub firmware: String,
    /// What it serves.
    pub namespaces: Vec<Namespace>,
    /// Namespaces there may be later on, by the largest identifier.
    pub places: u32,
    /// NQNs of the hosts that may connect without keys; `None` for any, unless some have keys.
    pub allowed_hosts: Option<Vec<String>>,
    /// How those with keys authenticate themselves.
    pub authentication: Option<Rules>,
    /// Keys of hosts for TLS, where listeners offer or require it.
    pub tls: Option<Arc<dyn TlsKeys>>,
    /// I/O controllers at once, and again as many discovery controllers.
    pub max_controllers: u16,
    /// I/O queues of one controller.
    pub max_io_queues: u16,
    /// Entries of an I/O queue, from 2 to 65534 (CAP.MQES + 1).
    pub max_queue_depth: u16,
    /// Bytes of one command's data: a power of two from 4096 on (MDTS).
    pub max_transfer: u32,
    /// Bytes of data in a command capsule of an I/O queue: a multiple of 16 (IOCCSZ).
    pub in_capsule: u32,
    /// Where it listens, for the discovery log.
    pub ports: Vec<Port>,
    /// Its power states, and what sets them.
    pub power: Option<Arc<dyn PowerControl>>,
    /// Tells how it is.
    pub health: Option<Arc<dyn Health>>,
}

/// Concurrent controllers, by default.
pub const CONTROLLERS: u16 = 256;

impl Config {
    /// A subsystem with the defaults of `ebb serve`, open to any host.
    #[must_use]
    pub fn new(nqn: impl Into<String>, namespaces: Vec<Namespace>) -> Self {
        Self {
            nqn: nqn.into(),
            serial: "EBB0000000000001".to_owned(),
            model: "Ebb NVMe/TCP target".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            namespaces,
            places: 0,
            allowed_hosts: None,
            authentication: None,
            tls: None,
            max_controllers: CONTROLLERS,
            max_io_queues: 64,
            max_queue_depth: 128,
            max_transfer: 128 << 10,
            in_capsule: 8 << 10,
            ports: Vec::new(),
            power: None,
            health: None,
        }
    }
}

/// Why a subsystem cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Not an NVMe qualified name.
    #[error(
        "'{name}' is no NVMe qualified name: {why}; write nqn.YYYY-MM.reverse.domain:name or \
         nqn.2014-08.org.nvmexpress:uuid:UUID"
    )]
    Nqn {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A text that Identify Controller cannot carry.
    #[error("{field} '{value}' must be 1 to {most} characters of printable ASCII")]
    Text {
        /// Which.
        field: &'static str,
        /// Its value.
        value: String,
        /// The most characters.
        most: usize,
    },
    /// A number out of its range.
    #[error("{field} is {value}; it must be {range}")]
    Number {
        /// Which.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// Two namespaces that hosts could not tell apart.
    #[error("namespaces {0} and {1} have the same {2}; each needs its own")]
    Double(u32, u32, &'static str),
    /// The thread that checks keys does not start.
    #[error("cannot start the thread that authenticates hosts: {0}; raise the thread limit")]
    Helper(String),
}

impl Config {
    /// Checks everything but the namespaces, which come last as devices take time to open.
    ///
    /// # Errors
    /// The first thing that is not right.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_nqn(&self.nqn)?;
        if self.nqn == DISCOVERY_NQN {
            let why = "it is the discovery service's";
            return Err(ConfigError::Nqn { name: self.nqn.clone(), why });
        }
        self.allowed_hosts.iter().flatten().try_for_each(|host| check_nqn(host))?;
        text("the serial number", &self.serial, 20)?;
        text("the model", &self.model, 40)?;
        text("the firmware revision", &self.firmware, 8)?;
        self.numbers()
    }

    /// Puts the namespaces in order and checks everything.
    pub(super) fn checked(mut self) -> Result<Self, ConfigError> {
        self.check()?;
        self.namespaces.sort_by_key(|namespace| namespace.id);
        for (index, one) in self.namespaces.iter().enumerate() {
            one.check(&self.namespaces[..index])?;
        }
        Ok(self)
    }

    fn numbers(&self) -> Result<(), ConfigError> {
        let transfer = self.max_transfer;
        let controllers = self.max_controllers;
        let capsule = self.in_capsule;
        let states = self.power_states().len();
        let checks = [
            (
                "the number of controllers",
                controllers.into(),
                (1..=MAX_CONTROLLER / 2).contains(&controllers),
                "1 to 32,759",
            ),
            (
                "the number of I/O queues",
                self.max_io_queues.into(),
                self.max_io_queues > 0,
                "1 or more",
            ),
            (
                "the queue depth",
                self.max_queue_depth.into(),
                (2..=MAX_QUEUE_DEPTH).contains(&self.max_queue_depth),
                "2 to 65534",
            ),
            (
                "the largest transfer",
                transfer.into(),
                transfer.is_power_of_two() && (PAGE..=1 << 30).contains(&transfer),
                "a power of two from 4096 to 1 GiB",
            ),
            (
                "the data in a capsule",
                capsule.into(),
                capsule.is_multiple_of(16) && capsule <= 1 << 20,
                "a multiple of 16, at most 1 MiB",
            ),
            ("the number of power states", states as u64, states <= MAX_POWER_STATES, "at most 32"),
            (
                "the number of namespaces",
                self.places.into(),
                self.places <= MAX_NAMESPACES,
                "at most 1024",
            ),
        ];
        let wrong = checks.into_iter().find(|(_, _, is_right, _)| !is_right);
        wrong.map_or(Ok(()), |(field, value, _, range)| {
            Err(ConfigError::Number { field, value, range })
        })
    }

    /// The power states there are now.
    pub(super) fn power_states(&self) -> Vec<PowerState> {
        self.power.as_ref().map(|power| power.states()).unwrap_or_default()
    }

    /// What sets a power limit, if anything does.
    pub(super) fn limiter(&self) -> Option<&dyn PowerControl> {
        self.power.as_deref().filter(|power| power.takes_limit())
    }

    /// Whether there are states that are entered unasked.
    pub(super) fn has_idle_states(&self) -> bool {
        self.power_states().iter().any(|state| !state.is_operational)
    }

    /// The lowest power limit that leaves an operational state.
    pub(super) fn least_limit(&self) -> Option<Watts> {
        let states = self.power_states().into_iter().filter(|state| state.is_operational);
        states.map(|state| state.max_power).reduce(Watts::min)
    }

    /// MDTS: a power of two of pages.
    pub(super) fn max_transfer_shift(&self) -> u8 {
        (self.max_transfer / PAGE).trailing_zeros() as u8
    }

    /// How the subsystem is, as far as is known: what it stands on, and its `namespaces`' devices.
    pub(super) fn condition(&self, namespaces: &[Namespace]) -> Condition {
        let known =
            warning::SPARE | warning::TEMPERATURE | warning::RELIABILITY | warning::READ_ONLY;
        let mut condition = self.health.as_ref().map(|health| health.read()).unwrap_or_default();
        condition.warning &= known;
        let devices = namespaces.iter().map(|namespace| namespace.device.health());
        let devices: Vec<_> = devices.map(Option::unwrap_or_default).collect();
        if devices.iter().any(device::Health::is_degraded) {
            condition.warning |= warning::RELIABILITY;
        }
        // Base Figure 207: all of the media.
        if !devices.is_empty() && devices.iter().all(|device| device.read_only) {
            condition.warning |= warning::READ_ONLY;
        }
        condition
    }
}

impl Namespace {
    /// Checks it, and that hosts can tell it from `others`.
    pub(super) fn check(&self, others: &[Self]) -> Result<(), ConfigError> {
        let number = |field, value, is_right, range| {
            let wrong = ConfigError::Number { field, value, range };
            if is_right { Ok(()) } else { Err(wrong) }
        };
        let id_is_right = (1..=MAX_NAMESPACES).contains(&self.id);
        number("a namespace's identifier", self.id.into(), id_is_right, "1 to 1024")?;
        let geometry = self.device.geometry();
        let size = geometry.block_size;
        let is_right = size.is_power_of_two() && (512..=64 << 10).contains(&size);
        number("a block", size.into(), is_right, "a power of two from 512 to 64 Ki bytes")?;
        number("a namespace", geometry.blocks, geometry.blocks > 0, "at least one block")?;
        for other in others {
            let double = |what| Err(ConfigError::Double(other.id, self.id, what));
            if other.id == self.id {
                return double("identifier");
            }
            if other.uuid == self.uuid && self.uuid != [0; 16] {
                return double("UUID");
            }
            if other.nguid == self.nguid && self.nguid != [0; 16] {
                return double("NGUID");
            }
        }
        if self.uuid == [0; 16] && self.nguid == [0; 16] {
            return Err(ConfigError::Double(self.id, self.id, "absence of UUID and NGUID"));
        }
        Ok(())
    }
}

fn text(field: &'static str, value: &str, most: usize) -> Result<(), ConfigError> {
    let is_printable = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if (1..=most).contains(&value.len()) && is_printable {
        return Ok(());
    }
    Err(ConfigError::Text { field, value: value.to_owned(), most })
}

/// Checks an NVMe qualified name (Base 4.5).
///
/// # Errors
/// What is wrong with it.
pub fn check_nqn(name: &str) -> Result<(), ConfigError> {
    let named = |why| ConfigError::Nqn { name: name.to_owned(), why };
    fabrics::check_nqn(name).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_are_told_from_others() {
        for name in [
            "nqn.2026-01.org.example:ebb",
            "nqn.2014-08.org.nvmexpress:uuid:65626220-6c6f-6164-8000-000000000001",
            DISCOVERY_NQN,
        ] {
            assert_eq!(check_nqn(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "iqn.2026-01.org.example:ebb",
            "nqn.2026-13.org.example:ebb",
            "nqn.2026-1.org.example:ebb",
            "nqn.2026-01.",
            "nqn.2026-01.org.example:e b",
            "nqn.2014-08.org.nvmexpress:uuid:65626220",
            "nqn.2026-0é.org",
        ] {
            assert!(check_nqn(name).is_err(), "{name}");
        }
        assert!(check_nqn(&format!("nqn.2026-01.{}", "x".repeat(212))).is_err());
    }
}
