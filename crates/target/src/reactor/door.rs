//! Blocking in the kernel until I/O or a message arrives.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ebb_policy::units::Nanos;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::write;

use super::bell::{BLOCKED, Bell};
use super::wait::timespec;

/// What other cores ring when this one is blocked: an event counter.
#[derive(Debug)]
pub struct Door(OwnedFd);

/// What a core blocks on: its door and the files of its threads.
#[derive(Debug)]
pub struct Gate(OwnedFd);

/// Makes a core's door, and the gate that waits at it.
///
/// # Errors
/// When the process may open no more files.
pub fn pair() -> io::Result<(Door, Gate)> {
    let door = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let gate = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Edge-triggered: each knock is one event, and none needs to be read away.
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&gate, &door, epoll::EventData::new_u64(u64::MAX), flags)?;
    Ok((Door(door), Gate(gate)))
}

impl Door {
    /// Wakes a core that had announced [`BLOCKED`].
    pub fn knock(&self) {
        // It can only fail once the counter is full, and then an event is pending already.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Gate {
    /// Wakes for `file` from now on.
    ///
    /// # Errors
    /// When it cannot be waited for: no such kind of file, in the set already, or no memory.
    pub fn watch(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.0, file, data, epoll::EventFlags::IN)?)
    }

    /// Wakes for `file` no more.
    pub fn forget(&self, file: BorrowedFd<'_>) {
        // It was added before and is open still: the thread that owns it lends it.
        let _ = epoll::delete(&self.0, file);
    }

    /// Blocks until a watched file is readable, the door is knocked at or `timeout` is over,
    /// unless `published` finds something after the announcement. May also return early.
    pub fn block(&self, bell: &Bell, timeout: Option<Nanos>, published: impl FnOnce() -> bool) {
        bell.announce(BLOCKED);
        if !published() {
            let mut events = [MaybeUninit::uninit(); 1];
            let timeout = timeout.map(timespec);
            // An error is a signal: the caller polls and comes back. Which file it was does not
            // matter: every thread is polled.
            let _ = epoll::wait(self.0.as_fd(), &mut events, timeout.as_ref());
        }
        bell.retract();
    }
}
