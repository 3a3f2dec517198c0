//! The commands of a queue that are not answered yet.

use ebb_policy::units::Nanos;

use crate::controller::Plan;
use crate::device::Buffer;
use crate::wire::{Sqe, Status};

/// A command's data while we have it.
#[derive(Debug, Default)]
pub(super) enum Payload {
    #[default]
    None,
    /// On its way to or from a device.
    Pooled(Buffer),
    /// Of an admin or fabrics command.
    Bytes(Vec<u8>),
}

impl Payload {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Pooled(buffer) => buffer,
            Self::Bytes(bytes) => bytes,
        }
    }
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::None => &mut [],
            Self::Pooled(buffer) => buffer,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What an outstanding command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A buffer.
    Starved,
    /// Data from the host.
    Receiving,
    /// The device or, for an asynchronous event request, an event.
    Working,
}

/// One outstanding command.
#[derive(Debug)]
pub(super) struct Slot {
    pub cid: u16,
    pub state: State,
    pub sqe: Sqe,
    pub plan: Option<Plan>,
    pub payload: Payload,
    /// What the namespace holds, for Compare.
    pub compared: Option<Buffer>,
    /// Bytes of data to transfer, either way.
    pub length: u32,
    /// Bytes received from the host.
    pub received: u32,
    /// When it was taken up.
    pub since: Nanos,
    /// Requests the device has not completed.
    pub pending: u16,
    /// The first failure of those it has.
    pub status: Status,
}

impl Slot {
    pub fn new(sqe: Sqe, state: State, length: u32, since: Nanos) -> Self {
        Self {
            cid: sqe.cid.get(),
            state,
            sqe,
            plan: None,
            payload: Payload::None,
            compared: None,
            length,
            received: 0,
            since,
            pending: 0,
            status: Status::SUCCESS,
        }
    }
}

/// Marks a free entry of `cids`; no command identifier has this value.
const FREE: u32 = u32::MAX;

/// A table as large as the queue is deep.
#[derive(Debug)]
pub(super) struct Slots {
    /// Beside the slots and dense, so that looking for a double is one sweep over a few lines.
    cids: Vec<u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
}

impl Slots {
    /// For `depth` commands at once.
    pub fn new(depth: u16) -> Self {
        let entries = usize::from(depth);
        Self {
            cids: vec![FREE; entries],
            slots: (0..entries).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    /// Whether a command with this identifier is outstanding.
    pub fn holds(&self, cid: u16) -> bool {
        self.cids.contains(&u32::from(cid))
    }

    /// Keeps `slot`; `None` when the queue is full.
    pub fn insert(&mut self, slot: Slot) -> Option<u16> {
        let index = self.free.pop()?;
        self.cids[usize::from(index)] = u32::from(slot.cid);
        self.slots[usize::from(index)] = Some(slot);
        Some(index)
    }

    pub fn get(&mut self, index: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(index))?.as_mut()
    }

    pub fn remove(&mut self, index: u16) -> Option<Slot> {
        let slot = self.slots.get_mut(usize::from(index))?.take()?;
        self.cids[usize::from(index)] = FREE;
        self.free.push(index);
        Some(slot)
    }

    /// The slot of command `cid`.
    pub fn find(&self, cid: u16) -> Option<u16> {
        self.cids.iter().position(|held| *held == u32::from(cid)).map(|index| index as u16)
    }

    /// Commands that fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}
