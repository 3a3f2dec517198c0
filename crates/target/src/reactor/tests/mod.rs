//! Whole runtimes with tasks that record what happens to them.

mod memory;
mod moves;
mod ring;
pub mod simulation;
mod start;
mod waits;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebb_policy::reactor::{Period, Placement, Queues, Scheduler, Wait};
use ebb_policy::units::Nanos;
use rustix::event::{EventfdFlags, eventfd};

use super::{Config, Strategy, Task, topology};

/// What a task shows to its test.
pub struct Seen {
    polling: AtomicBool,
    /// Polled on two cores at once.
    pub overlapped: AtomicBool,
    pub polls: AtomicU64,
    /// Events taken from the file.
    pub events: AtomicU64,
    /// Counted up by the test.
    pub file: OwnedFd,
    pub number: usize,
}

impl Seen {
    pub fn new(number: usize) -> Arc<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Arc::new(Self {
            polling: AtomicBool::new(false),
            overlapped: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            events: AtomicU64::new(0),
            file: eventfd(0, flags).unwrap(),
            number,
        })
    }
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Acquire)
    }
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Acquire)
    }
    /// A request from outside.
    pub fn request(&self) {
        rustix::io::write(&self.file, &1_u64.to_ne_bytes()).unwrap();
    }
}

/// Takes events from its file; records its polls.
pub struct Recorder {
    pub seen: Arc<Seen>,
    /// Lends its file to wait for.
    pub lends: bool,
    /// A timed poller with this period.
    pub period: Option<Nanos>,
    pub due: Nanos,
}

impl Recorder {
    pub fn new(seen: &Arc<Seen>) -> Self {
        Self { seen: Arc::clone(seen), lends: true, period: None, due: Nanos::ZERO }
    }
    pub fn boxed(self) -> Box<dyn Task> {
        Box::new(self)
    }
}

impl Task for Recorder {
    fn poll(&mut self, now: Nanos) -> usize {
        let seen = &*self.seen;
        if seen.polling.swap(true, Ordering::AcqRel) {
            seen.overlapped.store(true, Ordering::Release);
        }
        if let Some(period) = self.period {
            assert!(now >= self.due, "polled before it was due");
            self.due = now + period;
        }
        let mut count = [0; 8];
        let read = rustix::io::read(&seen.file, &mut count);
        let events = read.map_or(0, |_| u64::from_ne_bytes(count));
        seen.events.fetch_add(events, Ordering::AcqRel);
        seen.polls.fetch_add(1, Ordering::AcqRel);
        seen.polling.store(false, Ordering::Release);
        events as usize
    }
    fn requests(&self) -> u64 {
        self.seen.events()
    }
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lends.then(|| self.seen.file.as_fd())
    }
    fn deadline(&self) -> Option<Nanos> {
        self.period.map(|_| self.due)
    }
    fn timed(&self) -> bool {
        self.period.is_some()
    }
}

/// Schedulers as closures.
pub struct Script<F, G> {
    pub start: F,
    pub fine: G,
    pub period: Option<Nanos>,
}

impl<F, G> Scheduler for Script<F, G>
where
    F: FnMut(&mut Placement) + Send,
    G: FnMut(&mut Placement) + Send,
{
    fn name(&self) -> &'static str {
        "script"
    }
    fn start(&mut self, placement: &mut Placement) {
        (self.start)(placement);
    }
    fn fine_period(&self) -> Option<Nanos> {
        self.period
    }
    fn fine(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        assert_eq!(queues.threads.len(), placement.core_of().len());
        (self.fine)(placement);
    }
    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        assert_eq!(period.cores.len(), placement.waits().len());
        (self.fine)(placement);
    }
}

/// Every core waits like this, and nothing ever moves.
pub fn all(wait: Wait) -> Box<dyn Scheduler> {
    let start = move |placement: &mut Placement| {
        for core in 0..placement.waits().len() {
            placement.set_wait(core as u16, wait, "test:wait");
        }
    };
    Box::new(Script { start, fine: |_: &mut Placement| {}, period: None })
}

/// Two different CPUs, if there are.
pub fn two_cpus() -> Option<[usize; 2]> {
    match topology::allowed().unwrap()[..] {
        [first, second, ..] => Some([first, second]),
        _ => {
            println!("skipped: this takes two CPUs");
            None
        }
    }
}

/// So many reactors on the CPUs this process may use, several to one if there are too few.
pub fn config(cores: usize, scheduler: Box<dyn Scheduler>) -> Config {
    let mut config = Config::new(
        topology::allowed().unwrap().into_iter().cycle().take(cores).collect(),
        scheduler,
    );
    config.share_cpus = true;
    // Reactors that share a CPU must leave it soon.
    config.wait = Some(Strategy::Futex { spin: Nanos::from_micros(1) });
    config
}

/// Waits for what must come in the end; a minute is for machines that are busy otherwise.
pub fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let start = Instant::now();
    while !come() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came: {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}
