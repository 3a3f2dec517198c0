//! The latency of users' requests in one control period, reads and writes apart.

use hdrhistogram::{CreationError, Histogram};

use ebb_policy::units::Nanos;
use ebb_policy::{OpSignals, Percentiles};
use ebb_trace::Op;

/// Finest difference told, in nanoseconds; a drive's fastest answer takes a hundred times as long.
const FINEST: u64 = 128;

/// Reads or writes of one period.
#[derive(Debug)]
struct Class {
    completed: u64,
    bytes: u64,
    sum: u64,
    latency: Histogram<u32>,
}

impl Class {
    fn new(longest: u64) -> Result<Self, CreationError> {
        let latency = Histogram::new_with_bounds(FINEST, longest, 2)?;
        Ok(Self { completed: 0, bytes: 0, sum: 0, latency })
    }

    fn signals(&self) -> OpSignals {
        OpSignals {
            completed: Some(self.completed),
            bytes: Some(self.bytes),
            mean_latency: self.sum.checked_div(self.completed).map(Nanos),
            percentiles: percentiles(&self.latency),
        }
    }

    fn clear(&mut self) {
        if self.completed > 0 {
            (self.completed, self.bytes, self.sum) = (0, 0, 0);
            self.latency.reset();
        }
    }
}

/// All requests of one period.
#[derive(Debug)]
pub(super) struct Latencies {
    reads: Class,
    writes: Class,
    /// Scratch: both together.
    all: Histogram<u32>,
}

impl Latencies {
    /// None yet; up to `longest` nanoseconds are told apart.
    pub(super) fn new(longest: u64) -> Result<Self, CreationError> {
        let (reads, writes) = (Class::new(longest)?, Class::new(longest)?);
        Ok(Self { all: reads.latency.clone(), reads, writes })
    }

    /// A request was answered after `latency` nanoseconds.
    #[inline]
    pub(super) fn add(&mut self, op: Op, bytes: u32, latency: u64) {
        let class = if op == Op::Read { &mut self.reads } else { &mut self.writes };
        class.completed += 1;
        class.bytes += u64::from(bytes);
        class.sum += latency;
        class.latency.saturating_record(latency);
    }

    /// How many there were, their bytes, their mean latency.
    pub(super) fn totals(&self) -> (u64, u64, Option<Nanos>) {
        let Self { reads, writes, .. } = self;
        let completed = reads.completed + writes.completed;
        let mean = (reads.sum + writes.sum).checked_div(completed).map(Nanos);
        (completed, reads.bytes + writes.bytes, mean)
    }

    /// Reads, writes, and the percentiles of both together; the next period begins.
    pub(super) fn take(&mut self) -> (OpSignals, OpSignals, Option<Percentiles>) {
        let Self { reads, writes, all } = self;
        let (read, written) = (reads.signals(), writes.signals());
        let both = match (reads.completed, writes.completed) {
            (_, 0) => read.percentiles,
            (0, _) => written.percentiles,
            _ => {
                all.reset();
                // Three histograms of the same bounds: nothing falls out.
                let added = all.add(&reads.latency).and_then(|()| all.add(&writes.latency));
                added.ok().and_then(|()| percentiles(all))
            }
        };
        reads.clear();
        writes.clear();
        (read, written, both)
    }
}

fn percentiles(latency: &Histogram<u32>) -> Option<Percentiles> {
    let at = |share| Nanos(latency.value_at_quantile(share));
    (!latency.is_empty()).then(|| Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_requests_within_two_digits() {
        let mut latencies = Latencies::new(3_600_000_000_000).unwrap();
        for n in 1..=1000_u64 {
            latencies.add(Op::Read, 4096, n * 1000);
        }
        latencies.add(Op::Write, 512, 50_000_000);
        let (completed, bytes, mean) = latencies.totals();
        assert_eq!((completed, bytes), (1001, 1000 * 4096 + 512));
        assert_eq!(mean, Some(Nanos((500_500_000 + 50_000_000) / 1001)));
        let (reads, writes, all) = latencies.take();
        let near = |is: Nanos, exact: f64| (is.0 as f64 / exact - 1.0).abs() < 0.01;
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
