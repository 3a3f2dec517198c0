//! Real traces run end to end: every request is answered, whatever the server and the policy.
//!
//! The data is not part of the project: `EBB_DATA`, or `../shared/data` beside the repository.

use std::path::{Path, PathBuf};

use crate::common::job;
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::{OpenOptions, Source, Workload, open, transform};
use ebb_twin::{Profile, Run, Unobserved, run};

/// A trace of hours is cut to its first minutes.
const CUT: Nanos = Nanos::from_secs(300);

fn data() -> PathBuf {
    std::env::var_os("EBB_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    )
}

/// Every file of requests, in a fixed order.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            // Loads over time, not requests.
            if name != "load_cloudphysics_windows" {
                files(&path, found);
            }
        } else if !name.starts_with("SOURCE") && !name.starts_with("LICENSE") {
            found.push(path);
        }
    }
    found.sort();
}

/// The trace, folded onto the server.
fn folded(path: &Path, profile: &Profile) -> Box<dyn Source> {
    let (devices, capacity) = profile.volumes();
    let trace = open(path, &OpenOptions::default()).unwrap();
    let trace = transform::cut(trace, Nanos::ZERO, CUT).unwrap();
    Box::new(transform::fold(trace, "the trace", devices, capacity).unwrap())
}

/// Requests and bytes of a trace.
fn count(mut source: Box<dyn Source>) -> (u64, u64) {
    let (mut requests, mut bytes, mut batch) = (0, 0, Vec::new());
    loop {
        batch.clear();
        source.fill(&mut batch).unwrap();
        if batch.is_empty() {
            return (requests, bytes);
        }
        requests += batch.len() as u64;
        bytes += batch.iter().map(|request| u64::from(request.data_bytes())).sum::<u64>();
    }
}

#[test]
fn every_real_trace_runs_on_both_servers_under_every_kind_of_policy() {
    let traces = data().join("traces");
    if !traces.is_dir() {
        println!("skipped: no real traces at {}; set EBB_DATA", traces.display());
        return;
    }
    let mut found = Vec::new();
    files(&traces, &mut found);
    assert!(found.len() >= 12, "{found:?}");
    for path in &found {
        for (server, budget) in [("asg-1115s", Some(Watts(224.0))), ("dorado-6000", None)] {
            let profile = Profile::load(server).unwrap();
            let expected = count(folded(path, &profile));
            assert!(expected.0 > 0, "{} is empty", path.display());
            for policy in ["native", "sspc", "pacman", "pacer"] {
                let settings = Settings { ssd_budget: budget, ..Settings::default() };
                let policy = make(policy, &profile.topology(), &settings).unwrap();
                let name = format!("{} on {server} under {}", path.display(), policy.name());
                let workload = Workload::Open(folded(path, &profile));
                let job = Run { ssd_budget: budget, ..job(&profile, policy, workload, None) };
                let outcome = run(job, &mut Unobserved).unwrap();
                assert_eq!((outcome.requests, outcome.bytes), expected, "{name}");
                assert_eq!(outcome.latency.len(), expected.0, "{name}");
                let watts = outcome.mean_power().0;
                assert!((100.0..2000.0).contains(&watts), "{name}: {watts} W");
                println!(
                    "{name}: {} requests, {:.0} s, {watts:.1} W, {:.0} us",
                    outcome.requests,
                    outcome.span.seconds(),
                    outcome.mean_latency() / 1e3
                );
            }
        }
    }
}
