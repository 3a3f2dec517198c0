//! News for a channel or the keeper from other threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// "Look again": the state of the array changed.
pub(super) const LOOK: u32 = u32::MAX;

/// Messages, each the number of a segment or [`LOOK`], and a descriptor that is readable while
/// there are some.
#[derive(Debug)]
pub(super) struct Mailbox {
    messages: Mutex<Vec<u32>>,
    some: AtomicBool,
    fd: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { messages: Mutex::default(), some: AtomicBool::new(false), fd })
    }

    pub(super) fn post(&self, message: u32) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message);
        if !self.some.swap(true, Ordering::Release) {
            // Cannot fail: the counter is at zero, so this neither overflows nor blocks.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Moves all messages to `into`. Costs one load while there are none.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        if !self.some.load(Ordering::Acquire) {
            return;
        }
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut messages);
        self.some.store(false, Ordering::Release);
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
