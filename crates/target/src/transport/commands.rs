//! The commands of one queue: what each needs before it can run, running it, answering it.

use std::collections::VecDeque;

use ebb_policy::units::Nanos;
use zerocopy::IntoBytes;

use super::connection::Context;
use super::send::Sender;
use super::service::Answered;
use super::slots::{Payload, Slot, Slots, State};
use crate::controller::{self, Connected, Direction, Plan, Queue, Reply};
use crate::device::{Buffer, Done, Io, Op};
use crate::wire::pdu::{self, CapsuleResp, Digests, Fatal, Frame, Kind, flag};
use crate::wire::{Cqe, Sqe, Status};

/// In the place of a slot, of which no queue has so many: the flushes of a shutdown.
const FLUSHES: u16 = u16::MAX;

/// The answering half of a queue.
pub(super) struct Commands {
    queue: Option<Queue>,
    pub slots: Slots,
    /// Above the slot in every device request's tag.
    tag: u64,
    digests: Digests,
    /// How the host wants data aligned, bytes.
    alignment: usize,
    /// Entries of the submission queue; its head in answers. `None` without flow control.
    head: Option<(u16, u16)>,
    /// Commands without a buffer.
    starved: VecDeque<u16>,
    /// Commands received since the last look, and answered since the beginning.
    pub received: u32,
    pub answered: u64,
    /// I/O commands answered since the last look.
    pub timed: Vec<Answered>,
}

impl Commands {
    pub fn new(tag: u64) -> Self {
        Self {
            queue: None,
            slots: Slots::new(1), // Connect's.
            tag,
            digests: Digests::default(),
            alignment: 4,
            head: None,
            starved: VecDeque::new(),
            received: 0,
            answered: 0,
            timed: Vec::new(),
        }
    }

    /// Which connection a device request belongs to.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// What ICReq and ICResp agreed upon.
    pub fn agree(&mut self, digests: Digests, alignment: usize) {
        (self.digests, self.alignment) = (digests, alignment);
    }

    /// Connect succeeded. Returns the queue head for its answer.
    pub fn begin(&mut self, connected: Connected) -> u16 {
        self.slots = Slots::new(connected.depth);
        self.head = connected.flow_control.then_some((connected.depth, 1 % connected.depth));
        self.starved.reserve(usize::from(connected.depth));
        self.timed.reserve(usize::from(connected.depth));
        self.queue = Some(connected.queue);
        self.head()
    }

    fn head(&self) -> u16 {
        // FFFFh says that there is no flow control (Base Figure 378).
        self.head.map_or(u16::MAX, |(_, head)| head)
    }

    /// Pieces unsent at which reading stops: every command answered with data, twice over.
    pub fn backlog_limit(&self) -> usize {
        64.max(4 * self.slots.capacity())
    }

    pub fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    pub fn payload(&mut self, slot: u16) -> Option<&mut [u8]> {
        self.slots.get(slot).map(|slot| slot.payload.bytes_mut())
    }

    /// A command capsule with `in_capsule` bytes of data. `Some(Some(slot))`: the data goes
    /// there. `Some(None)`: there is none or it is not wanted. `None`: no buffer, ask again.
    ///
    /// # Errors
    /// When the host sends more commands than its queue holds.
    pub fn command(
        &mut self,
        sqe: Sqe,
        in_capsule: usize,
        sender: &mut Sender,
        context: &mut Context<'_>,
    ) -> Result<Option<Option<u16>>, Fatal> {
        let cid = sqe.cid.get();
        let planned = match self.plan(&sqe, in_capsule) {
            _ if self.slots.holds(cid) => Err(Status::ID_CONFLICT),
            planned => planned,
        };
        let (plan, direction) = match planned {
            Ok(planned) => planned,
            Err(status) => {
                self.count();
                self.answer(Cqe::new(cid, status, 0, self.head()), sender);
                return Ok(Some(None));
            }
        };
        let (length, is_here) = match direction {
            Direction::None => (0, false),
            Direction::ToHost { length } => (length, false),
            Direction::FromHost { length, in_capsule } => (length, in_capsule && length > 0),
        };
        let from_host = matches!(direction, Direction::FromHost { .. }) && length > 0;
        let state = if from_host { State::Receiving } else { State::Working };
        let mut slot = Slot::new(sqe, state, length, context.now);
        slot.plan = plan;
        let has_buffer = give_buffer(&mut slot, context);
        if !has_buffer && is_here {
            return Ok(None);
        }
        self.count();
        if !has_buffer {
            slot.state = State::Starved;
        }
        let index = self.slots.insert(slot).ok_or(Fatal::LimitExceeded)?;
        if !has_buffer {
            self.starved.push_back(index);
            return Ok(Some(None));
        }
        if is_here {
            return Ok(Some(Some(index)));
        }
        self.start(index, sender, context);
        Ok(Some(None))
    }

