//! The path of an I/O: stages, cache, layout, drives, acknowledgement.

use ebb_trace::{Op, Request};

use super::background::Backlog;
use super::events::Event;
use super::io::{DriveCommand, Io, Kind, NO_PART, NONE, mix};
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
        self.last_request = self.last_request.max(request.at.0);
        let key = self.key(request, slot);
        let is_job = slot >= FIRST_SLOT && slot != NONE;
        let io = self.ios.insert(Io {
            arrival: request.at.0,
            sent: self.now,
            offset,
            bytes: request.bytes,
            key,
            next: NONE,
            parent: NONE,
            slot,
            parts: 0,
            drive: request.device,
            part: if is_job { NO_PART } else { self.meter.part(request.stream) },
            op: request.op,
            kind: Kind::User,
            stage: 0,
            old_read: false,
            best_effort: !is_job
                && self.best_effort.as_ref().is_some_and(|work| work.has(request.stream)),
        });
        self.users_in_flight += 1;
        // A job's I/O does not leave the server.
        if let Some(network) = &mut self.network
            && !is_job
        {
            let at = network.arrival(request, key, self.now);
            self.events.push(at, Event::Arrived(io));
        } else {
            self.enter(io);
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

    /// `io` enters its stage.
    pub(super) fn dispatch(&mut self, io: u32) {
        if self.cores.dispatch(&self.ios, &mut self.events, self.now, io) {
            self.look_ahead(io);
        }
    }

    /// Has the processor fetch what the read cache knows about `io`, whose first stage begins: it
    /// is looked up at the stage's end, in a table far larger than the processor's caches.
    pub(super) fn look_ahead(&self, io: u32) {
        if let Some(cache) = &self.cache
            && self.ios[io].stage == 0
        {
            cache.prefetch(self.ios[io].offset);
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
            return self.complete(io, self.now);
        }
        if stage == 0
            && op != Op::Trim
            && let Some(cache) = &mut self.cache
        {
            let hit = cache.touch(offset, bytes);
            if hit && op == Op::Read {
                return self.complete(io, self.now);
            }
        }
        if self.write_buffer > 0 && op == Op::Write && stage + 1 >= last {
            self.stalled.push(&mut self.ios, io);
            self.acknowledge_writes();
        } else if stage < last {
            self.ios[io].stage += 1;
            self.dispatch(io);
        } else {
            self.send_to_drives(io);
        }
    }

    pub(super) fn part(&mut self, parent: u32, command: DriveCommand) -> u32 {
        let DriveCommand { drive, op, offset, bytes } = command;
        self.ios.insert(Io {
            arrival: self.now,
            sent: self.now,
            offset,
            bytes,
            key: 0,
            next: NONE,
            parent,
            slot: NONE,
            parts: 0,
            drive,
            part: NO_PART,
            op,
            kind: Kind::Part,
            stage: 0,
            old_read: false,
            best_effort: false,
        })
    }

    /// The stages are done: the drives' turn.
    fn send_to_drives(&mut self, io: u32) {
        let Io { offset, bytes, op, .. } = self.ios[io];
        let whole = self.profile.layout.raid == Raid::None;
        if whole || (op == Op::Read && u64::from(bytes) <= self.array.left_in_chunk(offset)) {
            if !whole {
                let place = self.array.place(offset);
                (self.ios[io].drive, self.ios[io].offset) = (place.drive, place.offset);
            }
            self.ios[io].parts = 1;
            return match self.array.accept(self.now, self.ios.command(io)) {
                Some(end) => self.served_at(io, end),
                None => self.array.submit(&mut self.ios, &mut self.events, self.now, io),
            };
        }
        if self.reads_first(io) {
            self.read_for_parity(io);
        } else {
            self.fan_out(io, op);
        }
    }

    /// Sends a part of `parent` to a drive; returns its end if the drive knows. Otherwise the part
    /// is an I/O of its own, which `parent` waits for.
    pub(super) fn send_part(&mut self, parent: u32, command: DriveCommand) -> Option<u64> {
        let end = self.array.accept(self.now, command);
        if end.is_none() {
            self.ios[parent].parts += 1;
            let part = self.part(parent, command);
            self.array.submit(&mut self.ios, &mut self.events, self.now, part);
        }
        end
    }

    /// All parts of `io` are sent; `end` is the last of the known ends.
    pub(super) fn sent_parts(&mut self, io: u32, end: Option<u64>) {
        if let Some(end) = end {
            self.ios[io].parts += 1;
            self.served_at(io, end);
        } else if self.ios[io].parts == 0 {
            self.complete(io, self.now);
        }
    }

    /// The drives will be done with `io` at `end`. That is an event only if something follows from
    /// it but a user's answer counted in this control period.
    fn served_at(&mut self, io: u32, end: u64) {
        let Io { kind, op, slot, parts, .. } = self.ios[io];
        let follows = kind != Kind::User
            || slot != NONE
            || parts > 1
            || self.network.is_some()
            || (op == Op::Write
                && (self.backlog.as_ref().is_some_and(Backlog::follows_writes)
                    || self.reads_first(io)));
        if follows || end >= self.next_tick {
            self.events.push(end, Event::Served(io));
        } else {
            self.complete(io, end);
        }
    }

    /// The drives are done with a part of an I/O, or with all of which they knew the end.
    pub(super) fn served(&mut self, io: u32) {
        let Io { kind, parent, bytes, parts, .. } = self.ios[io];
        let whole = if kind == Kind::Part { parent } else { io };
        if kind == Kind::Part {
            self.ios.remove(io);
            if parent == NONE {
                self.unflushed -= u64::from(bytes) * u64::from(parts);
                return self.acknowledge_writes();
            }
        }
        let Io { kind, old_read, parts, .. } = &mut self.ios[whole];
        *parts -= 1;
        if *parts > 0 {
            return;
        }
        match (*kind, *old_read) {
            (Kind::Task, false) => self.task_write(whole),
            (Kind::Task, true) => self.task_done(whole),
            (Kind::Rebuild, _) => self.rebuilt(whole),
            _ if self.reads_first(whole) => {
                self.ios[whole].old_read = true;
                self.send_to_drives(whole);
            }
            _ => self.complete(whole, self.now),
        }
    }

    /// The user's request is answered, now or in what is left of this control period.
    pub(super) fn complete(&mut self, io: u32, at: u64) {
        let Io { bytes, op, slot, drive, .. } = self.ios[io];
        assert!(self.users_in_flight > 0, "a request is answered once");
        self.users_in_flight -= 1;
        let mut answered = at;
        if let Some(network) = &mut self.network
            && (slot < FIRST_SLOT || slot == NONE)
        {
            answered = network.answer(op, bytes, answered);
        }
        answered += self.profile.fabric_latency.0;
        self.last_answer = self.last_answer.max(answered);
        let alone = self.profile.layout.raid == Raid::None;
        self.meter.completed(&self.ios[io], answered, alone.then_some(drive));
        if let Some(work) = &mut self.best_effort {
            work.completed(&self.ios[io]);
        }
        self.ios.remove(io);
        if let Some(backlog) = &mut self.backlog
            && backlog.follows_writes()
            && op == Op::Write
        {
            backlog.written(bytes);
            self.start_tasks();
        }
        if slot < FIRST_SLOT {
            let Self { supply, events, due, now, until, .. } = self;
            supply.completed(slot, answered, *now, *until, events, due);
        } else if slot != NONE {
            self.job_answered(slot, bytes.into());
        }
    }
}
