//! RocksDB under random inserts: log, flushes, and compactions that start when enough SST files
//! have gathered (PACMAN §VI-C and Table II).

use ebb_policy::units::Nanos;

use super::error::{GenerateError, Place};
use super::spec::RocksdbSpec;
use super::target::Target;
use crate::request::{Op, Request};

/// Sizes are rounded up to this, as a file system would.
const PAGE: u64 = 4096;
/// Writers wait while this many times the trigger's files have gathered (assumed: RocksDB wants
/// the stop trigger raised along with the compaction trigger, and the paper does not say how far).
const STALL: u64 = 2;

/// An instance. Its slots are the requests it can have outstanding; whichever is free takes the
/// most urgent work: log writes that are due, then flushes, then compaction. Work becomes
/// runnable when what it depends on was issued, at most `depth` requests before it completed.
pub(super) struct Rocksdb {
    log: Ring,
    files: Ring,
    level: Ring,
    stripe: Stripe,
    first: u32,
    memtable: u64,
    log_block: u64,
    block: u64,
    trigger: u64,
    merge: f64,
    /// Nanoseconds per byte that the inserting threads offer.
    pace: f64,
    /// When the next log write is due.
    due: f64,
    /// Data not yet written to the log, and logged data not yet flushed.
    to_log: u64,
    filling: u64,
    to_flush: u64,
    /// Bytes of the SST file being flushed, and SST files waiting for compaction.
    flushed: u64,
    gathered: u64,
    compaction: Compaction,
}

/// What is left of a compaction; reads and writes alternate.
#[derive(Default)]
struct Compaction {
    /// SST file bytes and next-level bytes to read, merged bytes to write.
    read_files: u64,
    read_level: u64,
    write: u64,
    /// The SST files' place in their ring, and how far into them the merge has come.
    base: u64,
    done: u64,
    last_was_read: bool,
}

/// An area that is written in order and again from its start.
struct Ring {
    from: u64,
    size: u64,
    at: u64,
}

impl Ring {
    fn take(&mut self, bytes: u64) -> u64 {
        if self.at + bytes > self.size {
            self.at = 0;
        }
        let place = self.from + self.at;
        self.at += bytes;
        place
    }
}

/// The stripe over the drives of the instance.
struct Stripe {
    target: Target,
    unit: u64,
}

impl Stripe {
    fn place(&self, logical: u64) -> (u16, u64) {
        let (unit, within) = (logical / self.unit, logical % self.unit);
        let drives = u64::from(self.target.count);
        (self.target.first + (unit % drives) as u16, unit / drives * self.unit + within)
    }
}

impl Rocksdb {
    /// Log, flush and compaction go to cores of their own.
    pub(super) const STREAMS: u32 = 3;

    pub(super) fn new(
        spec: &RocksdbSpec,
        target: Target,
        first: u32,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        let (block, log_block, memtable) = (spec.block.0, spec.log_block.0, spec.memtable.0);
        let pages = |size: u64| size > 0 && size.is_multiple_of(PAGE) && size <= 1 << 30;
        place.need(pages(block), "block", "must be a multiple of 4 KiB up to 1 GiB")?;
        place.need(pages(log_block), "log_block", "must be a multiple of 4 KiB up to 1 GiB")?;
        let good = block.is_multiple_of(log_block);
        place.need(good, "log_block", "must divide the block, which is the stripe unit")?;
        let good = memtable > 0 && memtable.is_multiple_of(block);
        place.need(good, "memtable", "must be a multiple of the block")?;
        place.need(spec.trigger > 0, "trigger", "must be at least 1")?;
        place.need(spec.offer.0 > 0, "offer", "must be above zero")?;
        let good = spec.merge.is_finite() && (0.0..=100.0).contains(&spec.merge);
        place.need(good, "merge", "must be between 0 and 100")?;
        let slots = (1..=65_536).contains(&spec.depth);
        place.need(slots, "depth", "must be between 1 and 65536")?;
        // A sixteenth of the space for the log, seven for SST files, half for the next level.
        let unit = memtable * u64::from(target.count);
        let part = (target.capacity / block * block * u64::from(target.count) / 16) / unit * unit;
        let trigger = u64::from(spec.trigger);
        let good = part.saturating_mul(7) >= memtable.saturating_mul((STALL + 1) * trigger);
        let reason = format!(
            "the drives are too small for {} files of {}",
            (STALL + 1) * trigger,
            spec.memtable
        );
        place.need(good, "trigger", &reason)?;
        Ok(Self {
            log: Ring { from: 0, size: part, at: 0 },
            files: Ring { from: part, size: 7 * part, at: 0 },
            level: Ring { from: 8 * part, size: 8 * part, at: 0 },
            stripe: Stripe { target, unit: block },
            first,
            memtable,
            log_block,
            block,
            trigger,
            merge: spec.merge,
            pace: 1e9 / spec.offer.0 as f64,
            due: 0.0,
            to_log: spec.data.0.next_multiple_of(PAGE),
            filling: 0,
            to_flush: 0,
            flushed: 0,
            gathered: 0,
            compaction: Compaction::default(),
        })
    }

