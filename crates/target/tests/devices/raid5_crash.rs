//! RAID-5 on disks that fail and lose power at any moment, against a model that remembers what
//! was acknowledged.
//!
//! `EBB_CRASHES` sets how often power is cut (150 where absent), `EBB_SEED` the first seed; with
//! `EBB_CRASHES=1`, a seed that failed runs alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ebb_target::device::{
    Channel, Device, Done, Geometry, Io, Keeper, Op, Pool, Raid5, Raid5Options,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::disk::{Disk, Faults, Power};

const STRIPES: u64 = 6;
/// Where the stripes start on each disk: superblocks and the journal come first.
const DATA: u64 = 2 << 20;
/// What always goes wrong and is nobody's failure.
const WEATHER: Faults =
    Faults { passing: 12, short: 12, read: 0, write: 0, sync: 0, full: false, no_ranges: false };

/// What each block may hold: one value once it was acknowledged or read, more while unsure.
struct Model {
    blocks: Vec<BTreeSet<u64>>,
    /// Blocks under a request that has not been answered.
    busy: Vec<bool>,
    version: u64,
}

struct Machine {
    random: Pcg64Mcg,
    power: Arc<Mutex<Power>>,
    disks: Vec<Disk>,
    /// The one disk that is not, or not fully, part of the array.
    out: Option<usize>,
    model: Model,
    pool: Pool,
    options: Raid5Options,
    block: usize,
    seed: u64,
    cuts: u64,
}

