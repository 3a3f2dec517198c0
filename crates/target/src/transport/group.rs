//! A lightweight thread of the target: the connections it carries and its way to the devices.

mod ends;
mod orders;
mod waiting;

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebb_policy::units::Nanos;

use super::Limits;
use super::connection::Connection;
use super::context::{Channels, Context};
use super::ledger::Ledger;
use super::network::{Inbox, Interest, Network, Ready, Sockets};
use super::places::Places;
use super::remains::Remains;
use super::service::Service;
use super::steward::Steward;
use super::turns::{Hosts, STRANGERS};
use crate::controller::Subsystem;
use crate::device::Done;
use crate::reactor::{Clock, Task, Waiting};

/// Bytes read from a socket at once.
const READ: usize = 256 << 10;
/// Bytes that the connections of a group leave untaken before each is read in small pieces.
const LEFT: usize = 1 << 20;
/// Such a piece.
const PIECE: usize = 16 << 10;
/// The most bytes for reading and for what is left of it, apart from a piece of each connection.
pub(super) const MOST_LEFT: usize = LEFT + 2 * READ;
/// Bytes that a host may move in one round while it is alone, and while it is not.
const TURN_ALONE: u32 = 1 << 20;
const TURN: u32 = 64 << 10;
/// Time between looks at deadlines.
const TICK: Nanos = Nanos::from_millis(500);
/// The same while commands wait for buffers: who waits for what somebody keeps is to have it within
/// a second.
const SHORT_TICK: Nanos = Nanos::from_millis(125);
/// Connections of one group: what their place in a tag holds.
const MOST_PEERS: usize = 1 << 16;

/// The most bytes of memory that a connection with a queue of `depth` commands takes.
pub(super) const fn most_memory_of_connection(depth: usize) -> usize {
    size_of::<Option<Peer<super::secure::Stream>>>() + Connection::most_memory(depth) + PIECE
}

/// What a group counts, for others to read.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections now.
    pub connections: AtomicU64,
    /// Connections ever.
    pub accepted: AtomicU64,
    /// Connections closed for want of places: newcomers, and those that gave way to one.
    pub displaced: AtomicU64,
    /// Commands answered.
    pub commands: AtomicU64,
    /// Bytes read from sockets.
    pub received: AtomicU64,
    /// Requests the devices have and have not completed.
    pub under_way: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    // One writer: no read-modify-write is needed.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

struct Peer<S> {
    stream: S,
    connection: Connection,
    watched: Interest,
    /// Its host's number.
    host: usize,
    /// It has bytes to read.
    has_input: bool,
    /// It is in `Group::waiting` and `Group::dirty`.
    is_waiting: bool,
    is_dirty: bool,
}

/// One lightweight thread.
pub struct Group<N: Network = Sockets> {
    subsystem: Arc<Subsystem>,
    limits: Limits,
    ledger: Ledger,
    channels: Channels,
    network: N,
    counters: Arc<Counters>,
    service: Arc<Service>,
    clock: Option<Clock>,
    places: Arc<Places>,
    peers: Vec<Option<Peer<N::Stream>>>,
    generation: u64,
    ready: Vec<Ready>,
    read: Vec<u8>,
    /// Bytes of memory that connections have for what they left untaken.
    left: usize,
    done: Vec<Done>,
    hosts: Hosts,
    /// What devices have of connections that have ended.
    remains: Remains,
    /// Commands that waited for buffers are looked at again.
    resumes: bool,
    /// Deadlines were looked at in this poll; and when it began.
    is_tick: bool,
    now: Nanos,
    /// A device has stalled, or goes on again, since they were looked at last.
    is_news: bool,
    /// Connections that wait for their turn.
    waiting: VecDeque<usize>,
    /// Those that wait for their host's allowance, and when they are looked at again.
    held: Vec<usize>,
    held_until: Nanos,
    steward: Arc<Steward>,
    /// It takes no more connections.
    is_closed: bool,
    /// Authentications can go on.
    woken: Arc<AtomicBool>,
    /// Connections that were worked on and may have something to say.
    dirty: Vec<usize>,
    next_tick: Nanos,
    /// Requests that are known and not taken up: see [`Group::known`].
    known: Waiting,
    /// Of these, those of connections that come later in this round.
    behind: u32,
    /// I/O commands taken up in the last poll.
    taken: u32,
    /// I/O commands answered.
    requests: u64,
}

impl Group {
    /// A group of TCP connections, none yet, each of which has one of `places`.
    ///
    /// # Errors
    /// When the system refuses what it needs, or a device does.
    pub fn new(subsystem: Arc<Subsystem>, limits: Limits, places: Arc<Places>) -> io::Result<Self> {
        let sockets = Sockets::new(subsystem.clone())?;
        Self::over(sockets, subsystem, limits, places)
    }

