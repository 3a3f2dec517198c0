//! Connections without sockets: bytes that travel when the scheduler says so, in pieces of any
//! size; buffers that fill; goodbyes in one direction, resets in both.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_target::controller::Wake;
use ebb_target::transport::{Interest, Network, Places, Ready};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Connections told of in one look, as many as the real one.
const EVENTS: usize = 64;

/// One direction of a connection.
#[derive(Debug)]
struct Flow {
    /// Sent, not arrived.
    flight: VecDeque<u8>,
    arrived: VecDeque<u8>,
    /// Bytes in both; more must wait.
    capacity: usize,
    /// The sender has said goodbye; whether that has arrived.
    ended: bool,
    end_arrived: bool,
}

impl Flow {
    fn new(capacity: usize) -> Self {
        Self {
            flight: VecDeque::new(),
            arrived: VecDeque::new(),
            capacity,
            ended: false,
            end_arrived: false,
        }
    }

    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.flight.len() + self.arrived.len())
    }

    fn is_under_way(&self) -> bool {
        !self.flight.is_empty() || self.ended != self.end_arrived
    }

    fn deliver(&mut self, most: usize) {
        let count = most.min(self.flight.len());
        self.arrived.extend(self.flight.drain(..count));
        self.end_arrived = self.ended && self.flight.is_empty();
    }
}

#[derive(Debug)]
struct State {
    random: Pcg64Mcg,
    /// To the target.
    up: Flow,
    /// To the host.
    down: Flow,
    reset: bool,
    host_left: bool,
    /// When the target closed it.
    target_left: Option<u64>,
}

impl State {
    /// How many of `most` bytes one call moves, at least one: mostly all.
    fn some(&mut self, most: usize) -> usize {
        if self.random.random_ratio(3, 4) { most } else { self.random.random_range(1..=most) }
    }
}

/// A connection, seen by the host, the target and the network in between.
#[derive(Debug)]
pub struct Pipe {
    /// Of the target's addresses, that by which the host came.
    pub port: usize,
    state: Mutex<State>,
    steps: Arc<AtomicU64>,
}

