//! How many requests the twin simulates per CPU-second, through the whole pipeline: generating,
//! queueing through the stages, drives, policy, meters, histogram; and its speed of light, a bare
//! event loop with the same random numbers and histogram, so that the machine's noise divides out.
//!
//! `cargo bench -p ebb-twin --bench throughput`; `-- PROFILE REQUESTS` measures one profile only,
//! with so many requests (for a profiler, or for counting instructions).
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use common::{Clients, Poisson, job};
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::{Closed, Op, Request, Source, Workload};
use ebb_twin::{Profile, Unobserved, run};
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

/// CPU time of this process in seconds (user and system), from the kernel.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Fields 14 and 15 of proc(5), in ticks of 10 ms.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Random reads, 512 outstanding per drive, until so many were sent.
struct Deep {
    clients: Clients,
    left: u64,
}

impl Closed for Deep {
    fn slots(&self) -> u32 {
        self.clients.slots()
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        self.left = self.left.checked_sub(1)?;
        self.clients.next(slot, now)
    }
}

impl Deep {
    fn new(requests: u64, devices: u16) -> Self {
        let (slots, random) = (u32::from(devices) * 512, Pcg64Mcg::seed_from_u64(42));
        let clients = Clients { slots, bytes: 4096, op: Op::Read, devices, random };
        Self { clients, left: requests }
    }
}

/// When an event comes, when its request came, whether the drive is done with it, and which drive.
type Event = Reverse<(u64, u64, bool, u16)>;

/// CPU seconds of a request of the bare loop: the same requests and draws of service times, two
/// events each, half-busy drives that serve first come, first served, one histogram. No cores, no
/// energy, no policy.
fn light(gap: f64, requests: u64, drives: u16) -> f64 {
    let before = cpu_seconds();
    let mut source = Poisson::new(requests, gap, 4096, 0.7, drives);
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let (mut free, mean) = (vec![0_u64; usize::from(drives)], gap * f64::from(drives) / 2.0);
    let mut events = BinaryHeap::new();
    let mut latency = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 40, 3).unwrap();
    let mut batch = Vec::new();
    let mut finish = |events: &mut BinaryHeap<Event>, now: u64| {
        while let Some(Reverse((at, began, worked, drive))) = events.peek().copied() {
            if at > now {
                return;
            }
            events.pop();
            if worked {
                latency.saturating_record(at - began);
                continue;
            }
            let service: f64 = Exp1.sample(&mut random);
            let free = &mut free[usize::from(drive)];
            *free = at.max(*free) + (service * mean) as u64;
            events.push(Reverse((*free, began, true, drive)));
        }
    };
    while {
        source.fill(&mut batch).unwrap();
        !batch.is_empty()
    } {
        for request in batch.drain(..) {
            let now = request.at.0;
            finish(&mut events, now);
            events.push(Reverse((now + 10_000, now, false, request.device)));
        }
    }
    finish(&mut events, u64::MAX);
    assert_eq!(latency.len(), requests);
    (cpu_seconds() - before) / requests as f64
}

/// One row: Poisson arrivals with a mean gap in nanoseconds, or deep queues without one.
fn measure(name: &str, policy: &str, gap: Option<f64>, requests: u64) {
    let profile = Profile::load(name).unwrap();
    let drives = profile.drives.count;
    let budget = (policy != "native").then_some(Watts(224.0));
    let settings = Settings { ssd_budget: budget, ..Settings::default() };
    let made = registry::make(policy, &profile.topology(), &settings).unwrap();
    let workload = match gap {
        Some(gap) => Workload::Open(Box::new(Poisson::new(requests, gap, 4096, 0.7, drives))),
        None => Workload::Closed(Box::new(Deep::new(requests, drives))),
    };
    let before = cpu_seconds();
    let outcome = run(job(&profile, made, workload, None), &mut Unobserved).unwrap();
    let each = (cpu_seconds() - before) / requests as f64;
    let load = if gap.is_some() { "Poisson" } else { "512 deep" };
    let (iops, million, ns) = (outcome.iops(), 1e-6 / each, each * 1e9);
    let times =
        gap.map_or(String::new(), |gap| format!("{:.1}", each / light(gap, requests, drives)));
    println!("{name:<12} {policy:<7} {load:<9} {iops:>9.0} {million:>12.2} M {ns:>8.0} {times:>8}");
}

fn main() {
    let mut given = std::env::args().skip(1).filter(|given| !given.starts_with('-'));
    let only = given.next();
    let requests = given.next().map_or(6_000_000, |given| given.parse().unwrap());
    let (profile, policy, load) = ("profile", "policy", "load");
    println!(
        "{profile:<12} {policy:<7} {load:<9} {:>9} requests/CPU-s {:>8} {:>8}",
        "IOPS", "ns each", "of light"
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
        for gap in [Some(1_000.0), Some(10_000.0), None] {
            measure(name, policy, gap, requests);
        }
    }
}