    fn count(&mut self) {
        self.received += 1;
        if let Some((depth, head)) = &mut self.head {
            *head = (*head + 1) % *depth;
        }
    }

    /// What a command will do and which way its data goes.
    fn plan(&self, sqe: &Sqe, in_capsule: usize) -> Result<(Option<Plan>, Direction), Status> {
        let (plan, direction) = match &self.queue {
            None => return Err(Status::SEQUENCE_ERROR),
            Some(Queue::Admin(admin)) => (None, admin.direction(sqe)?),
            Some(Queue::Io(io)) => {
                let (plan, direction) = io.command(sqe)?;
                (Some(plan), direction)
            }
        };
        let expected = match direction {
            Direction::FromHost { length, in_capsule: true } => length as usize,
            _ => 0,
        };
        (in_capsule == expected).then_some(()).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
        Ok((plan, direction))
    }

    /// A command has its buffer: asks for its data (R2T) or runs it.
    fn start(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) {
        let Some(slot) = self.slots.get(index) else { return };
        if slot.state != State::Receiving {
            return self.run(index, sender, context);
        }
        let header = pdu::Transfer {
            common: pdu::common(Kind::R2t, 0, self.digests, 0, 4),
            cid: slot.cid.into(),
            tag: index.into(),
            offset: 0.into(),
            length: slot.length.into(),
            reserved: 0.into(),
        };
        sender.put(|out| pdu::put_header(out, header.as_bytes()));
    }

    /// The header of an H2CData PDU: the command it belongs to and the offset of its data.
    ///
    /// # Errors
    /// When it belongs to none, or not there.
    pub fn transfer(
        &mut self,
        header: &pdu::Transfer,
        frame: &Frame,
    ) -> Result<(u16, usize), Fatal> {
        let index = header.tag.get();
        let slot = self.slots.get(index).ok_or(Fatal::InvalidHeaderField(10))?;
        if slot.state != State::Receiving || header.cid.get() != slot.cid {
            return Err(Fatal::InvalidHeaderField(8));
        }
        let (offset, length) = (header.offset.get(), header.length.get());
        if length as usize != frame.data_length || length == 0 {
            return Err(Fatal::InvalidHeaderField(16));
        }
        let end = offset.checked_add(length).ok_or(Fatal::OutOfRange)?;
        // In order and without gaps: Linux, SPDK and the specification's 3.6.2.5 all do so.
        if offset != slot.received || end > slot.length {
            return Err(Fatal::OutOfRange);
        }
        let is_last = frame.flags & flag::LAST != 0;
        if is_last != (end == slot.length) {
            return Err(Fatal::InvalidHeaderField(1));
        }
        Ok((index, offset as usize))
    }

    /// Data of a command up to `end` has arrived.
    pub fn data(
        &mut self,
        index: u16,
        end: usize,
        digest_right: bool,
        sender: &mut Sender,
        context: &mut Context<'_>,
    ) {
        let Some(slot) = self.slots.get(index) else { return };
        slot.received = end as u32;
        if !digest_right {
            slot.status = Status::DATA_TRANSFER_ERROR;
        }
        if slot.received < slot.length {
            return;
        }
        if slot.status.is_success() {
            self.run(index, sender, context);
        } else {
            self.complete(index, sender);
        }
    }

