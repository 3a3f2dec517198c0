//! One NVMe queue as a host has it: the commands under way, and whether each is answered once,
//! in time, as it must be.

use std::collections::BTreeMap;

use ebb_nvme::command::{FABRICS, fabrics, io, sgl};
use ebb_nvme::fabrics::{Connect, DISCOVERY_NQN};
use ebb_nvme::pdu::{CapsuleResp, Digests, Initialize, Kind, Transfer, flag};
use ebb_nvme::{Cqe, Sqe, Status};
use ebb_policy::units::Nanos;
use rand::RngExt;
use zerocopy::FromBytes;

use super::history::{BLOCK, Content, Moment, fill, tag_of};
use super::link::{Link, Pdu};
use super::scene::{ATTACKED, Extent, Scene};

pub const NQN: &str = "nqn.2026-11.org.example:simulation";

/// What a command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Connect,
    /// On the admin queue: which of its host's wishes.
    Admin(u8),
    /// Waits for an event.
    Event,
    Read(Extent),
    Write(Extent),
    /// With a tag.
    Compare(Extent, u64),
    /// Write Zeroes or deallocation.
    Clear(Vec<Extent>),
    Flush,
}

struct Command {
    work: Work,
    /// Its name in the history.
    moment: Moment,
    /// When it was sent.
    step: u64,
    polls: u64,
    since: Nanos,
    /// What it sends or gets.
    data: Vec<u8>,
    done: usize,
}

impl Command {
    /// The namespace whose blocks it is for.
    fn namespace(&self) -> Option<usize> {
        match &self.work {
            Work::Read(extent) | Work::Write(extent) | Work::Compare(extent, _) => {
                Some(extent.namespace)
            }
            Work::Clear(extents) => Some(extents[0].namespace),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (done, all) = (self.done, self.data.len());
        write!(out, "{:?}, {done} of {all} bytes moved", self.work)
    }
}

/// The answer to a command.
#[derive(Debug)]
pub struct Answer {
    pub work: Work,
    pub status: Status,
    pub result: u64,
}

/// Why a queue is of no use any more.
#[derive(Debug)]
pub enum Trouble {
    /// The connection has ended.
    Closed,
    /// The target did what it must not.
    Wrong(String),
}

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

/// How a host treats its queues.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Takes up to so many bytes at a time.
    pub appetite: usize,
    /// Leaves R2Ts unanswered.
    pub hoards: bool,
}

pub struct Queue {
    pub link: Link,
    host: u8,
    pub number: u16,
    pub is_ready: bool,
    /// The target will close it, or may.
    pub may_close: bool,
    pub epoch: u64,
    /// Entries.
    depth: u16,
    flow_control: bool,
    wish: Digests,
    connect: (Sqe, Vec<u8>),
    max_data: usize,
    next: u16,
    commands: BTreeMap<u16, Command>,
}

impl Queue {
    /// Begins a connection for queue `number` of `controller` (FFFFh: a new one).
    pub fn open(
        scene: &mut Scene,
        host: u8,
        number: u16,
        controller: u16,
        keep_alive: u32,
        discovers: bool,
    ) -> Option<Self> {
        let mut link = Link::new(scene.connect()?);
        let epoch = scene.epochs[link.pipe.port];
        let random = &mut scene.random;
        let wish = Digests::from_byte(random.random_range(0..4));
        link.greet(wish, 4 << random.random_range(0..4));
        let depth = random.random_range(2..=32_u16);
        let flow_control = random.random();
        let mut sqe = Sqe::new(FABRICS, 0);
        sqe.nsid = u32::from(fabrics::CONNECT).into();
        sqe.sgl_length = 1024.into();
        sqe.sgl_identifier = sgl::IN_CAPSULE;
        sqe.set_cdw(10, u32::from(number) << 16);
        let attributes = if flow_control { 0 } else { u32::from(Connect::NO_FLOW_CONTROL) };
        sqe.set_cdw(11, u32::from(depth - 1) | attributes << 16);
        sqe.set_cdw(12, keep_alive);
        let mut data = vec![0; 1024];
        data[..16].fill(host);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        let subsystem = if discovers { DISCOVERY_NQN } else { NQN };
        data[256..][..subsystem.len()].copy_from_slice(subsystem.as_bytes());
        let name = format!("nqn.2026-11.org.example:host{host}");
        data[512..][..name.len()].copy_from_slice(name.as_bytes());
        Some(Self {
            link,
            host,
            number,
            is_ready: false,
            may_close: false,
            epoch,
            depth,
            flow_control,
            wish,
            connect: (sqe, data),
            max_data: 4096,
            next: scene.random.random(),
            commands: BTreeMap::new(),
        })
    }

