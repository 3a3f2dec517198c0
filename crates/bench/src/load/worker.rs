//! One thread of the load: its connections, what is outstanding, what it measured.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use ebb_cli::random::noise;
use ebb_initiator::{Completion, Error, Queue, Refused, Request};
use ebb_nvme::Status;
use ebb_trace::Op;

use super::job::{Clock, Feed, Job, NONE, Next};
use super::meter::Meter;
use super::plan::Plan;
use super::verify::{Findings, Outcome, Verifier};
use crate::measured::Live;
use crate::thread::cpu_time;

/// How often another place is looked for when a job is in the way of others.
const REDRAWS: usize = 32;
/// How soon a job that is in the way of another thread's is tried again.
const AGAIN: Duration = Duration::from_micros(50);
/// The longest sleep, so that the end and a lost connection elsewhere are seen.
const NAP: Duration = Duration::from_millis(20);
/// How long a load that was stopped waits for answers.
const LAST: Duration = Duration::from_secs(1);
/// Looks between two checks of what rarely changes.
const SELDOM: u32 = 1024;
/// The most blocks of one command.
const MOST_BLOCKS: u32 = 1 << 16;

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// What is to be done.
    pub plan: Arc<Plan>,
    /// What is known of the data.
    pub verifier: Option<Verifier>,
    /// Somebody lost a connection: all stop.
    pub broken: AtomicBool,
    /// All end early: what is outstanding is waited for, nothing more is sent.
    pub stop: Arc<AtomicBool>,
    /// What each thread shows of itself.
    pub live: Vec<Live>,
}

/// Parts of one request that is larger than a command may be.
#[derive(Debug, Clone, Copy)]
struct Group {
    left: u32,
    blocks: u64,
    status: Status,
}

/// One thread.
pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    clock: Clock,
    feed: Box<dyn Feed>,
    ended: bool,
    queues: Vec<Queue>,
    /// Since when each queue may owe an answer.
    owing: Vec<Instant>,
    /// Where to look first for a queue with room.
    turn: usize,
    /// What is outstanding, by tag.
    jobs: Vec<Job>,
    free: Vec<u32>,
    /// Interrupted, to be sent again.
    again: VecDeque<Job>,
    /// Due, but in the way of another, or without room.
    held: Option<Job>,
    /// What is left of a request larger than a command may be.
    rest: Option<Job>,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    buffers: Vec<Vec<u8>>,
    done: Vec<Completion>,
    /// What was measured; `None` for fills and read-backs.
    pub meter: Option<Meter>,
    /// What checking found.
    pub findings: Findings,
    cpu_start: Option<Duration>,
}

impl Worker {
    /// A thread with what it is to do; it has no connections yet.
    pub fn new(index: usize, shared: Arc<Shared>, clock: Clock, feed: Box<dyn Feed>) -> Self {
        Self {
            index,
            shared,
            clock,
            feed,
            ended: false,
            queues: Vec::new(),
            owing: Vec::new(),
            turn: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            again: VecDeque::new(),
            held: None,
            rest: None,
            groups: Vec::new(),
            free_groups: Vec::new(),
            buffers: Vec::new(),
            done: Vec::new(),
            meter: None,
            findings: Findings::default(),
            cpu_start: None,
        }
    }

    /// Measures from now on.
    pub fn measure(&mut self) -> Result<()> {
        self.meter = Some(Meter::new(self.shared.plan.has_bursts())?);
        Ok(())
    }

    /// Gives it connections, the first or new ones.
    pub fn attach(&mut self, queues: Vec<Queue>) {
        let room: usize = queues.iter().map(Queue::room).sum();
        if self.jobs.len() < room {
            let now = Instant::now();
            let phase = super::arrivals::Phase::Between;
            let (op, space, lba, blocks, lane, queue) = (Op::Flush, 0, 0, 0, NONE, None);
            let idle = Job { op, space, lba, blocks, from: now, phase, lane, queue, group: NONE };
            self.jobs.resize(room, idle);
        }
        self.free = (0..self.jobs.len() as u32).rev().collect();
        self.owing = vec![Instant::now(); queues.len()];
        self.queues = queues;
    }

    /// Takes its connections away.
    pub fn detach(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }

