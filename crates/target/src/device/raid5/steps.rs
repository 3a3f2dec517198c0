//! The steps of a segment, each taken when what it waited for has come.

use ebb_nvme::Status;

use super::super::Op;
use super::channel::RaidChannel;
use super::journal::Piece;
use super::layout::PAGE;
use super::locks::Claim;
use super::mailbox::LOOK;
use super::plan::{self, Plan, Way, xor};
use super::segment::{Phase, Segment};

/// What a step leads to.
pub(super) enum Then {
    /// The next phase, at once.
    Go(Phase),
    /// The phase it is in goes on when something came in.
    Wait,
    /// The end.
    End(Status),
}

impl RaidChannel {
    pub(super) fn segment(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(number as usize)?.as_mut()
    }

    /// Starts a new segment.
    pub(super) fn begin(&mut self, number: u32) {
        let Some(segment) = self.segment(number) else { return };
        if segment.write {
            self.lock(number, false);
        } else {
            self.read_direct(number);
        }
    }

    /// Queues for the rows; the segment becomes ready with them.
    pub(super) fn lock(&mut self, number: u32, shared: bool) {
        let (owner, layout) = (self.mailbox.clone(), self.inner.array.layout);
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_mut() else { return };
        segment.phase = Phase::Lock;
        let rows = plan::rows(&layout, &segment.range);
        let claim = Claim { stripe: segment.stripe, rows, shared, owner, segment: number };
        segment.claim = Some(claim.clone());
        if array.locks.acquire(&claim) {
            self.ready.push_back(number);
        }
    }

    /// Takes steps until the segment waits for something.
    pub(super) fn advance(&mut self, number: u32) {
        loop {
            let closing = self.closing;
            let Some(segment) = self.segment(number).filter(|segment| segment.pending == 0) else {
                return;
            };
            let phase = segment.phase;
            if closing && !phase.must_end() {
                return self.end(number, Status::ABORT_REQUESTED);
            }
            let then = match phase {
                Phase::Direct => self.direct_read(number),
                Phase::Lock if segment.write => Then::Go(Phase::Plan),
                Phase::Lock => self.read_locked(number),
                Phase::Plan => self.plan(number),
                Phase::Old => self.work_out(number),
                Phase::Slot => self.journal(number),
                Phase::Journal => self.place(number),
                Phase::Place => self.placed(number),
                Phase::Settle => self.settle(number),
                Phase::Others => self.reconstruct(number),
                Phase::Repair => Then::End(Status::SUCCESS),
            };
            let Some(segment) = self.segment(number) else { return };
            match then {
                Then::Go(phase) => segment.phase = phase,
                // With no answer outstanding but errors known, nobody would call again.
                Then::Wait if segment.pending == 0 && segment.failed != 0 => {}
                Then::Wait => return,
                Then::End(status) => return self.end(number, status),
            }
        }
    }

