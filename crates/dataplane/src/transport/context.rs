//! What connections of a group share and work with: devices, buffers, their host's turn.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebb_policy::units::Nanos;

use super::Limits;
use crate::controller::{Namespace, Subsystem, Wake};
use crate::device::{Channel, Done, Io, Loan, Pool};
use crate::reactor::Waiting;

/// What a connection works with and does not own.
pub(super) struct Context<'a> {
    pub subsystem: &'a Arc<Subsystem>,
    pub limits: &'a Limits,
    pub pool: &'a Pool,
    pub channels: &'a mut Channels,
    /// Bytes that its host may still have moved in this turn.
    pub turn: &'a mut u32,
    /// Buffers that its host's other connections hold.
    pub others: u32,
    /// Commands of its host that are done in slices and have none under way: connection and slot.
    pub long: &'a mut VecDeque<u64>,
    /// Where the group shows what waits, and what of it waits behind this connection.
    pub known: &'a Waiting,
    pub behind: u32,
    pub now: Nanos,
}

/// One lightweight thread's channels, by namespace, and what has it look at its connections again.
pub(super) struct Channels {
    list: Vec<Way>,
    pub wake: Wake,
}

/// The way to a namespace.
struct Way {
    channel: Box<dyn Channel>,
    under_way: usize,
    /// Blocks of one slice of a long command.
    slice: u32,
}

impl Channels {
    /// With `pool` known to each as what most buffers come from.
    pub fn open(subsystem: &Subsystem, pool: &Pool, wake: Wake) -> io::Result<Self> {
        let way = |namespace: &Namespace| {
            let (device, geometry) = (&namespace.device, namespace.device.geometry());
            let slice = device.slice() / u64::from(geometry.block_size);
            let slice = slice.clamp(1, u32::MAX.into()) as u32;
            let mut channel = device.open()?;
            channel.register(pool);
            Ok(Way { channel, under_way: 0, slice })
        };
        Ok(Self { list: subsystem.namespaces().iter().map(way).collect::<io::Result<_>>()?, wake })
    }

    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter_map(|way| way.channel.wake_fd())
    }

    pub fn submit(&mut self, namespace: usize, io: Io) {
        let way = &mut self.list[namespace];
        way.under_way += 1;
        way.channel.submit(io);
    }

    pub fn lend(&mut self, namespace: usize, lba: u64, blocks: u32) -> Option<Loan> {
        self.list[namespace].channel.lend(lba, blocks)
    }

    pub fn store(&mut self, namespace: usize, lba: u64, data: &[u8]) -> bool {
        self.list[namespace].channel.store(lba, data)
    }

    pub fn poll(&mut self, done: &mut Vec<Done>) {
        for way in self.list.iter_mut().filter(|way| way.under_way > 0) {
            let count = way.channel.poll(done);
            assert!(count <= way.under_way, "a device completes what it was given");
            way.under_way -= count;
        }
    }

    pub fn slice(&self, namespace: usize) -> u32 {
        self.list[namespace].slice
    }

    pub fn under_way(&self) -> u64 {
        self.list.iter().map(|way| way.under_way as u64).sum()
    }
}
