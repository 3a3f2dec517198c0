//! The discovery service: which subsystems a target offers (Base 3.1.2.3, 5.16.1.23).

use std::time::Duration;

use ebb_nvme::fabrics::DISCOVERY_NQN;
use ebb_nvme::log::{self, DiscoveryEntry, DiscoveryHeader};
use zerocopy::FromBytes;

use super::identify::text;
use super::{Controller, Error, Target};

/// Bytes of its header, and of each record.
const RECORD: usize = size_of::<DiscoveryEntry>();
/// Records read at most: nobody should be able to make us read for ever.
const MOST: u64 = 1024;
/// Records read with one command.
const AT_ONCE: u64 = 16;

/// A subsystem that a discovery service tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// SUBNQN.
    pub nqn: String,
    /// TRTYPE: 3 is TCP.
    pub transport: u8,
    /// SUBTYPE: 2 is a subsystem with namespaces, 1 and 3 are discovery services.
    pub kind: u8,
    /// TRADDR.
    pub address: String,
    /// TRSVCID: the port.
    pub service: String,
    /// PORTID.
    pub port_id: u16,
}

impl Subsystem {
    /// Whether it has namespaces and is reached over TCP.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.transport == log::TCP && self.kind == 2
    }
}

/// Asks the discovery service at `target`'s address; its subsystem is of no importance.
///
/// # Errors
/// When there is no discovery service, or an answer is missing or wrong.
pub fn discover(target: &Target) -> Result<Vec<Subsystem>, Error> {
    let mut target = Target {
        subsystem: DISCOVERY_NQN.to_owned(),
        keep_alive: Duration::ZERO,
        ..target.clone()
    };
    // The target's key is the subsystem's.
    target.secrets.iter_mut().for_each(|secrets| secrets.controller = None);
    let mut controller = Controller::connect(&target)?;
    let page = log::id::DISCOVERY;
    let header = controller.log_page(page, 0, RECORD)?;
    let header = DiscoveryHeader::read_from_bytes(&header);
    let count = header.map_or(0, |header| header.entries.get()).min(MOST);
    let mut found = Vec::new();
    for first in (0..count).step_by(AT_ONCE as usize) {
        let records = (count - first).min(AT_ONCE) as usize;
        let offset = (first + 1) * RECORD as u64;
        let data = controller.log_page(page, offset, records * RECORD)?;
        let entries = data.chunks_exact(RECORD).map(DiscoveryEntry::read_from_bytes);
        found.extend(entries.flatten().map(|entry| Subsystem {
            nqn: text(&entry.subsystem_nqn[..223]),
            transport: entry.transport,
            kind: entry.kind,
            address: text(&entry.address),
            service: text(&entry.service),
            port_id: entry.port.get(),
        }));
    }
    // A target that does not shut down in order has still told us all we asked.
    let _ = controller.shut_down();
    Ok(found)
}
