//! One stream: a thread with a ring of its own that issues its requests when they are due.
//!
//! Between two requests it sleeps in the ring, where an answer wakes it as well, until a little
//! before the next one is due, and spins for the rest: a sleep alone ends too late by what the
//! processor takes to wake up.

use std::fs::File;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use ebb_cli::interrupt;
use ebb_cli::random::noise;
use ebb_target::device::{Answer, Call, FileQueue};
use ebb_trace::Op;

use super::content;
use super::requests::Planned;
use super::tally::{Issued, SHORT, Tally};
use crate::measured::Live;
use crate::thread::{cpu_time, settle};

/// The longest sleep, so that an interruption is seen.
const NAP: Duration = Duration::from_millis(50);
/// Memory of a stream's buffers, at most, where that leaves it a few.
const MEMORY: u64 = 256 << 20;
/// Requests in flight that are always possible.
const FEW: u64 = 4;

/// How requests are issued.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Requests outstanding at most.
    pub depth: u32,
    /// The longest request.
    pub longest: u32,
    /// Whether requests wait for their due times.
    pub timed: bool,
    /// How long before a due time it spins.
    pub spin: Duration,
    /// Not counted at the start.
    pub warmup: Duration,
    /// End at the first failure.
    pub abort: bool,
    /// Keep a list of what was issued.
    pub keep: bool,
    /// Make the writes durable at the end, in the time counted.
    pub sync: bool,
    /// Seed of what is written.
    pub seed: u64,
}

impl Manner {
    /// As many requests as wanted, fewer where their buffers would take too much memory.
    pub fn depth_for(wanted: u32, longest: u32) -> u32 {
        let fit = MEMORY / u64::from(longest).max(content::BLOCK);
        u64::from(wanted).min(fit.max(FEW)) as u32
    }
}

/// What all streams of a repeat share.
pub struct Shared {
    /// Raised by a stream that ends the repeat.
    pub stop: AtomicBool,
    /// What each shows of itself.
    pub live: Vec<Live>,
}

/// A stream on an open file.
pub struct Stream<'a> {
    requests: &'a [Planned],
    manner: Manner,
    queue: FileQueue,
    /// By slot: the request, and when it was issued.
    flying: Vec<(u32, Instant)>,
    next: usize,
    tally: Tally,
}

impl<'a> Stream<'a> {
    /// With everything it will need, so that nothing is allocated while it runs.
    ///
    /// # Errors
    /// When the system refuses a ring.
    pub fn new(
        index: usize,
        requests: &'a [Planned],
        file: Arc<File>,
        manner: Manner,
    ) -> Result<Self> {
        const REMEDY: &str = "cannot set up io_uring, which requests are issued through; allow it \
             with 'sysctl kernel.io_uring_disabled=0' and in the container's seccomp profile";
        let bytes = manner.longest.max(content::BLOCK as u32) as usize;
        let mut number = 0;
        let fill = |buffer: &mut [u8]| {
            number += 1;
            buffer.copy_from_slice(&noise(
                manner.seed,
                (index as u32) << 16 | number,
                buffer.len(),
            ));
        };
        let queue = FileQueue::new(file, manner.depth, bytes, fill).context(REMEDY)?;
        let mut tally = Tally::new()?;
        if manner.keep {
            // Touched here, not while requests are timed.
            tally.issued = vec![Issued { at: 0, latency: None }; requests.len()];
        }
        let flying = vec![(0, Instant::now()); manner.depth as usize];
        Ok(Self { requests, manner, queue, flying, next: 0, tally })
    }

    /// Issues everything from `start` on and waits for the answers.
    ///
    /// # Errors
    /// When the ring does not work.
    pub fn run(
        mut self,
        index: usize,
        core: Option<usize>,
        start: Instant,
        shared: &Shared,
    ) -> Result<Tally> {
        settle(core);
        let live = &shared.live[index];
        while let Some(early) = start.checked_duration_since(Instant::now()) {
            let nap = early.saturating_sub(self.manner.spin);
            if !nap.is_zero() {
                std::thread::sleep(nap.min(NAP));
            }
        }
        let cpu = cpu_time();
        loop {
            let due = self.issue(start)?;
            if self.next == self.requests.len() && self.queue.in_flight() == 0 {
                break;
            }
            if interrupt::asked() || shared.stop.load(Ordering::Relaxed) {
                self.give_up();
                self.queue.wait(Some(NAP))?;
            } else {
                self.wait(due)?;
            }
            while let Some(answer) = self.queue.next() {
                self.answered(answer, start, live, shared);
            }
        }
        if self.manner.sync {
            self.sync()?;
        }
        self.tally.cpu = cpu_time().saturating_sub(cpu);
        self.tally.issued.truncate(self.next);
        Ok(self.tally)
    }