    /// Works until all is done, a connection is lost, or another thread lost one.
    ///
    /// # Errors
    /// When a connection is lost; what was outstanding is to be sent again.
    pub fn run(&mut self) -> Result<(), Error> {
        let worked = self.work();
        if worked.is_err() {
            self.shared.broken.store(true, Ordering::Release);
        }
        if let (Some(meter), Some(start)) = (&mut self.meter, self.cpu_start.take()) {
            meter.cpu += cpu_time().saturating_sub(start);
        }
        if self.queues.iter().any(|queue| queue.outstanding() > 0) {
            self.interrupt();
        }
        worked
    }

    fn work(&mut self) -> Result<(), Error> {
        let wait = self.shared.plan.wait;
        let mut looks = 0_u32;
        loop {
            let now = Instant::now();
            if self.cpu_start.is_none() && now >= self.clock.counted {
                self.cpu_start = Some(cpu_time());
            }
            let due = self.submit(now);
            let found = self.look()?;
            if self.is_done() {
                return Ok(());
            }
            looks = looks.wrapping_add(1);
            if (wait && !found) || looks.is_multiple_of(SELDOM) {
                if self.shared.broken.load(Ordering::Acquire) {
                    return Ok(());
                }
                if self.shared.stop.load(Ordering::Relaxed) {
                    self.stop();
                }
                self.check_owing(now)?;
            }
            if wait && !found {
                self.sleep(due)?;
            }
        }
    }

    fn is_done(&self) -> bool {
        !self.is_unfinished() && self.queues.iter().all(|queue| queue.outstanding() == 0)
    }

    /// Whether there is something left to do, besides what is outstanding.
    pub fn is_unfinished(&self) -> bool {
        !self.ended || self.rest.is_some() || self.waiting() > 0
    }

    /// Jobs that were due and are not with the target.
    fn waiting(&self) -> usize {
        usize::from(self.held.is_some()) + self.again.len()
    }

    /// Sends nothing more.
    fn stop(&mut self) {
        self.ended = true;
        let cut = usize::from(self.rest.take().is_some()) + self.again.len();
        self.again.clear();
        let held = self.held.take().is_some();
        if let Some(meter) = &mut self.meter {
            meter.interrupted += cut as u64;
            meter.unsent += u64::from(held);
        }
    }

    /// No more connections: what was left undone, and was due before `end`, is counted.
    pub fn finish(&mut self, end: Option<Instant>) {
        let (waiting, unsent) = (self.waiting() as u64, self.feed.unsent(end));
        if let Some(meter) = &mut self.meter {
            meter.interrupted += waiting;
            meter.unsent += unsent;
        }
    }

    /// The first part of a job that is larger than a command may be; the rest comes next.
    fn first_part(&mut self, mut job: Job) -> Job {
        let plan = &self.shared.plan;
        let block_size = plan.spaces[usize::from(job.space)].namespace.block_size;
        let most = match job.op {
            Op::Trim => MOST_BLOCKS,
            _ => MOST_BLOCKS.min((plan.most_bytes / u64::from(block_size)) as u32),
        };
        if job.blocks <= most {
            return job;
        }
        if job.group == NONE {
            let left = job.blocks.div_ceil(most);
            let group = Group { left, blocks: 0, status: Status::SUCCESS };
            job.group = match self.free_groups.pop() {
                Some(index) => {
                    self.groups[index as usize] = group;
                    index
                }
                None => {
                    self.groups.push(group);
                    self.groups.len() as u32 - 1
                }
            };
        }
        let (lba, blocks) = (job.lba + u64::from(most), job.blocks - most);
        self.rest = Some(Job { lba, blocks, ..job });
        Job { blocks: most, ..job }
    }

    /// Submits what is due; returns when more will be.
    fn submit(&mut self, now: Instant) -> Option<Instant> {
        loop {
            let waiting = self.held.take().or_else(|| self.again.pop_front());
            let job = match waiting.or_else(|| self.rest.take()) {
                Some(job) => job,
                None if self.ended => return None,
                // Without room nothing is taken from the feed: it is due, and will be late.
                None if self.queues.iter().all(|queue| queue.room() == 0) => return None,
                None => match self.feed.next(now) {
                    Next::Job(job) => job,
                    Next::At(at) => return Some(at),
                    Next::Completion => return None,
                    Next::End => {
                        self.ended = true;
                        return None;
                    }
                },
            };
            let job = self.first_part(job);
            let Some(queue) = self.queue_for(&job) else {
                self.held = Some(job);
                return None;
            };
            let Some(job) = self.hold(job) else { return Some(now + AGAIN) };
            self.send(job, queue, now);
        }
    }

