//! Admin queues: a controller as its host sees it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_nvme::command::{FABRICS, admin, fabrics};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;

use super::answer::Answer;
use super::association::{Association, Kind};
use super::events::Events;
use super::features::Features;
#[cfg(doc)]
use super::features::takes_data;
use super::properties::{Flushes, Properties};
use super::{Direction, Subsystem};

/// Granularity of the keep-alive timer (KAS): a second.
pub(super) const KEEP_ALIVE_UNIT: Nanos = Nanos::from_secs(1);
/// How long a discovery controller without keep-alive timer, or one that was shut down, waits for
/// its host's next command (Base 3.1.2.3.1: two minutes).
const INACTIVITY: Nanos = Nanos::from_secs(120);

/// What becomes of an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done {
        /// How it ended.
        status: Status,
        /// Dwords 0 and 1 of the answer.
        result: u64,
        /// Data for the host: no more than it asked for, none unless it succeeded.
        data: Vec<u8>,
    },
    /// It is held; [`AdminQueue::completions`] will have its answer, or it ends with the queue.
    Pending,
}

/// The admin queue of a controller; the controller ends with it.
pub struct AdminQueue {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) association: Arc<Association>,
    pub(super) properties: Properties,
    pub(super) flushes: Flushes,
    pub(super) features: Features,
    pub(super) events: Box<Events>,
    /// KATO, in whole units; zero for none.
    keep_alive: Nanos,
    /// When the keep-alive timer was started last.
    last_keep_alive: Nanos,
    last_command: Nanos,
    /// Since when it has not been at work: not enabled, or shut down.
    idle_since: Option<Nanos>,
    /// Where the host reached it.
    pub(super) local: Option<IpAddr>,
    /// The port by which it came.
    pub(super) port: usize,
}

impl Drop for AdminQueue {
    fn drop(&mut self) {
        self.reset_power();
        self.subsystem.remove(&self.association);
    }
}

impl AdminQueue {
    pub(super) fn new(
        subsystem: Arc<Subsystem>,
        association: Arc<Association>,
        keep_alive: u32,
        now: Nanos,
    ) -> Self {
        let mut this = Self {
            events: Box::new(Events::new(&subsystem, 0)),
            subsystem,
            association,
            properties: Properties::default(),
            flushes: Flushes::default(),
            features: Features::default(),
            keep_alive: Nanos::ZERO,
            last_keep_alive: now,
            last_command: now,
            idle_since: Some(now),
            local: None,
            port: 0,
        };
        this.set_keep_alive(keep_alive, now);
        this
    }

    /// CNTLID.
    #[must_use]
    pub fn controller_id(&self) -> u16 {
        self.association.id
    }

