//! The path of an I/O: stages, cache, layout, drives, acknowledgement.

use ebb_trace::{Op, Request};

use super::events::Event;
use super::io::{Io, Kind, NONE, mix};
use super::jobs::FIRST_SLOT;
use super::{Engine, TwinError};
use crate::profile::Raid;

/// How many in flight hold up an open loop's next arrival: memory stays bounded under overload,
/// and latency still counts from the intended arrival.
pub(super) const MOST_IN_FLIGHT: usize = 1 << 20;

impl Engine<'_> {
    /// A user's request enters the first stage.
    pub(super) fn arrive(&mut self, request: &Request, slot: u32) -> Result<(), TwinError> {
        self.arrivals += 1;
        let offset = self.locate(request)?;
        self.meter.arrived();
        let key = self.key(request, slot);
        let io = self.ios.insert(Io {
            arrival: request.at.0,
            offset,
            bytes: request.bytes,
            key,
            next: NONE,
            parent: NONE,
            slot,
            parts: 0,
            drive: request.device,
            op: request.op,
            kind: Kind::User,
            stage: 0,
            old_read: false,
        });
        self.users_in_flight += 1;
        // A job's I/O does not leave the server.
        if let Some(network) = &mut self.network
            && (slot < FIRST_SLOT || slot == NONE)
        {
            let at = network.arrival(request, key, self.now);
            self.events.push(at, Event::Arrived(io));
        } else {
            self.cores.dispatch(&mut self.ios, &mut self.events, self.now, io);
        }
        Ok(())
    }

    /// Random numbers of a request: by its place in the trace or in its slot, so that they do
    /// not depend on how a policy interleaves slots (common random numbers).
    fn key(&mut self, request: &Request, slot: u32) -> u32 {
        let place = if slot == NONE {
            self.arrivals
        } else {
            request.offset ^ request.offset >> 32 ^ u64::from(slot) << 24
        };
        mix(place as u32, self.seed) as u32
    }

    /// The byte of the server's address space that a request starts at.
    fn locate(&self, request: &Request) -> Result<u64, TwinError> {
        let raid = self.profile.layout.raid;
        let capacity = self.array.volume_bytes(raid);
        let refuse =
            |reason: String| TwinError::Request { number: self.arrivals, at: request.at, reason };
        let end = request.offset.checked_add(u64::from(request.bytes));
        if end.is_none_or(|end| end > capacity) {
            return Err(refuse(format!(
                "bytes {} to {} lie beyond the volume's {capacity}: fold the trace onto it",
                request.offset,
                request.offset.saturating_add(u64::from(request.bytes)),
            )));
        }
        if raid != Raid::None {
            // Volumes share the array; each starts at its own place, a chunk boundary.
            let start = u64::from(request.device) * 0x9E37_79B9 % 4096 * (capacity >> 32 << 20);
            return Ok((start + request.offset) % (capacity - u64::from(request.bytes) + 1));
        }
        if usize::from(request.device) >= self.array.drives() {
            return Err(refuse(format!(
                "device {} does not exist, the server has {} drives: fold the trace onto them",
                request.device,
                self.array.drives(),
            )));
        }
        Ok(request.offset)
    }

    /// Has the processor fetch what the read cache knows about the requests to come.
    pub(super) fn warm_cache(&self) {
        if let Some(cache) = &self.cache {
            cache.warm(self.supply.ahead().iter().flat_map(|request| self.locate(request)));
        }
    }

    /// A core finished its part of `io`.
    pub(super) fn stage_done(&mut self, io: u32) {
        let Io { kind, op, stage, offset, bytes, .. } = self.ios[io];
        let last = self.profile.stage.len() - 1;
        let stage = usize::from(stage);
        match kind {
            Kind::Task => return self.task_worked(io),
            Kind::Flush => return self.flushed(io),
            Kind::User | Kind::Part | Kind::Rebuild => {}
        }
        if op == Op::Flush || (op == Op::Trim && stage == last) {
            return self.complete(io);
        }
        if stage == 0
            && let Some(cache) = &mut self.cache
        {
            let hit = cache.touch(offset, bytes);
            if hit && op == Op::Read {
                return self.complete(io);
            }
        }
        if op == Op::Write && self.write_buffer > 0 && stage + 1 >= last {
            self.stalled.push(&mut self.ios, io);
            self.acknowledge_writes();
        } else if stage < last {
            self.ios[io].stage += 1;
            self.cores.dispatch(&mut self.ios, &mut self.events, self.now, io);
        } else {
            self.send_to_drives(io);
        }
    }

    pub(super) fn part(&mut self, parent: u32, drive: u16, offset: u64, bytes: u32, op: Op) -> u32 {
        self.ios.insert(Io {
            arrival: self.now,
            offset,
            bytes,
            key: 0,
            next: NONE,
            parent,
            slot: NONE,
            parts: 0,
            drive,
            op,
            kind: Kind::Part,
            stage: 0,
            old_read: false,
        })
    }

    /// The stages are done: the drives' turn.
    fn send_to_drives(&mut self, io: u32) {
        let Io { offset, bytes, op, .. } = self.ios[io];
        if self.profile.layout.raid == Raid::None {
            return self.array.submit(&mut self.ios, &mut self.events, self.now, io);
        }
        if op == Op::Read && u64::from(bytes) <= self.array.left_in_chunk(offset) {
            let place = self.array.place(offset);
            self.ios[io].drive = place.drive;
            self.ios[io].offset = place.offset;
            return self.array.submit(&mut self.ios, &mut self.events, self.now, io);
        }
        // Writes in place: first the old data and parity are read (unless whole stripes are
        // written), then the new ones written.
        let command = if op == Op::Write && !self.ios[io].old_read && !self.whole_stripes(io) {
            Op::Read
        } else {
            op
        };
        self.fan_out(io, command, op == Op::Write);
    }

    fn whole_stripes(&self, io: u32) -> bool {
        let chunk = self.profile.layout.chunk.0;
        let stripe = chunk * (self.array.drives() - self.profile.layout.raid.parity()) as u64;
        let Io { offset, bytes, .. } = self.ios[io];
        bytes > 0 && offset % stripe == 0 && u64::from(bytes) % stripe == 0
    }

    /// Sends a part of `parent` to each drive it touches, with the parity if asked.
    fn fan_out(&mut self, parent: u32, command: Op, parity: bool) {
        let Io { mut offset, bytes, .. } = self.ios[parent];
        let mut left = u64::from(bytes);
        let mut stripe = u64::MAX;
        let mut parts = 0;
        while left > 0 {
            let length = left.min(self.array.left_in_chunk(offset));
            let place = self.array.place(offset);
            let mut send = |this: &mut Self, drive| {
                let part = this.part(parent, drive, place.offset, length as u32, command);
                this.array.submit(&mut this.ios, &mut this.events, this.now, part);
                parts += 1;
            };
            send(self, place.drive);
            if parity && stripe != place.stripe {
                stripe = place.stripe;
                for drive in self.array.parity_drives(stripe) {
                    send(self, drive);
                }
            }
            offset += length;
            left -= length;
        }
        self.ios[parent].parts = parts;
        if parts == 0 {
            self.complete(parent);
        }
    }

    /// A drive finished a command of `io`.
    pub(super) fn drive_done(&mut self, io: u32) {
        let Io { kind, parent, bytes, parts, .. } = self.ios[io];
        if kind != Kind::Part {
            return self.complete(io);
        }
        self.ios.remove(io);
        if parent == NONE {
            self.unflushed -= u64::from(bytes) * u64::from(parts);
            return self.acknowledge_writes();
        }
        self.ios[parent].parts -= 1;
        if self.ios[parent].parts > 0 {
            return;
        }
        match (self.ios[parent].kind, self.ios[parent].op, self.ios[parent].old_read) {
            (Kind::Task, _, false) => self.task_write(parent),
            (Kind::Task, _, true) => self.task_done(parent),
            (Kind::Rebuild, ..) => self.rebuilt(parent),
            (_, Op::Write, false) if !self.whole_stripes(parent) => {
                self.ios[parent].old_read = true;
                self.send_to_drives(parent);
            }
            _ => self.complete(parent),
        }
    }

    /// The user's request is answered.
    pub(super) fn complete(&mut self, io: u32) {
        let Io { bytes, op, slot, drive, .. } = self.ios[io];
        assert!(self.users_in_flight > 0, "a request is answered once");
        self.users_in_flight -= 1;
        let mut answered = self.now;
        if let Some(network) = &mut self.network
            && (slot < FIRST_SLOT || slot == NONE)
        {
            answered = network.answer(op, bytes, answered);
        }
        answered += self.profile.fabric_latency.0;
        self.last_answer = self.last_answer.max(answered);
        let alone = self.profile.layout.raid == Raid::None;
        self.meter.completed(&self.ios[io], answered, alone.then_some(drive));
        self.ios.remove(io);
        if op == Op::Write
            && let Some(backlog) = &mut self.backlog
        {
            backlog.written(bytes);
            self.start_tasks();
        }
        if slot < FIRST_SLOT {
            let Self { supply, events, now, until, .. } = self;
            supply.completed(slot, answered, *now, *until, events);
        } else if slot != NONE {
            self.job_answered(slot, bytes.into());
        }
    }
}
