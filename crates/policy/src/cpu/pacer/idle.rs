//! Background Task Scheduler in the Idle state (§IV-D): race to the end, then rest.
//!
//! The paper runs background work "at maximum performance", so that the drives can idle once it
//! is done; all cores are on for that. What the cores do afterwards it does not say. Here they go
//! back to the last setting that was measured to keep `plf`, since the first requests to come are
//! served before PACER wakes. Work that only trickles in does not end the rest.

use crate::units::Nanos;

/// Time for which work must be pending without a pause to be raced again. Ours: 5 s.
const BACKLOG: Nanos = Nanos::from_secs(5);

/// Whether there is background work worth racing.
#[derive(Debug, Clone, Default)]
pub(super) struct Background {
    resting: bool,
    pending_for: Nanos,
}

impl Background {
    /// Takes in one period; true when the cores may rest. Where nothing says what is pending, there
    /// is nothing to race: work that nobody tells of does I/O like any other, which ends Idle.
    pub fn resting(&mut self, pending: Option<u64>, period: Nanos) -> bool {
        if pending.unwrap_or(0) == 0 {
            (self.resting, self.pending_for) = (true, Nanos::ZERO);
        } else {
            self.pending_for += period;
            self.resting &= self.pending_for < BACKLOG;
        }
        self.resting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(500);

    #[test]
    fn races_until_done_then_rests_through_a_trickle() {
        let mut background = Background::default();
        assert!(!background.resting(Some(5), PERIOD));
        assert!(Background::default().resting(None, PERIOD));
        assert!(background.resting(Some(0), PERIOD));
        for _ in 0..100 {
            assert!(background.resting(Some(9), PERIOD));
            assert!(background.resting(Some(0), PERIOD));
        }
        let until = (1..100).find(|_| !background.resting(Some(9), PERIOD));
        assert_eq!(until, Some(10));
        assert!(background.resting(Some(0), PERIOD));
    }
}
