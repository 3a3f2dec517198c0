//! Measures, on this machine and with the runtime's own parts, what waiting, waking, messages and
//! moves cost. Every sample is a time in nanoseconds.

use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use ebb_policy::reactor::{Placement, Queues, Scheduler, Wait};
use ebb_policy::units::Nanos;

use super::bell::{BLOCKED, Bell, FUTEX};
use super::clock::Clock;
use super::door::{self, Door, Gate};
use super::ring::ring;
use super::runtime::{settle, usable};
use super::sync::Padded;
use super::wait::{self, Strategy, Unavailable, Waiter};
use super::{Config, Error, Runtime, Task};

/// A way to sleep until another core has something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Dozing.
    Doze(Strategy),
    /// In epoll, woken through an event counter.
    Block,
}

impl Way {
    /// Every one, dozing first.
    pub fn all() -> impl Iterator<Item = Self> {
        Strategy::ALL.into_iter().map(Self::Doze).chain([Self::Block])
    }
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Doze(strategy) => strategy.name(),
            Self::Block => "epoll",
        }
    }
    /// Whether this machine has it.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self) -> Result<(), Unavailable> {
        match self {
            Self::Doze(strategy) => strategy.check(),
            Self::Block => Ok(()),
        }
    }
}

/// What sleeping one way costs.
#[derive(Debug, Clone, Default)]
pub struct WakeTimes {
    /// Going to sleep and straight out again, with nothing to wait for.
    pub entry: Vec<u64>,
    /// What ringing costs the sender.
    pub sender: Vec<u64>,
    /// From just before the sender publishes to the sleeper being awake again.
    pub wake: Vec<u64>,
}

/// How long the sender lets the sleeper sleep: longer than any strategy spins before it calls the
/// kernel, and than the kernel takes to put it to sleep.
const DWELL: Nanos = Nanos::from_micros(30);

struct Bed {
    clock: Clock,
    bell: Bell,
    door: Door,
    /// The sleeper's number of the message it has seen last, and the sender's.
    seen: Padded<AtomicU64>,
    sent: Padded<AtomicU64>,
    at: Padded<AtomicU64>,
}

/// Lets cpu `cpus[1]` sleep and cpu `cpus[0]` wake it, so many times.
///
/// # Errors
/// When a CPU cannot be used, or lacks what `way` needs.
pub fn wake(way: Way, cpus: [usize; 2], samples: u64) -> Result<WakeTimes, Error> {
    let clock = Clock::start();
    let strategy = if let Way::Doze(strategy) = way { strategy } else { Strategy::FUTEX };
    let waiter = Waiter::new(strategy, clock)?;
    let refused = |source| Error::Refused { what: "open event files", cpu: cpus[1], source };
    let (door, gate) = door::pair().map_err(refused)?;
    let (seen, sent, at) = Default::default();
    let bed = Bed { clock, bell: Bell::default(), door, seen, sent, at };
    let ((entry, wake), sender) = on_two(
        cpus,
        || (enter(way, &bed, &waiter, &gate, samples), sleep(way, &bed, &waiter, &gate, samples)),
        || send(&bed, samples),
    )?;
    Ok(WakeTimes { entry, sender, wake })
}

/// For how long [`wake_up`] lets a CPU rest: the deepest idle states ask for less.
const REST: Nanos = Nanos::from_millis(2);

/// How long `cpu` takes to wake when its reactor blocks: by how much the kernel is late to end a
/// rest of 2 ms, the median of 15. After shorter rests it is less, after longer ones it may be
/// more, on virtual machines in particular.
///
/// # Errors
/// When the CPU cannot be used, or the process may open no more files.
pub fn wake_up(cpu: usize) -> Result<Nanos, Error> {
    usable(&[cpu])?;
    let refused = |what| move |source| Error::Refused { what, cpu, source };
    let measure = || {
        settle(cpu).map_err(refused("pin a thread"))?;
        let (_door, gate) = door::pair().map_err(refused("open event files"))?;
        let (clock, bell) = (Clock::start(), Bell::default());
        let mut late: [Nanos; 15] = std::array::from_fn(|_| {
            let end = clock.now() + REST;
            gate.block(&bell, Some(REST), || false);
            clock.now().saturating_sub(end)
        });
        late.sort_unstable();
        Ok(late[late.len() / 2])
    };
    thread::scope(|scope| scope.spawn(measure).join().unwrap_or_else(|p| resume_unwind(p)))
}

