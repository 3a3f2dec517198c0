//! Memory stays flat whatever a workload's length. One test in a program of its own: the peak is
//! the whole process's.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Poisson, simulate};
use ebb_trace::Workload;
use ebb_twin::{Outcome, Profile};

/// Peak resident memory of this process in MB; `None` where the system does not tell.
fn peak_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

fn open_loop(server: &str, requests: u64, gap_ns: f64) -> Outcome {
    let profile = Profile::load(server).unwrap();
    let source = Poisson::new(requests, gap_ns, 4096, 0.7, profile.volumes().0);
    let outcome = simulate(&profile, Workload::Open(Box::new(source)), None);
    assert_eq!(outcome.requests, requests);
    outcome
}

#[test]
fn long_and_overloaded_runs_stay_below_300_mb() {
    let Some(before) = peak_megabytes() else {
        println!("skipped: this system does not tell a process's peak memory");
        return;
    };
    let below = |what: &str| {
        let peak = peak_megabytes().unwrap();
        println!("{what}: {peak:.0} MB, {before:.0} MB at the start");
        assert!(peak < 300.0, "{what}: {peak} MB");
    };
    open_loop("asg-1115s", 2_000_000, 1_000.0);
    below("two million requests at 1 M IOPS");
    // Ten times what the server can do: more than a million want to wait at once.
    let late = open_loop("dorado-6000", 1_500_000, 170.0);
    assert!(late.mean_latency() > 0.1e9, "no overload: {} ns", late.mean_latency());
    below("overload");
}
