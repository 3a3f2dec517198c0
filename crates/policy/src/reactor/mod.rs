//! Schedulers of polled storage stacks: which lightweight thread runs on which core, and how a
//! core waits when it has nothing to do.
//!
//! Reactor scheduling runs on another time scale than [`crate::Policy`] and has its own pair of
//! contracts: a coarse step (about 1 s) places threads on cores and cores to sleep; a fine one
//! (about 10 µs) reads queue depths and spreads a burst. Both are pure and do not allocate, so
//! the NVMe/TCP target and the twin call the same code.

mod book;
mod dynamic;
mod gaps;
mod governed;
mod governor;
mod hybrid;
mod interrupt;
mod pack;
mod placement;
mod registry;
mod sandman;
mod sandman_plus;
mod static_polling;
#[cfg(test)]
mod tests;

pub use dynamic::Dynamic;
pub use governed::Governed;
pub use governor::Governor;
pub use hybrid::Hybrid;
pub use interrupt::Interrupt;
pub use placement::{Placement, Reason, Shift};
pub use registry::{ENTRIES, Entry, SchedulerError, by_name, settles};
pub use sandman::{Parts, Sandman, SandmanParams};
pub use sandman_plus::SandmanPlus;
pub use static_polling::StaticPolling;

use crate::units::Nanos;

/// A worker core or the main one, as an index into [`Machine::cores`].
pub type Core = u16;
/// A lightweight thread, numbered from zero.
pub type Thread = u16;
/// Frequency of a core in thousandths of its highest.
pub type Speed = u16;
/// The highest frequency.
pub const FULL_SPEED: Speed = 1000;

/// One core the reactors may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreSpec {
    /// The hyper-thread beside it on the same physical core, if that is one of ours too.
    pub sibling: Option<Core>,
    /// NUMA node.
    pub node: u16,
}

/// What the reactors run on. Core 0 is the main core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The cores, main one first.
    pub cores: Vec<CoreSpec>,
    /// Number of lightweight threads.
    pub threads: u16,
    /// How long a core that blocks takes to wake, if that is known: after a rest as long as the
    /// deepest idle state asks for.
    pub wake: Option<Nanos>,
}

impl Machine {
    /// The main core: it runs the scheduler's own tasks.
    pub const MAIN: Core = 0;
}

/// How a core waits once it has polled and found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It does not: it polls again.
    Poll,
    /// Shallow sleep at full frequency on a watched cache line, woken by a store of another core
    /// and not by I/O. For cores without threads.
    Doze,
    /// Halted in the kernel and kept out of deeper idle states (C1): a message wakes it in
    /// microseconds, by an interrupt. Draws less than [`Wait::Doze`]. For cores without threads.
    Halt,
    /// Polls on for `spin` after the last work it found, then blocks until I/O or a message
    /// arrives: the kernel wakes it (an interrupt). `spin` zero is interrupt-driven I/O.
    Block {
        /// How long to poll before blocking.
        spin: Nanos,
    },
    /// Hybrid polling: sleeps for `nap`, then polls again.
    Nap {
        /// Time asleep between polls that find nothing.
        nap: Nanos,
    },
}

/// What one core did in a coarse period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreLoad {
    /// Time spent on polls that found work.
    pub busy: Nanos,
    /// Time spent on polls that found none.
    pub wasted: Nanos,
    /// Time asleep, by whatever way of waiting.
    pub asleep: Nanos,
}

/// What one thread did in a coarse period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadLoad {
    /// Time it kept its core busy.
    pub busy: Nanos,
    /// Requests it completed.
    pub requests: u64,
    /// Time that these took from arrival to answer, together.
    pub latency: Nanos,
    /// Largest depth it had at a fine step or, without fine steps, at the end of the period.
    pub peak_depth: u32,
}

/// One coarse period.
#[derive(Debug, Clone, Copy)]
pub struct Period<'a> {
    /// Time since the run began.
    pub now: Nanos,
    /// Length of the period.
    pub length: Nanos,
    /// By core.
    pub cores: &'a [CoreLoad],
    /// By thread.
    pub threads: &'a [ThreadLoad],
}

/// One thread's network queue at a fine step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// Requests that wait now: they have come, and nothing but a core is wanted to take them up.
    /// A plant that cannot look into its network between polls estimates those it has not seen.
    pub depth: u32,
    /// How long ago its core last polled it; of no meaning where nothing waits.
    pub since_poll: Nanos,
    /// Requests of the thread completed since the run began.
    pub requests: u64,
    /// When its core last took up or answered a request of it; zero before the first. Neither what
    /// keeps connections alive nor administration counts.
    pub worked: Nanos,
}

/// The network queues at a fine step.
#[derive(Debug, Clone, Copy)]
pub struct Queues<'a> {
    /// Time since the run began.
    pub now: Nanos,
    /// By thread.
    pub threads: &'a [Queue],
}

/// A scheduler of lightweight threads: a pure function of what was measured.
pub trait Scheduler: Send {
    /// The name by which the registry, the reports and the command line know it.
    fn name(&self) -> &'static str;

    /// Once, before the first request: the placement to start with. `placement` comes with all
    /// threads spread evenly over all cores and every core polling.
    fn start(&mut self, _placement: &mut Placement) {}

    /// About once a second: consolidates threads and sends cores to sleep.
    fn coarse(&mut self, _period: &Period<'_>, _placement: &mut Placement) {}

    /// Time between fine steps, or `None` for a scheduler without.
    fn fine_period(&self) -> Option<Nanos> {
        None
    }

    /// About every 10 µs, on the main core: detects a burst and spreads it. Must cost well under
    /// a microsecond when there is none.
    fn fine(&mut self, _queues: &Queues<'_>, _placement: &mut Placement) {}
}
