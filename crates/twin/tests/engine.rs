//! What the engine promises: requests and energy are conserved, queues behave as queueing
//! theory says, the same run gives the same result.

use crate::common::{Clients, Fixed, Poisson, job, server, simulate, simulate_with};
use ebb_policy::units::{Joules, Nanos};
use ebb_policy::{Policy, Request, Signals};
use ebb_trace::{Op, Request as IoRequest, Source, TraceError, Workload};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, TwinError, Unobserved, run};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

fn poisson(left: u64, gap_ns: f64) -> Workload {
    Workload::Open(Box::new(Poisson::new(left, gap_ns, 4096, 1.0, 4)))
}

fn clients(slots: u32) -> Workload {
    let random = Pcg64Mcg::seed_from_u64(1);
    Workload::Closed(Box::new(Clients { slots, bytes: 4096, op: Op::Read, devices: 4, random }))
}

/// Mean time at the only core, waiting included: what remains of the latency over that of a server
/// whose stage costs nothing.
fn core_time(cycles: u32, variation: f64, gap_ns: f64, seed: u64) -> f64 {
    let mean = |cycles| {
        let mut profile = server(1, cycles);
        profile.stage[0].variation = variation;
        let native = Box::new(ebb_policy::cpu::Native);
        let run = Run { seed, ..job(&profile, native, poisson(400_000, gap_ns), None) };
        ebb_twin::run(run, &mut Unobserved).unwrap().mean_latency()
    };
    mean(cycles) - mean(0)
}

#[test]
fn one_core_waits_as_pollaczek_and_khinchine_say() {
    // M/G/1: mean time in system = S + rho S (1 + cv²) / (2 (1 - rho)).
    let service = 10_000.0;
    let error = |rho: f64, cv: f64, seed| {
        let theory = service * (1.0 + rho * (1.0 + cv * cv) / (2.0 * (1.0 - rho)));
        core_time(10_000, cv, service / rho, seed) / theory - 1.0
    };
    for rho in [0.3, 0.6, 0.8] {
        assert!(error(rho, 0.0, 7).abs() < 0.03, "rho {rho}: {}", error(rho, 0.0, 7));
    }
    // The variation is that of the profile under every seed.
    for (cv, seed) in (1..=6).flat_map(|seed| [(1.0, seed), (2.0, seed)]) {
        assert!(error(0.6, cv, seed).abs() < 0.05, "cv {cv}, {seed}: {}", error(0.6, cv, seed));
    }
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    for slots in [1, 8, 64] {
        let outcome = simulate(&server(2, 5_000), clients(slots), Some(Nanos::from_secs(1)));
        let population = outcome.iops() * outcome.mean_latency() * 1e-9;
        assert!((population / f64::from(slots) - 1.0).abs() < 0.01, "{slots}: {population}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_order_moves_the_tail_only_and_starves_nobody(order in 0.1..0.9, slots in 1u32..80) {
        let end = Some(Nanos::from_millis(400));
        let mut profile = server(1, 10_000);
        let ordered = simulate(&profile, clients(slots), end);
        profile.cpu.random_order = order;
        let random = simulate(&profile, clients(slots), end);
        let close = |got: f64, of: f64| (got / of - 1.0).abs() < 0.01;
        prop_assert!(close(random.requests as f64, ordered.requests as f64));
        prop_assert!(close(random.mean_latency(), ordered.mean_latency()));
        let p99 = |outcome: &Outcome| outcome.latency.value_at_quantile(0.99);
        if slots <= 2 {
            prop_assert_eq!(random.latency.max(), ordered.latency.max(), "no choice, no change");
        } else if slots > 20 {
            prop_assert!(p99(&random) > p99(&ordered));
        }
        let turn = f64::from(slots) / (1.0 - order) * 10_000.0;
        prop_assert!((random.latency.max() as f64) < 2.0 * turn + 1e6);
    }
}

#[test]
fn half_the_frequency_doubles_the_time_on_a_core() {
    let profile = server(4, 20_000);
    let frequencies = profile.cpu.frequencies.clone();
    let latency = |frequency| {
        let policy = Fixed { active: 4, frequency, frequencies: frequencies.clone() };
        let workload = poisson(50_000, 100_000.0);
        simulate_with(&profile, Box::new(policy), workload, None, &mut Unobserved).mean_latency()
    };
    let added = latency(0) - latency(1);
    assert!((added / 20_000.0 - 1.0).abs() < 0.05, "{added} ns for 20 us");
}

#[test]
fn fewer_cores_draw_less_and_carry_less() {
    let profile = server(8, 20_000);
    let frequencies = profile.cpu.frequencies.clone();
    let with = |active| {
        let policy = Fixed { active, frequency: 1, frequencies: frequencies.clone() };
        // The guard lets cores be parked over a few periods only.
        let (end, warmup) = (Some(Nanos::from_secs(4)), Nanos::from_secs(2));
        let job = Run { warmup, ..job(&profile, Box::new(policy), clients(64), end) };
        run(job, &mut Unobserved).unwrap()
    };
    let (two, eight) = (with(2), with(8));
    // 20 us of work per request: 50 k IOPS per core.
    assert!((two.iops() / 100_000.0 - 1.0).abs() < 0.02, "{}", two.iops());
    assert!(eight.iops() > 3.0 * two.iops());
    assert!(two.energy.cpu < eight.energy.cpu);
}

/// Parks half of eight cores and takes them back, by turns.
struct Breathing(bool);

impl Policy for Breathing {
    fn name(&self) -> &'static str {
        "breathing"
    }
    fn step(&mut self, _: &Signals, request: &mut Request) {
        self.0 = !self.0;
        request.active_cores.ask(0, if self.0 { 4 } else { 8 }, "test:breathing");
    }
}

