//! What users lose on CPUs, as [`add_cpus`] takes it.

use ebb_policy::Signals;
use ebb_policy::sense::add_cpus;

use crate::plant::Host;

impl Host {
    /// Why latencies are those at the drives alone; `None` where the CPUs' part is in them.
    #[must_use]
    pub fn cpus_unseen(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    /// Adds the CPUs' part to what was sensed of the drives.
    pub(super) fn add_cpus(&mut self, signals: &mut Signals) {
        if self.unseen.is_none() {
            self.queues.read();
            let lost = self.lost(signals);
            add_cpus(signals, lost);
        }
    }

    /// Time that was lost on the CPUs of all groups that serve I/O, in ns.
    fn lost(&self, signals: &Signals) -> Option<f64> {
        let mut lost = 0.0;
        for group in self.topology.io_groups() {
            let cpus = || self.layout.groups[group].iter().flat_map(|core| &core.cpus).copied();
            lost += self.queues.waited(cpus())?;
            signals.groups[group].utilisation?;
            let speed = self.acting.as_ref().map_or(1.0, |acting| acting.speed(group));
            lost += self.sensors.busy(cpus()).0 as f64 * (1.0 - speed);
        }
        Some(lost)
    }
}
