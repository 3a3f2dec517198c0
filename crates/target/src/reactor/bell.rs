//! How a sleeping core is woken: announce, look again, sleep; publish, look, ring.
//!
//! ```text
//! sleeper: word = how it sleeps; fence; anything published? -> awake; sleep until word == AWAKE
//! sender:  publish;              fence; word == AWAKE?      -> done;  word = AWAKE; wake as `how`
//! ```
//!
//! Of the two fences one comes first: either the sleeper sees what was published or the sender
//! sees that somebody sleeps. A sleeper that watches the word's cache line is woken by the
//! sender's store itself; only one that has announced a wait in the kernel costs a system call.
//! `tests/loom.rs` checks this in every interleaving.

use super::sync::{AtomicU32, Ordering, Padded, fence};

/// Nobody sleeps.
pub const AWAKE: u32 = 0;
/// Watches the word: a store wakes it.
pub const WATCHING: u32 = 1;
/// Waits on the word in the kernel (futex).
pub const FUTEX: u32 = 2;
/// Waits for I/O and the core's event counter in the kernel (epoll).
pub const BLOCKED: u32 = 3;

/// The line a sleeping core watches and others ring.
#[derive(Debug)]
pub struct Bell {
    word: Padded<AtomicU32>,
}

impl Default for Bell {
    fn default() -> Self {
        Self { word: Padded(AtomicU32::new(AWAKE)) }
    }
}

impl Bell {
    /// The watched word.
    #[must_use]
    pub fn word(&self) -> &AtomicU32 {
        &self.word.0
    }

    /// The sender's part, after publishing: how the core slept. After [`FUTEX`] and [`BLOCKED`]
    /// the caller must wake it in the kernel.
    #[must_use]
    pub fn ring(&self) -> u32 {
        fence(Ordering::SeqCst);
        if self.word.0.load(Ordering::Relaxed) == AWAKE {
            return AWAKE;
        }
        self.word.0.swap(AWAKE, Ordering::AcqRel)
    }

    /// The sleeper's part: says how it will sleep. It must look for published work after this.
    pub fn announce(&self, how: u32) {
        self.word.0.store(how, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// From [`WATCHING`] to [`FUTEX`]; `false` when it was rung meanwhile.
    #[must_use]
    pub fn deepen(&self) -> bool {
        let (watching, futex) = (WATCHING, FUTEX);
        self.word.0.compare_exchange(watching, futex, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether it was rung since it was announced.
    #[must_use]
    pub fn is_rung(&self) -> bool {
        self.word.0.load(Ordering::Acquire) == AWAKE
    }

    /// Awake again: rung, timed out, or not needed.
    pub fn retract(&self) {
        if !self.is_rung() {
            self.word.0.swap(AWAKE, Ordering::AcqRel);
        }
    }
}
