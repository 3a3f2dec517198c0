//! How many requests the twin simulates per CPU-second, through the whole pipeline: generating,
//! queueing through the stages, drives, policy, meters, histogram.
//!
//! `cargo bench -p ebb-twin --bench throughput`; `-- PROFILE REQUESTS` measures one profile only,
//! with so many requests (for a profiler, or for counting instructions).
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Poisson, job};
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::Watts;
use ebb_trace::Workload;
use ebb_twin::{Profile, Unobserved, run};

/// CPU time of this process in seconds (user and system), from the kernel.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in ticks of 10 ms.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn main() {
    let mut given = std::env::args().skip(1).filter(|given| !given.starts_with('-'));
    let only = given.next();
    let requests = given.next().map_or(6_000_000, |given| given.parse().unwrap());
    println!(
        "{:<14} {:<8} {:>10} {:>14} {:>10}",
        "profile", "policy", "IOPS", "requests/CPU-s", "ns each"
    );
    for (name, policy) in [
        ("asg-1115s", "native"),
        ("asg-1115s", "sspc"),
        ("asg-1115s", "pacman"),
        ("pass-10", "native"),
        ("dorado-6000", "native"),
        ("generic-1u", "native"),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        for gap in [1_000.0, 10_000.0] {
            let profile = Profile::load(name).unwrap();
            let topology = profile.topology();
            let budget = (policy != "native").then_some(Watts(224.0));
            let settings = Settings { ssd_budget: budget, ..Settings::default() };
            let made = registry::make(policy, &topology, &settings).unwrap();
            let source = Poisson::new(requests, gap, 4096, 0.7, profile.drives.count);
            let before = cpu_seconds();
            let workload = Workload::Open(Box::new(source));
            let outcome = run(job(&profile, made, workload, None), &mut Unobserved).unwrap();
            let each = (cpu_seconds() - before) / requests as f64;
            println!(
                "{name:<14} {policy:<8} {:>10.0} {:>12.2} M {:>10.0}",
                outcome.iops(),
                1e-6 / each,
                each * 1e9
            );
        }
    }
}