fn take(flow: &mut Flow, into: &mut [IoSliceMut<'_>], mut count: usize) {
    for slice in into {
        let here = slice.len().min(count);
        let (front, back) = flow.arrived.as_slices();
        let first = front.len().min(here);
        slice[..first].copy_from_slice(&front[..first]);
        slice[first..here].copy_from_slice(&back[..here - first]);
        flow.arrived.drain(..here);
        count -= here;
    }
}

impl Pipe {
    fn new(steps: &Arc<AtomicU64>, seed: u64, capacity: usize, port: usize) -> Arc<Self> {
        let state = State {
            random: Pcg64Mcg::seed_from_u64(seed),
            up: Flow::new(capacity),
            down: Flow::new(capacity),
            reset: false,
            host_left: false,
            target_left: None,
        };
        Arc::new(Self { port, state: Mutex::new(state), steps: steps.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The host sends what fits of `bytes`. How many did.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        if state.reset || state.up.ended || bytes.is_empty() {
            return 0;
        }
        let most = bytes.len().min(state.up.room());
        if most == 0 {
            return 0;
        }
        let count = state.some(most);
        state.up.flight.extend(&bytes[..count]);
        count
    }

    /// The host takes up to `most` bytes. False once there will be no more.
    pub fn receive(&self, into: &mut Vec<u8>, most: usize) -> bool {
        let mut state = self.state();
        if state.reset {
            return false;
        }
        let count = most.min(state.down.arrived.len());
        into.extend(state.down.arrived.drain(..count));
        !(state.down.end_arrived && state.down.arrived.is_empty())
    }

    /// The host has said all, and goes on listening.
    pub fn end(&self) {
        self.state().up.ended = true;
    }

    /// The host closes it: orderly, or as its crash would.
    pub fn close(&self, orderly: bool) {
        let mut state = self.state();
        state.host_left = true;
        state.up.ended = true;
        // Closing what has unread bytes sends a reset, as in Linux.
        state.reset |= !orderly || !state.down.arrived.is_empty();
    }

    /// When the target closed it, in steps.
    pub fn target_left(&self) -> Option<u64> {
        self.state().target_left
    }

    /// Moves something on, if anything is under way.
    fn travel(&self) -> bool {
        let mut state = self.state();
        let state = &mut *state;
        let upwards = state.random.random::<bool>();
        let flow = match (upwards, state.up.is_under_way(), state.down.is_under_way()) {
            (true, true, _) | (false, true, false) => &mut state.up,
            (_, false, false) => return false,
            _ => &mut state.down,
        };
        let all = flow.flight.len();
        let count = match state.random.random_range(0..8) {
            0 => state.random.random_range(0..=all),
            1 => state.random.random_range(0..=all.min(100)),
            _ => all,
        };
        flow.deliver(count);
        if state.host_left && !state.down.arrived.is_empty() {
            state.reset = true; // Nobody is there to take it.
        }
        true
    }

    fn is_over(&self) -> bool {
        let state = self.state();
        state.target_left.is_some() && state.host_left
    }
}

/// The target's end of a connection.
pub struct Stream(Arc<Pipe>);

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.target_left = Some(self.0.steps.load(Ordering::Relaxed));
        state.down.ended = true;
        let unread = !state.up.arrived.is_empty() || !state.up.flight.is_empty();
        if unread && state.random.random() {
            state.reset = true;
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut state = self.0.state();
        if state.reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if state.random.random_ratio(1, 64) {
            return Err(ErrorKind::Interrupted.into());
        }
        let room = into.iter().map(|slice| slice.len()).sum();
        let most = state.up.arrived.len().min(room);
        if most == 0 {
            let end = state.up.end_arrived && state.up.arrived.is_empty();
            return if end { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let count = state.some(most);
        take(&mut state.up, into, count);
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.0.state();
        if state.reset {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if state.random.random_ratio(1, 64) {
            return Err(ErrorKind::Interrupted.into());
        }
        let offered: usize = from.iter().map(|slice| slice.len()).sum();
        let most = offered.min(state.down.room());
        if most == 0 {
            return if offered == 0 { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let count = state.some(most);
        let mut left = count;
        for slice in from {
            let here = slice.len().min(left);
            state.down.flight.extend(&slice[..here]);
            left -= here;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connections left for one group.
pub type Inbox = Arc<Mutex<VecDeque<Arc<Pipe>>>>;

/// What a group waits for.
pub type Watched = Arc<Mutex<Vec<(Arc<Pipe>, usize, Interest)>>>;

/// Addresses that the target may listen on.
pub const PORTS: usize = 2;

/// One of them.
pub fn address(port: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4420 + port as u16))
}

/// The connections of one group: in the place of sockets and epoll.
pub struct Wires {
    inbox: Inbox,
    watched: Watched,
    bell: Arc<AtomicBool>,
    random: Pcg64Mcg,
}

impl Wires {
    pub fn new(inbox: Inbox, seed: u64) -> Self {
        let (watched, random) = (Watched::default(), Pcg64Mcg::seed_from_u64(seed));
        Self { inbox, watched, bell: Arc::default(), random }
    }

    /// True once somebody else has woken the group.
    pub fn bell(&self) -> Arc<AtomicBool> {
        self.bell.clone()
    }

    /// For whoever wakes the group.
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }
}

/// Whether there is something for who waits for this.
pub fn has_news(watched: &Watched) -> bool {
    let watched = watched.lock().unwrap();
    let mut open = watched.iter().filter(|(pipe, _, _)| pipe.target_left().is_none());
    open.any(|(pipe, index, interest)| ready(pipe, *index, *interest).is_some())
}

fn ready(pipe: &Pipe, index: usize, interest: Interest) -> Option<Ready> {
    let state = pipe.state();
    let input = interest.input && (!state.up.arrived.is_empty() || state.up.end_arrived);
    let output = interest.output && state.down.room() > 0;
    (input || output || state.reset).then_some(Ready { index, input, broken: state.reset })
}

impl Network for Wires {
    type Stream = Stream;

    fn accept(&mut self) -> Option<Stream> {
        self.inbox.lock().unwrap().pop_front().map(Stream)
    }

    fn local(&self, stream: &Stream) -> Option<SocketAddr> {
        Some(address(stream.0.port))
    }

    fn peer(&self, _stream: &Stream) -> Option<SocketAddr> {
        None
    }

    fn wake(&self) -> Wake {
        let bell = self.bell.clone();
        Arc::new(move || bell.store(true, Ordering::Relaxed))
    }

    fn add(&mut self, stream: &Stream, index: usize) -> io::Result<()> {
        let mut watched = self.watched.lock().unwrap();
        watched.retain(|(_, other, _)| *other != index);
        let interest = Interest { input: true, output: false };
        watched.push((stream.0.clone(), index, interest));
        Ok(())
    }

    fn watch(&mut self, stream: &Stream, index: usize, interest: Interest) -> io::Result<()> {
        for (pipe, other, old) in self.watched.lock().unwrap().iter_mut() {
            if *other == index {
                assert!(Arc::ptr_eq(pipe, &stream.0), "another connection's number");
                *old = interest;
            }
        }
        Ok(())
    }

    fn look(&mut self, into: &mut Vec<Ready>) -> usize {
        let mut watched = self.watched.lock().unwrap();
        watched.retain(|(pipe, _, _)| pipe.target_left().is_none());
        let count = watched.len();
        if count == 0 {
            return 0;
        }
        // Events come in any order, and no more than so many at once.
        let first = self.random.random_range(0..count);
        let before = into.len();
        for at in (first..count).chain(0..first) {
            let (pipe, index, interest) = &watched[at];
            into.extend(ready(pipe, *index, *interest));
            if into.len() - before == EVENTS {
                break;
            }
        }
        into.len() - before
    }

    fn watch_device(&mut self, _device: BorrowedFd<'_>) -> io::Result<()> {
        Ok(()) // Nobody sleeps on this.
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// All there is between hosts and target.
pub struct Fabric {
    pipes: Vec<Arc<Pipe>>,
    inboxes: Vec<Inbox>,
    next: usize,
    /// Of all groups.
    pub places: Arc<Places>,
    limit: u32,
    steps: Arc<AtomicU64>,
}

impl Fabric {
    pub fn new(groups: usize, limit: u32, steps: &Arc<AtomicU64>) -> Self {
        Self {
            pipes: Vec::new(),
            inboxes: (0..groups).map(|_| Inbox::default()).collect(),
            next: 0,
            places: Arc::new(Places::new(limit, groups)),
            limit,
            steps: steps.clone(),
        }
    }

    pub fn inbox(&self, group: usize) -> Inbox {
        self.inboxes[group].clone()
    }

    /// A new connection, as a listener deals them out, and the group it went to. `None` when
    /// there are too many.
    pub fn connect(
        &mut self,
        seed: u64,
        capacity: usize,
        port: usize,
    ) -> Option<(Arc<Pipe>, usize)> {
        if !self.places.wait() {
            return None;
        }
        let (pipe, group) = (Pipe::new(&self.steps, seed, capacity, port), self.next);
        self.next = (self.next + 1) % self.inboxes.len();
        self.inboxes[group].lock().unwrap().push_back(pipe.clone());
        self.pipes.push(pipe.clone());
        Some((pipe, group))
    }

    /// Lets bytes of some connection travel.
    pub fn travel(&mut self, random: &mut Pcg64Mcg) {
        let count = self.pipes.len();
        if count == 0 {
            return;
        }
        let first = random.random_range(0..count);
        for at in (first..count).chain(0..first).take(8) {
            if self.pipes[at].travel() {
                return;
            }
        }
        self.pipes.retain(|pipe| !pipe.is_over());
    }

    /// Whether a group has been left a connection that it has not taken.
    pub fn is_expected(&self, group: usize) -> bool {
        !self.inboxes[group].lock().unwrap().is_empty()
    }

    /// The target is gone, with all connections.
    pub fn cut(&mut self) {
        for inbox in &self.inboxes {
            inbox.lock().unwrap().drain(..).for_each(|pipe| drop(Stream(pipe)));
        }
        self.pipes.drain(..).for_each(|pipe| pipe.state().reset = true);
        self.places = Arc::new(Places::new(self.limit, self.inboxes.len()));
    }
}
