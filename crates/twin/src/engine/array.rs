//! The drives behind their queues: layout, parity, power-state writes, energy.

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{DriveSignals, DriveSpec, PowerState};
use ebb_trace::Op;

use super::device::Device;
use super::drive_queue::{Block, DriveQueue};
use super::events::{Event, Events};
use super::io::{DriveCommand, Io, Ios};
use super::rate::{Rate, pass};
use crate::hdd::Wear;
use crate::profile::{DriveModel, Profile, Raid, RateLimit, usable};

/// All drives.
#[derive(Debug)]
pub(super) struct Array {
    drives: Vec<DriveQueue>,
    /// When each drive's rate limit has earned what was sent to it so far.
    earned: Vec<u64>,
    /// How fast each drive may be read from and written to.
    rates: Vec<[Rate; 2]>,
    /// Whether there is any such limit.
    rated: bool,
    spec: DriveSpec,
    limit: Option<RateLimit>,
    /// What memory carries, in ns a byte, and when it has carried what was sent so far.
    memory: Option<f64>,
    carried: u64,
    chunk_shift: u32,
    parity: usize,
    capacity: u64,
    /// Power-state writes still to be made, in order, last first; one is under way at a time.
    writes: Vec<(u16, PowerState)>,
    /// The write under way.
    writing: Option<(u16, PowerState)>,
    /// States in force.
    states: Vec<PowerState>,
    /// The longest wake-up of idle states that the drives were found with.
    idle_wake: Option<Nanos>,
    /// Largest sum of caps at any instant; a write under way counts with its larger cap.
    most_capped: Watts,
    /// Reads and writes of all drives in the period.
    block: [Block; 2],
}

/// Where a byte of a volume lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub drive: u16,
    pub offset: u64,
    /// The stripe, which tells the parity drives.
    pub stripe: u64,
    /// Which data chunk of the stripe it is.
    pub position: u64,
}

impl Array {
    pub(super) fn new(profile: &Profile, model: &DriveModel, seed: u64) -> Self {
        let count = usize::from(profile.drives.count);
        let depth = profile.drives.queue_depth;
        let drive =
            |index: u64| DriveQueue::new(Device::new(model, seed.wrapping_add(index)), depth);
        Self {
            drives: (0..count as u64).map(drive).collect(),
            earned: vec![0; count],
            rates: vec![[Rate::default(); 2]; count],
            rated: false,
            spec: model.spec(),
            limit: profile.drives.limit,
            memory: profile.board.memory_bandwidth.map(|rate| 1e9 / rate.0 as f64),
            carried: 0,
            chunk_shift: profile.layout.chunk.0.trailing_zeros(),
            parity: profile.layout.raid.parity(),
            capacity: usable(model.capacity().0),
            writes: Vec::with_capacity(count),
            writing: None,
            states: vec![0; count],
            idle_wake: profile.drives.idle_wake,
            most_capped: Watts(0.0),
            block: [Block::default(); 2],
        }
    }

    pub(super) fn drives(&self) -> usize {
        self.drives.len()
    }
    /// Bytes one volume can have.
    pub(super) fn volume_bytes(&self, raid: Raid) -> u64 {
        match raid {
            Raid::None => self.capacity,
            Raid::Raid5 | Raid::Raid6 => self.capacity * (self.drives.len() - self.parity) as u64,
        }
    }
    /// Bytes until the end of the chunk that holds `address`.
    pub(super) fn left_in_chunk(&self, address: u64) -> u64 {
        (1 << self.chunk_shift) - (address & ((1 << self.chunk_shift) - 1))
    }

    /// Where byte `address` of the striped space lies; parity rotates from stripe to stripe.
    pub(super) fn place(&self, address: u64) -> Place {
        let drives = self.drives.len() as u64;
        let data = drives - self.parity as u64;
        let chunk = address >> self.chunk_shift;
        let (stripe, position) = (chunk / data, chunk % data);
        let drive = (stripe + self.parity as u64 + position) % drives;
        let within = address & ((1 << self.chunk_shift) - 1);
        let offset = (stripe << self.chunk_shift) + within;
        Place { drive: drive as u16, offset, stripe, position }
    }
    /// The drives that hold the parity of `stripe`.
    pub(super) fn parity_drives(&self, stripe: u64) -> impl Iterator<Item = u16> + use<> {
        let drives = self.drives.len() as u64;
        (0..self.parity as u64).map(move |parity| ((stripe + parity) % drives) as u16)
    }