    fn queue_for(&mut self, job: &Job) -> Option<usize> {
        if let Some(queue) = job.queue {
            let queue = usize::from(queue);
            return (self.queues[queue].room() > 0).then_some(queue);
        }
        let count = self.queues.len();
        let queue = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|queue| self.queues[*queue].room() > 0)?;
        self.turn = queue + 1;
        Some(queue)
    }

    /// Holds the blocks of a job, elsewhere if need be; keeps the job for later where it cannot.
    fn hold(&mut self, mut job: Job) -> Option<Job> {
        let Some(verifier) = &self.shared.verifier else { return Some(job) };
        for attempt in 0..REDRAWS {
            let ledger = verifier.ledger(job.space);
            let held = match job.op {
                Op::Flush => true,
                Op::Read => ledger.try_read(job.lba, job.blocks),
                Op::Write | Op::Trim => ledger.try_write(job.lba, job.blocks),
            };
            if held {
                return Some(job);
            }
            if attempt == 0
                && let Some(meter) = &mut self.meter
            {
                meter.overlaps += 1;
            }
            if !self.feed.redraw(&mut job) {
                break;
            }
        }
        self.held = Some(job);
        None
    }

    fn send(&mut self, job: Job, queue: usize, now: Instant) {
        let Some(tag) = self.free.pop() else {
            self.release(&job);
            return self.again.push_back(job);
        };
        let plan = &self.shared.plan;
        let namespace = plan.spaces[usize::from(job.space)].namespace;
        let length = job.blocks as usize * namespace.block_size as usize;
        let mut buffer = Vec::new();
        if job.op != Op::Flush {
            buffer = self.buffers.pop().unwrap_or_else(|| noise(plan.seed, tag, length));
        }
        if matches!(job.op, Op::Read | Op::Write) {
            buffer.resize(length, 0);
        }
        if let (Op::Write, Some(verifier)) = (job.op, &self.shared.verifier) {
            verifier.fill(job.space, job.lba, &mut buffer);
        }
        let op = match job.op {
            Op::Read => ebb_initiator::Op::Read,
            Op::Write => ebb_initiator::Op::Write { durable: false },
            Op::Flush => ebb_initiator::Op::Flush,
            Op::Trim => ebb_initiator::Op::Deallocate,
        };
        let Job { lba, blocks, from, .. } = job;
        let (nsid, tag64) = (namespace.id, u64::from(tag));
        if self.queues[queue].outstanding() == 0 {
            self.owing[queue] = now;
        }
        self.jobs[tag as usize] = job;
        let request = Request { op, nsid, lba, blocks, buffer, tag: tag64, from };
        match self.queues[queue].submit(request) {
            Ok(()) => {
                if from >= self.clock.counted
                    && let Some(meter) = &mut self.meter
                {
                    meter.sent(now.saturating_duration_since(from));
                }
            }
            // Room and sizes were checked before: not reached, but nothing is lost if it were.
            Err(Refused::Full(request) | Refused::Invalid(request)) => {
                self.free.push(tag);
                self.buffers.push(request.buffer);
                self.release(&job);
                self.again.push_back(job);
            }
        }
    }

    /// Looks at all connections; returns whether anything was answered.
    fn look(&mut self) -> Result<bool, Error> {
        let wait = self.shared.plan.wait;
        let mut found = false;
        for queue in 0..self.queues.len() {
            // Who sleeps hears of a closed connection even when nothing is outstanding.
            if !wait && self.queues[queue].outstanding() == 0 {
                continue;
            }
            let polled = self.queues[queue].poll(&mut self.done);
            let at = self.queues[queue].heard();
            let mut done = std::mem::take(&mut self.done);
            found |= !done.is_empty();
            for completion in done.drain(..) {
                self.complete(completion, at);
            }
            self.done = done;
            polled?;
        }
        Ok(found)
    }

    fn complete(&mut self, completion: Completion, at: Instant) {
        let Completion { tag, status, buffer, latency, .. } = completion;
        let job = self.jobs[tag as usize];
        self.free.push(tag as u32);
        if let Some(verifier) = &self.shared.verifier {
            let ledger = verifier.ledger(job.space);
            let good = status.is_success();
            match job.op {
                Op::Flush => {}
                Op::Read => {
                    if good {
                        verifier.check(job.space, job.lba, &buffer, &mut self.findings);
                    }
                    ledger.end_read(job.lba, job.blocks);
                }
                Op::Write if good => ledger.end_write(job.lba, job.blocks, Outcome::Written),
                Op::Write => ledger.end_write(job.lba, job.blocks, Outcome::Unknown),
                Op::Trim => ledger.end_write(job.lba, job.blocks, Outcome::Anything),
            }
        }
        if job.op != Op::Flush {
            self.buffers.push(buffer);
        }
        self.account(&job, status, latency, at);
        self.feed.answered(job.lane);
    }

    /// Counts a request whose last command was answered.
    fn account(&mut self, job: &Job, status: Status, latency: Duration, at: Instant) {
        let Some((blocks, status)) = self.ungroup(job, status) else { return };
        let block_size = self.shared.plan.spaces[usize::from(job.space)].namespace.block_size;
        let moves = matches!(job.op, Op::Read | Op::Write);
        let bytes = if moves { blocks * u64::from(block_size) } else { 0 };
        self.shared.live[self.index].add(bytes, latency);
        let Some(meter) = &mut self.meter else {
            if !status.is_success() {
                self.findings.fail(job.op, job.lba, status);
            }
            return;
        };
        if job.from < self.clock.counted {
            return;
        }
        if status.is_success() {
            meter.answered(job.op, job.phase, latency, bytes, at);
        } else {
            meter.failed(job.op, status);
        }
    }

    /// Blocks and status of a request once its last part was answered.
    fn ungroup(&mut self, job: &Job, status: Status) -> Option<(u64, Status)> {
        if job.group == NONE {
            return Some((job.blocks.into(), status));
        }
        let group = &mut self.groups[job.group as usize];
        group.blocks += u64::from(job.blocks);
        group.left -= 1;
        if !status.is_success() {
            group.status = status;
        }
        let (left, whole) = (group.left, (group.blocks, group.status));
        (left == 0).then(|| {
            self.free_groups.push(job.group);
            whole
        })
    }

    /// Lets go of the blocks of a job without an answer.
    fn release(&self, job: &Job) {
        let Some(verifier) = &self.shared.verifier else { return };
        let ledger = verifier.ledger(job.space);
        match job.op {
            Op::Flush => {}
            Op::Read => ledger.end_read(job.lba, job.blocks),
            Op::Write => ledger.end_write(job.lba, job.blocks, Outcome::Unknown),
            Op::Trim => ledger.end_write(job.lba, job.blocks, Outcome::Anything),
        }
    }

    /// What is outstanding will not be answered: to be sent again.
    fn interrupt(&mut self) {
        let mut queues = std::mem::take(&mut self.queues);
        for queue in &mut queues {
            for (tag, buffer) in queue.abandon() {
                let job = self.jobs[tag as usize];
                self.release(&job);
                self.again.push_back(job);
                self.buffers.push(buffer);
            }
        }
        self.queues = queues;
    }

    fn check_owing(&self, now: Instant) -> Result<(), Error> {
        let stopping = self.shared.stop.load(Ordering::Relaxed);
        let timeout = self.shared.plan.timeout;
        let after = if stopping { timeout.min(LAST) } else { timeout };
        for (queue, owing) in self.queues.iter().zip(&self.owing) {
            let since = queue.heard().max(*owing);
            if queue.outstanding() > 0 && now.saturating_duration_since(since) > after {
                return Err(Error::Timeout { command: "I/O commands", after });
            }
        }
        Ok(())
    }

    /// Sleeps until a socket has something, or `due`.
    fn sleep(&self, due: Option<Instant>) -> Result<(), Error> {
        let now = Instant::now();
        let nap = due.map_or(NAP, |due| due.saturating_duration_since(now).min(NAP));
        if nap.is_zero() {
            return Ok(());
        }
        let interest = |queue: &Queue| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, queue.is_sending());
            flags
        };
        let mut sockets: Vec<_> =
            self.queues.iter().map(|queue| PollFd::new(queue, interest(queue))).collect();
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().into() };
        match poll(&mut sockets, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Socket(error.into())),
        }
    }
}
