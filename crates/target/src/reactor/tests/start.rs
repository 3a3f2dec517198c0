//! Starting: what cannot be is refused with a remedy, and nothing is left behind.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ebb_policy::reactor::Wait;
use ebb_policy::units::Nanos;

use super::{Recorder, Seen, all, config, wait_for};
use crate::reactor::{Config, Runtime, Strategy, Task};

fn refusal(config: Config) -> String {
    let seen = Seen::new(0);
    let text = match Runtime::start(config, vec![Recorder::new(&seen).boxed()]) {
        Ok(_) => panic!("it should not start"),
        Err(error) => error.to_string(),
    };
    assert_eq!((seen.polls(), Arc::strong_count(&seen)), (0, 1));
    text
}

#[test]
fn cpus_that_cannot_be_used_are_named() {
    assert!(refusal(Config::new(vec![], all(Wait::Poll))).contains("at least one"));
    let far = refusal(Config::new(vec![1023], all(Wait::Poll)));
    assert!(far.contains("cpu 1023") && far.contains("choose from these"), "{far}");
    let beyond = refusal(Config::new(vec![usize::MAX], all(Wait::Poll)));
    assert!(beyond.contains("is not among"), "{beyond}");
    let mut twice = config(1, all(Wait::Poll));
    twice.share_cpus = false;
    twice.cpus.push(twice.cpus[0]);
    assert!(refusal(twice).contains("twice"));
}

#[test]
fn a_strategy_this_cpu_lacks_is_refused() {
    for strategy in Strategy::ALL.into_iter().filter(|strategy| strategy.check().is_err()) {
        let mut config = config(1, all(Wait::Doze));
        config.wait = Some(strategy);
        let text = refusal(config);
        assert!(text.contains(strategy.name()) && text.contains("choose futex"), "{text}");
    }
}

#[test]
fn a_runtime_without_threads_starts_and_stops() {
    let block = Wait::Block { spin: Nanos::ZERO };
    for wait in [Wait::Poll, Wait::Doze, block, Wait::Nap { nap: Nanos::from_secs(9) }] {
        let runtime = Runtime::start(config(3, all(wait)), vec![]).unwrap();
        let monitor = runtime.monitor();
        assert_eq!(monitor.snapshot().cores.len(), 3);
        assert!(runtime.stop().is_empty());
        assert!(monitor.snapshot().threads.is_empty());
    }
}

struct Bomb;

impl Task for Bomb {
    fn poll(&mut self, _: Nanos) -> usize {
        panic!("a task's own fault")
    }
    fn requests(&self) -> u64 {
        0
    }
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_panicking_task_is_noticed_and_told_at_the_stop() {
    let runtime = Runtime::start(config(2, all(Wait::Doze)), vec![Box::new(Bomb)]).unwrap();
    wait_for("the failure", || runtime.failed() == Some(0));
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.stop()));
    assert!(stopped.is_err());
}