    /// Issues what is due, each at once: a device idles while a batch for it is made ready. Returns
    /// when the next one is due, if it must be waited for.
    fn issue(&mut self, start: Instant) -> Result<Option<Instant>> {
        let mut was_full = self.queue.is_full();
        while let Some(request) = self.requests.get(self.next) {
            if self.queue.is_full() {
                break;
            }
            let now = Instant::now();
            let due =
                if self.manner.timed { start + Duration::from_nanos(request.at) } else { now };
            if due > now {
                return Ok(Some(due));
            }
            let (call, length) = match request.op {
                Op::Read => (Call::Read, request.bytes),
                Op::Write => (Call::Write { durable: false }, request.bytes),
                Op::Flush => (Call::Sync, 0),
                Op::Trim => (Call::PunchHole, request.bytes),
            };
            let write = request.op == Op::Write;
            let prepare = |data: &mut [u8]| {
                if write {
                    content::stamp(data, request.offset);
                }
            };
            let slot = self.queue.push(call, request.offset, length.into(), prepare);
            let Some(slot) = slot else { break };
            self.queue.submit()?;
            self.flying[slot as usize] = (self.next as u32, now);
            if self.manner.keep {
                self.tally.issued[self.next].at = nanos(now.duration_since(start));
            }
            if self.manner.timed && now >= start + self.manner.warmup {
                self.tally.deviation.record(nanos(now.duration_since(due)));
                self.tally.held_back += u64::from(std::mem::take(&mut was_full));
            }
            self.next += 1;
        }
        Ok(None)
    }

    /// Waits for an answer, or until shortly before `due`.
    fn wait(&mut self, due: Option<Instant>) -> Result<()> {
        let Some(due) = due else {
            self.queue.wait(None)?;
            return Ok(());
        };
        let left = due.saturating_duration_since(Instant::now());
        match left.checked_sub(self.manner.spin).filter(|nap| !nap.is_zero()) {
            Some(nap) => self.queue.wait(Some(nap.min(NAP)))?,
            None => std::hint::spin_loop(),
        }
        Ok(())
    }

    fn answered(&mut self, answer: Answer, start: Instant, live: &Live, shared: &Shared) {
        let now = Instant::now();
        let (index, issued) = self.flying[answer.slot as usize];
        let request = &self.requests[index as usize];
        let whole = request.op.data(request.bytes);
        let errno = match answer.result {
            Ok(moved) if moved == whole => None,
            Ok(_) => Some(SHORT),
            Err(error) => Some(error.raw_os_error().unwrap_or(SHORT)),
        };
        self.tally.last = Some(now);
        if let Some(errno) = errno {
            self.tally.failed(request.op, errno);
            if self.manner.abort {
                shared.stop.store(true, Ordering::Relaxed);
            }
            return;
        }
        let latency = now.duration_since(issued);
        live.add(whole.into(), latency);
        if self.manner.keep {
            self.tally.issued[index as usize].latency = NonZeroU64::new(nanos(latency));
        }
        if issued < start + self.manner.warmup {
            return;
        }
        self.tally.requests.add(request.op, nanos(latency), whole.into());
        if self.manner.timed {
            let due = start + Duration::from_nanos(request.at);
            self.tally.response.record(nanos(now.saturating_duration_since(due)));
        }
    }

    /// Issues nothing more.
    fn give_up(&mut self) {
        self.tally.unsent += (self.requests.len() - self.next) as u64;
        self.requests = &self.requests[..self.next];
    }

    /// What the page cache holds has to reach the disk, or its power would be left out.
    fn sync(&mut self) -> Result<()> {
        if self.queue.push(Call::Sync, 0, 0, |_| ()).is_none() {
            return Ok(());
        }
        while self.queue.in_flight() > 0 {
            self.queue.wait(Some(NAP))?;
            while let Some(answer) = self.queue.next() {
                if let Err(error) = answer.result {
                    self.tally.failed(Op::Flush, error.raw_os_error().unwrap_or(SHORT));
                }
            }
        }
        self.tally.last = Some(Instant::now());
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
