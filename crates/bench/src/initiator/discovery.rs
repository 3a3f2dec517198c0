//! The discovery service: which subsystems a target offers (Base 3.1.2.3, 5.16.1.23).

use std::time::Duration;

use super::identify::{text, u16_at, u64_at};
use super::{Controller, Error, Target};

/// NQN of every discovery service.
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Discovery log page.
const PAGE: u8 = 0x70;
/// Bytes of its header, and of each record.
const RECORD: usize = 1024;
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
        self.transport == 3 && self.kind == 2
    }
}

/// Asks the discovery service at `target`'s address; its subsystem is of no importance.
///
/// # Errors
/// When there is no discovery service, or an answer is missing or wrong.
pub fn discover(target: &Target) -> Result<Vec<Subsystem>, Error> {
    let mut target =
        Target { subsystem: DISCOVERY.to_owned(), keep_alive: Duration::ZERO, ..target.clone() };
    // The target's key is the subsystem's.
    target.secrets.iter_mut().for_each(|secrets| secrets.controller = None);
    let mut controller = Controller::connect(&target)?;
    let header = controller.log_page(PAGE, 0, RECORD)?;
    let count = u64_at(&header, 8).min(MOST);
    let mut found = Vec::new();
    for first in (0..count).step_by(AT_ONCE as usize) {
        let records = (count - first).min(AT_ONCE) as usize;
        let offset = (first + 1) * RECORD as u64;
        let data = controller.log_page(PAGE, offset, records * RECORD)?;
        found.extend(data.chunks_exact(RECORD).map(|record| Subsystem {
            nqn: text(record, 256, 223),
            transport: record[0],
            kind: record[2],
            address: text(record, 512, 256),
            service: text(record, 32, 32),
            port_id: u16_at(record, 4),
        }));
    }
    // A target that does not shut down in order has still told us all we asked.
    let _ = controller.shut_down();
    Ok(found)
}