#[test]
fn no_request_waits_for_a_core_to_wake_while_others_are_there() {
    let profile = server(8, 10_000);
    let workload = poisson(40_000, 100_000.0);
    let policy = Box::new(Breathing(false));
    let outcome = simulate_with(&profile, policy, workload, None, &mut Unobserved);
    let worst = Nanos(outcome.latency.max());
    assert!(worst < profile.cpu.unpark_latency, "{worst}");
    assert!(outcome.cores.parked > Nanos::from_secs(6), "{:?}", outcome.cores);
}

/// Two of eight cores for a load of three until `back`, then all.
struct Late {
    back: Nanos,
}

impl Policy for Late {
    fn name(&self) -> &'static str {
        "late"
    }
    fn step(&mut self, signals: &Signals, request: &mut Request) {
        request.active_cores.ask(0, if signals.now < self.back { 2 } else { 8 }, "test:late");
    }
}

/// Requests in flight at the end of each period.
#[derive(Default)]
struct InFlight(Vec<(Nanos, u64)>);

impl Observer for InFlight {
    fn sample(&mut self, sample: &Sample<'_>) {
        let signals = sample.cycled.signals;
        self.0.push((signals.now, signals.io.in_flight.unwrap()));
    }
}

#[test]
fn cores_that_come_back_take_over_what_waits_for_the_others() {
    let profile = server(8, 20_000);
    let back = Nanos::from_secs(3);
    let mut seen = InFlight::default();
    let policy = Box::new(Late { back });
    simulate_with(&profile, policy, poisson(600_000, 20_000.0 / 3.0), None, &mut seen);
    let at = |time| seen.0.iter().find(|(now, _)| *now == time).unwrap().1;
    // Two seconds with one core too few, 20 us a request: 100,000 and more wait. Eight cores need
    // 0.4 s for them beside the load, two would need a second.
    assert!(at(back) > 90_000, "{}", at(back));
    let after = at(back + Nanos::from_millis(500));
    assert!(after < 100, "{after}");
}

