//! Where hosts reach the subsystem, and in which state its namespaces are there (Base 8.1, ANA).
//!
//! Each namespace is an ANA group of its own, with the identifier of the namespace for its number:
//! so every path to every namespace has a state, and no group needs to be configured.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ebb_nvme::tls::Security;

use super::lock::lock;

/// Ports at once.
pub const MAX_PORTS: usize = 16;

/// Where hosts reach the subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether there is TLS.
    pub security: Option<Security>,
}

impl From<SocketAddr> for Port {
    fn from(address: SocketAddr) -> Self {
        Self { address, security: None }
    }
}

/// The state of an ANA group on a port (Base 8.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnaState {
    /// The path to prefer.
    Optimized = 1,
    /// A path to use where there is no better one.
    NonOptimized = 2,
    /// No path, for now.
    Inaccessible = 3,
    /// Soon another state: hosts wait.
    Change = 15,
}

impl AnaState {
    /// Every one.
    pub const ALL: [Self; 4] =
        [Self::Optimized, Self::NonOptimized, Self::Inaccessible, Self::Change];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::Change => "change",
        }
    }

    fn of(value: u8) -> Self {
        Self::ALL.into_iter().find(|state| *state as u8 == value).unwrap_or(Self::Optimized)
    }
}

/// The states of the groups on one port.
struct Paths {
    states: Box<[AtomicU8]>,
    /// Changes so far.
    changes: AtomicU64,
}

pub(super) struct Ports {
    ports: Mutex<[Option<Port>; MAX_PORTS]>,
    paths: [Paths; MAX_PORTS],
}

impl Ports {
    /// None yet, for `groups` groups.
    pub fn new(groups: u32) -> Self {
        let states = || (0..groups).map(|_| AtomicU8::new(AnaState::Optimized as u8)).collect();
        let paths = || Paths { states: states(), changes: AtomicU64::new(0) };
        Self { ports: Mutex::default(), paths: std::array::from_fn(|_| paths()) }
    }

    /// These from now on: those that stay keep their number and their states. More than
    /// [`MAX_PORTS`] are not kept.
    pub fn set(&self, wanted: &[Port]) {
        let mut ports = lock(&self.ports);
        for (port, paths) in ports.iter_mut().zip(&self.paths) {
            if port.is_some_and(|port| !wanted.contains(&port)) {
                *port = None;
                let all = 0..paths.states.len();
                all.for_each(|group| paths.set(group, AnaState::Optimized));
            }
        }
        for new in wanted {
            if !ports.contains(&Some(*new))
                && let Some(free) = ports.iter_mut().find(|port| port.is_none())
            {
                *free = Some(*new);
            }
        }
    }

    /// All there are, with their numbers.
    pub fn all(&self) -> Vec<(u16, Port)> {
        let ports = lock(&self.ports);
        let numbered = (0..).zip(ports.iter());
        numbered.filter_map(|(number, port)| Some((number, (*port)?))).collect()
    }

    /// The port by which a host came that reached us at `local`.
    pub fn of(&self, local: SocketAddr) -> usize {
        let is = |(_, port): &&(u16, Port)| reaches(port.address, local);
        self.all().iter().find(is).map_or(0, |(number, _)| usize::from(*number))
    }

    /// The state of the group with this index on a port.
    pub fn state(&self, port: usize, group: usize) -> AnaState {
        AnaState::of(self.paths[port].states[group].load(Ordering::Acquire))
    }

    /// Whether commands of this group may run on a port.
    pub fn is_open(&self, port: usize, group: usize) -> bool {
        let state = self.paths[port].states[group].load(Ordering::Acquire);
        state <= AnaState::NonOptimized as u8
    }

    pub fn set_state(&self, port: usize, group: usize, state: AnaState) {
        self.paths[port].set(group, state);
    }

    /// How often a state has changed on a port.
    pub fn changes(&self, port: usize) -> u64 {
        self.paths[port].changes.load(Ordering::Acquire)
    }
}

impl Paths {
    fn set(&self, group: usize, state: AnaState) {
        let before = self.states[group].swap(state as u8, Ordering::AcqRel);
        if before != state as u8 {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Whether who listens on `port` is reached at `local`.
pub fn reaches(port: SocketAddr, local: SocketAddr) -> bool {
    let (own, local_ip) = (port.ip().to_canonical(), local.ip().to_canonical());
    port.port() == local.port() && (own == local_ip || own.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_keep_their_number_and_states_while_others_come_and_go() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let port = |text: &str| Port::from(at(text));
        let (a, b, c) = (port("10.0.0.1:4420"), port("0.0.0.0:4421"), port("[::]:4422"));
        let ports = Ports::new(2);
        ports.set(&[a, b]);
        ports.set_state(1, 1, AnaState::Inaccessible);
        ports.set(&[b, c]);
        assert_eq!(ports.all(), [(0, c), (1, b)]);
        assert_eq!(ports.state(1, 1), AnaState::Inaccessible);
        assert_eq!([ports.of(at("192.0.2.7:4421")), ports.of(at("192.0.2.7:4422"))], [1, 0]);
        assert_eq!(ports.of(at("[::ffff:192.0.2.7]:4421")), 1);
        // Another one in its place starts anew.
        ports.set(&[c]);
        ports.set(&[c, a]);
        assert_eq!((ports.all()[1], ports.state(1, 1)), ((1, a), AnaState::Optimized));
        assert!(ports.changes(1) == 2 && ports.changes(0) == 0);
    }
}
