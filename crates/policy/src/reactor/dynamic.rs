//! SPDK's dynamic scheduler (slides, "Dynamic Scheduling: reallocating threads among polling
//! cores"; `module/scheduler/dynamic/scheduler_dynamic.c`).
//!
//! Every period, in two passes over the threads:
//!
//! 1. a thread under the load limit (20 %) is idle and goes to the main core;
//! 2. any other goes to the first core that fits it: the main core first, then a lower-numbered
//!    one than its own, and if its own core is at the core limit (80 %) any other; failing all,
//!    off a core at its limit to the least busy one.
//!
//! A core fits a thread if it stays under the core limit with it, or has no threads. What leaves
//! a core over 95 % busy is assumed to be eaten up by those that stay. An emptied core goes to
//! interrupt mode: it blocks, and the kernel wakes it when a thread is sent to it. The governor
//! steers the main core only: the highest frequency while other cores have threads, otherwise a
//! step up or down as it is more busy than idle or not.
//!
//! There is no latency target, no hysteresis and nothing between two periods: that is the
//! baseline, not an oversight.

use super::governor::{busy_share, down, up};
use super::{Core, FULL_SPEED, Machine, Period, Placement, Scheduler, Thread, Wait};
use crate::units::Nanos;

/// A thread below this load is idle (`load_limit`).
pub const LOAD_LIMIT: f64 = 0.20;
/// A core is not filled beyond this load (`core_limit`).
pub const CORE_LIMIT: f64 = 0.80;
/// A core from this load on is so busy that what leaves it frees nothing (`core_busy`).
pub const CORE_BUSY: f64 = 0.95;

/// SPDK's dynamic scheduler.
#[derive(Debug, Clone)]
pub struct Dynamic {
    /// By core: time busy, time idle (nanoseconds), threads; as if the moves so far had been.
    cores: Vec<Account>,
    /// By thread: time busy, and share of its own polling time.
    threads: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    busy: f64,
    idle: f64,
    threads: u16,
}

impl Account {
    fn share(&self) -> f64 {
        let total = self.busy + self.idle;
        if total > 0.0 { self.busy / total } else { 0.0 }
    }
    /// A core with a single thread is never at its limit: nothing could be moved off it.
    fn at_limit(&self) -> bool {
        self.threads > 1 && self.share() >= CORE_LIMIT
    }
    fn fits(&self, busy: f64) -> bool {
        let empty = self.threads == 0 || self.busy + self.idle == 0.0;
        empty || self.idle >= busy && (self.busy + busy) / (self.busy + self.idle) < CORE_LIMIT
    }
}

impl Dynamic {
    /// For this machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let cores = vec![Account::default(); machine.cores.len()];
        Self { cores, threads: vec![(0.0, 0.0); usize::from(machine.threads)] }
    }

    fn read(&mut self, period: &Period<'_>, placement: &Placement) {
        for (account, load) in self.cores.iter_mut().zip(period.cores) {
            // A core in interrupt mode keeps no statistics.
            *account = Account { busy: load.busy.0 as f64, idle: load.wasted.0 as f64, threads: 0 };
        }
        for core in placement.core_of() {
            self.cores[usize::from(*core)].threads += 1;
        }
        for (thread, load) in period.threads.iter().enumerate() {
            let core = self.cores[usize::from(placement.core_of()[thread])];
            let busy = load.busy.0 as f64;
            // SPDK counts a thread's polls that find nothing; they share the core's evenly.
            let idle = core.idle / f64::from(core.threads.max(1));
            let share = if busy > 0.0 { busy / (busy + idle) } else { 0.0 };
            self.threads[thread] = (busy, share);
        }
    }

    fn shift(&mut self, thread: Thread, to: Core, placement: &mut Placement) {
        let from = placement.core_of()[usize::from(thread)];
        if from == to {
            return;
        }
        let busy = self.threads[usize::from(thread)].0;
        let target = &mut self.cores[usize::from(to)];
        target.busy += busy;
        target.idle = (target.idle - busy).max(0.0);
        target.threads += 1;
        let source = &mut self.cores[usize::from(from)];
        let was = source.share();
        source.busy = (source.busy - busy).max(0.0);
        source.idle += busy;
        if was >= CORE_BUSY && source.share() < CORE_LIMIT {
            let total = source.busy + source.idle;
            source.busy = total * CORE_LIMIT;
            source.idle = total - source.busy;
        }
        source.threads -= 1;
        if placement.waits()[usize::from(to)] != Wait::Poll {
            placement.set_wait(to, Wait::Poll, "dynamic:wake");
        }
        placement.move_thread(thread, to, "dynamic:balance");
    }

    fn optimal(&self, thread: Thread, current: Core) -> Core {
        let busy = self.threads[usize::from(thread)].0;
        let at_limit = self.cores[usize::from(current)].at_limit();
        let mut least = current;
        for core in 0..self.cores.len() as Core {
            let account = &self.cores[usize::from(core)];
            if account.busy < self.cores[usize::from(least)].busy {
                least = core;
            }
            if core == current || !account.fits(busy) {
                continue;
            }
            let lower = core < current && current != Machine::MAIN;
            if core == Machine::MAIN || lower || at_limit {
                return core;
            }
        }
        if at_limit { least } else { current }
    }
}