/// A request on its way.
struct Flight {
    tag: u64,
    channel: u64,
    lba: usize,
    blocks: usize,
    /// The value written; `None` for a read.
    version: Option<u64>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let members = random.random_range(3..6u64);
        let (block, chunk) = [(512, 4096), (4096, 4096), (4096, 8192)][random.random_range(0..3)];
        let power = Arc::<Mutex<Power>>::default();
        let per_disk = (DATA + STRIPES * u64::from(chunk)) / block as u64;
        let geometry = Geometry { block_size: block as u32, blocks: per_disk };
        let thin = random.random();
        let disk = |at| Disk::new(seed * 31 + at, geometry, &power);
        let disks = (0..members).map(|at| if thin { disk(at).thin() } else { disk(at) }).collect();
        let blocks = STRIPES as usize * (members as usize - 1) * chunk as usize / block;
        Self {
            random,
            disks,
            power,
            out: None,
            model: Model {
                blocks: vec![BTreeSet::from([0]); blocks],
                busy: vec![false; blocks],
                version: 0,
            },
            pool: Pool::new(64, 64 << 10).unwrap(),
            options: Raid5Options {
                chunk,
                journal_slots: 5,
                create: true,
                degraded: true,
                rebuild: true,
                rebuild_rate: None,
            },
            block,
            seed,
            cuts: 0,
        }
    }

    fn members(&self) -> Vec<(String, Arc<dyn Device>)> {
        let present = self.disks.iter().enumerate().filter(|(_, disk)| !disk.failed());
        present.map(|(at, disk)| (format!("disk{at}"), disk.again())).collect()
    }

    fn off(&self) -> bool {
        self.power.lock().unwrap().off
    }

    /// Assembles, perhaps losing power several times while at it.
    fn assemble(&mut self) -> (Raid5, Keeper) {
        loop {
            let fuse = self.random.random_bool(0.4).then(|| self.random.random_range(1..100));
            self.power_up(fuse);
            let errors: u64 = self.disks.iter().map(Disk::errors).sum();
            match Raid5::open_kept(self.members(), &self.options) {
                Ok(array) => {
                    self.options.create = false;
                    self.disks.iter().for_each(|disk| disk.faults(WEATHER));
                    return array;
                }
                Err(error) => {
                    let more = self.disks.iter().map(Disk::errors).sum::<u64>() > errors;
                    let excused = self.off() || self.disks.iter().any(Disk::failed) || more;
                    assert!(excused, "seed {}: {error}", self.seed);
                }
            }
        }
    }

    fn power_up(&mut self, fuse: Option<u64>) {
        if self.off() || self.random.random() {
            self.cuts += 1;
            self.disks.iter().for_each(Disk::power_up);
        }
        self.disks.iter().for_each(|disk| disk.faults(WEATHER));
        let at = self.random.random_range(0..self.disks.len());
        self.disks[at].state().faults.full = self.random.random_bool(0.2);
        *self.power.lock().unwrap() = Power { fuse, off: false };
    }

    fn request(&mut self, tag: u64) -> Option<(Io, Flight)> {
        let all = self.model.blocks.len();
        let lba = self.random.random_range(0..all);
        let most = if self.random.random_bool(0.2) { 32 << 10 } else { 4096 } / self.block;
        let blocks = self.random.random_range(1..=most).min(all - lba);
        if self.model.busy[lba..lba + blocks].contains(&true) {
            return None;
        }
        let read = self.random.random_bool(0.3);
        let mut buffer = self.pool.take(blocks * self.block)?;
        let version = (!read).then(|| {
            self.model.version += 1;
            self.model.version
        });
        let zeroes = version.is_some() && self.random.random_bool(0.1);
        if let Some(version) = version {
            buffer.chunks_mut(8).for_each(|at| at.copy_from_slice(&version.to_le_bytes()));
            let version = if zeroes { 0 } else { version };
            self.model.blocks[lba..lba + blocks].iter_mut().for_each(|may| {
                may.insert(version);
            });
        }
        self.model.busy[lba..lba + blocks].fill(true);
        let durable = self.random.random();
        let (op, buffer) = match version {
            None => (Op::Read { durable: false }, Some(buffer)),
            Some(_) if zeroes => (Op::WriteZeroes { durable }, None),
            Some(_) => (Op::Write { durable }, Some(buffer)),
        };
        let io = Io { tag, op, lba: lba as u64, blocks: blocks as u32, buffer };
        let version = version.map(|version| if zeroes { 0 } else { version });
        Some((io, Flight { tag, channel: 0, lba, blocks, version }))
    }

    fn answered(&mut self, done: &Done, flight: &Flight) {
        let range = flight.lba..flight.lba + flight.blocks;
        self.model.busy[range.clone()].fill(false);
        if !done.status.is_success() {
            // With one disk out at most, only a loss of power is an excuse.
            assert!(self.off(), "seed {}: {:?}", self.seed, done.status);
            return;
        }
        match flight.version {
            Some(version) => self.model.blocks[range].fill(BTreeSet::from([version])),
            None => self.check(flight.lba, done.buffer.as_deref().unwrap(), true),
        }
    }

    /// What was read is what may be there, and of the real array from now on is there.
    fn check(&mut self, lba: usize, data: &[u8], real: bool) {
        for (index, block) in data.chunks(self.block).enumerate() {
            let value = u64::from_le_bytes(block[..8].try_into().unwrap());
            let whole = block.chunks(8).all(|part| part == value.to_le_bytes());
            let may = &mut self.model.blocks[lba + index];
            let (seed, at) = (self.seed, lba + index);
            assert!(whole && may.contains(&value), "seed {seed}: block {at}: {value} of {may:?}");
            if real {
                *may = BTreeSet::from([value]);
            }
        }
    }

    /// Random requests over several channels until power goes or enough was done.
    fn work(&mut self, array: &Raid5, keeper: &mut Keeper, requests: u64) {
        let count = self.random.random_range(1..4u64);
        let mut channels: Vec<(u64, Box<dyn Channel>)> =
            (0..count).map(|at| (at, array.open().unwrap())).collect();
        let mut opened = count;
        let mut flights: Vec<Flight> = Vec::new();
        let (mut sent, mut idle, mut done) = (0, 0, Vec::new());
        while (sent < requests || !flights.is_empty()) && !self.off() {
            if sent < requests && flights.len() < 12 && self.random.random_bool(0.6) {
                sent += 1;
                if let Some((io, flight)) = self.request(sent) {
                    let at = self.random.random_range(0..channels.len());
                    channels[at].1.submit(io);
                    flights.push(Flight { channel: channels[at].0, ..flight });
                }
            }
            let at = self.random.random_range(0..channels.len());
            channels[at].1.poll(&mut done);
            if self.random.random_bool(0.3) {
                keeper.run_once();
            }
            if self.random.random_bool(0.002) {
                // A client goes away in the middle of its requests; a new one comes.
                let gone = channels[at].0;
                opened += 1;
                channels[at] = (opened, array.open().unwrap());
                flights.retain(|flight| {
                    let range = flight.lba..flight.lba + flight.blocks;
                    self.model.busy[range].fill(flight.channel != gone);
                    flight.channel != gone
                });
            }
            idle = if done.is_empty() { idle + 1 } else { 0 };
            assert!(idle < 100_000, "seed {}: {} requests hang", self.seed, flights.len());
            for done in done.drain(..) {
                let at = flights.iter().position(|flight| flight.tag == done.tag);
                let Some(at) = at else { continue };
                let flight = flights.swap_remove(at);
                self.answered(&done, &flight);
            }
        }
        drop(channels);
        self.model.busy.fill(false);
    }

    /// Reads everything; false when power went meanwhile.
    fn read_all(&mut self, array: &Raid5, keeper: &mut Keeper, real: bool) -> bool {
        let mut channel = array.open().unwrap();
        let (all, step) = (self.model.blocks.len(), (32 << 10) / self.block);
        for lba in (0..all).step_by(step) {
            let blocks = step.min(all - lba);
            let (op, buffer) = (Op::Read { durable: false }, self.pool.take(blocks * self.block));
            channel.submit(Io { tag: 0, op, lba: lba as u64, blocks: blocks as u32, buffer });
            let mut done = Vec::new();
            while done.is_empty() {
                channel.poll(&mut done);
                keeper.run_once();
            }
            if !done[0].status.is_success() {
                let (seed, end) = (self.seed, (done[0].status, array.status()));
                assert!(real && self.off(), "seed {seed}: block {lba} on: {end:?}");
                return false;
            }
            self.check(lba, done[0].buffer.as_deref().unwrap(), real);
        }
        true
    }

    /// Every stripe's chunks and parity add up to nothing.
    fn scrub(&self) {
        let mut sum = self.disks[0].content(DATA);
        for disk in &self.disks[1..] {
            sum.iter_mut().zip(disk.content(DATA)).for_each(|(sum, byte)| *sum ^= byte);
        }
        let wrong = sum.iter().position(|byte| *byte != 0);
        assert_eq!(wrong, None, "seed {}: the parity is wrong at this byte", self.seed);
    }

    /// If power went now and, before it came back, any one disk: all would be there.
    fn survives_a_cut_and_any_loss(&mut self) {
        for lost in 0..self.disks.len() {
            let rest = self.disks.iter().enumerate().filter(|(at, _)| *at != lost);
            let copies: Vec<_> = rest.map(|(at, disk)| (at, disk.after_a_cut())).collect();
            let again = copies.iter().map(|(at, disk)| (format!("copy{at}"), disk.again()));
            let (array, mut keeper) = Raid5::open_kept(again.collect(), &self.options).unwrap();
            self.read_all(&array, &mut keeper, false);
        }
    }

    /// Misfortune of one disk for the next round, if the others can bear it.
    fn trouble(&mut self) {
        if self.out.is_some() || self.disks.iter().any(Disk::doomed) {
            return;
        }
        let disk = &self.disks[self.random.random_range(0..self.disks.len())];
        match self.random.random_range(0..8) {
            0 => disk.fail_after(self.random.random_range(1..400)),
            1 => disk.faults(Faults { read: 8, ..WEATHER }),
            2 => disk.faults(Faults { write: 100, ..WEATHER }),
            3 => disk.faults(Faults { sync: 4, ..WEATHER }),
            4 => disk.faults(Faults { full: true, ..WEATHER }),
            _ => {}
        }
    }

    /// Nobody is left out who did nothing wrong.
    fn judge(&mut self, array: &Raid5, errors: &[u64]) {
        let (status, before) = (array.status(), self.out);
        self.out = status.failed.or(status.rebuilding);
        if self.off() {
            return;
        }
        assert!(!status.dead, "seed {}: two disks are out", self.seed);
        if let Some(at) = status.failed.filter(|at| before != Some(*at)) {
            assert!(self.disks[at].errors() > errors[at], "seed {}: disk {at}", self.seed);
        }
    }

    /// A failed disk is replaced, sooner or later.
    fn replace(&mut self) {
        let failed = self.disks.iter().position(Disk::failed);
        if let Some(at) = failed.filter(|_| self.random.random_bool(0.6)) {
            let (seed, geometry) = (self.random.random(), self.disks[at].geometry());
            self.disks[at] = Disk::new(seed, geometry, &self.power);
            if self.random.random_bool(0.2) {
                self.disks[at].fail_after(self.random.random_range(1..400));
            }
        }
    }

    /// From one start of the array to the next.
    fn round(&mut self) {
        let (array, mut keeper) = self.assemble();
        let fuse = self.random.random_bool(0.8).then(|| self.random.random_range(1..2500));
        if !self.off() {
            self.power.lock().unwrap().fuse = fuse;
        }
        let status = array.status();
        self.out = status.failed.or(status.rebuilding);
        let errors: Vec<u64> = self.disks.iter().map(Disk::errors).collect();
        if self.read_all(&array, &mut keeper, true) {
            if self.out.is_none() && array.status().failed.is_none() {
                self.scrub();
            }
            self.trouble();
            self.work(&array, &mut keeper, 150);
        }
        self.disks.iter().for_each(|disk| disk.faults(WEATHER));
        self.judge(&array, &errors);
        if !self.off() && self.read_all(&array, &mut keeper, true) {
            if self.random.random_bool(0.3) {
                keeper.stop();
            }
            self.judge(&array, &errors);
            if self.out.is_none() && !self.off() {
                self.scrub();
                self.survives_a_cut_and_any_loss();
            }
        }
        drop(array);
        self.replace();
    }
}

/// A life of some disks; how often power was cut.
fn life(seed: u64) -> u64 {
    let mut machine = Machine::new(seed);
    for _ in 0..8 {
        machine.round();
    }
    machine.cuts
}

/// Whatever fails, in whatever order things reach the disks: what was acknowledged is read.
#[test]
fn what_was_acknowledged_survives() {
    super::common::campaign(150, life);
}
