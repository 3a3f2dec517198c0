//! A disk that loses power, fails, or cannot read, at chosen or random moments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_target::device::{Channel, Device, Done, Geometry, Io, Op};
use ebb_target::wire::Status;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub const BLOCK: usize = 512;
type Block = [u8; BLOCK];

/// What all disks of a machine share: one power supply.
#[derive(Default)]
pub struct Power {
    /// Requests until it is cut; `None` for never.
    pub fuse: Option<u64>,
    pub off: bool,
}

pub struct Disk {
    state: Arc<Mutex<State>>,
    blocks: u64,
}

struct State {
    power: Arc<Mutex<Power>>,
    random: Pcg64Mcg,
    /// What survives a loss of power.
    durable: HashMap<u64, Block>,
    /// What was written since the last flush: any of it, or none, may survive.
    loose: HashMap<u64, Vec<Block>>,
    /// Requests until it fails for good.
    fuse: Option<u64>,
    failed: bool,
    /// One read in so many fails.
    flaky: Option<u32>,
}

impl Disk {
    pub fn new(seed: u64, bytes: u64, power: &Arc<Mutex<Power>>) -> Self {
        let state = State {
            power: power.clone(),
            random: Pcg64Mcg::seed_from_u64(seed),
            durable: HashMap::new(),
            loose: HashMap::new(),
            fuse: None,
            failed: false,
            flaky: None,
        };
        Self { state: Arc::new(Mutex::new(state)), blocks: bytes / BLOCK as u64 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The same disk plugged in again.
    pub fn again(&self) -> Arc<dyn Device> {
        Arc::new(Self { state: self.state.clone(), blocks: self.blocks })
    }

    /// A copy of what it holds, with a power supply that stays on.
    pub fn copy(&self) -> Self {
        let copy = Self::new(1, self.blocks * BLOCK as u64, &Arc::default());
        let state = self.state();
        copy.state().durable = state.durable.clone();
        copy.state().loose = state.loose.clone();
        drop(state);
        copy
    }

    pub fn fail_after(&self, requests: u64) {
        self.state().fuse = Some(requests);
    }
    pub fn failed(&self) -> bool {
        self.state().failed
    }
    /// Whether it will fail or has.
    pub fn doomed(&self) -> bool {
        let state = self.state();
        state.failed || state.fuse.is_some()
    }
    pub fn flaky(&self, one_in: Option<u32>) {
        self.state().flaky = one_in;
    }

    /// Power is back: of every block, the durable content or any that was written since.
    pub fn power_up(&self) {
        let mut state = self.state();
        let State { loose, durable, random, .. } = &mut *state;
        let mut loose: Vec<_> = loose.drain().collect();
        loose.sort_by_key(|(block, _)| *block);
        for (block, versions) in loose {
            let chosen = random.random_range(0..=versions.len());
            if let Some(version) = versions.get(chosen) {
                durable.insert(block, *version);
            }
        }
    }
}

impl State {
    fn get(&self, block: u64) -> Block {
        let loose = self.loose.get(&block).and_then(|versions| versions.last());
        *loose.or(self.durable.get(&block)).unwrap_or(&[0; BLOCK])
    }

    /// Whether the request may run; when power goes, blocks of it may have been written.
    fn alive(&mut self, io: &Io) -> bool {
        let mut power = self.power.lock().unwrap();
        if power.off || self.failed {
            return false;
        }
        if let Some(left) = &mut power.fuse {
            *left = left.saturating_sub(1);
            if *left == 0 {
                power.off = true;
                drop(power);
                self.write(io, true);
                return false;
            }
        }
        drop(power);
        if let Some(left) = &mut self.fuse {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.failed = true;
                self.write(io, true);
                return false;
            }
        }
        true
    }

    fn write(&mut self, io: &Io, torn: bool) {
        let durable = match io.op {
            Op::Write { durable } | Op::WriteZeroes { durable } => durable && !torn,
            _ => return,
        };
        for index in 0..u64::from(io.blocks) {
            if torn && self.random.random() {
                continue;
            }
            let mut block = [0; BLOCK];
            if let Some(buffer) = &io.buffer {
                block.copy_from_slice(&buffer[index as usize * BLOCK..][..BLOCK]);
            }
            if durable {
                self.loose.remove(&(io.lba + index));
                self.durable.insert(io.lba + index, block);
            } else {
                self.loose.entry(io.lba + index).or_default().push(block);
            }
        }
    }

    fn run(&mut self, io: &mut Io) -> Status {
        if !self.alive(io) {
            return Status::INTERNAL_ERROR;
        }
        match io.op {
            Op::Read { .. } => {
                if self.flaky.is_some_and(|one_in| self.random.random_range(0..one_in) == 0) {
                    return Status::UNRECOVERED_READ;
                }
                for index in 0..u64::from(io.blocks) {
                    let block = self.get(io.lba + index);
                    let buffer = io.buffer.as_mut().expect("a read has a buffer");
                    buffer[index as usize * BLOCK..][..BLOCK].copy_from_slice(&block);
                }
            }
            Op::Flush => {
                for (block, versions) in std::mem::take(&mut self.loose) {
                    self.durable.insert(block, *versions.last().unwrap());
                }
            }
            _ => self.write(io, false),
        }
        Status::SUCCESS
    }
}

/// Runs requests late and in any order.
struct Lane {
    state: Arc<Mutex<State>>,
    queue: Vec<Io>,
}

impl Channel for Lane {
    fn submit(&mut self, io: Io) {
        self.queue.push(io);
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let mut state = self.state.lock().unwrap();
        let before = done.len();
        while !self.queue.is_empty() && state.random.random_range(0..3) > 0 {
            let at = state.random.random_range(0..self.queue.len());
            let mut io = self.queue.swap_remove(at);
            let status = state.run(&mut io);
            done.push(io.done(status));
        }
        done.len() - before
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { block_size: BLOCK as u32, blocks: self.blocks }
    }
    fn describe(&self) -> String {
        "a disk that may fail".to_owned()
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        Ok(Box::new(Lane { state: self.state.clone(), queue: Vec::new() }))
    }
}
