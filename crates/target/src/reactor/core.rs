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
    /// End of the last poll that took up or answered requests.
    worked: Nanos,
    /// The thread whose poll is next in this round, whether one was polled, and whether any found
    /// work or left or came.
    next: usize,
    polled: bool,
    found: bool,
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
            next: 0,
            polled: false,
            found: false,
            published: Nanos::ZERO,
            totals: CoreTotals::default(),
        }
    }
}

/// A sleep until the next round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    pub how: Sleep,
    /// When it ends if nothing wakes the core.
    pub until: Option<Nanos>,
}

impl Reactor {
    /// Polls, sleeps and obeys until it is told to stop; returns itself with its threads.
    pub fn run(mut self) -> Self {
        self.begin();
        while !self.shared.stop.load(Ordering::Acquire) {
            if let Some(rest) = self.turn() {
                self.sleep(rest);
            }
        }
        self
    }

    pub fn begin(&mut self) {
        self.state.at = self.shared.clock.now();
        self.state.worked = self.state.at;
    }

    /// One poll and all that is done between polls, for a round may last for hundreds of fine
    /// periods where many requests wait. How to sleep, at the end of a round that found nothing.
    pub fn turn(&mut self) -> Option<Rest> {
        self.obey();
        self.receive();
        self.steer();
        let is_over = self.poll();
        self.publish();
        if !is_over || std::mem::take(&mut self.state.found) {
            return None;
        }
        self.rest()
    }

    pub fn post(&self) -> &Post {
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
                self.state.found = true; // Another may have taken its place in this round.
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
            self.state.found = true;
            self.spend(false);
        }
    }

    /// Polls the next thread of the round; whether the round is over.
    fn poll(&mut self) -> bool {
        if self.state.next == 0 {
            self.state.polled = false;
        }
        let now = self.state.at;
        while let Some(thread) = self.threads.get_mut(self.state.next) {
            let index = self.state.next;
            self.state.next += 1;
            if thread.timed && thread.due.is_none_or(|due| now < due) {
                continue;
            }
            if thread.took {
                self.shared.threads[usize::from(thread.index)].look(now);
            }
            let found = thread.task.poll(now) > 0;
            if thread.timed {
                thread.due = thread.task.deadline();
            }
            let spent = self.spend(found);
            self.account(index, found, now, spent);
            self.state.found |= found;
            self.state.polled = true;
            break;
        }
        if self.state.next < self.threads.len() {
            return false;
        }
        if !self.state.polled {
            std::hint::spin_loop();
            self.spend(false);
        }
        self.state.next = 0;
        true
    }

    /// Publishes what a poll from `begun` on changed.
    fn account(&mut self, index: usize, found: bool, begun: Nanos, spent: Nanos) {
        let thread = &mut self.threads[index];
        let gap = begun.saturating_sub(std::mem::replace(&mut thread.looked, begun));
        if !found && !thread.took {
            return;
        }
        let counters = &self.shared.threads[usize::from(thread.index)];
        let taken = if found { thread.task.taken() } else { 0 };
        thread.took = taken > 0;
        counters.look(begun);
        counters.took(taken, gap);
        if !found {
            return;
        }
        ThreadCounters::add(&counters.busy, spent.0);
        let requests = thread.task.requests();
        if thread.took || requests != counters.requests.load(Ordering::Relaxed) {
            counters.requests.store(requests, Ordering::Relaxed);
            counters.latency.store(thread.task.latency().0, Ordering::Relaxed);
            counters.worked.store(self.state.at.0, Ordering::Relaxed);
            self.state.worked = self.state.at;
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

    /// Nothing was found: how to wait, as ordered.
    fn rest(&mut self) -> Option<Rest> {
        let (wait, now) = (self.state.wait, self.state.at);
        let until = self.deadline(wait);
        if until.is_some_and(|until| until <= now) {
            return None;
        }
        match wait {
            // A store wakes a dozing core, I/O does not: it must keep polling what it has.
            Wait::Doze | Wait::Halt if self.threads.iter().all(|thread| thread.timed) => {
                Some(Rest { how: Sleep::Doze, until })
            }
            Wait::Poll | Wait::Doze | Wait::Halt => None,
            Wait::Block { spin } => {
                let blocks = now - self.state.worked >= spin && self.watch_all();
                blocks.then_some(Rest { how: Sleep::Block, until })
            }
            Wait::Nap { nap } => {
                let end = Nanos(now.0.saturating_add(nap.0));
                let until = Some(until.map_or(end, |until| until.min(end)));
                Some(Rest { how: Sleep::Nap, until })
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
    pub fn has_mail(&self) -> bool {
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

    fn sleep(&mut self, Rest { how, until }: Rest) {
        self.fall_asleep(how);
        let (bell, has_mail) = (&self.post().bell, || self.has_mail());
        match how {
            Sleep::Doze => self.waiter.wait(bell, until, has_mail),
            Sleep::Block => {
                self.gate.block(bell, until.map(|until| until - self.state.at), has_mail);
            }
            Sleep::Nap => self.waiter.nap(bell, until, has_mail),
        }
        self.awake(how);
    }

    /// Says that it sleeps from now on.
    pub fn fall_asleep(&mut self, how: Sleep) {
        self.state.totals.sleeps[how as usize] += 1;
        self.post().counters.publish(&self.state.totals, Some((how, self.state.at)));
    }

    /// Counts the sleep that is over.
    pub fn awake(&mut self, how: Sleep) {
        let now = self.shared.clock.now();
        let slept = now - std::mem::replace(&mut self.state.at, now);
        self.state.totals.asleep[how as usize] += slept;
        self.state.published = now;
        self.post().counters.publish(&self.state.totals, None);
    }
}
