//! Get Log Page (Base 5.16).

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ebb_nvme::fabrics::{ANY_CONTROLLER, DISCOVERY_NQN};
use ebb_nvme::identify::{padded, terminated};
use ebb_nvme::log::{
    AnaGroup, AnaHeader, DiscoveryEntry, DiscoveryHeader, Request, Smart, TCP, TLS_1_3, id,
};
use ebb_nvme::tls::Security;
use ebb_nvme::{Sqe, Status, command};
use ebb_policy::units::Nanos;
use zerocopy::{FromZeros, IntoBytes};

use super::association::Kind;
use super::connect::ADMIN_DEPTH;
use super::ports::Port;
use super::{AdminQueue, Direction, io};

/// Pages of I/O controllers.
const PAGES: [u8; 9] = [
    id::SUPPORTED_PAGES,
    id::ERRORS,
    id::SMART,
    id::FIRMWARE_SLOTS,
    id::CHANGED_NAMESPACES,
    id::COMMANDS_AND_EFFECTS,
    id::ANA,
    id::FEATURES_AND_EFFECTS,
    id::MANAGEMENT_COMMANDS,
];

/// Scopes in the lists of commands and of features (Base Figures 212 and 258).
const NAMESPACE_SCOPE: u32 = 1 << 20;
const CONTROLLER_SCOPE: u32 = 1 << 21;
const SUBSYSTEM_SCOPE: u32 = 1 << 25;

impl AdminQueue {
    /// Get Log Page: as much as was asked for, zeros beyond the page's end.
    pub(super) fn log_page(
        &mut self,
        sqe: &Sqe,
        direction: Direction,
        now: Nanos,
    ) -> Result<Vec<u8>, Status> {
        let request = Request::of(sqe);
        // Before the page: what changes meanwhile shows as one more change.
        let known = self.changes(request.page);
        let page = self.page(&request, sqe.nsid.get(), now)?;
        if request.by_index || !request.offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        if request.bytes > direction.to_host().into() {
            return Err(Status::DATA_SGL_LENGTH_INVALID);
        }
        let start = usize::try_from(request.offset).map_err(|_| Status::INVALID_FIELD)?;
        let mut data = page.get(start..).ok_or(Status::INVALID_FIELD)?.to_vec();
        data.resize(request.bytes as usize, 0); // No more than the SGL, which is bounded.
        if !request.retain_event {
            self.events.read(request.page, known);
        }
        Ok(data)
    }

    fn page(&self, request: &Request, nsid: u32, now: Nanos) -> Result<Vec<u8>, Status> {
        let kind = self.association.kind;
        let is_there = match kind {
            Kind::Io => PAGES.contains(&request.page),
            Kind::Discovery => request.page == id::DISCOVERY,
        };
        if !is_there {
            return Err(Status::INVALID_LOG_PAGE);
        }
        match request.page {
            id::SUPPORTED_PAGES => Ok(table(256, |page| u32::from(PAGES.contains(&page)))),
            id::ERRORS => Ok(self.error_page()),
            // Of the whole subsystem only (LPA bit 0).
            id::SMART if !matches!(nsid, 0 | u32::MAX) => Err(Status::INVALID_FIELD),
            id::SMART => Ok(self.smart_page(now)),
            id::FIRMWARE_SLOTS => Ok(self.firmware_page()),
            id::CHANGED_NAMESPACES => Ok(self.changed_page()),
            id::ANA => Ok(self.ana_page(request.specific & 1 != 0)),
            id::COMMANDS_AND_EFFECTS if request.command_set != 0 => Err(Status::INVALID_FIELD),
            id::COMMANDS_AND_EFFECTS => Ok(self.command_page()),
            id::FEATURES_AND_EFFECTS => Ok(table(256, |feature| self.feature_effects(feature))),
            id::MANAGEMENT_COMMANDS => Ok(vec![0; 4096]), // There are none.
            _ => Ok(self.discovery_page()),
        }
    }

    fn error_page(&self) -> Vec<u8> {
        let (entries, _) = self.association.errors();
        let mut page = entries.as_bytes().to_vec();
        page.resize(super::association::ERROR_ENTRIES * 64, 0);
        page
    }