#[test]
fn drives_enter_no_idle_state_that_they_wake_from_too_late() {
    let idle = |found: Option<u64>| {
        let mut profile = Profile::load("dorado-6000").unwrap();
        profile.background = None;
        profile.drives.idle_wake = found.map(Nanos::from_micros);
        let end = Some(Nanos::from_secs(10));
        let outcome = simulate(&profile, poisson(0, 1.0), end);
        outcome.energy.ssd.0 / 10.0 / f64::from(profile.drives.count)
    };
    for (found, watts) in [(Some(0), 8.5), (Some(1), 6.8), (Some(199), 6.8), (None, 5.9)] {
        assert!((idle(found) - watts).abs() < 0.01, "{found:?}: {} W", idle(found));
    }
}

#[test]
fn an_idle_server_draws_the_sum_of_its_idle_powers() {
    let outcome = simulate(&server(4, 1000), poisson(0, 1.0), Some(Nanos::from_secs(10)));
    let energy = outcome.energy;
    // 4 cores polling at 1 W + 0.5 x 2 W, 10 W uncore.
    assert!((energy.cpu.0 - 10.0 * (4.0 * 2.0 + 10.0)).abs() < 1e-6, "{:?}", energy.cpu);
    assert_eq!(energy.memory, Joules(50.0));
    assert_eq!(energy.fans, Joules(70.0));
    let delivered: f64 = energy.total().0 - energy.psu_loss.0;
    assert!((energy.total().0 * 0.8 - delivered).abs() < 1e-6);
    assert_eq!(outcome.span, Nanos::from_secs(10));
    assert_eq!(outcome.requests, 0);
}

/// Adds up what the samples say.
#[derive(Default)]
struct Sums {
    energy: [f64; 7],
    completed: u64,
    arrived: u64,
    span: u64,
}

