//! The commands of a queue that are not answered yet.

use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;

use super::ledger::Kind;
use crate::controller::{Plan, range_at, takes_data};
use crate::device::{Buffer, Op};

/// A command's data while we have it.
#[derive(Debug, Default)]
pub(super) enum Payload {
    /// There is none, or what comes is thrown away.
    #[default]
    None,
    /// On its way to or from a device.
    Pooled(Buffer),
    /// Connect's, or a message for authentication.
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
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::None => None,
            Self::Pooled(buffer) => Some(buffer),
            Self::Bytes(bytes) => Some(bytes),
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
    /// When its data was asked for, if it was.
    pub asked: Option<Nanos>,
    /// How far a command that is done in slices is: ranges done, and blocks of the next.
    done: (u16, u32),
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
            asked: None,
            done: (0, 0),
            pending: 0,
            status: Status::SUCCESS,
        }
    }

    /// The buffers it takes before it can run, if any, and of which kind; `is_here`: its data came
    /// with it. Data that does not matter is thrown away.
    pub fn wants(&self, is_here: bool) -> Option<(Kind, u32)> {
        let data = if is_here { Kind::Capsule } else { Kind::Data };
        match self.plan {
            _ if self.length == 0 => None,
            None => {
                let matters = self.state != State::Receiving || takes_data(&self.sqe);
                matters.then_some((Kind::of_answer(self.length), 1))
            }
            Some(Plan::Compare { .. }) => Some((data, 2)),
            Some(Plan::Deallocate { .. }) => Some((Kind::List, 1)),
            Some(Plan::Nothing) => None,
            Some(_) => Some((data, 1)),
        }
    }

    /// Whether the device does it in slices: it may take long and needs no transfer buffer.
    pub fn is_long(&self) -> bool {
        match self.plan {
            Some(Plan::Device { op, .. }) => !matches!(op, Op::Read { .. } | Op::Write { .. }),
            Some(Plan::Deallocate { .. }) => true,
            _ => false,
        }
    }

    fn ranges(&self) -> u16 {
        match self.plan {
            Some(Plan::Deallocate { ranges, .. }) => ranges,
            _ => 1,
        }
    }

    /// Whether no slice has been taken.
    pub fn is_whole(&self) -> bool {
        self.done == (0, 0)
    }

    /// Whether the last slice has been taken.
    pub fn is_sliced(&self) -> bool {
        self.done.0 == self.ranges()
    }

    /// The next piece of at most `most` blocks of a command that is done in slices; moves on past
    /// it. `None` when all is done.
    pub fn slice(&mut self, most: u32) -> Option<(Op, u64, u32)> {
        while !self.is_sliced() {
            let (number, past) = self.done;
            let (op, (lba, blocks)) = match self.plan? {
                Plan::Device { op, lba, blocks, .. } => (op, (lba, blocks)),
                _ => (Op::Deallocate, range_at(self.payload.bytes(), number)?),
            };
            let count = most.min(blocks - past);
            self.done = (number, past + count);
            if self.done.1 == blocks {
                self.done = (number + 1, 0);
            }
            if count > 0 || op == Op::Flush {
                return Some((op, lba + u64::from(past), count));
            }
        }
        None
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
    /// Bytes of memory for each command there can be at once.
    pub const ENTRY: usize = size_of::<Option<Slot>>() + size_of::<u32>() + size_of::<u16>();

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
        self.free.len() < self.cids.len() && self.cids.contains(&u32::from(cid))
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

    pub fn at(&self, index: u16) -> Option<&Slot> {
        self.slots.get(usize::from(index))?.as_ref()
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

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().flatten()
    }

    /// With their indices.
    pub fn entries(&self) -> impl Iterator<Item = (u16, &Slot)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Pool;

    fn slices(plan: Plan, data: &[u8], most: u32) -> Vec<(u64, u32)> {
        let mut slot = Slot::new(Sqe::new(0, 1), State::Working, 0, Nanos::ZERO);
        slot.plan = Some(plan);
        let mut buffer = Pool::new(1, 4096).unwrap().take(data.len()).unwrap();
        buffer.copy_from_slice(data);
        slot.payload = Payload::Pooled(buffer);
        std::iter::from_fn(|| slot.slice(most).map(|(_, lba, blocks)| (lba, blocks))).collect()
    }

    #[test]
    fn slices_cover_every_range_once_and_in_order() {
        let ranges = [(5_u64, 10_u32), (40, 0), (100, 8), (7, 1)];
        let data: Vec<u8> = ranges
            .iter()
            .flat_map(|(lba, blocks)| {
                let words = [&[0; 4], &blocks.to_le_bytes()[..], &lba.to_le_bytes()].concat();
                words.into_iter()
            })
            .collect();
        let deallocate = Plan::Deallocate { namespace: 0, ranges: 4 };
        assert_eq!(
            slices(deallocate, &data, 4),
            [(5, 4), (9, 4), (13, 2), (100, 4), (104, 4), (7, 1)]
        );
        let empty = Plan::Deallocate { namespace: 0, ranges: 1 };
        assert_eq!(slices(empty, &data[16..], 4), []);
        let zeroes = |op, blocks| Plan::Device { namespace: 0, op, lba: 3, blocks };
        let durable = Op::WriteZeroes { durable: true };
        assert_eq!(slices(zeroes(durable, 9), &[], 4), [(3, 4), (7, 4), (11, 1)]);
        assert_eq!(slices(zeroes(Op::Flush, 0), &[], 4), [(3, 0)]);
    }
}
