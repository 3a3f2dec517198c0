//! What a run waits for: signals, its supervisor, its reader.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use ebb_cli::out;

/// Signals, and a socket that wakes who waits for them.
pub struct Signals {
    /// The start of the run.
    pub begun: Instant,
    end: Arc<AtomicBool>,
    /// Whether the configuration is to be read again.
    pub reload: Arc<AtomicBool>,
    wake: UnixStream,
    waker: UnixStream,
}

impl Signals {
    /// Watches for them from now on.
    pub fn watch() -> std::io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (end, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, told) in [(SIGTERM, &end), (SIGINT, &end), (SIGHUP, &reload)] {
            flag::register(signal, told.clone())?;
            low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        waker.set_nonblocking(true)?;
        Ok(Self { begun: Instant::now(), end, reload, wake, waker })
    }

    /// What ends the waiting when a byte is written to it.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn waker(&self) -> std::io::Result<UnixStream> {
        self.waker.try_clone()
    }

    /// Waits for at most `left`; whether to go on: not when told to end, when the `supervisor` is
    /// gone, or the other end of the pipe that is `read`.
    pub fn wait(
        &mut self,
        left: Duration,
        supervisor: Option<&UnixStream>,
        read: Option<&OwnedFd>,
    ) -> Result<bool> {
        let mut files = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        let supervisor =
            supervisor.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        let is_supervised = supervisor.is_some();
        files.extend(supervisor);
        // That nobody reads is always told (poll(2)).
        files.extend(read.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::empty())));
        let left = Timespec::try_from(left).context("a period that is no time")?;
        match poll(&mut files, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait"),
        }
        if files[1..].iter().any(|file| !file.revents().is_empty()) {
            if is_supervised {
                out::note("the supervisor is gone; setting all back");
            }
            return Ok(false);
        }
        // Any byte there only ends the waiting.
        let _ = self.wake.read(&mut [0; 16]);
        Ok(!self.end.load(Ordering::Relaxed))
    }
}