    /// NQN of the host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.association.host.nqn
    }

    pub(super) fn is_io(&self) -> bool {
        self.association.kind == Kind::Io
    }

    /// The host reached it at this address.
    pub fn reached_at(&mut self, local: SocketAddr) {
        self.local = Some(local.ip().to_canonical());
        self.port = self.subsystem.ports.of(local);
        self.events.reset(&self.subsystem, self.port);
    }

    /// False once the host has not shown itself for the keep-alive timeout (Base 3.9), or for two
    /// minutes has neither enabled it nor left it after a shutdown, or has sent nothing to a
    /// discovery controller without such a timeout; and once it gave way to another.
    #[must_use]
    pub fn alive(&self, now: Nanos) -> bool {
        let since = |then| now.saturating_sub(then);
        let is_late =
            self.keep_alive > Nanos::ZERO && since(self.last_keep_alive) >= self.keep_alive;
        let idles_out = self.idle_since.is_some_and(|idle| since(idle) >= INACTIVITY);
        let says_nothing = !self.is_io()
            && self.keep_alive == Nanos::ZERO
            && since(self.last_command) >= INACTIVITY;
        !(is_late || idles_out || says_nothing || self.gave_way())
    }

    /// Whether another host's controller has taken its place.
    #[must_use]
    pub fn gave_way(&self) -> bool {
        self.association.is_retired()
    }

    /// KATO in milliseconds, rounded up to whole units; starts the timer.
    pub(super) fn set_keep_alive(&mut self, milliseconds: u32, now: Nanos) {
        let unit = KEEP_ALIVE_UNIT.0;
        let timeout = Nanos::from_millis(milliseconds.into()).0.next_multiple_of(unit);
        (self.keep_alive, self.last_keep_alive) = (Nanos(timeout), now);
    }

    /// KATO in milliseconds.
    pub(super) fn keep_alive(&self) -> u32 {
        u32::try_from(self.keep_alive.0 / 1_000_000).unwrap_or(u32::MAX)
    }

    /// Which way the data of a command goes.
    ///
    /// # Errors
    /// The status to answer it with.
    pub fn direction(&self, sqe: &Sqe) -> Result<Direction, Status> {
        if sqe.opcode != FABRICS && !self.is_supported(sqe.opcode) {
            return Err(Status::INVALID_OPCODE); // Before its data is asked for.
        }
        let most = self.subsystem.config.max_transfer;
        Direction::of(sqe, most.max(super::ADMIN_IN_CAPSULE), super::ADMIN_IN_CAPSULE)
    }

    /// Runs a command of which all data has arrived: `data`, where [it matters](takes_data).
    pub fn command(&mut self, sqe: &Sqe, data: &[u8], now: Nanos) -> Reply {
        self.last_command = now;
        let done = self.direction(sqe).and_then(|direction| {
            if sqe.opcode == admin::ASYNC_EVENT_REQUEST {
                return self.hold(sqe).map(|()| None);
            }
            let answer = match sqe.opcode {
                FABRICS => self.fabrics(sqe),
                _ => self.administer(sqe, data, direction, now),
            };
            let is_at_work = self.properties.is_ready() && !self.properties.is_shut_down();
            self.idle_since = if is_at_work { None } else { self.idle_since.or(Some(now)) };
            answer.map(Some)
        });
        match done {
            Ok(None) => Reply::Pending,
            Ok(Some(Answer { result, data })) => {
                Reply::Done { status: Status::SUCCESS, result, data }
            }
            Err(status) => {
                self.association.record(0, sqe, status, 0);
                Reply::Done { status, result: 0, data: Vec::new() }
            }
        }
    }

    fn fabrics(&mut self, sqe: &Sqe) -> Result<Answer, Status> {
        match sqe.fabrics_type() {
            fabrics::PROPERTY_GET => self.property_get(sqe).map(Answer::result),
            fabrics::PROPERTY_SET => self.property_set(sqe).map(|()| Answer::nothing()),
            fabrics::CONNECT => Err(Status::SEQUENCE_ERROR),
            // Disconnect is for I/O queues (Base 6.4).
            fabrics::DISCONNECT => Err(Status::INVALID_QUEUE_TYPE),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn administer(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        direction: Direction,
        now: Nanos,
    ) -> Result<Answer, Status> {
        if !self.properties.is_ready() {
            return Err(Status::SEQUENCE_ERROR);
        }
        match sqe.opcode {
            admin::IDENTIFY => self.identify(sqe, direction).map(Answer::data),
            admin::GET_LOG_PAGE => self.log_page(sqe, direction, now).map(Answer::data),
            admin::GET_FEATURES => self.get_feature(sqe, direction),
            admin::SET_FEATURES => self.set_feature(sqe, data, now).map(Answer::result),
            admin::ABORT => Ok(Answer::result(self.abort(sqe).into())),
            _ => {
                self.last_keep_alive = now;
                Ok(Answer::nothing())
            }
        }
    }

    /// Commands of this kind of controller (Base Figures 22 and 28).
    pub(super) fn is_supported(&self, opcode: u8) -> bool {
        match opcode {
            admin::IDENTIFY
            | admin::GET_LOG_PAGE
            | admin::GET_FEATURES
            | admin::SET_FEATURES
            | admin::ASYNC_EVENT_REQUEST
            | admin::KEEP_ALIVE => true,
            admin::ABORT => self.is_io(),
            _ => false,
        }
    }

    /// A controller level reset (Base 3.7.2): all but what belongs to the association.
    pub(super) fn reset(&mut self) {
        self.features = Features::default();
        self.reset_power();
        self.events.reset(&self.subsystem, self.port);
        self.association.set_write_cache(true);
        self.association.retries_later.store(false, Ordering::Relaxed);
        let granted = self.subsystem.config.max_io_queues;
        self.association.granted.store(granted, Ordering::Release);
    }
}
