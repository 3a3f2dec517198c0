//! Reactors and lightweight threads.
//!
//! One reactor, an OS thread pinned to a CPU, per core; the first is the main core and also runs
//! the scheduler. A lightweight [`Task`] belongs to one reactor at a time, which polls it; it
//! moves by taking it off one reactor's list and sending it to another's through a bounded
//! lock-free ring. How a core waits when its polls find nothing is the scheduler's choice too:
//! polling on, dozing on a cache line, blocking in the kernel, or napping.
//!
//! ```text
//!  Runtime ── start, stop, snapshot
//!    └ Reactor (core.rs) per core: obey orders, receive threads, poll them, steer, rest
//!        ├ Pilot (pilot.rs), main core only: coarse and fine steps of the scheduler
//!        ├ Waiter (wait.rs, hardware.rs): doze and nap     Gate, Door (door.rs): block
//!        └ Shared (shared.rs): homes, orders, inboxes (ring.rs), bells (bell.rs), counters
//! ```

mod bell;
mod clock;
mod core;
mod counters;
mod door;
mod error;
mod hardware;
mod helm;
mod log;
mod pilot;
pub mod probe;
mod ring;
mod runtime;
mod shared;
mod snapshot;
mod sync;
#[cfg(test)]
mod tests;
pub mod topology;
mod wait;

use std::os::fd::BorrowedFd;

use ebb_policy::units::Nanos;

pub use clock::Clock;
pub use counters::{CoreTotals, Sleep, Waiting};
pub use error::Error;
pub use helm::Helm;
pub use log::Record;
pub use runtime::{Config, Runtime};
pub use snapshot::{CoreState, Monitor, Snapshot, ThreadState};
pub use wait::{Strategy, Unavailable};

/// What a lightweight thread does. It moves between cores, but only one polls it at a time.
pub trait Task: Send {
    /// Once, before the first poll: the clock that `now` of every poll is read from.
    fn begin(&mut self, _clock: Clock) {}

    /// One poll: does what is ready, without blocking. How many things were done; zero when it
    /// found nothing to do. `now` is the time since the runtime started.
    fn poll(&mut self, now: Nanos) -> usize;

    /// Where it shows, while it works, the requests that it knows to wait. Asked once, at the
    /// start.
    fn waiting(&self) -> Waiting {
        Waiting::default()
    }

    /// Requests that the last poll took up. What sets a connection up or keeps it alive is none:
    /// no core polls on for more of it.
    fn taken(&self) -> u32 {
        0
    }

    /// Requests completed since the start: what somebody waits for, not what keeps a connection
    /// alive. A scheduler takes a server without for idle.
    fn requests(&self) -> u64;

    /// Time that these took since the start, together.
    fn latency(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Readable when [`Task::poll`] would find something, usually an epoll file of the task's
    /// own; the same file at every call, and no other task's. `None`: it must be polled always,
    /// and its core never blocks.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Next time [`Task::poll`] must be called even if nothing is readable.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// A timed poller: it is polled at its deadline and never else, and whether its file is
    /// readable does not matter. Asked once, at the start.
    fn timed(&self) -> bool {
        false
    }
}
