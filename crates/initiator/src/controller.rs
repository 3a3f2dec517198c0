//! An association: the admin queue and what is done over it, blocking.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ebb_nvme::command::{admin, fabrics};
use ebb_nvme::fabrics::Connect;
use ebb_nvme::identify::{self as wire, SIZE, cns};
use ebb_nvme::pdu::Digests;
use ebb_nvme::{Sqe, Status, chap, feature, tls};

use super::auth::{Transaction, authenticate};
use super::exchange::{exchange, fabric};
use super::link::Link;
use super::slot::{Completion, MOST};
use super::{Direction, Error, Identity, Namespace, Queue, Secrets};
use zerocopy::{FromBytes, FromZeros};

/// Commands outstanding on the admin queue: we ask one thing at a time.
const ADMIN_DEPTH: u16 = 32;
/// Data that may always go with a command of the admin queue (TCP 3.3.2.1).
const ADMIN_IN_CAPSULE: usize = 8192;

/// Properties (Base Figure 35).
mod property {
    pub const CAP: u32 = 0x00;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1c;
}
/// CC: enabled, NVM command set, 64-byte and 16-byte queue entries.
const ENABLE: u64 = 1 | 6 << 16 | 4 << 20;
/// CC.SHN: a normal shutdown.
const SHUTDOWN: u64 = 1 << 14;
/// Connect attribute: no flow control of the submission queue, without which a target may not
/// leave out response capsules (Base Figure 380, CATTR bit 2).
const NO_FLOW_CONTROL: u32 = 1 << 18;

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Host NQN.
    pub nqn: String,
    /// Host identifier.
    pub id: [u8; 16],
}

impl Default for Host {
    /// The same everywhere, so that allow-lists can name it.
    fn default() -> Self {
        let id = *b"ebb load\x80\0\0\0\0\0\0\x01";
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:65626220-6c6f-6164-8000-000000000001";
        Self { nqn: nqn.to_owned(), id }
    }
}

/// A key for TLS, and how PSKs come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The key.
    pub key: tls::Key,
    /// The identity that the target finds it by.
    pub version: tls::Version,
    /// How it is expanded.
    pub derivation: tls::Derivation,
}

impl Tls {
    /// As the specification says.
    #[must_use]
    pub const fn new(key: tls::Key) -> Self {
        Self { key, version: tls::Version::One, derivation: tls::Derivation::Rfc8446 }
    }
}

/// What to connect to, and how.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// NQN of the subsystem.
    pub subsystem: String,
    /// Who we are.
    pub host: Host,
    /// What to authenticate ourselves with where we have to, and the target where we want it.
    pub secrets: Option<Secrets>,
    /// The key for TLS, if connections are to be over it.
    pub tls: Option<Tls>,
    /// Digests to use.
    pub digests: Digests,
    /// How long to wait for a connection, or an answer on the admin queue.
    pub timeout: Duration,
    /// After how long without a sign of us the target may give us up; 0 for never.
    pub keep_alive: Duration,
}

impl Target {
    /// The subsystem at this address, with everything else as usual.
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: impl Into<String>) -> Self {
        Self {
            address,
            subsystem: subsystem.into(),
            host: Host::default(),
            secrets: None,
            tls: None,
            digests: Digests::default(),
            timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(30),
        }
    }
}

impl Target {
    /// Connects, over TLS with this host's key for this subsystem if it has one.
    fn open(&self) -> Result<Link, Error> {
        let psk = |tls: &Tls| {
            tls.key.psk(tls.version, tls.derivation, &self.host.nqn, &self.subsystem).ok_or_else(
                || Error::Unsupported("the names are too long for an identity of TLS".to_owned()),
            )
        };
        let psk = self.tls.as_ref().map(psk).transpose()?;
        Link::open(self.address, psk.as_slice(), self.digests, self.timeout)
    }
}

/// An association with a controller.
#[derive(Debug)]
pub struct Controller {
    target: Target,
    queue: Queue,
    id: u16,
    identity: Identity,
    /// CAP.MQES: most entries of an I/O queue.
    entries: usize,
}

