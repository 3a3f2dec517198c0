//! An NVMe SSD in virtual time: latency, throughput and power of each command, without events.
//!
//! Every shared resource is a horizon, the instant at which it has finished all it accepted
//! (Lindley's recursion): the controller, the link in each direction, each flash unit, the
//! program pipeline behind the write buffer, and the power budget. A command advances the
//! horizons it needs and completes at the last of them; [`Drive::submit`] does no more than
//! that. Equations, parameters and calibration: docs/models/ssd.md.

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
#[cfg(test)]
mod tests;

use ebb_policy::PowerState;
use ebb_policy::units::{Joules, Nanos};
use ebb_trace::Op;

use gc::Pool;
use media::Media;
use meter::Meter;
use spread::Spread;

pub use compose::ComposeError;
pub use profile::{
    BasePower, Controller, DriveProfile, GcProfile, Idle, Parallelism, Partial, ReadCost, State,
    WriteCost,
};

/// No instant: later than any.
const NEVER: u64 = u64::MAX;
/// Most that one round of background collection reclaims.
const BACKGROUND_ROUND: f64 = 64e6;

/// Time and energy of one kind of command, in ns and nJ.
#[derive(Debug, Clone, Copy)]
struct Cost {
    command: u64,
    ns_per_byte: f64,
    energy: f64,
    energy_per_byte: f64,
}

/// A power state, ready for use.
#[derive(Debug, Clone, Copy)]
struct Cap {
    /// Inverse of the power that operations may draw; infinite where there is no I/O.
    ns_per_nj: f64,
    operational: bool,
    max_power: f64,
    entry: u64,
    exit: u64,
}

/// A round of background collection, as work that nobody waits for.
#[derive(Debug, Clone, Copy)]
struct Round {
    start: f64,
    end: f64,
    bytes: f64,
}

