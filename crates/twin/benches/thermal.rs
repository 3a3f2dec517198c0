//! What the thermal side costs: the same server with and without it, runs of the two taking
//! turns in one process.
//!
//! `cargo bench -p ebb-twin --bench thermal`; `-- IOPS with|without` runs one of them once (for
//! counting instructions).
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Poisson, job};
use ebb_policy::cpu::Native;
use ebb_policy::units::Nanos;
use ebb_trace::Workload;
use ebb_twin::{Profile, Unobserved, run};

/// CPU time of this process in seconds, from the kernel, in nanoseconds' resolution.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse::<f64>().unwrap() * 1e-9
}

/// `thermal-1u`, and the same server without temperatures and with fans of constant power.
fn servers() -> (Profile, Profile) {
    let text = Profile::shipped_text("thermal-1u").unwrap();
    let plain = text.split("\n[thermal]").next().unwrap();
    let plain = plain.replace("\nsocket = 0", "").replace("\nsocket = 1", "");
    (Profile::parse(text, "with").unwrap(), Profile::parse(&plain, "without").unwrap())
}

/// CPU seconds of one run of so many simulated seconds.
fn measure(profile: &Profile, iops: f64, seconds: u64) -> f64 {
    let poisson = Poisson::new(u64::MAX, 1e9 / iops, 4096, 0.7, 1);
    let end = Some(Nanos::from_secs(seconds));
    let job = job(profile, Box::new(Native), Workload::Open(Box::new(poisson)), end);
    let before = cpu_seconds();
    run(job, &mut Unobserved).unwrap();
    cpu_seconds() - before
}

fn main() {
    let (with, without) = servers();
    let mut given = std::env::args().skip(1).filter(|given| !given.starts_with('-'));
    if let Some(iops) = given.next() {
        let profile = if given.next().as_deref() == Some("without") { &without } else { &with };
        measure(profile, iops.parse().unwrap(), 60);
        return;
    }
    println!("{:>8} {:>10} {:>10} {:>8}", "IOPS", "without", "with", "more");
    for (iops, seconds) in [(100.0, 20_000), (1e3, 4000), (1e4, 600), (1e5, 60)] {
        let mut ratios = Vec::new();
        let (mut least, mut least_with) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..9 {
            let (a, b) = (measure(&without, iops, seconds), measure(&with, iops, seconds));
            ratios.push(b / a);
            (least, least_with) = (least.min(a), least_with.min(b));
        }
        ratios.sort_by(f64::total_cmp);
        let us = |best: f64| format!("{:.1} us", best * 1e6 / (2.0 * seconds as f64));
        let more = 100.0 * (ratios[ratios.len() / 2] - 1.0);
        println!("{iops:>8} {:>10} {:>10} {more:>+7.1}%", us(least), us(least_with));
    }
    println!("CPU time of one control period (0.5 s simulated); least of nine, median of ratios.");
}
