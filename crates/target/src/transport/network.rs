//! Where a group's connections come from and how it learns that they have something: sockets and
//! epoll, or whatever a simulation puts in their place.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_nvme::tls::Security;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::secure::{Guarded, Identified, Stream, Tell};
use crate::controller::{Subsystem, Wake};

/// Sockets looked at in one poll.
const EVENTS: usize = 64;
/// Event data of what is not a connection.
const INBOX: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Bytes from the peer.
    pub input: bool,
    /// Room for bytes to the peer.
    pub output: bool,
}

/// A connection that has something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The number it was [added](Network::add) by.
    pub index: usize,
    /// Bytes to read, or the peer's goodbye.
    pub input: bool,
    /// It is of no use any more.
    pub broken: bool,
}

/// The connections of one group. Nothing here blocks.
pub trait Network: Send {
    /// A connection: reads and writes give `WouldBlock` rather than wait.
    type Stream: Read + Write + Send;

    /// A connection for this group that nobody has taken yet.
    fn accept(&mut self) -> Option<Self::Stream>;

    /// Where the peer reached us.
    fn local(&self, stream: &Self::Stream) -> Option<SocketAddr>;

    /// Where it came from.
    fn peer(&self, stream: &Self::Stream) -> Option<SocketAddr>;

    /// Who the peer is, once TLS has told; `None` where it never will.
    fn identified(&self, stream: &Self::Stream) -> Option<Identified> {
        let _ = stream;
        None
    }

    /// What reading from `stream` has cost since this was last asked, beyond the bytes that it
    /// brought; and whether there is more of which [`Network::look`] will not tell.
    fn rest(&self, stream: &mut Self::Stream) -> (u32, bool) {
        let _ = stream;
        (0, false)
    }

    /// Makes [`Network::wake_fd`] readable once, from any thread.
    fn wake(&self) -> Wake;

    /// Tells of `stream` as `index` from now on: at first when it has input.
    ///
    /// # Errors
    /// When the system refuses to watch it.
    fn add(&mut self, stream: &Self::Stream, index: usize) -> io::Result<()>;

    /// Tells of `stream` when it has what it now waits for.
    ///
    /// # Errors
    /// As for [`Network::add`].
    fn watch(&mut self, stream: &Self::Stream, index: usize, interest: Interest) -> io::Result<()>;

    /// Adds the connections that have something to `ready`; how many events there were at all.
    /// Newcomers are [accepted](Network::accept) before.
    fn look(&mut self, ready: &mut Vec<Ready>) -> usize;

