//! A hard disk in virtual time: heads that seek, platters that turn, a queue in which it looks
//! for the nearest access, a write cache, retries under vibration, power by mode.
//!
//! Unlike an SSD it serves one access after the other in an order of its own, so when a command
//! completes is not known when it is accepted: the caller submits commands, calls
//! [`Hdd::ended`] at the instant it is told, and collects completions from both. Equations,
//! parameters and calibration: docs/models/hdd.md.

mod ahead;
mod buffer;
#[cfg(test)]
mod calibration;
mod geometry;
mod power;
mod profile;
mod retry;
mod seek;
#[cfg(test)]
mod tests;

use ebb_policy::PowerState;
use ebb_policy::units::{Joules, Nanos};
use ebb_trace::Op;

use ahead::Ahead;
use buffer::Buffer;
use geometry::{Geometry, Place};
use power::Meter;
use retry::Retries;
use seek::SeekCurve;

pub use power::Wear;
pub use profile::{HddIdle, HddPower, HddProfile, Retry, WriteCache};
pub use seek::Seek;

/// A command that waits longer is served next, wherever it lies.
const STARVED: u64 = 1_000_000_000;
/// Share of a revolution by which a sector may have passed and is still caught: rounding.
const CAUGHT: f64 = 1e-3;

/// A command for the disk.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Given back when it completes.
    pub token: u32,
    /// What to do.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
}

/// When which command completes.
pub type Completion = (Nanos, u32);

/// An access to the media that waits.
#[derive(Debug, Clone, Copy)]
struct Access {
    token: u32,
    write: bool,
    place: Place,
    offset: u64,
    bytes: u64,
    /// When it was accepted.
    at: u64,
}

/// The access under way.
#[derive(Debug, Clone, Copy)]
struct Busy {
    access: Access,
    /// It empties the write cache; no command waits for it.
    cached: bool,
}

/// One hard disk.
#[derive(Debug, Clone)]
pub struct Hdd {
    clock: u64,
    geometry: Geometry,
    curve: SeekCurve,
    retries: Retries,
    meter: Meter,
    ahead: Ahead,
    buffer: Buffer,
    /// Commands that wait for the media, oldest first.
    waiting: Vec<Access>,
    busy: Option<Busy>,
    track: u64,
    cylinder: u64,
    /// Nanoseconds.
    revolution: f64,
    switch: f64,
    overhead: u64,
    interface_ns_per_byte: f64,
    queue: usize,
    power: HddPower,
    state: PowerState,
}

impl Hdd {
    /// A disk at rest, ready, its heads at the outer edge; `seed` varies the retries.
    ///
    /// The profile must be valid ([`crate::DriveFile::validate`]).
    #[must_use]
    pub fn new(profile: &HddProfile, seed: u64) -> Self {
        let geometry = Geometry::new(profile);
        // A valid profile has a curve; the other case is a disk whose seeks take no time.
        let curve = SeekCurve::new(&profile.seek, geometry.cylinders).unwrap_or_default();
        Self {
            clock: 0,
            geometry,
            curve,
            retries: Retries::new(&profile.retry, seed),
            meter: Meter::new(profile),
            ahead: Ahead::new(profile),
            buffer: Buffer::new(&profile.write_cache),
            waiting: Vec::with_capacity(profile.queue as usize),
            busy: None,
            track: 0,
            cylinder: 0,
            revolution: 60e9 / profile.rpm,
            switch: profile.seek.switch.0 as f64,
            overhead: profile.overhead.0,
            interface_ns_per_byte: 1e9 / profile.interface.0 as f64,
            queue: profile.queue as usize,
            power: profile.power.clone(),
            state: 0,
        }
    }

    /// Accepts a command; calls come in time order. Commands that complete without the media
    /// are added to `done`. Returns when to call [`Hdd::ended`], if an access starts.
    pub fn submit(
        &mut self,
        now: Nanos,
        command: Command,
        done: &mut Vec<Completion>,
    ) -> Option<Nanos> {
        let now = self.begin(now);
        let Command { token, op, offset, bytes } = command;
        let access = self.access(now, command);
        let quick = (Nanos(now + self.overhead + self.transfer_time(bytes)), token);
        match op {
            Op::Trim => done.push((Nanos(now + self.overhead), token)),
            Op::Flush if self.is_clean() => done.push((Nanos(now + self.overhead), token)),
            Op::Flush => self.buffer.flushes.push(token),
            Op::Write if self.buffer.enabled() => {
                if self.buffer.accept(access) {
                    done.push(quick);
                }
            }
            Op::Write => self.waiting.push(access),
            Op::Read if self.buffer.holds(offset, bytes.into()) => done.push(quick),
            Op::Read => return self.read(now, access, quick, done),
        }
        self.start(now)
    }