    /// Runs a command that has all it needs.
    fn run(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) {
        let Some(slot) = self.slots.get(index) else { return };
        slot.state = State::Working;
        if let Some(Queue::Admin(admin)) = &mut self.queue {
            let reply = admin.command(&slot.sqe, slot.payload.bytes(), context.now);
            let (tag, op) = (self.tag | u64::from(FLUSHES), Op::Flush);
            for namespace in 0..admin.begin_flushes() {
                let flush = Io { tag, op, lba: 0, blocks: 0, buffer: None };
                context.channels.submit(namespace, flush);
            }
            if let Reply::Done { status, result, data } = reply {
                self.slots.remove(index).into_iter().for_each(|slot| {
                    self.reply(slot.cid, status, result, &data, sender);
                });
            }
            return;
        }
        let tag = self.tag | u64::from(index);
        let one = |op, lba, blocks, buffer| Io { tag, op, lba, blocks, buffer };
        match slot.plan {
            Some(Plan::Device { namespace, op, lba, blocks }) => {
                let payload = std::mem::take(&mut slot.payload);
                let buffer =
                    if let Payload::Pooled(buffer) = payload { Some(buffer) } else { None };
                slot.pending = 1;
                context.channels.submit(namespace, one(op, lba, blocks, buffer));
            }
            Some(Plan::Compare { namespace, durable, lba, blocks }) => {
                slot.pending = 1;
                let buffer = slot.compared.take();
                let read = Op::Read { durable };
                context.channels.submit(namespace, one(read, lba, blocks, buffer));
            }
            Some(Plan::Deallocate { namespace, ranges }) => {
                let geometry = context.subsystem.namespaces()[namespace].device.geometry();
                match controller::ranges(slot.payload.bytes(), ranges, geometry) {
                    Ok(list) => {
                        for (lba, blocks) in list {
                            slot.pending += 1;
                            context
                                .channels
                                .submit(namespace, one(Op::Deallocate, lba, blocks, None));
                        }
                    }
                    Err(status) => slot.status = status,
                }
                if slot.pending == 0 {
                    self.complete(index, sender);
                }
            }
            Some(Plan::Nothing) | None => self.complete(index, sender),
        }
    }

    /// A device request of a command is done.
    pub fn done(&mut self, done: Done, sender: &mut Sender) {
        let index = done.tag as u16;
        let Some(slot) = self.slots.get(index) else {
            if let (FLUSHES, Some(Queue::Admin(admin))) = (index, &mut self.queue) {
                admin.flushed(done.status);
            }
            return;
        };
        slot.pending = slot.pending.saturating_sub(1);
        if slot.status.is_success() {
            slot.status = done.status;
        }
        match (slot.plan, done.buffer) {
            (Some(Plan::Compare { .. }), Some(read))
                if slot.status.is_success() && *read != *slot.payload.bytes() =>
            {
                slot.status = Status::COMPARE_FAILURE;
            }
            (Some(Plan::Device { .. }), Some(buffer)) => slot.payload = Payload::Pooled(buffer),
            _ => {}
        }
        if slot.pending == 0 {
            self.complete(index, sender);
        }
    }

    /// Answers an I/O command.
    fn complete(&mut self, index: u16, sender: &mut Sender) {
        let Some(slot) = self.slots.remove(index) else { return };
        let success = slot.status.is_success();
        if let (Some(Queue::Io(io)), Some(plan)) = (&self.queue, &slot.plan) {
            io.account(&slot.sqe, plan, slot.status);
        }
        self.timed.extend(Answered::of(&slot));
        let is_read = matches!(slot.plan, Some(Plan::Device { op: Op::Read { .. }, .. }));
        match slot.payload {
            Payload::Pooled(buffer) if is_read && success => self.read(slot.cid, buffer, sender),
            _ => self.answer(Cqe::new(slot.cid, slot.status, 0, self.head()), sender),
        }
    }

