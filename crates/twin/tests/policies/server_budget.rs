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
    late(profile, Nanos::ZERO, jobs, budget, seconds)
}

/// The same with a meter that is so late.
fn late(name: &str, lag: Nanos, jobs: &str, budget: f64, seconds: u64) -> Vec<(u64, u64, f64)> {
    let mut profile = Profile::load(name).unwrap();
    profile.board.meter_lag = lag;
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

/// Requests of which the budget serves just as many go through evenly: no setting holds them back
/// in one turn and makes up for it in the next.
#[test]
fn what_just_fits_goes_through_evenly() {
    let jobs = "[[arrivals]]\nname = 'x'\nrate = '80000 IOPS'\n\
                access = { block = '64 KiB', read = '50%' }";
    let seen = seen("pass-10", jobs, 265.0, 20);
    for (requests, _, watts) in &seen[24..39] {
        assert!((requests.abs_diff(40_000)) < 1200, "{requests} requests in a turn");
        assert!(*watts <= 265.0, "{watts} W");
    }
}

/// Where limits hold some drives back, the others keep room to grow: else each holds the clients of
/// all of them back in turn.
#[test]
fn drives_that_all_need_as_much_do_not_take_turns() {
    let jobs = "[[jobs]]\nname = 'x'\nthreads = 8\ndepth = 8\n\
                access = { block = '64 KiB', read = '100%', zipf = 0.99 }";
    let served = |budget: f64, seconds: u64| {
        let seen = seen("pass-10", jobs, budget, seconds);
        let end = seen[2 * seconds as usize - 4..2 * seconds as usize].iter();
        end.map(|(requests, ..)| *requests as f64).sum::<f64>()
    };
    let native = served(2000.0, 3);
    for (budget, least) in [(320.0, 0.98), (300.0, 0.85)] {
        let served = served(budget, 10);
        assert!(served > least * native, "{budget} W: {served} of {native}");
    }
}

/// A budget a little above what a load needs at full speed leaves it all cores and no limit.
#[test]
fn a_budget_that_just_does_not_bind_changes_nothing() {
    let jobs = "[[arrivals]]\nname = 'x'\nrate = '50000 IOPS'\n\
                access = { block = '4 KiB', read = '0%' }";
    let watts = |budget: f64| {
        let seen = seen("pass-10", jobs, budget, 13);
        seen[24..26].iter().map(|(.., watts)| *watts).sum::<f64>() / 2.0
    };
    let native = watts(2000.0);
    let kept = watts(1.05 * native);
    assert!((kept / native - 1.0).abs() < 0.002, "{kept} W, {native} W without");
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

/// Cores that sleep without work draw little of what they may, parity multiplies what drives move,
/// and clients that wait for answers send less to slow cores: none of them makes limits come and go
/// where the budget is a little more than the load needs.
#[test]
fn large_writes_do_not_ring_where_cores_sleep() {
    let jobs = "[[jobs]]\nname = 'w'\nthreads = 32\n\
                access = { block = '128 KiB', read = '0%', random = '0%' }";
    let settled = |seen: &[(u64, u64, f64)], from: usize| {
        let end = &seen[from..from + 6];
        let served: u64 = end.iter().map(|(requests, ..)| requests).sum();
        let most = end.iter().map(|(.., watts)| *watts).fold(0.0, f64::max);
        let least = end.iter().map(|(.., watts)| *watts).fold(f64::INFINITY, f64::min);
        (served as f64, least, most)
    };
    let (native, ..) = settled(&seen("generic-1u", jobs, 2000.0, 4), 2);
    for (budget, lag, seconds) in [(400.0, 300, 21), (430.0, 3000, 27)] {
        let seen = late("generic-1u", Nanos::from_millis(lag), jobs, budget, seconds);
        let (served, least, most) = settled(&seen, 2 * seconds as usize - 6);
        let case = format!("{budget} W, lag {lag} ms: {least} to {most} W");
        assert!(served > 0.98 * native, "{case}, {served} of {native} requests");
        assert!(most <= 1.02 * budget && most - least < 0.03 * budget, "{case}");
    }
}

/// The cores of a small server draw less than a watt.
#[test]
fn a_server_of_a_few_watts_keeps_its_budget() {
    let jobs = "[[jobs]]\nname = 'w'\nthreads = 32\n\
                access = { block = '128 KiB', read = '0%', random = '0%' }";
    let seen = seen("cm5-nvme", jobs, 6.0, 21);
    let most = seen[20..40].iter().map(|(.., watts)| *watts).fold(0.0, f64::max);
    assert!(most <= 1.02 * 6.0, "{most} W");
}

/// A run ends within a period: what it draws in the rest of it is no mean of a period.
#[test]
fn the_rest_of_a_period_is_no_peak() {
    let jobs = "[[jobs]]\nname = 'w'\nthreads = 32\n\
                access = { block = '128 KiB', read = '0%', random = '0%' }";
    let profile = Profile::load("generic-1u").unwrap();
    let spec: WorkloadSpec = toml::from_str(&format!("name = 'x'\n{jobs}")).unwrap();
    let (devices, capacity) = profile.volumes();
    let context = BuildContext { devices, capacity_bytes: capacity.0, seed: 1 };
    let load = spec.build(&context).unwrap();
    let of = job(&profile, Box::new(Native), load, Some(Nanos::from_millis(2000)));
    let mut seen = Seen::default();
    let outcome = run(of, &mut seen).unwrap();
    let most = seen.0[..4].iter().map(|(.., watts)| *watts).fold(0.0, f64::max);
    assert!(seen.0.len() == 5 && (outcome.peak.0 - most).abs() < 0.01 * most, "{:?}", seen.0);
    assert!(outcome.peak.0 >= (outcome.energy.total() / outcome.span).0);
}