    /// Sends a command to its drive; returns when it will end, if it can start now and the drive
    /// knows. Otherwise nothing was done.
    #[inline]
    pub(super) fn accept(&mut self, now: u64, command: DriveCommand) -> Option<u64> {
        if self.limit.is_some() || self.rated || self.carried > now {
            return None;
        }
        let end = self.drives[usize::from(command.drive)].accept(now, command);
        if end.is_some() {
            self.carry(now, command.bytes);
        }
        end
    }
    /// When memory has room for so many bytes that a drive reads from it or writes to it.
    fn carry(&mut self, now: u64, bytes: u32) -> u64 {
        let Some(ns) = self.memory else { return now };
        pass(&mut self.carried, now, (f64::from(bytes) * ns).round() as u64)
    }
    /// Sends `io` to its drive as soon as memory, its limit and then its rate let it pass.
    pub(super) fn submit(&mut self, ios: &mut Ios, events: &mut Events, now: u64, io: u32) {
        let Io { drive, bytes, .. } = ios[io];
        let mut at = self.carry(now, bytes);
        if let Some(limit) = &self.limit {
            at = at.max(pass(&mut self.earned[usize::from(drive)], now, limit.time(bytes)));
        }
        if at > now {
            return events.push(at, Event::Admitted(io));
        }
        self.admit(ios, events, now, io);
    }
    /// Sends `io`, which the limit of its drive lets pass, as soon as its rate does so too.
    pub(super) fn admit(&mut self, ios: &mut Ios, events: &mut Events, now: u64, io: u32) {
        let Io { drive, op, .. } = ios[io];
        let way = u8::from(op != Op::Read);
        let rate = &mut self.rates[usize::from(drive)][usize::from(way)];
        if !rate.limits() {
            return self.send(ios, events, now, io);
        }
        rate.hold(ios, io);
        self.rated(ios, events, now, (drive, way));
    }
    /// Sends what the rate of a drive lets pass by now, and has an event tell of the next.
    pub(super) fn rated(
        &mut self,
        ios: &mut Ios,
        events: &mut Events,
        now: u64,
        (drive, way): (u16, u8),
    ) {
        while let Some(io) = self.rates[usize::from(drive)][usize::from(way)].next(ios, now) {
            self.send(ios, events, now, io);
        }
        if let Some(at) = self.rates[usize::from(drive)][usize::from(way)].tell() {
            events.push(at, Event::Rated(drive, way));
        }
    }
    /// Sets how many bytes a second may be read from and written to each drive. What waits is
    /// held to the new rate from now on.
    pub(super) fn set_rates(
        &mut self,
        ios: &mut Ios,
        events: &mut Events,
        now: u64,
        rates: impl Iterator<Item = [Option<f64>; 2]>,
    ) {
        self.rated = false;
        for (drive, limits) in rates.enumerate().take(self.rates.len()) {
            for (way, limit) in limits.into_iter().enumerate() {
                self.rated |= limit.is_some();
                if self.rates[drive][way].change(now, limit) {
                    self.rated(ios, events, now, (drive as u16, way as u8));
                }
            }
        }
    }
    /// Sends `io` to its drive, or queues it there.
    pub(super) fn send(&mut self, ios: &mut Ios, events: &mut Events, now: u64, io: u32) {
        self.drives[usize::from(ios[io].drive)].send(ios, events, now, io);
    }
    /// The disk completed a command.
    pub(super) fn done(&mut self, ios: &Ios, events: &mut Events, now: u64, io: u32) {
        self.drives[usize::from(ios[io].drive)].ended(ios, events, now, io);
    }
    /// A command of an SSD that others wait for has ended.
    pub(super) fn room(&mut self, ios: &Ios, events: &mut Events, now: u64, drive: u16) {
        self.drives[usize::from(drive)].has_ended(ios, events, now, drive);
    }

    /// An access to the media of a hard disk ended.
    pub(super) fn access_ended(&mut self, events: &mut Events, now: u64, drive: u16) {
        self.drives[usize::from(drive)].device.access_ended(events, now, drive);
    }
    /// The amplitude of the vibration from now on, relative to what the fans of the
    /// characterised server cause at full speed. Hard disks suffer from it.
    pub(super) fn set_vibration(&mut self, now: u64, amplitude: f64) {
        for drive in &mut self.drives {
            drive.device.set_vibration(now, amplitude);
        }
    }
    /// What wore each drive's mechanics; nothing in an SSD.
    pub(super) fn wear(&self) -> impl Iterator<Item = Wear> {
        self.drives.iter().map(|drive| drive.device.wear())
    }

