//! A lightweight thread of the target: the connections it carries and its way to the devices.

use std::io::{self, IoSliceMut, Read};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_policy::units::Nanos;

use super::Limits;
use super::connection::{Channels, Connection, Context};
use super::network::{Inbox, Interest, Network, Ready, Sockets};
use super::service::Service;
use crate::controller::Subsystem;
use crate::device::{Done, Pool};
use crate::reactor::{Clock, Task};

/// Bytes read from a socket at once.
const READ: usize = 256 << 10;
/// Time between looks at deadlines.
const TICK: Nanos = Nanos::from_millis(500);

/// What a group counts, for others to read.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections now.
    pub connections: AtomicU64,
    /// Connections ever.
    pub accepted: AtomicU64,
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
    is_dirty: bool,
}

/// One lightweight thread.
pub struct Group<N: Network = Sockets> {
    subsystem: Arc<Subsystem>,
    limits: Limits,
    pool: Pool,
    channels: Channels,
    network: N,
    counters: Arc<Counters>,
    service: Arc<Service>,
    clock: Option<Clock>,
    /// Connections across all groups.
    open: Arc<AtomicU64>,
    peers: Vec<Option<Peer<N::Stream>>>,
    generation: u64,
    ready: Vec<Ready>,
    read: Vec<u8>,
    done: Vec<Done>,
    dirty: Vec<usize>,
    next_tick: Nanos,
    depth: u32,
    are_starved: bool,
}

impl Group {
    /// A group of TCP connections, none yet. `open` counts the connections of all groups.
    ///
    /// # Errors
    /// When the system refuses what it needs, or a device does.
    pub fn new(
        subsystem: Arc<Subsystem>,
        limits: Limits,
        open: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        Self::over(Sockets::new()?, subsystem, limits, open)
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
        open: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let mut list = Vec::new();
        for namespace in subsystem.namespaces() {
            let channel = namespace.device.open()?;
            if let Some(fd) = channel.wake_fd() {
                network.watch_device(fd)?;
            }
            list.push((channel, 0));
        }
        let pool = Pool::new(limits.buffers, limits.max_transfer as usize);
        let namespaces = list.len();
        Ok(Self {
            subsystem,
            limits,
            pool,
            channels: Channels { list },
            network,
            counters: Arc::default(),
            service: Arc::new(Service::new(namespaces)),
            clock: None,
            open,
            peers: Vec::new(),
            generation: 0,
            ready: Vec::new(),
            read: vec![0; READ],
            done: Vec::with_capacity(256),
            dirty: Vec::new(),
            next_tick: Nanos::ZERO,
            depth: 0,
            are_starved: false,
        })
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// What its I/O commands did and how long they took.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        self.service.clone()
    }

