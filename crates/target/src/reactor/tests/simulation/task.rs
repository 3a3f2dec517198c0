//! What the simulated cores poll: connections whose requests come by the clock.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use ebb_policy::units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::super::super::{Task, Waiting};
use super::{Plan, time};

/// What a poll costs that finds nothing, and each request.
pub const LOOK: Nanos = Nanos(300);
pub const REQUEST: Nanos = Nanos::from_micros(2);
/// Requests taken up in one poll, as hosts' turns and the events of one look bound them.
const BATCH: usize = 64;

/// What became of the requests.
#[derive(Debug, Default)]
pub struct Seen {
    pub arrived: u64,
    pub answered: u64,
    /// Of everything that happened.
    pub trace: u64,
}

/// One lightweight thread.
pub struct Connections {
    arrivals: VecDeque<Nanos>,
    waiting: Waiting,
    taken: u32,
    requests: u64,
    request: Nanos,
    seen: Arc<Mutex<Seen>>,
}

impl Connections {
    /// All threads of a plan with their requests.
    pub fn of(plan: &Plan, random: &mut Pcg64Mcg, seen: &Arc<Mutex<Seen>>) -> Vec<Box<dyn Task>> {
        let mut queues = vec![VecDeque::new(); usize::from(plan.threads)];
        let mut at = Nanos::ZERO;
        while at < plan.end() {
            let (rate, until) = plan.rate(at);
            at += Nanos((-(1.0 - random.random::<f64>()).ln() / rate * 1e9) as u64);
            if at >= until {
                at = until; // Of a random stream the past tells nothing.
                continue;
            }
            let share = random.random::<f64>().powf(plan.skew);
            queues[(share * f64::from(plan.threads)) as usize].push_back(at);
        }
        seen.lock().unwrap().arrived = queues.iter().map(|queue| queue.len() as u64).sum();
        let task = |arrivals| {
            let (waiting, seen) = (Waiting::default(), Arc::clone(seen));
            let request = plan.request;
            Box::new(Self { arrivals, waiting, taken: 0, requests: 0, request, seen })
                as Box<dyn Task>
        };
        queues.into_iter().map(task).collect()
    }

    fn here(&self, now: Nanos) -> usize {
        self.arrivals.iter().take_while(|at| **at <= now).count()
    }
}

impl Task for Connections {
    fn poll(&mut self, now: Nanos) -> usize {
        time::pass(LOOK);
        let count = self.here(now);
        let mut seen = self.seen.lock().unwrap();
        self.taken = count.min(BATCH) as u32;
        for at in self.arrivals.drain(..self.taken as usize) {
            time::work(self.request);
            let answered = super::now().unwrap();
            assert!(answered > at, "answered before it came");
            seen.trace = (seen.trace ^ answered.0).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        }
        self.requests += u64::from(self.taken);
        seen.answered += u64::from(self.taken);
        // As a group does: of what it has looked at, it knows what it left.
        self.waiting.set((count - self.taken as usize) as u32);
        count
    }
    fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }
    fn taken(&self) -> u32 {
        self.taken
    }
    fn requests(&self) -> u64 {
        self.requests
    }
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
