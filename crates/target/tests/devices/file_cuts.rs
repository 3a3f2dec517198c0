//! Files on a disk that loses power, fails, fills up and answers as it likes, against a model of
//! what each sector may hold.
//!
//! `EBB_CRASHES` sets how often power is cut (150 where absent), `EBB_SEED` the first seed; with
//! `EBB_CRASHES=1`, a seed that failed runs alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ebb_nvme::Status;
use ebb_target::device::{Channel, Device, Done, Geometry, Io, Op, Pool};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::disk::{Disk, Faults, Power, SECTOR};

const SECTORS: usize = 256;
const BUFFERS: u32 = 24;

/// The values that a sector was given, in order, from the first that it may still have.
#[derive(Clone)]
struct Sector {
    /// The number of the first.
    first: usize,
    values: Vec<u64>,
    /// The number of the first that a read may find.
    settled: usize,
}

impl Sector {
    fn of(value: u64) -> Self {
        Self { first: 0, values: vec![value], settled: 0 }
    }
    fn give(&mut self, value: u64) -> usize {
        self.values.push(value);
        self.first + self.values.len() - 1
    }
    /// Nothing before `number` comes back.
    fn keep(&mut self, number: usize) {
        if number > self.first {
            self.values.drain(..number - self.first);
            self.first = number;
        }
        self.settled = self.settled.max(self.first);
    }
}

/// A request on its way.
struct Flight {
    op: Op,
    channel: usize,
    sectors: std::ops::Range<usize>,
    /// By sector, the number of the value that it is given.
    given: Vec<usize>,
    /// What had settled in each sector when it was sent.
    settled: Vec<usize>,
    /// A sync failed meanwhile: parts of it may be gone.
    doubtful: bool,
}