    /// What is not measured stays zero: controller busy time, power cycles, unsafe shutdowns.
    fn smart_page(&self, now: Nanos) -> Vec<u8> {
        let totals = self.subsystem.totals();
        let condition = self.condition();
        let units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).into();
        let (_, error_entries) = self.association.errors();
        let smart = Smart {
            warning: condition.warning,
            temperature: condition.temperature.unwrap_or(0).into(),
            spare: 100,
            units_read: units(totals.bytes_read),
            units_written: units(totals.bytes_written),
            reads: u128::from(totals.reads).into(),
            writes: u128::from(totals.writes).into(),
            hours: u128::from(now.0 / 3_600_000_000_000).into(),
            media_errors: u128::from(totals.media_errors).into(),
            error_entries: u128::from(error_entries).into(),
            ..Smart::new_zeroed()
        };
        smart.as_bytes().to_vec()
    }

    /// One slot, active, read-only (Base Figure 209).
    fn firmware_page(&self) -> Vec<u8> {
        let mut page = vec![0; 512];
        page[0] = 1;
        page[8..16].copy_from_slice(&padded::<8>(&self.subsystem.config.firmware));
        page
    }

    /// The namespaces that changed since the page was read last (Base 5.16.1.5).
    fn changed_page(&self) -> Vec<u8> {
        let changed = self.subsystem.spaces.changed_since(self.events.namespaces_known());
        let mut page: Vec<u8> = changed.flat_map(u32::to_le_bytes).collect();
        page.resize(4096, 0);
        page
    }

    /// A group for each namespace, with its state on the port by which the host has come (Base
    /// 5.16.1.13).
    fn ana_page(&self, groups_only: bool) -> Vec<u8> {
        let Self { subsystem, port, .. } = self;
        let changes = subsystem.ports.changes(*port);
        let ids = subsystem.spaces.ids();
        let header = AnaHeader {
            changes: changes.into(),
            groups: (ids.len() as u16).into(),
            ..AnaHeader::new_zeroed()
        };
        let mut page = header.as_bytes().to_vec();
        for id in ids {
            let state = subsystem.ports.state(*port, id as usize - 1) as u8;
            let namespaces = u32::from(!groups_only).into();
            let changes = changes.into();
            let zero = AnaGroup::new_zeroed();
            let group = AnaGroup { id: id.into(), namespaces, changes, state, ..zero };
            page.extend(group.as_bytes());
            page.extend(id.to_le_bytes().iter().filter(|_| !groups_only));
        }
        page
    }

    /// Admin commands, then I/O commands (Base Figure 211).
    fn command_page(&self) -> Vec<u8> {
        let admin = |opcode| u32::from(self.is_supported(opcode)) * (1 | CONTROLLER_SCOPE);
        let mut page = table(256, admin);
        page.extend(table(256, command_effects));
        page.resize(4096, 0);
        page
    }

    /// FSUPP and the scope.
    fn feature_effects(&self, id: u8) -> u32 {
        use ebb_nvme::feature::{POWER_LIMIT, POWER_MANAGEMENT};
        let is_shared = matches!(id, POWER_MANAGEMENT | POWER_LIMIT);
        let scope = if is_shared { SUBSYSTEM_SCOPE } else { CONTROLLER_SCOPE };
        u32::from(self.has_feature(id)) * (1 | scope)
    }

    /// A record per address for the subsystem, if this host may have it, and for the discovery
    /// service itself.
    fn discovery_page(&self) -> Vec<u8> {
        let subsystem = &*self.subsystem;
        // Read before the addresses: a change in between shows as one more generation.
        let generation = subsystem.generation.load(Ordering::Acquire);
        let ports = subsystem.ports.all().into_iter();
        let reachable = |port: Port| Some(Port { address: self.reachable(port.address)?, ..port });
        let ports: Vec<_> =
            ports.filter_map(|(number, port)| Some((number, reachable(port)?))).collect();
        let mut served = vec![(3, DISCOVERY_NQN)];
        if subsystem.allows(self.host(), true) {
            served.insert(0, (2, subsystem.nqn()));
        }
        let entries: Vec<_> = served
            .iter()
            .flat_map(|(kind, nqn)| {
                ports.iter().map(|(number, port)| discovery_entry(*kind, nqn, *number, *port))
            })
            .collect();
        let header = DiscoveryHeader {
            generation: generation.into(),
            entries: (entries.len() as u64).into(),
            ..DiscoveryHeader::new_zeroed()
        };
        [header.as_bytes(), entries.as_bytes()].concat()
    }

    /// Where this host reaches what listens on `address`: if that is all addresses of the machine,
    /// the one it has come by.
    fn reachable(&self, address: SocketAddr) -> Option<SocketAddr> {
        if !address.ip().is_unspecified() {
            return Some(address);
        }
        let local = self.local.filter(|local| address.is_ipv6() || local.is_ipv4())?;
        Some(SocketAddr::new(local, address.port()))
    }
}

/// A table of `count` dwords by identifier.
fn table(count: u16, of: impl Fn(u8) -> u32) -> Vec<u8> {
    (0..count).flat_map(|id| of(id as u8).to_le_bytes()).collect()
}

/// CSUPP, LBCC if it changes blocks, and the scope.
fn command_effects(opcode: u8) -> u32 {
    use command::io::{DATASET_MANAGEMENT, WRITE, WRITE_ZEROES};
    let changes = matches!(opcode, WRITE | WRITE_ZEROES | DATASET_MANAGEMENT);
    u32::from(io::is_supported(opcode)) * (1 | u32::from(changes) << 1 | NAMESPACE_SCOPE)
}

fn discovery_entry(
    kind: u8,
    nqn: &str,
    number: u16,
    Port { address, security }: Port,
) -> DiscoveryEntry {
    let mut transport_specific = [0; 256];
    transport_specific[0] = if security.is_some() { TLS_1_3 } else { 0 };
    DiscoveryEntry {
        transport: TCP,
        family: if address.is_ipv4() { 1 } else { 2 },
        kind,
        // Never "no secure channel" required: libnvme before 1.5 takes it for TLS (its issue 612),
        // later ones for secure channel concatenation. That there is TLS SECTYPE says anyway.
        requirements: 1 << 2 | u8::from(security == Some(Security::Required)),
        port: number.into(),
        controller: ANY_CONTROLLER.into(),
        admin_entries: ADMIN_DEPTH.into(),
        // DUPRETINFO and EPCSD: all addresses tell the same, and connections may persist.
        flags: if kind == 3 { 3 } else { 0 }.into(),
        service: padded(&address.port().to_string()),
        subsystem_nqn: terminated(nqn),
        address: padded(&address.ip().to_string()),
        transport_specific,
        ..DiscoveryEntry::new_zeroed()
    }
}
