//! The main core's own task: runs the scheduler and hands out its orders.

use std::mem::{Discriminant, discriminant};
use std::sync::atomic::Ordering;

use ebb_policy::reactor::{
    CoreLoad, FULL_SPEED, Period, Placement, Queue, Queues, Reason, Scheduler, Shift, ThreadLoad,
    Wait,
};
use ebb_policy::units::Nanos;

use super::counters::CoreTotals;
use super::log::{Log, Record};
use super::shared::Shared;

/// Why threads move when another scheduler takes over.
const CHANGED: Reason = "operator:scheduler";

/// A thread's totals at the last coarse step.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    busy: u64,
    requests: u64,
    latency: u64,
}

pub(super) struct Pilot {
    scheduler: Box<dyn Scheduler>,
    placement: Placement,
    fine: Option<Nanos>,
    coarse: Nanos,
    next_fine: Nanos,
    next_coarse: Nanos,
    last_coarse: Nanos,
    queues: Vec<Queue>,
    cores: Vec<CoreLoad>,
    threads: Vec<ThreadLoad>,
    cores_before: Vec<CoreTotals>,
    threads_before: Vec<Before>,
    /// Largest depth of each thread at the fine steps of this period.
    peaks: Vec<u32>,
    /// How each core waits, as the log says.
    ways: Vec<Discriminant<Wait>>,
    /// What the shared log does not show yet.
    unshown: Log,
}

impl Pilot {
    /// Steps every `coarse`, and every fine period the scheduler asks for. `placement` is as the
    /// scheduler has started it.
    pub fn new(scheduler: Box<dyn Scheduler>, placement: Placement, coarse: Nanos) -> Self {
        let (cores, threads) = (placement.waits().len(), placement.core_of().len());
        let ways = placement.waits().iter().map(discriminant).collect();
        let mut unshown = Log::new();
        for shift in placement.shifts() {
            unshown.note(Record { at: Nanos::ZERO, shift: *shift });
        }
        Self {
            fine: scheduler.fine_period(),
            scheduler,
            placement,
            coarse,
            next_fine: Nanos::ZERO,
            next_coarse: coarse,
            last_coarse: Nanos::ZERO,
            queues: vec![Queue::default(); threads],
            cores: vec![CoreLoad::default(); cores],
            threads: vec![ThreadLoad::default(); threads],
            cores_before: vec![CoreTotals::default(); cores],
            threads_before: vec![Before::default(); threads],
            peaks: vec![0; threads],
            ways,
            unshown,
        }
    }

    /// When it must step next: a main core that blocks lets the fine steps rest.
    pub fn deadline(&self, wait: Wait) -> Nanos {
        match (self.fine, wait) {
            (Some(_), Wait::Poll | Wait::Doze | Wait::Nap { .. }) => {
                self.next_fine.min(self.next_coarse)
            }
            _ => self.next_coarse,
        }
    }

    /// Does what is due; whether anything was.
    pub fn step(&mut self, now: Nanos, shared: &Shared) -> bool {
        let fine = self.fine.filter(|_| now >= self.next_fine);
        if let Some(period) = fine {
            self.next_fine = now + period;
            self.fine(now, shared);
        }
        let coarse = now >= self.next_coarse;
        if coarse {
            self.next_coarse = now + self.coarse;
            self.change(now, shared);
            self.coarse(now, shared);
        }
        fine.is_some() || coarse
    }

    /// Lets another scheduler take over, if there is one.
    fn change(&mut self, now: Nanos, shared: &Shared) {
        if !shared.has_next.load(Ordering::Acquire) {
            return;
        }
        // Who gives it has the lock for an instant: then at the next step.
        let Ok(mut next) = shared.next.try_lock() else { return };
        let Some(scheduler) = next.take() else { return };
        // Its memory is given back by who gives the next one.
        *next = Some(std::mem::replace(&mut self.scheduler, scheduler));
        shared.has_next.store(false, Ordering::Release);
        drop(next);
        self.fine = self.scheduler.fine_period();
        self.next_fine = now;
        let even = Placement::even(self.placement.machine().clone());
        self.placement.begin();
        for (thread, core) in even.core_of().iter().enumerate() {
            self.placement.move_thread(thread as u16, *core, CHANGED);
        }
        for core in 0..even.waits().len() as u16 {
            self.placement.set_wait(core, Wait::Poll, CHANGED);
            self.placement.set_speed(core, FULL_SPEED, CHANGED);
        }
        self.scheduler.start(&mut self.placement);
        self.carry_out(now, shared);
    }

