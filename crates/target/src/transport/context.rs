//! What connections of a group share and work with: devices, buffers, their host's turn.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use ebb_nvme::Status;
use ebb_policy::units::Nanos;

use super::ledger::{ADMIN_LANE, Account, Kind, Ledger, Load};
use super::slots::{Payload, Slot};
use super::turns::Host;
use super::{Limits, steward};
use crate::controller::{Plan, Subsystem, Wake};
use crate::device::{Channel, Done, Io, Loan, Pool};
use crate::reactor::Waiting;

/// What a connection works with and does not own.
pub(super) struct Context<'a> {
    pub subsystem: &'a Arc<Subsystem>,
    pub limits: &'a Limits,
    pub ledger: &'a Ledger,
    pub channels: &'a mut Channels,
    /// Its host, and the host's number.
    pub host: &'a mut Host,
    pub number: usize,
    /// A command that has waited for a buffer is looked at again: those that wait are behind it.
    pub resumes: bool,
    /// It is so late that deadlines are looked at.
    pub is_tick: bool,
    /// Where the group shows what waits, and what of it waits behind this connection.
    pub known: &'a Waiting,
    pub behind: u32,
    pub now: Nanos,
}

impl Context<'_> {
    /// The lane of a command: its namespace's, or that of admin commands.
    pub fn lane(&self, plan: Option<&Plan>) -> usize {
        plan.and_then(Plan::namespace).map_or(ADMIN_LANE, lane)
    }

    /// That of a namespace, by its index.
    pub fn lane_of(&self, namespace: usize) -> usize {
        lane(namespace)
    }

    /// Gives a command the buffers that it wants, if it may have them now; `is_here`: its data came
    /// with it. Else, the kind that it must wait for.
    pub fn supply(&self, slot: &mut Slot, is_here: bool) -> Result<(), Kind> {
        let Some((kind, count)) = slot.wants(is_here) else { return Ok(()) };
        let account = Account { host: self.number, lane: self.lane(slot.plan.as_ref()) };
        let is_next = self.resumes || self.host.starved(account.lane, kind) == 0;
        if !is_next || !self.ledger.may(kind, account, count, self.channels.loads()) {
            return Err(kind);
        }
        let take = || self.ledger.take(kind, account, slot.length);
        let (first, second) = (take(), if count > 1 { take() } else { None });
        slot.payload = first.map_or(Payload::None, Payload::Pooled);
        slot.compared = second;
        Ok(())
    }
}

/// The lane of a namespace, by its index.
const fn lane(namespace: usize) -> usize {
    namespace + 1
}

/// One lightweight thread's channels, by namespace, and what has it look at its connections again.
pub(super) struct Channels {
    list: Vec<Option<Way>>,
    /// By lane.
    loads: Vec<Load>,
    /// Requests for namespaces that were removed.
    lost: Vec<Done>,
    /// Namespaces that are being removed.
    leaving: usize,
    /// Time without any completion after which a device that has requests is stalled.
    silence: Nanos,
    pub wake: Wake,
}

/// The way to a namespace.
struct Way {
    channel: Box<dyn Channel>,
    /// When it last completed something, or was given something while it had nothing.
    since: Nanos,
    /// Blocks of one slice of a long command.
    slice: u32,
    /// Who gets the channel when the device has nothing more.
    heir: Option<Sender<Box<dyn Channel>>>,
}

impl Channels {
    /// With `pools` known to each as what most buffers come from.
    pub fn open(
        subsystem: &Subsystem,
        pools: &[Pool],
        silence: Nanos,
        wake: Wake,
    ) -> io::Result<Self> {
        let (list, loads) = (Vec::new(), vec![Load::default()]);
        let mut this = Self { list, loads, lost: Vec::new(), leaving: 0, silence, wake };
        for namespace in subsystem.namespaces() {
            let (channel, slice) = steward::open(&*namespace.device, pools)?;
            this.attach(namespace.id as usize - 1, channel, slice);
        }
        Ok(this)
    }

    /// Uses `channel` for a namespace that had none.
    pub fn attach(&mut self, namespace: usize, channel: Box<dyn Channel>, slice: u32) {
        if self.list.len() <= namespace {
            self.list.resize_with(namespace + 1, || None);
            self.loads.resize(lane(namespace) + 1, Load::default());
        }
        let way = Way { channel, since: Nanos::ZERO, slice, heir: None };
        let before = self.list[namespace].replace(way);
        assert!(before.is_none(), "a namespace is added once");
    }

