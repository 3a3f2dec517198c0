//! The thread that does what takes long, one after the other, so that no reactor waits for it.
//!
//! Strangers cause this work, so it is bounded: each connection has one piece at most, addresses
//! take turns, and none gets more of the thread than a burst and a share of its time. What nobody
//! waits for any more is not done.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::lock::lock;
use super::Wake;

/// The thread's time that an address may take at once: 64 queues with FFDHE-8192.
const BURST: Duration = Duration::from_secs(4);
/// After that, a fifth of the time.
const SHARE: u32 = 5;
/// Addresses told apart at once; more are treated as one.
const ADDRESSES: usize = 4096;
/// How nice the thread is: it must not take a reactor's time slices.
const NICE: i32 = 10;

/// Whom an address stands for: itself, or a network of IPv6 (RFC 6177 gives nobody less).
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Where the outcome of a piece of work comes.
pub(super) struct Pending<T>(Arc<Mutex<Option<T>>>);

impl<T> Pending<T> {
    /// The outcome, once it is there.
    pub fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }
}

struct Job {
    /// Does it and tells who waits.
    run: Box<dyn FnOnce() + Send>,
    /// Whether anybody waits.
    is_wanted: Box<dyn Fn() -> bool + Send>,
}

/// What an address has waiting, and has had.
struct Account<J> {
    jobs: VecDeque<J>,
    /// Time that it took and has not been given back, at `at`.
    taken: Duration,
    at: Instant,
}

impl<J> Account<J> {
    /// Gives back what time has passed.
    fn settle(&mut self, now: Instant) {
        let back = now.saturating_duration_since(self.at) / SHARE;
        (self.taken, self.at) = (self.taken.saturating_sub(back), now);
    }
}

/// Jobs by address.
struct Queue<J> {
    accounts: BTreeMap<IpAddr, Account<J>>,
    /// Whose turn was last.
    last: Option<IpAddr>,
    stop: bool,
}

impl<J> Queue<J> {
    fn new() -> Self {
        Self { accounts: BTreeMap::new(), last: None, stop: false }
    }

    /// Adds a job from `address`, whose others stay if `is_wanted`.
    fn add(&mut self, address: IpAddr, job: J, is_wanted: impl Fn(&J) -> bool, now: Instant) {
        let is_known = self.accounts.contains_key(&address);
        let is_full = !is_known && self.accounts.len() >= ADDRESSES;
        let address = if is_full { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { address };
        let new = || Account { jobs: VecDeque::new(), taken: Duration::ZERO, at: now };
        let account = self.accounts.entry(address).or_insert_with(new);
        account.jobs.retain(is_wanted);
        account.jobs.push_back(job);
    }

    /// The next job and its address, or how long until there may be one.
    fn next(&mut self, now: Instant) -> Result<(IpAddr, J), Option<Duration>> {
        self.accounts.retain(|_, account| {
            account.settle(now);
            !account.jobs.is_empty() || account.taken > Duration::ZERO
        });
        let last = self.last.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let after = self.accounts.range((Excluded(last), Unbounded)).map(|(address, _)| *address);
        let before = self.accounts.range(..=last).map(|(address, _)| *address);
        let turns: Vec<IpAddr> = after.chain(before).collect();
        let mut wait = None;
        for address in turns {
            let Some(account) = self.accounts.get_mut(&address) else { continue };
            if account.jobs.is_empty() {
                continue;
            }
            if account.taken < BURST {
                self.last = Some(address);
                return account.jobs.pop_front().map(|job| (address, job)).ok_or(None);
            }
            let left = (account.taken - BURST) * SHARE + Duration::from_millis(1);
            wait = Some(wait.map_or(left, |wait: Duration| wait.min(left)));
        }
        Err(wait)
    }

    /// A job of `address` took so long.
    fn charge(&mut self, address: IpAddr, time: Duration) {
        if let Some(account) = self.accounts.get_mut(&address) {
            account.taken += time;
        }
    }
}

struct Shared {
    queue: Mutex<Queue<Job>>,
    bell: Condvar,
}

/// The thread; ends when dropped.
pub(super) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it; `prepare` is what it does first, while nobody waits.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub fn start(prepare: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::new()), bell: Condvar::new() });
        let own = shared.clone();
        let body = move || {
            prepare();
            // As a courtesy; who forbids it is welcome to.
            let _ = rustix::process::setpriority_process(None, NICE);
            own.work();
        };
        let thread = std::thread::Builder::new().name("ebb-auth".into()).spawn(body)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Does `work` for whoever is at `address`, then calls `wake`.
    pub fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        address: IpAddr,
        wake: &Wake,
    ) -> Pending<T> {
        let pending = Pending(Arc::default());
        let (to, wake) = (Arc::downgrade(&pending.0), wake.clone());
        let waiting = to.clone();
        let is_wanted = Box::new(move || waiting.strong_count() > 0);
        let run = Box::new(move || {
            let outcome = work();
            if let Some(to) = to.upgrade() {
                *lock(&to) = Some(outcome);
                wake();
            }
        });
        let (job, is_wanted) = (Job { run, is_wanted }, |job: &Job| (job.is_wanted)());
        lock(&self.shared.queue).add(network(address), job, is_wanted, Instant::now());
        self.shared.bell.notify_one();
        pending
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        lock(&self.shared.queue).stop = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // If it panicked, that was said.
        }
    }
}

