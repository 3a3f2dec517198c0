//! The commands of one queue: what each needs before it can run, running it, answering it.

mod answer;
mod ends;
mod join;

use ebb_nvme::pdu::{self, Digests, Fatal, Frame, Kind, flag};
use ebb_nvme::{Cqe, Sqe, Status, auth};
use ebb_policy::units::Nanos;
use zerocopy::IntoBytes;

use super::context::Context;
use super::send::Sender;
use super::service::Answered;
use super::slots::{Payload, Slot, Slots, State};
use crate::controller::{
    self, Authentication, Connected, Direction, MAX_QUEUE_DEPTH, Plan, Queue, Reply, takes_data,
};
use crate::device::{Done, Io, Op};

/// In the place of a slot, of which no queue has so many: the flushes of a shutdown, and a command
/// that waits for a buffer where it stands in the stream.
const FLUSHES: u16 = u16::MAX;
pub(super) const STREAM: u16 = u16::MAX - 1;
const _: () = assert!(MAX_QUEUE_DEPTH <= STREAM);

/// The answering half of a queue.
pub(super) struct Commands {
    queue: Option<Queue>,
    /// What the host must do before anything else; and the slot of a message that it wants to
    /// have as soon as there is one.
    authentication: Option<Box<Authentication>>,
    fetching: Option<u16>,
    /// Namespaces whose flush of a shutdown waits for its device to go on.
    unflushed: Vec<usize>,
    pub slots: Slots,
    /// Above the slot in every device request's tag.
    tag: u64,
    digests: Digests,
    /// How the host wants data aligned, bytes.
    alignment: usize,
    /// Entries of the submission queue; its head in answers. `None` without flow control.
    head: Option<(u16, u16)>,
    /// Commands that wait for data that the host was asked for.
    asked: u16,
    /// I/O commands received since the last look, and commands answered since the beginning.
    pub received: u32,
    pub answered: u64,
    /// I/O commands answered since the last look.
    pub timed: Vec<Answered>,
}

impl Commands {
    pub fn new(tag: u64) -> Self {
        Self {
            queue: None,
            authentication: None,
            fetching: None,
            unflushed: Vec::new(),
            slots: Slots::new(1), // Connect's.
            tag,
            digests: Digests::default(),
            alignment: 4,
            head: None,
            asked: 0,
            received: 0,
            answered: 0,
            timed: Vec::new(),
        }
    }

    /// Bytes for the host's authentication: a message, and what is known of the transaction.
    const AUTHENTICATION: usize = size_of::<Authentication>() + 2 * auth::MOST as usize;

    /// The most bytes of memory that a queue of `depth` commands takes, without buffers.
    pub const fn most_memory(depth: usize) -> usize {
        // Each may wait in a queue that grows by doubling.
        let each = Slots::ENTRY + 2 * size_of::<u64>() + size_of::<Answered>();
        depth * each + Self::AUTHENTICATION
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
        self.timed.reserve_exact(usize::from(connected.depth));
        self.queue = Some(connected.queue);
        self.authentication = connected.authentication;
        self.head()
    }

    fn head(&self) -> u16 {
        // FFFFh says that there is no flow control (Base Figure 378).
        self.head.map_or(u16::MAX, |(_, head)| head)
    }

    /// The host, once it is known for sure.
    pub fn host(&self) -> Option<u64> {
        self.queue.as_ref().filter(|_| !self.must_join()).map(Queue::host)
    }

    /// Until when its next command must wait for its host's allowance; `None`: it need not.
    pub fn must_wait(&self, now: Nanos) -> Option<Nanos> {
        let Some(Queue::Io(io)) = &self.queue else { return None };
        io.must_wait(now)
    }

    /// A namespace is being removed: commands for it that its device does not have end by an
    /// error, when they are looked at next.
    pub fn withdraw(&mut self, namespace: usize) {
        let is_its =
            |slot: &&mut Slot| slot.plan.and_then(|plan| plan.namespace()) == Some(namespace);
        for slot in self.slots.iter_mut().filter(is_its) {
            let is_over = slot.pending == 0 || slot.is_long();
            if is_over && slot.status.is_success() {
                slot.status = Status::INVALID_NAMESPACE;
            }
        }
    }

    /// Whether it is an I/O queue.
    pub fn is_io(&self) -> bool {
        matches!(self.queue, Some(Queue::Io(_)))
    }

    /// Where the data of `slot` goes; `None`: nowhere.
    pub fn payload(&mut self, slot: u16) -> Option<&mut [u8]> {
        self.slots.get(slot)?.payload.bytes_mut()
    }