    /// Whether its connection must end.
    pub fn is_cut(&self, scene: &Scene) -> bool {
        self.epoch != scene.epochs[self.link.pipe.port]
    }

    /// Whether a command for a namespace is under way.
    pub fn uses(&self, namespace: usize) -> bool {
        self.commands.values().any(|command| command.namespace() == Some(namespace))
    }

    /// Whether another command may be sent now.
    pub fn has_room(&self) -> bool {
        self.has_room_for(1)
    }

    pub fn has_room_for(&self, commands: usize) -> bool {
        // One entry of a queue is always free (Base 3.3.3.1).
        self.is_ready
            && self.commands.len() + commands < usize::from(self.depth)
            && self.link.unsent() < 64 << 10
    }

    /// Whether all commands but those for events are answered.
    pub fn is_idle(&self) -> bool {
        self.commands.values().all(|command| command.work == Work::Event)
    }

    pub fn has_events(&self) -> bool {
        self.commands.values().any(|command| command.work == Work::Event)
    }

    /// Sends `sqe` with `data`, in its capsule or when asked for; or takes up to `expects` bytes.
    pub fn submit(
        &mut self,
        scene: &mut Scene,
        mut sqe: Sqe,
        (work, moment): (Work, Moment),
        data: Vec<u8>,
        expects: usize,
    ) {
        while self.commands.contains_key(&self.next) || self.next == u16::MAX {
            self.next = self.next.wrapping_add(1);
        }
        let cid = self.next;
        self.next = self.next.wrapping_add(1);
        sqe.cid = cid.into();
        let in_capsule = !data.is_empty() && data.len() <= 8 << 10 && scene.random.random();
        let length = data.len().max(expects);
        sqe.sgl_length = (length as u32).into();
        sqe.sgl_identifier = if in_capsule { sgl::IN_CAPSULE } else { sgl::TRANSPORT };
        self.link.command(sqe, if in_capsule { &data } else { &[] });
        let done = if in_capsule { data.len() } else { 0 };
        let data = if data.is_empty() { vec![0; expects] } else { data };
        let (step, polls, since) = (scene.step, scene.polls[self.link.group], scene.now);
        let what = [self.link.group as u64, self.number.into(), cid.into(), sqe.opcode.into()];
        scene.note("command: group, queue, cid, opcode", what);
        self.commands.insert(cid, Command { work, moment, step, polls, since, data, done });
    }

    /// An I/O command of some kind on `extent`.
    pub fn submit_io(&mut self, scene: &mut Scene, opcode: u8, extent: Extent) {
        let mut sqe = Sqe::new(opcode, 0);
        sqe.nsid = scene.spaces[extent.namespace].id.into();
        sqe.set_cdw(10, extent.lba as u32);
        sqe.set_cdw(11, (extent.lba >> 32) as u32);
        let force = if scene.once_in(4) { 1 << 30 } else { 0 };
        sqe.set_cdw(12, (extent.blocks - 1) | force);
        let length = extent.blocks as usize * BLOCK;
        let tag = scene.next_tag();
        let (work, data, expects) = match opcode {
            io::READ => {
                let read = scene.history.begin_read(extent.places());
                ((Work::Read(extent), read), Vec::new(), length)
            }
            io::WRITE => {
                let mut data = vec![0; length];
                fill(&mut data, tag, extent.lba);
                let write = scene.history.begin_write(extent.places(), Content::Of(tag));
                if scene.recent.len() == 16 {
                    scene.recent.pop_front();
                }
                if extent.namespace != ATTACKED {
                    scene.recent.push_back((extent, tag));
                }
                ((Work::Write(extent), write), data, 0)
            }
            io::COMPARE => {
                // With what was written here lately, if that is known: both outcomes happen.
                let known = scene.recent.iter().find(|(written, _)| *written == extent);
                let tag = known.map_or(0, |(_, tag)| *tag);
                let mut data = vec![0; length];
                if tag > 0 {
                    fill(&mut data, tag, extent.lba);
                }
                let read = scene.history.begin_read(extent.places());
                ((Work::Compare(extent, tag), read), data, 0)
            }
            io::WRITE_ZEROES => {
                let write = scene.history.begin_write(extent.places(), Content::Of(0));
                ((Work::Clear(vec![extent]), write), Vec::new(), 0)
            }
            _ => ((Work::Flush, 0), Vec::new(), 0),
        };
        self.submit(scene, sqe, work, data, expects);
    }

