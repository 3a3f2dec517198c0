//! I/O pressure (PACER §III-A3): how much of what the server could do the trace asks for.
//!
//! PACER cuts a trace into segments of 20 minutes and takes from each segment `t` the mean IOPS
//! `I_t`, the read:write ratio `R_t`, the access pattern `A_t` (random:sequential) and the
//! distribution of sizes `S_t`. A benchmark with these parameters runs twice: once at `I_t`, once
//! without a limit. With `U` the throughput it reaches, over the runtime σ of the benchmark,
//!
//! ```text
//!                    σ
//!                    Σ   U(I_t, R_t, A_t, S_t)
//!                   t=0
//! pressure = 100 · ─────────────────────────────
//!                    σ
//!                    Σ   U(max, R_t, A_t, S_t)
//!                   t=0
//! ```
//!
//! The text does not say what `U` measures. Here it is IOPS reached, since the paper concludes
//! from a pressure of 10 % that the system "can potentially achieve 10x more IOPS". The runs are
//! the twin's; this file has the segments and the equation. One segment alone gives its own
//! pressure, whose distribution over the segments is the paper's Fig. 5.

use ebb_policy::units::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use crate::request::{Op, Request, Source, TraceError};
use crate::stats::sequence::Sequence;
use crate::stats::sizes::Sizes;

/// The paper's segments (§III-A3).
pub const SEGMENT: Nanos = Nanos::from_secs(20 * 60);
/// Sizes kept of a segment's distribution; rarer ones are left out and the shares of the others
/// grow accordingly.
const MOST_SIZES: usize = 64;
/// Segments of one trace: 38 years at the paper's length.
const MOST_SEGMENTS: usize = 1_000_000;

/// One segment of a trace as parameters of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Segment {
    /// Its start, in seconds since the start of the trace.
    pub start_seconds: f64,
    /// Its length in seconds; of the last segment, up to the last request.
    pub seconds: f64,
    /// Reads and writes in it; flushes and trims do not count.
    pub requests: u64,
    /// I_t: mean rate of the segment.
    pub iops: f64,
    /// `R_t` as the share of reads, 0 to 1 (the paper's reads:writes is `r / (1 - r)`).
    pub read_share: f64,
    /// `A_t` as the share of random requests, 0 to 1 (the paper's random:sequential is
    /// `a / (1 - a)`). Sequential is what starts where one of the last 32 of its device ended.
    pub random_share: f64,
    /// `S_t`: sizes in bytes with their shares, the most frequent first; shares add up to 1.
    pub sizes: Vec<(u32, f64)>,
}

/// Cuts all that `source` still has into segments of `length`. A segment without requests has
/// `I_t = 0` and the other parameters of the one before it, so that its unlimited run exists.
///
/// # Errors
/// When `source` fails, or there are more than a million segments.
pub fn segments(source: &mut dyn Source, length: Nanos) -> Result<Vec<Segment>, TraceError> {
    let mut cutter = Cutter::new(length);
    let mut batch = Vec::new();
    loop {
        batch.clear();
        source.fill(&mut batch)?;
        if batch.is_empty() {
            return Ok(cutter.finish());
        }
        batch.iter().try_for_each(|request| cutter.push(request))?;
    }
}

/// The equation, in percent: what the runs of the same segments reached at `I_t`, and what they
/// reached without a limit. Given throughputs, every segment weighs the same; given throughputs
/// times [`Segment::seconds`], as the sum over the runtime has it, a short last segment weighs
/// little. `None` where the unlimited runs reached nothing.
#[must_use]
pub fn pressure(runs: &[(f64, f64)]) -> Option<f64> {
    let reached: f64 = runs.iter().map(|(limited, _)| limited).sum();
    let possible: f64 = runs.iter().map(|(_, unlimited)| unlimited).sum();
    (possible > 0.0).then(|| 100.0 * reached / possible)
}

struct Cutter {
    length: u64,
    /// Number of the current segment.
    current: u64,
    last: Nanos,
    reads: u64,
    requests: u64,
    random: u64,
    sizes: Sizes,
    /// Goes on across segments: a stream does not start anew at a cut.
    sequence: Sequence,
    done: Vec<Segment>,
}

impl Cutter {
    fn new(length: Nanos) -> Self {
        Self {
            length: length.0.max(1),
            current: 0,
            last: Nanos::ZERO,
            reads: 0,
            requests: 0,
            random: 0,
            sizes: Sizes::default(),
            sequence: Sequence::default(),
            done: Vec::new(),
        }
    }

