//! What was measured: histograms that merge exactly, counters, errors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use ebb_dataplane::wire::Status;
use ebb_trace::Op;

use super::arrivals::Phase;
use crate::latency::Latency;

/// Requests of one kind.
#[derive(Debug, Clone)]
pub struct PerOp {
    /// From the intended start to the answer.
    pub latency: Latency,
    /// Bytes of requests that were done.
    pub bytes: u64,
}

/// Everything one thread measured.
#[derive(Debug, Clone)]
pub struct Meter {
    /// By [`Op`].
    pub ops: [PerOp; 4],
    /// By [`Phase`], where there are bursts.
    pub phases: Option<[Latency; 3]>,
    /// From the intended start to sending.
    pub delay: Latency,
    /// Requests that failed, by operation and status field.
    pub errors: BTreeMap<(u8, u16), u64>,
    /// Requests that waited for another one in flight on the same blocks.
    pub overlaps: u64,
    /// Jobs given up because their connection was lost.
    pub interrupted: u64,
    /// Requests that were due and never sent.
    pub unsent: u64,
    /// Processor time of the thread since counting began.
    pub cpu: Duration,
    /// When the last counted request was answered.
    pub last: Option<Instant>,
}

/// Names of the operations, by [`Op`].
pub const NAMES: [&str; 4] = ["read", "write", "flush", "trim"];

impl Meter {
    /// Nothing measured; phases are told apart if there are bursts.
    pub fn new(bursts: bool) -> Result<Self> {
        let op = PerOp { latency: Latency::new()?, bytes: 0 };
        let latency = Latency::new()?;
        Ok(Self {
            ops: [op.clone(), op.clone(), op.clone(), op],
            phases: bursts.then(|| [latency.clone(), latency.clone(), latency.clone()]),
            delay: latency,
            errors: BTreeMap::new(),
            overlaps: 0,
            interrupted: 0,
            unsent: 0,
            cpu: Duration::ZERO,
            last: None,
        })
    }
    /// A request was answered.
    pub fn answered(&mut self, op: Op, phase: Phase, latency: Duration, bytes: u64, at: Instant) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let per_op = &mut self.ops[op as usize];
        per_op.latency.record(nanos);
        per_op.bytes += bytes;
        if let Some(phases) = &mut self.phases {
            phases[phase as usize].record(nanos);
        }
        self.last = Some(at);
    }
    /// A request failed.
    pub fn failed(&mut self, op: Op, status: Status) {
        *self.errors.entry((op as u8, status.to_field())).or_default() += 1;
    }
    /// A request was sent so long after it was meant to be.
    pub fn sent(&mut self, delay: Duration) {
        self.delay.record(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
    }
    /// Adds what another thread measured.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        for (mine, theirs) in self.ops.iter_mut().zip(&other.ops) {
            mine.latency.merge(&theirs.latency)?;
            mine.bytes += theirs.bytes;
        }
        if let (Some(mine), Some(theirs)) = (&mut self.phases, &other.phases) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.merge(theirs)?;
            }
        }
        self.delay.merge(&other.delay)?;
        for (key, count) in &other.errors {
            *self.errors.entry(*key).or_default() += count;
        }
        self.overlaps += other.overlaps;
        self.interrupted += other.interrupted;
        self.unsent += other.unsent;
        self.cpu += other.cpu;
        self.last = self.last.max(other.last);
        Ok(())
    }
    /// All operations together.
    pub fn total(&self) -> Result<PerOp> {
        let mut total = PerOp { latency: Latency::new()?, bytes: 0 };
        for op in &self.ops {
            total.latency.merge(&op.latency)?;
            total.bytes += op.bytes;
        }
        Ok(total)
    }
}

/// What a running thread shows of itself: its own cache line, written by it alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Live {
    requests: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Live {
    /// One more request.
    #[inline]
    pub fn add(&self, bytes: u64, latency: Duration) {
        let add = |to: &AtomicU64, value: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        };
        add(&self.requests, 1);
        add(&self.bytes, bytes);
        add(&self.nanos, latency.as_nanos() as u64);
    }
    /// Requests, bytes and the sum of latencies so far.
    pub fn read(&self) -> [u64; 3] {
        [&self.requests, &self.bytes, &self.nanos].map(|value| value.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_exact() {
        let mut parts: Vec<Meter> = (0..3).map(|_| Meter::new(true).unwrap()).collect();
        let mut whole = Meter::new(true).unwrap();
        let now = Instant::now();
        for number in 0..10_000_u64 {
            let latency = Duration::from_nanos(number * number % 7_919_000 + 1);
            let op = if number % 3 == 0 { Op::Write } else { Op::Read };
            let phase = if number % 5 == 0 { Phase::Burst } else { Phase::Between };
            for meter in [&mut whole, &mut parts[(number % 3) as usize]] {
                meter.answered(op, phase, latency, 4096, now);
                meter.sent(latency / 2);
            }
        }
        let mut merged = parts.pop().unwrap();
        merged.failed(Op::Read, Status::LBA_OUT_OF_RANGE);
        parts[0].failed(Op::Read, Status::LBA_OUT_OF_RANGE);
        for part in &parts {
            merged.merge(part).unwrap();
        }
        assert_eq!(merged.errors.values().sum::<u64>(), 2);
        let (merged, whole) = (merged.total().unwrap(), whole.total().unwrap());
        assert_eq!((merged.bytes, merged.latency.count()), (10_000 * 4096, 10_000));
        assert_eq!(merged.latency.range(), whole.latency.range());
        assert_eq!(merged.latency.mean(), whole.latency.mean());
        for percent in [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            assert_eq!(merged.latency.percentile(percent), whole.latency.percentile(percent));
        }
    }
}
