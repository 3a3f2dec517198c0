//! One drive behind its queue: what is under way there, and what waits for a place.
//!
//! An SSD tells at once when a command will end. Such an end is an event only if an I/O waits for
//! it; for the queue it is a time, looked at when the queue seems full. A hard disk, which finds
//! its own order, tells by events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{DriveSignals, PowerState};
use ebb_trace::Op;

use super::device::Device;
use super::events::{Event, Events};
use super::io::{DriveCommand, Ios, Queue};
use super::waiting::Waiting;

/// One drive and the commands that wait for a place in its queue.
#[derive(Debug)]
pub(super) struct DriveQueue {
    pub(super) device: Device,
    depth: usize,
    /// Commands whose end is not known.
    open: usize,
    /// Known ends; those that have passed count until there is no other room.
    ends: BinaryHeap<Reverse<u64>>,
    last_end: u64,
    waiting: Queue,
    /// Energy reported so far.
    joules: f64,
    /// Up to when its work has been counted, and how long it had any since its last report, ns.
    since: u64,
    busy: u64,
    /// Bytes read and written since its last report.
    read: u64,
    written: u64,
    /// Commands of each kind ([`Op`]), as the operating system counts them.
    completed: [u64; 4],
    waited: [Waiting; 4],
}

/// Commands of one kind at the block layer (Linux: `/proc/diskstats`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    /// That completed since the last report; an SSD's count as they start.
    pub(super) completed: u64,
    /// What they took, from where they were sent to the drive or had to wait for it, ns.
    pub(super) time: u64,
}

impl DriveQueue {
    pub(super) fn new(device: Device, depth: u32) -> Self {
        Self {
            device,
            depth: depth as usize,
            open: 0,
            ends: BinaryHeap::new(),
            last_end: 0,
            waiting: Queue::EMPTY,
            joules: 0.0,
            since: 0,
            busy: 0,
            read: 0,
            written: 0,
            completed: [0; 4],
            waited: [Waiting::default(); 4],
        }
    }

    /// Sends a command to an SSD that has room for it; returns when it will end.
    #[inline]
    pub(super) fn accept(&mut self, now: u64, command: DriveCommand) -> Option<u64> {
        if self.waiting.is_empty() && self.has_room(now) { self.start(now, command) } else { None }
    }

    /// Sends `io` to the drive, or has it wait; its end is an event.
    pub(super) fn send(&mut self, ios: &mut Ios, events: &mut Events, now: u64, io: u32) {
        if self.waiting.is_empty() && self.has_room(now) {
            return self.begin(ios, events, now, io);
        }
        if self.waiting.is_empty() {
            self.await_room(events, ios[io].drive);
        }
        self.waited[ios[io].op as usize].begins(now);
        self.waiting.push(ios, io);
    }

    /// The next one that waits.
    fn next(&mut self, ios: &Ios, now: u64) -> Option<u32> {
        let next = self.waiting.pop(ios)?;
        self.waited[ios[next].op as usize].ends(now);
        Some(next)
    }

    /// A command of the disk, `io`'s, ended: sends the next one that waits.
    pub(super) fn ended(&mut self, ios: &Ios, events: &mut Events, now: u64, io: u32) {
        self.work_until(now);
        assert!(self.open > 0, "a disk ends what it was sent");
        self.open -= 1;
        self.waited[ios[io].op as usize].ends(now);
        self.completed[ios[io].op as usize] += 1;
        if let Some(next) = self.next(ios, now) {
            self.begin(ios, events, now, next);
        }
    }

    /// A command of an SSD whose queue was full ended: sends what waits.
    pub(super) fn has_ended(&mut self, ios: &Ios, events: &mut Events, now: u64, drive: u16) {
        while self.ends.peek().is_some_and(|end| end.0 <= now) {
            self.ends.pop();
        }
        while self.ends.len() < self.depth
            && let Some(next) = self.next(ios, now)
        {
            self.begin(ios, events, now, next);
        }
        if !self.waiting.is_empty() {
            self.await_room(events, drive);
        }
    }

    /// Has an event tell when the first of an SSD's commands ends; a disk tells by itself.
    fn await_room(&self, events: &mut Events, drive: u16) {
        if let Some(first) = self.ends.peek() {
            events.push(first.0, Event::Room(drive));
        }
    }

    #[inline]
    fn has_room(&mut self, now: u64) -> bool {
        if self.open + self.ends.len() == self.depth {
            self.ends.retain(|end| end.0 > now);
        }
        self.open + self.ends.len() < self.depth
    }

    fn begin(&mut self, ios: &Ios, events: &mut Events, now: u64, io: u32) {
        let command = ios.command(io);
        if let Some(end) = self.start(now, command) {
            return events.push(end, Event::Served(io));
        }
        self.count(now, command);
        self.open += 1;
        self.waited[command.op as usize].begins(now);
        self.device.submit(command, events, now, io);
    }

    /// Starts a command of an SSD; of a disk's no end is known.
    #[inline]
    fn start(&mut self, now: u64, command: DriveCommand) -> Option<u64> {
        let end = self.device.start(now, command)?;
        self.count(now, command);
        self.last_end = self.last_end.max(end);
        self.ends.push(Reverse(end));
        self.completed[command.op as usize] += 1;
        self.waited[command.op as usize].add(end - now);
        Some(end)
    }

