//! Model-checks the rings and the sleep/wake protocol with loom: the very sources of the runtime,
//! compiled against loom's atomics, in every interleaving and with every value that the memory
//! model allows a load to see. A lost wake-up shows as a deadlock, a lost message as a count.
#![allow(clippy::expect_used)]

/// What `src/reactor/sync.rs` is, made of loom's types.
mod sync {
    #[allow(clippy::unsafe_removed_from_name)] // The name of the source under test.
    pub use loom::cell::UnsafeCell as Cell;
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

    #[derive(Debug, Default)]
    pub struct Padded<T>(pub T);
}

#[allow(dead_code)]
#[path = "../src/reactor/bell.rs"]
mod bell;
#[allow(dead_code)]
#[path = "../src/reactor/ring.rs"]
mod ring;

use bell::{AWAKE, BLOCKED, Bell, FUTEX, WATCHING};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use ring::{Receiver, Sender, ring};

/// Explores with at most this many preemptions: loom's authors find 2 or 3 catch nearly every
/// fault, and it keeps the check at seconds.
fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn two_senders_lose_and_repeat_nothing() {
    model(3, || {
        let (sender, mut receiver) = ring(2);
        let other = sender.clone();
        let senders = [
            thread::spawn(move || sender.push(1).expect("room")),
            thread::spawn(move || other.push(2).expect("room")),
        ];
        let mut sum = 0;
        for _ in 0..2 {
            sum += receiver.pop().unwrap_or(0);
        }
        for sender in senders {
            sender.join().expect("no panic");
        }
        while let Some(value) = receiver.pop() {
            sum += value;
        }
        assert_eq!((sum, receiver.is_empty()), (3, true));
    });
}

/// Two values go round between two cores: neither ring, with room for two, is ever full.
#[test]
fn a_ring_with_room_for_all_is_never_full() {
    model(3, || {
        let ((to_a, mut from_b), (to_b, mut from_a)) = (ring::<u32>(2), ring::<u32>(2));
        to_a.push(1).expect("room");
        to_a.push(2).expect("room");
        let back = to_a.clone();
        let b = thread::spawn(move || {
            for _ in 0..3 {
                if let Some(value) = from_a.pop() {
                    back.push(value).expect("room");
                }
            }
            from_a
        });
        for _ in 0..3 {
            if let Some(value) = from_b.pop() {
                to_b.push(value).expect("room");
            }
        }
        let mut from_a = b.join().expect("no panic");
        let rest = std::iter::from_fn(|| from_a.pop().or_else(|| from_b.pop()));
        assert_eq!(rest.sum::<u32>(), 3);
    });
}

/// The kernel's part: it sleeps only if the word still is as announced, or an event has come.
#[derive(Default)]
struct Kernel {
    events: Mutex<u32>,
    wake: Condvar,
}

impl Kernel {
    fn futex_wait(&self, bell: &Bell) {
        let events = self.events.lock().expect("no panic");
        if bell.word().load(Ordering::SeqCst) == FUTEX {
            drop(self.wake.wait(events).expect("no panic"));
        }
    }
    /// Edge-triggered, as the door is: an event is kept until it is waited for.
    fn epoll_wait(&self) {
        let mut events = self.events.lock().expect("no panic");
        while *events == 0 {
            events = self.wake.wait(events).expect("no panic");
        }
        *events = 0;
    }
    fn wake(&self, how: u32) {
        let mut events = self.events.lock().expect("no panic");
        if how == BLOCKED {
            *events += 1;
        }
        self.wake.notify_all();
    }
}

struct Core {
    bell: Bell,
    kernel: Kernel,
}

impl Core {
    fn new() -> Arc<Self> {
        Arc::new(Self { bell: Bell::default(), kernel: Kernel::default() })
    }
    fn ring(&self) {
        let how = self.bell.ring();
        if how == FUTEX || how == BLOCKED {
            self.kernel.wake(how);
        }
    }
    /// Sleeps as `Waiter::futex`, `Waiter::watch` and `Gate::block` do, without a deadline.
    fn sleep(&self, how: u32, published: impl FnOnce() -> bool) {
        let first = if how == BLOCKED { BLOCKED } else { WATCHING };
        self.bell.announce(first);
        if !published() {
            match how {
                BLOCKED => self.kernel.epoll_wait(),
                FUTEX if self.bell.deepen() => {
                    while !self.bell.is_rung() {
                        self.kernel.futex_wait(&self.bell);
                    }
                }
                _ => {
                    while !self.bell.is_rung() {
                        thread::yield_now();
                    }
                }
            }
        }
        self.bell.retract();
    }
}

