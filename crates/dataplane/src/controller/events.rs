//! Asynchronous events: requests held until there is something to tell (Base 5.2), and Abort.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use ebb_policy::units::Nanos;

use super::{AdminQueue, Subsystem};
use crate::wire::log::{id, warning};
use crate::wire::{Sqe, Status};

/// Asynchronous event requests at once (AERL + 1).
pub(super) const MAX_HELD: usize = 4;
/// Time between looks at the subsystem's health.
const HEALTH_PERIOD: Nanos = Nanos::from_secs(1);

/// Discovery log page change, in AEC and OAES (Base Figure 275).
pub(super) const DISCOVERY_CHANGED: u32 = 1 << 31;
/// SMART critical warnings, in AEC.
pub(super) const HEALTH_WARNINGS: u32 = 0xff;

/// Held requests, and what their host knows.
#[derive(Debug)]
pub(super) struct Events {
    held: VecDeque<u16>,
    aborted: Vec<(u16, Status)>,
    /// GENCTR the host knows of.
    generation: u64,
    /// An event was sent and its log not read since, so further ones wait (Base 5.2).
    discovery_masked: bool,
    health_masked: bool,
    /// Warnings the host was told of and that still hold.
    warned: u8,
    /// When the health was read last.
    looked: Option<Nanos>,
}

/// Dword 0 of an event: its type, what it says, where to read on (Base Figure 147).
const fn event(kind: u64, information: u64, page: u8) -> u64 {
    kind | information << 8 | (page as u64) << 16
}

impl Events {
    pub fn new(subsystem: &Subsystem) -> Self {
        Self {
            held: VecDeque::new(),
            aborted: Vec::new(),
            generation: subsystem.generation.load(Ordering::Acquire),
            discovery_masked: false,
            health_masked: false,
            warned: 0,
            looked: None,
        }
    }

    /// The controller is reset: all held requests end.
    pub fn reset(&mut self, subsystem: &Subsystem) {
        let held = self.held.drain(..).map(|cid| (cid, Status::ABORT_REQUESTED));
        let aborted = self.aborted.drain(..).chain(held).collect();
        *self = Self { aborted, ..Self::new(subsystem) };
    }

    fn discovery(&mut self, enabled: u32, generation: u64) -> Option<u64> {
        let is_wanted = enabled & DISCOVERY_CHANGED != 0 && !self.discovery_masked;
        if !is_wanted || generation == self.generation {
            return None;
        }
        (self.discovery_masked, self.generation) = (true, generation);
        Some(event(2, 0xf0, id::DISCOVERY))
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

    /// The host has read a log page without asking to retain its event.
    pub fn read(&mut self, page: u8, generation: u64) {
        match page {
            id::DISCOVERY => (self.discovery_masked, self.generation) = (false, generation),
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
        let aborted = self.events.aborted.drain(..);
        let mut done: Vec<_> = aborted.map(|(cid, status)| (cid, status, 0)).collect();
        while !self.events.held.is_empty() {
            let Some(event) = self.next_event(now) else { break };
            let cid = self.events.held.pop_front();
            done.extend(cid.map(|cid| (cid, Status::SUCCESS, event)));
        }
        done
    }

    fn next_event(&mut self, now: Nanos) -> Option<u64> {
        let enabled = self.features.events;
        if !self.is_io() {
            let generation = self.subsystem.generation.load(Ordering::Acquire);
            return self.events.discovery(enabled, generation);
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
