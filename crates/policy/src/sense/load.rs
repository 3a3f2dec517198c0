//! How busy the processors are. One count for all that learns from it, in which nothing counts
//! twice.

use crate::sense::plausible::{absurd_group, is_job, is_power};
use crate::topology::{CoreRole, GroupSpec, Topology};
use crate::units::Hertz;
use crate::{GroupSignals, JobSignals, Signals};

/// Power of an idle core as a share of a busy one's, with its part of the rest of the socket.
const IDLE: f64 = 0.25;

/// Counts the work of core groups and jobs.
#[derive(Debug, Clone)]
pub struct Load {
    groups: Vec<GroupSpec>,
    highest: Hertz,
    /// Whether it is known on which socket anything works.
    by_socket: bool,
}

impl Load {
    /// For the groups of `topology`.
    pub fn new(topology: &Topology) -> Self {
        let groups = topology.groups.clone();
        let by_socket = topology.jobs > 0 || groups.iter().any(|group| group.socket.is_some());
        Self { groups, highest: topology.max_frequency(), by_socket }
    }

    /// Heat of `socket` in any unit: the work on it, with what its cores draw at rest; the power of
    /// all processors where nobody tells what works where.
    pub fn heat(&self, signals: &Signals, socket: usize) -> Option<f64> {
        if !self.by_socket {
            return signals.power.cpu.filter(|power| is_power(*power)).map(|power| power.0);
        }
        let here = self.groups.iter().filter(|group| group.socket.map(usize::from) == Some(socket));
        let cores = here.map(|group| f64::from(group.cores)).sum::<f64>().max(1.0);
        Some(self.work(signals, Some(socket))? + IDLE * cores)
    }

    /// The same of its work and of its cores at rest. Where nobody tells what works where, all of
    /// it is rest.
    pub fn parts(&self, signals: &Signals, socket: usize) -> Option<(f64, f64)> {
        let heat = self.heat(signals, socket)?;
        let work = if self.by_socket { self.work(signals, Some(socket))? } else { 0.0 };
        Some((work, heat - work))
    }

    /// Heat of `socket` with all its cores at work.
    pub fn full(&self, socket: usize) -> f64 {
        let here = self.groups.iter().filter(|group| group.socket.map(usize::from) == Some(socket));
        here.map(|group| f64::from(group.cores)).sum::<f64>().max(1.0) * (1.0 + IDLE)
    }

