//! The lightweight thread that accepts connections and deals them out to the groups.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_policy::units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::{Inbox, Places};
use crate::reactor::Task;
use crate::tls::Security;

/// Connections accepted in one poll.
const BATCH: usize = 16;
/// Time between polls of the socket: a system call that a busy core should not make each time.
const INTERVAL: Nanos = Nanos::from_millis(1);

/// Accepts connections for a set of groups, in turn.
pub struct Listener {
    socket: TcpListener,
    inboxes: Vec<Arc<Inbox>>,
    next: usize,
    next_poll: Nanos,
    places: Arc<Places>,
    refused: Arc<AtomicU64>,
    security: Option<Security>,
    /// A descriptor to give up for a newcomer where the system has no more.
    spare: Option<OwnedFd>,
}

impl Listener {
    /// Listens on `address`, for newcomers who find a place among `places`.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn bind(
        address: SocketAddr,
        inboxes: Vec<Arc<Inbox>>,
        places: Arc<Places>,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        // As many newcomers wait as the system lets (net.core.somaxconn), not std's 128: a fleet
        // that comes back at once would else wait for retransmissions.
        rustix::net::listen(&socket, i32::MAX)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            inboxes,
            next: 0,
            next_poll: Nanos::ZERO,
            places,
            refused: Arc::default(),
            security: None,
            spare: Some(spare()?),
        })
    }

    /// The same, with TLS.
    #[must_use]
    pub fn secured(self, security: Option<Security>) -> Self {
        Self { security, ..self }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Counts the connections closed for being too many.
    #[must_use]
    pub fn refused(&self) -> Arc<AtomicU64> {
        self.refused.clone()
    }
}

impl Listener {
    /// Closes the next newcomer, for whom there is no descriptor: in the backlog it would wake us
    /// for ever.
    fn refuse_one(&mut self) {
        self.spare = None;
        drop(self.socket.accept());
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
        for count in 0..BATCH {
            let stream = match self.socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_out_of_files(&error) => {
                    self.refuse_one();
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
            if inbox.leave_with(stream, self.security).is_err() {
                self.places.leave();
            }
        }
        BATCH
    }

    fn requests(&self) -> u64 {
        0
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
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
        let listener = Listener::bind(any, Vec::new(), places).unwrap();
        let address = listener.address().unwrap();
        // Nobody accepts: who finds no room waits without end.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(20)).unwrap();
        let waiting: Vec<_> = (0..fleet).map(connect).collect();
        assert_eq!(waiting.len(), fleet);
    }
}