impl Controller {
    /// Connects, enables the controller and asks who it is.
    ///
    /// # Errors
    /// When there is no connection, the target refuses us, or an answer is missing or wrong.
    pub fn connect(target: &Target) -> Result<Self, Error> {
        let link = target.open()?;
        let mut queue = Queue::new(link, ADMIN_DEPTH.into(), ADMIN_IN_CAPSULE);
        let id = connect(&mut queue, target, 0, ADMIN_DEPTH, 0xffff)?;
        let identity = Identity::parse(&wire::Controller::new_zeroed(), 0);
        let mut this = Self { target: target.clone(), queue, id, identity, entries: 1 };
        let capabilities = this.property(property::CAP)?;
        this.entries = (capabilities as u16) as usize + 1;
        this.enable(capabilities)?;
        let page = 4096_u64 << (capabilities >> 48 & 0xf);
        let data = this.identify_controller()?;
        let data = wire::Controller::read_from_bytes(&data)
            .map_err(|_| Error::Unsupported("a short answer to Identify".to_owned()))?;
        this.identity = Identity::parse(&data, page);
        Ok(this)
    }

    /// CC.EN, then wait for CSTS.RDY as long as CAP.TO allows (Base 3.5.1).
    fn enable(&mut self, capabilities: u64) -> Result<(), Error> {
        self.set_property(property::CC, ENABLE)?;
        let limit = Duration::from_millis(500 * (capabilities >> 24 & 0xff)).max(self.timeout());
        self.await_status("enabling the controller", limit, |status| status & 1 != 0)
    }

    fn await_status(
        &mut self,
        command: &'static str,
        limit: Duration,
        reached: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            let status = self.property(property::CSTS)?;
            if reached(status) {
                return Ok(());
            }
            if status & 2 != 0 {
                let why = "the controller reports a fatal error (CSTS.CFS)".to_owned();
                return Err(Error::Unsupported(why));
            }
            if start.elapsed() >= limit {
                return Err(Error::Timeout { command, after: limit });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn timeout(&self) -> Duration {
        self.target.timeout
    }
    /// What the controller says of itself.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    /// CNTLID.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }
    /// The most commands that can be outstanding on one I/O queue.
    #[must_use]
    pub fn most_outstanding(&self) -> usize {
        (self.entries - 1).clamp(1, MOST)
    }

    fn property(&mut self, offset: u32) -> Result<u64, Error> {
        let mut sqe = fabric(fabrics::PROPERTY_GET);
        sqe.set_cdw(10, u32::from(offset == property::CAP)); // 8 bytes or 4
        sqe.set_cdw(11, offset);
        Ok(self.run("Property Get", sqe, Direction::None, Vec::new())?.result)
    }

    fn set_property(&mut self, offset: u32, value: u64) -> Result<(), Error> {
        let mut sqe = fabric(fabrics::PROPERTY_SET);
        sqe.set_cdw(11, offset);
        sqe.set_cdw(12, value as u32);
        self.run("Property Set", sqe, Direction::None, Vec::new()).map(drop)
    }

    /// The whole of what the controller says of itself (Identify, CNS 01h).
    ///
    /// # Errors
    /// When the target does not answer.
    pub fn identify_controller(&mut self) -> Result<Vec<u8>, Error> {
        self.identify(cns::CONTROLLER, 0)
    }

    fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, Error> {
        let mut sqe = Sqe::new(admin::IDENTIFY, 0);
        sqe.nsid = nsid.into();
        sqe.set_cdw(10, cns.into());
        Ok(self.run("Identify", sqe, Direction::In, vec![0; SIZE])?.buffer)
    }

    /// Identifiers of the active namespaces, ascending (Identify, CNS 02h).
    ///
    /// # Errors
    /// When an answer is missing or wrong.
    pub fn namespaces(&mut self) -> Result<Vec<u32>, Error> {
        let mut all = Vec::new();
        loop {
            let page = self.identify(cns::ACTIVE_NAMESPACES, all.last().copied().unwrap_or(0))?;
            let ids = page.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id));
            let before = all.len();
            for id in ids.take_while(|id| *id != 0) {
                // Ascending, or a page could repeat for ever.
                if all.last().is_some_and(|last| id <= *last) {
                    let why = "the list of active namespaces is not ascending".to_owned();
                    return Err(Error::Unsupported(why));
                }
                all.push(id);
            }
            if all.len() - before < SIZE / 4 {
                return Ok(all);
            }
        }
    }