    /// Where to leave connections for it.
    #[must_use]
    pub fn inbox(&self) -> Arc<Inbox> {
        self.network.inbox()
    }
}

impl<N: Network> Group<N> {
    /// A group of the connections that come over `network`.
    ///
    /// # Errors
    /// When the system refuses what it needs, or a device does.
    pub fn over(
        mut network: N,
        subsystem: Arc<Subsystem>,
        limits: Limits,
        places: Arc<Places>,
    ) -> io::Result<Self> {
        assert!(limits.buffers >= 4, "two for a Compare, as many for others");
        let ledger = Ledger::new(&limits, subsystem.places())?;
        let (woken, wake) = (Arc::new(AtomicBool::new(false)), network.wake());
        let rung = woken.clone();
        let steward = Steward::new(ledger.device_pools(), wake.clone());
        let wake = Arc::new(move || {
            rung.store(true, Ordering::Release);
            wake();
        });
        let pools = ledger.device_pools();
        let channels = Channels::open(&subsystem, pools, limits.silence, wake)?;
        channels.wake_fds().try_for_each(|fd| network.watch_device(fd))?;
        let namespaces = subsystem.places();
        Ok(Self {
            subsystem,
            limits,
            hosts: Hosts::new(ledger.lanes()),
            ledger,
            channels,
            network,
            counters: Arc::default(),
            service: Arc::new(Service::new(namespaces)),
            clock: None,
            places,
            peers: Vec::new(),
            generation: 0,
            ready: Vec::new(),
            read: vec![0; READ],
            left: 0,
            done: Vec::with_capacity(256),
            remains: Remains::default(),
            resumes: false,
            is_tick: false,
            now: Nanos::ZERO,
            is_news: false,
            waiting: VecDeque::new(),
            held: Vec::new(),
            held_until: Nanos::ZERO,
            steward,
            is_closed: false,
            woken,
            dirty: Vec::new(),
            next_tick: Nanos::ZERO,
            known: Waiting::default(),
            behind: 0,
            taken: 0,
            requests: 0,
        })
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Leaves orders for it.
    #[must_use]
    pub fn steward(&self) -> Arc<Steward> {
        self.steward.clone()
    }

    /// What its I/O commands did and how long they took.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        self.service.clone()
    }

    /// Buffers of all kinds that are held for hosts.
    #[must_use]
    pub fn held_buffers(&self) -> u32 {
        self.hosts.numbers().map(|number| self.ledger.held_by(number)).sum()
    }