impl Shared {
    /// Until it is to stop.
    fn work(&self) {
        while let Some((address, job)) = self.next() {
            if (job.is_wanted)() {
                let before = own_time();
                (job.run)();
                lock(&self.queue).charge(address, own_time().saturating_sub(before));
            }
        }
    }

    /// The next job, when there is one; `None`: it is to stop.
    fn next(&self) -> Option<(IpAddr, Job)> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.stop {
                return None;
            }
            queue = match queue.next(Instant::now()) {
                Ok(next) => return Some(next),
                Err(None) => self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Err(Some(left)) => {
                    let waited = self.bell.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Time that this thread has run: what others take meanwhile is not its addresses' fault.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn addresses_take_turns_however_much_each_has() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        for job in 0..100 {
            queue.add(address(1), job, |_| true, now);
        }
        queue.add(address(2), 1000, |_| true, now);
        queue.add(address(3), 2000, |_| true, now);
        let next = |queue: &mut Queue<i32>| queue.next(now).unwrap().1;
        assert_eq!([(); 6].map(|()| next(&mut queue)), [0, 1000, 2000, 1, 2, 3]);
        queue.add(address(2), 1001, |_| true, now);
        assert_eq!(next(&mut queue), 1001);
    }

    #[test]
    fn an_address_gets_a_burst_and_then_its_share() {
        let (mut queue, start) = (Queue::new(), Instant::now());
        let piece = Duration::from_millis(100);
        let mut now = start;
        let mut done = 0;
        // One that always has more to do, for a minute of the thread's time.
        while now - start < Duration::from_secs(60) {
            queue.add(address(1), (), |()| true, now);
            match queue.next(now) {
                Ok((address, ())) => {
                    queue.charge(address, piece);
                    (done, now) = (done + 1, now + piece);
                }
                Err(left) => now += left.unwrap(),
            }
            // Another is never kept waiting.
            queue.add(address(2), (), |()| true, now);
            let turns: Vec<_> = (0..2).filter_map(|_| Some(queue.next(now).ok()?.0)).collect();
            assert!(turns.contains(&address(2)), "{turns:?}");
        }
        let share = Duration::from_secs(60) / SHARE + BURST;
        assert!(piece * done <= share + piece * 3, "{done}");
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        for job in 0..1000 {
            queue.add(address(1), job, |_| false, now);
        }
        assert_eq!(queue.accounts[&address(1)].jobs, [999]);
        queue.next(now).unwrap();
        assert_eq!(queue.next(now).err(), Some(None));
        assert!(queue.accounts.is_empty());
    }

    #[test]
    fn there_are_not_more_accounts_than_may_be() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        for number in 0..10_000_u32 {
            queue.add(IpAddr::from(number.to_be_bytes()), number, |_| true, now);
        }
        assert_eq!(queue.accounts.len(), ADDRESSES + 1);
        let all = std::iter::from_fn(|| queue.next(now).ok()).count();
        assert_eq!(all, 10_000);
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
