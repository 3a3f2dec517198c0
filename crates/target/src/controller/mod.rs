//! NVMe controllers, without their connections: pure state machines in memory.
//!
//! A [`Subsystem`] is shared by all connections. Each connection hands the Fabrics Connect command
//! to [`Subsystem::connect`] and from then on owns a [`Queue`], to which it brings the commands
//! that arrive: an [`AdminQueue`] answers them itself, an [`IoQueue`] checks them and says what
//! to do with which device. An association is one admin queue and its I/O queues:
//!
//! ```text
//!            Subsystem ──────────── discovery: one record per address
//!            │       │
//!     Association   Association …   what the queues of a controller share
//!     │    │    │
//!  AdminQueue IoQueue IoQueue …     each owned by one connection
//! ```
//!
//! Dropping an admin queue ends its controller: its I/O queues are no longer
//! [alive](Queue::alive), and their connections close. Nothing here knows of sockets or clocks.

mod admin;
mod allowance;
mod answer;
mod association;
mod auth;
mod changes;
mod config;
mod connect;
mod counters;
mod direction;
mod ends;
mod events;
mod features;
mod identify;
mod io;
mod lock;
mod logs;
mod ports;
mod power;
mod properties;
mod spaces;
mod stay;
#[cfg(test)]
mod tests;

pub use admin::{AdminQueue, Reply};
pub use allowance::{Allowed, LEAST_BYTES_PER_SECOND, LEAST_IOPS};
pub use auth::{Authentication, Failure, Greeting, Keys, Rules, Secrets, Tally, TlsKeys, Wake};
pub(crate) use config::MAX_QUEUE_DEPTH;
pub use config::{
    CONTROLLERS, Condition, Config, ConfigError, Health, MAX_NAMESPACES, MAX_POWER_STATES,
    Namespace, PowerControl, PowerState, check_nqn,
};
pub(crate) use connect::ADMIN_DEPTH;
pub use connect::{Connected, Refusal};
pub use counters::Totals;
pub use direction::{ADMIN_IN_CAPSULE, Direction};
pub use features::takes_data;
pub use io::{IoQueue, Plan, check_ranges, range_at};
pub(crate) use ports::reaches;
pub use ports::{AnaState, MAX_PORTS, Port};
pub(crate) use stay::Stay;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ebb_policy::units::Nanos;

use self::allowance::Allowance;
use self::association::{Association, Host, Kind};
use self::auth::Access;
use self::counters::Ledger;
use self::lock::lock;
use self::ports::Ports;
use self::spaces::Spaces;
use crate::device::Geometry;

/// Time in which a host enables its controller, or must give way when others want one.
const ENABLING: Nanos = Nanos::from_secs(5);

/// All hosts of discovery controllers, which need no key, as one.
const UNINVITED: u64 = 0;

/// One side of a connection that has become a queue.
pub enum Queue {
    /// Queue 0 of a controller.
    Admin(AdminQueue),
    /// Any other.
    Io(IoQueue),
}

impl Queue {
    /// Its host, to be told from others.
    #[must_use]
    pub fn host(&self) -> u64 {
        match self {
            // Whoever asks what there is needs no key: all of them are one.
            Self::Admin(queue) if queue.association.kind == Kind::Discovery => UNINVITED,
            Self::Admin(queue) => queue.association.host.key(),
            Self::Io(queue) => queue.host(),
        }
    }

    /// The host reached it at this address.
    pub fn reached_at(&mut self, local: SocketAddr) {
        match self {
            Self::Admin(queue) => queue.reached_at(local),
            Self::Io(queue) => queue.reached_at(local),
        }
    }

    /// False once its controller is gone: the connection must close.
    #[must_use]
    pub fn alive(&self, now: Nanos) -> bool {
        match self {
            Self::Admin(queue) => queue.alive(now),
            Self::Io(queue) => queue.alive(now),
        }
    }
}

