//! Busy polling at a frequency that follows the load, as SPDK's `gscheduler` does it (slides,
//! "Governor: adapting frequency of polling cores").
//!
//! A kernel governor is of no use here: to it a polling core is always 100 % busy, so it stays at
//! the highest frequency. SPDK counts the polls that found work and steers the frequency itself,
//! once a scheduling period (`module/scheduler/gscheduler/gscheduler.c`):
//!
//! ```text
//! busy < 1 %     the lowest frequency
//! busy < 50 %    one step down
//! busy ≥ 99 %    the highest frequency
//! otherwise      one step up
//! ```
//!
//! where `busy` is that of the busier of two sibling hyper-threads, which share a clock.
//! Threads never move and every core polls.

use super::{Core, CoreLoad, FULL_SPEED, Period, Placement, Scheduler, Speed};

/// Below this share busy: the lowest frequency (`g_min_threshold`).
const MIN_THRESHOLD: f64 = 0.01;
/// Below this share busy a step down, else a step up (`g_adjust_threshold`).
const ADJUST_THRESHOLD: f64 = 0.50;
/// From this share busy on: the highest frequency (`g_max_threshold`).
const MAX_THRESHOLD: f64 = 0.99;
/// One P-state: 100 MHz of 2.5 GHz.
pub(super) const STEP: Speed = 40;
/// The lowest P-state: 800 MHz of 2.5 GHz.
pub(super) const LOWEST: Speed = 320;

/// The governor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Governor;

/// Share of polls that found work, by time; what SPDK calls busy. A core that only slept is idle.
pub(super) fn busy_share(load: &CoreLoad) -> f64 {
    let polled = load.busy.0 + load.wasted.0;
    if polled == 0 { 0.0 } else { load.busy.0 as f64 / polled as f64 }
}

/// One step up.
pub(super) fn up(speed: Speed) -> Speed {
    (speed + STEP).min(FULL_SPEED)
}
/// One step down.
pub(super) fn down(speed: Speed) -> Speed {
    speed.saturating_sub(STEP).max(LOWEST)
}

impl Scheduler for Governor {
    fn name(&self) -> &'static str {
        "governor"
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        for (core, load) in period.cores.iter().enumerate() {
            let sibling = placement.machine().cores[core].sibling;
            let beside =
                sibling.map_or(0.0, |beside| busy_share(&period.cores[usize::from(beside)]));
            let busy = busy_share(load).max(beside);
            let speed = placement.speeds()[core];
            let (speed, reason) = if busy < MIN_THRESHOLD {
                (LOWEST, "governor:idle")
            } else if busy < ADJUST_THRESHOLD {
                (down(speed), "governor:light")
            } else if busy >= MAX_THRESHOLD {
                (FULL_SPEED, "governor:full")
            } else {
                (up(speed), "governor:busy")
            };
            placement.set_speed(core as Core, speed, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{machine, period};
    use super::*;
    use crate::units::Nanos;

    /// The speed of core 0 after one period with these shares of busy time, from `speed`.
    fn after(speed: Speed, busy: [f64; 2]) -> Speed {
        let mut placement = Placement::even(machine(1, 2));
        placement.set_speed(0, speed, "test");
        placement.begin();
        let (cores, threads) = period(&placement, &busy);
        let (now, length) = (Nanos::from_secs(1), Nanos::from_secs(1));
        let period = Period { now, length, cores: &cores, threads: &threads };
        Governor.coarse(&period, &mut placement);
        placement.speeds()[0]
    }

    #[test]
    fn gscheduler_s_thresholds() {
        for (busy, speed) in [(0.0, LOWEST), (0.3, 760), (0.5, 840), (0.98, 840), (0.99, 1000)] {
            assert_eq!(after(800, [busy, 0.0]), speed, "busy {busy}");
        }
        assert_eq!(after(LOWEST, [0.2, 0.0]), LOWEST);
        assert_eq!(after(1000, [0.9, 0.0]), 1000);
    }

    #[test]
    fn siblings_share_a_clock() {
        assert_eq!(after(800, [0.0, 0.995]), FULL_SPEED);
    }
}
