//! One drive of the array: an SSD, which tells at once when a command will complete, or a hard
//! disk, which finds its own order and has an event for the end of each access.

use ebb_policy::PowerState;
use ebb_policy::units::{Joules, Nanos};

use super::events::{Event, Events};
use super::io::DriveCommand;
use crate::drive::Drive;
use crate::hdd::{Command, Completion, Hdd, Wear};
use crate::profile::DriveModel;

/// A drive.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a pointer less on the way of every SSD command")]
pub(super) enum Device {
    Ssd(Drive),
    Hdd(Box<Disk>),
}

/// A hard disk and what it just completed.
#[derive(Debug)]
pub(super) struct Disk {
    hdd: Hdd,
    done: Vec<Completion>,
}

impl Disk {
    fn tell(&mut self, events: &mut Events, drive: u16, access_ends: Option<Nanos>) {
        for (at, io) in self.done.drain(..) {
            events.push(at.0, Event::DiskDone(drive, io));
        }
        if let Some(end) = access_ends {
            events.push(end.0, Event::Access(drive));
        }
    }
}

impl Device {
    pub(super) fn new(model: &DriveModel, seed: u64) -> Self {
        match model {
            DriveModel::Ssd(profile) => Self::Ssd(Drive::new(profile, seed)),
            DriveModel::Hdd(profile) => {
                Self::Hdd(Box::new(Disk { hdd: Hdd::new(profile, seed), done: Vec::new() }))
            }
        }
    }

    /// Starts a command of an SSD; returns when it will end.
    #[inline]
    pub(super) fn start(&mut self, now: u64, command: DriveCommand) -> Option<u64> {
        let Self::Ssd(ssd) = self else { return None };
        Some(ssd.submit(Nanos(now), command.op, command.offset, command.bytes).0)
    }

    /// Starts the command of `io` on a hard disk; its end will be an event.
    pub(super) fn submit(&mut self, command: DriveCommand, events: &mut Events, now: u64, io: u32) {
        if let Self::Hdd(disk) = self {
            let DriveCommand { drive, op, offset, bytes } = command;
            let command = Command { token: io, op, offset, bytes };
            let ends = disk.hdd.submit(Nanos(now), command, &mut disk.done);
            disk.tell(events, drive, ends);
        }
    }

    /// The access of a hard disk ended; the next begins.
    pub(super) fn access_ended(&mut self, events: &mut Events, now: u64, drive: u16) {
        if let Self::Hdd(disk) = self {
            let ends = disk.hdd.ended(Nanos(now), &mut disk.done);
            disk.tell(events, drive, ends);
        }
    }

    pub(super) fn set_vibration(&mut self, now: u64, amplitude: f64) {
        if let Self::Hdd(disk) = self {
            disk.hdd.set_vibration(Nanos(now), amplitude);
        }
    }

    /// Leaves an SSD its idle states with wake-ups of at most `wake`; a hard disk has none.
    pub(super) fn set_idle_wake(&mut self, now: Nanos, wake: Option<Nanos>) {
        if let Self::Ssd(ssd) = self {
            ssd.set_idle_wake(now, wake);
        }
    }

    /// Leaves an SSD a share of its power budget; hard disks do not throttle themselves.
    pub(super) fn set_throttle(&mut self, now: Nanos, share: f64) {
        if let Self::Ssd(ssd) = self {
            ssd.set_throttle(now, share);
        }
    }

    pub(super) fn set_power_state(&mut self, now: Nanos, ps: PowerState) -> Nanos {
        match self {
            Self::Ssd(ssd) => ssd.set_power_state(now, ps),
            Self::Hdd(disk) => disk.hdd.set_power_state(now, ps),
        }
    }

    pub(super) fn energy(&mut self, now: Nanos) -> Joules {
        match self {
            Self::Ssd(ssd) => ssd.energy(now),
            Self::Hdd(disk) => disk.hdd.energy(now),
        }
    }

    pub(super) fn wear(&self) -> Wear {
        match self {
            Self::Ssd(_) => Wear::default(),
            Self::Hdd(disk) => disk.hdd.wear(),
        }
    }
}