    /// Gives the channel of a namespace to `heir` once the device has nothing more of it.
    pub fn detach(&mut self, namespace: usize, heir: Sender<Box<dyn Channel>>) {
        if let Some(Some(way)) = self.list.get_mut(namespace) {
            way.heir = Some(heir);
            self.leaving += 1;
        }
    }

    /// Gives away the channels of those that were removed and are done; `forget` is told of each.
    pub fn bequeath(&mut self, mut forget: impl FnMut(usize, &dyn Channel)) {
        if self.leaving == 0 {
            return;
        }
        for (namespace, place) in self.list.iter_mut().enumerate() {
            let load = &mut self.loads[lane(namespace)];
            let is_done = |way: &mut Way| way.heir.is_some() && load.under_way == 0;
            let Some(Way { channel, heir: Some(heir), .. }) = place.take_if(is_done) else {
                continue;
            };
            (*load, self.leaving) = (Load::default(), self.leaving - 1);
            forget(namespace, &*channel);
            // An heir who waits no more drops it.
            let _ = heir.send(channel);
        }
    }

    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().flatten().filter_map(|way| way.channel.wake_fd())
    }

    /// That of one namespace.
    pub fn wake_fd(&self, namespace: usize) -> Option<BorrowedFd<'_>> {
        self.list.get(namespace)?.as_ref()?.channel.wake_fd()
    }

    pub fn submit(&mut self, namespace: usize, io: Io, now: Nanos) {
        let Some(Some(way)) = self.list.get_mut(namespace) else {
            return self.lost.push(io.done(Status::INVALID_NAMESPACE));
        };
        let load = &mut self.loads[lane(namespace)];
        if load.under_way == 0 {
            way.since = now;
        }
        load.under_way += 1;
        way.channel.submit(io);
    }

    pub fn lend(&mut self, namespace: usize, lba: u64, blocks: u32) -> Option<Loan> {
        self.list.get_mut(namespace)?.as_mut()?.channel.lend(lba, blocks)
    }

    pub fn store(&mut self, namespace: usize, lba: u64, data: &[u8]) -> bool {
        let way = self.list.get_mut(namespace).and_then(Option::as_mut);
        way.is_some_and(|way| way.channel.store(lba, data))
    }

    /// Takes what the devices have done; whether any has stalled or goes on again.
    pub fn poll(&mut self, done: &mut Vec<Done>, now: Nanos) -> bool {
        let mut is_new = false;
        done.append(&mut self.lost);
        let loads = self.loads.iter_mut().skip(lane(0));
        let busy = self.list.iter_mut().zip(loads).filter(|(_, load)| load.under_way > 0);
        for (way, load) in busy {
            let Some(way) = way else { continue };
            let count = way.channel.poll(done) as u32;
            assert!(count <= load.under_way, "a device completes what it was given");
            load.under_way -= count;
            if count > 0 {
                way.since = now;
            }
            let silent = now.saturating_sub(way.since);
            let waits = |silence: Nanos| load.under_way > 0 && silent >= silence;
            let (is_silent, is_stalled) = (waits(Nanos(self.silence.0 / 10)), waits(self.silence));
            is_new |= load.is_stalled != is_stalled;
            (load.is_silent, load.is_stalled) = (is_silent, is_stalled);
        }
        is_new
    }

    pub fn slice(&self, namespace: usize) -> u32 {
        self.list.get(namespace).and_then(Option::as_ref).map_or(1, |way| way.slice)
    }

    /// How the device of each lane is; that of admin commands is always well.
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Whether the device of each namespace is stalled.
    pub fn stalled(&self) -> impl Iterator<Item = bool> + '_ {
        self.loads.iter().skip(lane(0)).map(|load| load.is_stalled)
    }

    /// Whether the device of this lane is stalled.
    pub fn is_stalled(&self, lane: usize) -> bool {
        self.loads.get(lane).is_some_and(|load| load.is_stalled)
    }

    /// Whether the device of this lane gets more long work: not while it does not do what it has.
    /// Where the namespace goes, what waits must end.
    pub fn takes_long(&self, lane: usize) -> bool {
        let way = lane.checked_sub(1).and_then(|namespace| self.list.get(namespace)?.as_ref());
        !self.is_stalled(lane) || way.is_none_or(|way| way.heir.is_some())
    }

    pub fn under_way(&self) -> u64 {
        self.loads.iter().map(|load| u64::from(load.under_way)).sum()
    }
}
