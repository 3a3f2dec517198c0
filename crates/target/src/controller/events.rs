//! Asynchronous events: requests held until there is something to tell (Base 5.2), and Abort.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use ebb_nvme::log::{id, warning};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;

use super::{AdminQueue, Subsystem};

/// Asynchronous event requests at once (AERL + 1).
pub(super) const MAX_HELD: usize = 4;
/// Time between looks at the subsystem's health.
const HEALTH_PERIOD: Nanos = Nanos::from_secs(1);

/// Discovery log page change, in AEC and OAES (Base Figure 275).
pub(super) const DISCOVERY_CHANGED: u32 = 1 << 31;
/// SMART critical warnings, in AEC.
const HEALTH_WARNINGS: u32 = 0xff;
/// Namespace attribute and ANA change notices, in AEC and OAES.
pub(super) const NAMESPACES_CHANGED: u32 = 1 << 8;
pub(super) const ANA_CHANGED: u32 = 1 << 11;
/// All events of I/O controllers.
pub(super) const IO_EVENTS: u32 = HEALTH_WARNINGS | NAMESPACES_CHANGED | ANA_CHANGED;

/// Held requests, and what their host knows.
#[derive(Debug)]
pub(super) struct Events {
    held: VecDeque<u16>,
    aborted: Vec<(u16, Status)>,
    /// GENCTR of the discovery log.
    discovery: Notice,
    /// Changes of the namespaces, and of ANA states on the host's port.
    namespaces: Notice,
    ana: Notice,
    /// An event was sent and its log not read since.
    health_masked: bool,
    /// Warnings the host was told of and that still hold.
    warned: u8,
    /// When the health was read last.
    looked: Option<Nanos>,
}

/// A count of changes that the host is told of by a notice.
#[derive(Debug, Default)]
struct Notice {
    /// The host has been told of so many, and has read so many of them in the log.
    told: u64,
    read: u64,
    /// An event was sent and its log not read since, so further ones wait (Base 5.2).
    is_masked: bool,
}

impl Notice {
    fn new(count: u64) -> Self {
        Self { told: count, read: count, is_masked: false }
    }

    /// Whether to tell the host now.
    fn is_due(&mut self, count: u64) -> bool {
        let is_due = !self.is_masked && count != self.told;
        if is_due {
            (self.told, self.is_masked) = (count, true);
        }
        is_due
    }

    fn read(&mut self, count: u64) {
        *self = Self::new(count);
    }
}

/// Dword 0 of an event: its type, what it says, where to read on (Base Figure 147).
const fn event(kind: u64, information: u64, page: u8) -> u64 {
    kind | information << 8 | (page as u64) << 16
}

impl Events {
    /// Of a host who has come by `port`.
    pub fn new(subsystem: &Subsystem, port: usize) -> Self {
        Self {
            held: VecDeque::new(),
            aborted: Vec::new(),
            discovery: Notice::new(subsystem.generation.load(Ordering::Acquire)),
            namespaces: Notice::new(subsystem.spaces.changes()),
            ana: Notice::new(subsystem.ports.changes(port)),
            health_masked: false,
            warned: 0,
            looked: None,
        }
    }

    /// The controller is reset: all held requests end.
    pub fn reset(&mut self, subsystem: &Subsystem, port: usize) {
        let held = self.held.drain(..).map(|cid| (cid, Status::ABORT_REQUESTED));
        let aborted = self.aborted.drain(..).chain(held).collect();
        *self = Self { aborted, ..Self::new(subsystem, port) };
    }

    fn discovery(&mut self, enabled: u32, generation: u64) -> Option<u64> {
        let is_due = enabled & DISCOVERY_CHANGED != 0 && self.discovery.is_due(generation);
        is_due.then_some(event(2, 0xf0, id::DISCOVERY))
    }

    fn notices(&mut self, enabled: u32, namespaces: u64, ana: u64) -> Option<u64> {
        if enabled & NAMESPACES_CHANGED != 0 && self.namespaces.is_due(namespaces) {
            return Some(event(2, 0, id::CHANGED_NAMESPACES));
        }
        let is_due = enabled & ANA_CHANGED != 0 && self.ana.is_due(ana);
        is_due.then_some(event(2, 3, id::ANA))
    }

    /// Changes of the namespaces that the host has read of.
    pub fn namespaces_known(&self) -> u64 {
        self.namespaces.read
    }

