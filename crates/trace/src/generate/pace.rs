//! When the threads of a closed loop send: at once, or at a rate as vdbench keeps one.

use ebb_policy::units::Nanos;
use rand_pcg::Pcg64Mcg;

use super::random::gap;
use super::schedule::Schedule;

/// A span of time with one rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage {
    pub(super) from: u64,
    pub(super) until: u64,
    /// Mean gap between requests in nanoseconds; `None` for as fast as possible.
    pub(super) interval: Option<f64>,
}

impl Stage {
    fn has(&self, clock: f64) -> bool {
        clock < self.until as f64
    }
}

/// Whose request it is to send, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The thread's own next request.
    Own {
        /// When.
        at: u64,
        /// In which stage.
        stage: usize,
    },
    /// The next arrival, whichever slot is free.
    Arrival {
        /// When; before now where all were busy.
        at: u64,
        /// In which stage.
        stage: usize,
        /// The thread that draws it: all take turns.
        thread: usize,
    },
}

/// The stages of a job. With a rate, requests arrive with exponential gaps and wait when all
/// threads are busy, as vdbench's workload generator feeds its threads: the arrivals are the same
/// whatever the server does, and each is served, however late.
pub(super) struct Pace {
    stages: Vec<Stage>,
    stage: usize,
    clock: f64,
    thread: usize,
    threads: usize,
    rng: Pcg64Mcg,
}

impl Pace {
    pub(super) const fn new(stages: Vec<Stage>, threads: usize, rng: Pcg64Mcg) -> Self {
        Self { stages, stage: 0, clock: 0.0, thread: 0, threads, rng }
    }

    /// The turn of a thread that is free at `now`; `None` when nothing comes any more.
    #[inline]
    pub(super) fn turn(&mut self, now: u64, phases: Option<&mut Schedule>) -> Option<Turn> {
        let stage = self.stages[self.stage];
        if stage.interval.is_none() && now < stage.until {
            return Some(Turn::Own { at: now.max(stage.from), stage: self.stage });
        }
        self.paced(now, phases)
    }

    fn paced(&mut self, now: u64, mut phases: Option<&mut Schedule>) -> Option<Turn> {
        loop {
            let stage = self.stages[self.stage];
            let Some(interval) = stage.interval else {
                if now < stage.until {
                    return Some(Turn::Own { at: now.max(stage.from), stage: self.stage });
                }
                self.enter_next()?;
                continue;
            };
            self.clock += gap(&mut self.rng) * interval;
            // Phases are not asked about times beyond the stage: they would be made up to there.
            if let (Some(phases), true) = (phases.as_deref_mut(), stage.has(self.clock)) {
                let admitted = phases.admit(0, self.clock as u64);
                self.clock = self.clock.max(admitted as f64);
            }
            if !stage.has(self.clock) {
                self.enter_next()?;
                continue;
            }
            let thread = self.thread;
            self.thread = if thread + 1 == self.threads { 0 } else { thread + 1 };
            let at = self.clock as u64;
            return Some(Turn::Arrival { at, stage: self.stage, thread });
        }
    }

    /// Goes on with the next stage, if there is one.
    fn enter_next(&mut self) -> Option<()> {
        let next = self.stages.get(self.stage + 1)?;
        self.stage += 1;
        self.clock = next.from as f64;
        Some(())
    }
}

/// The mean gap in nanoseconds at a rate.
pub(super) fn interval(iops: f64) -> f64 {
    Nanos::from_secs(1).0 as f64 / iops
}
