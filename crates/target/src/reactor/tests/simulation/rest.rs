//! What a core with few requests takes of its time, and what that costs them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use ebb_policy::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::event::{EventfdFlags, eventfd};

use super::super::super::Task;
use super::task::{LOOK, Seen};
use super::world::World;
use super::{Plan, time};

const WAKE: Nanos = Nanos::from_micros(15);
const SECOND: Nanos = Nanos::from_secs(1);
const THREADS: usize = 16;

/// What comes to a thread, and when.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    Request(Nanos),
    KeepAlive(Nanos),
}

impl Event {
    fn at(self) -> Nanos {
        let (Self::Request(at) | Self::KeepAlive(at)) = self;
        at
    }
}

/// Requests that were answered: when they came, and after how long.
type Answers = Arc<Mutex<Vec<(Nanos, Nanos)>>>;

/// A thread whose file wakes the core that blocks when something comes.
struct Visitors {
    events: VecDeque<Event>,
    taken: u32,
    requests: u64,
    request: Nanos,
    answers: Answers,
    /// None: its core never blocks.
    file: Option<OwnedFd>,
}

impl Task for Visitors {
    fn poll(&mut self, now: Nanos) -> usize {
        time::pass(LOOK);
        let here = self.events.iter().take_while(|event| event.at() <= now).count();
        self.taken = 0;
        for event in self.events.drain(..here) {
            time::work(self.request);
            if let Event::Request(at) = event {
                self.taken += 1;
                self.answers.lock().unwrap().push((at, super::now().unwrap() - at));
            }
        }
        self.requests += u64::from(self.taken);
        here
    }
    fn taken(&self) -> u32 {
        self.taken
    }
    fn requests(&self) -> u64 {
        self.requests
    }
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
    /// In virtual time nothing becomes readable: the core wakes for what will have come.
    fn deadline(&self) -> Option<Nanos> {
        self.file.as_ref().and(self.events.front()).map(|event| event.at())
    }
}

/// What became of a run.
pub struct Outcome {
    /// Cores that were awake, on average.
    awake: f64,
    /// The same in the second half.
    pub late: f64,
    answers: Vec<(Nanos, Nanos)>,
}

impl Outcome {
    /// Mean and p99 of what came from `from` on, in nanoseconds.
    pub fn latency(&self, from: Nanos) -> (f64, u64) {
        let late = self.answers.iter().filter(|(at, _)| *at >= from);
        let mut times: Vec<u64> = late.map(|(_, time)| time.0).collect();
        times.sort_unstable();
        (times.iter().sum::<u64>() as f64 / times.len() as f64, times[times.len() * 99 / 100])
    }
}

/// Runs `events` on `cores` cores for `length`. Cores that need not block poll instead.
fn run(
    scheduler: &'static str,
    cores: usize,
    blocks: bool,
    events: &[Event],
    length: Nanos,
) -> Outcome {
    let plan = Plan {
        cores,
        wake: Some(WAKE),
        threads: THREADS as u16,
        coarse: SECOND,
        ..Plan::of(1, scheduler)
    };
    run_plan(plan, blocks, events, length)
}

