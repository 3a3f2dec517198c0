//! Looks for a crowd while cores are parked or slowed: every few milliseconds, in files that stay
//! open. Requests wait in two places, at the drives and for a CPU:
//!
//! ```text
//! crowd = requests in flight at all drives + runnable tasks beyond the CPUs in use
//! ```
//!
//! Drives have requests in flight, and other work has tasks waiting, whatever the cores do. So what
//! counts is what is there beyond the usual: the mean of the looks of the period before.

use std::time::Duration;

use ebb_policy::live::WATCH;
use ebb_policy::units::Nanos;
use rustix::time::{ClockId, clock_gettime};

use crate::find::drives::under_way;
use crate::find::machine::Machine;
use crate::sense::watched::Watched;

/// The pace where that is cheap enough: two looks within the 10 ms in which cores are to be back.
const FASTEST: Duration = Duration::from_nanos(WATCH.0);
/// What a parked or slowed CPU saves at least, as a share of what a working one draws: the step
/// from its deepest idle state to parked (`generic-1u`: 0.05 of 4.6 W). Looking for a crowd may
/// take a [`PART`] of that.
const SAVES: f64 = 0.01;
const PART: f64 = 0.1;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watch {
    /// A crowd that is so much larger than usual.
    pub most: f64,
    /// CPUs that take work.
    pub in_use: usize,
    /// CPUs that are parked or slowed.
    pub saving: usize,
}

/// A crowd that came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Came {
    /// How large it is.
    pub crowd: f64,
    /// What is usual.
    pub usual: f64,
    /// What was waited for.
    pub watch: Watch,
}

/// Looks for it.
#[derive(Debug)]
pub struct Crowd {
    load: Watched,
    /// Whether that says anything.
    able: bool,
    drives: Vec<Watched>,
    watch: Option<Watch>,
    usual: Option<f64>,
    /// Looks of this period, and the sum of what they saw.
    looks: (u32, f64),
    /// CPU time that one look takes, with all that waiting for it takes, and this thread's CPU time
    /// at the end of the last one.
    cost: Option<Duration>,
    mark: Option<Duration>,
    /// All looks since the start.
    total: u64,
}

impl Crowd {
    /// On `machine`, with nothing to wait for yet.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let names = machine.drives.iter().flat_map(|drive| &drive.counted);
        // One drive's own file, for `/proc/diskstats` adds up all counters of all devices.
        let file = |name: &String| format!("sys/block/{name}/inflight");
        let drives = names.map(|name| Watched::new(&machine.sys, &file(name)));
        let mut load = Watched::new(&machine.sys, "proc/loadavg");
        Self {
            able: load.text().ok().and_then(runnable).is_some(),
            drives: drives.collect(),
            load,
            watch: None,
            usual: None,
            looks: (0, 0.0),
            cost: None,
            mark: None,
            total: 0,
        }
    }

    /// Finds the drives anew.
    pub fn follow(&mut self, machine: &Machine) {
        self.drives = Self::new(machine).drives;
    }

    /// Whether there is anything to look at.
    #[must_use]
    pub fn is_able(&self) -> bool {
        self.able
    }

    /// Begins a period in which `watch` is waited for, or nothing is.
    pub fn begin(&mut self, watch: Option<Watch>) {
        let (count, sum) = std::mem::take(&mut self.looks);
        let usual = (count > 0).then(|| sum / f64::from(count)).or(self.usual);
        (self.watch, self.mark, self.usual) = (watch, None, None);
        if let Some(watch) = watch {
            self.usual = Some(usual.unwrap_or_else(|| self.size(watch.in_use)));
        }
    }

    /// Time to the next look; `None` where nothing is waited for.
    #[must_use]
    pub fn pace(&self) -> Option<Duration> {
        Some(pace(self.cost.unwrap_or_default(), self.watch?.saving))
    }

    /// How often it has looked, and what a look takes.
    #[must_use]
    pub fn looks(&self) -> (u64, Nanos) {
        let cost = self.cost.unwrap_or_default().as_nanos();
        (self.total, Nanos(u64::try_from(cost).unwrap_or(u64::MAX)))
    }

    /// Looks once, where something is waited for.
    pub fn look(&mut self) -> Option<Came> {
        let watch = self.watch?;
        let (crowd, usual) = (self.size(watch.in_use), self.usual.unwrap_or_default());
        self.looks = (self.looks.0 + 1, self.looks.1 + crowd);
        self.total += 1;
        self.count_cost();
        (crowd - usual >= watch.most).then_some(Came { crowd, usual, watch })
    }

    /// A mean over about eight looks.
    fn count_cost(&mut self) {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let Ok(now) = Duration::try_from(now) else { return };
        let Some(before) = self.mark.replace(now) else { return };
        let took = now.saturating_sub(before);
        self.cost = Some(self.cost.map_or(took, |cost| (cost * 7 + took) / 8));
    }

    /// What waits now. What cannot be read has nothing.
    fn size(&mut self, in_use: usize) -> f64 {
        let in_flight = self.drives.iter_mut().filter_map(|file| in_flight(file.text().ok()?));
        let in_flight = in_flight.fold(0, u64::saturating_add);
        // Who looks runs as well.
        let used = in_use as u64 + 1;
        let runnable = self.load.text().ok().and_then(runnable).unwrap_or_default();
        (in_flight.saturating_add(runnable.saturating_sub(used))) as f64
    }
}

/// No faster than what `saving` CPUs save pays for.
fn pace(cost: Duration, saving: usize) -> Duration {
    FASTEST.max(cost.div_f64(SAVES * PART * saving.max(1) as f64))
}

/// Runnable tasks, of `0.20 0.18 0.12 3/80 11206` (proc_loadavg(5)).
pub fn runnable(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Reads and writes in flight (`Documentation/ABI/stable/sysfs-block`).
fn in_flight(text: &str) -> Option<u64> {
    let fields = text.split_ascii_whitespace();
    fields.map(under_way).try_fold(0, |sum: u64, n| sum.checked_add(n?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_a_tenth_of_what_is_saved_at_most() {
        let micros = Duration::from_micros;
        assert_eq!(pace(micros(0), 1), FASTEST);
        for (cost, saving) in [(20, 1), (20, 4), (20, 60), (200, 10), (200, 90)] {
            let pace = pace(micros(cost), saving);
            let share = micros(cost).as_secs_f64() / pace.as_secs_f64();
            assert!(share <= 0.1 * 0.01 * saving as f64 + 1e-9, "{cost} us, {saving}: {share}");
        }
        assert_eq!(pace(micros(20), 5), FASTEST);
        assert_eq!(pace(micros(20), 1), micros(20_000));
    }

    #[test]
    fn the_kernel_s_lines_are_read() {
        assert_eq!(runnable("0.20 0.18 0.12 31/1080 11206"), Some(31));
        assert_eq!(runnable("0.20 0.18"), None);
        assert_eq!(in_flight("       2       15"), Some(17));
        for nonsense in ["x", "4294967295 0", "0 -1"] {
            assert_eq!(in_flight(nonsense), None);
        }
    }
}
