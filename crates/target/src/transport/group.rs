//! A lightweight thread of the target: the connections it carries and its way to the devices.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ebb_policy::units::Nanos;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::Limits;
use super::connection::{Channels, Connection, Context};
use super::service::Service;
use crate::controller::Subsystem;
use crate::device::{Done, Pool};
use crate::reactor::{Clock, Task};

/// Bytes read from a socket at once.
const READ: usize = 256 << 10;
/// Sockets looked at in one poll.
const EVENTS: usize = 64;
/// Time between looks at deadlines.
const TICK: Nanos = Nanos::from_millis(500);
/// Event data of what is not a connection.
const INBOX: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;

/// Where a listener leaves connections for a group.
#[derive(Debug)]
pub struct Inbox {
    streams: Mutex<Vec<TcpStream>>,
    is_filled: AtomicBool,
    wake: OwnedFd,
}

impl Inbox {
    /// Leaves a connection, which must not block.
    ///
    /// # Errors
    /// When the group cannot be woken.
    pub fn leave(&self, stream: TcpStream) -> io::Result<()> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.is_filled.store(true, Ordering::Release);
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    fn empty(&self) -> Vec<TcpStream> {
        if !self.is_filled.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        // A spurious wake is harmless, a failed read means there was none.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

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

struct Peer {
    stream: TcpStream,
    connection: Connection,
    watched: epoll::EventFlags,
    is_dirty: bool,
}

/// One lightweight thread.
pub struct Group {
    subsystem: Arc<Subsystem>,
    limits: Limits,
    pool: Pool,
    channels: Channels,
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    counters: Arc<Counters>,
    service: Arc<Service>,
    clock: Option<Clock>,
    /// Connections across all groups.
    open: Arc<AtomicU64>,
    peers: Vec<Option<Peer>>,
    generation: u64,
    read: Vec<u8>,
    done: Vec<Done>,
    dirty: Vec<usize>,
    next_tick: Nanos,
    depth: u32,
    are_starved: bool,
}

impl Group {
    /// A group without connections. `open` counts the connections of all groups.
    ///
    /// # Errors
    /// When the system refuses what it needs, or a device does.
    pub fn new(
        subsystem: Arc<Subsystem>,
        limits: Limits,
        open: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(INBOX), epoll::EventFlags::IN)?;
        let mut list = Vec::new();
        for namespace in subsystem.namespaces() {
            let channel = namespace.device.open()?;
            if let Some(fd) = channel.wake_fd() {
                let data = epoll::EventData::new_u64(DEVICE);
                epoll::add(&epoll, fd, data, epoll::EventFlags::IN)?;
            }
            list.push((channel, 0));
        }
        let pool = Pool::new(limits.buffers, limits.max_transfer as usize);
        let inbox =
            Arc::new(Inbox { streams: Mutex::default(), is_filled: AtomicBool::new(false), wake });
        let namespaces = list.len();
        Ok(Self {
            subsystem,
            limits,
            pool,
            channels: Channels { list },
            epoll,
            inbox,
            counters: Arc::default(),
            service: Arc::new(Service::new(namespaces)),
            clock: None,
            open,
            peers: Vec::new(),
            generation: 0,
            read: vec![0; READ],
            done: Vec::with_capacity(256),
            dirty: Vec::new(),
            next_tick: Nanos::ZERO,
            depth: 0,
            are_starved: false,
        })
    }

    /// Where to leave connections for it.
    #[must_use]
    pub fn inbox(&self) -> Arc<Inbox> {
        self.inbox.clone()
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
    fn with(&mut self, index: usize, now: Nanos, act: impl FnOnce(&mut Peer, &mut Context<'_>)) {
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
        for stream in self.inbox.empty() {
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
            let data = epoll::EventData::new_u64(index as u64);
            let watched = epoll::EventFlags::IN;
            if epoll::add(&self.epoll, &stream, data, watched).is_err() {
                self.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let connection = Connection::new(tag, &self.limits, now);
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

    /// Tells epoll what a connection waits for, when that has changed.
    fn watch(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, peer.connection.wants_input());
        flags.set(epoll::EventFlags::OUT, !peer.connection.sender.is_empty());
        if flags != peer.watched {
            peer.watched = flags;
            let data = epoll::EventData::new_u64(index as u64);
            if epoll::modify(&self.epoll, &peer.stream, data, flags).is_err() {
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
            let is_starved = |peer: &Peer| peer.connection.is_starved();
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

    /// Looks at the sockets. How many had something.
    fn look(&mut self, now: Nanos) -> usize {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        // An interrupted look finds nothing; the next one will.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&Timespec::default()))
        else {
            return 0;
        };
        for event in &*events {
            let (flags, data) = (event.flags, event.data.u64());
            match data {
                INBOX => self.accept(now),
                DEVICE => {}
                _ if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) => {
                    self.close(data as usize);
                }
                _ if flags.contains(epoll::EventFlags::IN) => self.read(data as usize, now),
                _ => self.with(data as usize, now, |_, _| {}),
            }
        }
        events.len()
    }
}

impl Task for Group {
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
        Some(self.epoll.as_fd())
    }

    fn deadline(&self) -> Option<Nanos> {
        (self.counters.connections.load(Ordering::Relaxed) > 0).then_some(self.next_tick)
    }
}