    /// Whether the host was asked for data that has not come yet.
    pub fn expects_data(&self) -> bool {
        self.asked > 0
    }

    /// For how long the host has kept us waiting for data that we asked for.
    pub fn waiting(&self, now: Nanos) -> Nanos {
        if self.asked == 0 {
            return Nanos::ZERO;
        }
        let incomplete = self.slots.iter().filter(|slot| slot.state == State::Receiving);
        let asked = incomplete.filter_map(|slot| slot.asked);
        asked.map(|asked| now.saturating_sub(asked)).max().unwrap_or(Nanos::ZERO)
    }

    /// A command capsule with `in_capsule` bytes of data, which are `here` if all of them are read
    /// and need no check. `Some(Some(slot))`: the data goes there. `Some(None)`: there is none or
    /// it is not wanted any more. `None`: no buffer, ask again.
    ///
    /// # Errors
    /// When the host sends more commands than its queue holds.
    pub fn command(
        &mut self,
        sqe: Sqe,
        in_capsule: usize,
        here: Option<&[u8]>,
        sender: &mut Sender,
        context: &mut Context<'_>,
    ) -> Result<Option<Option<u16>>, Fatal> {
        let cid = sqe.cid.get();
        let planned = match self.plan(&sqe, in_capsule) {
            _ if self.is_in_use(cid) => Err(Status::ID_CONFLICT),
            planned => planned,
        };
        let (plan, direction) = match planned {
            Ok(planned) => planned,
            Err(status) => {
                self.count();
                // An error would fail for good what the host sends again once the connection is
                // closed, as the next tick does.
                if !self.is_cut_off(context.now) {
                    self.answer(Cqe::new(cid, status, 0, self.head()), sender);
                }
                return Ok(Some(None));
            }
        };
        let (length, is_here) = match direction {
            Direction::None => (0, false),
            Direction::ToHost { length } => (length, false),
            Direction::FromHost { length, in_capsule } => (length, in_capsule && length > 0),
        };
        context.host.turn = context.host.turn.saturating_sub(direction.to_host());
        if let Some(plan) = plan
            && self.bar(Some(&plan), context).is_none()
            && self.at_once(&sqe, plan, length, here, sender, context)
        {
            return Ok(Some(None));
        }
        let from_host = matches!(direction, Direction::FromHost { .. }) && length > 0;
        let state = if from_host { State::Receiving } else { State::Working };
        let mut slot = Slot::new(sqe, state, length, context.now);
        slot.plan = plan;
        if from_host && self.is_message(&slot) {
            slot.payload = Payload::Bytes(vec![0; length as usize]);
        }
        self.admit(slot, is_here, sender, context)
    }

    /// Whether a command with this identifier is outstanding. A host that uses that of an event
    /// request again has given the request up, as SPDK's does before it says that it leaves.
    fn is_in_use(&mut self, cid: u16) -> bool {
        if !self.slots.holds(cid) {
            return false;
        }
        if let Some(Queue::Admin(admin)) = &mut self.queue
            && admin.forget(cid)
            && let Some(index) = self.slots.find(cid)
        {
            self.slots.remove(index);
            return false;
        }
        true
    }

    /// Takes up a command whose data comes or goes, with the buffers that it wants or to wait for
    /// them: as for [`Self::command`].
    fn admit(
        &mut self,
        mut slot: Slot,
        is_here: bool,
        sender: &mut Sender,
        context: &mut Context<'_>,
    ) -> Result<Option<Option<u16>>, Fatal> {
        let lane = context.lane(slot.plan.as_ref());
        let supplied = self.supply(&mut slot, is_here, context);
        match supplied {
            Err(_) if is_here && self.gives_up(slot.plan.as_ref(), context) => {
                self.count();
                let status = Status::COMMAND_INTERRUPTED;
                self.answer(Cqe::new(slot.cid, status, 0, self.head()), sender);
                return Ok(Some(None));
            }
            Err(kind) if is_here => {
                if !context.resumes {
                    context.host.starve(lane, kind, self.tag | u64::from(STREAM));
                }
                return Ok(None);
            }
            Err(_) => slot.state = State::Starved,
            Ok(()) => {}
        }
        self.count();
        self.charge(slot.length, context.now);
        let index = self.slots.insert(slot).ok_or(Fatal::LimitExceeded)?;
        if let Err(kind) = supplied {
            context.host.starve(lane, kind, self.tag | u64::from(index));
            return Ok(Some(None));
        }
        if is_here {
            return Ok(Some(Some(index)));
        }
        self.start(index, sender, context);
        Ok(Some(None))
    }

