//! An NVMe SSD in virtual time: latency, throughput and power of each command, without events.
//!
//! Every shared resource is a horizon, the instant at which it has finished all it accepted
//! (Lindley's recursion): the controller, the link in each direction, each flash unit, the
//! program pipeline behind the write buffer, and the power budget. A command advances the
//! horizons it needs and completes at the last of them; [`Drive::submit`] does no more than
//! that. Equations, parameters and calibration: docs/models/ssd.md.

mod background;
#[cfg(test)]
mod calibration;
mod compose;
#[cfg(test)]
mod cost;
mod gc;
mod media;
mod meter;
mod profile;
#[cfg(test)]
mod promises;
mod spread;
mod state;
#[cfg(test)]
mod tests;

use ebb_policy::PowerState;
use ebb_policy::units::{Joules, Nanos};
use ebb_trace::Op;

use background::Round;
use gc::Pool;
use media::Media;
use meter::Meter;
pub(crate) use spread::Spread;
use state::{Cap, Change};

pub use compose::ComposeError;
pub use profile::{
    BasePower, Controller, DriveProfile, GcProfile, Idle, Parallelism, Partial, ReadCost, State,
    WriteCost,
};

/// No instant: later than any.
const NEVER: u64 = u64::MAX;

/// An instant or span as a number. Half of `u64` is time enough, 292 years, and converts in one
/// instruction where all of it takes several.
fn float(ns: u64) -> f64 {
    ns as i64 as f64
}

/// Whole nanoseconds of an instant or span; 0 where it is negative.
fn whole(ns: f64) -> u64 {
    (ns as i64).max(0) as u64
}

/// Time and energy of one kind of command, in ns and nJ.
#[derive(Debug, Clone, Copy)]
struct Cost {
    command: u64,
    ns_per_byte: f64,
    energy: f64,
    energy_per_byte: f64,
}

/// One drive.
#[derive(Debug, Clone)]
pub struct Drive {
    /// The latest instant seen.
    clock: u64,
    media: Media,
    meter: Meter,
    pool: Pool,
    random: Spread,
    read: Cost,
    write: Cost,
    /// Controller: commands are taken one after the other.
    controller_free: u64,
    read_link_free: u64,
    write_link_free: u64,
    /// When the write buffer would be empty.
    programmed: u64,
    /// When all accepted work ends, power aside.
    work_until: u64,
    /// When the energy of all accepted work is earned at the rate of the power state.
    paid: f64,
    /// How far work may run ahead of `paid`.
    regulation: f64,
    /// Rate in force, the slower of two during a change.
    ns_per_nj: f64,
    caps: Box<[Cap]>,
    /// The power limit as such a rate; 0 for none.
    limit_ns_per_nj: f64,
    /// As last set; in force once no change is under way.
    state: PowerState,
    change: Option<Change>,
    change_at: u64,
    /// Share of its power budget for work that the drive allows itself: below 1 when hot.
    throttle: f64,
    /// No command runs before.
    blocked_until: u64,
    write_latency: u64,
    write_spread: u64,
    program_ns_per_byte: f64,
    copy_ns_per_byte: f64,
    copy_energy_per_byte: f64,
    buffer_time: f64,
    protected: bool,
    /// Read time of one page, as a share of all units' time: what a read takes from programs.
    page_share: u64,
    idle_delay: f64,
    background_share: f64,
    round: Option<Round>,
}

impl Drive {
    /// A drive at the state its profile starts in; `seed` varies the media latencies.
    ///
    /// The profile must be valid ([`crate::DriveFile::validate`]).
    #[must_use]
    pub fn new(profile: &DriveProfile, seed: u64) -> Self {
        let meter = Meter::new(profile);
        let caps = profile.states.iter().map(|state| Cap::new(state, &meter)).collect::<Box<[_]>>();
        let (read, write, gc) = (&profile.read, &profile.write, &profile.gc);
        let program_ns_per_byte = 1e9 / write.program_per_second.0 as f64;
        Self {
            clock: 0,
            media: Media::new(profile, Spread::new(seed)),
            pool: Pool::new(gc, profile.capacity.0),
            random: Spread::new(seed ^ 0x5DEE_CE66),
            read: Cost {
                command: read.command.0,
                ns_per_byte: 1e9 / read.per_second.0 as f64,
                energy: read.energy_per_command.0 * 1e9,
                energy_per_byte: read.energy_per_gb.0,
            },
            write: Cost {
                command: write.command.0,
                ns_per_byte: 1e9 / write.per_second.0 as f64,
                energy: write.energy_per_command.0 * 1e9,
                energy_per_byte: write.energy_per_gb.0,
            },
            controller_free: 0,
            read_link_free: 0,
            write_link_free: 0,
            programmed: 0,
            work_until: 0,
            paid: 0.0,
            regulation: profile.controller.regulation.0 as f64,
            ns_per_nj: caps.first().map_or(1.0, |cap| cap.ns_per_nj),
            caps,
            limit_ns_per_nj: 0.0,
            state: 0,
            change: None,
            change_at: NEVER,
            throttle: 1.0,
            blocked_until: 0,
            write_latency: write.latency.0,
            write_spread: write.spread.0,
            program_ns_per_byte,
            copy_ns_per_byte: 1e9 / gc.copy_per_second.0 as f64,
            copy_energy_per_byte: gc.energy_per_gb.0,
            buffer_time: profile.controller.buffer.0 as f64 * program_ns_per_byte,
            protected: profile.controller.power_loss_protection,
            page_share: read.latency.0 / u64::from(profile.parallelism.units),
            idle_delay: gc.idle_delay.0 as f64,
            background_share: gc.background_share,
            round: None,
            meter,
        }
    }

