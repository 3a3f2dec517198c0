//! Changes of what all groups serve together: namespaces that come, go and grow, addresses that
//! are given up. Called from a thread that may wait; no reactor does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use ebb_nvme::Status;
use thiserror::Error;

use super::Steward;
use crate::controller::{ConfigError, Namespace, Subsystem};
use crate::device::{self, Channel, Done, Io, Op};

/// Between looks at a device that is flushed.
const LOOK: Duration = Duration::from_millis(1);

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// It makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refused what a device needs.
    #[error("cannot open the device: {0}; look at the limits of descriptors and locked memory")]
    Device(#[from] io::Error),
    /// The device cannot have that size.
    #[error(transparent)]
    Size(#[from] device::Error),
    /// There is no such namespace.
    #[error("there is no namespace {0}")]
    None(u32),
    /// A namespace that was removed is not closed yet.
    #[error("namespace {0} was removed and its device is still at work; try again once it is done")]
    Leaving(u32),
    /// A thread does not answer.
    #[error("a thread of the server does not answer; look at its status")]
    Silent,
}

/// How far the removal of a namespace has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The device was flushed and is closed.
    Closed,
    /// The device was closed without: it could not be flushed.
    Unflushed(Status),
    /// Hosts see it no more; the device does not complete what it has, and is closed when it does.
    Waiting,
}

/// A namespace that was removed, and the groups that still have a way to its device.
struct Leaving {
    namespace: Namespace,
    channels: Vec<Box<dyn Channel>>,
    awaited: Vec<Receiver<Box<dyn Channel>>>,
    /// The device was told to flush.
    is_flushing: bool,
}

impl Leaving {
    /// Waits until no group has anything of it under way, or `deadline`.
    fn is_quiet(&mut self, deadline: Instant) -> bool {
        while let Some(receiver) = self.awaited.last() {
            let left = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left) {
                Ok(channel) => self.channels.push(channel),
                Err(RecvTimeoutError::Timeout) => return false,
                // A group that has ended.
                Err(RecvTimeoutError::Disconnected) => {}
            }
            self.awaited.pop();
        }
        true
    }

    /// Closes it when it is quiet and flushed. What is not done in time stays as it is.
    fn finish(mut self, deadline: Instant) -> Result<Removed, Self> {
        let status = if self.is_quiet(deadline) { self.flush(deadline) } else { None };
        match status {
            None => Err(self),
            Some(status) if status.is_success() => Ok(Removed::Closed),
            Some(status) => Ok(Removed::Unflushed(status)),
        }
    }

    /// Makes all that was written last. `None` when it takes too long.
    fn flush(&mut self, deadline: Instant) -> Option<Status> {
        let Some(channel) = self.channels.last_mut() else { return Some(Status::SUCCESS) };
        if !std::mem::replace(&mut self.is_flushing, true) {
            channel.submit(Io { tag: 0, op: Op::Flush, lba: 0, blocks: 0, buffer: None });
        }
        let mut done: Vec<Done> = Vec::new();
        while channel.poll(&mut done) == 0 {
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(LOOK);
        }
        done.pop().map(|done| done.status)
    }
}

/// The groups that serve one subsystem.
pub struct Fleet {
    subsystem: Arc<Subsystem>,
    stewards: Vec<Arc<Steward>>,
    leaving: Vec<Leaving>,
    /// How long a group or a device is waited for.
    patience: Duration,
}

impl Fleet {
    /// Of all groups of `subsystem`, by their stewards.
    #[must_use]
    pub fn new(subsystem: Arc<Subsystem>, stewards: Vec<Arc<Steward>>, patience: Duration) -> Self {
        Self { subsystem, stewards, leaving: Vec::new(), patience }
    }

