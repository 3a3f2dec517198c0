//! The loop takes no memory, however cores wait and threads move.

use std::sync::atomic::Ordering;
use std::thread;

use ebb_policy::reactor::{CoreSpec, Machine, Placement, Scheduler, Wait};
use ebb_policy::units::Nanos;

use super::super::Strategy;
use super::super::clock::Clock;
use super::super::runtime::{Means, build};
use super::super::wait::Waiter;
use super::{Recorder, Script, Seen};

/// Cores, and threads on them.
const CORES: usize = 2;
const THREADS: u16 = 4;
/// Polls of each thread before the reactors stop.
const POLLS: u64 = 3000;
const PERIOD: Nanos = Nanos::from_micros(20);

/// All threads move to the next core with every step, while cores wait like this.
fn restless(wait: Wait) -> Box<dyn Scheduler> {
    let start = move |placement: &mut Placement| {
        (0..CORES).for_each(|core| placement.set_wait(core as u16, wait, "test:wait"));
    };
    let fine = |placement: &mut Placement| {
        for thread in 0..THREADS {
            let to = (placement.core_of()[usize::from(thread)] + 1) % CORES as u16;
            placement.move_thread(thread, to, "test:move");
        }
    };
    Box::new(Script { start, fine, period: Some(PERIOD) })
}

/// What each reactor's thread allocates while it runs until every task was polled often enough.
fn allocations(wait: Wait) -> Vec<u64> {
    let clock = Clock::start();
    // Reactors that share a CPU must leave it soon.
    let strategy = Strategy::Futex { spin: Nanos::from_micros(1) };
    let waiter = Waiter::new(strategy, clock).unwrap();
    let cores = vec![CoreSpec { sibling: None, node: 0 }; CORES];
    let machine = Machine { cores, threads: THREADS, wake: None };
    let seen: Vec<_> = (0..THREADS).map(|number| Seen::new(number.into())).collect();
    // Timed pollers come round however their core waits, the others when there are events.
    let timed = |index: usize| index.is_multiple_of(2).then_some(PERIOD);
    let task = |(index, seen)| Recorder { period: timed(index), ..Recorder::new(seen) }.boxed();
    let tasks = seen.iter().enumerate().map(task).collect();
    let means = Means { waiter, clock, strategy };
    let coarse = Nanos::from_millis(1);
    let (shared, reactors) =
        build(&[0; CORES], machine, restless(wait), coarse, tasks, means).unwrap();
    let threads: Vec<_> = reactors
        .into_iter()
        .map(|reactor| {
            thread::spawn(move || {
                let mut ended = None;
                let run = || ended = Some(reactor.run());
                (allocation_counter::measure(run).count_total, ended)
            })
        })
        .collect();
    super::wait_for("all polls", || {
        seen.iter().for_each(|seen| seen.request());
        seen.iter().all(|seen| seen.polls() >= POLLS)
    });
    let moves: u64 = shared.threads.iter().map(|t| t.moves.load(Ordering::Relaxed)).sum();
    assert!(moves > u64::from(THREADS), "nothing moved");
    shared.stop();
    threads.into_iter().map(|thread| thread.join().unwrap().0).collect()
}

#[test]
fn the_loop_takes_no_memory() {
    let (spin, nap) = (Nanos::from_micros(5), Nanos::from_micros(20));
    for wait in [Wait::Poll, Wait::Doze, Wait::Block { spin }, Wait::Nap { nap }] {
        assert_eq!(allocations(wait), [0; CORES], "{wait:?}");
    }
}