    /// Accepts a command and returns when it completes. Calls come in time order.
    pub fn submit(&mut self, now: Nanos, op: Op, offset: u64, bytes: u32) -> Nanos {
        let now = now.0.max(self.clock);
        let start = self.begin(now);
        let end = match op {
            Op::Read => self.submit_read(now, start, offset, bytes),
            Op::Write => self.submit_write(now, start, offset, bytes),
            Op::Flush => self.submit_flush(now, start),
            Op::Trim => {
                self.pool.trim(u64::from(bytes));
                self.submit_command(now, start)
            }
        };
        Nanos(end)
    }

    /// The power state last set; an I/O command leaves a non-operational one by itself.
    #[must_use]
    pub fn power_state(&self) -> PowerState {
        self.state
    }

    /// Energy drawn since the start, up to `now`.
    pub fn energy(&mut self, now: Nanos) -> Joules {
        self.advance(now.0);
        Joules(self.meter.joules())
    }

    /// Flash that is free to write, in bytes.
    #[must_use]
    pub fn free_flash(&self) -> u64 {
        self.pool.free().max(0.0) as u64
    }

    /// Brings the accounts to `now`; returns when a command that arrives then can start.
    #[inline]
    fn begin(&mut self, now: u64) -> u64 {
        self.advance(now);
        if self.round.is_some() {
            self.stop_round(now);
        }
        let wake = self.meter.wake(float(now));
        if now >= self.blocked_until && !self.caps[usize::from(self.state)].operational {
            self.leave_non_operational(now);
        }
        now.max(self.blocked_until) + wake
    }

    fn submit_read(&mut self, now: u64, start: u64, offset: u64, bytes: u32) -> u64 {
        let cost = self.read;
        let energy = cost.energy + cost.energy_per_byte * f64::from(bytes);
        let start = self.regulate(start, energy);
        let taken = self.controller_free.max(start) + cost.command;
        self.controller_free = taken;
        let transfer = whole(cost.ns_per_byte * f64::from(bytes));
        self.read_link_free = self.read_link_free.max(taken - cost.command) + transfer;
        let programming = self.programmed > taken;
        let sensed = self.media.read(taken, offset, bytes, programming);
        if programming {
            self.programmed += sensed.pages * self.page_share;
        }
        // Pages leave as they come: the first starts the transfer, the last ends it.
        let last_page = whole(cost.ns_per_byte * f64::from(bytes.min(self.media.page_bytes())));
        let end = (sensed.first + transfer).max(sensed.last + last_page).max(self.read_link_free);
        self.account(now, energy, end);
        end
    }

    fn submit_write(&mut self, now: u64, start: u64, offset: u64, bytes: u32) -> u64 {
        let cost = self.write;
        let size = f64::from(bytes);
        let moved = self.pool.write(offset, bytes);
        let energy = cost.energy + cost.energy_per_byte * size + self.copy_energy_per_byte * moved;
        let start = self.regulate(start, energy);
        let taken = self.controller_free.max(start) + cost.command;
        self.controller_free = taken;
        let transfer = whole(cost.ns_per_byte * size);
        self.write_link_free = self.write_link_free.max(taken - cost.command) + transfer;
        let program = self.program_ns_per_byte * size + self.copy_ns_per_byte * moved;
        self.programmed = self.programmed.max(taken) + whole(program + 0.5);
        // The buffer holds the same bytes for longer while collection slows the programs.
        let own = self.program_ns_per_byte * size.max(1.0);
        let room = self.buffer_time * (program / own).max(1.0);
        let buffered = taken + self.write_latency + self.random.below(self.write_spread);
        let end = buffered.max(self.write_link_free).max(whole(float(self.programmed) - room));
        self.account(now, energy, end.max(self.programmed));
        end
    }

    fn submit_flush(&mut self, now: u64, start: u64) -> u64 {
        let end = self.submit_command(now, start);
        if self.protected { end } else { end.max(self.programmed) }
    }

    /// A command that moves no data.
    fn submit_command(&mut self, now: u64, start: u64) -> u64 {
        let start = self.regulate(start, self.write.energy);
        let end = self.controller_free.max(start) + self.write.command;
        self.controller_free = end;
        self.account(now, self.write.energy, end);
        end
    }

    /// Charges `energy` to the power budget; returns when the budget lets its command start.
    #[inline]
    fn regulate(&mut self, start: u64, energy: f64) -> u64 {
        let paid = self.paid.max(float(start));
        self.paid = paid + energy * self.ns_per_nj;
        start.max(whole(paid - self.regulation))
    }

    /// Spreads `energy` over the time until all work is done and earned.
    #[inline]
    fn account(&mut self, now: u64, energy: f64, end: u64) {
        self.work_until = self.work_until.max(end);
        let until = self.paid.max(float(self.work_until));
        self.meter.add(float(now), energy, until, self.ns_per_nj);
    }

    #[inline]
    fn advance(&mut self, now: u64) {
        self.clock = self.clock.max(now);
        if now >= self.change_at {
            self.run_background(self.change_at);
            self.finish_change();
        }
        if float(now) > self.meter.until() {
            self.run_background(now);
        }
        self.meter.advance(float(now));
    }
}