    /// Deallocates `extents`, all of one namespace.
    pub fn deallocate(&mut self, scene: &mut Scene, extents: Vec<Extent>) {
        let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, 0);
        sqe.nsid = scene.spaces[extents[0].namespace].id.into();
        sqe.set_cdw(10, extents.len() as u32 - 1);
        sqe.set_cdw(11, 1 << 2);
        let mut data = Vec::new();
        for extent in &extents {
            data.extend_from_slice(&[0; 4]);
            data.extend_from_slice(&extent.blocks.to_le_bytes());
            data.extend_from_slice(&extent.lba.to_le_bytes());
        }
        // Where ranges overlap, a block changes more than once.
        let places = extents.iter().flat_map(|extent| extent.places());
        let write = scene.history.begin_write(places, Content::Undefined);
        self.submit(scene, sqe, (Work::Clear(extents), write), data, 0);
    }

    /// Sends and receives. What was answered.
    pub fn turn(&mut self, scene: &mut Scene, manner: Manner) -> Result<Vec<Answer>, Trouble> {
        let mut answers = Vec::new();
        let is_open = self.link.receive(manner.appetite);
        while let Some(pdu) = self.link.pdu()? {
            self.take(scene, pdu, manner, &mut answers)?;
        }
        self.link.send(&mut scene.random);
        if !is_open && answers.is_empty() {
            return Err(Trouble::Closed);
        }
        Ok(answers)
    }

    /// The oldest command that must be answered.
    pub fn oldest(&self) -> String {
        let awaited = self.commands.values().filter(|command| command.work != Work::Event);
        let oldest = awaited.min_by_key(|command| command.since);
        format!("queue {} of group {}: {oldest:?}", self.number, self.link.group)
    }

    /// How long the oldest command that must be answered is under way: polls, nanoseconds.
    pub fn age(&self, scene: &Scene) -> (u64, u64) {
        let awaited = self.commands.values().filter(|command| command.work != Work::Event);
        let polls = scene.polls[self.link.group];
        awaited.fold((0, 0), |(most, longest), one| {
            (most.max(polls - one.polls), longest.max(scene.now.0 - one.since.0))
        })
    }

    fn take(
        &mut self,
        scene: &mut Scene,
        pdu: Pdu,
        manner: Manner,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Trouble> {
        match pdu.frame.kind {
            Kind::IcResp => {
                let (answer, _) = Initialize::read_from_prefix(&pdu.head).unwrap();
                if answer.digests != self.wish.to_byte() || answer.limit.get() < 4096 {
                    return Err(format!("not what was asked for: {answer:?}").into());
                }
                self.link.digests = self.wish;
                self.max_data = answer.limit.get() as usize;
                let (sqe, data) = std::mem::replace(&mut self.connect, (Sqe::new(0, 0), vec![]));
                self.link.command(sqe, &data);
                let (step, polls, since) = (scene.step, scene.polls[self.link.group], scene.now);
                let (work, moment, done) = (Work::Connect, 0, 1024);
                let command = Command { work, moment, step, polls, since, data, done };
                self.commands.insert(0, command);
            }
            Kind::CapsuleResp => {
                let (capsule, _) = CapsuleResp::read_from_prefix(&pdu.head).unwrap();
                answers.push(self.answered(scene, &capsule.cqe)?);
            }
            Kind::C2hData => {
                let (header, _) = Transfer::read_from_prefix(&pdu.head).unwrap();
                answers.extend(self.arrived(scene, &header, &pdu)?);
            }
            Kind::R2t if manner.hoards => {}
            Kind::R2t => {
                let (header, _) = Transfer::read_from_prefix(&pdu.head).unwrap();
                self.send_data(scene, &header)?;
            }
            Kind::C2hTermReq => return Err(format!("terminated: {:02x?}", pdu.head).into()),
            kind => return Err(format!("a {kind:?}").into()),
        }
        Ok(())
    }

    /// Data from the target.
    fn arrived(
        &mut self,
        scene: &mut Scene,
        header: &Transfer,
        pdu: &Pdu,
    ) -> Result<Option<Answer>, Trouble> {
        let cid = header.cid.get();
        let Some(command) = self.commands.get_mut(&cid) else {
            return Err(format!("data for nobody, {header:?}").into());
        };
        let (offset, length) = (header.offset.get() as usize, pdu.data.len());
        let sends = matches!(command.work, Work::Write(_) | Work::Compare(..) | Work::Clear(_));
        if sends || offset != command.done || offset + length > command.data.len() || length == 0 {
            return Err(format!("data out of place, {header:?} for {command:?}").into());
        }
        command.data[offset..offset + length].copy_from_slice(&pdu.data);
        command.done += length;
        if pdu.frame.flags & flag::SUCCESS == 0 {
            return Ok(None);
        }
        if self.flow_control || pdu.frame.flags & flag::LAST == 0 {
            return Err("success that is not to be told so".to_owned().into());
        }
        self.answered(scene, &Cqe::new(cid, Status::SUCCESS, 0, u16::MAX)).map(Some)
    }

    /// The data that an R2T asks for, in pieces.
    fn send_data(&mut self, scene: &mut Scene, header: &Transfer) -> Result<(), Trouble> {
        let Some(command) = self.commands.get_mut(&header.cid.get()) else {
            return Err(format!("an R2T for nobody, {header:?}").into());
        };
        let (offset, length) = (header.offset.get() as usize, header.length.get() as usize);
        let end = offset + length;
        if offset != command.done || end > command.data.len() || length == 0 {
            return Err(format!("an R2T out of place, {header:?} for {command:?}").into());
        }
        let mut at = offset;
        while at < end {
            let most = self.max_data.min(end - at);
            let piece = if scene.once_in(2) { most } else { scene.random.random_range(1..=most) };
            let data = &command.data[at..at + piece];
            self.link.data(header, at as u32, data, at + piece == end);
            at += piece;
        }
        command.done = end;
        Ok(())
    }

    fn answered(&mut self, scene: &mut Scene, cqe: &Cqe) -> Result<Answer, Trouble> {
        let (cid, status) = (cqe.cid.get(), cqe.status());
        let Some(command) = self.commands.remove(&cid) else {
            return Err(format!("an answer to nobody, {cqe:?}").into());
        };
        let head = cqe.sq_head.get();
        let is_head = if self.flow_control { head < self.depth } else { head == u16::MAX };
        if !is_head && command.work != Work::Connect {
            return Err(format!("a queue head of {head}, of {}", self.depth).into());
        }
        let all = command.done == command.data.len();
        let moves = !matches!(command.work, Work::Admin(_) | Work::Event);
        if status.is_success() && moves && !all {
            return Err(format!("success before the data, {command:?}").into());
        }
        let what = [self.link.group as u64, self.number.into(), cid.into(), cqe.status.into()];
        scene.note("answer: group, queue, cid, status", what);
        scene.tally.longest = scene.tally.longest.max(scene.now.0 - command.since.0);
        scene.tally.interrupted += u64::from(status == Status::COMMAND_INTERRUPTED);
        // Of an address that was given up, the target has another for its own.
        let port = (!self.is_cut(scene)).then_some(self.link.pipe.port);
        if status.is_success()
            && let Some(namespace) = command.namespace()
        {
            // It waited for what was left of older queues of the same host.
            scene.settle_older(self.host, namespace, command.step);
        }
        verify(scene, &command, status, port)?;
        Ok(Answer { work: command.work, status, result: cqe.result.get() })
    }

    /// The connection is over: what was under way may have happened or not, or may happen.
    pub fn give_up(&mut self, scene: &mut Scene, host: u8, admin: Option<&Self>) {
        let admin = admin.map(|admin| admin.link.pipe.clone());
        for command in std::mem::take(&mut self.commands).into_values() {
            match command.work {
                Work::Read(extent) | Work::Compare(extent, _) => {
                    scene.history.abandon_read(extent.places(), command.moment);
                }
                Work::Write(extent) => {
                    let pipes = [Some(self.link.pipe.clone()), admin.clone()];
                    scene.orphan(host, pipes, vec![extent], command.moment);
                }
                Work::Clear(extents) => {
                    let pipes = [Some(self.link.pipe.clone()), admin.clone()];
                    scene.orphan(host, pipes, extents, command.moment);
                }
                _ => {}
            }
        }
    }

    /// The target says that nothing of this queue is under way: it never will be.
    pub fn give_up_for_good(&mut self, scene: &mut Scene) {
        for command in std::mem::take(&mut self.commands).into_values() {
            let extents = match command.work {
                Work::Read(extent) | Work::Compare(extent, _) => {
                    scene.history.abandon_read(extent.places(), command.moment);
                    continue;
                }
                Work::Write(extent) => vec![extent],
                Work::Clear(extents) => extents,
                _ => continue,
            };
            for extent in extents {
                scene.history.end_write(extent.places(), command.moment, false);
            }
        }
    }
}

