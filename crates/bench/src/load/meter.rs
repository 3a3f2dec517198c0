//! What was measured: histograms that merge exactly, counters, errors.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use ebb_nvme::Status;
use ebb_trace::Op;

use super::arrivals::Phase;
use crate::latency::Latency;
use crate::measured::Requests;

/// Everything one thread measured.
#[derive(Debug, Clone)]
pub struct Meter {
    /// From the intended start to the answer.
    pub requests: Requests,
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

impl Meter {
    /// Nothing measured; phases are told apart if there are bursts.
    pub fn new(bursts: bool) -> Result<Self> {
        let latency = Latency::new()?;
        Ok(Self {
            requests: Requests::new()?,
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
        self.requests.add(op, nanos, bytes);
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
        self.requests.merge(&other.requests)?;
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
        assert_eq!(merged.requests.bytes(), 10_000 * 4096);
        let (merged, whole) =
            (merged.requests.latency().unwrap(), whole.requests.latency().unwrap());
        assert_eq!(merged.count(), 10_000);
        assert_eq!((merged.range(), merged.mean()), (whole.range(), whole.mean()));
        for percent in [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            assert_eq!(merged.percentile(percent), whole.percentile(percent));
        }
    }
}
