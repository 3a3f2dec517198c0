//! Each way of waiting hears what it must hear and rests otherwise.

use std::sync::Arc;

use ebb_policy::reactor::{Placement, Wait};
use ebb_policy::units::Nanos;

use super::{Recorder, Script, Seen, all, config, wait_for};
use crate::reactor::{Config, Runtime, Sleep, Snapshot};

const BLOCK: Wait = Wait::Block { spin: Nanos::ZERO };

fn quiet(mut config: Config) -> Config {
    config.coarse = Nanos::from_secs(3600);
    config
}

fn sleeps(shot: &Snapshot, core: usize, sleep: Sleep) -> u64 {
    shot.cores[core].totals.sleeps[sleep as usize]
}

#[test]
fn every_way_of_waiting_answers_requests_one_by_one() {
    let nap = Wait::Nap { nap: Nanos::from_micros(50) };
    let spin = Wait::Block { spin: Nanos::from_micros(30) };
    for wait in [Wait::Poll, Wait::Doze, BLOCK, spin, nap] {
        let seen: Vec<_> = (0..2).map(Seen::new).collect();
        let tasks = seen.iter().map(|seen| Recorder::new(seen).boxed()).collect();
        let runtime = Runtime::start(quiet(config(2, all(wait))), tasks).unwrap();
        for turn in 1..=200 {
            for seen in &seen {
                seen.request();
                wait_for("an answer", || seen.events() == turn);
            }
        }
        let shot = runtime.snapshot();
        for (core, state) in shot.cores.iter().enumerate() {
            assert_eq!(state.threads, 1);
            let slept: u64 = state.totals.sleeps.iter().sum();
            match wait {
                Wait::Poll | Wait::Doze | Wait::Halt => {
                    assert_eq!(slept, 0, "it has a thread to poll")
                }
                Wait::Block { .. } => assert!(sleeps(&shot, core, Sleep::Block) == slept),
                Wait::Nap { .. } => assert!(sleeps(&shot, core, Sleep::Nap) == slept),
            }
            if matches!(wait, Wait::Nap { .. }) || wait == BLOCK {
                assert!(slept > 0);
            }
        }
        assert_eq!(shot.threads.iter().map(|thread| thread.requests).sum::<u64>(), 400);
        drop(runtime);
    }
}

/// A scheduler tunes how long cores spin all the time: that is no change of the placement.
#[test]
fn the_log_tells_how_cores_wait_and_not_for_how_long() {
    let mut steps = 0;
    let step = move |placement: &mut Placement| {
        steps += 1;
        let spin = Nanos(steps);
        placement.set_wait(0, Wait::Block { spin }, "test:spin");
    };
    let script = Script { start: |_: &mut Placement| {}, fine: step, period: None };
    let config = Config { coarse: Nanos::from_millis(1), ..config(1, Box::new(script)) };
    let runtime = Runtime::start(config, vec![Recorder::new(&Seen::new(0)).boxed()]).unwrap();
    wait_for("the longer spin", || match runtime.snapshot().cores[0].wait {
        Wait::Block { spin } => spin >= Nanos(20),
        _ => false,
    });
    assert_eq!(runtime.snapshot().shifts_in_all, 1);
}

#[test]
fn a_blocked_core_with_nothing_to_do_is_left_alone() {
    let seen = Seen::new(0);
    let runtime =
        Runtime::start(quiet(config(1, all(BLOCK))), vec![Recorder::new(&seen).boxed()]).unwrap();
    wait_for("sleep", || runtime.snapshot().cores[0].sleeping == Some(Sleep::Block));
    let polls = seen.polls();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let shot = runtime.snapshot();
    assert_eq!(seen.polls(), polls);
    assert_eq!(sleeps(&shot, 0, Sleep::Block), 1);
    assert!(shot.cores[0].totals.asleep[Sleep::Block as usize] >= Nanos::from_millis(100));
}

