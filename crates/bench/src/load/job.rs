//! What a thread has to do, and where it comes from.

use std::time::{Duration, Instant};

use ebb_cli::random::Random;
use ebb_trace::Op;

use super::arrivals::{Arrivals, Phase};
use super::plan::{Plan, Space};

/// No lane, no group.
pub const NONE: u32 = u32::MAX;

/// One command.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// What it does.
    pub op: Op,
    /// Index of the space it is for.
    pub space: u16,
    /// First block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u32,
    /// When it was meant to be sent.
    pub from: Instant,
    /// Part of the schedule.
    pub phase: Phase,
    /// Which slot of a closed loop it occupies, or [`NONE`].
    pub lane: u32,
    /// Connection of the thread that must be used; any if `None`.
    pub queue: Option<u16>,
    /// The request that this is a part of, or [`NONE`].
    pub group: u32,
}

/// What a feed has next.
#[derive(Debug)]
pub enum Next {
    /// This, now.
    Job(Job),
    /// Nothing before this instant.
    At(Instant),
    /// Nothing before a completion.
    Completion,
    /// Nothing any more.
    End,
}

/// When a load begins, counts and ends.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Time zero of schedules and traces.
    pub start: Instant,
    /// What comes before is not counted.
    pub counted: Instant,
    /// Nothing is due from then on; `None` where the trace says so.
    pub end: Option<Instant>,
}

impl Clock {
    /// The clock of a plan that begins now.
    pub fn new(plan: &Plan) -> Self {
        let start = Instant::now();
        let end = plan.duration.map(|duration| start + duration);
        Self { start, counted: start + plan.warmup, end }
    }
    /// Whether `at` is past the end.
    pub fn is_over(&self, at: Instant) -> bool {
        self.end.is_some_and(|end| at >= end)
    }
}

/// Where the jobs of one thread come from.
pub trait Feed: Send {
    /// What is next at `now`.
    fn next(&mut self, now: Instant) -> Next;
    /// The job of this lane was answered.
    fn answered(&mut self, _lane: u32) {}
    /// Moves a job that is in the way of another elsewhere; returns whether it can be.
    fn redraw(&mut self, _job: &mut Job) -> bool {
        false
    }
    /// Jobs that were due before `end`, or ever, and never taken.
    fn unsent(&mut self, _end: Option<Instant>) -> u64 {
        0
    }
}

/// Offsets and operations of generated jobs.
#[derive(Debug)]
pub struct Access {
    spaces: Vec<Space>,
    bytes: u64,
    reads: f64,
    random: Random,
    is_random: bool,
    /// Of each stream of sequential offsets: next unit, first, end.
    streams: Vec<(u64, u64, u64)>,
}

impl Access {
    /// `streams` of this thread per space, beginning with number `first` of `of` in all.
    pub fn new(plan: &Plan, purpose: u64, first: usize, streams: usize, of: usize) -> Self {
        let mut this = Self {
            spaces: plan.spaces.clone(),
            bytes: plan.bytes,
            reads: plan.reads,
            random: Random::new(plan.seed, purpose),
            is_random: plan.rw.is_random(),
            streams: Vec::new(),
        };
        for stream in first..first + streams {
            for space in 0..plan.spaces.len() {
                let units = this.units(space);
                let part = |number: usize| {
                    (u128::from(units) * number as u128 / of as u128).min(u128::from(units)) as u64
                };
                // More streams than units share the first ones.
                let (from, to) = (part(stream), part(stream + 1));
                let (from, to) = if from < to { (from, to) } else { (0, units) };
                this.streams.push((from, from, to));
            }
        }
        this
    }
    fn block(&self, space: usize) -> u64 {
        u64::from(self.spaces[space].namespace.block_size)
    }
    /// Requests that fit a space, side by side.
    fn units(&self, space: usize) -> u64 {
        self.spaces[space].blocks * self.block(space) / self.bytes
    }
    fn lba(&self, space: usize, unit: u64) -> u64 {
        self.spaces[space].first + unit * (self.bytes / self.block(space))
    }
    /// Operation, first block and blocks of the next job of `stream` on `space`.
    fn draw(&mut self, space: usize, stream: usize) -> (Op, u64, u32) {
        let op = if self.random.happens(self.reads) { Op::Read } else { Op::Write };
        let unit = if self.is_random {
            let units = self.units(space);
            self.random.below(units)
        } else {
            let (next, from, to) = &mut self.streams[stream * self.spaces.len() + space];
            let unit = *next;
            *next = if unit + 1 < *to { unit + 1 } else { *from };
            unit
        };
        (op, self.lba(space, unit), (self.bytes / self.block(space)) as u32)
    }
    fn redraw(&mut self, job: &mut Job) -> bool {
        if self.is_random {
            let space = usize::from(job.space);
            let units = self.units(space);
            let unit = self.random.below(units);
            job.lba = self.lba(space, unit);
        }
        self.is_random
    }
}

