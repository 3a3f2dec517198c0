//! What counts as work, wherever it is said.

use super::super::load::Load;
use super::*;
use crate::units::Hertz;
use crate::{CoreRole, InForce, Request, Signals};

/// A server that has run for a moment, socket 0 at half of its frequency.
fn running(cpu: f64) -> Plant {
    let mut plant = Plant::new(Physics::default(), vec![compute(cpu); 6]);
    let mut request = Request::new(&plant.topology);
    request.frequency_cap.ask(0, Hertz(1.3e9), "test:half");
    let mut in_force = InForce::new(&plant.topology);
    in_force.follow(&request);
    plant.sense(&in_force);
    plant
}

fn works(plant: &Plant, signals: &Signals) -> [f64; 3] {
    let load = Load::new(&plant.topology);
    [Some(0), Some(1), None].map(|socket| load.work(signals, socket).unwrap())
}

fn assert_near(found: [f64; 3], expected: [f64; 3]) {
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9);
    assert!(near, "{found:?} for {expected:?}");
}

proptest! {
    /// Three jobs on each socket; half of the frequency needs a quarter of the power at the most.
    #[test]
    fn a_job_counts_once_whoever_tells_of_it(cpu in 0.0..1.0_f64) {
        let mut plant = running(cpu);
        let expected = [0.75 * cpu, 3.0 * cpu, 3.75 * cpu];
        // By the cores that run jobs, and by the jobs, both of which the plant tells.
        assert_near(works(&plant, &plant.signals), expected);
        // By the cores alone.
        let mut signals = plant.signals.clone();
        signals.jobs.fill(Default::default());
        assert_near(works(&plant, &signals), expected);
        // By the jobs alone, on cores for users' I/O which say nothing of them.
        let mut signals = plant.signals.clone();
        plant.topology.groups.iter_mut().for_each(|group| group.role = CoreRole::FrontEnd);
        signals.groups.iter_mut().for_each(|group| group.utilisation = Some(0.0));
        let [first, second, _] = expected;
        let found = works(&plant, &signals);
        assert_near([found[0], found[1], 0.0], [first, second, 0.0]);
        // And with I/O beside them.
        signals.groups[1].utilisation = Some(0.5);
        prop_assert!((works(&plant, &signals)[1] - second - 4.0).abs() < 1e-9);
    }

    /// Cores that run jobs on no known socket: the jobs tell where.
    #[test]
    fn jobs_tell_where_cores_do_not(cpu in 0.0..1.0_f64) {
        let mut plant = running(cpu);
        plant.topology.groups.iter_mut().for_each(|group| group.socket = None);
        let [first, second, all] = works(&plant, &plant.signals);
        assert_near([first, second, all], [3.0 * cpu, 3.0 * cpu, 3.75 * cpu]);
    }
}
