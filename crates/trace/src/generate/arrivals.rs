//! The open loop: requests by the clock.

use std::ops::Range;

use ebb_policy::units::Nanos;
use rand_pcg::Pcg64Mcg;

use super::access::{Access, Streams, Thread};
use super::error::{GenerateError, Place};
use super::jobs::iops;
use super::pace::interval;
use super::random::{gap, stream};
use super::shape::{Pieces, Segment, Shape};
use super::spec::{ArrivalSpec, Gaps};
use super::target::Target;
use crate::request::{LoadPart, Request, Source, TraceError};
use crate::transform::Load;

/// Arrivals of one kind.
pub(super) struct Arrivals {
    access: Access,
    threads: Vec<Thread>,
    thread: usize,
    shape: Pieces,
    segment: Segment,
    gaps: Gaps,
    /// Mean gap at load 1, in nanoseconds.
    interval: f64,
    rng: Pcg64Mcg,
    /// When the next request comes; from `end` on none does.
    clock: f64,
    end: u64,
}

/// Which of the shape comes, and until when on the requests' clock.
pub(super) struct When {
    pub(super) pieces: Vec<Range<f64>>,
    pub(super) end: u64,
}

const GAPS: u64 = u64::MAX;
const SHAPE: u64 = u64::MAX - 1;
/// More streams than any server has clients.
const MOST_STREAMS: u32 = 1 << 20;

impl Arrivals {
    pub(super) fn new(
        spec: &ArrivalSpec,
        target: Target,
        seed: u64,
        part: u64,
        first: u32,
        when: When,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        let good = (1..=MOST_STREAMS).contains(&spec.streams);
        place.need(good, "streams", "must be between 1 and a million")?;
        let access = Access::new(&spec.access, target, place)?;
        let streams = Streams { seed, part, count: spec.streams, per_drive: false, first };
        let threads = access.streams(&streams, place)?;
        let rng = stream(seed, part, SHAPE);
        let shape = Shape::new(&spec.shape, spec.access.read.0, rng, place)?;
        let mut shape = Pieces::new(shape, when.pieces);
        let segment = shape.next();
        let mut this = Self {
            access,
            threads,
            thread: 0,
            shape,
            segment,
            gaps: spec.gaps,
            interval: interval(iops(spec.rate, place)?),
            rng: stream(seed, part, GAPS),
            clock: 0.0,
            end: when.end,
        };
        this.advance();
        Ok(this)
    }

    /// Moves the clock to the next arrival: the gap is an amount of load, used up faster where
    /// the load is higher, which makes the process exact across changes of load.
    fn advance(&mut self) {
        let mut gap = match self.gaps {
            Gaps::Exponential => gap(&mut self.rng),
            Gaps::Constant => 1.0,
        };
        // Beyond the end the load may be 0 for ever.
        while self.is_to_come() {
            let rate = self.segment.level / self.interval;
            let room = (self.segment.until - self.clock) * rate;
            if gap < room {
                self.clock += gap / rate;
                return;
            }
            gap -= room;
            self.clock = self.segment.until;
            self.segment = self.shape.next();
        }
    }

    fn is_to_come(&self) -> bool {
        (self.clock as u64) < self.end
    }

    fn next(&mut self) -> Request {
        let at = self.clock as u64;
        let thread = &mut self.threads[self.thread];
        let request = match self.segment.read {
            Some(read) => self.access.draw_mixed(thread, at, read),
            None => self.access.draw(thread, at),
        };
        self.thread += 1;
        if self.thread == self.threads.len() {
            self.thread = 0;
        }
        self.advance();
        request
    }
}

/// Adds to `all` what to expect of arrivals in slots of `length`, without making them.
pub(super) fn expect(
    spec: &ArrivalSpec,
    (seed, part): (u64, u64),
    (all, length): (&mut [Load], Nanos),
    place: Place<'_>,
) -> Result<(), GenerateError> {
    let mut shape = Shape::new(&spec.shape, spec.access.read.0, stream(seed, part, SHAPE), place)?;
    let interval = interval(iops(spec.rate, place)?);
    let sizes = &spec.access.block.0;
    let bytes = sizes.iter().map(|size| size.0 as f64).sum::<f64>() / sizes.len() as f64;
    let (mut from, mut segment, length) = (0.0, shape.next(), length.0 as f64);
    for (slot, load) in all.iter_mut().enumerate() {
        let end = (slot as f64 + 1.0) * length;
        while from < end {
            let until = segment.until.min(end);
            let requests = (until - from) * segment.level / interval;
            load.requests += requests;
            load.bytes += requests * bytes;
            from = until;
            if segment.until <= end {
                segment = shape.next();
            }
        }
    }
    Ok(())
}

/// Several kinds merged in time order.
pub(super) struct Open {
    parts: Vec<Arrivals>,
    /// Where each has its streams.
    streams: Vec<LoadPart>,
}

const BATCH: usize = 4096;

impl Open {
    pub(super) const fn new(parts: Vec<Arrivals>, streams: Vec<LoadPart>) -> Self {
        Self { parts, streams }
    }
}

impl Source for Open {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        for _ in 0..BATCH {
            let first = self.parts.iter_mut().min_by(|a, b| a.clock.total_cmp(&b.clock));
            match first {
                Some(part) if part.is_to_come() => batch.push(part.next()),
                _ => break,
            }
        }
        Ok(())
    }

    fn parts(&self) -> Vec<LoadPart> {
        self.streams.clone()
    }
}