    /// A namespace (Identify, CNS 00h).
    ///
    /// # Errors
    /// When an answer is missing or wrong, or its format is not one that Ebb can use.
    pub fn namespace(&mut self, id: u32) -> Result<Namespace, Error> {
        let data = self.identify(cns::NAMESPACE, id)?;
        Namespace::parse(id, &data).filter(|namespace| namespace.blocks > 0).ok_or_else(|| {
            Error::Unsupported(format!(
                "namespace {id} is empty, or its format has metadata or blocks of other than \
                 512 bytes to 64 KiB"
            ))
        })
    }

    /// Asks for so many I/O queues; returns how many there may be (Set Features 07h).
    ///
    /// # Errors
    /// When an answer is missing or wrong.
    pub fn set_queues(&mut self, count: u16) -> Result<u16, Error> {
        let less_one = u32::from(count.max(1) - 1);
        let result = self.set_feature(feature::NUMBER_OF_QUEUES, less_one | less_one << 16)?;
        let granted = (result as u16).min((result >> 16) as u16);
        Ok(granted.saturating_add(1).min(count.max(1)))
    }

    /// A feature's current value (Get Features).
    ///
    /// # Errors
    /// When the target has no such feature, or does not answer.
    pub fn feature(&mut self, feature: u8) -> Result<u32, Error> {
        let mut sqe = Sqe::new(admin::GET_FEATURES, 0);
        sqe.set_cdw(10, feature.into());
        Ok(self.run("Get Features", sqe, Direction::None, Vec::new())?.result as u32)
    }

    /// Sets a feature, not to be saved; returns what is answered (Set Features).
    ///
    /// # Errors
    /// When the target refuses it, or does not answer.
    pub fn set_feature(&mut self, feature: u8, value: u32) -> Result<u32, Error> {
        let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
        sqe.set_cdw(10, feature.into());
        sqe.set_cdw(11, value);
        Ok(self.run("Set Features", sqe, Direction::None, Vec::new())?.result as u32)
    }

    /// Authenticates us, and the target if we have its key, once more, on the admin queue.
    ///
    /// # Errors
    /// When it fails, or there are no keys.
    pub fn authenticate(&mut self) -> Result<(), Error> {
        let Self { queue, target, .. } = self;
        let none = || Error::Unsupported("there are no keys to authenticate with".to_owned());
        run_chap(queue, target, target.secrets.as_ref().ok_or_else(none)?)
    }

    /// Shows the target that we are alive.
    ///
    /// # Errors
    /// When the target does not answer.
    pub fn keep_alive(&mut self) -> Result<(), Error> {
        let sqe = Sqe::new(admin::KEEP_ALIVE, 0);
        self.run("Keep Alive", sqe, Direction::None, Vec::new()).map(drop)
    }

    /// Reads `length` bytes of a log page (Base 5.16).
    ///
    /// # Errors
    /// When the target has no such page, or does not answer.
    pub fn log_page(&mut self, page: u8, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0);
        let dwords = (length / 4).max(1) as u32 - 1;
        sqe.set_cdw(10, u32::from(page) | (dwords & 0xffff) << 16);
        sqe.set_cdw(11, dwords >> 16);
        sqe.set_cdw(12, offset as u32);
        sqe.set_cdw(13, (offset >> 32) as u32);
        Ok(self.run("Get Log Page", sqe, Direction::In, vec![0; length.max(4)])?.buffer)
    }

    /// Opens I/O queue `id` (from 1), on a connection of its own, for `depth` commands at once.
    ///
    /// # Errors
    /// When there is no connection or the target refuses the queue.
    pub fn queue(&self, id: u16, depth: usize) -> Result<Queue, Error> {
        let depth = depth.clamp(1, self.most_outstanding());
        let link = self.target.open()?;
        // Connect's data always goes in the capsule, whatever IOCCSZ is (Base 6.3).
        let mut queue = Queue::new(link, depth, ADMIN_IN_CAPSULE);
        // A queue of n entries holds n - 1 commands.
        connect(&mut queue, &self.target, id, depth as u16 + 1, self.id)?;
        queue.set_in_capsule(self.identity.in_capsule);
        Ok(queue)
    }

    /// Ends an I/O queue in order.
    ///
    /// # Errors
    /// When the target does not answer.
    pub fn disconnect_queue(&self, queue: &mut Queue) -> Result<(), Error> {
        if self.identity.disconnect {
            let sqe = fabric(fabrics::DISCONNECT);
            let timeout = self.timeout();
            exchange(queue, "Disconnect", sqe, Direction::None, Vec::new(), timeout)?;
        }
        Ok(())
    }

    /// Shuts the controller down and ends the association (Base 3.6.2).
    ///
    /// # Errors
    /// When the target does not answer.
    pub fn shut_down(mut self) -> Result<(), Error> {
        self.set_property(property::CC, ENABLE | SHUTDOWN)?;
        let limit = self.timeout();
        self.await_status("the shutdown", limit, |status| status >> 2 & 3 == 2)
    }

    fn run(
        &mut self,
        command: &'static str,
        sqe: Sqe,
        direction: Direction,
        buffer: Vec<u8>,
    ) -> Result<Completion, Error> {
        exchange(&mut self.queue, command, sqe, direction, buffer, self.target.timeout)
    }
}

