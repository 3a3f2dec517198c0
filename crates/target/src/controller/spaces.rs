//! The namespaces of a subsystem, which come, go and grow while hosts use it.
//!
//! A namespace's index is its identifier less one, here and in every plan. What commands ask of it
//! stands in atomics, so that no command takes a lock. An index is given to another namespace only
//! once no thread has a command for the one before: see `Group`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::config::Namespace;
use super::lock::lock;
use crate::device::Geometry;

/// What commands ask of a namespace.
#[derive(Debug, Default)]
struct Space {
    /// None where there is no namespace; stored last.
    blocks: AtomicU64,
    block_size: AtomicU32,
    read_only: AtomicBool,
    /// The change of the subsystem's namespaces that was its last.
    changed: AtomicU64,
}

pub(super) struct Spaces {
    list: Box<[Space]>,
    namespaces: Mutex<BTreeMap<u32, Namespace>>,
    /// Changes so far.
    changes: AtomicU64,
}

impl Spaces {
    /// With room for `most`, `namespaces` being there already.
    pub fn new(namespaces: Vec<Namespace>, most: u32) -> Self {
        let list = (0..most).map(|_| Space::default()).collect();
        let this = Self { list, namespaces: Mutex::default(), changes: AtomicU64::new(0) };
        namespaces.into_iter().for_each(|one| this.put(one));
        this
    }

    /// How many there may be: the largest identifier.
    pub fn most(&self) -> u32 {
        self.list.len() as u32
    }

    /// All there are, by ascending identifier.
    pub fn all(&self) -> Vec<Namespace> {
        lock(&self.namespaces).values().cloned().collect()
    }

    pub fn get(&self, id: u32) -> Option<Namespace> {
        lock(&self.namespaces).get(&id).cloned()
    }

    /// The identifiers of all, ascending.
    pub fn ids(&self) -> Vec<u32> {
        lock(&self.namespaces).keys().copied().collect()
    }

    /// The index of an active namespace.
    pub fn find(&self, id: u32) -> Option<usize> {
        let index = (id as usize).wrapping_sub(1);
        let space = self.list.get(index)?;
        (space.blocks.load(Ordering::Acquire) > 0).then_some(index)
    }

    /// Of no blocks where there is none.
    pub fn geometry(&self, index: usize) -> Geometry {
        let space = &self.list[index];
        let blocks = space.blocks.load(Ordering::Acquire);
        Geometry { blocks, block_size: space.block_size.load(Ordering::Relaxed) }
    }

    pub fn is_read_only(&self, index: usize) -> bool {
        self.list[index].read_only.load(Ordering::Relaxed)
    }

    /// Adds a namespace that was checked.
    pub fn put(&self, namespace: Namespace) {
        let mut namespaces = lock(&self.namespaces);
        let (id, geometry) = (namespace.id, namespace.device.geometry());
        let space = &self.list[id as usize - 1];
        space.block_size.store(geometry.block_size, Ordering::Relaxed);
        space.read_only.store(namespace.read_only, Ordering::Relaxed);
        namespaces.insert(id, namespace);
        space.blocks.store(geometry.blocks, Ordering::Release);
        self.note(space);
    }

    /// Takes a namespace out: hosts see it no more.
    pub fn take(&self, id: u32) -> Option<Namespace> {
        let mut namespaces = lock(&self.namespaces);
        let namespace = namespaces.remove(&id)?;
        let space = &self.list[id as usize - 1];
        space.blocks.store(0, Ordering::Release);
        self.note(space);
        Some(namespace)
    }

    /// The device of a namespace has grown.
    pub fn grown(&self, id: u32) {
        let namespaces = lock(&self.namespaces);
        let Some(namespace) = namespaces.get(&id) else { return };
        let space = &self.list[id as usize - 1];
        space.blocks.store(namespace.device.geometry().blocks, Ordering::Release);
        self.note(space);
    }

    /// Under the lock of the namespaces.
    fn note(&self, space: &Space) {
        let change = self.changes.load(Ordering::Relaxed) + 1;
        space.changed.store(change, Ordering::Relaxed);
        self.changes.store(change, Ordering::Release);
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The identifiers of the namespaces that changed after change number `seen`, ascending.
    pub fn changed_since(&self, seen: u64) -> impl Iterator<Item = u32> + '_ {
        let is_new = move |space: &Space| space.changed.load(Ordering::Relaxed) > seen;
        (1..).zip(&self.list).filter(move |(_, space)| is_new(space)).map(|(id, _)| id)
    }
}
