//! Fixed settings, for the papers' sweeps of one control at a time.

use ebb_policy::{Controls, Policy, Signals, Topology};

/// Holds all groups at a share of their cores and of the highest frequency.
pub struct Hold {
    topology: Topology,
    cores: f64,
    frequency: f64,
}

impl Hold {
    pub fn new(topology: &Topology, cores: f64, frequency: f64) -> Self {
        Self { topology: topology.clone(), cores, frequency }
    }
}

impl Policy for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }
    fn step(&mut self, _signals: &Signals, controls: &mut Controls) {
        let wanted = self.topology.max_frequency() * self.frequency;
        let frequency = self.topology.frequency_at_least(wanted * 0.999);
        for (group, spec) in self.topology.groups.iter().enumerate() {
            let active = (f64::from(spec.cores) * self.cores).round() as u16;
            controls.set_active(group, active.max(spec.min_cores), "hold:cores");
            controls.set_frequency(group, frequency, "hold:frequency");
        }
    }
}
