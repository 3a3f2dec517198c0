//! A device that takes its time: does requests late and in any order, answers later still, fails
//! some, hangs for a time, and can be made to break its promises.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_nvme::Status;
use ebb_target::device::{Channel, Device, Done, Error, Geometry, Io, Op};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::history::BLOCK;

/// The number of requests that were answered before they were done.
const LATE: u64 = u64::MAX;

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Acknowledges a write that it does not do.
    LosesWrites,
    /// Writes elsewhere: to the block after.
    Misdirects,
    /// Acknowledges a write and does it later.
    AnswersEarly,
    /// Stores half of a block.
    Tears,
}

/// How a device behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nature {
    /// One request in so many fails, having been done in part or not; zero for none.
    pub failure: u32,
    /// One poll in so many begins a pause.
    pub pause: u32,
    /// Some requests go on with this chance, in eighths, at each poll.
    pub eagerness: u32,
    /// The steps from and to which it does nothing at all.
    pub hangs: (u64, u64),
    pub lie: Option<Lie>,
}

#[derive(Debug)]
struct State {
    random: Pcg64Mcg,
    nature: Nature,
    /// When each request that is not completed was submitted, by channel and number.
    under_way: BTreeMap<(usize, u64), u64>,
    submitted: u64,
    channels: usize,
    /// Fails everything from now on.
    is_broken: bool,
}

/// What all channels of a device share, and the checks look at.
#[derive(Debug, Clone)]
pub struct Watch {
    state: Arc<Mutex<State>>,
    steps: Arc<AtomicU64>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// When the oldest request that is not completed was submitted.
    pub fn oldest(&self) -> Option<u64> {
        self.state().under_way.values().copied().min()
    }

    /// Whether the channel opened as the nth has requests under way.
    pub fn is_busy(&self, channel: usize) -> bool {
        self.state().under_way.range((channel, 0)..=(channel, u64::MAX)).next().is_some()
    }

    pub fn fail(&self) {
        self.state().is_broken = true;
    }

    /// Numbers channels from zero again.
    pub fn restart(&self) {
        self.state().channels = 0;
    }
}

pub struct Slow {
    inner: Arc<dyn Device>,
    watch: Watch,
}

impl Slow {
    pub fn new(
        inner: Arc<dyn Device>,
        seed: u64,
        nature: Nature,
        steps: &Arc<AtomicU64>,
    ) -> (Arc<Self>, Watch) {
        let state = State {
            random: Pcg64Mcg::seed_from_u64(seed),
            nature,
            under_way: BTreeMap::new(),
            submitted: 0,
            channels: 0,
            is_broken: false,
        };
        let watch = Watch { state: Arc::new(Mutex::new(state)), steps: steps.clone() };
        (Arc::new(Self { inner, watch: watch.clone() }), watch)
    }
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn describe(&self) -> String {
        "a device that takes its time".to_owned()
    }
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        self.inner.grow(bytes)
    }
    fn open(&self) -> io::Result<Box<dyn Channel>> {
        let number = {
            let mut state = self.watch.state();
            state.channels += 1;
            state.channels - 1
        };
        Ok(Box::new(Lane {
            inner: self.inner.open()?,
            watch: self.watch.clone(),
            number,
            waiting: Vec::new(),
            running: BTreeMap::new(),
            results: Vec::new(),
            done: Vec::new(),
            pause: 0,
        }))
    }
}

/// What a request was submitted with and how it must end.
struct Ticket {
    tag: u64,
    /// The window of the buffer, if only a part is done.
    whole: Option<usize>,
    fails: bool,
}

struct Lane {
    inner: Box<dyn Channel>,
    watch: Watch,
    number: usize,
    waiting: Vec<(u64, Io)>,
    running: BTreeMap<u64, Ticket>,
    /// Done, not yet told.
    results: Vec<(u64, Done)>,
    done: Vec<Done>,
    pause: u32,
}

/// The first `blocks` blocks of a request alone.
fn cut(mut io: Io, blocks: u32) -> Io {
    io.blocks = blocks;
    if let Some(buffer) = &mut io.buffer {
        buffer.window(0..blocks as usize * BLOCK);
    }
    io
}

impl Lane {
    fn changes(io: &Io) -> bool {
        matches!(io.op, Op::Write { .. } | Op::WriteZeroes { .. })
    }