    /// Waits so long for a group or a device from now on.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The subsystem.
    #[must_use]
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }

    fn await_all(&self, receivers: Vec<Receiver<()>>) -> Result<(), ChangeError> {
        let deadline = Instant::now() + self.patience;
        for receiver in receivers {
            let left = deadline.saturating_duration_since(Instant::now());
            receiver.recv_timeout(left).map_err(|_| ChangeError::Silent)?;
        }
        Ok(())
    }

    /// Adds a namespace: hosts see it once every group has a way to its device.
    ///
    /// # Errors
    /// Why it was not added; nothing has changed then.
    pub fn add(&mut self, namespace: Namespace) -> Result<(), ChangeError> {
        self.finish(namespace.id);
        if self.leaving.iter().any(|one| one.namespace.id == namespace.id) {
            return Err(ChangeError::Leaving(namespace.id));
        }
        self.subsystem.check_namespace(&namespace)?;
        let index = namespace.id as usize - 1;
        let attach = |steward: &Arc<Steward>| steward.attach(index, &*namespace.device);
        let attached: io::Result<Vec<_>> = self.stewards.iter().map(attach).collect();
        let attached = match attached {
            Ok(receivers) => self.await_all(receivers),
            Err(error) => Err(error.into()),
        };
        let added = attached.and_then(|()| Ok(self.subsystem.add_namespace(namespace.clone())?));
        if added.is_err() {
            self.leave(namespace);
        }
        added
    }

    /// Takes the way to a namespace, that hosts do not see, from all groups.
    fn leave(&mut self, namespace: Namespace) -> Removed {
        let id = namespace.id;
        self.detach(namespace);
        self.finish(id)
    }

    fn detach(&mut self, namespace: Namespace) {
        let index = namespace.id as usize - 1;
        let awaited = self.stewards.iter().map(|steward| steward.detach(index)).collect();
        let channels = Vec::new();
        self.leaving.push(Leaving { namespace, channels, awaited, is_flushing: false });
    }

    /// Closes all connections, then flushes and closes all namespaces at once, each by a thread of
    /// its own, and waits no longer than `patience`. For each its number, what it stands on and
    /// how it went; a device that waits holds its thread, and the process must end without.
    #[must_use]
    pub fn end(mut self, patience: Duration) -> Vec<(u32, String, Removed)> {
        let deadline = Instant::now() + patience;
        // Each group takes its orders in turn: no host sees a namespace go.
        self.stewards.iter().for_each(|steward| drop(steward.close(None)));
        for namespace in self.subsystem.namespaces() {
            self.subsystem.take_namespace(namespace.id);
            self.detach(namespace);
        }
        let (tell, told) = channel();
        let (mut ends, mut here) = (Vec::new(), Vec::new());
        for leaving in self.leaving {
            let (id, description) = (leaving.namespace.id, leaving.namespace.device.describe());
            ends.push((id, description, Removed::Waiting));
            let tell = tell.clone();
            let close = move |leaving: Leaving| {
                // What waits is closed by its thread whenever it can be, with nobody left to hear.
                if let Ok(removed) = leaving.finish(deadline) {
                    let _ = tell.send((id, removed));
                }
            };
            let (give, take) = channel();
            let its = close.clone();
            let body = move || take.into_iter().for_each(its);
            match thread::Builder::new().name(format!("ebb-close-{id}")).spawn(body) {
                Ok(_) => drop(give.send(leaving)),
                // There is no room for a thread.
                Err(_) => here.push((close, leaving)),
            }
        }
        here.into_iter().for_each(|(close, leaving)| close(leaving));
        drop(tell);
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok((id, removed)) = told.recv_timeout(left()) {
            let its = ends.iter_mut().filter(|(one, ..)| *one == id);
            its.for_each(|(_, _, end)| *end = removed);
        }
        ends
    }

    /// Goes on with the removal of a namespace.
    fn finish(&mut self, id: u32) -> Removed {
        let deadline = Instant::now() + self.patience;
        let Some(at) = self.leaving.iter().position(|one| one.namespace.id == id) else {
            return Removed::Closed;
        };
        self.leaving.remove(at).finish(deadline).unwrap_or_else(|waits| {
            self.leaving.insert(at, waits);
            Removed::Waiting
        })
    }

    /// Removes a namespace, in use or not. What its device has ends as it ends; other commands are
    /// refused. The device is flushed, and closed with its last owner.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove(&mut self, id: u32) -> Result<Removed, ChangeError> {
        let namespace = self.subsystem.take_namespace(id).ok_or(ChangeError::None(id))?;
        Ok(self.leave(namespace))
    }

    /// Namespaces that were removed and whose device is still at work; closes those that are done.
    pub fn leaving(&mut self) -> Vec<u32> {
        let patience = std::mem::replace(&mut self.patience, Duration::ZERO);
        let ids: Vec<_> = self.leaving.iter().map(|one| one.namespace.id).collect();
        let left = ids.into_iter().filter(|id| self.finish(*id) == Removed::Waiting).collect();
        self.patience = patience;
        left
    }

    /// Lets a namespace grow to `bytes`. It may wait for the device for ever: for that nobody
    /// needs the fleet.
    ///
    /// # Errors
    /// When there is none, or its device cannot have that size.
    pub fn resize(subsystem: &Subsystem, id: u32, bytes: u64) -> Result<(), ChangeError> {
        let namespace = subsystem.namespace(id).ok_or(ChangeError::None(id))?;
        namespace.device.grow(bytes)?;
        subsystem.grown(id);
        Ok(())
    }

    /// Closes all connections that came by `address`.
    ///
    /// # Errors
    /// When a group does not answer.
    pub fn close(&self, address: SocketAddr) -> Result<(), ChangeError> {
        self.await_all(self.stewards.iter().map(|steward| steward.close(Some(address))).collect())
    }
}
