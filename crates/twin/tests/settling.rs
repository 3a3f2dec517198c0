//! What policies state of how long they take to settle (`ebb_policy::registry::settling`).

use ebb_policy::Settling;
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::Nanos;
use ebb_trace::generate::{BuildContext, by_name};
use ebb_twin::{Observer, Profile, Sample, run};

use crate::common::job;

/// Power of each control period, W.
#[derive(Default)]
struct Watts(Vec<f64>);

impl Observer for Watts {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.0.push(sample.cycled.signals.power.total.unwrap().0);
    }
}

fn watts(profile: &Profile, policy: &str, iops: f64, duration: Nanos) -> Vec<f64> {
    let topology = profile.topology();
    let (devices, capacity) = profile.volumes();
    let spec = by_name("rand-rw").unwrap().with_rate(iops);
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 7 };
    let workload = spec.build(&context).unwrap();
    let policy = registry::make(policy, &topology, &Settings::default()).unwrap();
    let mut watts = Watts::default();
    run(job(profile, policy, workload, Some(duration)), &mut watts).unwrap();
    watts.0
}

/// From then on a period saves what the next one saves, to a twentieth of it or to half a percent
/// of the server's power.
#[test]
fn once_a_policy_has_settled_each_period_saves_as_much_as_the_next() {
    let cores: &[_] = &["ondemand", "pacer", "pacer-plus", "apst", "constant(cores=0.5)"];
    for (server, iops, policies) in [
        ("generic-1u", 3_000.0, cores),
        ("pass-10", 2_000.0, cores),
        ("generic-1u", 50.0, cores),
        ("thermal-1u", 20.0, &["dlb", "jetc", "eadc", "eadc-plus"]),
    ] {
        let profile = Profile::load(server).unwrap();
        for policy in policies {
            let settling = registry::settling(policy, &Settings::default(), iops).unwrap();
            let Settling { after, period } = settling;
            let period = period.max(Nanos::from_secs(20));
            let all = watts(&profile, policy, iops, after + period + period);
            let native = watts(&profile, "native", iops, Nanos::from_secs(20));
            let native = native.iter().sum::<f64>() / native.len() as f64;
            let periods = |time: Nanos| (time.seconds() * 2.0) as usize;
            let (start, length) = (periods(after), periods(period));
            let saved =
                |from: usize| native - all[from..from + length].iter().sum::<f64>() / length as f64;
            let (first, second) = (saved(start), saved(start + length));
            let near = (0.05 * second.abs()).max(0.005 * native);
            let told =
                format!("{policy} on {server} at {iops} IOPS: {first:.2}, then {second:.2} W");
            assert!((first - second).abs() <= near, "{told}");
        }
    }
}
