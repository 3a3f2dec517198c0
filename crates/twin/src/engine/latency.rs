//! The latency of users' requests in one control period, reads and writes apart.

use ebb_policy::units::Nanos;
use ebb_policy::{OpSignals, Percentiles};
use ebb_trace::Op;

/// Buckets of one power of two, as a power of two: a bucket is 3 % wide.
const BITS: u32 = 5;
/// Buckets for any number of nanoseconds.
const BUCKETS: usize = ((u64::BITS - BITS + 1) << BITS) as usize;

/// A histogram that is read and emptied in the time that its few values take. To do so with one for
/// long runs (HDR) takes longer than all else in a period in which little happened.
#[derive(Debug)]
struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    /// The buckets that are not empty lie between these.
    low: usize,
    high: usize,
}

impl Histogram {
    fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), low: BUCKETS, high: 0 }
    }

    #[inline]
    fn add(&mut self, value: u64) {
        let shift = (value | 1).ilog2().saturating_sub(BITS);
        let bucket = ((shift << BITS) as usize) + (value >> shift) as usize;
        self.counts[bucket] += 1;
        self.low = self.low.min(bucket);
        self.high = self.high.max(bucket);
    }

    fn clear(&mut self) {
        if self.low <= self.high {
            self.counts[self.low..=self.high].fill(0);
        }
        (self.low, self.high) = (BUCKETS, 0);
    }
}

/// The middle of a bucket.
fn middle(bucket: usize) -> Nanos {
    let shift = (bucket >> BITS).saturating_sub(1) as u32;
    let least = (bucket - ((shift << BITS) as usize)) as u64;
    Nanos((least << shift) + ((1 << shift) >> 1))
}

/// Percentiles of all that `histograms` hold together.
fn percentiles<const N: usize>(histograms: [&Histogram; N], count: u64) -> Option<Percentiles> {
    let low = histograms.iter().map(|one| one.low).min()?;
    let high = histograms.iter().map(|one| one.high).max()?;
    let mut buckets = low..=high;
    let mut below = 0_u64;
    let mut bucket = low;
    // The first bucket with which at least this share is counted; each goes on from the last.
    let mut at = |share: f64| {
        let wanted = (share * count as f64).ceil().max(1.0) as u64;
        while below < wanted {
            let Some(next) = buckets.next() else { break };
            bucket = next;
            below += histograms.iter().map(|one| u64::from(one.counts[next])).sum::<u64>();
        }
        middle(bucket)
    };
    (count > 0).then(|| Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) })
}

/// Reads or writes of one period.
#[derive(Debug)]
struct Class {
    completed: u64,
    bytes: u64,
    sum: u64,
    latency: Histogram,
}

impl Class {
    fn new() -> Self {
        Self { completed: 0, bytes: 0, sum: 0, latency: Histogram::new() }
    }

    fn signals(&self) -> OpSignals {
        OpSignals {
            completed: Some(self.completed),
            bytes: Some(self.bytes),
            mean_latency: self.sum.checked_div(self.completed).map(Nanos),
            percentiles: percentiles([&self.latency], self.completed),
        }
    }

    fn clear(&mut self) {
        (self.completed, self.bytes, self.sum) = (0, 0, 0);
        self.latency.clear();
    }
}

/// All requests of one period.
#[derive(Debug)]
pub(super) struct Latencies {
    reads: Class,
    writes: Class,
}

impl Latencies {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { reads: Class::new(), writes: Class::new() }
    }

    /// A request was answered after `latency` nanoseconds.
    #[inline]
    pub(super) fn add(&mut self, op: Op, bytes: u32, latency: u64) {
        let class = if op == Op::Read { &mut self.reads } else { &mut self.writes };
        class.completed += 1;
        class.bytes += u64::from(bytes);
        class.sum += latency;
        class.latency.add(latency);
    }

    /// How many there were, their bytes, their mean latency.
    pub(super) fn totals(&self) -> (u64, u64, Option<Nanos>) {
        let Self { reads, writes } = self;
        let completed = reads.completed + writes.completed;
        let mean = (reads.sum + writes.sum).checked_div(completed).map(Nanos);
        (completed, reads.bytes + writes.bytes, mean)
    }

    /// Reads, writes, and the percentiles of both together; the next period begins.
    pub(super) fn take(&mut self) -> (OpSignals, OpSignals, Option<Percentiles>) {
        let Self { reads, writes } = self;
        let count = reads.completed + writes.completed;
        let all = percentiles([&reads.latency, &writes.latency], count);
        let taken = (reads.signals(), writes.signals(), all);
        reads.clear();
        writes.clear();
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_s_middle_is_near_what_is_in_it(value in any::<u64>(), places in 0..64_u32) {
            let (mut histogram, value) = (Histogram::new(), value >> places);
            histogram.add(value);
            prop_assert_eq!(histogram.low, histogram.high);
            let middle = middle(histogram.low).0;
            prop_assert!(middle.abs_diff(value) <= value >> (BITS + 1), "{} for {}", middle, value);
            histogram.clear();
            prop_assert!(histogram.counts.iter().all(|count| *count == 0));
        }
    }

    #[test]
    fn percentiles_are_those_of_the_requests() {
        let mut latencies = Latencies::new();
        for n in 1..=1000_u64 {
            latencies.add(Op::Read, 4096, n * 1000);
        }
        latencies.add(Op::Write, 512, 50_000_000);
        let (completed, bytes, mean) = latencies.totals();
        assert_eq!((completed, bytes), (1001, 1000 * 4096 + 512));
        assert_eq!(mean, Some(Nanos((500_500_000 + 50_000_000) / 1001)));
        let (reads, writes, all) = latencies.take();
        let near = |is: Nanos, exact: f64| (is.0 as f64 / exact - 1.0).abs() < 0.017;
        let of = reads.percentiles.unwrap();
        assert!(near(of.p50, 500e3) && near(of.p99, 990e3) && near(of.p999, 999e3), "{of:?}");
        assert_eq!((reads.completed, reads.bytes), (Some(1000), Some(1000 * 4096)));
        assert!(near(writes.percentiles.unwrap().p50, 50e6));
        assert!(near(all.unwrap().p999, 1000e3), "{all:?}");
        let (reads, writes, all) = latencies.take();
        assert_eq!((reads.completed, reads.mean_latency, reads.percentiles), (Some(0), None, None));
        assert_eq!((writes.completed, all), (Some(0), None));
    }
}