    fn push(&mut self, request: &Request) -> Result<(), TraceError> {
        if !matches!(request.op, Op::Read | Op::Write) {
            return Ok(());
        }
        let segment = request.at.0 / self.length;
        if segment >= MOST_SEGMENTS as u64 {
            let (at, length) = (request.at, Nanos(self.length));
            return Err(TraceError::Format {
                file: "the trace".to_owned(),
                reason: format!(
                    "a request at {at} makes more than {MOST_SEGMENTS} segments of {length}; take \
                     longer ones"
                ),
            });
        }
        while segment > self.current {
            self.close(self.length);
        }
        self.last = request.at;
        self.requests += 1;
        self.reads += u64::from(request.op == Op::Read);
        self.sizes.push(request.bytes);
        let sequential = self.sequence.push(request.device, request.offset, request.bytes);
        self.random += u64::from(!sequential);
        Ok(())
    }

    /// Ends the current segment, `length` nanoseconds long.
    fn close(&mut self, length: u64) {
        let seconds = Nanos(length).seconds();
        let start_seconds = Nanos(self.current * self.length).seconds();
        let segment = match (self.requests, self.done.last()) {
            (0, Some(before)) => {
                Segment { start_seconds, seconds, requests: 0, iops: 0.0, ..before.clone() }
            }
            _ => Segment {
                start_seconds,
                seconds,
                requests: self.requests,
                iops: self.requests as f64 / seconds,
                read_share: self.reads as f64 / self.requests.max(1) as f64,
                random_share: self.random as f64 / self.requests.max(1) as f64,
                sizes: whole(self.sizes.top(MOST_SIZES)),
            },
        };
        self.done.push(segment);
        self.current += 1;
        (self.reads, self.requests, self.random) = (0, 0, 0);
        self.sizes = Sizes::default();
    }

    fn finish(mut self) -> Vec<Segment> {
        if self.requests > 0 {
            // One instant has no length: the whole segment is taken.
            let length = match self.last.0 - self.current * self.length {
                0 => self.length,
                length => length,
            };
            self.close(length);
        }
        self.done
    }
}

/// Shares that add up to 1.
fn whole(mut sizes: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    let sum: f64 = sizes.iter().map(|(_, share)| share).sum();
    for (_, share) in &mut sizes {
        *share /= sum;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::{at, given};

    #[test]
    fn the_equation_weighs_by_what_was_possible() {
        assert_eq!(pressure(&[(60_000.0, 600_000.0)]), Some(10.0));
        assert_eq!(pressure(&[(10.0, 100.0), (90.0, 900.0), (0.0, 1000.0)]), Some(5.0));
        assert_eq!(pressure(&[]), None);
        assert_eq!(pressure(&[(0.0, 0.0)]), None);
    }

    #[test]
    fn segments_have_the_four_parameters() {
        let minute = 60_000_000;
        let mut list = Vec::new();
        // 30 requests in the first 20 minutes: 20 sequential reads, 10 random 8 KiB writes.
        for step in 0..20 {
            list.push(Request { offset: (1 << 40) + step * 4096, ..at(step * 1000) });
        }
        for step in 0..10 {
            let offset = step * 1_000_000;
            list.push(Request { op: Op::Write, bytes: 8192, offset, ..at(minute) });
        }
        // Nothing for 20 minutes, then one read, and a last one half way through the segment.
        list.push(at(40 * minute));
        list.push(at(50 * minute));
        let segments = segments(&mut given(list), SEGMENT).unwrap();
        assert_eq!(segments.len(), 3);
        let [busy, idle, last] = &segments[..] else { panic!() };
        assert_eq!((busy.requests, busy.seconds, busy.iops), (30, 1200.0, 0.025));
        assert!((busy.read_share - 2.0 / 3.0).abs() < 1e-12);
        assert!((busy.random_share - 11.0 / 30.0).abs() < 1e-12);
        assert_eq!(busy.sizes.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [4096, 8192]);
        assert_eq!((idle.requests, idle.iops, idle.read_share), (0, 0.0, busy.read_share));
        assert_eq!((last.start_seconds, last.seconds, last.requests), (2400.0, 600.0, 2));
    }

    #[test]
    fn shares_of_sizes_add_up_to_one_even_when_many_are_left_out() {
        let list = (1..=1000).map(|size| Request { bytes: size * 512, ..at(u64::from(size)) });
        let segments = segments(&mut given(list), SEGMENT).unwrap();
        assert_eq!(segments[0].sizes.len(), MOST_SIZES);
        let sum: f64 = segments[0].sizes.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_leap_in_time_does_not_fill_the_memory() {
        let error = segments(&mut given([at(0), at(3_600_000_000)]), Nanos(1000)).unwrap_err();
        assert!(error.to_string().contains("take longer ones"), "{error}");
    }

    #[test]
    fn no_requests_have_no_segments() {
        assert!(segments(&mut given([]), SEGMENT).unwrap().is_empty());
    }
}
