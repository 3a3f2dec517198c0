//! Identify (Base 5.17, NVM 4.1.5).

use ebb_nvme::fabrics::DISCOVERY_NQN;
use ebb_nvme::identify::{
    self, Controller, Independent, PowerDescriptor, SIZE, cns, descriptor, padded, terminated,
};
use ebb_nvme::property::VERSION;
use ebb_nvme::{Cqe, Sqe, Status};
use ebb_policy::units::Watts;
use zerocopy::{FromZeros, IntoBytes};

use super::association::ERROR_ENTRIES;
use super::events::{ANA_CHANGED, DISCOVERY_CHANGED, MAX_HELD, NAMESPACES_CHANGED};
use super::io::limits;
use super::{AdminQueue, AnaState, Direction, MAX_POWER_STATES, Namespace, PowerState};

/// CSI of the NVM command set.
const NVM: u8 = 0;
/// CRDT1, units of 100 ms: five tries, as many as Linux makes, last longer than its 30 s for a
/// command, so that a device that comes back within them costs no application an error.
const RETRY_DELAY: u16 = 61;
/// ANATT: hosts wait so long, in seconds, for a group that changes its state.
const ANA_TRANSITION: u8 = 30;
/// ANACAP bit 6: a namespace stays in its group.
const ANA_FIXED: u8 = 1 << 6;
/// NSID of all namespaces.
const ALL_NAMESPACES: u32 = u32::MAX;

impl AdminQueue {
    /// Identify: its 4096 bytes.
    pub(super) fn identify(&self, sqe: &Sqe, direction: Direction) -> Result<Vec<u8>, Status> {
        let (kind, nsid) = (sqe.cdw(10) as u8, sqe.nsid.get());
        let command_set = (sqe.cdw(11) >> 24) as u8;
        if (direction.to_host() as usize) < SIZE {
            return Err(Status::DATA_SGL_LENGTH_INVALID);
        }
        if kind == cns::CONTROLLER {
            let data =
                if self.is_io() { self.io_controller() } else { self.discovery_controller() };
            return Ok(data.as_bytes().to_vec());
        }
        if !self.is_io() {
            return Err(Status::INVALID_FIELD);
        }
        let is_per_set = matches!(
            kind,
            cns::COMMAND_SET_NAMESPACE
                | cns::COMMAND_SET_CONTROLLER
                | cns::COMMAND_SET_ACTIVE_NAMESPACES
        );
        if is_per_set && command_set != NVM {
            return Err(Status::INVALID_FIELD);
        }
        let mut data = match kind {
            cns::NAMESPACE => self
                .described(nsid, |namespace| self.namespace_data(namespace).as_bytes().to_vec())?,
            // No protection information: all zero (NVM Figure 100).
            cns::COMMAND_SET_NAMESPACE => self.described(nsid, |_| Vec::new())?,
            cns::COMMAND_SET_CONTROLLER => self.command_set_limits(),
            cns::INDEPENDENT_NAMESPACE => {
                self.described(nsid, |namespace| independent(namespace).as_bytes().to_vec())?
            }
            cns::ACTIVE_NAMESPACES | cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                self.active_after(nsid)?
            }
            cns::DESCRIPTORS => self.descriptors(nsid)?,
            // One combination of command sets: NVM alone (Base Figure 289).
            cns::COMMAND_SETS => 1_u64.to_le_bytes().to_vec(),
            _ => return Err(Status::INVALID_FIELD),
        };
        data.resize(SIZE, 0);
        Ok(data)
    }

    /// Data of an active namespace; zeros for an identifier that is none (Base 3.2.1.5).
    fn described(
        &self,
        nsid: u32,
        data: impl Fn(&Namespace) -> Vec<u8>,
    ) -> Result<Vec<u8>, Status> {
        if nsid == 0 || nsid > self.subsystem.spaces.most() {
            return Err(Status::INVALID_NAMESPACE);
        }
        let namespace = self.subsystem.namespace(nsid);
        Ok(namespace.map_or(Vec::new(), |namespace| data(&namespace)))
    }

    fn active_after(&self, nsid: u32) -> Result<Vec<u8>, Status> {
        if nsid >= ALL_NAMESPACES - 1 {
            return Err(Status::INVALID_NAMESPACE);
        }
        let ids = self.subsystem.spaces.ids().into_iter();
        Ok(ids.filter(|id| *id > nsid).take(SIZE / 4).flat_map(u32::to_le_bytes).collect())
    }

    /// WZSL, DMRL, DMRSL and DMSL (NVM Figure 101).
    fn command_set_limits(&self) -> Vec<u8> {
        let mut data = vec![0, limits::ZEROES_SHIFT, 0, limits::RANGES];
        data.extend(limits::RANGE_BLOCKS.to_le_bytes());
        data.extend(limits::ALL_BLOCKS.to_le_bytes());
        data
    }

    fn descriptors(&self, nsid: u32) -> Result<Vec<u8>, Status> {
        let namespace = self.subsystem.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        let mut out = Vec::with_capacity(SIZE);
        for (kind, id) in
            [(descriptor::NGUID, &namespace.nguid), (descriptor::UUID, &namespace.uuid)]
        {
            if *id != [0; 16] {
                descriptor::put(&mut out, kind, id);
            }
        }
        descriptor::put(&mut out, descriptor::COMMAND_SET, &[NVM]);
        Ok(out)
    }

    /// What both kinds of controller have.
    fn common_controller(&self) -> Controller {
        let config = &self.subsystem.config;
        Controller {
            serial: padded(&config.serial),
            model: padded(&config.model),
            firmware: padded(&config.firmware),
            max_transfer: config.max_transfer_shift(),
            id: self.association.id.into(),
            version: VERSION.into(),
            event_limit: MAX_HELD as u8 - 1,
            log_attributes: 1 << 2,
            error_entries: ERROR_ENTRIES as u8 - 1,
            keep_alive: ((super::admin::KEEP_ALIVE_UNIT.0 / 100_000_000) as u16).into(),
            max_commands: config.max_queue_depth.into(),
            // Supported without alignment, offsets into the capsule, transport data blocks.
            sgl: (1 | 1 << 20 | 1 << 21).into(),
            descriptors: 1,
            ..Controller::new_zeroed()
        }
    }

    fn discovery_controller(&self) -> Controller {
        Controller {
            kind: 2,
            events: DISCOVERY_CHANGED.into(),
            subsystem_nqn: terminated(DISCOVERY_NQN),
            ..self.common_controller()
        }
    }

    fn io_controller(&self) -> Controller {
        let config = &self.subsystem.config;
        let mut power = [PowerDescriptor::new_zeroed(); MAX_POWER_STATES];
        let states = config.power_states();
        for (descriptor, state) in power.iter_mut().zip(&states) {
            *descriptor = power_descriptor(state);
        }
        let namespaces = self.subsystem.spaces.most().into();
        let ana = AnaState::ALL.map(|state| 1 << (state as u8).min(5) >> 1);
        Controller {
            kind: 1,
            // Ports may come later.
            sharing: 1 | 1 << 1 | 1 << 3,
            events: (NAMESPACES_CHANGED | ANA_CHANGED).into(),
            attributes: (1 | u32::from(config.limiter().is_some()) << 20).into(),
            abort_limit: 3,
            firmware_slots: 1 | 1 << 1,
            log_attributes: 1 << 1 | 1 << 2 | 1 << 5,
            power_states: states.len().clamp(1, MAX_POWER_STATES) as u8 - 1,
            power_transitions: config.has_idle_states().into(),
            ana_transition: ANA_TRANSITION,
            ana: ana.into_iter().fold(ANA_FIXED, |all, state| all | state),
            largest_group: namespaces,
            groups: namespaces,
            submission_entry: 0x66,
            completion_entry: 0x44,
            namespaces,
            max_namespaces: namespaces,
            // Compare, Dataset Management, Write Zeroes, Save and Select of features.
            io_commands: (1 | 1 << 2 | 1 << 3 | 1 << 4).into(),
            write_cache: 1 | 2 << 1,
            subsystem_nqn: terminated(&config.nqn),
            command_capsule: ((size_of::<Sqe>() as u32 + config.in_capsule) / 16).into(),
            response_capsule: (size_of::<Cqe>() as u32 / 16).into(),
            fabric_commands: 1.into(),
            retry_delays: [RETRY_DELAY.into(), 0.into(), 0.into()],
            power,
            ..self.common_controller()
        }
    }

    fn namespace_data(&self, namespace: &Namespace) -> identify::Namespace {
        let geometry = self.subsystem.geometry(namespace.id as usize - 1);
        identify::Namespace {
            size: geometry.blocks.into(),
            capacity: geometry.blocks.into(),
            used: geometry.blocks.into(),
            sharing: 1,
            group: namespace.id.into(),
            attributes: namespace.read_only.into(),
            nguid: namespace.nguid,
            format_0: [0, 0, geometry.block_size.trailing_zeros() as u8, 0],
            ..identify::Namespace::new_zeroed()
        }
    }
}