    /// Runs `act` on the connection `index` with what it works with.
    fn with<T>(
        &mut self,
        index: usize,
        now: Nanos,
        act: impl FnOnce(&mut Peer<N::Stream>, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let Self { subsystem, limits, ledger, channels, known, behind, .. } = self;
        let peer = self.peers.get_mut(index)?.as_mut()?;
        let bytes = if subsystem.hosts() > 1 { TURN } else { TURN_ALONE };
        let (number, resumes, is_tick) = (peer.host, self.resumes, self.is_tick);
        let host = self.hosts.in_turn(number, bytes);
        let waited = host.waiting();
        let (known, behind) = (&*known, *behind);
        let mut context = Context {
            subsystem,
            limits,
            ledger,
            channels,
            host,
            number,
            resumes,
            is_tick,
            known,
            behind,
            now,
        };
        self.left -= peer.connection.left();
        let result = act(peer, &mut context);
        let waits = context.host.waiting();
        self.left += peer.connection.left();
        self.hosts.changed(waited, waits);
        if waits > waited {
            self.next_tick = self.next_tick.min(now + SHORT_TICK);
        }
        if !peer.is_dirty {
            peer.is_dirty = true;
            self.dirty.push(index);
        }
        Some(result)
    }

    /// Whether there is nobody to look for and nothing under way.
    fn is_deserted(&self) -> bool {
        self.counters.connections.load(Ordering::Relaxed) == 0 && self.channels.under_way() == 0
    }

    fn accept(&mut self, now: Nanos) {
        while let Some(stream) = self.network.accept() {
            if self.is_closed {
                self.places.leave();
                continue;
            }
            if !self.places.take() {
                add(&self.counters.displaced, 1);
                if !self.make_room() || !self.places.take() {
                    self.places.leave();
                    continue;
                }
            }
            let free = self.peers.iter().position(Option::is_none);
            let index = free.unwrap_or(self.peers.len());
            if index == MOST_PEERS || self.network.add(&stream, index).is_err() {
                self.places.give();
                continue;
            }
            if free.is_none() {
                self.peers.push(None);
            }
            self.generation = (self.generation + 1) & 0xffff_ffff;
            // Slot in bits 15:0, connection in 31:16, generation above: see `deliver`.
            let tag = self.generation << 32 | (index as u64) << 16;
            let ends = [self.network.local(&stream), self.network.peer(&stream)];
            let identified = self.network.identified(&stream);
            self.peers[index] = Some(Peer {
                stream,
                connection: Connection::new(tag, &self.limits, ends, identified, now),
                watched: Interest { input: true, output: false },
                host: STRANGERS,
                has_input: false,
                is_waiting: false,
                is_dirty: false,
            });
            add(&self.counters.connections, 1);
            add(&self.counters.accepted, 1);
        }
    }

    /// Closes who gives way to a newcomer, if anybody has to: who has been here longest without
    /// becoming a queue, else the latest I/O queue of a host with more than half of the places.
    fn make_room(&mut self) -> bool {
        let hog = self.hosts.hog(self.places.share());
        let peers = || {
            let filled = self.peers.iter().enumerate();
            filled.filter_map(|(index, peer)| Some((index, peer.as_ref()?)))
        };
        let age = |(_, peer): &(usize, &Peer<_>)| peer.connection.tag();
        let stranger = peers().filter(|(_, peer)| peer.host == STRANGERS).min_by_key(age);
        let is_its = |peer: &Peer<_>| Some(peer.host) == hog && peer.connection.is_io();
        let latest = || peers().filter(|(_, peer)| is_its(peer)).max_by_key(age);
        let Some((index, _)) = stranger.or_else(latest) else { return false };
        self.close(index);
        true
    }

    /// Looks at the network and queues who has something. How many events there were.
    fn look(&mut self, now: Nanos) -> usize {
        // First, as it uses up the wake-up of what is told of connections, too.
        self.accept(now);
        let mut ready = std::mem::take(&mut self.ready);
        let count = self.network.look(&mut ready);
        for Ready { index, input, broken } in ready.drain(..) {
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            if broken {
                self.close(index);
                continue;
            }
            peer.has_input |= input;
            wait(&mut self.waiting, index, &mut peer.is_waiting);
        }
        self.ready = ready;
        count
    }

    /// Requests that have come and wait for this thread to take them up: in bytes read and not
    /// taken, and one at least on each connection that has bytes to read. Not those that wait for a
    /// buffer or for their host to read its answers: no core makes them faster.
    fn known(&self) -> u32 {
        let peers = self.waiting.iter().filter_map(|index| self.peers.get(*index)?.as_ref());
        peers.filter(|peer| peer.is_waiting).map(|peer| peer.connection.known()).sum()
    }

    /// One round: who waits goes on, as far as its host's turn goes.
    fn serve(&mut self, now: Nanos) {
        self.hosts.next_round();
        self.behind = self.known();
        self.known.set(self.behind);
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else { break };
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            peer.is_waiting = false;
            self.behind = self.behind.saturating_sub(peer.connection.known());
            if let Some(until) = peer.connection.must_wait(now) {
                self.hold(index, until);
                continue;
            }
            let is_over = self.with(index, now, |_, context| context.host.turn == 0);
            if is_over == Some(false) {
                self.with(index, now, |peer, context| peer.connection.resume(context));
                self.read(index, now);
            } else if let Some(Some(peer)) = self.peers.get_mut(index) {
                wait(&mut self.waiting, index, &mut peer.is_waiting);
            }
        }
    }

    /// Reads what a socket has.
    fn read(&mut self, index: usize, now: Nanos) {
        let mut read = std::mem::take(&mut self.read);
        let is_roomy = self.left < LEFT;
        let received = self.with(index, now, |peer, context| {
            let may_read = peer.connection.wants_input() && context.host.turn > 0;
            if !may_read || !std::mem::take(&mut peer.has_input) {
                return Ok(0); // What TLS has read the network will not tell of again.
            }
            let most = if is_roomy && !peer.connection.expects_data() { READ } else { PIECE };
            let room = most.min(context.host.turn as usize);
            let buffer = &mut read[..room];
            let direct = peer.connection.destination();
            let direct_length = direct.as_ref().map_or(0, |direct| direct.len());
            let result = match direct {
                None => peer.stream.read(buffer),
                Some(direct) => {
                    let mut slices = [IoSliceMut::new(direct), IoSliceMut::new(buffer)];
                    peer.stream.read_vectored(&mut slices)
                }
            };
            let count = match result {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
                Err(error) => return Err(error),
            };
            context.host.turn = context.host.turn.saturating_sub(count as u32);
            if direct_length > 0 {
                peer.connection.arrived(count.min(direct_length), context);
            }
            // It had as much as there was room for: the network need not tell that it has more.
            peer.has_input = count == direct_length + room;
            let rest = count.saturating_sub(direct_length);
            peer.connection.receive(&buffer[..rest], context);
            Ok(count)
        });
        self.read = read;
        self.pay(index, now);
        match received {
            Some(Ok(count)) => add(&self.counters.received, count as u64),
            Some(Err(_)) => self.close(index),
            None => {}
        }
    }

