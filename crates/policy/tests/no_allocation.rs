//! Once running, neither a policy nor the guard touches the heap.

use crate::common::{Weather, budget, heated};
use ebb_policy::cooling::Curve;
use ebb_policy::reactor::{
    self, CoreLoad, CoreSpec, Machine, Period, Placement, Queue, Queues, ThreadLoad,
};
use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Cycle, Limits, Request};

#[test]
fn a_cycle_of_any_policy_allocates_nothing() {
    let topology = heated(32);
    let ssd_budget = Some(budget(&topology, 0.4));
    let curve = Curve::new(vec![(0.2, 1.0), (0.4, 1.0), (0.6, 0.8), (1.0, 0.4)]).ok();
    let settings = Settings { ssd_budget, curve, ..Settings::default() };
    for entry in ENTRIES {
        let policy = make(entry.name, &topology, &settings).unwrap();
        let server_budget = Some(Watts(600.0));
        let limits = Limits { ssd_budget, server_budget, ..Limits::default() };
        // The operator holds something of the drives, which the table lets two owners ask for.
        let mut operator = Request::new(&topology);
        operator.power_state.ask(0, 1, "test:held");
        let mut cycle = Cycle::new(&topology, policy, limits).held(operator).unwrap();
        let mut weather = Weather::new(&topology, 7, 0.02);
        let mut decided = 0;
        let allocated = allocation_counter::measure(|| {
            for _ in 0..3000 {
                decided += cycle.step(&mut weather).decisions().count();
            }
        });
        assert_eq!(allocated.count_total, 0, "{}", entry.name);
        assert!(decided > 0, "{}", entry.name);
    }
}

/// The measurement itself can fail.
#[test]
fn an_allocation_is_seen() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8; 100])));
    assert_eq!(allocated.count_total, 1);
}

#[test]
fn no_reactor_scheduler_allocates_once_started() {
    const SECOND: Nanos = Nanos::from_secs(1);
    let core = |core: u16| CoreSpec { sibling: Some(core ^ 1), node: 0 };
    let machine = Machine { cores: (0..16).map(core).collect(), threads: 64, wake: None };
    for entry in reactor::ENTRIES {
        let mut placement = Placement::even(machine.clone());
        let mut scheduler = reactor::by_name(entry.name, &machine).unwrap();
        scheduler.start(&mut placement);
        let mut cores = vec![CoreLoad::default(); 16];
        let mut threads = vec![ThreadLoad::default(); 64];
        let mut queues = vec![Queue::default(); 64];
        let mut moves = 0;
        let allocated = allocation_counter::measure(|| {
            for step in 0..2000_u64 {
                // Loads that rise, move on and die away.
                for (thread, load) in threads.iter_mut().enumerate() {
                    let phase = (step / 7 + thread as u64) % 16;
                    let busy = Nanos(phase * phase * 1_000_000);
                    let (requests, latency, peak_depth) = (phase * 1000, busy, phase as u32);
                    *load = ThreadLoad { busy, requests, latency, peak_depth };
                    queues[thread].depth = (phase * phase / 4) as u32;
                }
                cores.fill(CoreLoad::default());
                for (core, load) in placement.core_of().iter().zip(&threads) {
                    cores[usize::from(*core)].busy += load.busy;
                }
                for core in &mut cores {
                    core.wasted = SECOND.saturating_sub(core.busy);
                }
                placement.begin();
                let (cores, threads) = (&cores, &threads);
                let period = Period { now: SECOND, length: SECOND, cores, threads };
                scheduler.coarse(&period, &mut placement);
                for _ in 0..3 {
                    placement.begin();
                    scheduler.fine(&Queues { now: SECOND, threads: &queues }, &mut placement);
                    moves += placement.shifts().len();
                }
            }
        });
        assert_eq!(allocated.count_total, 0, "{}", entry.name);
        assert_eq!(moves > 0, entry.name.starts_with("sandman"), "{}", entry.name);
    }
}
