//! The loop of one core.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_policy::reactor::{Core, Wait};
use ebb_policy::units::Nanos;

use super::counters::{CoreTotals, Sleep, ThreadCounters};
use super::door::Gate;
use super::pilot::Pilot;
use super::ring::Receiver;
use super::shared::{Lightweight, Post, Shared, Watch};
use super::wait::Waiter;

/// How stale published totals may be while a core polls. Publishing in every round would cost a
/// tenth of an empty round.
pub(super) const PUBLISH: Nanos = Nanos::from_micros(1);

pub(super) struct Reactor {
    pub core: Core,
    pub shared: Arc<Shared>,
    pub inbox: Receiver<Lightweight>,
    pub gate: Gate,
    pub waiter: Waiter,
    /// On the main core only.
    pub pilot: Option<Pilot>,
    /// Room for every thread from the start.
    pub threads: Vec<Lightweight>,
    pub state: State,
}

/// What a reactor remembers from round to round.
pub(super) struct State {
    orders: u32,
    wait: Wait,
    /// The last look at the clock.
    at: Nanos,
    /// End of the last poll that found work.
    worked: Nanos,
    published: Nanos,
    totals: CoreTotals,
}

impl State {
    pub fn new(wait: Wait) -> Self {
        Self {
            orders: 0,
            wait,
            at: Nanos::ZERO,
            worked: Nanos::ZERO,
            published: Nanos::ZERO,
            totals: CoreTotals::default(),
        }
    }
}

impl Reactor {
    /// Polls, sleeps and obeys until it is told to stop; returns itself with its threads.
    pub fn run(mut self) -> Self {
        self.state.at = self.shared.clock.now();
        self.state.worked = self.state.at;
        while !self.shared.stop.load(Ordering::Acquire) {
            self.obey();
            self.receive();
            let found = self.round();
            self.steer();
            self.publish();
            if found {
                self.state.worked = self.state.at;
            } else {
                self.rest();
            }
        }
        self
    }

    fn post(&self) -> &Post {
        self.shared.post(self.core)
    }

    /// New orders: another way of waiting, or threads whose home is elsewhere now.
    fn obey(&mut self) {
        let orders = self.post().orders.0.load(Ordering::Acquire);
        if orders == self.state.orders {
            return;
        }
        self.state.orders = orders;
        self.state.wait = self.post().wait();
        for index in (0..self.threads.len()).rev() {
            if self.shared.home(self.threads[index].index) != self.core {
                let thread = self.threads.swap_remove(index);
                self.send(thread);
            }
        }
        self.spend(false);
    }

    /// Sends a thread to its home.
    fn send(&mut self, mut thread: Lightweight) {
        if std::mem::take(&mut thread.watch) == Watch::Yes
            && let Some(file) = thread.task.wake_fd()
        {
            self.gate.forget(file);
        }
        let home = self.shared.home(thread.index);
        match self.shared.post(home).inbox.push(thread) {
            Ok(()) => self.shared.post(home).ring(),
            // Rings have room for all threads, so this cannot be. It would be tried again.
            Err(thread) => {
                self.threads.push(thread);
                self.state.orders = self.state.orders.wrapping_sub(1);
            }
        }
    }

    /// Takes in the threads that have arrived and passes on those whose home has moved on.
    fn receive(&mut self) {
        let mut arrived = false;
        while let Some(thread) = self.inbox.pop() {
            arrived = true;
            if self.shared.home(thread.index) == self.core {
                let counters = &self.shared.threads[usize::from(thread.index)];
                counters.core.store(self.core, Ordering::Relaxed);
                ThreadCounters::add(&counters.moves, 1);
                self.threads.push(thread);
            } else {
                self.send(thread);
            }
        }
        if arrived {
            self.spend(false);
        }
    }

    /// Polls every thread once; whether any found work.
    fn round(&mut self) -> bool {
        let (mut any, mut polled) = (false, false);
        self.state.totals.polled = self.state.at;
        for index in 0..self.threads.len() {
            let now = self.state.at;
            let thread = &mut self.threads[index];
            if thread.timed && thread.due.is_none_or(|due| now < due) {
                continue;
            }
            let found = thread.task.poll(now) > 0;
            if thread.timed {
                thread.due = thread.task.deadline();
            }
            let spent = self.spend(found);
            self.account(index, found, spent);
            any |= found;
            polled = true;
        }
        if !polled {
            std::hint::spin_loop();
            self.spend(false);
        }
        any
    }

