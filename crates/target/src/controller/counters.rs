//! What I/O queues did, for the SMART log: counted without contention, summed when asked.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::lock::lock;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Read and Compare commands.
    pub reads: u64,
    /// Write and Write Zeroes commands.
    pub writes: u64,
    /// Bytes the host read (or had compared).
    pub bytes_read: u64,
    /// Bytes the host wrote.
    pub bytes_written: u64,
    /// Commands that failed on the medium.
    pub media_errors: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.media_errors += other.media_errors;
    }
}

/// One queue's counters: written by its thread alone, read by any.
#[derive(Debug, Default)]
#[repr(align(64))] // A cache line of its own.
pub(super) struct Counters {
    pub reads: Counter,
    pub writes: Counter,
    pub bytes_read: Counter,
    pub bytes_written: Counter,
    pub media_errors: Counter,
}

/// A counter with one writer, which therefore needs no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    fn totals(&self) -> Totals {
        Totals {
            reads: self.reads.get(),
            writes: self.writes.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            media_errors: self.media_errors.get(),
        }
    }
}

/// All queues' counters by host, and what those did that ended.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<(BTreeMap<String, Host>, Totals)>);

/// A host's queues, and what those of it did that ended before the last one does.
#[derive(Debug, Default)]
struct Host {
    live: Vec<Arc<Counters>>,
    ended: Totals,
}

impl Host {
    fn totals(&self) -> Totals {
        let mut sum = self.ended;
        self.live.iter().for_each(|counters| sum += counters.totals());
        sum
    }
}

impl Ledger {
    pub fn open(&self, host: &str) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        lock(&self.0).0.entry(host.to_owned()).or_default().live.push(counters.clone());
        counters
    }

    pub fn close(&self, host: &str, counters: &Arc<Counters>) {
        let (hosts, ended) = &mut *lock(&self.0);
        let Some(one) = hosts.get_mut(host) else { return };
        one.live.retain(|other| !Arc::ptr_eq(other, counters));
        one.ended += counters.totals();
        if one.live.is_empty() {
            *ended += one.ended;
            hosts.remove(host);
        }
    }

    pub fn totals(&self) -> Totals {
        let ledger = lock(&self.0);
        let (hosts, mut sum) = (&ledger.0, ledger.1);
        hosts.values().for_each(|host| sum += host.totals());
        sum
    }

    /// Of the hosts that have queues.
    pub fn by_host(&self) -> BTreeMap<String, Totals> {
        lock(&self.0).0.iter().map(|(host, one)| (host.clone(), one.totals())).collect()
    }
}