/// Runs `far` on the second CPU and `near` on the first, both pinned.
fn on_two<A: Send, B: Send>(
    cpus: [usize; 2],
    far: impl FnOnce() -> A + Send,
    near: impl FnOnce() -> B + Send,
) -> Result<(A, B), Error> {
    usable(&cpus)?;
    // Both are pinned before either begins: one that cannot be would leave the other waiting.
    let ready = std::sync::Barrier::new(2);
    let failed = AtomicU32::new(0);
    let pin = |cpu: usize| {
        let pinned = settle(cpu);
        failed.fetch_add(u32::from(pinned.is_err()), Ordering::AcqRel);
        ready.wait();
        let all = failed.load(Ordering::Acquire) == 0;
        pinned.map(|()| all).map_err(|source| Error::Refused { what: "pin a thread", cpu, source })
    };
    thread::scope(|scope| {
        let far = scope.spawn(|| Ok(pin(cpus[1])?.then(far)));
        let near = scope.spawn(|| Ok(pin(cpus[0])?.then(near)));
        let far: Result<Option<A>, Error> = far.join().unwrap_or_else(|p| resume_unwind(p));
        let near: Result<Option<B>, Error> = near.join().unwrap_or_else(|p| resume_unwind(p));
        match (far?, near?) {
            (Some(far), Some(near)) => Ok((far, near)),
            _ => Err(Error::NoCpu), // one that was not pinned has told why
        }
    })
}

fn enter(way: Way, bed: &Bed, waiter: &Waiter, gate: &Gate, samples: u64) -> Vec<u64> {
    let mut times = Vec::with_capacity(samples as usize);
    for _ in 0..samples {
        let from = bed.clock.now();
        match way {
            Way::Doze(_) => waiter.touch(&bed.bell),
            Way::Block => gate.block(&bed.bell, Some(Nanos::ZERO), || false),
        }
        times.push((bed.clock.now() - from).0);
    }
    times
}

fn sleep(way: Way, bed: &Bed, waiter: &Waiter, gate: &Gate, samples: u64) -> Vec<u64> {
    let mut times = Vec::with_capacity(samples as usize);
    for number in 1..=samples {
        let published = || bed.sent.0.load(Ordering::Acquire) == number;
        while !published() {
            match way {
                Way::Doze(_) => waiter.wait(&bed.bell, None, published),
                Way::Block => gate.block(&bed.bell, None, published),
            }
        }
        let now = bed.clock.now();
        times.push(now.0.saturating_sub(bed.at.0.load(Ordering::Relaxed)));
        bed.seen.0.store(number, Ordering::Release);
    }
    times
}

fn send(bed: &Bed, samples: u64) -> Vec<u64> {
    let mut times = Vec::with_capacity(samples as usize);
    for number in 1..=samples {
        while bed.seen.0.load(Ordering::Acquire) + 1 != number || bed.bell.is_rung() {
            std::hint::spin_loop();
        }
        let until = bed.clock.now() + DWELL;
        while bed.clock.now() < until {
            std::hint::spin_loop();
        }
        let from = bed.clock.now();
        bed.at.0.store(from.0, Ordering::Relaxed);
        bed.sent.0.store(number, Ordering::Release);
        match bed.bell.ring() {
            FUTEX => wait::wake(&bed.bell),
            BLOCKED => bed.door.knock(),
            _ => {}
        }
        times.push((bed.clock.now() - from).0);
    }
    times
}

/// Passes a cache line to and fro; each sample is one way, the mean over 500 round trips.
///
/// # Errors
/// When a CPU cannot be used.
pub fn ping_pong(cpus: [usize; 2], samples: u64) -> Result<Vec<u64>, Error> {
    const TRIPS: u32 = 500;
    let clock = Clock::start();
    let line = Padded(AtomicU32::new(0));
    let bounce = |odd: u32| {
        let mut times = Vec::with_capacity(samples as usize);
        for window in 0..samples as u32 {
            let from = clock.now();
            for trip in 0..TRIPS {
                let mine = 2 * (window * TRIPS + trip) + odd;
                while line.0.load(Ordering::Acquire) != mine {
                    std::hint::spin_loop();
                }
                line.0.store(mine.wrapping_add(1), Ordering::Release);
            }
            times.push((clock.now() - from).0 / u64::from(2 * TRIPS));
        }
        times
    };
    Ok(on_two(cpus, || bounce(1), || bounce(0))?.1)
}

/// What a message through a ring costs.
#[derive(Debug, Clone, Default)]
pub struct MessageTimes {
    /// Putting one in and taking it out on one core; the mean of 500.
    pub local: Vec<u64>,
    /// From one core to another that polls; the mean over 500 round trips.
    pub across: Vec<u64>,
}

