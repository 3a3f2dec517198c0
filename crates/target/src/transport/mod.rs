//! NVMe/TCP over sockets: connections, and the lightweight threads that carry them.
//!
//! A [`Group`] is one lightweight thread: it owns connections, one channel to each namespace and
//! a pool of buffers, and moves between cores with all of them. A [`Listener`] is another; it
//! deals new connections out to the groups.

mod commands;
mod connection;
mod context;
mod fleet;
mod group;
mod ledger;
mod listener;
mod network;
mod places;
mod receive;
mod remains;
mod secure;
mod send;
mod service;
mod slots;
mod steward;
mod turns;

pub use fleet::{ChangeError, Fleet, Removed};
pub use group::{Counters, Group};
pub use listener::{Doors, Listener};
pub use network::{Inbox, Interest, Network, Ready, Sockets};
pub use places::Places;
pub use secure::{Guarded, Identified, Stream};
pub use service::{Distribution, Kind, Service, Work};
pub use steward::Steward;

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
    /// Time in which a PDU, once begun, must end, data that was asked for must come, and what was
    /// sent must be taken.
    pub stall: Nanos,
    /// The same for a host that holds one buffer while another is owed one and there is none.
    pub patience: Nanos,
    /// The same for a host that holds more than one.
    pub recall: Nanos,
    /// Buffers of each kind for each group, four at least; those for data of `max_transfer` bytes.
    pub buffers: u32,
    /// A device that has requests and completes none for so long is stalled.
    pub silence: Nanos,
    /// Connections may be over TLS.
    pub secure: bool,
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
            patience: Nanos::from_secs(5),
            recall: Nanos::from_millis(500),
            buffers: 256,
            silence: Nanos::from_millis(500),
            secure: false,
        }
    }
}

impl Limits {
    /// Bytes of data in one PDU before a connection is a queue.
    fn max_data(&self) -> usize {
        ADMIN_IN_CAPSULE as usize
    }

    /// Bytes of data in one PDU of a queue: what a capsule of its kind may hold is looked at with
    /// the command.
    fn data_limit(&self) -> usize {
        self.in_capsule.max(self.max_h2c_data).max(ADMIN_IN_CAPSULE) as usize
    }

    /// Bytes of one buffer.
    fn buffer(&self) -> usize {
        self.max_transfer.max(ADMIN_IN_CAPSULE) as usize
    }

    /// The most bytes of memory that all peers together make `groups` groups hold, with queues of
    /// `depth` commands, blocks of `block` bytes and so many namespaces at most; the kernel's
    /// socket buffers and what the namespaces need are besides.
    #[must_use]
    pub fn most_memory(&self, groups: usize, depth: u16, block: u32, namespaces: u32) -> u64 {
        let depth = depth.max(crate::controller::ADMIN_DEPTH);
        let session = if self.secure { ebb_nvme::tls::MOST_SESSION } else { 0 };
        let connection = group::most_memory_of_connection(depth.into()) + session;
        // Each may be another host's.
        let connection = connection + turns::most_memory_of_host(namespaces as usize);
        let connection = connection as u64 + u64::from(block);
        let buffers = ledger::Ledger::most_memory(self);
        let group = buffers.saturating_add(group::MOST_LEFT as u64);
        let connections = Places::most(self.connections).saturating_mul(connection);
        group.saturating_mul(groups as u64).saturating_add(connections)
    }
}