    fn count(&mut self) {
        self.received += u32::from(self.is_io());
        if let Some((depth, head)) = &mut self.head {
            *head = (*head + 1) % *depth;
        }
    }

    /// An I/O command that moves so many `bytes` is taken up.
    fn charge(&self, bytes: u32, now: Nanos) {
        if let Some(Queue::Io(io)) = &self.queue {
            io.charge(bytes, now);
        }
    }

    /// What a command will do and which way its data goes.
    fn plan(&self, sqe: &Sqe, in_capsule: usize) -> Result<(Option<Plan>, Direction), Status> {
        let (plan, direction) = match &self.queue {
            Some(_) if self.authentication.is_some() && auth::is_authentication(sqe) => {
                (Some(Plan::Nothing), self.message(sqe)?)
            }
            _ if self.must_join() => return Err(Status::AUTHENTICATION_REQUIRED),
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

    /// A command has its buffers: asks for its data (R2T) or runs it.
    fn start(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) {
        let Some(slot) = self.slots.get(index) else { return };
        if slot.state != State::Receiving {
            return self.run(index, sender, context);
        }
        slot.asked = Some(context.now);
        let header = pdu::Transfer {
            common: pdu::common(Kind::R2t, 0, self.digests, 0, 4),
            cid: slot.cid.into(),
            tag: index.into(),
            offset: 0.into(),
            length: slot.length.into(),
            reserved: 0.into(),
        };
        self.asked += 1;
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
        self.asked -= u16::from(slot.asked.is_some());
        if slot.status.is_success() {
            self.run(index, sender, context);
        } else {
            self.complete(index, sender);
        }
    }

    /// Runs a command that has all it needs.
    fn run(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) {
        if self.slots.at(index).is_some_and(|slot| self.is_message(slot)) {
            return self.authenticate(index, sender, context);
        }
        if matches!(self.queue, Some(Queue::Admin(_))) {
            return self.administer(index, sender, context);
        }
        let Some(slot) = self.slots.get(index) else { return };
        slot.state = State::Working;
        if !slot.status.is_success() {
            return self.complete(index, sender);
        }
        let is_for_device = slot.plan.is_some_and(|plan| plan.namespace().is_some());
        if is_for_device && self.is_cut_off(context.now) {
            return; // It ends with the queue. A Disconnect is answered.
        }
        let Some(slot) = self.slots.get(index) else { return };
        let tag = self.tag | u64::from(index);
        if slot.is_long() {
            let lane = context.lane(slot.plan.as_ref());
            return context.host.wait_for_slice(lane, tag);
        }
        let one = |op, lba, blocks, buffer| Io { tag, op, lba, blocks, buffer };
        match slot.plan {
            Some(Plan::Device { namespace, op, lba, blocks }) => {
                let payload = std::mem::take(&mut slot.payload);
                let buffer =
                    if let Payload::Pooled(buffer) = payload { Some(buffer) } else { None };
                slot.pending = 1;
                context.channels.submit(namespace, one(op, lba, blocks, buffer), context.now);
            }
            Some(Plan::Compare { namespace, durable, lba, blocks }) => {
                slot.pending = 1;
                let buffer = slot.compared.take();
                let read = Op::Read { durable };
                context.channels.submit(namespace, one(read, lba, blocks, buffer), context.now);
            }
            Some(Plan::Deallocate { .. } | Plan::Nothing) | None => self.complete(index, sender),
        }
    }

    fn administer(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) {
        let Some(slot) = self.slots.get(index) else { return };
        let Some(Queue::Admin(admin)) = &mut self.queue else { return };
        slot.state = State::Working;
        let reply = admin.command(&slot.sqe, slot.payload.bytes(), context.now);
        let aborted = admin.aborted();
        self.tell(aborted, sender);
        self.flush(context);
        if let Reply::Done { status, result, data } = reply
            && let Some(mut slot) = self.slots.remove(index)
        {
            if status.is_success()
                && !data.is_empty()
                && let Payload::Pooled(mut buffer) = std::mem::take(&mut slot.payload)
            {
                buffer.window(0..data.len());
                buffer.copy_from_slice(&data);
                self.put_data(slot.cid, flag::LAST, buffer, sender);
            }
            self.answer(Cqe::new(slot.cid, status, result, self.head()), sender);
        }
    }

    /// Begins the flushes of a shutdown, if there are any to begin.
    fn flush(&mut self, context: &mut Context<'_>) {
        let Some(Queue::Admin(admin)) = &mut self.queue else { return };
        let (tag, op) = (self.tag | u64::from(FLUSHES), Op::Flush);
        self.unflushed.extend(admin.begin_flushes());
        // A device that is stalled has enough to do.
        self.unflushed.retain(|namespace| {
            let may = context.channels.takes_long(context.lane_of(*namespace));
            if may {
                let flush = Io { tag, op, lba: 0, blocks: 0, buffer: None };
                context.channels.submit(*namespace, flush, context.now);
            }
            !may
        });
    }

    /// Answers event requests.
    fn tell(&mut self, answers: Vec<(u16, Status, u64)>, sender: &mut Sender) {
        for (cid, status, result) in answers {
            if let Some(index) = self.slots.find(cid) {
                self.slots.remove(index);
                self.answer(Cqe::new(cid, status, result, self.head()), sender);
            }
        }
    }

    /// Submits the next slice of a long command, or answers it when there is none left; whether
    /// one was submitted.
    pub fn slice(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) -> bool {
        let tag = self.tag | u64::from(index);
        if self.is_cut_off(context.now) {
            return false;
        }
        let Some(slot) = self.slots.get(index) else { return false };
        let namespace = match slot.plan {
            Some(Plan::Device { namespace, .. } | Plan::Deallocate { namespace, .. }) => namespace,
            _ => unreachable!("only these are long"),
        };
        let geometry = context.subsystem.geometry(namespace);
        // Before the first slice, so that a range outside leaves the others alone.
        if let Some(Plan::Deallocate { ranges, .. }) = slot.plan
            && slot.is_whole()
            && let Err(status) = controller::check_ranges(slot.payload.bytes(), ranges, geometry)
        {
            slot.status = status;
        }
        let most = context.channels.slice(namespace);
        match slot.slice(most).filter(|_| slot.status.is_success()) {
            Some((op, lba, blocks)) => {
                slot.pending = 1;
                let slice = Io { tag, op, lba, blocks, buffer: None };
                context.channels.submit(namespace, slice, context.now);
                true
            }
            None => {
                self.complete(index, sender);
                false
            }
        }
    }

    /// A device request of a command is done.
    pub fn done(&mut self, done: Done, sender: &mut Sender, context: &mut Context<'_>) {
        let index = done.tag as u16;
        let Some(slot) = self.slots.get(index) else {
            assert_eq!(index, FLUSHES, "a completion belongs to a command");
            if let Some(Queue::Admin(admin)) = &mut self.queue {
                admin.flushed(done.status);
            }
            return self.flush(context);
        };
        assert!(slot.pending > 0, "a command completes once");
        slot.pending -= 1;
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
        if slot.is_long() && slot.status.is_success() && !slot.is_sliced() {
            let lane = context.lane(slot.plan.as_ref());
            return context.host.wait_for_slice(lane, done.tag);
        }
        self.complete(index, sender);
    }

    /// Goes on with a command that waited for buffers; false: there are still none for it.
    pub fn resume(&mut self, index: u16, sender: &mut Sender, context: &mut Context<'_>) -> bool {
        let Some(slot) = self.slots.get(index).filter(|slot| slot.state == State::Starved) else {
            return true;
        };
        if !slot.status.is_success() {
            self.complete(index, sender);
            return true;
        }
        let (plan, before) = (slot.plan, slot.state);
        let from_host = plan.map_or(takes_data(&slot.sqe), |plan| plan.takes_data());
        let state = if from_host { State::Receiving } else { State::Working };
        let is_barred = self.bar(plan.as_ref(), context).is_some();
        let Some(slot) = self.slots.get(index) else { return true };
        slot.state = state;
        if is_barred || context.supply(slot, false).is_err() {
            slot.state = before;
            return false;
        }
        self.start(index, sender, context);
        true
    }

    /// Answers that became ready by themselves; false once the controller is gone.
    pub fn tick(&mut self, sender: &mut Sender, context: &mut Context<'_>) -> bool {
        self.join(sender, context);
        let (now, is_late) = (context.now, !self.may_join(context.now));
        self.flush(context);
        let Some(queue) = &mut self.queue else { return true };
        if let Queue::Admin(admin) = queue {
            let done = admin.completions(now);
            self.tell(done, sender);
        }
        !is_late && self.queue.as_ref().is_some_and(|queue| queue.alive(now))
    }
}