    /// The states in force.
    pub(super) fn states(&self) -> &[PowerState] {
        &self.states
    }
    /// Sets states before the run starts, in no time.
    pub(super) fn preset(&mut self, states: impl Iterator<Item = PowerState>) {
        for (drive, ps) in states.enumerate() {
            self.drives[drive].device.set_power_state(Nanos::ZERO, ps);
            self.states[drive] = ps;
        }
        self.most_capped = self.capped();
    }
    /// Replaces the writes still to be made.
    pub(super) fn plan(
        &mut self,
        writes: impl Iterator<Item = (usize, PowerState)>,
        events: &mut Events,
        now: u64,
    ) {
        self.writes.clear();
        self.writes.extend(writes.map(|(drive, ps)| (drive as u16, ps)));
        self.writes.reverse();
        if self.writing.is_none() {
            self.write_next(events, now);
        }
    }
    fn write_next(&mut self, events: &mut Events, now: u64) {
        self.writing = self.writes.pop();
        if let Some((drive, ps)) = self.writing {
            let done = self.drives[usize::from(drive)].device.set_power_state(Nanos(now), ps);
            events.push(done.0, Event::PowerState(drive));
            self.most_capped = self.most_capped.max(self.capped());
        }
    }
    /// The write under way took effect.
    pub(super) fn written(&mut self, events: &mut Events, now: u64) {
        if let Some((drive, ps)) = self.writing {
            self.states[usize::from(drive)] = ps;
        }
        self.write_next(events, now);
    }
    /// Sum of caps; a write under way counts with the larger of its two.
    fn capped(&self) -> Watts {
        let cap = |(drive, ps): (usize, &PowerState)| match self.writing {
            Some((writing, to)) if usize::from(writing) == drive => {
                self.spec.cap(*ps).max(self.spec.cap(to))
            }
            _ => self.spec.cap(*ps),
        };
        self.states.iter().enumerate().map(cap).sum()
    }
    /// Sets which idle states each drive may enter: by the longest wake-up asked for, or as found.
    pub(super) fn set_idle_wake(&mut self, now: u64, wakes: impl Iterator<Item = Option<Nanos>>) {
        for (drive, wake) in self.drives.iter_mut().zip(wakes) {
            drive.device.set_idle_wake(Nanos(now), wake.or(self.idle_wake));
        }
    }
    /// Sets the share of its power budget for work that each drive allows itself.
    pub(super) fn throttle(&mut self, now: Nanos, factors: impl Iterator<Item = f64>) {
        for (drive, factor) in self.drives.iter_mut().zip(factors) {
            drive.device.set_throttle(now, factor);
        }
    }
    /// Largest sum of caps at any instant so far.
    pub(super) fn most_capped(&self) -> Watts {
        self.most_capped
    }

    /// What the block layer counted of all drives in the period, and how many commands there are.
    pub(super) fn block(&self, now: u64) -> ([Block; 2], u64) {
        (self.block, self.drives.iter().map(|drive| drive.there(now)).sum())
    }

    /// Reports each drive over a period of `length` ns; returns the energy of all of them.
    pub(super) fn sense(&mut self, now: u64, length: u64, signals: &mut [DriveSignals]) -> f64 {
        let mut sum = 0.0;
        self.block = [Block::default(); 2];
        for ((drive, state), signal) in self.drives.iter_mut().zip(&self.states).zip(signals) {
            let (joules, sensed, done) = drive.sense(now, length, *state);
            sum += joules;
            for (all, own) in self.block.iter_mut().zip(done) {
                all.completed += own.completed;
                all.time += own.time;
            }
            *signal = sensed;
        }
        sum
    }
}

impl RateLimit {
    /// Time that a command takes of the rate, ns.
    fn time(&self, bytes: u32) -> u64 {
        let command = self.iops.map_or(0.0, |iops| 1e9 / iops);
        let moved = self.bytes.map_or(0.0, |rate| f64::from(bytes) / rate.0 as f64 * 1e9);
        command.max(moved) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_chunk_has_its_own_place_and_parity_is_never_on_the_data() {
        for (name, parity) in [("generic-1u", 1), ("dorado-6000", 2)] {
            let profile = Profile::load(name).unwrap();
            let array = Array::new(&profile, profile.model().unwrap(), 1);
            let chunk = profile.layout.chunk.0;
            let data = (array.drives() - parity) as u64;
            let mut taken = HashSet::new();
            for stripe in 0..200 {
                let offset = stripe * chunk;
                assert!(array.parity_drives(stripe).all(|drive| taken.insert((drive, offset))));
                for position in 0..data {
                    let place = array.place((stripe * data + position) * chunk + 7);
                    assert_eq!((place.stripe, place.position), (stripe, position));
                    assert_eq!(place.offset, offset + 7);
                    assert!(taken.insert((place.drive, offset)), "{name}: stripe {stripe}");
                }
            }
            assert_eq!(taken.len(), 200 * array.drives());
        }
    }
}