    /// Takes what the devices have done to the connections that asked for it.
    fn deliver(&mut self, now: Nanos) -> usize {
        let mut done = std::mem::take(&mut self.done);
        if self.channels.poll(&mut done, now) {
            self.is_news = true;
            let stalled = self.channels.stalled().enumerate();
            stalled.for_each(|(at, is_stalled)| self.service.set_stalled(at, is_stalled));
        }
        let count = done.len();
        for done in done.drain(..) {
            if done.buffer.is_none() {
                self.hosts.completed(done.tag);
            }
            let index = index_of(done.tag);
            let is_there = |peer: &Peer<_>| peer.connection.takes(done.tag);
            if self.peers.get(index).and_then(Option::as_ref).is_some_and(is_there) {
                self.with(index, now, |peer, context| peer.connection.done(done, context));
            } else {
                self.remains.done(done.tag);
            }
        }
        self.done = done;
        count
    }

    /// Sends what the connections have to say, and queues them for what they need next.
    fn flush(&mut self, now: Nanos) {
        let mut answered = 0;
        let mut queued = None;
        for at in 0..self.dirty.len() {
            let index = self.dirty[at];
            self.part(index, now);
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            peer.is_dirty = false;
            let tally = peer.connection.tally();
            self.taken += tally.taken;
            answered += tally.answered;
            if !tally.timed.is_empty() {
                self.requests += tally.timed.len() as u64;
                let read = || self.clock.as_ref().map_or(now, Clock::now);
                self.service.record(tally.timed, *queued.get_or_insert_with(read));
                tally.timed.clear();
            }
            if peer.host == STRANGERS
                && let Some(host) = peer.connection.host()
            {
                peer.host = self.hosts.enter(host, |number| self.ledger.held_by(number) > 0);
                peer.connection.enter();
            }
            if !peer.connection.flush(&mut peer.stream) {
                self.close(index);
                continue;
            }
            if peer.connection.wants_turn() || peer.has_input && peer.connection.wants_input() {
                wait(&mut self.waiting, index, &mut peer.is_waiting);
            }
            self.watch(index);
        }
        self.dirty.clear();
        add(&self.counters.commands, answered);
    }

    /// Tells the network what a connection waits for, when that has changed.
    fn watch(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let input = peer.connection.wants_input();
        let wanted = Interest { input, output: peer.connection.has_output() };
        if wanted != peer.watched {
            peer.watched = wanted;
            if self.network.watch(&peer.stream, index, wanted).is_err() {
                self.close(index);
            }
        }
    }
}

/// Queues a connection once.
fn wait(queue: &mut VecDeque<usize>, index: usize, is_queued: &mut bool) {
    if !std::mem::replace(is_queued, true) {
        queue.push_back(index);
    }
}

/// The connection that a command belongs to.
fn index_of(command: u64) -> usize {
    (command >> 16) as usize & 0xffff
}

impl<N: Network> Task for Group<N> {
    fn begin(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    fn poll(&mut self, now: Nanos) -> usize {
        (self.taken, self.is_tick, self.now) = (0, false, now);
        let obeyed = self.obey();
        if self.is_deserted() {
            self.accept(now);
            if self.is_deserted() {
                return obeyed;
            }
        }
        let mut count = obeyed + self.look(now);
        self.release(now);
        if self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel) {
            self.join(now);
            self.find_ended(now);
        }
        self.serve(now);
        count += self.slice(now);
        count += self.deliver(now);
        self.bequeath();
        if now >= self.next_tick {
            self.is_tick = true;
            self.tick(now);
        }
        self.flush(now);
        if self.hosts.anybody_starves() {
            count += self.feed(now);
            self.flush(now);
        }
        self.known.set(self.known());
        if count > 0 {
            self.counters.under_way.store(self.channels.under_way(), Ordering::Relaxed);
        }
        count + self.waiting.len()
    }

    fn waiting(&self) -> Waiting {
        self.known.clone()
    }

    fn taken(&self) -> u32 {
        self.taken
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn latency(&self) -> Nanos {
        self.service.time()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.network.wake_fd()
    }

    fn deadline(&self) -> Option<Nanos> {
        let tick =
            (self.counters.connections.load(Ordering::Relaxed) > 0).then_some(self.next_tick)?;
        Some(if self.held.is_empty() { tick } else { tick.min(self.held_until) })
    }
}