    /// Runs `act` on the connection `index` with what it works with.
    fn with(
        &mut self,
        index: usize,
        now: Nanos,
        act: impl FnOnce(&mut Peer<N::Stream>, &mut Context<'_>),
    ) {
        let Self { subsystem, limits, pool, channels, .. } = self;
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let mut context = Context { subsystem, limits, pool, channels, now };
        act(peer, &mut context);
        if !peer.is_dirty {
            peer.is_dirty = true;
            self.dirty.push(index);
        }
    }

    fn accept(&mut self, now: Nanos) {
        while let Some(stream) = self.network.accept() {
            let index = match self.peers.iter().position(Option::is_none) {
                Some(index) => index,
                None => {
                    self.peers.push(None);
                    self.peers.len() - 1
                }
            };
            self.generation = (self.generation + 1) & 0xffff_ffff;
            // Slot in bits 15:0, connection in 31:16, generation above: see `deliver`.
            let tag = self.generation << 32 | (index as u64) << 16;
            if self.network.add(&stream, index).is_err() {
                self.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let connection = Connection::new(tag, &self.limits, now);
            let watched = Interest { input: true, output: false };
            let peer = Peer { stream, connection, watched, is_dirty: false };
            self.peers[index] = Some(peer);
            add(&self.counters.connections, 1);
            add(&self.counters.accepted, 1);
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index).and_then(Option::take) {
            drop(peer);
            self.open.fetch_sub(1, Ordering::Relaxed);
            add(&self.counters.connections, u64::MAX);
        }
    }

    /// Reads what a socket has.
    fn read(&mut self, index: usize, now: Nanos) {
        let mut read = std::mem::take(&mut self.read);
        let mut is_closed = false;
        let mut received = 0;
        self.with(index, now, |peer, context| {
            if !peer.connection.wants_input() {
                return;
            }
            let direct = peer.connection.destination();
            let direct_length = direct.as_ref().map_or(0, |direct| direct.len());
            let result = match direct {
                None => peer.stream.read(&mut read),
                Some(direct) => {
                    let mut slices = [IoSliceMut::new(direct), IoSliceMut::new(&mut read)];
                    peer.stream.read_vectored(&mut slices)
                }
            };
            match result {
                Ok(0) => is_closed = true,
                Ok(count) => {
                    received = count;
                    if direct_length > 0 {
                        peer.connection.arrived(count.min(direct_length), context);
                    }
                    let rest = count.saturating_sub(direct_length);
                    peer.connection.receive(&read[..rest], context);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => is_closed = true,
            }
        });
        self.read = read;
        add(&self.counters.received, received as u64);
        if is_closed {
            self.close(index);
        }
    }

    /// Takes what the devices have done to the connections that asked for it.
    fn deliver(&mut self, now: Nanos) -> usize {
        let mut done = std::mem::take(&mut self.done);
        for (channel, under_way) in &mut self.channels.list {
            if *under_way > 0 {
                *under_way -= channel.poll(&mut done);
            }
        }
        let count = done.len();
        for done in done.drain(..) {
            let index = (done.tag >> 16) as usize & 0xffff;
            self.with(index, now, |peer, _| {
                let Connection { commands, sender, .. } = &mut peer.connection;
                // The connection that asked may be gone and another in its place.
                if commands.tag() == done.tag & !0xffff {
                    commands.done(done, sender);
                }
            });
        }
        self.done = done;
        count
    }

    /// Sends what the connections have to say.
    fn flush(&mut self, now: Nanos) {
        let mut answered = 0;
        let mut queued = None;
        for at in 0..self.dirty.len() {
            let index = self.dirty[at];
            let Some(Some(peer)) = self.peers.get_mut(index) else { continue };
            peer.is_dirty = false;
            self.depth += std::mem::take(&mut peer.connection.commands.received);
            answered += std::mem::take(&mut peer.connection.commands.answered);
            self.are_starved |= peer.connection.is_starved();
            let timed = &mut peer.connection.commands.timed;
            if !timed.is_empty() {
                let read = || self.clock.as_ref().map_or(now, Clock::now);
                self.service.record(timed, *queued.get_or_insert_with(read));
                timed.clear();
            }
            let sent = peer.connection.sender.flush(&mut peer.stream);
            if sent.is_err() || peer.connection.is_over() {
                self.close(index);
            } else {
                self.watch(index);
            }
        }
        self.dirty.clear();
        add(&self.counters.commands, answered);
    }

    /// Tells the network what a connection waits for, when that has changed.
    fn watch(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let input = peer.connection.wants_input();
        let wanted = Interest { input, output: !peer.connection.sender.is_empty() };
        if wanted != peer.watched {
            peer.watched = wanted;
            if self.network.watch(&peer.stream, index, wanted).is_err() {
                self.close(index);
            }
        }
    }

    /// Goes on with connections that waited for buffers. How many moved.
    fn feed_starved(&mut self, now: Nanos) -> usize {
        let mut count = 0;
        for index in 0..self.peers.len() {
            if self.pool.available() == 0 {
                break;
            }
            let is_starved = |peer: &Peer<N::Stream>| peer.connection.is_starved();
            if self.peers[index].as_ref().is_some_and(is_starved) {
                self.with(index, now, |peer, context| peer.connection.resume(context));
                count += 1;
            }
        }
        self.are_starved = self.peers.iter().flatten().any(|peer| peer.connection.is_starved());
        count
    }

    fn tick(&mut self, now: Nanos) {
        self.next_tick = now + TICK;
        for index in 0..self.peers.len() {
            let mut is_overdue = false;
            self.with(index, now, |peer, context| is_overdue = !peer.connection.tick(context));
            if is_overdue {
                self.close(index);
            }
        }
    }

    /// Looks at the network. How many events there were.
    fn look(&mut self, now: Nanos) -> usize {
        let mut ready = std::mem::take(&mut self.ready);
        let count = self.network.look(&mut ready);
        self.accept(now);
        for one in ready.drain(..) {
            match one {
                Ready { index, broken: true, .. } => self.close(index),
                Ready { index, input: true, .. } => self.read(index, now),
                Ready { index, .. } => self.with(index, now, |_, _| {}),
            }
        }
        self.ready = ready;
        count
    }
}

impl<N: Network> Task for Group<N> {
    fn begin(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    fn poll(&mut self, now: Nanos) -> usize {
        self.depth = 0;
        let mut count = self.look(now);
        count += self.deliver(now);
        if now >= self.next_tick {
            self.tick(now);
        }
        self.flush(now);
        if self.are_starved {
            count += self.feed_starved(now);
            self.flush(now);
        }
        if count > 0 {
            let under_way = self.channels.list.iter().map(|(_, under_way)| *under_way as u64).sum();
            self.counters.under_way.store(under_way, Ordering::Relaxed);
        }
        count
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn requests(&self) -> u64 {
        self.counters.commands.load(Ordering::Relaxed)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.network.wake_fd()
    }

    fn deadline(&self) -> Option<Nanos> {
        (self.counters.connections.load(Ordering::Relaxed) > 0).then_some(self.next_tick)
    }
}