    /// The most urgent request at `now`; `None` when all is done.
    pub(super) fn next(&mut self, now: u64) -> Option<Request> {
        let stalled = self.gathered >= STALL * self.trigger && self.compaction.left() > 0;
        if self.to_log > 0 && !stalled && self.due <= now as f64 {
            return Some(self.log(now));
        }
        if self.to_flush > 0 {
            return Some(self.flush(now));
        }
        if self.compaction.left() == 0 && self.gathered >= self.trigger {
            self.begin_compaction();
        }
        if self.compaction.left() > 0 {
            return Some(self.compact(now));
        }
        (self.to_log > 0).then(|| self.log(now))
    }

    fn log(&mut self, now: u64) -> Request {
        let bytes = self.log_block.min(self.to_log).min(self.memtable - self.filling);
        let at = now.max(self.due as u64);
        self.due = at as f64 + bytes as f64 * self.pace;
        self.to_log -= bytes;
        self.filling += bytes;
        if self.filling == self.memtable || self.to_log == 0 {
            self.to_flush += self.filling;
            self.filling = 0;
        }
        let logical = self.log.take(bytes);
        self.request(at, Op::Write, logical, bytes, 0)
    }

    fn flush(&mut self, now: u64) -> Request {
        let bytes = self.block.min(self.to_flush).min(self.memtable - self.flushed);
        let logical = self.files.take(bytes);
        self.to_flush -= bytes;
        self.flushed += bytes;
        if self.flushed == self.memtable {
            self.flushed = 0;
            self.gathered += 1;
        }
        self.request(now, Op::Write, logical, bytes, 1)
    }

    /// Merges the oldest `trigger` files with their share of the next level. All but the last
    /// file are whole, and the last one never makes up the number alone.
    fn begin_compaction(&mut self) {
        let files = self.trigger * self.memtable;
        let level = ((files as f64 * self.merge) as u64).next_multiple_of(self.block);
        let base = self.compaction.base + self.compaction.done;
        self.gathered -= self.trigger;
        self.compaction = Compaction {
            read_files: files,
            read_level: level,
            write: files + level,
            base: base % self.files.size,
            done: 0,
            last_was_read: false,
        };
    }

    fn compact(&mut self, now: u64) -> Request {
        let reads = self.compaction.read_files + self.compaction.read_level;
        let read = reads > 0 && (!self.compaction.last_was_read || self.compaction.write == 0);
        self.compaction.last_was_read = read;
        if !read {
            let bytes = self.block.min(self.compaction.write);
            self.compaction.write -= bytes;
            let logical = self.level.take(bytes);
            return self.request(now, Op::Write, logical, bytes, 2);
        }
        // Both inputs advance together, the one with more left first.
        if self.compaction.read_files >= self.compaction.read_level {
            let bytes = self.block.min(self.compaction.read_files);
            let logical = self.files.from + self.merge_place();
            self.compaction.read_files -= bytes;
            self.compaction.done += bytes;
            return self.request(now, Op::Read, logical, bytes, 2);
        }
        let bytes = self.block.min(self.compaction.read_level);
        self.compaction.read_level -= bytes;
        // The old next level lies half a ring away from where the new one is written.
        let half = self.level.size / 2;
        let behind = (self.level.at + half) / self.block * self.block % self.level.size;
        let fits = if behind + bytes > self.level.size { 0 } else { behind };
        self.request(now, Op::Read, self.level.from + fits, bytes, 2)
    }

    /// Where the merge reads next: a block of each file in turn, as the keys of all interleave.
    fn merge_place(&self) -> u64 {
        let blocks = self.compaction.done / self.block;
        let (round, file) = (blocks / self.trigger, blocks % self.trigger);
        let place = self.compaction.base + file * self.memtable + round * self.block;
        place % self.files.size
    }

    fn request(&self, at: u64, op: Op, logical: u64, bytes: u64, stream: u32) -> Request {
        let (device, offset) = self.stripe.place(logical);
        Request {
            at: Nanos(at),
            offset,
            bytes: bytes as u32,
            device,
            op,
            stream: self.first + stream,
            recorded_latency: None,
        }
    }
}

impl Compaction {
    const fn left(&self) -> u64 {
        self.read_files + self.read_level + self.write
    }
}
