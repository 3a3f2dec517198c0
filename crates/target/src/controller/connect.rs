//! The Fabrics Connect command: how a connection becomes a queue (Base 6.3).

use std::mem::offset_of;
use std::sync::Arc;

use ebb_nvme::fabrics::{ANY_CONTROLLER, Connect, ConnectData, DISCOVERY_NQN, nqn};
use ebb_nvme::tls::Identity;
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;
use zerocopy::FromBytes;

use super::association::{Claim, Host, Kind};
use super::{AdminQueue, Authentication, IoQueue, Queue, Subsystem};

/// Entries an admin queue may always have (Base 3.3.3.1.1, ASQSZ).
pub(crate) const ADMIN_DEPTH: u16 = 32;
/// Before the controller is enabled, or with a queue of this number alive: that passes.
const TOO_EARLY: Status = Status::SEQUENCE_ERROR.retry();

/// A connection became a queue.
pub struct Connected {
    /// Which.
    pub queue: Queue,
    /// The controller's identifier: dword 0 of the answer.
    pub controller_id: u16,
    /// Entries of the submission queue: one more than the commands there can be at once.
    pub depth: u16,
    /// False if the host wants none, and answers say FFFFh for the queue's head.
    pub flow_control: bool,
    /// What the host must do before anything else; `None` if it need not.
    pub authentication: Option<Box<Authentication>>,
}

/// A connection did not become a queue; it stays open, but another Connect is pointless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub status: Status,
    /// Dword 0 of the answer: IPO and IATTR, which parameter is wrong (Base Figure 382).
    pub result: u32,
}

impl Refusal {
    fn of(status: Status) -> Self {
        Self { status, result: 0 }
    }
    fn field(offset: u16) -> Self {
        Self { status: Status::CONNECT_INVALID, result: offset.into() }
    }
    fn data(offset: usize) -> Self {
        Self { status: Status::CONNECT_INVALID, result: offset as u32 | 1 << 16 }
    }
}

impl Subsystem {
    /// Fabrics Connect. `data` are the 1024 bytes that came with it; `now` counts from the start
    /// of the target.
    ///
    /// Serves the subsystem by its own NQN and the discovery service by the well-known one.
    ///
    /// # Errors
    /// Why the host is refused, to be answered.
    pub fn connect(
        self: &Arc<Self>,
        sqe: &Sqe,
        data: &[u8],
        now: Nanos,
    ) -> Result<Connected, Refusal> {
        self.connect_over(None, sqe, data, now)
    }

    /// The same over TLS with the key of this host for this subsystem.
    ///
    /// # Errors
    /// As above, and where the names are others (TCP 3.6.1).
    pub fn connect_over(
        self: &Arc<Self>,
        tls: Option<&Identity>,
        sqe: &Sqe,
        data: &[u8],
        now: Nanos,
    ) -> Result<Connected, Refusal> {
        let connect = Connect::of(sqe);
        if connect.format != 0 {
            return Err(Refusal::of(Status::CONNECT_FORMAT));
        }
        let data = ConnectData::ref_from_bytes(data)
            .map_err(|_| Refusal::of(Status::DATA_SGL_LENGTH_INVALID))?;
        let invalid = |offset| move || Refusal::data(offset);
        let subsystem = nqn(&data.subsystem_nqn);
        let host = nqn(&data.host_nqn).ok_or_else(invalid(offset_of!(ConnectData, host_nqn)))?;
        let kind = match subsystem {
            Some(DISCOVERY_NQN) => Kind::Discovery,
            Some(name) if name == self.config.nqn => Kind::Io,
            _ => return Err(Refusal::data(offset_of!(ConnectData, subsystem_nqn))),
        };
        if tls.is_some_and(|tls| tls.host != host) {
            return Err(Refusal::of(Status::CONNECT_INVALID_HOST));
        }
        if tls.is_some_and(|tls| Some(tls.subsystem.as_str()) != subsystem) {
            return Err(Refusal::data(offset_of!(ConnectData, subsystem_nqn)));
        }
        if kind == Kind::Io && !self.allows(host, tls.is_some()) {
            return Err(Refusal::of(Status::CONNECT_INVALID_HOST));
        }
        let most = self.config.max_queue_depth;
        let most = if connect.queue == 0 { most.max(ADMIN_DEPTH) } else { most };
        if connect.size == 0 || connect.size >= most {
            return Err(Refusal::field(Connect::SIZE_AT));
        }
        let host = Host::new(data.host_id, host.to_owned());
        let must = kind == Kind::Io && self.requires(&host.nqn);
        let (queue, controller_id, claim) = if connect.queue == 0 {
            let (queue, id) = self.connect_admin(&connect, data, kind, host, now)?;
            (queue, id, None)
        } else {
            self.connect_io(&connect, data, kind, &host)?
        };
        let association = self.find(controller_id).ok_or(Refusal::of(Status::CONNECT_BUSY))?;
        let authentication = if must {
            Some(Box::new(Authentication::new(self.clone(), association, claim, now)))
        } else {
            if !claim.is_none_or(|claim| claim.take()) {
                return Err(Refusal::of(TOO_EARLY));
            }
            association.prove();
            None
        };
        let flow_control = connect.attributes & Connect::NO_FLOW_CONTROL == 0;
        let depth = connect.size + 1;
        Ok(Connected { queue, controller_id, depth, flow_control, authentication })
    }

    fn connect_admin(
        self: &Arc<Self>,
        connect: &Connect,
        data: &ConnectData,
        kind: Kind,
        host: Host,
        now: Nanos,
    ) -> Result<(Queue, u16), Refusal> {
        // The dynamic controller model: any controller is what is to be asked for.
        if data.controller_id.get() != ANY_CONTROLLER {
            return Err(Refusal::data(offset_of!(ConnectData, controller_id)));
        }
        let association = self.create(kind, host, now).ok_or(Refusal::of(Status::CONNECT_BUSY))?;
        let id = association.id;
        let queue = AdminQueue::new(self.clone(), association, connect.keep_alive, now);
        Ok((Queue::Admin(queue), id))
    }

    fn connect_io(
        self: &Arc<Self>,
        connect: &Connect,
        data: &ConnectData,
        kind: Kind,
        host: &Host,
    ) -> Result<(Queue, u16, Option<Arc<Claim>>), Refusal> {
        let id = data.controller_id.get();
        let no_controller = Refusal::data(offset_of!(ConnectData, controller_id));
        let association = self.find(id).ok_or(no_controller)?;
        if association.kind != kind {
            return Err(Refusal::data(offset_of!(ConnectData, subsystem_nqn)));
        }
        if association.host.nqn != host.nqn {
            return Err(Refusal::data(offset_of!(ConnectData, host_nqn)));
        }
        if association.host.id != host.id {
            return Err(Refusal::data(offset_of!(ConnectData, host_id)));
        }
        let granted = association.granted.load(std::sync::atomic::Ordering::Acquire);
        if kind == Kind::Discovery || connect.queue > granted {
            return Err(Refusal::field(Connect::QUEUE_AT));
        }
        let number = connect.queue;
        let ticket = association.ticket(number).ok_or(Refusal::of(TOO_EARLY))?;
        let claim = Arc::new(Claim::new(association.clone(), number, ticket));
        let queue = IoQueue::new(self.clone(), association, number, ticket, claim.clone());
        let queue = queue.ok_or(Refusal::of(TOO_EARLY))?;
        Ok((Queue::Io(queue), id, Some(claim)))
    }
}
