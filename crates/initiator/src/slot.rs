//! Commands on their way.

use std::time::{Duration, Instant};

use ebb_nvme::Status;

use super::{Direction, Violation};

/// Bits of a command identifier that say which slot; the others count its uses, so that an answer
/// that comes twice or late is told from the one expected.
const INDEX_BITS: u32 = 12;
/// Most commands outstanding on one queue.
pub(super) const MOST: usize = 1 << INDEX_BITS;

/// A command that was answered.
#[derive(Debug)]
pub struct Completion {
    /// The tag of its request.
    pub tag: u64,
    /// How it ended.
    pub status: Status,
    /// Dwords 0 and 1 of the completion queue entry.
    pub result: u64,
    /// The buffer of its request; after a successful read, with the data.
    pub buffer: Vec<u8>,
    /// From the instant given with the request to when the answer was seen.
    pub latency: Duration,
}

/// A transfer that the target asked for and that is not all in the outbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// The target's tag for it.
    pub tag: u16,
    /// Next byte to send.
    pub at: usize,
    /// Where it ends.
    pub end: usize,
}

/// One command, from its submission to its answer.
#[derive(Debug)]
pub(super) struct Slot {
    /// Identifier of the present command, or of the next one.
    pub cid: u16,
    /// Whether there is a command.
    pub busy: bool,
    /// Which way its data goes.
    pub direction: Direction,
    /// Its data.
    pub buffer: Vec<u8>,
    /// Bytes received, or asked for by the target, or sent with the command.
    pub moved: usize,
    /// The transfer that was asked for, while not all of it is in the outbox.
    pub asked: Option<Asked>,
    /// Parts of `buffer` that are in the outbox.
    pub unsent: u32,
    /// Of the request.
    pub tag: u64,
    /// Where its latency counts from.
    pub from: Instant,
}

/// All commands of a queue.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    free: Vec<u16>,
}

impl Slots {
    pub fn new(depth: usize) -> Self {
        let depth = depth.clamp(1, MOST) as u16;
        let from = Instant::now();
        let slot = |index| Slot {
            cid: index,
            busy: false,
            direction: Direction::None,
            buffer: Vec::new(),
            moved: 0,
            asked: None,
            unsent: 0,
            tag: 0,
            from,
        };
        Self { all: (0..depth).map(slot).collect(), free: (0..depth).rev().collect() }
    }
    pub fn room(&self) -> usize {
        self.free.len()
    }
    pub fn busy(&self) -> usize {
        self.all.len() - self.free.len()
    }
    /// A free slot, busy from now on.
    pub fn take(&mut self) -> Option<(u16, &mut Slot)> {
        let index = self.free.pop()?;
        let slot = &mut self.all[usize::from(index)];
        (slot.busy, slot.moved, slot.asked, slot.unsent) = (true, 0, None, 0);
        Some((index, slot))
    }
    /// The slot of an outstanding command.
    pub fn find(&mut self, cid: u16) -> Result<(u16, &mut Slot), Violation> {
        let index = cid & (MOST as u16 - 1);
        match self.all.get_mut(usize::from(index)) {
            Some(slot) if slot.busy && slot.cid == cid => Ok((index, slot)),
            _ => Err(Violation::UnknownCommand(cid)),
        }
    }
    pub fn at(&mut self, index: u16) -> &mut Slot {
        &mut self.all[usize::from(index)]
    }
    pub fn data(&self, index: u16) -> &[u8] {
        &self.all[usize::from(index)].buffer
    }
    /// The command of `index` was answered.
    pub fn finish(&mut self, index: u16, status: Status, result: u64, now: Instant) -> Completion {
        let slot = &mut self.all[usize::from(index)];
        slot.busy = false;
        slot.cid = slot.cid.wrapping_add(MOST as u16);
        self.free.push(index);
        Completion {
            tag: slot.tag,
            status,
            result,
            buffer: std::mem::take(&mut slot.buffer),
            latency: now.saturating_duration_since(slot.from),
        }
    }
    /// Tags and buffers of what is still outstanding; nothing is afterwards.
    pub fn abandon(&mut self) -> impl Iterator<Item = (u64, Vec<u8>)> + '_ {
        let (all, free) = (&mut self.all, &mut self.free);
        all.iter_mut().enumerate().filter(|(_, slot)| slot.busy).map(|(index, slot)| {
            slot.busy = false;
            slot.cid = slot.cid.wrapping_add(MOST as u16);
            free.push(index as u16);
            (slot.tag, std::mem::take(&mut slot.buffer))
        })
    }
}

impl Slot {
    /// Whether its data has all gone over.
    pub fn check_whole(&self) -> Result<(), Violation> {
        let (cid, total) = (self.cid, self.buffer.len());
        if self.direction != Direction::None && self.moved < total {
            return Err(Violation::Early { cid, moved: self.moved, total });
        }
        Ok(())
    }
    /// Whether nothing of its data waits to be sent; an answer before that is no answer.
    pub fn check_sent(&self) -> Result<(), Violation> {
        let waiting = self.asked.map_or(0, |asked| asked.end - asked.at);
        if self.unsent > 0 || waiting > 0 {
            let (moved, total) = (self.moved - waiting, self.buffer.len());
            return Err(Violation::Early { cid: self.cid, moved, total });
        }
        Ok(())
    }
}
