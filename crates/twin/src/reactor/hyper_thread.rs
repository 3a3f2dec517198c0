//! The state of one hyper-thread.

use ebb_policy::units::Nanos;

/// What a hyper-thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Run {
    /// Works, or is about to: an `Event::Ready` is on its way.
    Busy,
    /// Polls and finds nothing.
    #[default]
    Idle,
    /// Naps between polls.
    Napping,
    /// Blocked in the kernel.
    Blocked,
    /// The same, kept in C1.
    Halted,
    /// In shallow sleep.
    Dozing,
}

/// One hyper-thread.
#[derive(Debug, Default)]
pub(super) struct CoreState {
    pub threads: Vec<u16>,
    /// Whose turn it is among them.
    pub turn: usize,
    pub run: Run,
    /// Since when it has found nothing.
    pub since: Nanos,
    /// Until when it serves.
    pub serves_until: Nanos,
    /// Time on requests in this coarse period.
    pub busy: Nanos,
    /// Time asleep in this coarse period, and since when it has not been booked.
    pub asleep: Nanos,
    pub unbooked: Nanos,
    /// How long the kernel expects it to stay blocked: a moving average, in nanoseconds.
    pub expected: f64,
    /// Whether an `Event::Spun` is on its way.
    pub spinning: bool,
}
