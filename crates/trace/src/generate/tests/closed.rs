//! vdbench and fio.

use std::collections::HashMap;

use ebb_policy::units::Bytes;

use super::*;
use crate::generate::{Blocks, HotSpec, Overrides, Rate, Share, StageSpec};

fn sent(name: &str, most: usize) -> Vec<Request> {
    let spec = builtin(name);
    let mut clients = closed(&spec, &SERVER);
    run(&mut *clients, Nanos::from_micros(100), most).into_iter().map(|(_, r)| r).collect()
}

#[test]
fn vdbench_patterns_are_those_of_pacer_table_2() {
    for (name, bytes, reads) in [
        ("rand-r", 8 << 10, 1.0),
        ("rand-w", 8 << 10, 0.0),
        ("seq-r", 128 << 10, 1.0),
        ("seq-w", 128 << 10, 0.0),
        ("rand-rw", 8 << 10, 0.7),
    ] {
        let requests = sent(name, 100_000);
        assert!(requests.iter().all(|r| r.bytes == bytes && r.offset % u64::from(bytes) == 0));
        assert!((share_of_reads(&requests) - reads).abs() < 0.006, "{name}");
        assert_eq!(closed(&builtin(name), &SERVER).slots(), 900);
    }
}

#[test]
fn random_requests_spread_evenly_over_drives_and_offsets() {
    let requests = sent("rand-rw", 160_000);
    let mut drives = [0_u32; 16];
    let mut eighths = [0_u32; 8];
    for request in &requests {
        drives[usize::from(request.device)] += 1;
        eighths[(request.offset / (SERVER.capacity_bytes / 8)) as usize] += 1;
    }
    // Ten thousand each within five standard deviations.
    assert!(drives.iter().all(|&count| (9_500..10_500).contains(&count)), "{drives:?}");
    assert!(eighths.iter().all(|&count| (19_300..20_700).contains(&count)), "{eighths:?}");
}

#[test]
fn sequential_threads_follow_on_and_never_meet() {
    let mut ends: HashMap<u32, (u16, u64)> = HashMap::new();
    let mut starts: HashMap<(u16, u64), u32> = HashMap::new();
    for request in sent("seq-r", 50_000) {
        if let Some(end) = ends.get(&request.stream) {
            assert_eq!(*end, (request.device, request.offset));
        }
        assert_eq!(starts.insert((request.device, request.offset), request.stream), None);
        let end = request.offset + u64::from(request.bytes);
        ends.insert(request.stream, (request.device, end));
    }
    assert_eq!(ends.len(), 900);
}

#[test]
fn a_rate_is_kept_with_exponential_gaps_while_threads_are_free() {
    let spec = builtin("rand-rw").with_rate(50_000.0);
    let mut clients = closed(&spec, &SERVER);
    let sent = run(&mut *clients, Nanos::from_micros(300), 500_000);
    let mut times: Vec<u64> = sent.iter().map(|(_, request)| request.at.0).collect();
    times.sort_unstable();
    let seconds = times[times.len() - 1] as f64 * 1e-9;
    let rate = times.len() as f64 / seconds;
    assert!((rate / 50_000.0 - 1.0).abs() < 0.01, "{rate}");
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // The standard deviation of an exponential distribution is its mean.
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.02);
}

#[test]
fn a_rate_below_the_maximum_gives_the_same_arrivals_whatever_the_server_does() {
    let spec = builtin("rand-rw").with_rate(50_000.0);
    let arrivals = |latency| {
        let mut clients = closed(&spec, &SERVER);
        let sent = run(&mut *clients, latency, 100_000);
        let mut requests: Vec<Request> = sent.into_iter().map(|(_, r)| r).collect();
        requests.sort_by_key(|request| request.at);
        requests.truncate(90_000);
        requests
    };
    assert_eq!(arrivals(Nanos::from_micros(100)), arrivals(Nanos::from_micros(2_000)));
}

#[test]
fn a_rate_of_less_than_a_request_ends_every_slot() {
    // 18 a 584 years, which are the end of time; one with phases is not asked about those.
    for (name, end, most) in [("rand-rw", None, 60), ("mail", Some(Nanos::from_secs(1)), 0)] {
        let spec = WorkloadSpec { duration: end, ..builtin(name).with_rate(1e-9) };
        let sent = run(&mut *closed(&spec, &SERVER), Nanos::from_micros(100), 1_000);
        assert!(sent.len() <= most, "{name}: {}", sent.len());
    }
}

