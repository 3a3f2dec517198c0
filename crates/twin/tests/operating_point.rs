//! EADC finds the fan speed at which fans and leakage together need least (§VI-A, Fig. 8), on the
//! server of that figure, whose load is all there from the first moment.

use crate::common::{Held, Poisson, compute, job};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::Nanos;
use ebb_policy::{Policy, QosClass};
use ebb_trace::Workload;
use ebb_trace::generate::Job;
use ebb_twin::{Profile, Run, Unobserved, run};

/// Mean power of processors and fans in the last ten of 25 minutes, W.
fn power(profile: &Profile, policy: Box<dyn Policy>) -> f64 {
    let compute = Job { class: QosClass::Sensitive, ..compute(3600) };
    let rare = Workload::Open(Box::new(Poisson::new(u64::MAX, 1e8, 4096, 1.0, 1)));
    let loaded = Run {
        jobs: vec![compute; 15],
        warmup: Nanos::from_secs(900),
        ..job(profile, policy, rare, Some(Nanos::from_secs(1500)))
    };
    let outcome = run(loaded, &mut Unobserved).unwrap();
    let energy = outcome.energy;
    // Cool sockets are no reason to let jobs share a core while others are empty.
    for job in &outcome.jobs {
        assert!(job.cpu > Nanos::from_secs(1490), "a job had {} of 1500 s", job.cpu);
    }
    (energy.cpu.0 + energy.fans.0) / 600.0
}

#[test]
fn eadc_needs_no_more_than_the_best_speed_of_all() {
    let profile = Profile::load("eadc-lab").unwrap();
    let held = [0.36, 0.42, 0.48, 0.54, 0.6, 0.7].map(|duty| power(&profile, Box::new(Held(duty))));
    let best = held.into_iter().fold(f64::MAX, f64::min);
    let eadc = make("eadc", &profile.topology(), &Settings::default()).unwrap();
    let eadc = power(&profile, eadc);
    println!("{held:.1?} W held, {eadc:.1} W under eadc");
    assert!(held[0] > 1.02 * best, "the speed matters: {held:?}");
    assert!(eadc <= 1.01 * best, "{eadc} of {best} W");
}
