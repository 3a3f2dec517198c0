//! What a runtime has done so far.

use std::sync::Arc;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use ebb_policy::reactor::{Core, Speed, Wait};
use ebb_policy::units::Nanos;

use super::counters::{CoreTotals, Sleep};
use super::log::{Log, Record};
use super::shared::Shared;
use super::wait::Strategy;

/// One core at the time of a [`Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreState {
    /// The CPU it is pinned to.
    pub cpu: usize,
    /// How it was told to wait.
    pub wait: Wait,
    /// The frequency that the scheduler asks for, in thousandths of the highest.
    pub speed: Speed,
    /// How it sleeps now, if it does.
    pub sleeping: Option<Sleep>,
    /// Threads it has now.
    pub threads: u32,
    /// What it has done since the start.
    pub totals: CoreTotals,
}

/// One lightweight thread at the time of a [`Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadState {
    /// The core that has it, or had it when it is on its way.
    pub core: Core,
    /// Time of its polls that found work.
    pub busy: Nanos,
    /// Requests it has completed.
    pub requests: u64,
    /// Requests that wait, as the scheduler sees them.
    pub depth: u32,
    /// Times it has moved.
    pub moves: u64,
}

/// What a runtime has done so far. Each core's numbers are consistent in themselves and, while it
/// polls, at most a microsecond or one poll old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Time since the start.
    pub at: Nanos,
    /// How cores doze.
    pub strategy: Strategy,
    /// By core, main one first.
    pub cores: Vec<CoreState>,
    /// By thread.
    pub threads: Vec<ThreadState>,
    /// The last changes of the placement, oldest first.
    pub shifts: Vec<Record>,
    /// Changes of the placement since the start, also those no longer listed.
    pub shifts_in_all: u64,
    /// Changes of a frequency that the scheduler asked for: the data plane sets none.
    pub unmet_speeds: u64,
}

/// Looks at a runtime from anywhere, without holding up its cores.
#[derive(Clone)]
pub struct Monitor(pub(super) Arc<Shared>);

impl Monitor {
    /// What the runtime has done so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let shared = &*self.0;
        let at = shared.clock.now();
        let thread = |thread: &super::counters::ThreadCounters| ThreadState {
            core: thread.owner(),
            busy: Nanos(thread.busy.load(Ordering::Relaxed)),
            requests: thread.requests.load(Ordering::Relaxed),
            depth: thread.depth(at),
            moves: thread.moves.load(Ordering::Relaxed),
        };
        let threads: Vec<ThreadState> = shared.threads.iter().map(thread).collect();
        let cores = shared.posts.iter().enumerate().map(|(core, post)| {
            let (totals, sleeping) = post.counters.read(at);
            let here = threads.iter().filter(|thread| usize::from(thread.core) == core).count();
            CoreState {
                cpu: post.cpu,
                wait: post.wait(),
                speed: post.speed(),
                sleeping,
                threads: here as u32,
                totals,
            }
        });
        let cores = cores.collect();
        let log = self.log();
        Snapshot {
            at,
            strategy: shared.strategy,
            cores,
            threads,
            shifts: log.last.into(),
            shifts_in_all: log.total,
            unmet_speeds: shared.unmet_speeds.load(Ordering::Relaxed),
        }
    }

    /// Never queues at the lock: a waiting reader would cost the main core a system call.
    fn log(&self) -> Log {
        loop {
            match self.0.log.try_lock() {
                Ok(log) => return log.clone(),
                Err(TryLockError::Poisoned(log)) => return log.into_inner().clone(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}
