//! Authentication Send and Receive on one queue: one at a time, and nothing else before the host is
//! known.

use ebb_nvme::auth::{self, is_authentication};
use ebb_nvme::command::fabrics;
use ebb_nvme::pdu::flag;
use ebb_nvme::{Cqe, Sqe, Status};
use ebb_policy::units::Nanos;

use super::super::context::Context;
use super::super::send::Sender;
use super::super::slots::Slot;
use super::Commands;
use crate::controller::{Direction, Plan};

impl Commands {
    /// Whether the host must authenticate itself first.
    pub fn must_join(&self) -> bool {
        self.authentication.as_ref().is_some_and(|authentication| !authentication.is_done())
    }

    /// False once it failed to, or took too long.
    pub(super) fn may_join(&self, now: Nanos) -> bool {
        self.authentication.as_ref().is_none_or(|authentication| authentication.alive(now))
    }

    /// Whether a command waits for a message.
    pub fn is_joining(&self) -> bool {
        self.fetching.is_some()
    }

    /// Whether a command carries a message.
    pub(super) fn is_message(&self, slot: &Slot) -> bool {
        slot.plan == Some(Plan::Nothing) && is_authentication(&slot.sqe)
    }

    /// Which way the message of a command goes.
    pub(super) fn message(&self, sqe: &Sqe) -> Result<Direction, Status> {
        if self.slots.iter().any(|slot| is_authentication(&slot.sqe)) {
            return Err(Status::SEQUENCE_ERROR);
        }
        auth::check_fields(sqe)?;
        Direction::of(sqe, auth::MOST, auth::MOST)
    }

    /// Runs a command that carries a message.
    pub(super) fn authenticate(
        &mut self,
        index: u16,
        sender: &mut Sender,
        context: &mut Context<'_>,
    ) {
        let Some(slot) = self.slots.at(index) else { return };
        let Some(authentication) = &mut self.authentication else { return };
        if slot.sqe.fabrics_type() == fabrics::AUTHENTICATION_SEND {
            authentication.send(slot.payload.bytes(), context.now, &context.channels.wake);
            return self.complete(index, sender);
        }
        self.fetching = Some(index);
        self.join(sender, context);
    }

    /// Answers who wants to have a message, if there is one.
    pub fn join(&mut self, sender: &mut Sender, context: &mut Context<'_>) {
        let Some(authentication) = &mut self.authentication else { return };
        let Some(index) = self.fetching else { return };
        let Some(mut message) = authentication.receive(context.now) else { return };
        self.fetching = None;
        let Some(slot) = self.slots.remove(index) else { return };
        let room = slot.length as usize;
        let mut status = Status::INVALID_FIELD;
        if message.len() <= room {
            // Zeros up to what the host allots: not all take less.
            message.resize(room, 0);
            self.put_bytes(slot.cid, flag::LAST, &message, sender);
            status = Status::SUCCESS;
        }
        self.answer(Cqe::new(slot.cid, status, 0, self.head()), sender);
    }
}
