//! A bounded lock-free ring from any number of cores to one: how threads travel.
//!
//! Each slot carries a turn number (D. Vyukov's bounded queue): a sender takes the slot whose
//! turn has come with one compare-and-swap and publishes it by advancing the turn; the receiver,
//! the only one, needs no atomic read-modify-write at all. One ring per receiver instead of one
//! per pair of cores: an idle reactor looks at one cache line, not at one per neighbour.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::sync::{Arc, AtomicUsize, Cell, Ordering, Padded};

#[derive(Debug)]
struct Slot<T> {
    /// `position` when free for the sender of that position, `position + 1` when filled.
    turn: AtomicUsize,
    value: Cell<MaybeUninit<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    slots: Box<[Padded<Slot<T>>]>,
    /// Next position to be taken by a sender.
    tail: Padded<AtomicUsize>,
}

// SAFETY: a value is written by the one sender that took its slot and read by the one receiver
// after the turn was published with release and seen with acquire; values move between threads.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above; no reference to a value is ever handed out.
unsafe impl<T: Send> Sync for Shared<T> {}

/// Puts values in; any number of these.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Takes values out; there is only one.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    head: usize,
}

/// A ring with room for at least `capacity` values.
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    // Two at least: with one slot "filled" and "free for the next round" would be the same turn.
    let room = capacity.max(2).next_power_of_two();
    let slot = |position| {
        let value = Cell::new(MaybeUninit::uninit());
        Padded(Slot { turn: AtomicUsize::new(position), value })
    };
    let slots = (0..room).map(slot).collect();
    let shared = Arc::new(Shared { slots, tail: Padded(AtomicUsize::new(0)) });
    (Sender(Arc::clone(&shared)), Receiver { shared, head: 0 })
}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.slots.len() - 1)].0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Sender<T> {
    /// Sends `value`; gives it back when the ring is full.
    ///
    /// # Errors
    /// The value, when there is no room.
    pub fn push(&self, value: T) -> Result<(), T> {
        let tail = &self.0.tail.0;
        // Acquire and release on the tail: who takes a position knows all that was known when the
        // positions before it were taken, so that a slot freed before any of them is seen free.
        let mut position = tail.load(Ordering::Acquire);
        loop {
            let slot = self.0.slot(position);
            let turn = slot.turn.load(Ordering::Acquire);
            if turn == position {
                let next = position.wrapping_add(1);
                match tail.compare_exchange_weak(
                    position,
                    next,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => {
                        // SAFETY: the exchange made this sender the only owner of the slot, and
                        // the receiver does not look before the turn is advanced below.
                        slot.value.with_mut(|place| unsafe { (*place).write(value) });
                        slot.turn.store(next, Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            } else if (turn.wrapping_sub(position) as isize) < 0 {
                return Err(value); // still filled from the last round
            } else {
                position = tail.load(Ordering::Acquire);
            }
        }
    }
}

impl<T> Receiver<T> {
    /// Whether nothing has been published.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let turn = self.shared.slot(self.head).turn.load(Ordering::Acquire);
        turn != self.head.wrapping_add(1)
    }

    /// The oldest value.
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = self.shared.slot(self.head);
        // SAFETY: the turn says that the sender has published the value, and only this receiver
        // takes it; the slot is given to the senders of the next round after the read.
        let value = slot.value.with_mut(|place| unsafe { (*place).assume_init_read() });
        slot.turn.store(self.head.wrapping_add(self.shared.slots.len()), Ordering::Release);
        self.head = self.head.wrapping_add(1);
        Some(value)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mask = self.slots.len() - 1;
        for (index, Padded(slot)) in self.slots.iter().enumerate() {
            // A free slot's turn is its index modulo the length, a filled one's is one more.
            if slot.turn.load(Ordering::Acquire) & mask != index {
                // SAFETY: filled and never taken; nobody else is left.
                slot.value.with_mut(|place| unsafe { (*place).assume_init_drop() });
            }
        }
    }
}
