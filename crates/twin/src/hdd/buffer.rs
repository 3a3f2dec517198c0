//! The write cache: writes are acknowledged when they are in it and reach the media later, in
//! the order that suits the heads.

use std::collections::VecDeque;

use super::Access;
use super::profile::WriteCache;

/// Largest extent that neighbouring writes are merged into.
const MOST_MERGED: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct Buffer {
    enabled: bool,
    size: u64,
    most: usize,
    /// Bytes acknowledged and not on the media.
    bytes: u64,
    /// What waits to be written, oldest first.
    writes: Vec<Access>,
    /// Writes that wait for room.
    stalled: VecDeque<Access>,
    /// Flushes that wait for the cache to be empty.
    pub(super) flushes: Vec<u32>,
}

impl Buffer {
    pub(super) fn new(spec: &WriteCache) -> Self {
        Self {
            enabled: spec.enabled,
            size: spec.size.0,
            most: spec.writes as usize,
            bytes: 0,
            writes: Vec::new(),
            stalled: VecDeque::new(),
            flushes: Vec::new(),
        }
    }

    pub(super) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Takes a write if there is room, else lets it wait for some.
    pub(super) fn accept(&mut self, write: Access) -> bool {
        if !self.stalled.is_empty() || !self.put(write) {
            self.stalled.push_back(write);
            return false;
        }
        true
    }

    fn put(&mut self, write: Access) -> bool {
        // One larger than the cache passes when it is alone.
        let room = self.bytes + write.bytes <= self.size || self.bytes == 0;
        let merges = self.writes.last().is_some_and(|last| {
            last.offset + last.bytes == write.offset && last.bytes + write.bytes <= MOST_MERGED
        });
        if !room || !merges && self.writes.len() >= self.most {
            return false;
        }
        self.bytes += write.bytes;
        match self.writes.last_mut() {
            Some(last) if merges => last.bytes += write.bytes,
            _ => self.writes.push(write),
        }
        true
    }

    /// Acknowledges the next write that waited, if there is room now.
    pub(super) fn admit(&mut self) -> Option<Access> {
        let next = *self.stalled.front()?;
        if self.put(next) { self.stalled.pop_front() } else { None }
    }

    /// Writes that wait to reach the media.
    pub(super) fn writes(&self) -> &[Access] {
        &self.writes
    }

    pub(super) fn take(&mut self, index: usize) -> Access {
        self.writes.remove(index)
    }

    /// A write has reached the media.
    pub(super) fn written(&mut self, write: &Access) {
        self.bytes -= write.bytes;
    }

    /// Whether all of a range is in the cache.
    pub(super) fn holds(&self, offset: u64, bytes: u64) -> bool {
        let end = offset + bytes;
        self.writes.iter().any(|held| held.offset <= offset && end <= held.offset + held.bytes)
    }

    pub(super) fn has_work(&self) -> bool {
        !self.writes.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.stalled.is_empty()
    }

    /// Whether somebody waits for the cache, or soon would.
    pub(super) fn is_pressed(&self) -> bool {
        let full = 2 * self.writes.len() >= self.most || 2 * self.bytes >= self.size;
        full || !self.stalled.is_empty() || !self.flushes.is_empty()
    }
}