    fn plan(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let (health, layout) = (array.health(), array.layout);
        if health.dead {
            return Then::End(Status::WRITE_FAULT);
        }
        if health.unsettled {
            return self.wait(number);
        }
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        let missing = array.missing(segment.stripe);
        segment.failed = 0;
        segment.new.fill_with(|| None);
        let plan = Plan::new(&layout, segment.stripe, &segment.range, missing, segment.unread);
        let (stripe, reads) = (segment.stripe, plan.reads.clone());
        segment.plan = Some(plan);
        segment.phase = Phase::Old;
        for (role, rows) in reads.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let Some(buffer) = self.pool.take(rows.len()) else {
                return Then::End(Status::INTERNAL_ERROR.retry());
            };
            let at = layout.chunk_at(stripe) + rows.start as u64;
            self.ask((number, role), Op::Read { durable: false }, (at, rows.len()), Some(buffer));
        }
        match self.segment(number) {
            Some(segment) if segment.pending > 0 => Then::Wait,
            _ => Then::Go(Phase::Old),
        }
    }

    /// All old rows are here: the new ones of every member follow.
    fn work_out(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let layout = array.layout;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        let mut failures = segment.failures();
        if let Some(role) = failures.next() {
            let first = segment.unread.is_none() && failures.next().is_none();
            if !first || array.missing(segment.stripe).is_some_and(|missing| missing != role) {
                return Then::End(Status::WRITE_FAULT);
            }
            (segment.unread, segment.failed) = (Some(role), 0);
            segment.old.fill_with(|| None);
            return Then::Go(Phase::Plan);
        }
        let Some(plan) = segment.plan.clone() else { return Then::End(Status::INTERNAL_ERROR) };
        for role in 0..layout.members {
            let rows = plan.writes[role].len();
            if rows > 0 {
                segment.new[role] = self.pool.take(PAGE + rows);
                if segment.new[role].is_none() {
                    return Then::End(Status::INTERNAL_ERROR.retry());
                }
            }
        }
        let request = self.requests[segment.request as usize].as_ref();
        let data = request.and_then(|request| request.io.buffer.as_deref());
        fill(segment, &plan, layout, data);
        segment.old.fill_with(|| None);
        Then::Go(Phase::Slot)
    }

    fn journal(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        if array.health().dead {
            return Then::End(Status::WRITE_FAULT);
        }
        let first = self.waiting.is_empty();
        let Some(seq) = first.then(|| array.journal.begin(&self.mailbox)).flatten() else {
            return self.wait(number);
        };
        let (run, at) = (array.run, array.layout.slot(seq));
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        segment.seq = seq;
        segment.phase = Phase::Journal;
        let Some(plan) = segment.plan.clone() else { return Then::End(Status::INTERNAL_ERROR) };
        let mut new = std::mem::take(&mut segment.new);
        let present = new.iter().enumerate().filter(|(_, buffer)| buffer.is_some());
        let parts = present.fold(0, |parts, (role, _)| parts | 1u16 << role);
        let (stripe, rows) = (segment.stripe, plan.rows.clone());
        segment.new.resize_with(new.len(), || None);
        for (role, buffer) in new.iter_mut().enumerate() {
            let Some(mut buffer) = buffer.take() else { continue };
            let (rows, own) = (rows.clone(), plan.writes[role].clone());
            Piece { run, seq, stripe, rows, own, parts, role }.encode(&mut buffer);
            let bytes = buffer.len();
            self.ask((number, role), Op::Write { durable: true }, (at, bytes), Some(buffer));
        }
        Then::Wait
    }

    /// The change is in the journals, all but one at most.
    fn place(&mut self, number: u32) -> Then {
        if self.inner.array.health().dead {
            // Not enough of it may be durable; it stays in the journal as it is.
            return Then::End(Status::WRITE_FAULT);
        }
        let layout = self.inner.array.layout;
        let Some(segment) = self.segment(number) else { return Then::Wait };
        let (stripe, failed) = (segment.stripe, std::mem::take(&mut segment.failed));
        let Some(plan) = segment.plan.clone() else { return Then::End(Status::INTERNAL_ERROR) };
        segment.phase = Phase::Place;
        for (role, rows) in plan.writes.iter().enumerate() {
            let Some(segment) = self.segment(number) else { return Then::Wait };
            let Some(mut buffer) = segment.new[role].take() else { continue };
            if failed >> role & 1 == 1 {
                continue;
            }
            buffer.window(PAGE..PAGE + rows.len());
            let at = layout.chunk_at(stripe) + rows.start as u64;
            self.ask((number, role), Op::Write { durable: false }, (at, rows.len()), Some(buffer));
        }
        match self.segment(number) {
            Some(segment) if segment.pending > 0 => Then::Wait,
            _ => Then::Go(Phase::Place),
        }
    }

    fn placed(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        if array.health().dead {
            let Some(plan) = &segment.plan else { return Then::End(Status::WRITE_FAULT) };
            for role in segment.failures() {
                if let Some(rows) = &segment.new[role] {
                    array.owed.add(role, segment.stripe, plan.writes[role].start, rows);
                }
            }
            return Then::End(Status::WRITE_FAULT);
        }
        segment.new.fill_with(|| None);
        segment.failed = 0;
        if array.journal.placed(segment.seq) {
            array.keeper.post(LOOK);
        }
        if let Some(claim) = segment.claim.take() {
            array.locks.release(&claim);
        }
        Then::Go(Phase::Settle)
    }

    fn settle(&mut self, number: u32) -> Then {
        let health = self.inner.array.health();
        if health.dead {
            return Then::End(Status::WRITE_FAULT);
        }
        if health.unsettled {
            return self.wait(number);
        }
        Then::End(Status::SUCCESS)
    }

    /// Waits for the keeper.
    fn wait(&mut self, number: u32) -> Then {
        self.waiting.push_back(number);
        Then::Wait
    }

    /// Sends a read to the member that has the data, with the client's buffer if that fits.
    fn read_direct(&mut self, number: u32) {
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_ref() else { return };
        let (role, rows) = segment.place(&array.layout);
        if segment.claim.is_none() && array.missing(segment.stripe) == Some(role) {
            return self.lock(number, true);
        }
        let at = array.layout.chunk_at(segment.stripe) + rows.start as u64;
        let request = self.requests[segment.request as usize].as_mut();
        let buffer = match request {
            Some(request) if request.single(segment) => request.io.buffer.take(),
            _ => self.pool.take(rows.len()),
        };
        self.ask((number, role), Op::Read { durable: false }, (at, rows.len()), buffer);
    }

    fn direct_read(&mut self, number: u32) -> Then {
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        let array = &self.inner.array;
        let (role, rows) = segment.place(&array.layout);
        let mut buffer = segment.old[role].take();
        let failed = std::mem::take(&mut segment.failed) != 0;
        if let Some(buffer) = &mut buffer {
            array.patch(role, segment.stripe, &rows, buffer);
        }
        if let Some(request) = self.requests[segment.request as usize].as_mut() {
            match (&mut request.io.buffer, buffer) {
                (Some(to), Some(from)) if !failed => {
                    to[segment.base..segment.base + from.len()].copy_from_slice(&from);
                }
                (to @ None, from) => *to = from,
                _ => {}
            }
        }
        if failed {
            segment.unread = Some(role);
            if let Some(claim) = segment.claim.take() {
                array.locks.release(&claim);
            }
            self.lock(number, false);
            return Then::Wait;
        }
        Then::End(Status::SUCCESS)
    }

    /// Holds the rows: they follow from the others, or a rebuild has come by meanwhile.
    fn read_locked(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        let (role, _) = segment.place(&array.layout);
        if segment.unread.is_some() || array.missing(segment.stripe) == Some(role) {
            return self.read_others(number);
        }
        segment.phase = Phase::Direct;
        self.read_direct(number);
        Then::Wait
    }

    /// Gathers what the unreadable ones follow from.
    fn read_others(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let layout = array.layout;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        let (role, rows) = segment.place(&layout);
        let other = array.missing(segment.stripe).is_some_and(|missing| missing != role);
        if other {
            return Then::End(Status::UNRECOVERED_READ);
        }
        segment.phase = Phase::Others;
        let at = layout.chunk_at(segment.stripe) + rows.start as u64;
        for other in (0..layout.members).filter(|other| *other != role) {
            let buffer = self.pool.take(rows.len());
            self.ask((number, other), Op::Read { durable: false }, (at, rows.len()), buffer);
        }
        Then::Wait
    }

    fn reconstruct(&mut self, number: u32) -> Then {
        let array = &self.inner.array;
        let layout = array.layout;
        let Some(segment) = self.segments[number as usize].as_mut() else { return Then::Wait };
        if segment.failed != 0 {
            return Then::End(Status::UNRECOVERED_READ);
        }
        let (role, rows) = segment.place(&layout);
        let request = self.requests[segment.request as usize].as_mut();
        let Some(data) = request.and_then(|request| request.io.buffer.as_deref_mut()) else {
            return Then::End(Status::INTERNAL_ERROR);
        };
        let data = &mut data[segment.base..segment.base + rows.len()];
        data.fill(0);
        for (other, old) in segment.old.iter_mut().enumerate() {
            let Some(mut old) = old.take() else { continue };
            array.patch(other, segment.stripe, &rows, &mut old);
            xor(data, &old);
        }
        let lost = array.missing(segment.stripe) == Some(role) || array.health().dead;
        if segment.unread != Some(role) || lost {
            return Then::End(Status::SUCCESS);
        }
        let Some(mut buffer) = self.pool.take(rows.len()) else {
            return Then::End(Status::SUCCESS);
        };
        buffer.copy_from_slice(data);
        let at = layout.chunk_at(segment.stripe) + rows.start as u64;
        segment.phase = Phase::Repair;
        self.ask((number, role), Op::Write { durable: false }, (at, rows.len()), Some(buffer));
        Then::Wait
    }
}

