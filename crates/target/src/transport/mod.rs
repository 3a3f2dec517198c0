//! NVMe/TCP over sockets: connections, and the lightweight threads that carry them.
//!
//! A [`Group`] is one lightweight thread: it owns connections, one channel to each namespace and
//! a pool of buffers, and moves between cores with all of them. A [`Listener`] is another; it
//! deals new connections out to the groups.

mod commands;
mod connection;
mod group;
mod listener;
mod network;
mod receive;
mod send;
mod service;
mod slots;

pub use group::{Counters, Group};
pub use listener::Listener;
pub use network::{Inbox, Interest, Network, Ready, Sockets};
pub use service::{Distribution, Kind, Service, Work};

use ebb_policy::units::Nanos;

use crate::controller::ADMIN_IN_CAPSULE;

/// What a peer may ask of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, over all groups.
    pub connections: u32,
    /// MAXH2CDATA: bytes in one H2CData PDU; at least 4096.
    pub max_h2c_data: u32,
    /// Largest transfer of one command, bytes.
    pub max_transfer: u32,
    /// Bytes of data in a command capsule on an I/O queue.
    pub in_capsule: u32,
    /// Time from accept to Connect, and from goodbye to closing.
    pub handshake: Nanos,
    /// Time in which a PDU, once begun, must end.
    pub stall: Nanos,
    /// Buffers of `max_transfer` bytes for each group.
    pub buffers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            max_h2c_data: 128 << 10,
            max_transfer: 128 << 10,
            in_capsule: 8 << 10,
            handshake: Nanos::from_secs(5),
            stall: Nanos::from_secs(30),
            buffers: 256,
        }
    }
}

impl Limits {
    /// Data in one PDU before it is known which queue a connection is.
    fn max_data(&self) -> usize {
        self.data_limit(true)
    }

    fn data_limit(&self, is_admin: bool) -> usize {
        let capsule = if is_admin { ADMIN_IN_CAPSULE } else { self.in_capsule };
        capsule.max(if is_admin { 0 } else { self.max_h2c_data }) as usize
    }
}
