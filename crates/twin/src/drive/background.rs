//! Garbage collection while the drive is idle, in rounds that any command interrupts.

use super::{Drive, float};

/// Most that one round of background collection reclaims.
const BACKGROUND_ROUND: f64 = 64e6;

/// A round of background collection, as work that nobody waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    start: f64,
    end: f64,
    bytes: f64,
}

impl Drive {
    /// Runs background collection as far as it gets by `now` while the drive is idle.
    pub(super) fn run_background(&mut self, now: u64) {
        let now = float(now);
        loop {
            let start = match self.round {
                Some(round) if now < round.end => return,
                Some(round) => {
                    self.meter.advance(round.end);
                    self.pool.reclaim(round.bytes);
                    self.round = None;
                    round.end
                }
                None => self.meter.until().max(float(self.blocked_until)) + self.idle_delay,
            };
            let bytes = self.pool.background_work().min(BACKGROUND_ROUND);
            let idle = self.caps[usize::from(self.state)].operational;
            if now < start || bytes < 1.0 || !idle || self.change.is_some() {
                return;
            }
            self.start_round(start, bytes);
        }
    }

    #[cold]
    fn start_round(&mut self, start: f64, bytes: f64) {
        let moved = self.pool.cost_of(bytes);
        let time = moved * self.copy_ns_per_byte / self.background_share;
        let energy = moved * self.copy_energy_per_byte;
        let end = start + time.max(energy * self.ns_per_nj).max(1.0);
        self.meter.advance(start);
        self.meter.add(start, energy, end, self.ns_per_nj);
        self.round = Some(Round { start, end: self.meter.until(), bytes });
    }

    /// Gives up the round under way at `now` and keeps what it has reclaimed.
    #[cold]
    pub(super) fn stop_round(&mut self, now: u64) {
        let Some(round) = self.round.take() else { return };
        let now = now as f64;
        let done = ((now - round.start) / (round.end - round.start)).clamp(0.0, 1.0);
        self.pool.reclaim(round.bytes * done);
        self.meter.cancel(now);
    }
}