/// A closed loop: each lane has one job outstanding.
pub struct Closed {
    access: Access,
    clock: Clock,
    /// Of each lane: connection and space.
    lanes: Vec<(u16, u16)>,
    ready: Vec<u32>,
}

impl Closed {
    /// Lanes for a thread with connections `first` to `first + count`.
    pub fn new(plan: &Plan, clock: Clock, first: usize, count: usize) -> Self {
        let access = Access::new(plan, 0x200 + first as u64, first, count, plan.connections.into());
        let mut lanes = Vec::new();
        for _ in 0..plan.depth {
            for queue in 0..count {
                lanes.extend((0..plan.spaces.len()).map(|space| (queue as u16, space as u16)));
            }
        }
        let ready = (0..lanes.len() as u32).rev().collect();
        Self { access, clock, lanes, ready }
    }
}

impl Feed for Closed {
    fn next(&mut self, now: Instant) -> Next {
        if self.clock.is_over(now) {
            return Next::End;
        }
        let Some(lane) = self.ready.pop() else { return Next::Completion };
        let (queue, space) = self.lanes[lane as usize];
        let (op, lba, blocks) = self.access.draw(space.into(), queue.into());
        let queue = Some(queue);
        let (from, phase, group) = (now, Phase::Between, NONE);
        Next::Job(Job { op, space, lba, blocks, from, phase, lane, queue, group })
    }
    fn answered(&mut self, lane: u32) {
        if lane != NONE {
            self.ready.push(lane);
        }
    }
    fn redraw(&mut self, job: &mut Job) -> bool {
        self.access.redraw(job)
    }
}

/// An open loop: jobs come by a schedule.
pub struct Open {
    access: Access,
    clock: Clock,
    arrivals: Arrivals,
    random: Random,
}

impl Open {
    /// The share of thread `index` of `of`.
    pub fn new(plan: &Plan, arrivals: Arrivals, clock: Clock, index: usize, of: usize) -> Self {
        let access = Access::new(plan, 0x200 + index as u64, index, 1, of);
        let random = Random::new(plan.seed, 0x300 + index as u64);
        Self { access, clock, arrivals, random }
    }
}

impl Feed for Open {
    fn next(&mut self, now: Instant) -> Next {
        let (at, phase) = self.arrivals.next();
        let Some(from) = self.clock.start.checked_add(Duration::from_nanos(at.0)) else {
            return Next::End;
        };
        if self.clock.is_over(now) || self.clock.is_over(from) {
            return Next::End;
        }
        if from > now {
            return Next::At(from);
        }
        self.arrivals.step();
        let space = self.random.below(self.access.spaces.len() as u64) as u16;
        let (op, lba, blocks) = self.access.draw(space.into(), 0);
        let (lane, queue, group) = (NONE, None, NONE);
        Next::Job(Job { op, space, lba, blocks, from, phase, lane, queue, group })
    }
    fn redraw(&mut self, job: &mut Job) -> bool {
        self.access.redraw(job)
    }
    fn unsent(&mut self, end: Option<Instant>) -> u64 {
        let end = end.unwrap_or(self.clock.start);
        let end = end.saturating_duration_since(self.clock.start).as_nanos();
        let mut count = 0;
        while u128::from(self.arrivals.next().0.0) < end {
            self.arrivals.step();
            count += 1;
        }
        count
    }
}