/// `senders` publish and ring once each; the sleeper must get all of it, sleeping whenever it
/// finds nothing.
fn nobody_sleeps_through(how: u32, senders: u32, preemptions: usize) {
    model(preemptions, move || {
        let core = Core::new();
        let (sender, mut receiver) = ring(senders as usize);
        let handles: Vec<_> = (0..senders)
            .map(|value| {
                let (core, sender) = (Arc::clone(&core), sender.clone());
                thread::spawn(move || {
                    sender.push(value).expect("room");
                    core.ring();
                })
            })
            .collect();
        let mut got = 0;
        while got < senders {
            match receiver.pop() {
                Some(_) => got += 1,
                None => core.sleep(how, || !receiver.is_empty()),
            }
        }
        for handle in handles {
            handle.join().expect("no panic");
        }
        assert_eq!(core.bell.word().load(Ordering::SeqCst), AWAKE);
    });
}

#[test]
fn no_wake_up_is_lost_on_a_watched_line() {
    nobody_sleeps_through(WATCHING, 1, 4);
    nobody_sleeps_through(WATCHING, 2, 2);
}

#[test]
fn no_wake_up_is_lost_in_a_futex() {
    nobody_sleeps_through(FUTEX, 1, 4);
    nobody_sleeps_through(FUTEX, 2, 2);
}

#[test]
fn no_wake_up_is_lost_when_blocked() {
    nobody_sleeps_through(BLOCKED, 1, 4);
    nobody_sleeps_through(BLOCKED, 2, 2);
}

/// A core's side of `reactor/shared.rs`: orders are state, threads travel.
struct Side {
    me: u32,
    inbox: Receiver<()>,
    has: bool,
    seen: u32,
}

struct Board {
    home: AtomicU32,
    orders: [AtomicU32; 2],
    inboxes: [Sender<()>; 2],
}

impl Side {
    /// `Reactor::obey` and `Reactor::receive` for the one thread there is.
    fn turn(&mut self, board: &Board) {
        let orders = board.orders[self.me as usize].load(Ordering::Acquire);
        if orders != self.seen {
            self.seen = orders;
            if self.has && board.home.load(Ordering::Acquire) != self.me {
                self.has = false;
                self.send(board);
            }
        }
        while self.inbox.pop().is_some() {
            assert!(!self.has, "there is only one of it");
            if board.home.load(Ordering::Acquire) == self.me {
                self.has = true;
            } else {
                self.send(board);
            }
        }
    }
    fn send(&self, board: &Board) {
        let home = board.home.load(Ordering::Acquire);
        board.inboxes[home as usize].push(()).expect("room");
    }
}

/// The main core sends a thread to and fro faster than it travels: in the end it is at home.
#[test]
fn a_thread_comes_home_however_often_it_is_sent_away() {
    model(3, || {
        let ((to_0, inbox_0), (to_1, inbox_1)) = (ring(1), ring(1));
        let board = Arc::new(Board {
            home: AtomicU32::new(0),
            orders: [AtomicU32::new(0), AtomicU32::new(0)],
            inboxes: [to_0, to_1],
        });
        let run = |mut side: Side| {
            let board = Arc::clone(&board);
            thread::spawn(move || {
                for _ in 0..2 {
                    side.turn(&board);
                }
                side
            })
        };
        let sides = [
            run(Side { me: 0, inbox: inbox_0, has: true, seen: 0 }),
            run(Side { me: 1, inbox: inbox_1, has: false, seen: 0 }),
        ];
        for home in [1, 0, 1] {
            board.home.store(home, Ordering::Release);
            board.orders[1 - home as usize].fetch_add(1, Ordering::Release);
        }
        let mut sides = sides.map(|side| side.join().expect("no panic"));
        for _ in 0..3 {
            sides.iter_mut().for_each(|side| side.turn(&board));
        }
        assert_eq!(sides.map(|side| side.has), [false, true]);
    });
}