#[test]
fn rates_out_of_range_are_refused_wherever_they_come_from() {
    for rate in [0.0, 1e-300, 1e300, f64::NAN] {
        for name in ["rand-rw", "poisson"] {
            let error = builtin(name).with_rate(rate).build(&SERVER).err().unwrap().to_string();
            assert!(error.contains("rate: ") && error.contains("from 1e-9 to 1e9"), "{error}");
        }
    }
}

#[test]
fn an_overloaded_rate_is_what_the_threads_can_do() {
    let spec = builtin("rand-rw").with_rate(1e6);
    let mut clients = closed(&spec, &SERVER);
    let sent = run(&mut *clients, Nanos::from_millis(9), 100_000);
    let last = sent.iter().map(|(_, request)| request.at.0).max().unwrap();
    let rate = sent.len() as f64 / (last as f64 * 1e-9);
    // 900 threads of 9 ms each.
    assert!((rate / 100_000.0 - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn the_burst_comes_at_its_time_with_large_blocks_and_all_threads() {
    let spec = builtin("burst").with_maximum(600_000.0);
    let mut clients = closed(&spec, &SERVER);
    let sent = run(&mut *clients, Nanos::from_micros(500), 500_000);
    let burst = 20_000_000_000;
    let (before, after): (Vec<_>, Vec<_>) =
        sent.into_iter().map(|(_, r)| r).partition(|request| request.at.0 < burst);
    let rate = before.len() as f64 / 20.0;
    assert!((rate / 18_000.0 - 1.0).abs() < 0.02, "{rate}");
    assert!(before.iter().all(|request| request.bytes == 8 << 10));
    assert!(after.iter().all(|request| request.bytes == 32 << 10));
    assert!(after.iter().filter(|request| request.at.0 < burst + 500_000).count() >= 890);
}

#[test]
fn fio_servers_are_those_of_pacman_table_2() {
    let spec = builtin("fio-servers");
    let mut clients = closed(&spec, &SERVER);
    // (16 + 5 + 5 + 1) jobs on four drives each, 32 outstanding.
    assert_eq!(clients.slots(), 27 * 4 * 32);
    let sent = run(&mut *clients, Nanos::from_millis(10), 4_000_000);
    for (drives, sizes, reads, random) in [
        (0..4_u16, &[4_u32][..], 0.67, 1.0),
        (4..8, &[4, 16][..], 0.2, 0.8),
        (8..12, &[64][..], 0.98, 0.0),
        (12..16, &[4, 8, 16][..], 0.95, 0.75),
    ] {
        let of: Vec<&Request> =
            sent.iter().map(|(_, r)| r).filter(|r| drives.contains(&r.device)).collect();
        let all = of.len() as f64;
        assert!((share_of_reads(of.iter().copied()) - reads).abs() < 0.01);
        for size in sizes {
            let share = of.iter().filter(|r| r.bytes == size << 10).count() as f64 / all;
            assert!((share - 1.0 / sizes.len() as f64).abs() < 0.01, "{size} KiB: {share}");
        }
        let mut ends = HashMap::new();
        let mut followed = 0;
        for request in &of {
            let end = request.offset + u64::from(request.bytes);
            let before = ends.insert((request.stream, request.op), end);
            followed += usize::from(before == Some(request.offset));
        }
        let share = 1.0 - followed as f64 / all;
        assert!((share - random).abs() < 0.01, "{drives:?}: {share} random");
    }
}

#[test]
fn fio_servers_rest_and_virtual_desktops_vary_their_jobs() {
    let spec = builtin("vdi").with(&Overrides { depth: Some(1), ..Overrides::default() });
    let spec = spec.unwrap();
    let context = BuildContext { devices: 1, ..SERVER };
    let mut clients = closed(&spec, &context);
    let sent = run(&mut *clients, Nanos::from_millis(10), 500_000);
    let mut jobs_in_second: HashMap<u64, Vec<bool>> = HashMap::new();
    let last = sent.iter().map(|(_, request)| request.at.0).max().unwrap() / 1_000_000_000;
    for (slot, request) in &sent {
        let jobs = jobs_in_second.entry(request.at.0 / 1_000_000_000).or_insert(vec![false; 5]);
        jobs[*slot as usize] = true;
    }
    let count = |jobs: usize| {
        jobs_in_second.values().filter(move |active| active.iter().filter(|a| **a).count() == jobs)
    };
    let idle = 1.0 - jobs_in_second.len() as f64 / last as f64;
    // A quarter of the time, less what seconds on the edges hide.
    assert!((0.1..0.3).contains(&idle), "{idle}");
    assert!((1..=5).all(|jobs| count(jobs).count() > 20));
}

#[test]
fn pressure_needs_a_maximum_and_saturating_has_none() {
    let spec = builtin("rand-rw");
    let ten = Overrides { rate: Some(Rate::Pressure(0.1)), ..Overrides::default() };
    let spec = spec.with(&ten).unwrap();
    assert!(spec.needs_maximum());
    let error = spec.build(&SERVER).err().unwrap().to_string();
    assert!(error.contains("rand-rw.rate") && error.contains("10%"), "{error}");
    assert!(!spec.clone().saturating().needs_maximum());
    let spec = spec.with_maximum(600_000.0);
    assert_eq!(spec.jobs[0].rate, Rate::Iops(60_000.0));
    assert!(spec.build(&SERVER).is_ok());
}

#[test]
fn a_rate_rests_in_idle_phases_and_is_kept_in_busy_ones() {
    let mut spec = builtin("mail").with_rate(1_000.0);
    spec.jobs[0].phases.as_mut().unwrap().spread = Share(0.0);
    let mut clients = closed(&spec, &SERVER);
    let sent = run(&mut *clients, Nanos::from_micros(100), 300_000);
    let at: Vec<f64> = sent.iter().map(|(_, request)| request.at.seconds()).collect();
    let rests: Vec<_> = at.windows(2).filter(|pair| pair[1] - pair[0] > 5.0).collect();
    // 30 s busy, 10 s idle, from anywhere in the cycle.
    assert!(rests.iter().all(|rest| (9.9..10.2).contains(&(rest[1] - rest[0]))), "{rests:?}");
    assert!(rests.windows(2).all(|pair| (pair[1][0] - pair[0][0] - 40.0).abs() < 0.2), "{rests:?}");
    let (from, to) = (rests[0][0], rests[rests.len() - 1][0]);
    let rate = at.iter().filter(|at| (from..to).contains(*at)).count() as f64 / (to - from);
    assert!((rate - 750.0).abs() < 20.0, "{rate}");
}

#[test]
fn hot_regions_and_zipf_laws_concentrate_requests() {
    let mut spec = builtin("rand-rw");
    spec.jobs[0].access.hot = Some(HotSpec { accesses: Share(0.8), space: Share(0.2) });
    let sent = run(&mut *closed(&spec, &SERVER), Nanos::from_micros(100), 100_000);
    let hot = sent.iter().filter(|(_, r)| r.offset < SERVER.capacity_bytes / 5).count();
    assert!((79_300..80_700).contains(&hot), "{hot}");

    spec.jobs[0].access.hot = None;
    spec.jobs[0].access.zipf = Some(1.0);
    let context = BuildContext { devices: 1, capacity_bytes: 8_192_000, seed: 7 };
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for (_, request) in run(&mut *closed(&spec, &context), Nanos::from_micros(100), 100_000) {
        *counts.entry(request.offset).or_default() += 1;
    }
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // A thousand blocks: the first has 1 / H(1000) = 13.4% of the requests, then half of that.
    assert!((12_900..13_900).contains(&counts[0]), "{}", counts[0]);
    assert!((6_300..7_300).contains(&counts[1]), "{}", counts[1]);
}

#[test]
fn later_stages_must_fit_too() {
    let mut spec = builtin("seq-r");
    let stage = StageSpec { start: Nanos(1), rate: Rate::Max, block: None };
    spec.jobs[0].stages =
        vec![StageSpec { block: Some(Blocks(vec![Bytes(64 << 20)])), ..stage.clone() }];
    let small = BuildContext { devices: 1, capacity_bytes: 10_000_000_000, seed: 1 };
    assert!(spec.build(&small).err().unwrap().to_string().contains("900 sequential streams"));
    spec.jobs[0].stages = vec![stage.clone(), stage];
    assert!(spec.build(&small).err().unwrap().to_string().contains("one after the other"));
}
