//! Sums over the cycles of a run.

use std::collections::BTreeMap;

use ebb_policy::Cycled;
use ebb_policy::units::Nanos;

/// What the cycles of a run add up to, of any plant.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Time that passed.
    pub(crate) span: Nanos,
    pub(crate) requests: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) latency_sum: f64,
    pub(crate) latency_max: Option<Nanos>,
    pub(crate) power: BTreeMap<&'static str, Power>,
    pub(crate) peak: Option<f64>,
    /// Energy and length of the last cycle.
    last: (f64, Nanos),
}

/// Energy, and the time for which it was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Power {
    pub(crate) joules: f64,
    pub(crate) span: Nanos,
}

impl Totals {
    /// Adds a cycle.
    pub(crate) fn add(&mut self, cycled: &Cycled<'_>) {
        let signals = cycled.signals;
        let (io, power, period) = (&signals.io, &signals.power, signals.period);
        self.span += period;
        let sum = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
        self.requests = sum(self.requests, io.completed);
        self.bytes = sum(self.bytes, io.bytes);
        if let (Some(mean), Some(completed)) = (io.mean_latency, io.completed) {
            self.latency_sum += mean.0 as f64 * completed as f64;
        }
        self.latency_max = self.latency_max.max(io.max_latency);
        let components =
            [("total", power.total), ("cpu", power.cpu), ("ssd", power.ssd), ("fans", power.fans)];
        for (name, watts) in components {
            let Some(watts) = watts else { continue };
            let power = self.power.entry(name).or_default();
            power.joules += (watts * period).0;
            power.span += period;
        }
        if let Some(total) = power.total {
            // The rest of a period tells of no mean: it counts with the period before.
            let (joules, before) = std::mem::replace(&mut self.last, ((total * period).0, period));
            let watts = match period < before {
                true => (joules + self.last.0) / (before + period).seconds(),
                false => total.0,
            };
            self.peak = Some(self.peak.unwrap_or_default().max(watts));
        }
    }
}
