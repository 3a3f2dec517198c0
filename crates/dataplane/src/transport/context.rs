//! What connections of a group share and work with: devices, buffers, their host's turn.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebb_policy::units::Nanos;

use super::Limits;
use super::ledger::{Account, Kind, Ledger, Load};
use super::slots::{Payload, Slot};
use super::turns::Host;
use crate::controller::{Namespace, Plan, Subsystem, Wake};
use crate::device::{Channel, Done, Io, Loan};
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
    /// Where the group shows what waits, and what of it waits behind this connection.
    pub known: &'a Waiting,
    pub behind: u32,
    pub now: Nanos,
}

impl Context<'_> {
    /// The lane of a command: its namespace's, or that of admin commands.
    pub fn lane(&self, plan: Option<&Plan>) -> usize {
        plan.and_then(Plan::namespace).unwrap_or(self.ledger.admin_lane())
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

/// One lightweight thread's channels, by namespace, and what has it look at its connections again.
pub(super) struct Channels {
    list: Vec<Way>,
    loads: Vec<Load>,
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
}

impl Channels {
    /// With the pools of `ledger` known to each as what most buffers come from.
    pub fn open(
        subsystem: &Subsystem,
        ledger: &Ledger,
        silence: Nanos,
        wake: Wake,
    ) -> io::Result<Self> {
        let way = |namespace: &Namespace| {
            let (device, geometry) = (&namespace.device, namespace.device.geometry());
            let slice = device.slice() / u64::from(geometry.block_size);
            let slice = slice.clamp(1, u32::MAX.into()) as u32;
            let mut channel = device.open()?;
            ledger.device_pools().iter().for_each(|pool| channel.register(pool));
            Ok(Way { channel, since: Nanos::ZERO, slice })
        };
        let list: Vec<_> = subsystem.namespaces().iter().map(way).collect::<io::Result<_>>()?;
        let loads = vec![Load::default(); list.len()];
        Ok(Self { list, loads, silence, wake })
    }

    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter_map(|way| way.channel.wake_fd())
    }

    pub fn submit(&mut self, namespace: usize, io: Io, now: Nanos) {
        let (way, load) = (&mut self.list[namespace], &mut self.loads[namespace]);
        if load.under_way == 0 {
            way.since = now;
        }
        load.under_way += 1;
        way.channel.submit(io);
    }

    pub fn lend(&mut self, namespace: usize, lba: u64, blocks: u32) -> Option<Loan> {
        self.list[namespace].channel.lend(lba, blocks)
    }

    pub fn store(&mut self, namespace: usize, lba: u64, data: &[u8]) -> bool {
        self.list[namespace].channel.store(lba, data)
    }

    /// Takes what the devices have done; whether any has stalled or goes on again.
    pub fn poll(&mut self, done: &mut Vec<Done>, now: Nanos) -> bool {
        let mut is_new = false;
        let busy = self.list.iter_mut().zip(&mut self.loads).filter(|(_, load)| load.under_way > 0);
        for (way, load) in busy {
            let count = way.channel.poll(done) as u32;
            assert!(count <= load.under_way, "a device completes what it was given");
            load.under_way -= count;
            if count > 0 {
                way.since = now;
            }
            let waits = load.under_way > 0 && now.saturating_sub(way.since) >= self.silence;
            is_new |= std::mem::replace(&mut load.is_stalled, waits) != waits;
        }
        is_new
    }

    pub fn slice(&self, namespace: usize) -> u32 {
        self.list[namespace].slice
    }

    /// How each device is.
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Whether the device of this namespace is stalled.
    pub fn is_stalled(&self, namespace: usize) -> bool {
        self.loads.get(namespace).is_some_and(|load| load.is_stalled)
    }

    pub fn under_way(&self) -> u64 {
        self.loads.iter().map(|load| u64::from(load.under_way)).sum()
    }
}