#[test]
fn a_task_without_a_file_keeps_its_core_from_blocking() {
    let seen = Seen::new(0);
    let task = Recorder { lends: false, ..Recorder::new(&seen) };
    let runtime = Runtime::start(quiet(config(1, all(BLOCK))), vec![task.boxed()]).unwrap();
    wait_for("polls", || seen.polls() > 1000);
    assert_eq!(sleeps(&runtime.snapshot(), 0, Sleep::Block), 0);
}

#[test]
fn timed_pollers_are_polled_when_due_however_their_core_waits() {
    for wait in [Wait::Poll, Wait::Doze, BLOCK, Wait::Nap { nap: Nanos::from_secs(3600) }] {
        let seen = Seen::new(0);
        let period = Some(Nanos::from_micros(200));
        let task = Recorder { period, ..Recorder::new(&seen) };
        let runtime = Runtime::start(quiet(config(1, all(wait))), vec![task.boxed()]).unwrap();
        wait_for("fifty periods", || seen.polls() >= 50); // the task checks that none is early
        let shot = runtime.snapshot();
        let time = shot.cores[0].totals;
        assert_eq!(wait == Wait::Poll, time.sleeps == [0; 3], "it sleeps between them");
        // What it does not do asleep it does awake: the times add up to the run, but for what
        // has not been published yet.
        let sum = time.busy + time.wasted + time.all_asleep();
        let now = runtime.snapshot().at;
        assert!(sum <= now, "{sum} of {now}");
    }
}

#[test]
fn requests_follow_a_thread_that_moves_between_blocked_cores() {
    let start = |placement: &mut Placement| {
        for core in 1..3 {
            placement.set_wait(core, BLOCK, "test:block");
        }
    };
    let mut turn = 0;
    let fine = move |placement: &mut Placement| {
        turn += 1;
        placement.move_thread(0, 1 + turn % 2, "test:swing");
    };
    let period = Some(Nanos::from_micros(50));
    let seen = Seen::new(0);
    let script = Box::new(Script { start, fine, period });
    let runtime =
        Runtime::start(quiet(config(3, script)), vec![Recorder::new(&seen).boxed()]).unwrap();
    for turn in 1..=500 {
        seen.request();
        wait_for("an answer", || seen.events() == turn);
    }
    let shot = runtime.snapshot();
    assert!(shot.threads[0].moves > 0 && sleeps(&shot, 1, Sleep::Block) > 0);
    assert_eq!(shot.cores[1].totals.unwatched + shot.cores[2].totals.unwatched, 0);
    drop(runtime);
    assert_eq!(Arc::strong_count(&seen), 1);
}

#[test]
fn a_dozing_core_wakes_for_a_thread_and_polls_it() {
    let start = |placement: &mut Placement| {
        placement.move_thread(0, 0, "test:main");
        placement.set_wait(1, Wait::Doze, "test:doze");
    };
    let mut steps = 0;
    let fine = move |placement: &mut Placement| {
        steps += 1;
        match steps % 20 {
            10 => {
                placement.set_wait(1, Wait::Poll, "test:wake");
                placement.move_thread(0, 1, "test:spread");
            }
            0 => {
                placement.move_thread(0, 0, "test:gather");
                placement.set_wait(1, Wait::Doze, "test:doze");
            }
            _ => {}
        }
    };
    let seen = Seen::new(0);
    let script = Box::new(Script { start, fine, period: Some(Nanos::from_micros(10)) });
    let runtime =
        Runtime::start(quiet(config(2, script)), vec![Recorder::new(&seen).boxed()]).unwrap();
    wait_for("moves", || runtime.snapshot().threads[0].moves >= 200);
    let shot = runtime.snapshot();
    assert!(sleeps(&shot, 1, Sleep::Doze) > 0);
    let reasons: Vec<_> = shot.shifts.iter().map(|record| format!("{:?}", record.shift)).collect();
    assert!(reasons.iter().any(|reason| reason.contains("test:spread")), "{reasons:?}");
    assert!(shot.shifts.is_sorted_by_key(|record| record.at));
}