    /// Gives a request to the device below, or ends it here.
    fn run(&mut self, number: u64, mut io: Io) {
        let mut state = self.watch.state();
        let State { random, nature, is_broken, .. } = &mut *state;
        let fails = *is_broken
            || nature.failure > 0 && io.op != Op::Flush && random.random_ratio(1, nature.failure);
        let mut ticket = Ticket { tag: io.tag, whole: None, fails };
        let part = if fails && !*is_broken { random.random_range(0..=io.blocks) } else { 0 };
        // What was answered early may take long.
        let lies = if number == LATE { 0.9 } else { 0.1 };
        let lie = nature.lie.filter(|_| Self::changes(&io) && random.random_bool(lies));
        drop(state);
        if fails {
            let status =
                if Self::changes(&io) { Status::WRITE_FAULT } else { Status::UNRECOVERED_READ };
            if !Self::changes(&io) || part == 0 {
                return self.results.push((number, io.done(status)));
            }
            ticket.whole = io.buffer.as_ref().map(|buffer| buffer.len());
            io = cut(io, part);
        }
        match lie {
            Some(Lie::LosesWrites) => {
                return self.results.push((number, io.done(Status::SUCCESS)));
            }
            Some(Lie::Misdirects) if io.lba > 0 => io.lba -= 1,
            Some(Lie::Tears) => {
                if let Some(buffer) = &mut io.buffer {
                    buffer[100..BLOCK].fill(0xee);
                }
            }
            Some(Lie::AnswersEarly) => {
                let tag = io.tag;
                self.results.push((number, Done { tag, status: Status::SUCCESS, buffer: None }));
                self.waiting.push((LATE, io));
                return;
            }
            _ => {}
        }
        io.tag = number;
        self.running.insert(number, ticket);
        self.inner.submit(io);
    }

    fn collect(&mut self) {
        self.inner.poll(&mut self.done);
        for mut done in self.done.drain(..) {
            let Some(ticket) = self.running.remove(&done.tag) else { continue };
            if let (Some(whole), Some(buffer)) = (ticket.whole, &mut done.buffer) {
                buffer.window(0..whole);
            }
            let number = std::mem::replace(&mut done.tag, ticket.tag);
            if ticket.fails {
                done.status = Status::WRITE_FAULT;
            }
            self.results.push((number, done));
        }
    }

    /// How many of so many go on now.
    fn go_on(&self, of: usize) -> usize {
        let mut state = self.watch.state();
        let eagerness = state.nature.eagerness;
        let goes_on = of > 0 && state.random.random_range(0..8) < eagerness;
        if goes_on { state.random.random_range(1..=of) } else { 0 }
    }

    fn pick(&self, of: usize) -> usize {
        self.watch.state().random.random_range(0..of)
    }
}

impl Channel for Lane {
    fn submit(&mut self, io: Io) {
        let mut state = self.watch.state();
        state.submitted += 1;
        let number = state.submitted;
        state.under_way.insert((self.number, number), self.watch.steps.load(Ordering::Relaxed));
        drop(state);
        self.waiting.push((number, io));
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let (from, to) = self.watch.state().nature.hangs;
        if (from..to).contains(&self.watch.steps.load(Ordering::Relaxed)) {
            return 0;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        let pause = self.watch.state().nature.pause;
        if pause > 0 && self.pick(pause as usize) == 0 {
            self.pause = 50;
        }
        for _ in 0..self.go_on(self.waiting.len()) {
            let (number, io) = self.waiting.swap_remove(self.pick(self.waiting.len()));
            self.run(number, io);
        }
        self.collect();
        let before = done.len();
        for _ in 0..self.go_on(self.results.len()) {
            let (number, result) = self.results.swap_remove(self.pick(self.results.len()));
            if number != LATE {
                self.watch.state().under_way.remove(&(self.number, number));
                done.push(result);
            }
        }
        done.len() - before
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None // The scheduler asks `Watch::is_busy`.
    }
}

/// The target is gone: what the device has taken, it may do or not.
impl Drop for Lane {
    fn drop(&mut self) {
        while let Some((number, io)) = self.waiting.pop() {
            if self.go_on(1) > 0 {
                self.run(number, io);
            }
        }
        let mut state = self.watch.state();
        state.under_way.retain(|(channel, _), _| *channel != self.number);
    }
}
