//! How late the meter of the whole server is, by the processors' own counters, which are not: what
//! these do shows in the meter so much later.

use std::collections::VecDeque;

use ebb_policy::units::{Nanos, Watts};

/// Lags that are looked at.
const STEP: f64 = 0.25;
const STEPS: usize = 17;
/// So many cycles are compared, and as often is it looked, once in so many.
const CYCLES: usize = 240;
const LEAST: usize = 60;
const EVERY: u32 = 20;
/// The lag at which the moves of both are this alike is the meter's, where the processors have
/// moved by so many watts in the mean from one cycle to the next.
const ALIKE: f64 = 0.8;
const MOVES: f64 = 2.0;

/// The lag of one meter.
#[derive(Debug, Default)]
pub struct MeterLag {
    stated: Nanos,
    seen: Option<Nanos>,
    /// When, and watts of the processors and of the server.
    past: VecDeque<(f64, f64, f64)>,
    looked: u32,
}

impl MeterLag {
    /// Where it is stated, which stands until it is seen.
    #[must_use]
    pub fn new(stated: Nanos) -> Self {
        Self { stated, ..Self::default() }
    }

    /// How old what the meter tells is.
    #[must_use]
    pub fn age(&self) -> Nanos {
        self.seen.unwrap_or(self.stated)
    }

    /// Hears what both meters tell; what is to be said where the lag is another than so far.
    pub fn see(&mut self, now: Nanos, cpu: Option<Watts>, total: Option<Watts>) -> Option<String> {
        let (Some(cpu), Some(total)) = (cpu, total) else {
            self.past.clear();
            return None;
        };
        self.past.push_back((now.seconds(), cpu.0, total.0));
        if self.past.len() > CYCLES {
            self.past.pop_front();
        }
        self.looked += 1;
        if self.looked < EVERY || self.past.len() < LEAST {
            return None;
        }
        self.looked = 0;
        let lag = self.judge()?;
        let before = self.age();
        self.seen = Some(lag);
        let moved = (lag.seconds() - before.seconds()).abs() > STEP;
        moved.then(|| {
            format!(
                "the meter is {lag} late, by the processors' counters (so far taken for {before})"
            )
        })
    }

    /// The lag at which both moved most alike.
    fn judge(&self) -> Option<Nanos> {
        let lags = (0..STEPS).map(|step| step as f64 * STEP);
        let alike = lags.map(|lag| (lag, self.alike(lag).unwrap_or(0.0)));
        let best = alike.max_by(|(_, one), (_, other)| one.total_cmp(other));
        best.filter(|(_, alike)| *alike >= ALIKE).map(|(lag, _)| Nanos::from_seconds(lag))
    }

    /// How alike the moves of the meter are to those of the processors `lag` seconds before: their
    /// correlation. `None` where these hardly moved.
    fn alike(&self, lag: f64) -> Option<f64> {
        let (mut own, mut other, mut both, mut moves, mut count) = (0.0, 0.0, 0.0, 0.0, 0_u32);
        for at in 1..self.past.len() {
            let ((before, _, watts_before), (now, _, watts)) = (self.past[at - 1], self.past[at]);
            let Some((from, to)) = self.cpu(before - lag).zip(self.cpu(now - lag)) else {
                continue;
            };
            let (cpu, wall) = (to - from, watts - watts_before);
            (own, other, both) = (own + cpu * cpu, other + wall * wall, both + cpu * wall);
            (moves, count) = (moves + cpu.abs(), count + 1);
        }
        let has_moved = moves > MOVES * f64::from(count);
        (has_moved && other > 0.0).then(|| both / (own * other).sqrt())
    }

    /// Watts of the processors at a time, between two cycles.
    fn cpu(&self, at: f64) -> Option<f64> {
        let next = self.past.partition_point(|(then, ..)| *then < at);
        let (after, to, _) = *self.past.get(next)?;
        if after == at {
            return Some(to);
        }
        let (before, from, _) = *self.past.get(next.checked_sub(1)?)?;
        Some(from + (to - from) * (at - before) / (after - before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load that comes and goes, whose watts the meter tells `lag` cycles later with more of them
    /// that the processors do not count.
    fn seen(lag: usize, swing: f64, others: f64, stated: Nanos) -> (Nanos, Vec<String>) {
        let mut meter = MeterLag::new(stated);
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 40) as f64 / f64::from(1 << 24) - 0.5
        };
        let (mut cpu, mut told) = (vec![100.0; lag + 1], Vec::new());
        for cycle in 1..400_u64 {
            if cycle % 7 == 0 {
                cpu.push(100.0 + swing * next());
            } else {
                cpu.push(cpu[cpu.len() - 1]);
            }
            let at = cpu.len() - 1;
            let total = Watts(150.0 + 1.1 * cpu[at - lag] + others * next());
            let now = Nanos::from_millis(500 * cycle);
            told.extend(meter.see(now, Some(Watts(cpu[at])), Some(total)));
        }
        (meter.age(), told)
    }

    #[test]
    fn what_the_processors_do_shows_in_the_meter_later() {
        for lag in 0..8 {
            let (age, told) = seen(lag, 80.0, 6.0, Nanos::ZERO);
            assert_eq!(age, Nanos::from_millis(500 * lag as u64));
            assert_eq!(told.len(), usize::from(lag > 0), "{told:?}");
        }
    }

    #[test]
    fn what_is_not_seen_stays_as_it_is_stated() {
        let stated = Nanos::from_secs(1);
        for (swing, others) in [(0.0, 0.0), (0.0, 50.0), (1.0, 0.0), (40.0, 200.0)] {
            assert_eq!(seen(4, swing, others, stated), (stated, Vec::new()), "{swing} {others}");
        }
        let mut meter = MeterLag::new(stated);
        assert_eq!((meter.see(stated, None, None), meter.age()), (None, stated));
    }
}