    /// Answers a read: its data, and success with it (TCP 3.6.2.6, SUCCESS) unless the queue head
    /// must be told too.
    fn read(&mut self, cid: u16, buffer: Buffer, sender: &mut Sender) {
        let flags = flag::LAST | if self.head.is_none() { flag::SUCCESS } else { 0 };
        let digest = self.digests.data.then(|| crc32c::crc32c(&buffer));
        self.put_transfer(cid, flags, buffer.len(), sender);
        sender.put_data(buffer);
        if let Some(digest) = digest {
            sender.put(|out| out.extend_from_slice(&digest.to_le_bytes()));
        }
        if self.head.is_some() {
            self.answer(Cqe::new(cid, Status::SUCCESS, 0, self.head()), sender);
        } else {
            self.answered += 1;
        }
    }

    fn put_transfer(&self, cid: u16, flags: u8, length: usize, sender: &mut Sender) {
        let header = pdu::Transfer {
            common: pdu::common(Kind::C2hData, flags, self.digests, length, self.alignment),
            cid: cid.into(),
            tag: 0.into(),
            offset: 0.into(),
            length: (length as u32).into(),
            reserved: 0.into(),
        };
        sender.put(|out| pdu::put_header(out, header.as_bytes()));
    }

    /// Answers an admin command.
    fn reply(&mut self, cid: u16, status: Status, result: u64, data: &[u8], sender: &mut Sender) {
        if status.is_success() && !data.is_empty() {
            self.put_transfer(cid, flag::LAST, data.len(), sender);
            sender.put(|out| {
                out.extend_from_slice(data);
                if self.digests.data {
                    out.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
                }
            });
        }
        self.answer(Cqe::new(cid, status, result, self.head()), sender);
    }

    /// Sends a response capsule.
    pub fn answer(&mut self, cqe: Cqe, sender: &mut Sender) {
        self.answered += 1;
        let common = pdu::common(Kind::CapsuleResp, 0, self.digests, 0, 4);
        sender.put(|out| pdu::put_header(out, CapsuleResp { common, cqe }.as_bytes()));
    }

    /// Gives buffers to starved commands, oldest first, while there are any.
    pub fn resume(&mut self, sender: &mut Sender, context: &mut Context<'_>) {
        while let Some(index) = self.starved.front().copied() {
            if let Some(slot) = self.slots.get(index) {
                let from_host = slot.plan.is_some_and(|plan| plan.takes_data());
                slot.state = if from_host { State::Receiving } else { State::Working };
                if !give_buffer(slot, context) {
                    slot.state = State::Starved;
                    return;
                }
            }
            self.starved.pop_front();
            self.start(index, sender, context);
        }
    }

    /// Answers that became ready by themselves; false once the controller is gone.
    pub fn tick(&mut self, sender: &mut Sender, now: Nanos) -> bool {
        let Some(queue) = &mut self.queue else { return true };
        if let Queue::Admin(admin) = queue {
            for (cid, status, result) in admin.completions(now) {
                if let Some(index) = self.slots.find(cid) {
                    self.slots.remove(index);
                    let answer = Cqe::new(cid, status, result, self.head());
                    self.answer(answer, sender);
                }
            }
        }
        self.queue.as_ref().is_some_and(|queue| queue.alive(now))
    }
}

/// Gives a command the memory it needs; whether there was any.
fn give_buffer(slot: &mut Slot, context: &Context<'_>) -> bool {
    if slot.length == 0 {
        return true;
    }
    let length = slot.length as usize;
    if slot.plan.is_none() {
        // Of an admin command; replies bring their own.
        if slot.state == State::Receiving {
            slot.payload = Payload::Bytes(vec![0; length]);
        }
        return true;
    }
    if matches!(slot.plan, Some(Plan::Compare { .. })) {
        slot.compared = context.pool.take(length);
        if slot.compared.is_none() {
            return false;
        }
    }
    match context.pool.take(length) {
        Some(buffer) => slot.payload = Payload::Pooled(buffer),
        None => slot.compared = None,
    }
    !matches!(slot.payload, Payload::None)
}
