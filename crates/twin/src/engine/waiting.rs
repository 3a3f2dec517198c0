//! Time that things wait, added up.

/// How many wait, and for how long all of them have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    /// How many do.
    pub(super) count: u64,
    /// What all have waited since this was last taken, ns, up to `since`.
    time: u64,
    since: u64,
}

impl Waiting {
    #[inline]
    fn pass(&mut self, now: u64) {
        self.time += self.count * (now - std::mem::replace(&mut self.since, now));
    }
    /// One more waits.
    #[inline]
    pub(super) fn begins(&mut self, now: u64) {
        self.pass(now);
        self.count += 1;
    }
    /// One waits no longer.
    #[inline]
    pub(super) fn ends(&mut self, now: u64) {
        self.pass(now);
        self.count -= 1;
    }
    /// Counts what is known to take `time`.
    #[inline]
    pub(super) fn add(&mut self, time: u64) {
        self.time += time;
    }
    /// What all have waited since this was last taken, ns.
    pub(super) fn take(&mut self, now: u64) -> u64 {
        self.pass(now);
        std::mem::take(&mut self.time)
    }
}