    /// Counts a command that starts.
    #[inline]
    fn count(&mut self, now: u64, command: DriveCommand) {
        self.work_until(now);
        let moved = if command.op == Op::Read { &mut self.read } else { &mut self.written };
        *moved += u64::from(command.bytes);
    }

    /// Counts the time up to `now` in which it had commands.
    #[inline]
    fn work_until(&mut self, now: u64) {
        let before = std::mem::replace(&mut self.since, now);
        let until = if self.open > 0 { now } else { self.last_end.min(now) };
        self.busy += until.saturating_sub(before);
    }

    /// Commands under way and waiting.
    pub(super) fn there(&self, now: u64) -> u64 {
        let waiting: u64 = self.waited.iter().map(|waited| waited.count).sum();
        waiting + self.ends.iter().filter(|end| end.0 > now).count() as u64
    }

    /// Reports the drive over a period of `length` ns; returns its energy in it.
    pub(super) fn sense(
        &mut self,
        now: u64,
        length: u64,
        state: PowerState,
    ) -> (f64, DriveSignals, [Block; 2]) {
        let total = self.device.energy(Nanos(now)).0;
        let joules = total - std::mem::replace(&mut self.joules, total);
        self.work_until(now);
        let busy = std::mem::take(&mut self.busy);
        let done = [Op::Read, Op::Write].map(|op| Block {
            completed: std::mem::take(&mut self.completed[op as usize]),
            time: self.waited[op as usize].take(now),
        });
        let signals = DriveSignals {
            power: (length > 0).then(|| Watts(joules / (length as f64 * 1e-9))),
            state: Some(state),
            temperature: None,
            utilisation: (length > 0).then(|| busy as f64 / length as f64),
            time: Some(Nanos(done[0].time + done[1].time)),
            read_bytes: Some(std::mem::take(&mut self.read)),
            written_bytes: Some(std::mem::take(&mut self.written)),
            standby: None,
        };
        (joules, signals, done)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::io::Io;
    use super::*;
    use crate::profile::DriveModel;

    fn device() -> Device {
        Device::new(&DriveModel::find("pm1743", Path::new("")).unwrap(), 1)
    }

    /// When each command begins and ends on a drive of which it is known at every instant how many
    /// are under way.
    fn one_by_one(arrivals: &[u64], depth: usize) -> Vec<(u64, u64)> {
        let mut device = device();
        let (mut spans, mut waiting) = (vec![(0, 0); arrivals.len()], VecDeque::new());
        let mut under_way: Vec<u64> = Vec::new();
        let mut arrivals = arrivals.iter().copied().enumerate().peekable();
        loop {
            let end = under_way.iter().min().copied().unwrap_or(u64::MAX);
            let arrival = arrivals.peek().map_or(u64::MAX, |(_, at)| *at);
            let now = end.min(arrival);
            if now == u64::MAX {
                return spans;
            }
            under_way.retain(|end| *end > now);
            if end > arrival {
                waiting.extend(arrivals.next().map(|(io, _)| io));
            }
            while under_way.len() < depth
                && let Some(io) = waiting.pop_front()
            {
                let command =
                    DriveCommand { drive: 0, op: Op::Read, offset: io as u64 * 4096, bytes: 4096 };
                spans[io] = (now, device.start(now, command).unwrap());
                under_way.push(spans[io].1);
            }
        }
    }

    proptest! {
        #[test]
        fn no_more_than_its_depth_is_under_way_and_nothing_waits_longer_than_it_must(
            gaps in prop::collection::vec(0_u64..60_000, 1..200), depth in 1_u32..6,
        ) {
            let arrivals: Vec<u64> =
                gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let (mut queue, mut ios, mut events) =
                (DriveQueue::new(device(), depth), Ios::default(), Events::new());
            let mut ends = vec![0; arrivals.len()];
            let mut next = 0;
            while next < arrivals.len() || events.next_time() < u64::MAX {
                let event = events.next_time();
                // What ends makes room for what arrives at the same instant.
                if next < arrivals.len() && arrivals[next] < event {
                    let io = ios.insert(Io::of(Op::Read, next as u64 * 4096, 4096));
                    queue.send(&mut ios, &mut events, arrivals[next], io);
                    next += 1;
                    continue;
                }
                match events.pop() {
                    Some(Event::Served(io)) => ends[io as usize] = event,
                    Some(Event::Room(drive)) => queue.has_ended(&ios, &mut events, event, drive),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            let spans = one_by_one(&arrivals, depth as usize);
            prop_assert_eq!(ends, spans.iter().map(|(_, end)| *end).collect::<Vec<_>>());
            // The time is counted in which anything was under way, however many.
            let (mut busy, mut until) = (0, 0);
            for (begin, end) in spans {
                busy += end.max(until) - begin.max(until);
                until = until.max(end);
            }
            let sensed = queue.sense(u64::MAX >> 2, 1, 0).1.utilisation;
            prop_assert_eq!(sensed, Some(busy as f64));
        }
    }
}
