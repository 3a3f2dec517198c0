//! The global stability controller (§VI-C): fan speed and CPU cap are two local controllers of
//! the same temperature, which they see 10 s late and in whole kelvin. Left alone they compete:
//! both act on the same heat, both take it back when it is gone, and so on.
//!
//! The paper leaves the details to Kim et al. (DATE 2014), of which we could read the abstract: a
//! global scheme "which coordinates control actions among multiple local controllers" and
//! "guarantees the server stability while minimizing the overall performance degradation". The
//! rules below are ours, to the same two ends:
//!
//! | temperature | first | then |
//! |---|---|---|
//! | too high | fans up, to their limit (costs no performance) | CPU cap down |
//! | too low | CPU cap up (gives performance back) | fans down |
//!
//! 1. At most one of the two moves in an interval: no heat is answered twice.
//! 2. What warms waits until one lag has passed since what cools: its effect is seen before it is
//!    taken back. What cools never waits.
//! 3. The CPU cap rises at most at a rate that the sensors can follow.

use crate::cooling::LAG;

/// Fastest rise of the CPU cap per second. Ours: 40 K for all of it (see `throttle.rs`) then come
/// at 0.4 K/s, 4 K within a sensor lag.
const CAP_RISE: f64 = 0.01;

/// What each local controller would do.
#[derive(Debug, Clone, Copy)]
pub struct Proposals {
    /// Fan duty in force, and as its controller wants it.
    pub duty: (f64, f64),
    /// Most that the fans may have.
    pub limit: f64,
    /// CPU cap in force, and as its controller wants it.
    pub cap: (f64, f64),
    /// The cap may rise.
    pub may_rise: bool,
}

/// Decides between the two.
#[derive(Debug, Clone, Default)]
pub struct Stability {
    /// Seconds since something last cooled.
    since: f64,
}

impl Stability {
    /// Duty and CPU cap for the interval of `dt` seconds.
    pub fn decide(&mut self, wanted: &Proposals, dt: f64) -> (f64, f64) {
        self.since += dt;
        let settled = self.since >= LAG.seconds();
        let ((duty, to_duty), (cap, to_cap)) = (wanted.duty, wanted.cap);
        if duty > wanted.limit {
            // The limit came down: not an answer to the temperature, nor to wait for one.
            return (wanted.limit, cap.min(to_cap));
        }
        if to_duty > duty && duty < wanted.limit {
            self.since = 0.0;
            (to_duty.min(wanted.limit), cap)
        } else if to_cap < cap {
            self.since = 0.0;
            (duty, to_cap)
        } else if cap < 1.0 && to_cap > cap {
            let rise = settled && wanted.may_rise;
            (duty, if rise { to_cap.min(cap + CAP_RISE * dt) } else { cap })
        } else if to_duty < duty && settled {
            (to_duty, cap)
        } else {
            (duty, cap)
        }
    }
}