/// A change of power state under way.
#[derive(Debug, Clone, Copy)]
struct Change {
    at: u64,
    to: PowerState,
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
    /// As last set; in force once no change is under way.
    state: PowerState,
    change: Option<Change>,
    change_at: u64,
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
    /// The profile must be valid ([`DriveProfile::validate`]).
    #[must_use]
    pub fn new(profile: &DriveProfile, seed: u64) -> Self {
        let meter = Meter::new(profile);
        let caps: Box<[Cap]> = profile.states.iter().map(|state| cap(state, &meter)).collect();
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
            state: 0,
            change: None,
            change_at: NEVER,
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

    /// Set Features, Power Management. Commands wait until the new state is in force, which is
    /// after the exit latency of the old state and the entry latency of the new one; returns
    /// that instant. A number beyond the last state selects the last.
    pub fn set_power_state(&mut self, now: Nanos, ps: PowerState) -> Nanos {
        let now = Nanos(now.0.max(self.clock));
        self.advance(now.0);
        self.stop_round(now.0);
        let ps = ps.min((self.caps.len() - 1) as PowerState);
        if ps == self.state {
            return self.change.map_or(now, |change| Nanos(change.at));
        }
        let (old, new) = (self.caps[usize::from(self.state)], self.caps[usize::from(ps)]);
        let mut begin = now.0.max(self.change.map_or(0, |change| change.at));
        if !new.operational {
            begin = begin.max(self.meter.until().ceil() as u64);
        }
        let at = begin + old.exit + new.entry;
        self.change = Some(Change { at, to: ps });
        self.change_at = at;
        self.state = ps;
        self.blocked_until = self.blocked_until.max(at);
        if new.operational {
            // Never above either state's limit while neither is surely in force.
            self.limit(now.0, self.ns_per_nj.max(new.ns_per_nj));
        }
        if at == now.0 {
            self.finish_change();
        }
        Nanos(at)
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
        let wake = self.meter.wake(now as f64);
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
        let transfer = (cost.ns_per_byte * f64::from(bytes)) as u64;
        self.read_link_free = self.read_link_free.max(taken - cost.command) + transfer;
        let programming = self.programmed > taken;
        let sensed = self.media.read(taken, offset, bytes, programming);
        if programming {
            self.programmed += sensed.pages * self.page_share;
        }
        // Pages leave as they come: the first starts the transfer, the last ends it.
        let last_page = (cost.ns_per_byte * f64::from(bytes.min(self.media.page_bytes()))) as u64;
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
        let transfer = (cost.ns_per_byte * size) as u64;
        self.write_link_free = self.write_link_free.max(taken - cost.command) + transfer;
        let program = self.program_ns_per_byte * size + self.copy_ns_per_byte * moved;
        self.programmed = self.programmed.max(taken) + (program + 0.5) as u64;
        // The buffer holds the same bytes for longer while collection slows the programs.
        let own = self.program_ns_per_byte * size.max(1.0);
        let room = self.buffer_time * (program / own).max(1.0);
        let buffered = taken + self.write_latency + self.random.below(self.write_spread);
        let end = buffered.max(self.write_link_free).max((self.programmed as f64 - room) as u64);
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
        let paid = self.paid.max(start as f64);
        self.paid = paid + energy * self.ns_per_nj;
        start.max((paid - self.regulation) as u64)
    }

    /// Spreads `energy` over the time until all work is done and earned.
    #[inline]
    fn account(&mut self, now: u64, energy: f64, end: u64) {
        self.work_until = self.work_until.max(end);
        let until = self.paid.max(self.work_until as f64);
        self.meter.add(now as f64, energy, until, self.ns_per_nj);
    }

    #[inline]
    fn advance(&mut self, now: u64) {
        self.clock = self.clock.max(now);
        if now >= self.change_at {
            self.run_background(self.change_at);
            self.finish_change();
        }
        if now as f64 > self.meter.until() {
            self.run_background(now);
        }
        self.meter.advance(now as f64);
    }

    /// Puts a change of power state in force at its instant.
    fn finish_change(&mut self) {
        let Some(Change { at, to }) = self.change.take() else { return };
        self.change_at = NEVER;
        self.meter.advance(at as f64);
        let cap = self.caps[usize::from(to)];
        if cap.operational {
            self.meter.set_ceiling(f64::INFINITY);
            self.limit(at, cap.ns_per_nj);
        } else {
            self.stop_round(at);
            self.meter.set_ceiling(cap.max_power);
        }
    }

    /// Changes the rate at which energy is earned, for pending work too.
    fn limit(&mut self, now: u64, ns_per_nj: f64) {
        let ahead = (self.paid - now as f64).max(0.0);
        self.paid = now as f64 + ahead * (ns_per_nj / self.ns_per_nj);
        self.ns_per_nj = ns_per_nj;
        if now as f64 <= self.meter.until() {
            self.account(now, 0.0, 0);
        }
    }

    /// An I/O command makes the drive return to its last operational state by itself
    /// (NVMe Base, Non-Operational Power States).
    fn leave_non_operational(&mut self, now: u64) {
        let last = self.caps.iter().rposition(|cap| cap.operational).unwrap_or(0);
        self.set_power_state(Nanos(now), last as PowerState);
    }

    /// Runs background collection as far as it gets by `now` while the drive is idle.
    fn run_background(&mut self, now: u64) {
        let now = now as f64;
        loop {
            let start = match self.round {
                Some(round) if now < round.end => return,
                Some(round) => {
                    self.meter.advance(round.end);
                    self.pool.reclaim(round.bytes);
                    self.round = None;
                    round.end
                }
                None => self.meter.until().max(self.blocked_until as f64) + self.idle_delay,
            };
            let bytes = self.pool.background_work().min(BACKGROUND_ROUND);
            let idle = self.caps[usize::from(self.state)].operational;
            if now < start || bytes < 1.0 || !idle || self.change.is_some() {
                return;
            }
            self.start_round(start, bytes);
        }
    }

    fn start_round(&mut self, start: f64, bytes: f64) {
        let moved = self.pool.cost_of(bytes);
        let time = moved * self.copy_ns_per_byte / self.background_share;
        let energy = moved * self.copy_energy_per_byte;
        let end = start + time.max(energy * self.ns_per_nj).max(1.0);
        self.meter.advance(start);
        self.meter.add(start, energy, end, self.ns_per_nj);
        self.round = Some(Round { start, end: self.meter.until(), bytes });
    }

    /// Gives up the round under way at `now` and keeps what it has reclaimed.
    fn stop_round(&mut self, now: u64) {
        let Some(round) = self.round.take() else { return };
        let now = now as f64;
        let done = ((now - round.start) / (round.end - round.start)).clamp(0.0, 1.0);
        self.pool.reclaim(round.bytes * done);
        self.meter.cancel(now);
    }
}

fn cap(state: &State, meter: &Meter) -> Cap {
    let flow = meter.flow_within(state.max_power.0);
    Cap {
        ns_per_nj: if state.operational { 1.0 / flow } else { f64::INFINITY },
        operational: state.operational,
        max_power: state.max_power.0,
        entry: state.entry.0,
        exit: state.exit.0,
    }
}
