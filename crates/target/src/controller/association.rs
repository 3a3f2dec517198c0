//! What the queues of one controller share, whichever threads they live on.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ebb_nvme::log::{ErrorEntry, TCP};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;

use super::allowance::Allowance;
use super::ends::Stays;
use super::lock::lock;

/// Entries of a controller's error log (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// What a controller is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Io,
    Discovery,
}

/// A host, as it introduced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub id: [u8; 16],
    pub nqn: String,
    key: u64,
}

impl Host {
    pub fn new(id: [u8; 16], nqn: String) -> Self {
        let mut hasher = DefaultHasher::new();
        nqn.hash(&mut hasher);
        Self { id, nqn, key: hasher.finish() }
    }

    /// Tells it from others: the same for all of its queues.
    pub fn key(&self) -> u64 {
        self.key
    }
}

/// Bits of [`Association::flags`]; an epoch is above them.
const WRITE_THROUGH: u32 = 1 << 0;
const READY: u32 = 1 << 1;
const RETIRED: u32 = 1 << 2;
const EPOCH: u32 = 1 << 3;

/// A controller and its host.
#[derive(Debug)]
pub(super) struct Association {
    pub id: u16,
    pub kind: Kind,
    pub host: Host,
    pub born: Nanos,
    /// The host is who it says it is, as far as anybody asks.
    proven: AtomicBool,
    /// Read by I/O queues with every command, so all of it is in one word: whether the write
    /// cache is off, whether I/O queues may be, and which generation of them.
    flags: AtomicU32,
    /// The host obeys retry delays (feature 16h, ACRE).
    pub retries_later: AtomicBool,
    /// I/O queues the host may make (feature 07h).
    pub granted: AtomicU16,
    /// I/O queues and what they run by.
    queues: Mutex<BTreeMap<u16, Ticket>>,
    /// The same and those that have ended, as long as anything of them is under way.
    pub stays: Mutex<Stays>,
    errors: Mutex<Errors>,
    /// What the host may do in a second.
    pub allowance: Arc<Allowance>,
}

#[derive(Debug, Default)]
struct Errors {
    /// The latest last.
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

/// An I/O queue's right to run: dies with the controller's next reset or shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// The number of an I/O queue: its host's alone once it is taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    association: Arc<Association>,
    queue: u16,
    ticket: Ticket,
    /// Stored under the lock of the queues.
    is_taken: AtomicBool,
}

impl Claim {
    pub fn new(association: Arc<Association>, queue: u16, ticket: Ticket) -> Self {
        Self { association, queue, ticket, is_taken: AtomicBool::new(false) }
    }

    /// Takes the number, for a host that need not, or did, authenticate itself; false when
    /// another has it.
    pub fn take(&self) -> bool {
        let mut queues = lock(&self.association.queues);
        if queues.get(&self.queue) != Some(&self.ticket) {
            queues.insert(self.queue, self.ticket);
            self.is_taken.store(true, Ordering::Release);
        }
        self.is_taken()
    }

    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }
}

impl Claim {
    /// The number is free.
    pub fn give_up(&self) {
        let mut queues = lock(&self.association.queues);
        // A queue of after a reset may have it since.
        let was_taken = self.is_taken.swap(false, Ordering::AcqRel);
        if was_taken && queues.get(&self.queue) == Some(&self.ticket) {
            queues.remove(&self.queue);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Association {
    pub fn new(
        id: u16,
        kind: Kind,
        host: Host,
        granted: u16,
        allowance: Arc<Allowance>,
        born: Nanos,
    ) -> Self {
        Self {
            id,
            kind,
            host,
            born,
            proven: AtomicBool::new(false),
            flags: AtomicU32::new(0),
            retries_later: AtomicBool::new(false),
            granted: AtomicU16::new(granted),
            queues: Mutex::default(),
            stays: Mutex::default(),
            errors: Mutex::default(),
            allowance,
        }
    }

    /// The host is who it says it is, or need not be.
    pub fn prove(&self) {
        self.proven.store(true, Ordering::Release);
    }

    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }

    /// The controller became ready: I/O queues may be made.
    pub fn enable(&self) {
        self.flags.fetch_or(READY, Ordering::Release);
    }

    /// Whether the controller is enabled and not shut down.
    pub fn is_ready(&self) -> bool {
        self.flags.load(Ordering::Acquire) & READY != 0
    }

    /// The controller is over: its queues end, the admin queue too.
    pub fn retire(&self) {
        self.flags.fetch_or(RETIRED, Ordering::AcqRel);
        self.end_queues();
    }

    pub fn is_retired(&self) -> bool {
        self.flags.load(Ordering::Acquire) & RETIRED != 0
    }

    /// The controller was reset, shut down or lost: all I/O queues end.
    pub fn end_queues(&self) {
        let next = |flags: u32| Some((flags & !READY).wrapping_add(EPOCH));
        let wakes = lock(&self.stays).end(&self.allowance.ends, || {
            let _ = self.flags.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        });
        wakes.iter().for_each(|wake| wake());
    }

    /// Whether nothing is under way of any I/O queue that has ended.
    pub fn is_quiet(&self) -> bool {
        lock(&self.stays).is_quiet()
    }

    /// Turns the volatile write cache on or off (feature 06h).
    pub fn set_write_cache(&self, on: bool) {
        if on {
            self.flags.fetch_and(!WRITE_THROUGH, Ordering::AcqRel);
        } else {
            self.flags.fetch_or(WRITE_THROUGH, Ordering::AcqRel);
        }
    }

    pub fn write_cache(&self) -> bool {
        self.flags.load(Ordering::Acquire) & WRITE_THROUGH == 0
    }

    /// Whether queues of this ticket may run; if so, whether each write must be durable.
    pub fn check(&self, ticket: Ticket) -> Option<bool> {
        let flags = self.flags.load(Ordering::Acquire);
        (flags & !WRITE_THROUGH == ticket.0).then_some(flags & WRITE_THROUGH != 0)
    }

    /// What I/O queue `queue` would run by; `None` when there is one already or none may be.
    pub fn ticket(&self, queue: u16) -> Option<Ticket> {
        let flags = self.flags.load(Ordering::Acquire);
        let ticket = Ticket(flags & !WRITE_THROUGH);
        let may_be = flags & (READY | RETIRED) == READY;
        // One of before the last reset has ended, whether or not its connection is closed yet.
        (may_be && lock(&self.queues).get(&queue) != Some(&ticket)).then_some(ticket)
    }

    pub fn has_queues(&self) -> bool {
        let flags = self.flags.load(Ordering::Acquire) & !WRITE_THROUGH;
        lock(&self.queues).values().any(|ticket| ticket.0 == flags)
    }

    /// Keeps an error for the error information log.
    pub fn record(&self, queue: u16, sqe: &Sqe, status: Status, lba: u64) {
        let mut errors = lock(&self.errors);
        errors.count += 1;
        let entry = ErrorEntry {
            count: errors.count.into(),
            queue: queue.into(),
            cid: sqe.cid,
            status: status.to_field().into(),
            location: u16::MAX.into(),
            lba: lba.into(),
            nsid: sqe.nsid,
            vendor_specific: 0,
            transport: TCP,
            reserved: [0; 34],
        };
        if errors.entries.len() == ERROR_ENTRIES {
            errors.entries.pop_front();
        }
        errors.entries.push_back(entry);
    }

    /// The kept errors, the latest first, and how many there ever were.
    pub fn errors(&self) -> (Vec<ErrorEntry>, u64) {
        let errors = lock(&self.errors);
        (errors.entries.iter().rev().copied().collect(), errors.count)
    }
}