    fn health(&mut self, enabled: u32, warnings: u8) -> Option<u64> {
        self.warned &= warnings;
        let new = warnings & enabled as u8 & !self.warned;
        if new == 0 || self.health_masked {
            return None;
        }
        let information = match new & new.wrapping_neg() {
            warning::SPARE => 2,
            warning::TEMPERATURE => 1,
            _ => 0,
        };
        self.warned |= new & new.wrapping_neg();
        self.health_masked = true;
        Some(event(1, information, id::SMART))
    }

    /// The host has read a log page of so many changes without asking to retain its event.
    pub fn read(&mut self, page: u8, count: u64) {
        match page {
            id::DISCOVERY => self.discovery.read(count),
            id::CHANGED_NAMESPACES => self.namespaces.read(count),
            id::ANA => self.ana.read(count),
            id::SMART => self.health_masked = false,
            _ => {}
        }
    }
}

impl AdminQueue {
    /// Asynchronous Event Request.
    pub(super) fn hold(&mut self, sqe: &Sqe) -> Result<(), Status> {
        if !self.properties.is_ready() {
            return Err(Status::SEQUENCE_ERROR);
        }
        if self.events.held.len() >= MAX_HELD {
            return Err(Status::ASYNC_EVENT_LIMIT);
        }
        self.events.held.push_back(sqe.cid.get());
        Ok(())
    }

    /// Gives up the held request `cid`, without an answer; whether there was one.
    pub fn forget(&mut self, cid: u16) -> bool {
        let held = self.events.held.iter().position(|held| *held == cid);
        held.and_then(|at| self.events.held.remove(at)).is_some()
    }

    /// Abort (Base 5.1): dword 0 of its answer, bit 0 set if the command was not aborted.
    ///
    /// Commands other than held event requests are done by the time this one is read, or soon.
    pub(super) fn abort(&mut self, sqe: &Sqe) -> u32 {
        let (queue, cid) = (sqe.cdw(10) as u16, (sqe.cdw(10) >> 16) as u16);
        let held = self.events.held.iter().position(|held| *held == cid);
        let Some(at) = held.filter(|_| queue == 0) else { return 1 };
        self.events.held.remove(at);
        self.events.aborted.push((cid, Status::ABORT_REQUESTED));
        0
    }

    /// Answers to commands that were [held](super::Reply::Pending): command identifier, status,
    /// dwords 0 and 1. Does not allocate when there are none.
    pub fn completions(&mut self, now: Nanos) -> Vec<(u16, Status, u64)> {
        let mut done = self.aborted();
        while !self.events.held.is_empty() {
            let Some(event) = self.next_event(now) else { break };
            let cid = self.events.held.pop_front();
            done.extend(cid.map(|cid| (cid, Status::SUCCESS, event)));
        }
        done
    }

    /// Of these, the answers to commands that were aborted or that a reset has ended: to be asked
    /// for after each command, before its own answer (Base 5.1).
    pub fn aborted(&mut self) -> Vec<(u16, Status, u64)> {
        let aborted = self.events.aborted.drain(..);
        aborted.map(|(cid, status)| (cid, status, 0)).collect()
    }

    /// Changes so far of what a log page tells of.
    pub(super) fn changes(&self, page: u8) -> u64 {
        match page {
            id::DISCOVERY => self.subsystem.generation.load(Ordering::Acquire),
            id::CHANGED_NAMESPACES => self.subsystem.spaces.changes(),
            id::ANA => self.subsystem.ports.changes(self.port),
            _ => 0,
        }
    }

    fn next_event(&mut self, now: Nanos) -> Option<u64> {
        let enabled = self.features.events;
        if !self.is_io() {
            return self.events.discovery(enabled, self.changes(id::DISCOVERY));
        }
        let [namespaces, ana] = [id::CHANGED_NAMESPACES, id::ANA].map(|page| self.changes(page));
        if let Some(notice) = self.events.notices(enabled, namespaces, ana) {
            return Some(notice);
        }
        let is_due = self.events.looked.is_none_or(|at| now.saturating_sub(at) >= HEALTH_PERIOD);
        if enabled & HEALTH_WARNINGS == 0 || !is_due {
            return None;
        }
        self.events.looked = Some(now);
        let warnings = self.condition().warning;
        self.events.health(enabled, warnings)
    }
}
