//! How busy the processors are. One count for all that learns from it, in which nothing counts
//! twice.

use crate::possible::{absurd_group, is_job};
use crate::topology::{CoreRole, GroupSpec, Topology};
use crate::units::Hertz;
use crate::{GroupSignals, JobSignals, Signals};

/// Counts the work of core groups and jobs.
#[derive(Debug, Clone)]
pub struct Load {
    groups: Vec<GroupSpec>,
    highest: Hertz,
}

impl Load {
    /// For the groups of `topology`.
    pub fn new(topology: &Topology) -> Self {
        Self { groups: topology.groups.clone(), highest: topology.max_frequency() }
    }

    /// Whether it is known on which socket anything works.
    pub fn by_socket(&self) -> bool {
        self.groups.iter().any(|group| group.socket.is_some())
    }

    /// Cores of the groups on `socket`.
    pub fn cores(&self, socket: usize) -> f64 {
        let here = self.groups.iter().filter(|group| group.socket.map(usize::from) == Some(socket));
        here.map(|group| f64::from(group.cores)).sum()
    }

    /// Cores' worth of work at the highest frequency on `socket`, where groups that are on no one
    /// socket count nowhere, or on all of the server. `None` when what is said cannot be true.
    pub fn work(&self, signals: &Signals, socket: Option<usize>) -> Option<f64> {
        let here = |on: Option<u16>| socket.is_none() || on.map(usize::from) == socket;
        let groups = || signals.groups.iter().zip(&self.groups).filter(|(_, g)| here(g.socket));
        let jobs = || signals.jobs.iter().filter(|job| job.present && here(Some(job.socket)));
        let absurd = |(group, spec): (&GroupSignals, &GroupSpec)| {
            absurd_group(group, spec, self.highest).is_some()
        };
        let shape = signals.groups.len() == self.groups.len();
        if !shape || groups().any(absurd) || !jobs().all(is_job) {
            return None;
        }
        let busy =
            |group: &GroupSignals| group.utilisation.unwrap_or(0.0) * f64::from(group.active);
        // Power falls with `f V^2`, between the square and the cube; a lower bound on the fall.
        let pace = |group: &GroupSignals| {
            group.frequency.map_or(1.0, |f| (f / self.highest).clamp(0.0, 1.0).powi(2))
        };
        let on_groups = groups().map(|(group, _)| busy(group) * pace(group)).sum::<f64>();
        // What jobs do is part of what the cores that run them say.
        if groups().any(|(_, spec)| spec.role == CoreRole::Compute) {
            return Some(on_groups);
        }
        let pace = groups().map(|(group, _)| pace(group)).reduce(f64::max).unwrap_or(1.0);
        Some(on_groups + pace * jobs().map(|job: &JobSignals| job.cpu).sum::<f64>())
    }
}
