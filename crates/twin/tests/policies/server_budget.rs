//! `tide` on servers and loads that it was not made with.

use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, cpu::Native};
use ebb_trace::generate::{BuildContext, WorkloadSpec};
use ebb_twin::{Observer, Profile, Run, Sample, run};

use crate::common::job;

/// Requests, bytes written and watts of each period.
#[derive(Default)]
struct Seen(Vec<(u64, u64, f64)>);

impl Observer for Seen {
    fn sample(&mut self, sample: &Sample<'_>) {
        let io = &sample.cycled.signals.io;
        let written = sample.cycled.signals.drives.iter().filter_map(|drive| drive.written_bytes);
        let watts = (sample.energy.total() / sample.length).0;
        self.0.push((io.completed.unwrap_or_default(), written.sum(), watts));
    }
}

fn seen(profile: &str, jobs: &str, budget: f64, seconds: u64) -> Vec<(u64, u64, f64)> {
    let profile = Profile::load(profile).unwrap();
    let spec: WorkloadSpec = toml::from_str(&format!("name = 'x'\n{jobs}")).unwrap();
    let (devices, capacity) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
    let load = spec.build(&context).unwrap();
    let of = job(&profile, Box::new(Native), load, Some(Nanos::from_secs(seconds)));
    let tide = make("tide", &profile.topology(), &Settings::default()).unwrap();
    let limits = Limits { server_budget: Some(Watts(budget)), ..Limits::default() };
    let mut seen = Seen::default();
    run(Run { coordinator: Some(tide), limits, ..of }, &mut seen).unwrap();
    seen.0
}

/// Their drives rest where next to nothing is served, and draw far less than ready for work: no
/// reason to serve next to nothing for ever.
#[test]
fn a_server_whose_drives_rest_is_not_held_at_the_least() {
    for (profile, budget, rate) in
        [("asg-1115s", 450.0, 20_000), ("hp-mbwu", 165.0, 10_000), ("cm5-nvme", 5.8, 10_000)]
    {
        let jobs = format!(
            "[[arrivals]]\nname = 'x'\nrate = '{rate} IOPS'\n\
             access = {{ block = '8 KiB', read = '70%' }}"
        );
        let seen = seen(profile, &jobs, budget, 14);
        let served: u64 = seen[20..28].iter().map(|(requests, ..)| requests).sum();
        let most = seen.iter().map(|(.., watts)| *watts).fold(0.0, f64::max);
        assert!(served as f64 > 3.9 * f64::from(rate), "{profile}: {served}");
        assert!(most <= 1.02 * budget, "{profile}: {most} W");
    }
}

/// What was read from other drives minutes ago is no reason to hold back those that are written to
/// now, beside it or after it.
#[test]
fn drives_that_wait_have_what_others_do_not_need() {
    let jobs = "[[jobs]]\nname = 'reads'\nthreads = 64\nrate = 'max'\n\
                drives = { from = '50%', to = '100%' }\n\
                access = { block = '1 MiB', read = '100%' }\n\
                [[jobs.stages]]\nstart = '16 s'\nrate = '100 IOPS'\n\
                [[jobs]]\nname = 'writes'\nthreads = 64\nrate = '100 IOPS'\n\
                drives = { from = 0, to = '50%' }\naccess = { block = '1 MiB', read = '0%' }\n\
                [[jobs.stages]]\nstart = '8 s'\nrate = 'max'";
    let seen = seen("pass-10", jobs, 300.0, 28);
    let written = |from: usize, to: usize| {
        let sum: u64 = seen[from..to].iter().map(|(_, written, _)| written).sum();
        sum as f64 / (to - from) as f64 * 2.0
    };
    let (beside, after) = (written(26, 32), written(48, 56));
    assert!(beside > 4e9, "beside readers {beside} bytes a second");
    assert!(after > 9e9, "after them {after} bytes a second");
    for (period, (.., watts)) in seen[..56].iter().enumerate() {
        // What was never there before may exceed the budget for a period.
        assert!(*watts <= 1.02 * 300.0 || period == 16, "period {period}: {watts} W");
    }
}
