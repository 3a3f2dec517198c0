//! Threads that keep time.

use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use rustix::time::{ClockId, clock_gettime};

/// Puts this thread onto its core, and makes its sleeps end when they should.
pub fn settle(core: Option<usize>) {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core);
        // Whether the core is there was checked before; a refusal costs only speed.
        let _ = sched_setaffinity(None, &set);
    }
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
}

/// Processor time of this thread.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
