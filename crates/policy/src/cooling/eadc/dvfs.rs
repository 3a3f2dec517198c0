//! "The policy will throttle CPU activity via DVFS as the last resort if the cores reach the
//! emergency temperature threshold" (§VI-B): a ceiling under each hot socket's frequencies, one
//! step at a time. It is a ceiling of its own, so that it does not fight with who sets the
//! frequencies.

use crate::sense::estimate::Estimator;
use crate::sense::thresholds::Thresholds;
use crate::sense::{LAG, QUANTUM};
use crate::units::{Celsius, Hertz};
use crate::{Request, Topology};

/// The ceilings of all sockets.
#[derive(Debug, Clone)]
pub struct Dvfs {
    frequencies: Vec<Hertz>,
    thresholds: Thresholds,
    /// Steps below the top, and seconds since the last change, of each socket.
    sockets: Vec<(usize, f64)>,
}

impl Dvfs {
    /// For `topology`, uncapped.
    pub fn new(topology: &Topology, thresholds: Thresholds) -> Self {
        let sockets = vec![(0, 0.0); usize::from(topology.sockets)];
        Self { frequencies: topology.frequencies.clone(), thresholds, sockets }
    }

    /// One interval of `dt` seconds.
    pub fn step(&mut self, heat: &Estimator, dt: f64, request: &mut Request) {
        let Some(deepest) = self.frequencies.len().checked_sub(1) else { return };
        let Thresholds { set_point, emergency, .. } = self.thresholds;
        for (s, (steps, since)) in self.sockets.iter_mut().enumerate() {
            *since += dt;
            let Some(t) = heat.socket(s) else { continue };
            // A sensor that is lost is the fans' matter. One that is read shows what a step does
            // only after its lag; the guard has the red line.
            let seen = *steps == 0 || *since >= LAG.seconds();
            let reason = if t.sound && t.now >= emergency && *steps < deepest && seen {
                (*steps, *since) = (*steps + 1, 0.0);
                "eadc:emergency"
            } else if t.ahead < set_point - Celsius(2.0 * QUANTUM)
                && *steps > 0
                && *since >= LAG.seconds()
            {
                (*steps, *since) = (*steps - 1, 0.0);
                "eadc:cooled"
            } else {
                "eadc:emergency"
            };
            request.frequency_cap.ask(s, self.frequencies[deepest - *steps], reason);
        }
    }
}