fn independent(namespace: &Namespace) -> Independent {
    Independent {
        sharing: 1,
        group: namespace.id.into(),
        attributes: namespace.read_only.into(),
        status: 1,
        ..Independent::new_zeroed()
    }
}

/// Watts as a number of units of 10 mW, or of 0.1 mW if that is finer and fits (Base Figure 276).
fn scaled(power: Watts) -> (u16, bool) {
    let fine = power.0 * 1e4;
    if fine < f64::from(u16::MAX) {
        return (fine.round() as u16, true);
    }
    ((power.0 * 1e2).round() as u16, false) // Saturates at 655.35 W.
}

fn power_descriptor(state: &PowerState) -> PowerDescriptor {
    let (max_power, is_fine) = scaled(state.max_power);
    // IPS and APS: 01b is 0.1 mW, 10b is 10 mW, 00b is not stated.
    let optional = |power: Option<Watts>| {
        power.map_or((0, 0), |power| {
            let (value, is_fine) = scaled(power);
            (value, if is_fine { 1 << 6 } else { 2 << 6 })
        })
    };
    let (idle_power, idle_scale) = optional(state.idle_power);
    let (active_power, active_unit) = optional(state.active_power);
    let workload = u8::from(active_unit != 0); // APW: the heavier of the two that are defined.
    PowerDescriptor {
        max_power: max_power.into(),
        flags: u8::from(is_fine) | u8::from(!state.is_operational) << 1,
        entry_latency: state.entry_latency.into(),
        exit_latency: state.exit_latency.into(),
        ranks: [state.read_rank, state.read_rank, state.write_rank, state.write_rank],
        idle_power: idle_power.into(),
        idle_scale,
        active_power: active_power.into(),
        active_scale: active_unit | workload,
        ..PowerDescriptor::new_zeroed()
    }
}
