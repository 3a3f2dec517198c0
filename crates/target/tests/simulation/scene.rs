//! What all actors share: time, chance, the connections, what was written, the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ebb_policy::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::history::{History, Moment, Place};
use super::network::{Fabric, PORTS, Pipe};

/// Events kept for a failure.
const TAIL: usize = 150;
/// The namespace for attacks: nobody relies on what it holds.
pub const ATTACKED: usize = 0;

/// Blocks of a namespace, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub namespace: usize,
    pub lba: u64,
    pub blocks: u32,
}

impl Extent {
    /// Its blocks, if they are remembered.
    pub fn places(self) -> impl Iterator<Item = Place> + Clone {
        let blocks = if self.namespace == ATTACKED { 0 } else { self.blocks.into() };
        (0..blocks).map(move |at| (self.namespace, self.lba + at))
    }
}

/// What hosts know of a namespace.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    pub id: u32,
    pub blocks: u64,
    /// Its requests may fail.
    pub fails: bool,
    /// It was removed.
    pub is_gone: bool,
    /// By port.
    pub paths: [Path; PORTS],
}

impl Space {
    pub fn new(id: u32, blocks: u64, fails: bool) -> Self {
        Self { id, blocks, fails, is_gone: false, paths: [Path::default(); PORTS] }
    }
}

/// Whether a namespace is reached by a port, and since when that is so.
#[derive(Debug, Clone, Copy, Default)]
pub struct Path {
    pub is_shut: bool,
    pub since: Nanos,
}

/// A write whose connection ended before its answer: it may still happen.
struct Orphan {
    host: u8,
    pipe: Arc<Pipe>,
    /// That of its controller's admin queue.
    admin: Option<Arc<Pipe>>,
    extents: Vec<Extent>,
    write: Moment,
}

/// What was seen to happen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub steps: u64,
    /// I/O commands of well-behaved hosts answered.
    pub answered: u64,
    /// The most polls of its group that one of them took.
    pub most_polls: u64,
    /// The longest one took, ns.
    pub longest: u64,
    /// Commands to be tried again later, since their device hung.
    pub interrupted: u64,
    pub connections: u64,
    pub restarts: u64,
    /// What was changed while hosts were at it.
    pub changes: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.answered += other.answered;
        self.most_polls = self.most_polls.max(other.most_polls);
        self.longest = self.longest.max(other.longest);
        self.interrupted += other.interrupted;
        self.connections += other.connections;
        self.restarts += other.restarts;
        self.changes += other.changes;
    }
}

pub struct Scene {
    pub random: Pcg64Mcg,
    pub step: u64,
    pub now: Nanos,
    pub fabric: Fabric,
    pub history: History,
    /// Of each group.
    pub polls: Vec<u64>,
    /// How often all connections by a port were cut: all of them when the target was started.
    pub epochs: [u64; PORTS],
    /// Whether hosts reach the target by a port.
    pub is_open: [bool; PORTS],
    /// By index; [`ATTACKED`] is the first.
    pub spaces: Vec<Space>,
    /// What was written lately, for Compare.
    pub recent: VecDeque<(Extent, u64)>,
    /// Hosts begin nothing new.
    pub is_ending: bool,
    pub tally: Tally,
    orphans: Vec<Orphan>,
    tag: u64,
    log: VecDeque<(u64, &'static str, [u64; 4])>,
    /// Of everything ever logged.
    pub trace: u64,
}

impl Scene {
    pub fn new(seed: u64, groups: usize, limit: u32, steps: &Arc<AtomicU64>) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            step: 0,
            now: Nanos::from_secs(1),
            fabric: Fabric::new(groups, limit, steps),
            history: History::default(),
            polls: vec![0; groups],
            epochs: [0; PORTS],
            is_open: [true, false],
            spaces: Vec::new(),
            recent: VecDeque::new(),
            is_ending: false,
            tally: Tally::default(),
            orphans: Vec::new(),
            tag: 0,
            log: VecDeque::new(),
            trace: seed,
        }
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    pub fn note(&mut self, what: &'static str, values: [u64; 4]) {
        for value in values {
            self.trace = (self.trace ^ value).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        }
        if self.log.len() == TAIL {
            self.log.pop_front();
        }
        self.log.push_back((self.step, what, values));
    }

    pub fn print_log(&self) {
        for (step, what, values) in &self.log {
            eprintln!("{step:>9} {what} {values:?}");
        }
    }

    /// A tag that no write had.
    pub fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    pub fn connect(&mut self) -> Option<(Arc<Pipe>, usize)> {
        let seed = self.random.random();
        let capacity = 1 << self.random.random_range(10..=18);
        let port = if self.is_open[1] { self.random.random_range(0..PORTS) } else { 0 };
        let pipe = self.fabric.connect(seed, capacity, port);
        self.tally.connections += u64::from(pipe.is_some());
        pipe
    }

    /// The host will not hear of this write any more.
    pub fn orphan(
        &mut self,
        host: u8,
        [pipe, admin]: [Option<Arc<Pipe>>; 2],
        extents: Vec<Extent>,
        write: Moment,
    ) {
        let Some(pipe) = pipe else { return };
        self.orphans.push(Orphan { host, pipe, admin, extents, write });
    }

    /// Whether writes to a namespace may still happen that nobody waits for.
    pub fn has_orphans(&self, namespace: usize) -> bool {
        let mut extents = self.orphans.iter().flat_map(|one| &one.extents);
        extents.any(|extent| extent.namespace == namespace)
    }

    /// A path changes.
    pub fn set_path(&mut self, namespace: usize, port: usize, is_shut: bool) {
        let path = &mut self.spaces[namespace].paths[port];
        if path.is_shut != is_shut {
            *path = Path { is_shut, since: self.now };
        }
    }

    /// What a host sent at `step` for a namespace was done: so its writes of queues that the target
    /// knew by then to have ended have happened or never will.
    pub fn settle_older(&mut self, host: u8, namespace: usize, step: u64) {
        let has_left = |pipe: &Arc<Pipe>| pipe.target_left().is_some_and(|left| left < step);
        self.end_orphans(|one| {
            let its = one.host == host && one.extents[0].namespace == namespace;
            its && (has_left(&one.pipe) || one.admin.as_ref().is_some_and(has_left))
        });
    }

    /// Writes of connections that the target closed before `oldest`, when the oldest request
    /// under way was submitted, have happened or never will.
    pub fn settle(&mut self, oldest: u64) {
        self.end_orphans(|one| one.pipe.target_left().is_some_and(|step| step < oldest));
    }

    fn end_orphans(&mut self, is_over: impl Fn(&Orphan) -> bool) {
        let (over, rest) = std::mem::take(&mut self.orphans).into_iter().partition(is_over);
        self.orphans = rest;
        for one in over as Vec<Orphan> {
            for extent in one.extents {
                self.history.end_write(extent.places(), one.write, false);
            }
        }
    }

    pub fn fail(&self, what: &str) -> ! {
        panic!("step {}: {what}", self.step);
    }
}
