//! The one pass over the requests.

use std::collections::HashSet;

use ebb_policy::units::Nanos;
use hdrhistogram::Histogram;

use super::footprint::Footprint;
use super::sequence::Sequence;
use super::sizes::Sizes;
use super::{Gaps, Latency, Summary};
use crate::request::{Op, Request};

/// Sizes that [`Summary::top_sizes`] lists.
const TOP: usize = 8;
/// Streams counted exactly; any larger number is reported as this.
const STREAMS: usize = 1 << 16;
const SECOND: u64 = 1_000_000_000;
/// Gaps without an arrival are counted from these lengths on.
const GAPS: [u64; 5] = [SECOND / 1000, SECOND / 100, SECOND / 10, SECOND, 10 * SECOND];

/// Collects a [`Summary`], request by request in time order.
pub struct Stats {
    counts: [u64; 4],
    read_bytes: u64,
    written_bytes: u64,
    first: Option<Nanos>,
    last: Nanos,
    /// The current second since the first arrival, and the arrivals in it.
    second: u64,
    in_second: u64,
    peak: u64,
    sizes: Sizes,
    sequence: Sequence,
    sequential: u64,
    footprint: Footprint,
    highest: u64,
    devices: Vec<bool>,
    streams: HashSet<u32>,
    latest_stream: Option<u32>,
    longest: u64,
    /// Count and sum of the gaps at least as long as each of [`GAPS`].
    gaps: [(u64, u64); GAPS.len()],
    /// Nanoseconds; always there, since its bounds are valid.
    latency: Option<Histogram<u64>>,
    latency_sum: u128,
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

impl Stats {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: [0; 4],
            read_bytes: 0,
            written_bytes: 0,
            first: None,
            last: Nanos::ZERO,
            second: 0,
            in_second: 0,
            peak: 0,
            sizes: Sizes::default(),
            sequence: Sequence::default(),
            sequential: 0,
            footprint: Footprint::default(),
            highest: 0,
            devices: Vec::new(),
            streams: HashSet::new(),
            latest_stream: None,
            longest: 0,
            gaps: [(0, 0); GAPS.len()],
            latency: Histogram::new_with_bounds(1, 1 << 42, 3).ok(),
            latency_sum: 0,
        }
    }

    /// Counts one request.
    pub fn push(&mut self, request: &Request) {
        self.time(request.at);
        self.counts[request.op as usize] += 1;
        let device = usize::from(request.device);
        if self.devices.len() <= device {
            self.devices.resize(device + 1, false);
        }
        self.devices[device] = true;
        if self.latest_stream != Some(request.stream) {
            self.latest_stream = Some(request.stream);
            if self.streams.len() < STREAMS {
                self.streams.insert(request.stream);
            }
        }
        match request.op {
            Op::Read => self.read_bytes += u64::from(request.bytes),
            Op::Write => self.written_bytes += u64::from(request.bytes),
            Op::Flush | Op::Trim => {}
        }
        if matches!(request.op, Op::Read | Op::Write) {
            self.place(request);
        }
        if let (Some(latency), Some(histogram)) = (request.recorded_latency, &mut self.latency) {
            histogram.saturating_record(latency.get());
            self.latency_sum += u128::from(latency.get());
        }
    }

    fn time(&mut self, at: Nanos) {
        let first = *self.first.get_or_insert(at);
        if self.counts != [0; 4] {
            let gap = at.saturating_sub(self.last).0;
            self.longest = self.longest.max(gap);
            for (least, (count, sum)) in GAPS.iter().zip(&mut self.gaps) {
                if gap < *least {
                    break;
                }
                *count += 1;
                *sum += gap;
            }
        }
        self.last = at;
        let second = at.saturating_sub(first).0 / SECOND;
        if second != self.second {
            self.second = second;
            self.in_second = 0;
        }
        self.in_second += 1;
        self.peak = self.peak.max(self.in_second);
    }

    fn place(&mut self, request: &Request) {
        let Request { device, offset, bytes, .. } = *request;
        self.sizes.push(bytes);
        self.sequential += u64::from(self.sequence.push(device, offset, bytes));
        self.footprint.push(device, offset, bytes);
        self.highest = self.highest.max(offset.saturating_add(u64::from(bytes)));
    }

    /// The numbers so far.
    pub fn summary(&mut self) -> Summary {
        let [reads, writes, flushes, trims] = self.counts;
        let data = reads + writes;
        let bytes = self.read_bytes + self.written_bytes;
        let seconds = self.last.saturating_sub(self.first.unwrap_or_default()).seconds();
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        let requests = data + flushes + trims;
        Summary {
            requests,
            seconds,
            reads,
            writes,
            flushes,
            trims,
            read_share: share(reads, data),
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            iops: rate(requests),
            peak_iops: self.peak,
            bytes_per_second: rate(bytes),
            size_mean: share(bytes, data),
            size_p50: self.sizes.quantile(0.5),
            size_p95: self.sizes.quantile(0.95),
            size_max: self.sizes.quantile(1.0),
            top_sizes: self.sizes.top(TOP),
            sequential_share: share(self.sequential, data),
            footprint_bytes: self.footprint.bytes(),
            footprint_is_exact: self.footprint.is_exact(),
            highest_byte: self.highest,
            devices: self.devices.iter().filter(|seen| **seen).count() as u32,
            streams: self.streams.len() as u32,
            longest_gap_seconds: Nanos(self.longest).seconds(),
            gaps: self.gaps_summary(seconds),
            recorded_latency: self.latency_summary(),
        }
    }

    fn gaps_summary(&self, seconds: f64) -> Vec<Gaps> {
        let all = GAPS.iter().zip(&self.gaps).filter(|(_, (count, _))| *count > 0);
        all.map(|(least, (count, sum))| Gaps {
            at_least_seconds: Nanos(*least).seconds(),
            count: *count,
            share_of_time: Nanos(*sum).seconds() / seconds,
        })
        .collect()
    }

    fn latency_summary(&self) -> Option<Latency> {
        let histogram = self.latency.as_ref().filter(|histogram| !histogram.is_empty())?;
        let micros = |quantile: f64| histogram.value_at_quantile(quantile) as f64 * 1e-3;
        Some(Latency {
            count: histogram.len(),
            mean: self.latency_sum as f64 * 1e-3 / histogram.len() as f64,
            p50: micros(0.5),
            p99: micros(0.99),
            p99_9: micros(0.999),
            max: histogram.max() as f64 * 1e-3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::summarise;
    use crate::transform::tests::{at, given};
    use std::num::NonZeroU64;

    fn write(micros: u64, offset: u64, bytes: u32) -> Request {
        Request { op: Op::Write, offset, bytes, ..at(micros) }
    }

    #[test]
    fn a_small_trace_in_numbers() {
        let latency = NonZeroU64::new(100_000);
        let list = [
            Request { recorded_latency: latency, ..at(0) },
            write(500_000, 4096, 8192),
            Request { device: 3, stream: 9, ..at(600_000) },
            Request { op: Op::Flush, bytes: 0, ..at(600_000) },
            write(4_000_000, 1 << 30, 4096),
        ];
        let summary = summarise(&mut given(list)).unwrap();
        assert_eq!(
            (summary.requests, summary.reads, summary.writes, summary.flushes),
            (5, 2, 2, 1)
        );
        assert_eq!((summary.seconds, summary.iops, summary.peak_iops), (4.0, 1.25, 4));
        assert_eq!(
            (summary.read_share, summary.read_bytes, summary.written_bytes),
            (0.5, 8192, 12_288)
        );
        assert_eq!(summary.bytes_per_second, 5120.0);
        assert_eq!((summary.size_p50, summary.size_p95, summary.size_max), (4096, 8192, 8192));
        assert_eq!(summary.top_sizes, [(4096, 0.75), (8192, 0.25)]);
        assert_eq!(summary.sequential_share, 0.25);
        assert_eq!(summary.footprint_bytes, 5 * 4096);
        assert_eq!(
            (summary.highest_byte, summary.devices, summary.streams),
            ((1 << 30) + 4096, 2, 2)
        );
        assert!((summary.longest_gap_seconds - 3.4).abs() < 1e-9);
        let second = summary.gaps.iter().find(|gaps| gaps.at_least_seconds == 1.0).unwrap();
        assert_eq!(second.count, 1);
        assert!((second.share_of_time - 0.85).abs() < 1e-9);
        assert_eq!(summary.gaps[0].count, 3);
        let latency = summary.recorded_latency.unwrap();
        assert_eq!((latency.count, latency.mean), (1, 100.0));
        assert!((latency.p99 - 100.0).abs() < 0.1);
    }

    #[test]
    fn no_requests_and_one_request_have_a_summary() {
        let none = summarise(&mut given([])).unwrap();
        assert_eq!((none.requests, none.iops, none.size_p50), (0, 0.0, 0));
        let one = summarise(&mut given([at(5)])).unwrap();
        assert_eq!((one.requests, one.seconds, one.iops, one.peak_iops), (1, 0.0, 0.0, 1));
    }
}
