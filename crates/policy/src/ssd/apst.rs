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
//! where the latency `l` has the wake-ups in it already. Until it is known the states are as they
//! were found: to take them from a server without I/O would cost power.

use crate::topology::Topology;
use crate::units::Nanos;
use crate::{Control, Policy, Request, Signals};

/// Time constant of the mean latency. Ours: PACER's five windows.
const AVERAGED: f64 = 5.0;

/// The policy.
#[derive(Debug, Clone)]
pub struct Apst {
    drives: usize,
    plf: f64,
    /// Mean latency in ns, once it is known.
    latency: Option<f64>,
}

impl Apst {
    /// For the drives of `topology`, within the tolerated loss `plf`.
    #[must_use]
    pub fn new(topology: &Topology, plf: f64) -> Self {
        Self { drives: topology.drives.len(), plf: plf.max(0.0), latency: None }
    }

    /// The longest wake-up that is allowed at a mean `latency` in ns, in whole microseconds: Linux
    /// takes no finer ones (`pm_qos_latency_tolerance_us`), and noise would be written each period.
    #[must_use]
    pub fn allowed(plf: f64, latency: f64) -> Nanos {
        // A float converted to an integer saturates.
        Nanos((latency * plf / (1.0 + plf)) as u64 / 1_000 * 1_000)
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
        (0..self.drives).for_each(|drive| request.idle_wake.ask(drive, allowed, "apst:plf"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::DriveSpec;
    use crate::{IoSignals, PERIOD};

    #[test]
    fn it_allows_what_the_tolerated_loss_pays_for() {
        let drive = DriveSpec { id: None, states: vec![], limit: None, rotational: false };
        let topology = Topology { drives: vec![drive; 2], ..Topology::default() };
        let mut policy = Apst::new(&topology, 0.25);
        let mut request = Request::new(&topology);
        let mut signals = Signals { period: PERIOD, ..Signals::new(&topology) };
        policy.step(&signals, &mut request);
        assert_eq!(request.idle_wake.get(1), None, "nothing is known yet");
        let mean_latency = Some(Nanos::from_micros(500));
        signals.io = IoSignals { completed: Some(9), mean_latency, ..IoSignals::default() };
        policy.step(&signals, &mut request);
        assert_eq!(request.idle_wake.get(1), Some(Nanos::from_micros(100)));
        signals.io.completed = None;
        policy.step(&signals, &mut request);
        assert_eq!(request.idle_wake.get(0), Some(Nanos::from_micros(100)));
        signals.io.completed = Some(9);
        signals.io.mean_latency = Some(Nanos(503_000));
        policy.step(&signals, &mut request);
        assert_eq!(
            request.idle_wake.get(0),
            Some(Nanos::from_micros(100)),
            "noise changes nothing"
        );
    }
}
