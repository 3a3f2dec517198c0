//! Hybrid polling: a core naps for half the time it expects nothing, then polls again (slides,
//! "Hybrid Polling: alternating polling cores between sleep and active states").
//!
//! Linux does so per request (`io_poll_delay` = 0: sleep half the mean completion time, then
//! poll). A target waits for arrivals as well as completions, so what is learned here is the mean
//! gap between requests of a core, smoothed over periods; the nap is half of it, within bounds.

use super::{Core, Period, Placement, Scheduler, Wait};
use crate::units::Nanos;

/// Shorter naps cost more in timer programming and wake-up than they rest.
const SHORTEST: Nanos = Nanos::from_micros(2);
/// Half of what a flash read takes: the delay Linux would learn on such a drive.
const LONGEST: Nanos = Nanos::from_micros(50);
/// Weight of the newest period.
const WEIGHT: f64 = 0.5;

/// Naps of half the learned gap.
#[derive(Debug, Clone)]
pub struct Hybrid {
    /// Mean gap between requests in nanoseconds, by core; none before the first period.
    gap: Vec<Option<f64>>,
}

impl Hybrid {
    /// For this many cores.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self { gap: vec![None; cores] }
    }
}

impl Scheduler for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        for (core, learned) in self.gap.iter_mut().enumerate() {
            let threads = placement.core_of().iter().zip(period.threads);
            let on = threads.filter(|(at, _)| usize::from(**at) == core);
            let requests: u64 = on.map(|(_, load)| load.requests).sum();
            let now = period.length.0 as f64 / requests.max(1) as f64;
            let gap = learned.map_or(now, |before| before + WEIGHT * (now - before));
            *learned = Some(gap);
            let nap = Nanos((gap / 2.0) as u64).min(LONGEST);
            let wait = if nap < SHORTEST { Wait::Poll } else { Wait::Nap { nap } };
            placement.set_wait(core as Core, wait, "hybrid:gap");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ThreadLoad;
    use super::super::tests::{machine, period};
    use super::*;

    fn wait_at(rates: &[u64]) -> Wait {
        let mut placement = Placement::even(machine(1, 1));
        let mut hybrid = Hybrid::new(2);
        for requests in rates {
            let (cores, mut threads) = period(&placement, &[0.1]);
            threads[0] = ThreadLoad { requests: *requests, ..threads[0] };
            placement.begin();
            let (now, length) = (Nanos::from_secs(1), Nanos::from_secs(1));
            let period = Period { now, length, cores: &cores, threads: &threads };
            hybrid.coarse(&period, &mut placement);
        }
        placement.waits()[0]
    }

    #[test]
    fn naps_half_the_gap_within_bounds() {
        let micros = |micros| Wait::Nap { nap: Nanos::from_micros(micros) };
        assert_eq!(wait_at(&[100_000]), micros(5));
        assert_eq!(wait_at(&[100]), micros(50));
        assert_eq!(wait_at(&[0]), micros(50));
        assert_eq!(wait_at(&[1_000_000]), Wait::Poll);
    }

    #[test]
    fn the_gap_is_smoothed() {
        // 10 µs, then 20 µs: 15 µs expected, napped for half of it.
        assert_eq!(wait_at(&[100_000, 50_000]), Wait::Nap { nap: Nanos(7_500) });
    }
}
