//! A limit in bytes a second that changes while the twin runs: of a drive's reads or writes, or of
//! work that nobody waits for.

use super::io::{Ios, Queue};

/// Time without commands that a rate limit makes up for, ns: the slice in which SPDK counts.
const LIMIT_BURST: u64 = 1_000_000;

/// A rate, and what waits for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// Bytes a second.
    limit: Option<f64>,
    /// When it has earned what was sent so far.
    earned: u64,
    /// What waits for it, and the time of the last event that tells of it.
    waiting: Queue,
    told: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { limit: None, earned: 0, waiting: Queue::EMPTY, told: 0 }
    }
}

impl Rate {
    /// Whether it limits anything now.
    pub(super) const fn limits(&self) -> bool {
        self.limit.is_some()
    }
    /// Has `io` wait.
    pub(super) fn hold(&mut self, ios: &mut Ios, io: u32) {
        self.waiting.push(ios, io);
    }
    /// When the next may pass that no event tells of yet.
    pub(super) fn tell(&mut self) -> Option<u64> {
        let news = !self.waiting.is_empty() && self.told != self.earned;
        news.then(|| {
            self.told = self.earned;
            self.told
        })
    }
    /// The next of what waits, if it may pass.
    pub(super) fn next(&mut self, ios: &Ios, now: u64) -> Option<u32> {
        if self.limit.is_some() && self.earned > now {
            return None;
        }
        let io = self.waiting.pop(ios)?;
        let bytes = f64::from(ios[io].op.data(ios[io].bytes));
        let time = self.limit.map_or(0, |rate| (bytes / rate * 1e9) as u64);
        pass(&mut self.earned, now, time);
        Some(io)
    }
    /// Sets the limit; whether it is another one. What is not earned yet is earned at the new rate.
    pub(super) fn change(&mut self, now: u64, limit: Option<f64>) -> bool {
        let before = std::mem::replace(&mut self.limit, limit);
        if before != limit {
            let left = self.earned.saturating_sub(now) as f64;
            let slower = before.zip(limit).map_or(0.0, |(old, new)| old / new);
            self.earned = self.earned.min(now) + (left * slower) as u64;
        }
        before != limit
    }
}

/// When a command passes that takes `time` of a rate, which has `earned` those before.
pub(super) fn pass(earned: &mut u64, now: u64, time: u64) -> u64 {
    let at = now.max(*earned);
    *earned = (*earned).max(now.saturating_sub(LIMIT_BURST)) + time;
    at
}

#[cfg(test)]
mod tests {
    use ebb_trace::Op;
    use proptest::prelude::*;

    use super::super::io::Io;
    use super::*;

    proptest! {
        /// However a rate changes, what passes is what the rates allowed, within one
        /// request; and all that waits passes at once when the limit is lifted.
        #[test]
        fn what_passes_is_what_the_rates_allowed(
            changes in prop::collection::vec((1e5_f64..1e9, 1_u64..20_000_000), 1..20),
        ) {
            const BYTES: u32 = 128 * 1024;
            let (mut ios, mut rate) = (Ios::default(), Rate::default());
            for _ in 0..4000 {
                let io = ios.insert(Io::of(Op::Write, 0, BYTES));
                rate.hold(&mut ios, io);
            }
            let (mut now, mut allowed, mut passed) = (0, 0.0, 0);
            for (limit, length) in changes {
                rate.change(now, Some(limit));
                let until = now + length;
                while rate.earned <= until {
                    let at = rate.earned.max(now);
                    passed += std::iter::from_fn(|| rate.next(&ios, at)).count();
                }
                (now, allowed) = (until, allowed + limit * length as f64 * 1e-9);
                let most = allowed / f64::from(BYTES) + 1.0;
                prop_assert!((passed as f64) < most + 1.0 && passed as f64 > most - 1.01);
            }
            prop_assert!(rate.change(now, None));
            passed += std::iter::from_fn(|| rate.next(&ios, now)).count();
            prop_assert_eq!(passed, 4000);
        }
    }
}