struct Machine {
    seed: u64,
    random: Pcg64Mcg,
    power: Arc<Mutex<Power>>,
    disk: Disk,
    faults: Faults,
    block: usize,
    pool: Pool,
    sectors: Vec<Sector>,
    busy: Vec<bool>,
    flights: HashMap<u64, Flight>,
    version: u64,
    /// A sync failed: until the file is opened anew, none may succeed.
    lost: bool,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let block = if random.random() { 512 } else { 4096 };
        let blocks = (SECTORS * SECTOR / block) as u64;
        let power = Arc::<Mutex<Power>>::default();
        let disk = Disk::new(seed, Geometry { block_size: block as u32, blocks }, &power);
        Self {
            seed,
            random,
            disk,
            power,
            faults: Faults::default(),
            block,
            pool: Pool::new(BUFFERS, 16 << 10).unwrap(),
            sectors: vec![Sector::of(0); SECTORS],
            busy: vec![false; SECTORS],
            flights: HashMap::new(),
            version: 0,
            lost: false,
        }
    }

    fn off(&self) -> bool {
        self.power.lock().unwrap().off
    }

    fn misfortune(&mut self) -> Faults {
        let random = &mut self.random;
        let hard = random.random_bool(0.4);
        let mut one_in = |hard: bool, most| if hard { random.random_range(2..most) } else { 0 };
        Faults {
            passing: one_in(true, 12),
            short: one_in(true, 12),
            read: one_in(hard, 60),
            write: one_in(hard, 60),
            sync: one_in(hard, 20),
            full: hard && one_in(true, 5) == 2,
            no_ranges: one_in(true, 5) == 2,
        }
    }

    /// The next request, where none that is on its way meets it.
    fn request(&mut self, tag: u64, channel: usize) -> Option<Io> {
        let per = self.block / SECTOR;
        let blocks = self.random.random_range(1..=(16 << 10) / self.block);
        let lba = self.random.random_range(0..SECTORS / per);
        let blocks = blocks.min(SECTORS / per - lba);
        let durable = self.random.random_bool(0.3);
        let op = match self.random.random_range(0..20) {
            0..9 => Op::Write { durable },
            9..14 => Op::Read { durable },
            14..16 => Op::WriteZeroes { durable },
            16 => Op::Deallocate,
            _ => Op::Flush,
        };
        let flush = op == Op::Flush;
        let sectors = if flush { 0..SECTORS } else { lba * per..(lba + blocks) * per };
        if !flush && self.busy[sectors.clone()].contains(&true) {
            return None;
        }
        let buffer = match op {
            Op::Read { .. } | Op::Write { .. } => Some(self.pool.take(blocks * self.block)?),
            _ => None,
        };
        let mut io = Io { tag, op, lba: lba as u64, blocks: blocks as u32, buffer };
        let settled = self.sectors[sectors.clone()].iter().map(|sector| sector.settled).collect();
        let mut given = Vec::new();
        if !flush && !matches!(op, Op::Read { .. }) {
            self.version += 1;
            let value = if io.buffer.is_some() { self.version } else { 0 };
            if let Some(buffer) = &mut io.buffer {
                buffer.chunks_mut(8).for_each(|at| at.copy_from_slice(&value.to_le_bytes()));
            }
            given.extend(self.sectors[sectors.clone()].iter_mut().map(|s| s.give(value)));
        }
        if !flush {
            self.busy[sectors.clone()].fill(true);
        }
        self.flights.insert(tag, Flight { op, channel, sectors, given, settled, doubtful: false });
        Some(io)
    }

    fn answered(&mut self, done: Done) {
        let Some(flight) = self.flights.remove(&done.tag) else {
            panic!("seed {}: answered twice or never asked", self.seed)
        };
        let flush = flight.op == Op::Flush;
        if !flush {
            self.busy[flight.sectors.clone()].fill(false);
        }
        if !done.status.is_success() {
            return self.refused(flight.op, done.status);
        }
        let parts = flight.sectors.clone().zip(0..);
        match flight.op {
            Op::Read { .. } => {
                let buffer = done.buffer.unwrap();
                for (sector, index) in parts.clone() {
                    self.check(sector, &buffer[index * SECTOR..][..SECTOR], false);
                }
            }
            Op::Write { .. } | Op::WriteZeroes { .. } if !flight.doubtful => {
                parts
                    .clone()
                    .for_each(|(at, index)| self.sectors[at].settled = flight.given[index]);
            }
            _ => {}
        }
        let (Op::Read { durable } | Op::Write { durable } | Op::WriteZeroes { durable }) =
            flight.op
        else {
            if flush {
                assert!(!self.lost, "seed {}: a flush succeeds after one that failed", self.seed);
                parts.for_each(|(at, index)| self.sectors[at].keep(flight.settled[index]));
            }
            return;
        };
        if durable {
            let numbers = if flight.given.is_empty() { &flight.settled } else { &flight.given };
            parts.for_each(|(at, index)| self.sectors[at].keep(numbers[index]));
        }
    }

    /// A request may fail for its own reasons only.
    fn refused(&mut self, op: Op, status: Status) {
        if self.off() {
            return;
        }
        let (seed, faults) = (self.seed, self.faults);
        let expected = match op {
            Op::Read { durable } => {
                assert!(faults.read > 0 || durable && (faults.sync > 0 || self.lost));
                status == Status::UNRECOVERED_READ
            }
            _ => {
                let full = faults.full && status == Status::CAPACITY_EXCEEDED;
                let broken = faults.write > 0 || faults.sync > 0 || self.lost;
                full || broken && status == Status::WRITE_FAULT
            }
        };
        assert!(expected, "seed {seed}: {op:?} ends with {status:?} under {faults:?}");
        let syncs = matches!(
            op,
            Op::Flush
                | Op::Read { durable: true }
                | Op::Write { durable: true }
                | Op::WriteZeroes { durable: true }
        );
        if syncs && status != Status::CAPACITY_EXCEEDED {
            self.lost |= op == Op::Flush || matches!(op, Op::Read { .. }) && faults.read == 0;
            self.forget();
        }
    }

    /// A sync may have failed: what was not synced before may be gone at any time.
    fn forget(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.settled = sector.first);
        self.flights.values_mut().for_each(|flight| flight.doubtful = true);
    }

    /// A sector has one of its values, whole.
    fn check(&mut self, at: usize, data: &[u8], after_a_cut: bool) {
        let value = u64::from_le_bytes(data[..8].try_into().unwrap());
        let whole = data.chunks(8).all(|part| part == value.to_le_bytes());
        let sector = &mut self.sectors[at];
        let from = if after_a_cut { 0 } else { sector.settled - sector.first };
        let may = &sector.values[from..];
        let seed = self.seed;
        assert!(whole && may.contains(&value), "seed {seed}: sector {at}: {value} of {may:?}");
        if after_a_cut {
            *sector = Sector::of(value);
        }
    }

    /// Random requests over several channels until power goes or enough was done.
    fn work(&mut self) {
        let mut channels: Vec<Box<dyn Channel>> =
            (0..3).map(|_| self.disk.open().unwrap()).collect();
        let (mut tag, mut idle, mut done) = (0, 0, Vec::new());
        while (tag < 150 || !self.flights.is_empty()) && !self.off() {
            if tag < 150 && self.random.random_bool(0.6) {
                tag += 1;
                let at = self.random.random_range(0..channels.len());
                if let Some(io) = self.request(tag, at) {
                    channels[at].submit(io);
                }
            }
            let at = self.random.random_range(0..channels.len());
            if self.random.random_bool(0.005) {
                channels[at] = self.disk.open().unwrap();
                self.gone(at);
            }
            channels[at].poll(&mut done);
            idle = if done.is_empty() { idle + 1 } else { 0 };
            assert!(idle < 10_000, "seed {}: {} requests hang", self.seed, self.flights.len());
            done.drain(..).for_each(|done| self.answered(done));
        }
        drop(channels);
        self.flights.clear();
        self.busy.fill(false);
        assert_eq!(self.pool.available(), BUFFERS as usize, "seed {}: lost buffers", self.seed);
    }

    /// A client went away in the middle of its requests, and does not hear how they ended.
    fn gone(&mut self, channel: usize) {
        let Self { flights, busy, .. } = self;
        flights.retain(|_, flight| {
            if flight.channel == channel && flight.op != Op::Flush {
                busy[flight.sectors.clone()].fill(false);
            }
            flight.channel != channel
        });
        if self.faults.sync > 0 || self.faults.write > 0 {
            self.forget();
        }
    }

    /// Power is back, or the process: all is read. True when it was power.
    fn restart(&mut self) -> bool {
        let cut = self.off() || self.random.random();
        *self.power.lock().unwrap() = Power::default();
        if cut {
            self.disk.power_up();
        }
        self.disk.faults(Faults::default());
        self.disk.reopen();
        self.lost = false;
        let mut channel = self.disk.open().unwrap();
        let per = (16 << 10) / SECTOR;
        for first in (0..SECTORS).step_by(per) {
            let (lba, blocks) = (first * SECTOR / self.block, (16 << 10) / self.block);
            let (op, buffer) = (Op::Read { durable: false }, self.pool.take(16 << 10));
            channel.submit(Io { tag: 0, op, lba: lba as u64, blocks: blocks as u32, buffer });
            let mut done = Vec::new();
            while channel.poll(&mut done) == 0 {}
            let buffer = done[0].buffer.as_deref().unwrap();
            for index in 0..per {
                self.check(first + index, &buffer[index * SECTOR..][..SECTOR], cut);
            }
        }
        cut
    }
}

/// A life of one disk; how often power was cut.
fn life(seed: u64) -> u64 {
    let mut machine = Machine::new(seed);
    let mut cuts = 0;
    for _ in 0..8 {
        machine.faults = machine.misfortune();
        machine.disk.faults(machine.faults);
        let fuse = machine.random.random_bool(0.8).then(|| machine.random.random_range(1..400));
        machine.power.lock().unwrap().fuse = fuse;
        machine.work();
        cuts += u64::from(machine.restart());
    }
    cuts
}

#[test]
fn what_was_synced_survives_a_cut() {
    super::common::campaign(150, life);
}