/// An NVM subsystem and the discovery service beside it.
pub struct Subsystem {
    config: Config,
    spaces: Spaces,
    controllers: Mutex<Controllers>,
    /// Different hosts of `controllers`.
    hosts: AtomicUsize,
    ports: Ports,
    /// GENCTR: counts changes of the discovery log.
    generation: AtomicU64,
    power: power::Power,
    ledger: Ledger,
    /// `None` where no host can have keys.
    access: Option<Access>,
    /// Hosts that may connect without keys; `None` for any.
    allowed: Mutex<Option<Vec<String>>>,
    /// What hosts may do in a second, by NQN.
    allowances: Mutex<BTreeMap<String, Arc<Allowance>>>,
}

#[derive(Default)]
struct Controllers {
    live: BTreeMap<u16, Arc<Association>>,
    /// How many of each kind a host has, by its key, so that no host's Connect counts those of all
    /// others.
    held: BTreeMap<u64, [usize; 2]>,
    /// The identifier given out last: the next is tried first, so that one long gone comes back.
    last: u16,
}

impl Controllers {
    fn hosts(&self) -> usize {
        self.held.len()
    }

    fn held(&self, kind: Kind, host: &Host) -> usize {
        self.held.get(&host.key()).map_or(0, |held| held[kind as usize])
    }

    fn insert(&mut self, one: Arc<Association>) {
        self.held.entry(one.host.key()).or_default()[one.kind as usize] += 1;
        self.live.insert(one.id, one);
    }

    fn remove(&mut self, id: u16) {
        let Some(one) = self.live.remove(&id) else { return };
        if let Some(held) = self.held.get_mut(&one.host.key()) {
            held[one.kind as usize] -= 1;
            if *held == [0, 0] {
                self.held.remove(&one.host.key());
            }
        }
    }

    /// When all places are taken, who gives way to another controller of `host`: the oldest whose
    /// host has not authenticated itself, else one that its host has not enabled in good time, else
    /// the latest of a host that holds more than half of them. Discovery controllers need no key:
    /// there it is the oldest of the host that holds the most, if that is more than the other has.
    fn giving_way(&self, kind: Kind, host: &Host, now: Nanos) -> Option<&Arc<Association>> {
        let same = || self.live.values().filter(|one| one.kind == kind);
        let idle = same().find(|one| !one.is_ready() && now.saturating_sub(one.born) >= ENABLING);
        let is_open = kind == Kind::Discovery;
        let greedy = || {
            let age = |one: &Association| if is_open { u64::MAX - one.born.0 } else { one.born.0 };
            let one = same()
                .filter(|one| one.host.key() != host.key())
                .max_by_key(|one| (self.held(kind, &one.host), age(one)));
            one.filter(|one| {
                let its = self.held(kind, &one.host);
                2 * its > same().count() || is_open && its > self.held(kind, host)
            })
        };
        let unproven = same().filter(|one| !one.is_proven()).min_by_key(|one| one.born);
        unproven.or(idle).or_else(greedy)
    }
}

impl Subsystem {
    /// A subsystem without controllers.
    ///
    /// # Errors
    /// When the configuration makes no sense: what is wrong with it and what it may be.
    pub fn new(config: Config) -> Result<Arc<Self>, ConfigError> {
        let mut config = config.checked()?;
        let namespaces = std::mem::take(&mut config.namespaces);
        let largest = namespaces.last().map_or(1, |namespace| namespace.id);
        let spaces = Spaces::new(namespaces, config.places.max(largest));
        let ports = Ports::new(spaces.most());
        ports.set(&config.ports);
        let access = Access::new(config.authentication.take(), config.tls.take())
            .map_err(|error| ConfigError::Helper(error.to_string()))?;
        Ok(Arc::new(Self {
            spaces,
            controllers: Mutex::default(),
            hosts: AtomicUsize::new(0),
            ports,
            generation: AtomicU64::new(1),
            power: power::Power::default(),
            ledger: Ledger::default(),
            access,
            allowed: Mutex::new(config.allowed_hosts.take()),
            allowances: Mutex::default(),
            config,
        }))
    }