/// The Connect command (Base 6.3); returns the controller's identifier.
fn connect(
    queue: &mut Queue,
    target: &Target,
    id: u16,
    entries: u16,
    controller: u16,
) -> Result<u16, Error> {
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&target.host.id);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    for (at, nqn) in [(256, &target.subsystem), (512, &target.host.nqn)] {
        if nqn.is_empty() || nqn.len() > 223 {
            return Err(Error::Unsupported(format!("'{nqn}': an NQN has 1 to 223 bytes")));
        }
        data[at..at + nqn.len()].copy_from_slice(nqn.as_bytes());
    }
    let mut sqe = fabric(fabrics::CONNECT);
    sqe.set_cdw(10, u32::from(id) << 16);
    sqe.set_cdw(11, u32::from(entries - 1) | if id > 0 { NO_FLOW_CONTROL } else { 0 });
    let keep_alive = u32::try_from(target.keep_alive.as_millis()).unwrap_or(u32::MAX);
    sqe.set_cdw(12, if id == 0 { keep_alive } else { 0 });
    match exchange(queue, "Connect", sqe, Direction::Out, data, target.timeout) {
        Ok(completion) => {
            prove(queue, target, completion.result as u32)?;
            Ok(completion.result as u16)
        }
        Err(Error::Failed { status, .. }) => Err(refused(target, id, status)),
        Err(error) => Err(error),
    }
}

/// Authenticates both sides as far as the answer to Connect, or the key that we have of the target,
/// wants it.
fn prove(queue: &mut Queue, target: &Target, answer: u32) -> Result<(), Error> {
    let Target { address, subsystem, .. } = target;
    let unsupported = |why| Err(Error::Unsupported(format!("{address}: {subsystem} {why}")));
    if answer & Connect::SECURE_CHANNEL != 0 {
        return unsupported("wants a secure channel, which Ebb does not set up");
    }
    let is_wanted = target.secrets.as_ref().is_some_and(|secrets| secrets.controller.is_some());
    match (answer & Connect::AUTHENTICATE != 0 || is_wanted, &target.secrets) {
        (false, _) => Ok(()),
        (true, Some(secrets)) => run_chap(queue, target, secrets),
        (true, None) => unsupported("wants hosts to authenticate themselves; give a key"),
    }
}

fn run_chap(queue: &mut Queue, target: &Target, secrets: &Secrets) -> Result<(), Error> {
    let mut id = [0; 2];
    chap::random(&mut id)?;
    let (host, subsystem) = (&target.host.nqn, &target.subsystem);
    let mut transaction = Transaction::new(secrets, u16::from_le_bytes(id), host, subsystem);
    authenticate(queue, &mut transaction, target.timeout)
}

fn refused(target: &Target, id: u16, status: Status) -> Error {
    let Target { address, subsystem, host, .. } = target;
    let why = match status {
        status if status == Status::CONNECT_INVALID_HOST => {
            format!("this host, {}, is not on its allow-list, or may need a key for TLS", host.nqn)
        }
        status if status == Status::CONNECT_INVALID && id == 0 => {
            format!("it has no subsystem {subsystem}, or another parameter is wrong")
        }
        status => super::describe(status),
    };
    Error::Unsupported(format!("{address}: queue {id} of {subsystem} was refused: {why}"))
}
