//! The loads of one period, kept up to date while a scheduler moves threads about.

use super::{Core, Period, Placement, Reason, Thread};

/// Shares of a period by thread and core, and how many threads each core has. Made once, filled
/// anew each period.
#[derive(Debug, Clone)]
pub(super) struct Book {
    /// Share of the period that each thread kept a core busy.
    pub thread: Vec<f64>,
    /// The same for the threads now on each core, together.
    pub core: Vec<f64>,
    /// Threads on each core.
    pub count: Vec<u16>,
    /// Moves since [`Book::mark`]: thread and where it came from.
    trail: Vec<(Thread, Core)>,
}

impl Book {
    pub fn new(cores: usize, threads: usize) -> Self {
        Self {
            thread: vec![0.0; threads],
            core: vec![0.0; cores],
            count: vec![0; cores],
            trail: Vec::with_capacity(threads),
        }
    }

    /// Takes over a period's loads and where the threads are.
    pub fn read(&mut self, period: &Period<'_>, placement: &Placement) {
        let length = period.length.0.max(1) as f64;
        for (share, load) in self.thread.iter_mut().zip(period.threads) {
            *share = (load.busy.0 as f64 / length).min(1.0);
        }
        self.place(placement);
    }

    /// Takes over where the threads are, with the loads as they were.
    pub fn place(&mut self, placement: &Placement) {
        self.core.fill(0.0);
        self.count.fill(0);
        for (share, core) in self.thread.iter().zip(placement.core_of()) {
            self.core[usize::from(*core)] += share;
            self.count[usize::from(*core)] += 1;
        }
        self.trail.clear();
    }

    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether `core` has threads.
    pub fn used(&self, core: Core) -> bool {
        self.count[usize::from(core)] > 0
    }

    /// Whether `core` stays within `fill` with `load` more.
    pub fn fits(&self, core: Core, load: f64, fill: f64) -> bool {
        self.core[usize::from(core)] + load <= fill
    }

    /// Counts `thread` on `to` from now on.
    pub fn shift(&mut self, thread: Thread, from: Core, to: Core) {
        let share = self.thread[usize::from(thread)];
        let rest = &mut self.core[usize::from(from)];
        *rest = (*rest - share).max(0.0);
        self.count[usize::from(from)] -= 1;
        self.core[usize::from(to)] += share;
        self.count[usize::from(to)] += 1;
    }

    /// Plans to move all threads of `from`, each to where `pick` says; all or none. The plan is
    /// carried out by [`Book::commit`].
    pub fn plan(
        &mut self,
        from: Core,
        placement: &Placement,
        pick: impl Fn(&Self, f64) -> Option<Core>,
    ) -> bool {
        self.trail.clear();
        for thread in placement.threads_on(from) {
            let Some(to) = pick(self, self.thread[usize::from(thread)]) else {
                while let Some((thread, to)) = self.trail.pop() {
                    self.shift(thread, to, from);
                }
                return false;
            };
            self.shift(thread, from, to);
            self.trail.push((thread, to));
        }
        true
    }

    /// Carries out what was planned.
    pub fn commit(&mut self, placement: &mut Placement, reason: Reason) {
        for (thread, to) in self.trail.drain(..) {
            placement.move_thread(thread, to, reason);
        }
    }
}