/// Fills the rows behind each header with what the members will hold; `data` is the client's,
/// zeros when there is none.
fn fill(segment: &mut Segment, plan: &Plan, layout: super::layout::Layout, data: Option<&[u8]>) {
    let parity = layout.parity(segment.stripe);
    let zeros = if data.is_none() { vec![0; layout.chunk as usize] } else { Vec::new() };
    let changes: Vec<_> = (0..layout.members - 1)
        .map(|index| {
            let (rows, at) = segment.change(&layout, index);
            let bytes = match data {
                Some(data) if !rows.is_empty() => &data[at],
                _ => &zeros[..if data.is_none() { rows.len() } else { 0 }],
            };
            (layout.data_member(segment.stripe, index), rows, bytes)
        })
        .collect();
    for (role, _, bytes) in &changes {
        if let Some(buffer) = &mut segment.new[*role] {
            buffer[PAGE..].copy_from_slice(bytes);
        }
    }
    let Some(mut buffer) = segment.new[parity].take() else { return };
    if plan.way != Way::None {
        let new = |role| {
            let change = changes.iter().find(|(of, ..)| *of == role);
            change.map_or((0..0, &[][..]), |(_, rows, bytes)| (rows.clone(), *bytes))
        };
        let old = |role: usize| segment.old[role].as_deref();
        plan.parity((parity, layout.members), old, new, &mut buffer[PAGE..]);
    }
    segment.new[parity] = Some(buffer);
}