    fn fine(&mut self, now: Nanos, shared: &Shared) {
        let queues = self.queues.iter_mut().zip(&mut self.peaks);
        for (thread, (queue, peak)) in shared.threads.iter().zip(queues) {
            queue.depth = thread.depth(now);
            queue.requests = thread.requests.load(Ordering::Relaxed);
            queue.worked = Nanos(thread.worked.load(Ordering::Relaxed));
            queue.since_poll = thread.since_poll(now);
            *peak = (*peak).max(queue.depth);
        }
        self.placement.begin();
        self.scheduler.fine(&Queues { now, threads: &self.queues }, &mut self.placement);
        self.carry_out(now, shared);
    }

    fn coarse(&mut self, now: Nanos, shared: &Shared) {
        for (index, post) in shared.posts.iter().enumerate() {
            let (totals, _) = post.counters.read(now);
            let before = std::mem::replace(&mut self.cores_before[index], totals);
            let since = |now: Nanos, before: Nanos| Nanos(now.0.saturating_sub(before.0));
            self.cores[index] = CoreLoad {
                busy: since(totals.busy, before.busy),
                wasted: since(totals.wasted, before.wasted),
                asleep: since(totals.all_asleep(), before.all_asleep()),
            };
        }
        for (index, thread) in shared.threads.iter().enumerate() {
            let depth = thread.depth(now);
            let busy = thread.busy.load(Ordering::Relaxed);
            let requests = thread.requests.load(Ordering::Relaxed);
            let latency = thread.latency.load(Ordering::Relaxed);
            let now = Before { busy, requests, latency };
            let before = std::mem::replace(&mut self.threads_before[index], now);
            self.threads[index] = ThreadLoad {
                busy: Nanos(busy.saturating_sub(before.busy)),
                requests: requests.saturating_sub(before.requests),
                latency: Nanos(latency.saturating_sub(before.latency)),
                peak_depth: std::mem::take(&mut self.peaks[index]).max(depth),
            };
        }
        let length = now - std::mem::replace(&mut self.last_coarse, now);
        let period = Period { now, length, cores: &self.cores, threads: &self.threads };
        self.placement.begin();
        self.scheduler.coarse(&period, &mut self.placement);
        self.carry_out(now, shared);
    }

    /// Writes the whole step's changes before it rings anyone.
    fn carry_out(&mut self, now: Nanos, shared: &Shared) {
        for shift in self.placement.shifts() {
            match *shift {
                Shift::Move { thread, to, .. } => shared.set_home(thread, to),
                Shift::Wait { core, wait, .. } => shared.post(core).set_wait(wait),
                // The data plane sets no frequency: shown, counted, and not logged as done.
                Shift::Speed { core, speed, .. } => {
                    shared.post(core).set_speed(speed);
                    shared.unmet_speeds.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        for shift in self.placement.shifts() {
            let (core, is_news) = match *shift {
                Shift::Move { from, .. } => (from, true),
                // For how long it spins or naps is tuned all the time: the way it waits is told.
                Shift::Wait { core, wait, .. } => {
                    let way = discriminant(&wait);
                    (core, std::mem::replace(&mut self.ways[usize::from(core)], way) != way)
                }
                Shift::Speed { .. } => continue,
            };
            shared.post(core).order();
            if is_news {
                self.unshown.note(Record { at: now, shift: *shift });
            }
        }
        // A reader may hold the log: then the next step shows it. The main core waits for nobody.
        if self.unshown.total > 0
            && let Ok(mut shown) = shared.log.try_lock()
        {
            shown.take(&mut self.unshown);
        }
    }
}