/// Every block once, in large pieces: a fill, or the last read-back.
pub struct Sweep {
    op: Op,
    spaces: Vec<Space>,
    bytes: u64,
    space: usize,
    /// Next piece of this space, and how many threads share the pieces.
    piece: u64,
    index: u64,
    of: u64,
}

impl Sweep {
    /// Bytes of a piece where the target takes so many at once.
    const PIECE: u64 = 128 << 10;

    /// The pieces of thread `index` of `of`.
    pub fn new(plan: &Plan, op: Op, index: usize, of: usize) -> Self {
        let (index, of) = (index as u64, of as u64);
        let bytes = plan.most_bytes.min(Self::PIECE);
        Self { op, spaces: plan.spaces.clone(), bytes, space: 0, piece: index, index, of }
    }
}

impl Feed for Sweep {
    fn next(&mut self, now: Instant) -> Next {
        while let Some(space) = self.spaces.get(self.space) {
            let per_piece = (self.bytes / u64::from(space.namespace.block_size)).max(1);
            let at = self.piece * per_piece;
            if at >= space.blocks {
                self.space += 1;
                self.piece = self.index;
                continue;
            }
            self.piece += self.of;
            return Next::Job(Job {
                op: self.op,
                space: self.space as u16,
                lba: space.first + at,
                blocks: per_piece.min(space.blocks - at) as u32,
                from: now,
                phase: Phase::Between,
                lane: NONE,
                queue: None,
                group: NONE,
            });
        }
        Next::End
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::plan::tests::plan;

    proptest! {
        /// Jobs lie within their spaces; sequential ones of all connections cover each once.
        #[test]
        fn generated_jobs_stay_in_their_spaces(
            blocks in 1_u64..200, first in 0_u64..50, connections in 1_u16..8, random: bool,
        ) {
            let plan = plan(blocks, first, connections, random);
            let clock = Clock { end: None, ..Clock::new(&plan) };
            let mut seen = vec![0; blocks as usize];
            for connection in 0..usize::from(connections) {
                let mut feed = Closed::new(&plan, clock, connection, 1);
                let part = blocks as usize * (connection + 1) / usize::from(connections)
                    - blocks as usize * connection / usize::from(connections);
                for _ in 0..part {
                    let Next::Job(mut job) = feed.next(clock.start) else { panic!("a job") };
                    prop_assert!(matches!(feed.next(clock.start), Next::Completion));
                    feed.answered(job.lane);
                    prop_assert_eq!(job.blocks, 1);
                    seen[(job.lba - first) as usize] += 1;
                    prop_assert_eq!(feed.redraw(&mut job), random);
                    prop_assert!((first..first + blocks).contains(&job.lba));
                }
            }
            prop_assert!(random || seen.iter().all(|count| *count == 1), "{:?}", seen);
        }

        #[test]
        fn a_sweep_covers_every_block_once(
            blocks in 1_u64..500, first in 0_u64..50, threads in 1_usize..5,
        ) {
            let plan = plan(blocks, first, 1, false);
            let mut seen = vec![0; blocks as usize];
            for index in 0..threads {
                let mut sweep = Sweep::new(&plan, Op::Read, index, threads);
                while let Next::Job(job) = sweep.next(Instant::now()) {
                    for lba in job.lba..job.lba + u64::from(job.blocks) {
                        seen[(lba - first) as usize] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|count| *count == 1), "{:?}", seen);
        }
    }
}
