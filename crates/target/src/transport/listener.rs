//! The lightweight thread that accepts connections and deals them out to the groups.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_policy::units::Nanos;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use super::{Inbox, Places};
use crate::controller::Port;
use crate::reactor::Task;

/// Connections accepted in one poll.
const BATCH: usize = 16;
/// Time between polls of the socket: a system call that a busy core should not make each time.
const INTERVAL: Nanos = Nanos::from_millis(1);

/// Where a listener listens: may be changed from other threads.
pub struct Doors {
    /// Of all sockets.
    epoll: OwnedFd,
    sockets: Mutex<Vec<(Port, TcpListener)>>,
}

impl Doors {
    fn sockets(&self) -> MutexGuard<'_, Vec<(Port, TcpListener)>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens on a port too; where that is.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn open(&self, port: Port) -> io::Result<SocketAddr> {
        let socket = TcpListener::bind(port.address)?;
        // As many newcomers wait as the system lets (net.core.somaxconn), not std's 128: a fleet
        // that comes back at once would else wait for retransmissions.
        rustix::net::listen(&socket, i32::MAX)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        self.sockets().push((Port { address, ..port }, socket));
        Ok(address)
    }

    /// Does not listen on `address` any more; false where it did not.
    pub fn close(&self, address: SocketAddr) -> bool {
        let mut sockets = self.sockets();
        let before = sockets.len();
        // What is closed leaves the epoll file too.
        sockets.retain(|(port, _)| port.address != address);
        sockets.len() < before
    }

    /// Where it listens.
    #[must_use]
    pub fn ports(&self) -> Vec<Port> {
        self.sockets().iter().map(|(port, _)| *port).collect()
    }
}

/// Accepts connections for a set of groups, in turn.
pub struct Listener {
    doors: Arc<Doors>,
    inboxes: Vec<Arc<Inbox>>,
    next: usize,
    next_poll: Nanos,
    places: Arc<Places>,
    refused: Arc<AtomicU64>,
    /// A descriptor to give up for a newcomer where the system has no more.
    spare: Option<OwnedFd>,
}

impl Listener {
    /// One that listens nowhere yet, for newcomers who find a place among `places`.
    ///
    /// # Errors
    /// When the system refuses the files it takes.
    pub fn new(inboxes: Vec<Arc<Inbox>>, places: Arc<Places>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            doors: Arc::new(Doors { epoll, sockets: Mutex::default() }),
            inboxes,
            next: 0,
            next_poll: Nanos::ZERO,
            places,
            refused: Arc::default(),
            spare: Some(spare()?),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn doors(&self) -> Arc<Doors> {
        self.doors.clone()
    }

    /// Counts the connections closed for being too many.
    #[must_use]
    pub fn refused(&self) -> Arc<AtomicU64> {
        self.refused.clone()
    }

    /// Accepts from the socket of a port; how many.
    fn accept(&mut self, port: Port, socket: &TcpListener) -> usize {
        for count in 0..BATCH {
            let stream = match socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_out_of_files(&error) => {
                    self.refuse_one(socket);
                    continue;
                }
                // Aborted by the peer, none there: all the same, later again.
                Err(_) => return count,
            };
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                continue;
            }
            if !self.places.wait() {
                self.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let inbox = &self.inboxes[self.next];
            self.next = (self.next + 1) % self.inboxes.len();
            if inbox.leave_with(stream, port.security).is_err() {
                self.places.leave();
            }
        }
        BATCH
    }

    /// Closes the next newcomer, for whom there is no descriptor: in the backlog it would wake us
    /// for ever.
    fn refuse_one(&mut self, socket: &TcpListener) {
        self.spare = None;
        drop(socket.accept());
        self.spare = spare().ok();
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::MFILE | Errno::NFILE))
}

fn spare() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

impl Task for Listener {
    fn poll(&mut self, now: Nanos) -> usize {
        if now < self.next_poll {
            return 0;
        }
        self.next_poll = now + INTERVAL;
        let doors = self.doors.clone();
        // Who opens or closes a door has the lock for an instant: then later.
        let Ok(sockets) = doors.sockets.try_lock() else { return 0 };
        sockets.iter().map(|(port, socket)| self.accept(*port, socket)).sum()
    }

    fn requests(&self) -> u64 {
        0
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doors.epoll.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fleet_that_comes_back_at_once_finds_room() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let fleet = 300.min(allowed.trim().parse().unwrap());
        let places = Arc::new(Places::new(1024, 1));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::new(Vec::new(), places).unwrap();
        let address = listener.doors().open(any.into()).unwrap();
        // Nobody accepts: who finds no room waits without end.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(20)).unwrap();
        let waiting: Vec<_> = (0..fleet).map(connect).collect();
        assert_eq!(waiting.len(), fleet);
    }
}