impl Observer for Sums {
    fn sample(&mut self, sample: &Sample<'_>) {
        for (sum, (_, joules)) in self.energy.iter_mut().zip(sample.energy.components()) {
            *sum += joules.0;
        }
        self.completed += sample.cycled.signals.io.completed.unwrap();
        self.arrived += sample.cycled.signals.io.arrived.unwrap();
        self.span += sample.length.0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every request is answered once, and energy adds up over components and periods, on the
    /// first ten shipped profiles, whatever is sent.
    #[test]
    fn requests_and_energy_are_conserved(
        which in 0usize..10,
        requests in 0u64..20_000,
        gap in 500.0f64..1e6,
        kib in 1u32..300,
        reads in 0.0f64..=1.0,
    ) {
        let name = Profile::names().nth(which).unwrap();
        let profile = Profile::load(name).unwrap();
        // Disks take a hundred times as long for each.
        let requests = if profile.drive().is_some() { requests } else { requests / 20 };
        let source = Poisson::new(requests, gap, kib * 1024, reads, profile.drives.count);
        let mut sums = Sums::default();
        let native = Box::new(ebb_policy::cpu::Native);
        let workload = Workload::Open(Box::new(source));
        let outcome = simulate_with(&profile, native, workload, None, &mut sums);
        prop_assert_eq!(outcome.requests, requests);
        prop_assert_eq!(sums.arrived, requests);
        prop_assert_eq!(sums.completed, requests);
        prop_assert_eq!(outcome.latency.len(), requests);
        prop_assert_eq!(outcome.bytes, requests * u64::from(kib) * 1024);
        prop_assert_eq!(sums.span, outcome.span.0);
        let parts = outcome.energy.components();
        for (sum, (name, joules)) in sums.energy.iter().zip(parts) {
            prop_assert!((sum - joules.0).abs() <= 1e-9 * joules.0.abs() + 1e-9, "{}", name);
            prop_assert!(joules.0 >= 0.0, "{} is negative", name);
        }
        let total: f64 = parts.iter().map(|(_, joules)| joules.0).sum();
        prop_assert!((total - outcome.energy.total().0).abs() <= 1e-9 * total);
        let cores: u64 = profile.topology().groups.iter().map(|group| u64::from(group.cores)).sum();
        let time = outcome.cores;
        let core_time = time.busy.0 + time.polling.0 + time.idle.0 + time.parked.0;
        prop_assert_eq!(core_time, cores * outcome.span.0);
    }
}

#[test]
fn the_same_run_gives_the_same_result_and_another_seed_another() {
    let profile = Profile::load("dorado-6000").unwrap();
    let with = |seed| {
        let workload = Workload::Open(Box::new(Poisson::new(30_000, 10_000.0, 8192, 0.7, 1)));
        let native = Box::new(ebb_policy::cpu::Native);
        let job = Run { seed, ..job(&profile, native, workload, None) };
        let outcome = run(job, &mut Unobserved).unwrap();
        (outcome.energy, outcome.latency_sum, outcome.span)
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

#[test]
fn warm_up_is_simulated_but_not_counted() {
    let profile = server(4, 1000);
    let warm = |warmup| {
        let native = Box::new(ebb_policy::cpu::Native);
        let end = Some(Nanos::from_secs(4));
        let job = Run { warmup, ..job(&profile, native, poisson(40_000, 100_000.0), end) };
        run(job, &mut Unobserved).unwrap()
    };
    let (all, later) = (warm(Nanos::ZERO), warm(Nanos::from_secs(1)));
    assert_eq!(later.span, Nanos::from_secs(3));
    assert!(later.requests < all.requests && later.requests > all.requests / 2);
    let ratio = later.energy.total() / all.energy.total();
    assert!((ratio - 0.75).abs() < 0.01, "{ratio}");
}

/// What is done and what it takes are of the same seconds, however much waits when counting begins.
#[test]
fn rates_and_energy_are_of_the_same_seconds() {
    // Twice what one core can do, and what it can do.
    let profile = server(1, 100_000);
    for (gap, behind) in [(50e3, true), (200e3, false)] {
        let outcomes = [0, 1, 3].map(|warmup| {
            let native = Box::new(ebb_policy::cpu::Native);
            let (end, warmup) = (Some(Nanos::from_secs(4)), Nanos::from_secs(warmup));
            let load = poisson(200_000, gap);
            run(Run { warmup, ..job(&profile, native, load, end) }, &mut Unobserved).unwrap()
        });
        let [all, ..] = &outcomes;
        for outcome in &outcomes {
            let per = |of: &Outcome| of.energy.total().0 / of.requests as f64;
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.03;
            assert!(near(outcome.iops(), all.iops()), "{} {}", outcome.iops(), all.iops());
            assert!(near(per(outcome), per(all)), "{} {}", per(outcome), per(all));
            let drive: u64 = outcome.drives.iter().map(|drive| drive.requests).sum();
            assert_eq!(drive, outcome.requests);
            assert_eq!(outcome.falls_behind() > 0.01, behind, "{}", outcome.falls_behind());
        }
    }
}

#[test]
fn overload_keeps_memory_bounded_and_counts_the_wait() {
    // Twice what one core can do; every request is answered, late.
    let outcome = simulate(&server(1, 10_000), poisson(100_000, 5_000.0), None);
    assert_eq!(outcome.requests, 100_000);
    assert!((outcome.span.seconds() - 1.0).abs() < 0.01);
    assert!(outcome.mean_latency() > 0.2e9);
}

#[test]
fn a_request_beyond_the_server_is_refused_with_a_remedy() {
    let profile = server(1, 1000);
    let refuse = |source: Poisson| {
        let workload = Workload::Open(Box::new(source));
        let native = Box::new(ebb_policy::cpu::Native);
        match run(job(&profile, native, workload, None), &mut Unobserved) {
            Err(TwinError::Request { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let device = refuse(Poisson::new(1000, 1000.0, 4096, 1.0, 9));
    assert!(device.contains("4 drives") && device.contains("fold"), "{device}");
    let mut far = Poisson::new(1000, 1000.0, 4096, 1.0, 4);
    far.span = 1 << 60;
    let far = refuse(far);
    assert!(far.contains("beyond") && far.contains("fold"), "{far}");
}

#[test]
fn raid_writes_cost_more_than_reads() {
    let profile = Profile::load("generic-1u").unwrap();
    let energy = |reads| {
        let source = Poisson::new(200_000, 10_000.0, 4096, reads, 1);
        simulate(&profile, Workload::Open(Box::new(source)), None)
    };
    let (reads, writes) = (energy(1.0), energy(0.0));
    // Two reads, then two writes, one after the other.
    assert!(writes.mean_latency() > reads.mean_latency());
    assert!(writes.energy.ssd > reads.energy.ssd);
}

/// What the drives read and wrote.
#[derive(Default)]
struct Moved {
    read: u64,
    written: u64,
}

impl Observer for Moved {
    fn sample(&mut self, sample: &Sample<'_>) {
        for drive in &sample.cycled.signals.drives {
            self.read += drive.read_bytes.unwrap_or(0);
            self.written += drive.written_bytes.unwrap_or(0);
        }
    }
}

/// One request.
struct Once(Option<IoRequest>);

impl Source for Once {
    fn fill(&mut self, batch: &mut Vec<IoRequest>) -> Result<(), TraceError> {
        batch.extend(self.0.take());
        Ok(())
    }
}

#[test]
fn parity_follows_from_what_is_least_to_read() {
    let kib = 1 << 10;
    // Seven chunks of 64 KiB and their parity.
    let mut profile = Profile::load("generic-1u").unwrap();
    profile.background = None;
    for (offset, bytes, read, written) in [
        (0, 8, 8 + 8, 8 + 8),
        (0, 256, 3 * 64, 256 + 64),
        (32, 100, 100 + 64, 100 + 64),
        (0, 448, 0, 448 + 64),
        // Three chunks of a stripe, for which both take as much, and one of the next.
        (256, 256, 192 + 64 + 64 + 64, 256 + 2 * 64),
        // All but 4 KiB, and as much of the next stripe.
        (4, 448, 4 + 4 + 4, 448 + 64 + 4),
    ] {
        let request = IoRequest {
            at: Nanos::ZERO,
            offset: offset * kib,
            bytes: (bytes * kib) as u32,
            device: 0,
            op: Op::Write,
            stream: 0,
            recorded_latency: None,
        };
        let mut moved = Moved::default();
        let source = Workload::Open(Box::new(Once(Some(request))));
        let native = Box::new(ebb_policy::cpu::Native);
        simulate_with(&profile, native, source, Some(Nanos::from_secs(1)), &mut moved);
        let found = (moved.read / kib, moved.written / kib);
        assert_eq!(found, (read, written), "{bytes} KiB at {offset} KiB");
    }
}

#[test]
fn memory_carries_no_more_than_its_modules() {
    let text = Profile::shipped_text("asg-1115s").unwrap();
    let rate = |bandwidth: &str| {
        let text = text.replace("memory_bandwidth = \"153.6 GB\"", bandwidth);
        let profile = Profile::parse(&text, "memory").unwrap();
        let reads = Poisson::new(400_000, 600.0, 128 << 10, 1.0, 16);
        let end = Some(Nanos::from_millis(200));
        let outcome = simulate(&profile, Workload::Open(Box::new(reads)), end);
        outcome.bytes as f64 / outcome.span.seconds() / 1e9
    };
    let (without, with) = (rate(""), rate("memory_bandwidth = \"40 GB\""));
    assert!(without > 150.0, "{without}");
    assert!((with / 40.0 - 1.0).abs() < 0.02, "{with}");
}

#[test]
fn a_write_larger_than_the_write_buffer_is_still_acknowledged() {
    for buffer in ["1 KiB", "16 KiB", "65 KiB"] {
        let text = Profile::shipped_text("dorado-6000").unwrap();
        let text =
            text.replace("write_buffer = \"8 GiB\"", &format!("write_buffer = \"{buffer}\""));
        let profile = Profile::parse(&text, "small").unwrap();
        let writes = Poisson::new(2000, 50_000.0, 24 << 10, 0.0, 1);
        let outcome = simulate(&profile, Workload::Open(Box::new(writes)), None);
        assert_eq!(outcome.requests, 2000, "{buffer}");
    }
}
