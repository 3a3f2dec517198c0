//! The steps of a write when members have no room left.
//!
//! A member refuses at one of three points, and each leaves every stripe and journal as if the
//! write had been answered with an error at once, or done:
//!
//! * Its journal refuses the write's part: nothing is in place yet. The parts that other journals
//!   took are voided, durably, before the client hears of it and before the rows change again. So
//!   the write is never carried out later over what was read or written in between.
//! * Its place refuses, while the others' took theirs: the change is whole in the journals, so it
//!   is *owed* ([`super::owed`]) and the write is answered as refused, though its data are what is
//!   read from now on, as after any crash. Putting old data back instead would take room, too, and
//!   a journal of what was there.
//! * From then on, until it has shown room, the member is asked first: it is given again what is
//!   in place already. That changes nothing, so a refusal leaves nothing behind; and who takes it
//!   has room for new data in the same place. Only file systems that never write in place may
//!   still refuse those: then they are owed, too.

use super::super::Op;
use super::channel::RaidChannel;
use super::mailbox::LOOK;
use super::plan::Plan;
use super::segment::{Phase, roles};
use super::steps::Then;
use crate::wire::Status;

impl RaidChannel {
    /// Everything is worked out: reads what is in the places of members short of room.
    pub(super) fn look_for_room(&mut self, number: u32, plan: &Plan) -> Then {
        let array = &self.inner.array;
        let (layout, short) = (array.layout, array.scarce.short());
        if short == 0 {
            return Then::Go(Phase::Slot);
        }
        let Some(segment) = self.segment(number) else { return Then::Wait };
        segment.phase = Phase::Room;
        let at = layout.chunk_at(segment.stripe);
        for role in roles(short).filter(|role| *role < layout.members) {
            let rows = plan.writes[role].clone();
            let Some(buffer) = (!rows.is_empty()).then(|| self.pool.take(rows.len())) else {
                continue;
            };
            let from = at + rows.start as u64;
            self.ask((number, role), Op::Read { durable: false }, (from, rows.len()), buffer);
        }
        match self.segment(number) {
            Some(segment) if segment.pending > 0 => Then::Wait,
            _ => Then::Go(Phase::Room),
        }
    }

    /// Writes back what was read. What could not be read is left to the write itself.
    pub(super) fn write_back(&mut self, number: u32) -> Then {
        let array = self.inner.array.clone();
        let Some(segment) = self.segment(number) else { return Then::Wait };
        let unread = std::mem::take(&mut segment.failed);
        let (stripe, plan) = (segment.stripe, segment.plan.clone().unwrap_or_default());
        let mut old = std::mem::take(&mut segment.old);
        segment.old.resize_with(old.len(), || None);
        segment.phase = Phase::Back;
        for (role, rows) in plan.writes.iter().enumerate() {
            let Some(mut buffer) = old[role].take().filter(|_| unread >> role & 1 == 0) else {
                continue;
            };
            array.owed.patch(role, stripe, rows, &mut buffer);
            let at = array.layout.chunk_at(stripe) + rows.start as u64;
            self.ask((number, role), Op::Write { durable: false }, (at, rows.len()), Some(buffer));
        }
        match self.segment(number) {
            Some(segment) if segment.pending > 0 => Then::Wait,
            _ => Then::Go(Phase::Back),
        }
    }

    /// Whoever refused has no room; nothing has changed.
    pub(super) fn written_back(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        segment.old.fill_with(|| None);
        if segment.failed != 0 {
            segment.failures().for_each(|role| array.fail(role, "it could not be written"));
            segment.failed = 0;
            return Then::Go(Phase::Plan);
        }
        match std::mem::take(&mut segment.refused) {
            0 => Then::Go(Phase::Slot),
            _ => Then::End(Status::CAPACITY_EXCEEDED),
        }
    }

    /// Waits for a slot of the journal. Where something is owed, the keeper may need the rows to
    /// free one, so they are given up meanwhile.
    pub(super) fn without_slot(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        if array.scarce.stalled() {
            return Then::End(Status::CAPACITY_EXCEEDED);
        }
        if array.owed.any()
            && let Some(segment) = self.segments[number as usize].as_mut()
            && let Some(claim) = segment.claim.take()
        {
            segment.new.fill_with(|| None);
            array.locks.release(&claim);
        }
        self.queue.push_back(number);
        Then::Wait
    }

    /// A journal refused its part: the others' are to be voided.
    pub(super) fn void(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        let plan = segment.plan.clone().unwrap_or_default();
        segment.refusals().for_each(|role| {
            array.refused(role, segment.stripe, plan.writes[role].clone());
        });
        let without = segment.failed | std::mem::take(&mut segment.refused);
        let parts = plan.writes.iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        let took = parts.fold(0, |took, (role, _)| took | 1 << role) & !without;
        segment.failed = 0;
        segment.new.fill_with(|| None);
        if let Some(claim) = &segment.claim {
            array.locks.share(claim);
        }
        array.scarce.void(segment.seq, took);
        array.keeper.post(LOOK);
        Then::Go(Phase::Void)
    }

    /// The keeper has voided it, or the array is dead.
    pub(super) fn voided(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        if array.scarce.is_voiding(segment.seq) && !array.health().dead {
            self.gated.push_back(number);
            return Then::Wait;
        }
        segment.status = Status::CAPACITY_EXCEEDED;
        Then::Go(Phase::Settle)
    }
}