impl Scheduler for Dynamic {
    fn name(&self) -> &'static str {
        "dynamic"
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        self.read(period, placement);
        for thread in 0..self.threads.len() as Thread {
            if self.threads[usize::from(thread)].1 < LOAD_LIMIT {
                self.shift(thread, Machine::MAIN, placement);
            }
        }
        for thread in 0..self.threads.len() as Thread {
            if self.threads[usize::from(thread)].1 >= LOAD_LIMIT {
                let current = placement.core_of()[usize::from(thread)];
                self.shift(thread, self.optimal(thread, current), placement);
            }
        }
        let mut others = false;
        for (core, account) in self.cores.iter().enumerate().skip(1) {
            if account.threads == 0 {
                let wait = Wait::Block { spin: Nanos::ZERO };
                placement.set_wait(core as Core, wait, "dynamic:interrupt-mode");
            } else {
                others = true;
            }
        }
        let main = usize::from(Machine::MAIN);
        let (speed, reason) = if others {
            (FULL_SPEED, "dynamic:others-busy")
        } else if busy_share(&period.cores[main]) > 0.5 {
            (up(placement.speeds()[main]), "dynamic:main-busy")
        } else {
            (down(placement.speeds()[main]), "dynamic:main-idle")
        };
        placement.set_speed(Machine::MAIN, speed, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{machine, period};
    use super::*;

    /// Where the threads are after one period with these loads; each thread on its own core.
    fn after(loads: &[f64]) -> Placement {
        let mut placement = Placement::even(machine(loads.len() / 2, loads.len() as u16));
        step(&mut placement, loads);
        placement
    }
    fn step(placement: &mut Placement, loads: &[f64]) {
        let (cores, threads) = period(placement, loads);
        placement.begin();
        let machine = placement.machine().clone();
        let (now, length) = (Nanos::from_secs(1), Nanos::from_secs(1));
        let period = Period { now, length, cores: &cores, threads: &threads };
        Dynamic::new(&machine).coarse(&period, placement);
    }

    #[test]
    fn idle_threads_go_to_the_main_core_and_their_cores_to_interrupt_mode() {
        let placement = after(&[0.0, 0.1, 0.19, 0.6]);
        assert_eq!(placement.core_of(), [0, 0, 0, 1]);
        assert_eq!(placement.waits()[2], Wait::Block { spin: Nanos::ZERO });
        assert_eq!(placement.waits()[3], Wait::Block { spin: Nanos::ZERO });
        assert_eq!(placement.waits()[1], Wait::Poll);
        assert_eq!(placement.speeds()[0], FULL_SPEED);
    }

    #[test]
    fn active_threads_fill_the_main_core_up_to_the_limit() {
        // 0.3 + 0.3 fit on core 0; a third would make 0.9.
        assert_eq!(after(&[0.3, 0.3, 0.3, 0.9]).core_of(), [0, 0, 1, 2]);
    }

    #[test]
    fn a_core_at_its_limit_gives_threads_away() {
        let mut placement = Placement::even(machine(1, 4));
        for thread in 0..4 {
            placement.move_thread(thread, 1, "test");
        }
        step(&mut placement, &[0.25, 0.25, 0.25, 0.25]);
        assert_eq!(placement.core_of(), [0, 0, 0, 1]);
    }

    #[test]
    fn an_idle_main_core_slows_down_step_by_step() {
        let placement = after(&[0.05, 0.0]);
        assert_eq!(placement.speeds()[0], down(FULL_SPEED));
    }
}