    /// Frequency of the fastest group on `socket`, as a share of the highest.
    pub fn pace(&self, signals: &Signals, socket: usize) -> f64 {
        let groups = signals.groups.iter().zip(&self.groups);
        let here = groups.filter(|(_, spec)| spec.socket.map(usize::from) == Some(socket));
        let paces = here.filter_map(|(group, _)| Some(group.frequency? / self.highest));
        paces.reduce(f64::max).unwrap_or(1.0)
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
        // Where nobody says how many take work it may be all of them.
        let busy = |group: &GroupSignals, spec: &GroupSpec| {
            group.utilisation.unwrap_or(0.0) * f64::from(group.active.unwrap_or(spec.cores))
        };
        // Power falls with `f V^2`, between the square and the cube; a lower bound on the fall.
        let pace = |group: &GroupSignals| {
            group.frequency.map_or(1.0, |f| (f / self.highest).clamp(0.0, 1.0).powi(2))
        };
        let on_groups = groups().map(|(group, spec)| busy(group, spec) * pace(group)).sum::<f64>();
        // What jobs do is part of what the cores that run them say.
        if groups().any(|(_, spec)| spec.role == CoreRole::Compute) {
            return Some(on_groups);
        }
        let pace = groups().map(|(group, _)| pace(group)).reduce(f64::max).unwrap_or(1.0);
        Some(on_groups + pace * jobs().map(|job: &JobSignals| job.cpu).sum::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Watts;
    use proptest::prelude::*;

    /// Two sockets of eight cores of a kind, the first at half of its frequency; three jobs on
    /// each, which their cores tell too.
    fn running(cpu: f64, role: CoreRole) -> (Topology, Signals) {
        let group = |socket| GroupSpec { role, cores: 8, min_cores: 1, socket: Some(socket) };
        let (groups, frequencies) = (vec![group(0), group(1)], vec![Hertz(1e9), Hertz(2e9)]);
        let topology = Topology { groups, frequencies, jobs: 6, ..Topology::default() };
        let mut signals = Signals::new(&topology);
        for (group, frequency) in signals.groups.iter_mut().zip([1e9, 2e9]) {
            let utilisation = Some(3.0 * cpu / 8.0);
            *group = GroupSignals { active: Some(8), utilisation, ..GroupSignals::default() };
            group.frequency = Some(Hertz(frequency));
        }
        for (number, job) in signals.jobs.iter_mut().enumerate() {
            *job = JobSignals { present: true, cpu, ..JobSignals::default() };
            job.socket = (number % 2) as u16;
        }
        (topology, signals)
    }

    fn assert_works(topology: &Topology, signals: &Signals, expected: [f64; 3]) {
        let load = Load::new(topology);
        for (socket, expected) in [Some(0), Some(1), None].into_iter().zip(expected) {
            let found = load.work(signals, socket).unwrap();
            assert!((found - expected).abs() < 1e-9, "{socket:?}: {found} for {expected}");
        }
    }

    proptest! {
        /// Half of the frequency needs a quarter of the power at the most.
        #[test]
        fn a_job_counts_once_whoever_tells_of_it(cpu in 0.0..1.0_f64) {
            let expected = [0.75 * cpu, 3.0 * cpu, 3.75 * cpu];
            // By the cores that run jobs, and by the jobs, both of which are told.
            let (mut topology, mut signals) = running(cpu, CoreRole::Compute);
            assert_works(&topology, &signals, expected);
            // Cores that run jobs on no known socket: the jobs tell where.
            let nowhere = |group: &mut GroupSpec| group.socket = None;
            topology.groups.iter_mut().for_each(nowhere);
            assert_works(&topology, &signals, [3.0 * cpu, 3.0 * cpu, 3.75 * cpu]);
            // By the cores alone.
            let (topology, _) = running(cpu, CoreRole::Compute);
            signals.jobs.fill(JobSignals::default());
            assert_works(&topology, &signals, expected);
            // Whoever does not count cores has all of them at work.
            signals.groups.iter_mut().for_each(|group| group.active = None);
            assert_works(&topology, &signals, expected);
            // By the jobs alone, on cores for users' I/O which say nothing of them.
            let (topology, mut signals) = running(cpu, CoreRole::FrontEnd);
            signals.groups.iter_mut().for_each(|group| group.utilisation = Some(0.0));
            let load = Load::new(&topology);
            let works = |signals: &Signals| [0, 1].map(|s| load.work(signals, Some(s)).unwrap());
            let [slow, fast] = works(&signals);
            prop_assert!((slow - 0.75 * cpu).abs() < 1e-9 && (fast - 3.0 * cpu).abs() < 1e-9);
            // And with I/O beside them.
            signals.groups[1].utilisation = Some(0.5);
            prop_assert!((works(&signals)[1] - fast - 4.0).abs() < 1e-9);
        }
    }

    #[test]
    fn heat_is_work_and_rest_or_power_where_nobody_tells_what_works_where() {
        let (topology, mut signals) = running(1.0, CoreRole::Compute);
        assert_eq!(Load::new(&topology).heat(&signals, 1), Some(5.0));
        signals.jobs[1].cpu = f64::NAN;
        assert_eq!(Load::new(&topology).heat(&signals, 1), None);
        let nowhere = Load::new(&Topology { frequencies: vec![Hertz(1e9)], ..Topology::default() });
        let mut signals = Signals::default();
        assert_eq!(nowhere.heat(&signals, 0), None);
        signals.power.cpu = Some(Watts(80.0));
        assert_eq!(nowhere.heat(&signals, 0), Some(80.0));
        signals.power.cpu = Some(Watts(f64::NAN));
        assert_eq!(nowhere.heat(&signals, 0), None);
    }
}
