//! Drives' idle states by the tolerated latency (PACER §III-B2, Observation 5).
//!
//! A drive left to itself falls into idle states (NVMe: APST) whose wake-up the next read waits
//! for. The paper maximises their time but lets no controller choose among them: its deeper state
//! wakes in 200 us, more than `plf` of a random read. Here a drive may enter the states that it
//! wakes from within what `plf` allows of the mean latency, if every request had to wait for one:
//!
//! ```text
//! wake-up ≤ plf / (1 + plf) · l
//! ```
//!
//! where the latency `l` has the wake-ups in it already. What is asked for is the wake-up of the
//! deepest such state: the noise of `l` writes nothing, nor does a drive without idle states. Until
//! `l` is known the states are as they were found, and no plant takes those away.

use crate::topology::Topology;
use crate::units::Nanos;
use crate::{Control, Policy, Request, Signals};

/// Time constant of the mean latency. Ours: PACER's five windows.
const AVERAGED: f64 = 5.0;

/// The policy.
#[derive(Debug, Clone)]
pub struct Apst {
    /// Wake-ups of each drive's idle states.
    wakes: Vec<Vec<Nanos>>,
    plf: f64,
    /// Mean latency in ns, once it is known.
    latency: Option<f64>,
}

impl Apst {
    /// For the drives of `topology`, within the tolerated loss `plf`.
    #[must_use]
    pub fn new(topology: &Topology, plf: f64) -> Self {
        let wakes = topology.drives.iter().map(|drive| drive.idle_wakes.clone()).collect();
        Self { wakes, plf: plf.max(0.0), latency: None }
    }

    /// The longest wake-up that is allowed at a mean `latency` in ns.
    #[must_use]
    pub fn allowed(plf: f64, latency: f64) -> Nanos {
        // A float converted to an integer saturates.
        Nanos((latency * plf / (1.0 + plf)) as u64)
    }
}

impl Policy for Apst {
    fn name(&self) -> &'static str {
        "apst"
    }

    fn owns(&self) -> &[Control] {
        &[Control::IdleWake]
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        if let (Some(1..), Some(latency)) = (signals.io.completed, signals.io.mean_latency) {
            let latency = latency.0 as f64;
            let mean = self.latency.get_or_insert(latency);
            *mean -= (latency - *mean) * (-signals.period.seconds() / AVERAGED).exp_m1();
        }
        let Some(latency) = self.latency else { return };
        let allowed = Self::allowed(self.plf, latency);
        for (drive, wakes) in self.wakes.iter().enumerate().filter(|(_, wakes)| !wakes.is_empty()) {
            let deepest = wakes.iter().filter(|wake| **wake <= allowed).max();
            request.idle_wake.ask(drive, deepest.copied().unwrap_or_default(), "apst:plf");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::DriveSpec;
    use crate::{IoSignals, PERIOD};

    #[test]
    fn it_allows_what_the_tolerated_loss_pays_for() {
        let drive = |wakes: &[u64]| DriveSpec {
            idle_wakes: wakes.iter().copied().map(Nanos::from_micros).collect(),
            ..DriveSpec::default()
        };
        let drives = vec![drive(&[1, 60, 200]), drive(&[]), drive(&[500])];
        let topology = Topology { drives, ..Topology::default() };
        let mut policy = Apst::new(&topology, 0.25);
        let mut asked = |completed, mean: u64| {
            let mut request = Request::new(&topology);
            let mut signals = Signals { period: PERIOD, ..Signals::new(&topology) };
            let mean_latency = Some(Nanos(mean));
            signals.io = IoSignals { completed, mean_latency, ..IoSignals::default() };
            policy.step(&signals, &mut request);
            [0, 1, 2].map(|drive| request.idle_wake.get(drive))
        };
        assert_eq!(asked(None, 0), [None; 3], "nothing is known yet");
        // A fifth of it is 100 us.
        let allowed = [Some(Nanos::from_micros(60)), None, Some(Nanos::ZERO)];
        assert_eq!(asked(Some(9), 500_000), allowed, "of states that there are");
        assert_eq!(asked(None, 0), allowed);
        assert_eq!(asked(Some(9), 503_000), allowed, "noise changes nothing");
    }
}
