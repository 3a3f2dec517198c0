//! One TCP connection, which is one NVMe queue: handshake, commands in, data both ways,
//! answers out (TCP 3).
//!
//! ```text
//!  ICReq        Connect           commands ...            fatal error, disconnect
//!  ------> New --------> Joining ----------> Ready ... ------------> Ending ---> closed
//! ```

mod ends;

use std::io::Write;
use std::net::SocketAddr;

use ebb_nvme::command::{FABRICS, fabrics};
use ebb_nvme::fabrics::Connect;
use ebb_nvme::pdu::{self, Digests, Fatal, Frame, Initialize, Kind, Terminate, Transfer};
use ebb_nvme::{Cqe, Sqe, Status};
use ebb_policy::units::Nanos;
use zerocopy::{FromBytes, IntoBytes};

use super::Limits;
use super::commands::{Commands, STREAM};
use super::context::Context;
use super::ledger::Kinds;
use super::receive::{Receiver, Stage};
use super::secure::Identified;
use super::send::Sender;
use super::service::Answered;
use super::slots::{Payload, Slot, State};
use crate::controller::{Queue, reaches};
use crate::device::Done;

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
    /// To no command.
    Discard,
}

/// What a connection has done.
pub(super) struct Tally<'a> {
    /// I/O commands.
    pub taken: u32,
    /// Commands of all kinds.
    pub answered: u64,
    /// I/O commands answered.
    pub timed: &'a mut Vec<Answered>,
}

/// One connection without its socket.
pub(super) struct Connection {
    phase: Phase,
    /// When the present phase, PDU or goodbye must have ended.
    deadline: Option<Nanos>,
    /// Where the host reached us, and where it came from.
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    /// Who the host is by TLS, if it came with that.
    identified: Option<Identified>,
    receiver: Receiver,
    sink: Sink,
    /// A command whose data is in its capsule and found no buffer.
    stalled: Option<Frame>,
    /// Bytes read and not taken: behind a stalled command, beyond the turn, or behind answers that
    /// the host does not read.
    left: Vec<u8>,
    /// Bytes of `left` that are taken meanwhile.
    left_taken: usize,
    /// Commands in bytes read and not taken.
    unread: u32,
    /// When it last waited for its host's allowance: what the host has sent is behind that.
    held: Nanos,
    /// Its host has a number: what it holds is on that host's account.
    is_known: bool,
    sender: Sender,
    commands: Commands,
}

impl Connection {
    /// A connection just accepted; `tag` is above the slot in every device request's tag.
    pub fn new(
        tag: u64,
        limits: &Limits,
        [local, remote]: [Option<SocketAddr>; 2],
        identified: Option<Identified>,
        now: Nanos,
    ) -> Self {
        Self {
            phase: Phase::New,
            deadline: Some(now + limits.handshake),
            local,
            remote,
            identified,
            receiver: Receiver::new(limits.max_data()),
            sink: Sink::Discard,
            stalled: None,
            left: Vec::new(),
            left_taken: 0,
            unread: 0,
            held: Nanos::ZERO,
            is_known: true, // Strangers hold nothing.
            sender: Sender::default(),
            commands: Commands::new(tag),
        }
    }

    /// The most bytes of memory that a connection with a queue of `depth` commands takes, without
    /// buffers of the pool, what was [left](Self::left) and the rest of a block on its way.
    pub const fn most_memory(depth: usize) -> usize {
        size_of::<Self>() + Sender::most_memory(depth) + Commands::most_memory(depth)
    }

    /// Above the slot in the tags of its device requests: no two connections have the same.
    pub fn tag(&self) -> u64 {
        self.commands.tag()
    }

    /// Whether it is an I/O queue.
    pub fn is_io(&self) -> bool {
        self.commands.is_io()
    }

    /// The host, once it is known for sure.
    pub fn host(&self) -> Option<u64> {
        self.commands.host()
    }

    /// Its host has a number from now on.
    pub fn enter(&mut self) {
        self.is_known = true;
    }