    /// The access under way has ended, at the instant that was told. Adds what completes to
    /// `done` and returns when the next access ends.
    pub fn ended(&mut self, now: Nanos, done: &mut Vec<Completion>) -> Option<Nanos> {
        let now = self.begin(now);
        let Busy { access, cached } = self.busy.take()?;
        if !access.write {
            self.ahead.begin(access.offset + access.bytes, now);
        }
        if !cached {
            done.push((Nanos(now + self.overhead), access.token));
            return self.start(now);
        }
        self.buffer.written(&access);
        while let Some(next) = self.buffer.admit() {
            done.push((Nanos(now + self.overhead), next.token));
        }
        if self.is_clean() {
            let at = Nanos(now + self.overhead);
            done.extend(self.buffer.flushes.drain(..).map(|token| (at, token)));
        }
        self.start(now)
    }

    /// The amplitude of the vibration from `now` on; 1 is what the fans of the characterised
    /// server cause at full speed (EADC Fig. 5). An access under way is not affected.
    pub fn set_vibration(&mut self, now: Nanos, amplitude: f64) {
        let now = self.begin(now);
        self.ahead.settle(now, self.retries.chance(false));
        self.retries.set_amplitude(amplitude);
    }

    /// Demands power state `ps` of [`HddProfile::spec`]: 0 makes the disk ready, the others let
    /// it enter a power condition when its work is done, until the next command. Returns when
    /// it is in force.
    pub fn set_power_state(&mut self, now: Nanos, ps: PowerState) -> Nanos {
        let now = self.begin(now);
        self.state = ps;
        if ps > 0 {
            return Nanos(self.meter.force(usize::from(ps) - 1, now));
        }
        Nanos(if self.busy.is_none() { self.meter.wake(now) } else { now })
    }

    /// The power state last set; 0 again once a command has ended it.
    #[must_use]
    pub fn power_state(&self) -> PowerState {
        self.state
    }

    /// Energy drawn since the start, up to `now`.
    pub fn energy(&mut self, now: Nanos) -> Joules {
        self.begin(now);
        Joules(self.meter.joules())
    }

    /// What wore the mechanics so far.
    #[must_use]
    pub fn wear(&self) -> Wear {
        let Wear { busy, lost, .. } = self.meter.wear;
        let (ahead, ahead_lost) = self.ahead.worked();
        Wear {
            retries: self.retries.count,
            busy: busy + ahead,
            lost: lost + ahead_lost,
            ..self.meter.wear
        }
    }

    fn begin(&mut self, now: Nanos) -> u64 {
        self.clock = self.clock.max(now.0);
        self.meter.advance(self.clock);
        self.clock
    }

    fn access(&self, now: u64, command: Command) -> Access {
        let Command { token, op, offset, bytes } = command;
        let place = self.geometry.place(offset);
        let bytes = u64::from(bytes.max(1));
        Access { token, write: op == Op::Write, place, offset, bytes, at: now }
    }

    fn transfer_time(&self, bytes: u32) -> u64 {
        (self.interface_ns_per_byte * f64::from(bytes)) as u64
    }

    /// Whether nothing waits to reach the media from the write cache.
    fn is_clean(&self) -> bool {
        self.buffer.is_empty() && !self.busy.is_some_and(|busy| busy.cached)
    }