    /// Publishes what a poll changed.
    fn account(&self, index: usize, found: bool, spent: Nanos) {
        let thread = &self.threads[index];
        let counters = &self.shared.threads[usize::from(thread.index)];
        let depth = counters.depth.load(Ordering::Relaxed);
        if found {
            ThreadCounters::add(&counters.busy, spent.0);
            counters.requests.store(thread.task.requests(), Ordering::Relaxed);
        }
        if found || depth > 0 {
            let now = thread.task.depth();
            if now != depth {
                counters.depth.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Looks at the clock; the time since the last look was busy or wasted.
    fn spend(&mut self, busy: bool) -> Nanos {
        let now = self.shared.clock.now();
        let spent = now - std::mem::replace(&mut self.state.at, now);
        let totals = &mut self.state.totals;
        *(if busy { &mut totals.busy } else { &mut totals.wasted }) += spent;
        spent
    }

    /// The scheduler's steps, on the main core.
    fn steer(&mut self) {
        if let Some(pilot) = &mut self.pilot
            && pilot.step(self.state.at, &self.shared)
        {
            self.spend(false);
        }
    }

    fn publish(&mut self) {
        if self.state.at.0 >= self.state.published.0 + PUBLISH.0 {
            self.state.published = self.state.at;
            self.post().counters.publish(&self.state.totals, None);
        }
    }

    /// Nothing was found: waits as ordered.
    fn rest(&mut self) {
        let (wait, now) = (self.state.wait, self.state.at);
        let deadline = self.deadline(wait);
        if deadline.is_some_and(|deadline| deadline <= now) {
            return;
        }
        match wait {
            Wait::Poll => {}
            // A store wakes a dozing core, I/O does not: it must keep polling what it has.
            Wait::Doze | Wait::Halt if self.threads.iter().all(|thread| thread.timed) => {
                self.sleep(Sleep::Doze, |core| {
                    core.waiter.wait(&core.post().bell, deadline, || core.has_mail());
                });
            }
            Wait::Doze | Wait::Halt => {}
            Wait::Block { spin } => {
                if now - self.state.worked >= spin && self.watch_all() {
                    let timeout = deadline.map(|deadline| deadline - now);
                    self.sleep(Sleep::Block, |core| {
                        core.gate.block(&core.post().bell, timeout, || core.has_mail());
                    });
                }
            }
            Wait::Nap { nap } => {
                let end =
                    deadline.unwrap_or(Nanos(u64::MAX)).min(Nanos(now.0.saturating_add(nap.0)));
                self.sleep(Sleep::Nap, |core| {
                    core.waiter.nap(&core.post().bell, end, || core.has_mail());
                });
            }
        }
    }

    /// When it must poll or step even if nothing happens.
    fn deadline(&self, wait: Wait) -> Option<Nanos> {
        let threads = self.threads.iter().filter_map(|thread| match thread.timed {
            true => thread.due,
            false => thread.task.deadline(),
        });
        let pilot = self.pilot.iter().map(|pilot| pilot.deadline(wait));
        threads.chain(pilot).min()
    }

    /// What has been published for this core since it last looked.
    fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
            || self.post().orders.0.load(Ordering::Acquire) != self.state.orders
            || self.shared.stop.load(Ordering::Acquire)
    }

    /// Watches the files of all threads; whether each that must be polled has one.
    fn watch_all(&mut self) -> bool {
        for thread in &mut self.threads {
            if thread.timed || thread.watch == Watch::Yes {
                continue;
            }
            let Some(file) = thread.task.wake_fd() else { return false };
            if thread.watch == Watch::Refused {
                return false;
            }
            if self.gate.watch(file).is_err() {
                self.state.totals.unwatched += 1;
                thread.watch = Watch::Refused;
                return false;
            }
            thread.watch = Watch::Yes;
        }
        true
    }

    fn sleep(&mut self, how: Sleep, act: impl FnOnce(&Self)) {
        let since = self.state.at;
        self.state.totals.sleeps[how as usize] += 1;
        self.post().counters.publish(&self.state.totals, Some((how, since)));
        act(self);
        self.state.at = self.shared.clock.now();
        self.state.totals.asleep[how as usize] += self.state.at - since;
        self.state.published = self.state.at;
        self.post().counters.publish(&self.state.totals, None);
    }
}