    /// Whether there is something that the socket has not taken.
    pub fn has_output(&self) -> bool {
        !self.sender.is_empty()
    }

    /// What it has taken and answered since this was last asked; the caller empties `timed`.
    pub fn tally(&mut self) -> Tally<'_> {
        Tally {
            taken: std::mem::take(&mut self.commands.received),
            answered: std::mem::take(&mut self.commands.answered),
            timed: &mut self.commands.timed,
        }
    }

    /// Whether more may be read from the peer: not while it leaves our answers unread or there is
    /// something left to take.
    pub fn wants_input(&self) -> bool {
        self.phase != Phase::Ending
            && self.stalled.is_none()
            && self.left.is_empty()
            && !self.sender.is_full()
    }

    /// Whether it can go on with what is left when it has its turn.
    pub fn wants_turn(&self) -> bool {
        !self.left.is_empty() && self.stalled.is_none() && !self.sender.is_full()
    }

    /// Requests that are known to wait on a connection that waits for its turn: where it has bytes
    /// to read, one at least.
    pub fn known(&self) -> u32 {
        self.unread.max(1)
    }

    /// Until when it waits for its host's allowance, if it does.
    pub fn must_wait(&mut self, now: Nanos) -> Option<Nanos> {
        let until = self.commands.must_wait(now);
        if until.is_some() {
            self.held = now;
        }
        until
    }

    /// Whether its host reached us where `port` listens.
    pub fn came_by(&self, port: SocketAddr) -> bool {
        self.local.is_some_and(|local| reaches(port, local))
    }

    /// Bytes of memory for what is left to take.
    pub fn left(&self) -> usize {
        self.left.capacity()
    }

    /// Whether it has nothing more to say and may be closed.
    fn is_over(&self) -> bool {
        self.phase == Phase::Ending && self.sender.is_empty()
    }

    /// Whether data that was asked for is on its way: what is read ahead of it is copied once more.
    pub fn expects_data(&self) -> bool {
        self.commands.expects_data()
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
        let Sink::Slot(slot, at) = self.sink else { return };
        let Some(payload) = self.commands.payload(slot) else { return };
        self.receiver.took(&payload[at..at + count]);
        self.sink = Sink::Slot(slot, at + count);
        let result = self.data_ended(context);
        self.end_on(result, context);
    }

    /// Takes the bytes of `input`, and keeps those that cannot be taken now.
    pub fn receive(&mut self, input: &[u8], context: &mut Context<'_>) {
        assert!(self.left.is_empty(), "bytes are taken in their order");
        self.unread = self.receiver.commands_in(input);
        match self.take(input, context) {
            Ok(taken) if self.phase != Phase::Ending => {
                self.left.extend_from_slice(&input[taken..]);
            }
            result => self.end_on(result.map(|_| ()), context),
        }
        if self.left.is_empty() {
            self.unread = 0; // Nothing but a header that has not come to its end.
        }
    }

    /// Goes on with what was left.
    pub fn resume(&mut self, context: &mut Context<'_>) {
        let result = self.resume_left(context);
        self.end_on(result, context);
    }

    /// A device has done a request of its own.
    pub fn done(&mut self, done: Done, context: &mut Context<'_>) {
        self.commands.done(done, &mut self.sender, context);
    }

    /// Goes on with an authentication that waited, if it is in one.
    pub fn resume_joining(&mut self, context: &mut Context<'_>) {
        self.commands.join(&mut self.sender, context);
    }

    /// Whether it is in an authentication.
    pub fn is_joining(&self) -> bool {
        self.commands.is_joining()
    }

    /// A namespace is being removed: its commands end when they are looked at next.
    pub fn withdraw(&mut self, namespace: usize) {
        self.commands.withdraw(namespace);
    }

    /// Sends what it has to say, as far as the socket takes it; whether it goes on after that.
    pub fn flush(&mut self, socket: &mut impl Write) -> bool {
        self.sender.flush(socket).is_ok() && !self.is_over()
    }

    /// Goes on with the command in `slot`, or that in the stream, which waited for buffers; false:
    /// there are still none for it.
    pub fn resume_starved(&mut self, slot: u16, context: &mut Context<'_>) -> bool {
        if slot != STREAM {
            return self.commands.resume(slot, &mut self.sender, context);
        }
        let result = self.resume_stalled(context);
        self.end_on(result, context);
        self.stalled.is_none() // What is left has its turn.
    }

    fn resume_stalled(&mut self, context: &mut Context<'_>) -> Result<(), Fatal> {
        let Some(frame) = self.stalled.take() else { return Ok(()) };
        if self.header(frame, &[], context)? {
            return self.data_ended(context);
        }
        self.stalled = Some(frame);
        Ok(())
    }

    fn resume_left(&mut self, context: &mut Context<'_>) -> Result<(), Fatal> {
        if self.stalled.is_some() || self.left.is_empty() {
            return Ok(());
        }
        let left = std::mem::take(&mut self.left);
        self.left_taken += self.take(&left[self.left_taken..], context)?;
        if self.left_taken < left.len() && self.phase != Phase::Ending {
            self.left = left;
        } else {
            (self.left_taken, self.unread) = (0, 0);
        }
        Ok(())
    }

    /// Once in a while: answers that became ready by themselves, and what is overdue while others
    /// are owed buffers of the kinds `owed`. Returns false when the connection must be closed at
    /// once.
    pub fn tick(&mut self, owed: Kinds, context: &mut Context<'_>) -> bool {
        let (now, limits) = (context.now, context.limits);
        if self.phase == Phase::Ready && !self.commands.tick(&mut self.sender, context) {
            self.finish(context);
        }
        // Only bytes that we would take are the peer's to send.
        let is_held = self.must_wait(now).is_some();
        let takes = self.wants_input() && !is_held;
        let owes = self.phase == Phase::Ready && self.receiver.is_inside() && takes;
        self.deadline = match (self.phase, self.deadline) {
            (Phase::Ready, deadline) if owes => deadline.or(Some(now + limits.stall)),
            (Phase::Ready, _) => None,
            (_, deadline) => deadline,
        };
        let is_filling = matches!(self.sink, Sink::Slot(..));
        let holds = self.sender.buffers() > 0 || self.commands.expects_data() || is_filling;
        let patience = if holds {
            context.ledger.patience(context.number, self.is_io(), owed, limits)
        } else {
            limits.stall
        };
        let sooner = limits.stall.saturating_sub(patience);
        // Not for what we left untaken ourselves.
        let owed = self.commands.waiting(now).min(now.saturating_sub(self.held));
        let waited = self.sender.waiting(now).max(owed);
        waited < patience && self.deadline.is_none_or(|deadline| now + sooner < deadline)
    }

    /// Goes on with a long command.
    pub fn slice(&mut self, slot: u16, context: &mut Context<'_>) -> bool {
        self.commands.slice(slot, &mut self.sender, context)
    }

    fn end_on(&mut self, result: Result<(), Fatal>, context: &Context<'_>) {
        if let Err(fatal) = result {
            self.terminate(fatal, context);
        }
    }

    /// Says why and ends (TCP 3.5.2).
    fn terminate(&mut self, fatal: Fatal, context: &Context<'_>) {
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
        self.finish(context);
    }

    /// Sends what is left and closes.
    fn finish(&mut self, context: &Context<'_>) {
        self.phase = Phase::Ending;
        self.deadline = Some(context.now + context.limits.handshake);
        (self.stalled, self.left, self.unread) = (None, Vec::new(), 0);
    }

    /// Takes bytes of `input`; how many.
    fn take(&mut self, input: &[u8], context: &mut Context<'_>) -> Result<usize, Fatal> {
        let mut rest = input;
        while !rest.is_empty() && self.phase != Phase::Ending {
            match self.receiver.stage() {
                Stage::Head => {
                    // Who joins holds nothing.
                    let is_known = self.is_known || self.commands.must_join();
                    let is_its_turn = context.host.turn > 0 && is_known;
                    let may_begin = is_its_turn
                        && !self.sender.is_full()
                        && self.commands.must_wait(context.now).is_none();
                    if !(self.receiver.is_inside() || may_begin) {
                        break;
                    }
                    let Some(frame) = self.receiver.header(&mut rest)? else { continue };
                    if !self.header(frame, rest, context)? {
                        self.stalled = Some(frame);
                        break;
                    }
                    self.data_ended(context)?;
                }
                Stage::Data(left) => {
                    let (data, after) = rest.split_at(left.min(rest.len()));
                    if let Sink::Slot(slot, at) = self.sink
                        && let Some(payload) = self.commands.payload(slot)
                    {
                        payload[at..at + data.len()].copy_from_slice(data);
                    }
                    self.took(data);
                    rest = after;
                    self.data_ended(context)?;
                }
                Stage::Digest => {
                    if let Some(right) = self.receiver.data_digest(&mut rest) {
                        self.pdu_ended(right, context)?;
                    }
                }
            }
        }
        Ok(input.len() - rest.len())
    }

    /// The next bytes of data are where they belong.
    fn took(&mut self, data: &[u8]) {
        self.receiver.took(data);
        if let Sink::Slot(_, at) = &mut self.sink {
            *at += data.len();
        }
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
        if self.phase == Phase::Ready {
            self.deadline = None; // The next PDU has a time of its own.
        }
        if let Sink::Slot(slot, at) = std::mem::replace(&mut self.sink, Sink::Discard) {
            let Self { commands, sender, .. } = self;
            match self.phase {
                Phase::Joining => self.join(slot, digest_right, context),
                _ => commands.data(slot, at, digest_right, sender, context),
            }
        }
        Ok(())
    }

    /// A header has arrived, and `rest` behind it so far. False when it must be looked at again
    /// once there are buffers.
    fn header(
        &mut self,
        frame: Frame,
        rest: &[u8],
        context: &mut Context<'_>,
    ) -> Result<bool, Fatal> {
        self.sink = Sink::Discard;
        match (self.phase, frame.kind) {
            (_, kind) if !kind.from_host() => return Err(Fatal::InvalidHeaderField(0)),
            (_, Kind::H2cTermReq) => self.finish(context),
            (Phase::New, Kind::IcReq) => self.initialize(context)?,
            (Phase::Joining, Kind::CapsuleCmd) => self.joining(frame)?,
            (Phase::Ready, Kind::CapsuleCmd) => {
                if !context.resumes {
                    self.unread = self.unread.saturating_sub(1);
                }
                context.known.set(context.behind + self.unread);
                let sqe = self.sqe()?;
                let is_checked = frame.data_length > 0 && !frame.data_digest;
                let here = rest.get(..frame.data_length).filter(|_| is_checked);
                let Self { commands, sender, .. } = self;
                match commands.command(sqe, frame.data_length, here, sender, context)? {
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
        let tls = self.identified.as_ref().and_then(|identified| identified.get());
        let (subsystem, data) = (context.subsystem, slot.payload.bytes());
        let joined = subsystem.connect_over(tls, &slot.sqe, data, context.now);
        let answer = match joined {
            Ok(connected) => {
                let mut result = u32::from(connected.controller_id);
                (self.phase, self.is_known) = (Phase::Ready, false);
                self.deadline = None;
                let mut connected = connected;
                if let Some(local) = self.local {
                    connected.queue.reached_at(local);
                }
                if let Some(authentication) = &mut connected.authentication {
                    result |= Connect::AUTHENTICATE;
                    self.remote.iter().for_each(|from| authentication.came_from(from.ip()));
                }
                self.sender.set_depth(connected.depth);
                if let Queue::Io(queue) = &connected.queue {
                    queue.wake_with(&context.channels.wake);
                }
                let head = self.commands.begin(connected);
                self.receiver.set_max_data(context.limits.data_limit());
                Cqe::new(slot.cid, Status::SUCCESS, result.into(), head)
            }
            Err(refusal) => {
                self.finish(context);
                Cqe::new(slot.cid, refusal.status, refusal.result.into(), 0)
            }
        };
        self.commands.answer(answer, &mut self.sender);
    }
}
