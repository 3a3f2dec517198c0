//! The CPU cap as a frequency, in place of `throttle.rs`; ours, for `eadc-plus`.
//!
//! A core at half its frequency draws much less than half of its power, for its voltage falls too
//! (Eq. 3); a job that is paused half of the time saves half of it. So the same heat costs less
//! work when it is taken off the frequency: with power by `f^2.4`, 6 % of the speed in place of
//! 14 % of the time. EADC leaves DVFS for the emergency (§VI-B), where it has to come too late.
//!
//! The cap stands for power, at the least by `f^2`. Between two frequencies the ceiling changes
//! from interval to interval so that their mean is right (first-order sigma-delta); a heat sink
//! does not notice seconds. Each socket has its own, so that a cool one keeps its speed.

use crate::topology::Topology;
use crate::units::Hertz;

/// Ceilings of all sockets.
#[derive(Debug, Clone)]
pub struct Ceilings {
    /// By rising frequency.
    frequencies: Vec<Hertz>,
    /// What each socket was given too little of so far.
    owed: Vec<f64>,
}

impl Ceilings {
    /// For `topology`.
    pub fn new(topology: &Topology) -> Self {
        let owed = vec![0.0; usize::from(topology.sockets)];
        Self { frequencies: topology.frequencies.clone(), owed }
    }

    /// The cap below which no ceiling goes.
    pub fn least(topology: &Topology) -> f64 {
        (topology.min_frequency() / topology.max_frequency()).powi(2)
    }

    /// The ceiling of `socket` in this interval, under `cap`.
    pub fn next(&mut self, socket: usize, cap: f64) -> Hertz {
        let top = self.frequencies.last().copied().unwrap_or(Hertz(f64::MAX));
        let Some(owed) = self.owed.get_mut(socket) else { return top };
        if cap >= 1.0 {
            *owed = 0.0;
            return top;
        }
        let wanted = top.0 * cap.sqrt() + *owed;
        let off = |f: &Hertz| (f.0 - wanted).abs();
        let nearest = self.frequencies.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
        let given = nearest.copied().unwrap_or(top);
        *owed = wanted - given.0;
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_ceilings_is_what_the_cap_asks_for() {
        let frequencies = [1.0, 1.5, 2.0, 2.5].map(|ghz| Hertz(ghz * 1e9)).to_vec();
        for cap in [0.2, 0.37, 0.7, 0.95, 1.0_f64] {
            let mut ceilings = Ceilings { frequencies: frequencies.clone(), owed: vec![0.0] };
            let given: Vec<_> = (0..100).map(|_| ceilings.next(0, cap).0).collect();
            let mean = given.iter().sum::<f64>() / 100.0;
            assert!((mean - 2.5e9 * cap.sqrt()).abs() < 1e7, "{cap}: {mean}");
            // Only the two on either side are used.
            let near = |f: &f64| (f - 2.5e9 * cap.sqrt()).abs() < 0.5e9;
            assert!(given.iter().all(near), "{cap}: {given:?}");
        }
    }
}
