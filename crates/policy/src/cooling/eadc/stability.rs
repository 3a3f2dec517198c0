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
//! 1. At most one of the two moves in an interval: no heat is answered twice. Without a limit the
//!    cap waits until the fans are at full speed; under one there is too little left to wait for.
//! 2. What warms waits until one lag has passed since what cools: its effect is seen before it is
//!    taken back. What cools never waits.
//! 3. The CPU cap rises at most at a rate that the sensors can follow: the further below the set
//!    point the faster (`cpu_cap.rs`), so that after a fault the fans need not wait for it long.
//! 4. Fans slow down no faster than the guard lets them, also when their limit comes down.

use crate::cooling::eadc::cpu_cap::{CpuCap, Turn};
use crate::guard::SLOW_DOWN;
use crate::sense::LAG;

/// What the fans' controller would do.
#[derive(Debug, Clone, Copy)]
pub struct Fans {
    /// Duty in force, and as its controller wants it.
    pub duty: f64,
    pub wanted: f64,
    /// Most that the fans may have.
    pub limit: f64,
}

/// Decides between fans and CPU cap.
#[derive(Debug, Clone, Default)]
pub struct Stability {
    /// Seconds since something last cooled.
    since: f64,
}

impl Stability {
    /// The duty, and which way the CPU cap may move, in an interval of `dt` seconds.
    pub fn decide(&mut self, fans: Fans, cap: &CpuCap, dt: f64) -> (f64, Turn) {
        let Fans { duty, wanted, limit } = fans;
        self.since += dt;
        let settled = self.since >= LAG.seconds();
        if duty > limit {
            // The limit came down: not an answer to the temperature, nor to wait for one.
            return (limit.max(duty - SLOW_DOWN * dt), Turn::Lower);
        }
        if wanted > duty && duty < limit {
            self.since = 0.0;
            (wanted.min(limit), Turn::Hold)
        } else if cap.want_less() && (duty >= limit || limit < 1.0) {
            self.since = 0.0;
            (duty, Turn::Lower)
        } else if cap.want_more() {
            (duty, if settled { Turn::Raise } else { Turn::Hold })
        } else if wanted < duty && settled {
            (wanted, Turn::Hold)
        } else {
            (duty, Turn::Hold)
        }
    }
}