    /// Readable also when a device has completed something; `None`: nobody sleeps on this.
    ///
    /// # Errors
    /// When the system refuses to watch it.
    fn watch_device(&mut self, device: BorrowedFd<'_>) -> io::Result<()>;

    /// A device that was watched goes.
    fn forget_device(&mut self, _device: BorrowedFd<'_>) {}

    /// Readable when [`Network::look`] would find something.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// What a group is to look at.
#[derive(Debug, Default)]
struct News {
    streams: VecDeque<(TcpStream, Option<Security>)>,
    /// Connections that can go on, by their numbers.
    told: Vec<usize>,
}

/// Where a listener leaves connections for a group.
#[derive(Debug)]
pub struct Inbox {
    news: Mutex<News>,
    is_filled: AtomicBool,
    is_told: AtomicBool,
    wake: OwnedFd,
}

impl Inbox {
    /// Leaves a connection, which must not block, without TLS.
    ///
    /// # Errors
    /// When the group cannot be woken.
    pub fn leave(&self, stream: TcpStream) -> io::Result<()> {
        self.leave_with(stream, None)
    }

    /// Leaves one that begins with TLS, or may.
    ///
    /// # Errors
    /// When the group cannot be woken.
    pub fn leave_with(&self, stream: TcpStream, security: Option<Security>) -> io::Result<()> {
        self.news().streams.push_back((stream, security));
        self.is_filled.store(true, Ordering::Release);
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Has the group look at a connection.
    fn tell(&self, index: usize) {
        self.news().told.push(index);
        self.is_told.store(true, Ordering::Release);
        self.wake();
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the group.
    fn wake(&self) {
        self.is_filled.store(true, Ordering::Release);
        // It can only fail once the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes one; the wake-up is used up with the last.
    fn take(&self) -> Option<(TcpStream, Option<Security>)> {
        if !self.is_filled.load(Ordering::Acquire) {
            return None;
        }
        let mut news = self.news();
        let stream = news.streams.pop_front();
        if news.streams.is_empty() {
            self.is_filled.store(false, Ordering::Release);
            // A spurious wake is harmless, a failed read means there was none.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        stream
    }
}

/// TCP sockets, watched by an epoll file.
pub struct Sockets {
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    /// What finds the keys of hosts that come with TLS, and how it tells when it has.
    subsystem: Arc<Subsystem>,
    tell: Tell,
}

impl Sockets {
    /// None yet; `subsystem` has the keys of hosts that will come with TLS.
    ///
    /// # Errors
    /// When the system refuses the files it takes.
    pub fn new(subsystem: Arc<Subsystem>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(INBOX), epoll::EventFlags::IN)?;
        let [is_filled, is_told] = [const { AtomicBool::new(false) }; 2];
        let inbox = Arc::new(Inbox { news: Mutex::default(), is_filled, is_told, wake });
        let told = inbox.clone();
        Ok(Self { epoll, inbox, subsystem, tell: Arc::new(move |index| told.tell(index)) })
    }

    /// Where to leave connections.
    #[must_use]
    pub fn inbox(&self) -> Arc<Inbox> {
        self.inbox.clone()
    }
}

impl Network for Sockets {
    type Stream = Stream;

    fn accept(&mut self) -> Option<Stream> {
        let (socket, security) = self.inbox.take()?;
        let Some(security) = security else { return Some(Stream::Plain(socket)) };
        let (subsystem, tell) = (self.subsystem.clone(), self.tell.clone());
        Some(Stream::Guarded(Box::new(Guarded::new(socket, security, subsystem, tell))))
    }

    fn local(&self, stream: &Stream) -> Option<SocketAddr> {
        stream.socket().local_addr().ok()
    }

    fn peer(&self, stream: &Stream) -> Option<SocketAddr> {
        stream.socket().peer_addr().ok()
    }

    fn identified(&self, stream: &Stream) -> Option<Identified> {
        stream.identified()
    }

    fn rest(&self, stream: &mut Stream) -> (u32, bool) {
        stream.rest()
    }

    fn wake(&self) -> Wake {
        let inbox = self.inbox.clone();
        Arc::new(move || inbox.wake())
    }

    fn add(&mut self, stream: &Stream, index: usize) -> io::Result<()> {
        stream.is_called(index);
        let data = epoll::EventData::new_u64(index as u64);
        Ok(epoll::add(&self.epoll, stream.socket(), data, epoll::EventFlags::IN)?)
    }

    fn watch(&mut self, stream: &Stream, index: usize, interest: Interest) -> io::Result<()> {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, interest.input);
        flags.set(epoll::EventFlags::OUT, interest.output);
        let data = epoll::EventData::new_u64(index as u64);
        Ok(epoll::modify(&self.epoll, stream.socket(), data, flags)?)
    }

    fn look(&mut self, ready: &mut Vec<Ready>) -> usize {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        // An interrupted look finds nothing; the next one will.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&Timespec::default()))
        else {
            return 0;
        };
        for event in &*events {
            let (flags, data) = (event.flags, event.data.u64());
            if data != INBOX && data != DEVICE {
                ready.push(Ready {
                    index: data as usize,
                    input: flags.contains(epoll::EventFlags::IN),
                    broken: flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP),
                });
            }
        }
        let mut count = events.len();
        if self.inbox.is_told.load(Ordering::Acquire)
            && self.inbox.is_told.swap(false, Ordering::AcqRel)
        {
            for index in std::mem::take(&mut self.inbox.news().told) {
                ready.push(Ready { index, input: true, broken: false });
                count += 1;
            }
        }
        count
    }

    fn watch_device(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(DEVICE);
        Ok(epoll::add(&self.epoll, device, data, epoll::EventFlags::IN)?)
    }

    fn forget_device(&mut self, device: BorrowedFd<'_>) {
        // It was added and is open still.
        let _ = epoll::delete(&self.epoll, device);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }
}