/// Whether an answer fits what was answered before.
fn verify(
    scene: &mut Scene,
    command: &Command,
    status: Status,
    port: Option<usize>,
) -> Result<(), String> {
    let (moment, ok) = (command.moment, status.is_success());
    let history = &mut scene.history;
    let extent = match &command.work {
        Work::Read(extent) if ok => {
            let mut values = Vec::new();
            let blocks = command.data.as_chunks::<BLOCK>().0;
            let blocks = &blocks[..extent.places().count()];
            for (index, block) in blocks.iter().enumerate() {
                values.push(tag_of(block, extent.lba + index as u64)?);
            }
            history.end_read(extent.places(), moment, values.into_iter())?;
            extent
        }
        Work::Compare(extent, tag) if ok => {
            let values = std::iter::repeat_n(*tag, extent.blocks as usize);
            history.end_read(extent.places(), moment, values)?;
            extent
        }
        Work::Compare(extent, tag) if status == Status::COMPARE_FAILURE => {
            let same =
                extent.namespace != ATTACKED && history.held_only(extent.places(), moment, *tag);
            history.abandon_read(extent.places(), moment);
            return if same { Err(format!("{extent:?} was equal to {tag}")) } else { Ok(()) };
        }
        Work::Read(extent) | Work::Compare(extent, _) => {
            history.abandon_read(extent.places(), moment);
            extent
        }
        Work::Write(extent) => {
            history.end_write(extent.places(), moment, ok);
            extent
        }
        Work::Clear(extents) => {
            for extent in extents {
                history.end_write(extent.places(), moment, ok);
            }
            &extents[0]
        }
        _ => return Ok(()),
    };
    let space = &scene.spaces[extent.namespace];
    let path = port.map(|port| space.paths[port]);
    let may_fail = match status {
        Status::INVALID_NAMESPACE => space.is_gone,
        Status::ANA_INACCESSIBLE | Status::ANA_TRANSITION => {
            path.is_none_or(|path| path.is_shut || path.since >= command.since)
        }
        _ => space.fails,
    };
    if !ok && !may_fail {
        return Err(format!("{:?} failed with {status:?}", command.work));
    }
    if ok && path.is_some_and(|path| path.is_shut && path.since < command.since) {
        return Err(format!("{:?} by a path that is shut", command.work));
    }
    Ok(())
}