    /// The namespaces, by ascending identifier; plans name them by their identifier less one.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.spaces.all()
    }

    /// How many namespaces there may be: the largest identifier.
    #[must_use]
    pub fn places(&self) -> usize {
        self.spaces.most() as usize
    }

    /// The size of a namespace, by its index; of no blocks where there is none.
    #[must_use]
    pub fn geometry(&self, index: usize) -> Geometry {
        self.spaces.geometry(index)
    }

    /// NQN of the subsystem.
    #[must_use]
    pub fn nqn(&self) -> &str {
        &self.config.nqn
    }

    /// Different hosts there are now.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.load(Ordering::Relaxed)
    }

    /// Controllers there are now, of both kinds.
    #[must_use]
    pub fn controllers(&self) -> usize {
        lock(&self.controllers).live.len()
    }

    /// What all its I/O queues did, of those that ended too.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.ledger.totals()
    }

    /// How authentications ended; `None` where no host has keys.
    #[must_use]
    pub fn authentications(&self) -> Option<Tally> {
        self.access.as_ref().filter(|access| access.guards()).map(Access::tally)
    }

    /// The last authentications that failed, oldest first, of those after `number`.
    #[must_use]
    pub fn failures_since(&self, number: u64) -> Vec<Failure> {
        self.access.as_ref().map(|access| access.failures(number)).unwrap_or_default()
    }

    /// Whether this host must authenticate itself by DH-HMAC-CHAP.
    fn requires(&self, host: &str) -> bool {
        self.access.as_ref().is_some_and(|access| access.requires(host))
    }

    /// Whether this host may connect, over TLS or not: any where nobody is named, neither allowed
    /// nor with keys. One that has only a key for TLS needs TLS.
    fn allows(&self, host: &str, is_secured: bool) -> bool {
        let access = self.access.as_ref();
        let has_key = |access: &Access| access.requires(host) || is_secured && access.has_tls(host);
        let has_key = access.is_some_and(has_key);
        match &*lock(&self.allowed) {
            Some(hosts) => has_key || hosts.iter().any(|allowed| allowed == host),
            None => has_key || !access.is_some_and(Access::guards),
        }
    }

    /// Makes a controller. `None` when there are as many of its kind as there may be and none
    /// gives way.
    fn create(&self, kind: Kind, host: Host, now: Nanos) -> Option<Arc<Association>> {
        let mut controllers = lock(&self.controllers);
        let same = controllers.live.values().filter(|other| other.kind == kind).count();
        if same >= usize::from(self.config.max_controllers) {
            let one = controllers.giving_way(kind, &host, now)?.clone();
            one.retire();
            controllers.remove(one.id);
        }
        // Twice `max_controllers` are fewer than there are identifiers, so one is free.
        let mut id = controllers.last;
        loop {
            id = if id >= ebb_nvme::fabrics::MAX_CONTROLLER { 1 } else { id + 1 };
            if !controllers.live.contains_key(&id) {
                break;
            }
        }
        let queues = self.config.max_io_queues;
        let allowance = self.allowance(&host.nqn);
        let association = Arc::new(Association::new(id, kind, host, queues, allowance, now));
        controllers.last = id;
        controllers.insert(association.clone());
        self.hosts.store(controllers.hosts(), Ordering::Relaxed);
        Some(association)
    }

    fn find(&self, controller: u16) -> Option<Arc<Association>> {
        lock(&self.controllers).live.get(&controller).cloned()
    }

    /// Ends a controller and with it its I/O queues.
    fn remove(&self, association: &Association) {
        association.retire();
        let mut controllers = lock(&self.controllers);
        // One that gave way may have another in its place.
        if controllers
            .live
            .get(&association.id)
            .is_some_and(|one| std::ptr::eq(&**one, association))
        {
            controllers.remove(association.id);
        }
        self.hosts.store(controllers.hosts(), Ordering::Relaxed);
    }
}
