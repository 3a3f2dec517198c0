//! Threads on random walks: never polled by two cores at once, never lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_policy::reactor::{Placement, Scheduler, Wait};
use ebb_policy::units::Nanos;
use proptest::prelude::*;

use super::{Recorder, Script, Seen, all, config, wait_for};
use crate::reactor::{Runtime, Task};

const CORES: usize = 4;

/// Moves threads and changes waits at random for `steps` fine steps, several at a time and the
/// same thread often twice in a step; then lets all poll.
fn walk(seed: u64, steps: u32) -> Box<dyn Scheduler> {
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let micro = Nanos::from_micros;
    let waits = [
        Wait::Poll,
        Wait::Doze,
        Wait::Block { spin: micro(0) },
        Wait::Block { spin: micro(20) },
        Wait::Nap { nap: micro(30) },
    ];
    let mut left = steps;
    let fine = move |placement: &mut Placement| {
        if left == 0 {
            return;
        }
        left -= 1;
        let threads = placement.core_of().len();
        for _ in 0..random(2 * threads) {
            let (thread, to) = (random(threads), random(CORES));
            placement.move_thread(thread as u16, to as u16, "test:walk");
        }
        // The main core goes on stepping finely: it does not block.
        let core = 1 + random(CORES - 1);
        placement.set_wait(core as u16, waits[random(waits.len())], "test:wait");
        if left == 0 {
            for core in 0..CORES {
                placement.set_wait(core as u16, Wait::Poll, "test:end");
            }
        }
    };
    Box::new(Script { start: |_: &mut Placement| {}, fine, period: Some(micro(10)) })
}

fn tasks(seen: &[Arc<Seen>]) -> Vec<Box<dyn Task>> {
    let task = |seen: &Arc<Seen>| {
        let mut task = Recorder::new(seen);
        match seen.number % 3 {
            0 => task.lends = false,
            1 => task.period = Some(Nanos::from_micros(40)),
            _ => {}
        }
        task.boxed()
    };
    seen.iter().map(task).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn a_thread_is_never_on_two_cores_and_never_lost(seed: u64, threads in 1_usize..9) {
        let seen: Vec<_> = (0..threads).map(Seen::new).collect();
        let runtime = Runtime::start(config(CORES, walk(seed, 400)), tasks(&seen)).unwrap();
        let ended = || {
            let shot = runtime.snapshot();
            shot.cores.iter().all(|core| core.wait == Wait::Poll) && shot.shifts_in_all > 400
        };
        wait_for("the end of the walk", ended);
        // Each is still polled, by the core that the placement says.
        let before: Vec<u64> = seen.iter().map(|seen| seen.polls()).collect();
        seen.iter().for_each(|seen| seen.request());
        wait_for("every thread's next poll", || {
            seen.iter().zip(&before).all(|(seen, before)| seen.polls() > *before)
        });
        wait_for("every request", || seen.iter().all(|seen| seen.events() == 1));
        let moves: u64 = runtime.snapshot().threads.iter().map(|thread| thread.moves).sum();
        prop_assert!(moves > 0);
        prop_assert_eq!(runtime.stop().len(), threads);
        prop_assert!(seen.iter().all(|seen| !seen.overlapped.load(Ordering::Acquire)));
        prop_assert!(seen.iter().all(|seen| Arc::strong_count(seen) == 1), "dropped with its task");
    }
}

#[test]
fn stopping_amid_moves_gives_every_task_back_in_order() {
    for seed in 0..20 {
        let seen: Vec<_> = (0..7).map(Seen::new).collect();
        let runtime = Runtime::start(config(CORES, walk(seed, u32::MAX)), tasks(&seen)).unwrap();
        wait_for("some moves", || runtime.snapshot().shifts_in_all > 20 * seed);
        for (seen, task) in seen.iter().zip(runtime.stop()) {
            seen.events.store(99, Ordering::Release);
            assert_eq!(task.requests(), 99, "task {} in its place", seen.number);
            assert_eq!(Arc::strong_count(seen), 2);
            seen.events.store(0, Ordering::Release);
        }
    }
}

#[test]
fn another_scheduler_takes_over_all_threads_and_cores() {
    let seen: Vec<_> = (0..5).map(Seen::new).collect();
    let block = all(Wait::Block { spin: Nanos::ZERO });
    let mut config = config(CORES, block);
    config.coarse = Nanos::from_millis(5);
    let runtime = Runtime::start(config, tasks(&seen)).unwrap();
    let helm = runtime.helm();
    assert!(helm.is_taken());
    for to in [2_u16, 1] {
        let start = move |placement: &mut Placement| {
            // As at the start of a runtime.
            assert_eq!(placement.core_of(), [0, 1, 2, 3, 0]);
            assert!(placement.waits().iter().all(|wait| *wait == Wait::Poll));
            (0..5).for_each(|thread| placement.move_thread(thread, to, "test:all"));
        };
        helm.give(Box::new(Script { start, fine: |_: &mut Placement| {}, period: None }));
        wait_for("all threads on one core", || {
            let shot = runtime.snapshot();
            helm.is_taken() && shot.threads.iter().all(|thread| thread.core == to)
        });
    }
    assert!(runtime.snapshot().cores.iter().all(|core| core.wait == Wait::Poll));
    seen.iter().for_each(|seen| seen.request());
    wait_for("every request", || seen.iter().all(|seen| seen.events() == 1));
    assert_eq!(runtime.stop().len(), 5);
}