    /// A read: from what was read ahead, on from there, or from where it lies.
    fn read(
        &mut self,
        now: u64,
        mut access: Access,
        quick: Completion,
        done: &mut Vec<Completion>,
    ) -> Option<Nanos> {
        let chance = self.retries.chance(false);
        let Some(ready) = self.ahead.take(access.offset, access.bytes, now, chance) else {
            self.waiting.push(access);
            return self.start(now);
        };
        let extra = self.power.sequential_read.0 - self.power.ready.0;
        let period = self.revolution + self.switch;
        self.meter.add(extra * ready.bytes as f64 / access.place.track_bytes as f64 * period);
        if ready.bytes == access.bytes {
            done.push(quick);
            return None;
        }
        access.offset += ready.bytes;
        access.bytes -= ready.bytes;
        access.place = self.geometry.place(access.offset);
        if ready.on_track && self.busy.is_none() {
            self.track = access.place.track;
            return Some(self.run(now, now, Busy { access, cached: false }, false));
        }
        self.waiting.push(access);
        self.start(now)
    }

    /// Starts the next access if none is under way; returns when it ends.
    fn start(&mut self, now: u64) -> Option<Nanos> {
        if self.busy.is_some() || self.waiting.is_empty() && !self.buffer.has_work() {
            return None;
        }
        let ready = self.meter.wake(now);
        self.state = 0;
        let busy = self.choose(ready)?;
        let place = busy.access.place;
        let moving = self.position(ready, &place, busy.access.write);
        self.meter.wear.seeks += u64::from(place.cylinder != self.cylinder);
        let fresh = moving > CAUGHT * self.revolution;
        Some(self.run(ready, ready + moving as u64, busy, fresh))
    }

    /// The access that the heads reach first, of the commands in the queue and the writes in
    /// the cache. Commands go before cached writes, for which nobody waits, until the cache is
    /// half full; one that waits too long goes before all.
    fn choose(&mut self, now: u64) -> Option<Busy> {
        let pressed = self.waiting.is_empty() || self.buffer.is_pressed();
        if let Some(oldest) = self.waiting.first()
            && now.saturating_sub(oldest.at) > STARVED
        {
            return Some(Busy { access: self.waiting.remove(0), cached: false });
        }
        let queue = &self.waiting[..self.waiting.len().min(self.queue)];
        let cached = if pressed { self.buffer.writes() } else { &[] };
        let all = queue.iter().chain(cached).enumerate();
        let cost = |access: &Access| self.position(now, &access.place, access.write);
        let (best, _) = all
            .map(|(index, access)| (index, cost(access)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some(match best.checked_sub(queue.len()) {
            None => Busy { access: self.waiting.remove(best), cached: false },
            Some(index) => Busy { access: self.buffer.take(index), cached: true },
        })
    }

    /// Time from `now` until a place passes under its head: seek, then wait for the platter.
    fn position(&self, now: u64, place: &Place, write: bool) -> f64 {
        let distance = place.cylinder.abs_diff(self.cylinder);
        let seek = self.curve.time(place.track == self.track, distance, write);
        let angle = (now as f64 + seek) / self.revolution;
        let wait = (place.angle - angle + CAUGHT).rem_euclid(1.0) - CAUGHT;
        seek + wait.max(0.0) * self.revolution
    }

    /// Carries out an access whose first byte is under the head at `arrived`. Each pass over a
    /// track may have to be repeated; one that goes on where the head is was judged before.
    fn run(&mut self, now: u64, arrived: u64, busy: Busy, mut fresh: bool) -> Nanos {
        let Access { write, mut place, mut offset, mut bytes, .. } = busy.access;
        let (mut time, mut lost) = (0.0, 0.0);
        loop {
            let here = bytes.min(place.left);
            let repeated = if fresh { f64::from(self.retries.draw(write)) } else { 0.0 };
            fresh = true;
            lost += repeated * self.revolution;
            time += (here as f64 / place.track_bytes as f64 + repeated) * self.revolution;
            bytes -= here;
            if bytes == 0 {
                break;
            }
            offset += here;
            place = self.geometry.place(offset);
            time += self.switch;
        }
        (self.track, self.cylinder) = (place.track, place.cylinder);
        let (at, transfer) = if write {
            (self.power.random_write.0, self.power.sequential_write.0)
        } else {
            (self.power.random_read.0, self.power.sequential_read.0)
        };
        let end = arrived + (time as u64).max(1);
        self.meter.work(arrived, at, end, transfer);
        self.meter.wear.busy.0 += end - now;
        self.meter.wear.lost.0 += lost as u64;
        self.ahead.stop(now, self.retries.chance(false));
        self.busy = Some(busy);
        Nanos(end)
    }
}
