//! What the cores share: where each thread belongs, how each core waits, and its inbox.
//!
//! Orders are state, not messages, so they cannot overflow and the latest always wins: the main
//! core writes a thread's *home* or a core's way of waiting, raises the core's order number and
//! rings it. Only threads travel through rings, and each is in at most one, so a ring with room
//! for all threads is never full.
//!
//! Why no thread goes astray: a thread at rest on core X had X as its home when X looked; any
//! later change of its home raises X's order number, since the scheduler's placement says X. A
//! thread under way is sent on by whichever core receives it, until it is at home.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ebb_policy::reactor::{Core, FULL_SPEED, Scheduler, Speed, Thread, Wait};
use ebb_policy::units::Nanos;

use super::Task;
use super::bell::{BLOCKED, Bell, FUTEX};
use super::clock::Clock;
use super::counters::{CoreCounters, ThreadCounters};
use super::door::Door;
use super::log::Log;
use super::ring::Sender;
use super::sync::Padded;
use super::wait::{self, Strategy};

/// A lightweight thread: the only handle to its task travels with it.
pub(super) struct Lightweight {
    pub index: Thread,
    pub task: Box<dyn Task>,
    /// A timed poller: polled when due.
    pub timed: bool,
    /// When a timed poller is due.
    pub due: Option<Nanos>,
    /// When its last poll began, and whether that took up requests.
    pub looked: Nanos,
    pub took: bool,
    /// Whether the gate of its core watches its file.
    pub watch: Watch,
}

impl Lightweight {
    pub fn new(index: Thread, task: Box<dyn Task>) -> Self {
        let timed = task.timed();
        let due = if timed { task.deadline() } else { None };
        Self { index, task, timed, due, looked: Nanos::ZERO, took: false, watch: Watch::No }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Watch {
    #[default]
    No,
    Yes,
    /// The kernel would not; not asked again before the thread moves.
    Refused,
}

/// One core's address.
pub(super) struct Post {
    pub cpu: usize,
    pub bell: Bell,
    pub door: Door,
    pub inbox: Sender<Lightweight>,
    /// Raised when something below or a thread's home has changed.
    pub orders: Padded<AtomicU32>,
    wait: AtomicU64,
    /// The frequency that the scheduler asks for: whoever may set it does.
    speed: AtomicU16,
    pub counters: CoreCounters,
}

pub(super) struct Shared {
    pub clock: Clock,
    pub strategy: Strategy,
    pub posts: Box<[Post]>,
    pub homes: Box<[AtomicU16]>,
    pub threads: Box<[ThreadCounters]>,
    pub stop: AtomicBool,
    pub log: Mutex<Log>,
    /// The scheduler that takes over at the next coarse step, or the one before the last.
    pub next: Mutex<Option<Box<dyn Scheduler>>>,
    pub has_next: AtomicBool,
    /// Frequencies asked for, written by the main core alone.
    pub unmet_speeds: AtomicU64,
}

impl Post {
    pub fn new(cpu: usize, door: Door, inbox: Sender<Lightweight>, wait: Wait) -> Self {
        Self {
            cpu,
            bell: Bell::default(),
            door,
            inbox,
            orders: Padded::default(),
            wait: AtomicU64::new(pack(wait)),
            speed: AtomicU16::new(FULL_SPEED),
            counters: CoreCounters::default(),
        }
    }

    /// Wakes the core if it sleeps: by a store where it watches, by a system call where it waits
    /// in the kernel.
    pub fn ring(&self) {
        match self.bell.ring() {
            FUTEX => wait::wake(&self.bell),
            BLOCKED => self.door.knock(),
            _ => {}
        }
    }

    /// Makes the core look at its orders.
    pub fn order(&self) {
        self.orders.0.fetch_add(1, Ordering::Release);
        self.ring();
    }

    pub fn wait(&self) -> Wait {
        unpack(self.wait.load(Ordering::Acquire))
    }

    pub fn set_wait(&self, wait: Wait) {
        self.wait.store(pack(wait), Ordering::Release);
    }

    pub fn speed(&self) -> Speed {
        self.speed.load(Ordering::Relaxed)
    }

    pub fn set_speed(&self, speed: Speed) {
        self.speed.store(speed, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn post(&self, core: Core) -> &Post {
        &self.posts[usize::from(core)]
    }

    pub fn home(&self, thread: Thread) -> Core {
        self.homes[usize::from(thread)].load(Ordering::Acquire)
    }

    pub fn set_home(&self, thread: Thread, core: Core) {
        self.homes[usize::from(thread)].store(core, Ordering::Release);
    }

    /// Makes every reactor give back its threads and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for post in &self.posts {
            post.order();
        }
    }
}

const KIND_BITS: u32 = 2;

/// A way of waiting in one word; times are cut at 2⁶² ns, 146 years.
fn pack(wait: Wait) -> u64 {
    let (kind, time) = match wait {
        Wait::Poll => (0, 0),
        // Keeping a core out of deep idle states takes a file of the kernel's for each and the
        // right to write it: it dozes, which wakes no later.
        Wait::Doze | Wait::Halt => (1, 0),
        Wait::Block { spin } => (2, spin.0),
        Wait::Nap { nap } => (3, nap.0),
    };
    time.min(u64::MAX >> KIND_BITS) << KIND_BITS | kind
}

fn unpack(word: u64) -> Wait {
    let time = Nanos(word >> KIND_BITS);
    match word & ((1 << KIND_BITS) - 1) {
        0 => Wait::Poll,
        1 => Wait::Doze,
        2 => Wait::Block { spin: time },
        _ => Wait::Nap { nap: time },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_waiting_fit_a_word() {
        let micro = Nanos::from_micros(1);
        for wait in [
            Wait::Poll,
            Wait::Doze,
            Wait::Block { spin: Nanos::ZERO },
            Wait::Block { spin: micro },
            Wait::Nap { nap: micro },
        ] {
            assert_eq!(unpack(pack(wait)), wait);
        }
        assert_eq!(unpack(pack(Wait::Halt)), Wait::Doze);
        let forever = Wait::Block { spin: Nanos(u64::MAX) };
        assert_eq!(unpack(pack(forever)), Wait::Block { spin: Nanos(u64::MAX >> 2) });
    }
}
