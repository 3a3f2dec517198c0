//! The frequency governor that the server was found with, below what is asked for.
//!
//! `schedutil` (Linux, `kernel/sched/cpufreq_schedutil.c`) sets
//!
//! ```text
//! next = 1.25 · f_max · util
//! ```
//!
//! where `util` is the share of the time that a core is busy, scaled by its frequency, as a mean
//! that halves in 32 ms (PELT). Each core has its own there; the cores of a group share one here,
//! by their mean. The boost for tasks that wait for a disk is left out: those of a target that is
//! polled or driven by its network have none.

use ebb_policy::units::Nanos;

use super::cores::Cores;
use super::events::{Event, Events};
use crate::profile::{Governor, Profile};

/// How often it looks: with `acpi-cpufreq`, the longest that drivers have (`transition_delay_us`).
const INTERVAL: Nanos = Nanos::from_millis(10);
/// Time in which what a core did counts for half (PELT).
const HALF_LIFE: f64 = 32.0e6;
/// What it leaves above what is used.
const HEADROOM: f64 = 1.25;

/// What it knows of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    util: f64,
    /// Busy time by when it last looked, ns.
    busy: u64,
}

/// The governor of all cores.
#[derive(Debug)]
pub(super) struct Governing {
    groups: Vec<Group>,
    last: u64,
}

impl Governing {
    /// The one that a server was found with, where it does anything.
    pub(super) fn new(profile: &Profile, events: &mut Events) -> Option<Self> {
        if profile.cpu.governor == Governor::Performance {
            return None;
        }
        events.push(INTERVAL.0, Event::Governor);
        let groups = vec![Group::default(); profile.stages_and_jobs().count()];
        Some(Self { groups, last: 0 })
    }

    /// Looks at the cores and sets what they need.
    pub(super) fn look(&mut self, cores: &mut Cores, events: &mut Events, now: u64) {
        events.push(now + INTERVAL.0, Event::Governor);
        let span = (now - std::mem::replace(&mut self.last, now)) as f64;
        let kept = 0.5_f64.powf(span / HALF_LIFE);
        for (index, group) in self.groups.iter_mut().enumerate() {
            let busy = cores.busy(index, now);
            let done = (busy - std::mem::replace(&mut group.busy, busy)) as f64;
            let share = if cores.polls(index) { 1.0 } else { done / span / cores.active(index) };
            let speed = cores.frequency(index) / cores.highest_frequency();
            group.util = group.util * kept + share.min(1.0) * speed * (1.0 - kept);
            let needed = cores.highest_frequency() * (HEADROOM * group.util);
            cores.govern(events, now, index, needed);
        }
    }
}
