//! Queues that have ended, and what devices still have of them.
//!
//! A queue has ended once its host may know of that: its controller was reset, shut down or lost,
//! or it was disconnected. Its thread sees that a moment later; until then anything of it may be
//! under way, and from then on what devices have. While there is any of it, its controller is not
//! reset, nor shut down (Base 3.7.2, 3.6), and what the same host asks of these namespaces waits,
//! on whichever queue of whichever controller: nothing of an older queue overtakes it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ebb_policy::units::Nanos;

use super::lock::lock;

/// Has a thread look at its queues.
pub(super) type Wake = Arc<dyn Fn() + Send + Sync>;

/// What the queues of a host that have ended keep from it.
#[derive(Default)]
pub(super) struct Ends {
    /// All that is looked at for hosts of whom there is nothing.
    count: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Queues whose threads have not seen that they have ended.
    unseen: u32,
    /// By namespace: queues of which its device has something, and since when it is so many.
    busy: BTreeMap<usize, (u32, Nanos)>,
    /// Who waits for a change.
    waiting: Vec<Wake>,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} ended", self.count.load(Ordering::Relaxed))
    }
}

impl Ends {
    /// Since when commands for a namespace must wait; then `wake` is called when they need no
    /// longer. `None`: they need not.
    pub fn bar(&self, namespace: usize, wake: &Wake) -> Option<Nanos> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = lock(&self.state);
        let busy = state.busy.get(&namespace).map(|(_, since)| *since);
        // What is not seen will be in an instant.
        let since = busy.or_else(|| (state.unseen > 0).then_some(Nanos(u64::MAX)))?;
        if !state.waiting.iter().any(|one| Arc::ptr_eq(one, wake)) {
            state.waiting.push(wake.clone());
        }
        Some(since)
    }

    /// The device of a namespace has nothing more of one queue.
    pub fn done(&self, namespace: usize) {
        self.change(|state| {
            let Some((count, _)) = state.busy.get_mut(&namespace) else { return };
            *count -= 1;
            if *count == 0 {
                state.busy.remove(&namespace);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        let before = (state.unseen, state.busy.len());
        change(&mut state);
        let after = (state.unseen, state.busy.len());
        self.count.store(after.0 + after.1 as u32, Ordering::Release);
        let is_less = after.0 < before.0 || after.1 < before.1;
        let woken = if is_less { std::mem::take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        woken.iter().for_each(|wake| wake());
    }
}

/// The I/O queues of a controller, until nothing is left of them.
#[derive(Default)]
pub(super) struct Stays {
    last: u64,
    list: BTreeMap<u64, Known>,
}

impl std::fmt::Debug for Stays {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} queues", self.list.len())
    }
}

#[derive(Default)]
struct Known {
    has_ended: bool,
    /// Has its thread look at it.
    wake: Option<Wake>,
}

impl Stays {
    /// All queues end: those that had not are counted as such before `end` lets anybody know of
    /// it. Who is to be told.
    pub fn end(&mut self, ends: &Ends, end: impl FnOnce()) -> Vec<Wake> {
        let new = || self.list.values().filter(|one| !one.has_ended);
        let (count, wakes) = (new().count() as u32, new().filter_map(|one| one.wake.clone()));
        let wakes = wakes.collect();
        if count > 0 {
            ends.change(|state| state.unseen += count);
        }
        self.list.values_mut().for_each(|one| one.has_ended = true);
        end();
        wakes
    }

    /// A queue begins: its number.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.list.insert(self.last, Known::default());
        self.last
    }

    /// Has `wake` called when all queues end.
    pub fn wake_with(&mut self, number: u64, wake: &Wake) {
        if let Some(known) = self.list.get_mut(&number) {
            known.wake = Some(wake.clone());
        }
    }

    /// The thread of a queue has seen that it has ended; the devices of the namespaces `at` have
    /// something of it.
    pub fn see(&mut self, number: u64, ends: &Ends, at: &[usize], now: Nanos) {
        let known = self.list.get_mut(&number);
        let was_told = known.is_some_and(|one| std::mem::replace(&mut one.has_ended, true));
        ends.change(|state| {
            state.unseen -= u32::from(was_told);
            for namespace in at {
                let (count, since) = state.busy.entry(*namespace).or_default();
                (*count, *since) = (*count + 1, now);
            }
        });
        if at.is_empty() {
            self.forget(number);
        }
    }

    /// Nothing is left of a queue.
    pub fn forget(&mut self, number: u64) {
        self.list.remove(&number);
    }

    /// Whether nothing is left of any queue that has ended.
    pub fn is_quiet(&self) -> bool {
        !self.list.values().any(|one| one.has_ended)
    }
}
