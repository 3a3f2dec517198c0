//! What all channels of an array and its keeper share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ebb_nvme::Status;

use super::super::Device;
use super::journal::Journal;
use super::layout::Layout;
use super::locks::Locks;
use super::mailbox::{LOOK, Mailbox};
use super::owed::Owed;
use super::superblock::{Superblock, Uuid};

/// Which members can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Health {
    /// Holds old data or none.
    pub(super) failed: Option<usize>,
    /// Holds what it should in the stripes below [`Array::rebuilt`].
    pub(super) rebuilding: Option<usize>,
    /// The superblocks do not say yet that `failed` failed: until they do, nothing that it misses
    /// may be promised.
    pub(super) unsettled: bool,
    /// Two members are gone: nothing is written any more. What is there is still read.
    pub(super) dead: bool,
}

/// An assembled array.
pub(super) struct Array {
    pub(super) layout: Layout,
    pub(super) uuid: Uuid,
    /// What the journal's pieces of this run say.
    pub(super) run: Uuid,
    /// By role; `None` where a member is absent.
    pub(super) members: Vec<Option<Arc<dyn Device>>>,
    pub(super) locks: Locks,
    pub(super) journal: Journal,
    /// Stripes that the rebuilding member holds.
    pub(super) rebuilt: AtomicU64,
    /// The keeper's.
    pub(super) keeper: Arc<Mailbox>,
    /// The keeper is to end.
    pub(super) stopping: AtomicBool,
    /// The rebuild met a source that cannot be read; it is tried again.
    pub(super) stuck: AtomicBool,
    pub(super) owed: Owed,
    /// The members that have let the keeper wait for long, one bit each.
    pub(super) silent: Arc<AtomicU32>,
    /// [`Health`], packed, for readers without the lock.
    packed: AtomicU64,
    health: Mutex<Health>,
    /// Who failed, and at what, in order.
    pub(super) causes: Mutex<Vec<(usize, &'static str)>>,
    channels: Mutex<Vec<Weak<Mailbox>>>,
}

const NONE: u64 = 0xff;
/// Why a member is not used from the start.
const ABSENT: &str = "missing or outdated at the start";
/// Why a member is not used any more, whatever it had no room for.
const FULL: &str = "there is no room for its writes, ENOSPC: make some";

fn pack(health: Health) -> u64 {
    let role = |role: Option<usize>| role.map_or(NONE, |role| role as u64);
    role(health.failed)
        | role(health.rebuilding) << 8
        | u64::from(health.unsettled) << 16
        | u64::from(health.dead) << 17
}

fn unpack(packed: u64) -> Health {
    let role = |bits: u64| (bits & 0xff != NONE).then_some((bits & 0xff) as usize);
    Health {
        failed: role(packed),
        rebuilding: role(packed >> 8),
        unsettled: packed >> 16 & 1 == 1,
        dead: packed >> 17 & 1 == 1,
    }
}

impl Array {
    pub(super) fn new(
        superblock: &Superblock,
        members: Vec<Option<Arc<dyn Device>>>,
        health: Health,
    ) -> std::io::Result<Self> {
        let Superblock { layout, uuid, now, rebuilt, .. } = *superblock;
        Ok(Self {
            layout,
            uuid,
            run: now.run,
            members,
            locks: Locks::new(),
            journal: Journal::new(layout.slots),
            rebuilt: AtomicU64::new(rebuilt),
            keeper: Arc::new(Mailbox::new()?),
            stopping: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            owed: Owed::default(),
            silent: Arc::default(),
            packed: AtomicU64::new(pack(health)),
            causes: Mutex::new(health.failed.map(|role| (role, ABSENT)).into_iter().collect()),
            health: Mutex::new(health),
            channels: Mutex::default(),
        })
    }

    pub(super) fn health(&self) -> Health {
        unpack(self.packed.load(Ordering::Acquire))
    }

    /// The member that does not hold this stripe.
    ///
    /// Exact while rows of the stripe are held, for a rebuild holds them when it moves on.
    pub(super) fn missing(&self, stripe: u64) -> Option<usize> {
        let health = self.health();
        let rebuilding =
            health.rebuilding.filter(|_| stripe >= self.rebuilt.load(Ordering::Acquire));
        health.failed.or(rebuilding)
    }

    fn change(&self, change: impl FnOnce(&mut Health)) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut health);
        self.packed.store(pack(*health), Ordering::Release);
    }

    /// A member did not do what it was asked to, which was `why`: it is not used from now on.
    pub(super) fn fail(&self, role: usize, why: &'static str, status: Status) {
        let why = if status == Status::CAPACITY_EXCEEDED { FULL } else { why };
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        if causes.iter().all(|(other, _)| *other != role) {
            causes.push((role, why));
        }
        drop(causes);
        self.change(|health| match (health.failed, health.rebuilding) {
            (Some(failed), _) if failed == role => {}
            (None, rebuilding) if rebuilding.is_none_or(|rebuilding| rebuilding == role) => {
                *health =
                    Health { failed: Some(role), rebuilding: None, unsettled: true, ..*health };
            }
            _ => health.dead = true,
        });
        self.keeper.post(LOOK);
        if self.health().dead {
            self.tell();
        }
    }

    /// The superblocks say who failed.
    pub(super) fn settled(&self) {
        self.change(|health| health.unsettled = false);
        self.tell();
    }

    /// The rebuilding member holds everything, and the superblocks say so.
    pub(super) fn whole(&self) {
        self.change(|health| health.rebuilding = None);
    }

    /// Puts into `data`, these rows as they were read from a member, what it is owed.
    pub(super) fn patch(&self, role: usize, stripe: u64, rows: &Range<usize>, data: &mut [u8]) {
        if self.health().dead {
            self.owed.patch(role, stripe, rows, data);
        }
    }

    /// Has every channel look at the array again.
    fn tell(&self) {
        self.channels()
            .retain(|channel| channel.upgrade().inspect(|mailbox| mailbox.post(LOOK)).is_some());
    }

    fn channels(&self) -> MutexGuard<'_, Vec<Weak<Mailbox>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, mailbox: &Arc<Mailbox>) {
        let mut channels = self.channels();
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(mailbox));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_survives_packing() {
        for failed in [None, Some(0), Some(15)] {
            for (unsettled, dead) in [(false, false), (true, false), (true, true)] {
                let health = Health { failed, rebuilding: Some(3), unsettled, dead };
                assert_eq!(unpack(pack(health)), health);
            }
        }
    }
}