/// Sends messages through rings like those that threads travel through.
///
/// # Errors
/// When a CPU cannot be used.
pub fn message(cpus: [usize; 2], samples: u64) -> Result<MessageTimes, Error> {
    const TRIPS: u64 = 500;
    type Message = [u64; 6]; // the size of a lightweight thread's handle
    let clock = Clock::start();
    let ((to_far, mut at_far), (to_near, mut at_near)) = (ring::<Message>(8), ring::<Message>(8));
    let far = move || {
        for _ in 0..samples * TRIPS {
            let message = take(|| at_far.pop());
            let _ = to_near.push(message); // there is only one under way
        }
    };
    let near = move || {
        let mut times = MessageTimes::default();
        for _ in 0..samples {
            let from = clock.now();
            for trip in 0..TRIPS {
                let _ = to_far.push([trip; 6]);
                take(|| at_near.pop());
            }
            times.across.push((clock.now() - from).0 / (2 * TRIPS));
        }
        let (sender, mut receiver) = ring::<Message>(8);
        for _ in 0..samples {
            let from = clock.now();
            for trip in 0..TRIPS {
                let _ = sender.push([trip; 6]);
                std::hint::black_box(receiver.pop());
            }
            times.local.push((clock.now() - from).0 / TRIPS);
        }
        times
    };
    Ok(on_two(cpus, far, near)?.1)
}

fn take<T>(mut pop: impl FnMut() -> Option<T>) -> T {
    loop {
        match pop() {
            Some(value) => return value,
            None => std::hint::spin_loop(),
        }
    }
}

/// Moves a thread of a real runtime to and fro: each sample is from the end of its last poll on
/// one core to the start of its first on the other.
///
/// `dozing` lets the second core doze whenever it has no thread, as Sandman does, so that each
/// move there wakes it; only these are counted then.
///
/// # Errors
/// When the runtime cannot start.
pub fn moves(cpus: [usize; 2], samples: u64, dozing: Option<Strategy>) -> Result<Vec<u64>, Error> {
    let times = Arc::new(Mutex::new(Vec::with_capacity(samples as usize)));
    let left = Arc::new(AtomicU64::new(samples));
    let task = Traveller {
        clock: Clock::start(),
        last: None,
        outward: dozing.is_some(),
        times: Vec::with_capacity(samples as usize),
        result: Arc::clone(&times),
        left: Arc::clone(&left),
        home: None,
    };
    let mut config = Config::new(cpus.to_vec(), Box::new(Shuttle { dozing: dozing.is_some() }));
    config.wait = dozing;
    let runtime = Runtime::start(config, vec![Box::new(task)])?;
    while left.load(Ordering::Acquire) > 0 && runtime.failed().is_none() {
        thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(runtime);
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut times))
}

/// Records how long it was under way.
struct Traveller {
    clock: Clock,
    /// Where and when it was polled last.
    last: Option<(ThreadId, Nanos)>,
    /// The core it began on.
    home: Option<ThreadId>,
    /// Counts only moves away from there.
    outward: bool,
    times: Vec<u64>,
    result: Arc<Mutex<Vec<u64>>>,
    left: Arc<AtomicU64>,
}

impl Task for Traveller {
    fn poll(&mut self, _: Nanos) -> usize {
        let (now, here) = (self.clock.now(), thread::current().id());
        let home = *self.home.get_or_insert(here);
        let left = self.left.load(Ordering::Relaxed);
        if let Some((there, end)) = self.last
            && there != here
            && left > 0
            && !(self.outward && here == home)
        {
            self.times.push((now - end).0);
            if left == 1
                && let Ok(mut result) = self.result.lock()
            {
                *result = std::mem::take(&mut self.times);
            }
            self.left.store(left - 1, Ordering::Release);
        }
        self.last = Some((here, self.clock.now()));
        0
    }
    fn requests(&self) -> u64 {
        0
    }
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Moves thread 0 to the other core at every fine step.
struct Shuttle {
    dozing: bool,
}

impl Scheduler for Shuttle {
    fn name(&self) -> &'static str {
        "shuttle"
    }
    fn start(&mut self, placement: &mut Placement) {
        if self.dozing {
            placement.set_wait(1, Wait::Doze, "probe:doze");
        }
    }
    fn fine_period(&self) -> Option<Nanos> {
        Some(DWELL)
    }
    fn fine(&mut self, _: &Queues<'_>, placement: &mut Placement) {
        let to = 1 - placement.core_of()[0];
        placement.move_thread(0, to, "probe:move");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::two_cpus;
    use super::*;

    #[test]
    fn every_measurement_ends_with_as_many_samples() {
        let Some(cpus) = two_cpus() else { return };
        for way in Way::all().filter(|way| way.check().is_ok()) {
            let times = wake(way, cpus, 20).unwrap();
            assert_eq!([times.entry.len(), times.sender.len(), times.wake.len()], [20; 3]);
        }
        assert!(wake_up(cpus[0]).unwrap() > Nanos::ZERO);
        assert_eq!(ping_pong(cpus, 2).unwrap().len(), 2);
        let message = message(cpus, 2).unwrap();
        assert_eq!([message.local.len(), message.across.len()], [2; 2]);
        assert_eq!(moves(cpus, 20, None).unwrap().len(), 20);
        assert_eq!(moves(cpus, 20, Some(Strategy::best())).unwrap().len(), 20);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let Some([cpu, _]) = two_cpus() else { return };
        let error = ping_pong([cpu, 1023], 1).unwrap_err().to_string();
        assert!(error.contains("1023"), "{error}");
    }
}
