//! Reading ahead: after a read the disk goes on reading into its buffer while nothing else is to
//! be done, so that a stream of reads does not lose a revolution between two of them.

use ebb_policy::units::Nanos;

use super::profile::HddProfile;

/// What reading ahead has of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// Bytes in the buffer.
    pub(super) bytes: u64,
    /// The head is where the others follow.
    pub(super) on_track: bool,
}

/// The last stream read.
#[derive(Debug, Clone)]
pub(super) struct Ahead {
    /// The next byte of the stream.
    next: u64,
    /// Bytes in the buffer from `next` on, as of `at`.
    buffered: f64,
    at: u64,
    /// Whether the head still reads on.
    reading: bool,
    most: f64,
    /// Bytes per ns on track, by share of the capacity from the outer edge to the inner.
    outer: f64,
    slope: f64,
    /// Revolutions in the time of a track and a switch.
    turn: f64,
    /// Time for which it read, and what of it vibration cost on average, ns.
    worked: f64,
    lost: f64,
}

impl Ahead {
    pub(super) fn new(profile: &HddProfile) -> Self {
        let revolution = 60e9 / profile.rpm;
        let period = revolution + profile.seek.switch.0 as f64;
        let (outer, inner) = (profile.outer_rate.0 as f64, profile.inner_rate.0 as f64);
        Self {
            next: u64::MAX,
            buffered: 0.0,
            at: 0,
            reading: false,
            most: profile.read_ahead.0 as f64,
            outer: outer * 1e-9,
            slope: (inner - outer) * 1e-9 / profile.capacity.0 as f64,
            turn: revolution / period,
            worked: 0.0,
            lost: 0.0,
        }
    }

    /// A read ended at byte `next`.
    pub(super) fn begin(&mut self, next: u64, now: u64) {
        (self.next, self.buffered, self.at, self.reading) = (next, 0.0, now, self.most > 0.0);
    }

    /// Accounts for what was read by `now` at a chance of `failure` per track. Rates fall
    /// evenly with the bytes, near enough for a buffer.
    pub(super) fn settle(&mut self, now: u64, failure: f64) {
        if self.reading {
            let slower = 1.0 + self.turn * failure / (1.0 - failure);
            let rate = (self.outer + self.slope * self.next as f64) / slower;
            let gained = now.saturating_sub(self.at) as f64 * rate;
            let gained = gained.min(self.most - self.buffered);
            self.buffered += gained;
            let time = gained / rate;
            self.worked += time;
            self.lost += time * (1.0 - 1.0 / slower);
        }
        self.at = now;
    }

    /// Time for which it read, and what of it vibration cost.
    pub(super) fn worked(&self) -> (Nanos, Nanos) {
        (Nanos(self.worked as u64), Nanos(self.lost as u64))
    }

    /// The head leaves the stream.
    pub(super) fn stop(&mut self, now: u64, failure: f64) {
        self.settle(now, failure);
        self.reading = false;
    }

    /// Takes what the buffer has of a read, if it goes on where the stream is.
    pub(super) fn take(
        &mut self,
        offset: u64,
        bytes: u64,
        now: u64,
        failure: f64,
    ) -> Option<Ready> {
        if offset != self.next {
            return None;
        }
        self.settle(now, failure);
        let full = self.buffered >= self.most;
        let taken = bytes.min(self.buffered as u64);
        self.next += taken;
        self.buffered -= taken as f64;
        Some(Ready { bytes: taken, on_track: self.reading && !full })
    }
}