/// The same under any plan.
pub fn run_plan(plan: Plan, blocks: bool, events: &[Event], length: Nanos) -> Outcome {
    let mut threads = vec![VecDeque::new(); plan.threads.into()];
    for (number, event) in events.iter().enumerate() {
        threads[number % usize::from(plan.threads)].push_back(*event);
    }
    let answers = Answers::default();
    let task = |events| {
        let file = blocks.then(|| eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let answers = Arc::clone(&answers);
        let request = plan.request;
        Box::new(Visitors { events, taken: 0, requests: 0, request, answers, file })
            as Box<dyn Task>
    };
    let tasks = threads.into_iter().map(task).collect();
    let random = Pcg64Mcg::seed_from_u64(1);
    let mut world = World::of(plan, random, Arc::<Mutex<Seen>>::default(), tasks);
    let half = Nanos(length.0 / 2);
    world.run_until(half);
    let early = world.awake();
    world.run_until(length);
    world.check();
    let awake = world.awake();
    drop(world);
    Outcome {
        awake: awake.0 as f64 / length.0 as f64,
        late: (awake - early).0 as f64 / (length - half).0 as f64,
        answers: Arc::into_inner(answers).unwrap().into_inner().unwrap(),
    }
}

/// So many a second at random times from `from` to `to`.
fn random(rate: f64, from: Nanos, to: Nanos) -> Vec<Nanos> {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let gap = || Some(Nanos((-(1.0 - random.random::<f64>()).ln() / rate * 1e9) as u64));
    let next = |at: &mut Nanos, gap: Nanos| {
        *at += gap;
        (*at < to).then_some(*at)
    };
    std::iter::from_fn(gap).scan(from, next).collect()
}

pub fn requests(rate: f64, from: Nanos, to: Nanos) -> Vec<Event> {
    random(rate, from, to).into_iter().map(Event::Request).collect()
}

#[test]
fn core_time_follows_the_load_and_requests_wait_no_longer_than_for_interrupts() {
    for (rate, seconds, most) in [(1.0, 300, 0.02), (100.0, 20, 0.10), (1000.0, 5, 0.40)] {
        let length = Nanos::from_secs(seconds);
        let events = requests(rate, Nanos::ZERO, length);
        let [plus, interrupt] =
            ["sandman-plus", "interrupt"].map(|name| run(name, 1, true, &events, length));
        assert_eq!(plus.answers.len(), interrupt.answers.len());
        assert!(plus.awake <= most, "{rate}/s: {} of a core", plus.awake);
        let (plus, interrupt) = (plus.latency(Nanos::ZERO), interrupt.latency(Nanos::ZERO));
        assert!(plus.1 <= interrupt.1, "{rate}/s: p99 {} ns, {} ns", plus.1, interrupt.1);
    }
}

#[test]
fn requests_in_bunches_are_polled_for_no_more() {
    // 1,000 a second: 50 us apart, in bunches of 20 or of 100.
    for bunch in [20, 100] {
        let at = |number: u64| Nanos(number / bunch * bunch * 1_000_000 + number % bunch * 50_000);
        let events: Vec<_> = (1..5_000).map(|number| Event::Request(at(number))).collect();
        let awake = run("sandman-plus", 1, true, &events, Nanos::from_secs(5)).awake;
        assert!(awake <= 0.4, "bunches of {bunch}: {awake} of a core");
    }
}

#[test]
fn a_dense_stream_is_polled() {
    let learned = Nanos::from_millis(100);
    for rate in [10e3, 100e3] {
        let events = requests(rate, Nanos::ZERO, SECOND);
        let [plus, polled] =
            [true, false].map(|blocks| run("sandman-plus", 1, blocks, &events, SECOND));
        let (plus, polled) = (plus.latency(learned), polled.latency(learned));
        assert!(plus.0 <= 1.05 * polled.0, "{rate}/s: mean {} ns, {} ns", plus.0, polled.0);
        assert!(plus.1 * 100 <= polled.1 * 105, "{rate}/s: p99 {} ns, {} ns", plus.1, polled.1);
    }
}

#[test]
fn what_keeps_connections_alive_is_spun_for_by_nobody() {
    let length = Nanos::from_secs(10);
    // 200 hosts, each every 2.5 s.
    let events: Vec<_> =
        random(80.0, Nanos::ZERO, length).into_iter().map(Event::KeepAlive).collect();
    let [plus, interrupt] =
        ["sandman-plus", "interrupt"].map(|name| run(name, 1, true, &events, length).awake);
    assert!(plus <= 0.01, "{plus} of a core");
    assert!(plus <= 1.1 * interrupt, "{plus} of a core, {interrupt} by interrupts");
}

#[test]
fn every_core_rests_from_the_start_and_within_a_second_after_a_load() {
    let awake = run("sandman-plus", 16, true, &[], SECOND).awake;
    assert!(awake <= 0.001, "{awake} cores before the first request");
    // More than one core serves.
    let events = requests(700e3, Nanos::ZERO, Nanos::from_millis(100));
    let until = |length| run("sandman-plus", 16, true, &events, length).awake * length.seconds();
    let [soon, later] = [2, 4].map(|seconds| until(Nanos::from_secs(seconds)));
    assert!(later - soon <= 0.001, "{} s awake after the load", later - soon);
}

#[test]
fn a_burst_after_a_rest_waits_for_one_wake_up_at_a_time_and_soon_for_none() {
    let (begin, end) = (Nanos::from_secs(3), Nanos::from_millis(3200));
    let mut events = requests(1.0, Nanos::ZERO, begin);
    events.extend(requests(40e3, begin, end));
    let [plus, polled] = [true, false].map(|blocks| run("sandman-plus", 1, blocks, &events, end));
    let longest = |run: &Outcome| run.answers.iter().map(|(_, time)| time.0).max().unwrap();
    let round = (THREADS as u64) * LOOK.0;
    assert!(longest(&plus) <= longest(&polled) + WAKE.0 + round, "{} ns", longest(&plus));
    let (plus, polled) = (plus.latency(begin), polled.latency(begin));
    assert!(plus.0 <= 1.05 * polled.0, "mean {} ns, {} ns", plus.0, polled.0);
    assert!(plus.1 * 100 <= polled.1 * 105, "p99 {} ns, {} ns", plus.1, polled.1);
}
