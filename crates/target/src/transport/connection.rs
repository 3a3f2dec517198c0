//! One TCP connection, which is one NVMe queue: handshake, commands in, data both ways,
//! answers out (TCP 3).
//!
//! ```text
//!  ICReq        Connect           commands ...            fatal error, disconnect
//!  ------> New --------> Joining ----------> Ready ... ------------> Ending ---> closed
//! ```

use std::sync::Arc;

use ebb_policy::units::Nanos;
use zerocopy::{FromBytes, IntoBytes};

use super::Limits;
use super::commands::Commands;
use super::receive::{Receiver, Stage};
use super::send::Sender;
use super::slots::{Payload, Slot, State};
use crate::controller::{Queue, Subsystem};
use crate::device::{Channel, Io, Pool};
use crate::wire::command::{FABRICS, fabrics};
use crate::wire::pdu::{self, Digests, Fatal, Frame, Initialize, Kind, Terminate, Transfer};
use crate::wire::{Cqe, Sqe, Status};

/// Bytes of Connect's data.
const CONNECT_DATA: usize = 1024;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for ICReq.
    New,
    /// Waits for Connect.
    Joining,
    /// Takes commands.
    Ready,
    /// Sends what is left, then closes.
    Ending,
}

/// Where the data of the PDU being received goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// To a command, from this offset on.
    Slot(u16, usize),
    /// Nowhere.
    Discard,
}

/// What a connection works with and does not own.
pub(super) struct Context<'a> {
    pub subsystem: &'a Arc<Subsystem>,
    pub limits: &'a Limits,
    pub pool: &'a Pool,
    pub channels: &'a mut Channels,
    pub now: Nanos,
}

/// One lightweight thread's channels, by namespace, with what is under way in each.
pub(super) struct Channels {
    pub list: Vec<(Box<dyn Channel>, usize)>,
}

impl Channels {
    pub fn submit(&mut self, namespace: usize, io: Io) {
        let (channel, under_way) = &mut self.list[namespace];
        *under_way += 1;
        channel.submit(io);
    }
}

/// One connection without its socket.
pub(super) struct Connection {
    phase: Phase,
    /// When the present phase, PDU or goodbye must have ended.
    deadline: Option<Nanos>,
    receiver: Receiver,
    sink: Sink,
    /// A command whose data is in its capsule and found no buffer, with the bytes after its
    /// header.
    stalled: Option<(Frame, Vec<u8>)>,
    pub sender: Sender,
    pub commands: Commands,
}

impl Connection {
    /// A connection just accepted; `tag` is above the slot in every device request's tag.
    pub fn new(tag: u64, limits: &Limits, now: Nanos) -> Self {
        Self {
            phase: Phase::New,
            deadline: Some(now + limits.handshake),
            receiver: Receiver::new(limits.max_data()),
            sink: Sink::Discard,
            stalled: None,
            sender: Sender::default(),
            commands: Commands::new(tag),
        }
    }

    /// Whether more may be read from the peer: not while it leaves our answers unread or a
    /// command waits for a buffer.
    pub fn wants_input(&self) -> bool {
        self.phase != Phase::Ending
            && self.stalled.is_none()
            && self.sender.backlog() < self.commands.backlog_limit()
    }

