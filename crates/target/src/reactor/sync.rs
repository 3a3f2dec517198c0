//! The atomics of the rings and bells, and padding. The model checker (`tests/loom.rs`) compiles
//! `ring.rs` and `bell.rs` against a module of the same shape made of its own types.

pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// A cell that is looked into through closures, as the model checker needs it.
#[derive(Debug)]
pub struct Cell<T>(std::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
    /// Runs `act` on the content's address; whoever follows it must have made sure to be alone.
    pub fn with_mut<R>(&self, act: impl FnOnce(*mut T) -> R) -> R {
        act(self.0.get())
    }
}

/// On cache lines of its own: two of 64 bytes, since adjacent ones are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);