    /// Whether it has nothing more to say and may be closed.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Ending && self.sender.is_empty()
    }

    /// Whether it waits for a buffer.
    pub fn is_starved(&self) -> bool {
        self.stalled.is_some() || self.commands.is_starved()
    }

    /// The memory that the next bytes from the peer belong to, if there is enough of it to be
    /// worth reading straight into.
    pub fn destination(&mut self) -> Option<&mut [u8]> {
        const WORTHWHILE: usize = 8 << 10;
        let (Stage::Data(left), Sink::Slot(slot, at)) = (self.receiver.stage(), self.sink) else {
            return None;
        };
        let payload = self.commands.payload(slot)?;
        (left >= WORTHWHILE).then(|| &mut payload[at..at + left])
    }

    /// `count` bytes have been read straight into [`Self::destination`].
    pub fn arrived(&mut self, count: usize, context: &mut Context<'_>) {
        let result = self.took(count).and_then(|()| self.data_ended(context));
        self.end_on(result);
    }

    /// Takes the bytes of `input`.
    pub fn receive(&mut self, input: &[u8], context: &mut Context<'_>) {
        let result = self.take(input, context);
        self.end_on(result);
    }

    /// Goes on with what waited for buffers, as far as there are any.
    pub fn resume(&mut self, context: &mut Context<'_>) {
        self.commands.resume(&mut self.sender, context);
        if let Some((frame, input)) = self.stalled.take() {
            let result = match self.header(frame, context) {
                Ok(true) => self.data_ended(context).and_then(|()| self.take(&input, context)),
                Ok(false) => {
                    self.stalled = Some((frame, input));
                    Ok(())
                }
                Err(fatal) => Err(fatal),
            };
            self.end_on(result);
        }
    }

    /// Once in a while: answers that became ready by themselves, and what is overdue.
    /// Returns false when the connection must be closed at once.
    pub fn tick(&mut self, context: &mut Context<'_>) -> bool {
        let now = context.now;
        if self.phase == Phase::Ready && !self.commands.tick(&mut self.sender, now) {
            self.finish(context.limits, now);
        }
        let inside = self.phase == Phase::Ready && self.receiver.is_inside();
        self.deadline = match (self.phase, self.deadline) {
            (Phase::Ready, deadline) if inside => deadline.or(Some(now + context.limits.stall)),
            (Phase::Ready, _) => None,
            (_, deadline) => deadline,
        };
        self.deadline.is_none_or(|deadline| now < deadline)
    }

    fn end_on(&mut self, result: Result<(), Fatal>) {
        if let Err(fatal) = result {
            self.terminate(fatal);
        }
    }

    /// Says why and ends (TCP 3.5.2).
    fn terminate(&mut self, fatal: Fatal) {
        let (status, information) = fatal.code();
        let complaint = self.receiver.head();
        let complaint = &complaint[..complaint.len().min(pdu::MAX_TERMINATE - 24)];
        let common = pdu::common(Kind::C2hTermReq, 0, Digests::default(), complaint.len(), 4);
        let header = Terminate {
            common,
            status: status.into(),
            information: information.into(),
            reserved: [0; 10],
        };
        self.sender.put(|out| {
            pdu::put_header(out, header.as_bytes());
            out.extend_from_slice(complaint);
        });
        self.phase = Phase::Ending;
    }

    /// Sends what is left and closes.
    fn finish(&mut self, limits: &Limits, now: Nanos) {
        self.phase = Phase::Ending;
        self.deadline = Some(now + limits.handshake);
    }

    fn take(&mut self, mut input: &[u8], context: &mut Context<'_>) -> Result<(), Fatal> {
        while !input.is_empty() && self.phase != Phase::Ending {
            match self.receiver.stage() {
                Stage::Head => {
                    let Some(frame) = self.receiver.header(&mut input)? else { continue };
                    if !self.header(frame, context)? {
                        self.stalled = Some((frame, input.to_vec()));
                        return Ok(());
                    }
                    self.data_ended(context)?;
                }
                Stage::Data(left) => {
                    let (data, rest) = input.split_at(left.min(input.len()));
                    if let Sink::Slot(slot, at) = self.sink
                        && let Some(payload) = self.commands.payload(slot)
                    {
                        payload[at..at + data.len()].copy_from_slice(data);
                        self.took(data.len())?;
                    } else {
                        self.receiver.took(data);
                    }
                    input = rest;
                    self.data_ended(context)?;
                }
                Stage::Digest => {
                    if let Some(right) = self.receiver.data_digest(&mut input) {
                        self.pdu_ended(right, context)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `count` bytes are in the sink.
    fn took(&mut self, count: usize) -> Result<(), Fatal> {
        let Sink::Slot(slot, at) = self.sink else { return Ok(()) };
        let payload = self.commands.payload(slot).ok_or(Fatal::Sequence)?;
        self.receiver.took(&payload[at..at + count]);
        self.sink = Sink::Slot(slot, at + count);
        Ok(())
    }

    fn data_ended(&mut self, context: &mut Context<'_>) -> Result<(), Fatal> {
        match self.receiver.stage() {
            Stage::Head => self.pdu_ended(true, context),
            _ => Ok(()),
        }
    }

    /// A PDU is complete. A wrong data digest fails the command, not the connection (TCP 3.3.2).
    fn pdu_ended(&mut self, digest_right: bool, context: &mut Context<'_>) -> Result<(), Fatal> {
        self.receiver.next();
        if let Sink::Slot(slot, at) = std::mem::replace(&mut self.sink, Sink::Discard) {
            let Self { commands, sender, .. } = self;
            match self.phase {
                Phase::Joining => self.join(slot, digest_right, context),
                _ => commands.data(slot, at, digest_right, sender, context),
            }
        }
        Ok(())
    }

    /// A header has arrived. False when it must be looked at again once there are buffers.
    fn header(&mut self, frame: Frame, context: &mut Context<'_>) -> Result<bool, Fatal> {
        self.sink = Sink::Discard;
        match (self.phase, frame.kind) {
            (_, kind) if !kind.from_host() => return Err(Fatal::InvalidHeaderField(0)),
            (_, Kind::H2cTermReq) => self.finish(context.limits, context.now),
            (Phase::New, Kind::IcReq) => self.initialize(context)?,
            (Phase::Joining, Kind::CapsuleCmd) => self.joining(frame)?,
            (Phase::Ready, Kind::CapsuleCmd) => {
                let sqe = self.sqe()?;
                let Self { commands, sender, .. } = self;
                match commands.command(sqe, frame.data_length, sender, context)? {
                    Some(sink) => self.sink = sink.map_or(Sink::Discard, |at| Sink::Slot(at, 0)),
                    None => return Ok(false),
                }
            }
            (Phase::Ready, Kind::H2cData) => {
                let (header, _) = Transfer::read_from_prefix(self.receiver.head())
                    .map_err(|_| Fatal::InvalidHeaderField(0))?;
                let (slot, at) = self.commands.transfer(&header, &frame)?;
                self.sink = Sink::Slot(slot, at);
            }
            _ => return Err(Fatal::Sequence),
        }
        Ok(true)
    }

    fn sqe(&self) -> Result<Sqe, Fatal> {
        let (_, bytes) = self.receiver.head().split_at(pdu::COMMON);
        let (sqe, _) = Sqe::read_from_prefix(bytes).map_err(|_| Fatal::InvalidHeaderField(2))?;
        Ok(sqe)
    }

    /// ICReq: agree upon digests and alignment (TCP 3.6.2.2).
    fn initialize(&mut self, context: &Context<'_>) -> Result<(), Fatal> {
        let (request, _) = Initialize::read_from_prefix(self.receiver.head())
            .map_err(|_| Fatal::InvalidHeaderField(2))?;
        if request.version.get() != 0 {
            return Err(Fatal::Unsupported(8));
        }
        if request.alignment > 31 {
            return Err(Fatal::InvalidHeaderField(10));
        }
        let digests = Digests::from_byte(request.digests);
        let answer = Initialize {
            common: pdu::common(Kind::IcResp, 0, Digests::default(), 0, 4),
            version: 0.into(),
            alignment: 0,
            digests: digests.to_byte(),
            limit: context.limits.max_h2c_data.into(),
            reserved: [0; 112],
        };
        self.sender.put(|out| pdu::put_header(out, answer.as_bytes()));
        self.receiver.digests = digests;
        self.commands.agree(digests, (usize::from(request.alignment) + 1) * 4);
        self.phase = Phase::Joining;
        Ok(())
    }

    /// A command before Connect: only Connect will do (Base 3.3.2.2).
    fn joining(&mut self, frame: Frame) -> Result<(), Fatal> {
        let sqe = self.sqe()?;
        let is_connect = sqe.opcode == FABRICS && sqe.fabrics_type() == fabrics::CONNECT;
        if !is_connect || frame.data_length != CONNECT_DATA {
            let status =
                if is_connect { Status::DATA_SGL_LENGTH_INVALID } else { Status::SEQUENCE_ERROR };
            self.commands.answer(Cqe::new(sqe.cid.get(), status, 0, 0), &mut self.sender);
            return Ok(());
        }
        let mut slot = Slot::new(sqe, State::Receiving, CONNECT_DATA as u32, Nanos::ZERO);
        slot.payload = Payload::Bytes(vec![0; CONNECT_DATA]);
        let index = self.commands.slots.insert(slot).ok_or(Fatal::Sequence)?;
        self.sink = Sink::Slot(index, 0);
        Ok(())
    }

    /// Connect with its data: becomes a queue of a controller, or is told why not.
    fn join(&mut self, slot: u16, digest_right: bool, context: &mut Context<'_>) {
        let Some(slot) = self.commands.slots.remove(slot) else { return };
        if !digest_right {
            let answer = Cqe::new(slot.cid, Status::DATA_TRANSFER_ERROR, 0, 0);
            return self.commands.answer(answer, &mut self.sender);
        }
        let joined = context.subsystem.connect(&slot.sqe, slot.payload.bytes(), context.now);
        let answer = match joined {
            Ok(connected) => {
                let id = u64::from(connected.controller_id);
                self.phase = Phase::Ready;
                self.deadline = None;
                let is_admin = matches!(connected.queue, Queue::Admin(_));
                let head = self.commands.begin(connected);
                self.receiver.set_max_data(context.limits.data_limit(is_admin));
                Cqe::new(slot.cid, Status::SUCCESS, id, head)
            }
            Err(refusal) => {
                self.finish(context.limits, context.now);
                Cqe::new(slot.cid, refusal.status, refusal.result.into(), 0)
            }
        };
        self.commands.answer(answer, &mut self.sender);
    }
}
