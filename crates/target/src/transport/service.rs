//! How long I/O commands take in the target, and what they moved: from the poll that takes a
//! command up to the end of the poll that queues its answer.
//!
//! One writer, so counters need no locked instruction; anyone may read. The answers of a poll are
//! noted as they are queued and recorded together, with one look at the clock.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebb_nvme::Status;
use ebb_policy::units::Nanos;

use crate::controller::Plan;
use crate::device::Op;

/// What an I/O command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management that deallocates.
    Deallocate,
    /// Compare.
    Compare,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// Every one, in the order of its number.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Read, Self::Write, Self::Flush, Self::WriteZeroes, Self::Deallocate, Self::Compare];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::WriteZeroes => "write_zeroes",
            Self::Deallocate => "deallocate",
            Self::Compare => "compare",
        }
    }

    /// What `plan` does and the namespace it does it to.
    fn of(plan: &Plan) -> Option<(Self, usize)> {
        match *plan {
            Plan::Device { namespace, op, .. } => {
                let kind = match op {
                    Op::Read { .. } => Self::Read,
                    Op::Write { .. } => Self::Write,
                    Op::Flush => Self::Flush,
                    Op::WriteZeroes { .. } => Self::WriteZeroes,
                    Op::Deallocate => Self::Deallocate,
                };
                Some((kind, namespace))
            }
            Plan::Compare { namespace, .. } => Some((Self::Compare, namespace)),
            Plan::Deallocate { namespace, .. } => Some((Self::Deallocate, namespace)),
            Plan::Nothing => None,
        }
    }
}

/// Smallest difference told apart, as a power of two of nanoseconds.
const UNIT: u32 = 4;
/// Buckets per doubling, as a power of two: values are known to an eighth.
const FINE: u32 = 3;
const PER_OCTAVE: u64 = 1 << FINE;
/// Times of 2 to this power nanoseconds, 17 s, and above share the last bucket.
const TOP: u32 = 34;
const BUCKETS: usize = ((TOP - UNIT - FINE + 1) << FINE) as usize;

fn bucket(nanos: u64) -> usize {
    let units = nanos >> UNIT;
    if units < PER_OCTAVE {
        return units as usize;
    }
    let exponent = units.ilog2();
    let index = u64::from(exponent - FINE) * PER_OCTAVE + (units >> (exponent - FINE));
    (index as usize).min(BUCKETS - 1)
}

/// The lowest time, in nanoseconds, above all of a bucket.
fn end(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    if next < PER_OCTAVE {
        return next << UNIT;
    }
    let octave = next / PER_OCTAVE - 1;
    (next % PER_OCTAVE + PER_OCTAVE) << octave << UNIT
}

/// Adds to a counter that only the caller writes.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[derive(Debug)]
struct Histogram {
    sum: AtomicU64,
    max: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Histogram {
    fn new() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        Self { sum: AtomicU64::new(0), max: AtomicU64::new(0), buckets }
    }

    fn record(&self, nanos: u64) {
        add(&self.buckets[bucket(nanos)], 1);
        add(&self.sum, nanos);
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.store(nanos, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct Cell {
    commands: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

/// What was done to a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Commands answered.
    pub commands: u64,
    /// Bytes transferred by those that succeeded.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.commands += other.commands;
        self.bytes += other.bytes;
        self.errors += other.errors;
    }
}

/// A distribution of times, each known to an eighth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], sum: 0, max: 0 }
    }
}

impl AddAssign<&Self> for Distribution {
    fn add_assign(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| *own += other);
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

impl Distribution {
    /// How many times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }

    /// The time that a `share` of them does not exceed, to an eighth above; zero of none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Nanos {
        let rank = ((share * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Nanos(end(index).min(self.max));
            }
        }
        Nanos::ZERO
    }

    /// What [`Self::buckets`], [`Self::sum`] and [`Self::max`] were of.
    #[must_use]
    pub fn of(filled: &[(Nanos, u64)], sum: Nanos, max: Nanos) -> Self {
        let mut buckets = vec![0_u64; BUCKETS];
        for (end, count) in filled {
            let own = &mut buckets[bucket(end.0.saturating_sub(1))];
            *own = own.saturating_add(*count);
        }
        Self { buckets, sum: sum.0, max: max.0 }
    }

    /// What was added since `before`, whose longest is not known better than this one's; `None`
    /// where that is not an earlier state of this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let pairs = self.buckets.iter().zip(&before.buckets);
        let buckets = pairs.map(|(now, before)| now.checked_sub(*before)).collect::<Option<_>>()?;
        Some(Self { buckets, sum: self.sum.checked_sub(before.sum)?, max: self.max })
    }

    /// Upper end of each bucket that is not empty, and how many times are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (Nanos(end(index)), *count))
    }

    /// By doublings from 2¹⁰ ns to 2³³ ns: each upper end and how many lie below it and not below
    /// the one before. The last has no upper end.
    #[must_use]
    pub fn octaves(&self) -> Vec<(Option<Nanos>, u64)> {
        let mut octaves: Vec<(Option<Nanos>, u64)> =
            (10..TOP).map(|power| (Some(Nanos(1 << power)), 0)).chain([(None, 0)]).collect();
        let ends = octaves.len() - 1;
        for (index, count) in self.buckets.iter().enumerate() {
            // Ends are powers of two, and so are those of buckets: none is cut in two.
            let octave = end(index).next_power_of_two().ilog2().saturating_sub(10) as usize;
            octaves[octave.min(ends)].1 += count;
        }
        octaves
    }
}

/// A command whose answer is queued.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    kind: Kind,
    namespace: u32,
    bytes: u32,
    is_error: bool,
    since: Nanos,
}

impl Answered {
    /// Of an I/O command that touched a namespace.
    pub fn of(plan: &Plan, bytes: u32, status: Status, since: Nanos) -> Option<Self> {
        let (kind, namespace) = Kind::of(plan)?;
        let (namespace, is_error) = (namespace as u32, !status.is_success());
        Some(Self { kind, namespace, bytes, is_error, since })
    }
}

/// What one lightweight thread did for I/O commands.
#[derive(Debug)]
pub struct Service {
    latencies: [Histogram; Kind::COUNT],
    namespaces: Box<[[Cell; Kind::COUNT]]>,
    /// Of each namespace, whether its device is stalled.
    stalled: Box<[AtomicBool]>,
}

impl Service {
    pub(super) fn new(namespaces: usize) -> Self {
        Self {
            latencies: std::array::from_fn(|_| Histogram::new()),
            namespaces: (0..namespaces).map(|_| Default::default()).collect(),
            stalled: (0..namespaces).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// By the thread's owner alone.
    pub(super) fn set_stalled(&self, namespace: usize, is_stalled: bool) {
        self.stalled[namespace].store(is_stalled, Ordering::Relaxed);
    }

    /// Whether the device of a namespace has requests of this thread and completes none.
    #[must_use]
    pub fn is_stalled(&self, namespace: usize) -> bool {
        self.stalled.get(namespace).is_some_and(|stalled| stalled.load(Ordering::Relaxed))
    }

    /// By the thread's owner alone.
    pub(super) fn record(&self, answered: &[Answered], now: Nanos) {
        for one in answered {
            let kind = one.kind as usize;
            self.latencies[kind].record(now.0.saturating_sub(one.since.0));
            let cell = &self.namespaces[one.namespace as usize][kind];
            add(&cell.commands, 1);
            add(
                if one.is_error { &cell.errors } else { &cell.bytes },
                match one.is_error {
                    true => 1,
                    false => one.bytes.into(),
                },
            );
        }
    }

    /// Time that all commands took, together.
    pub(super) fn time(&self) -> Nanos {
        Nanos(self.latencies.iter().map(|latency| latency.sum.load(Ordering::Relaxed)).sum())
    }

    /// How long commands of this kind took.
    #[must_use]
    pub fn latency(&self, kind: Kind) -> Distribution {
        let histogram = &self.latencies[kind as usize];
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Distribution {
            buckets: histogram.buckets.iter().map(load).collect(),
            sum: load(&histogram.sum),
            max: load(&histogram.max),
        }
    }

    /// What commands of this kind did to a namespace, by its index in the subsystem.
    #[must_use]
    pub fn work(&self, namespace: usize, kind: Kind) -> Work {
        let cell = &self.namespaces[namespace][kind as usize];
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Work {
            commands: load(&cell.commands),
            bytes: load(&cell.bytes),
            errors: load(&cell.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn distribution(times: &[u64]) -> Distribution {
        let service = Service::new(0);
        times.iter().for_each(|time| service.latencies[0].record(*time));
        service.latency(Kind::Read)
    }

    proptest! {
        #[test]
        fn a_bucket_holds_what_is_below_its_end_and_not_more(nanos in 0..1_u64 << TOP) {
            let index = bucket(nanos);
            prop_assert!(nanos < end(index));
            prop_assert!(index == 0 || nanos >= end(index - 1));
            // An eighth, or one unit where times are that short.
            prop_assert!(end(index) - nanos <= (nanos / PER_OCTAVE).max(1 << UNIT));
        }

        #[test]
        fn quantiles_are_right_to_an_eighth(
            mut times in prop::collection::vec(0..1_u64 << TOP, 1..300),
        ) {
            let distribution = distribution(&times);
            times.sort_unstable();
            prop_assert_eq!(distribution.count(), times.len() as u64);
            prop_assert_eq!(distribution.sum(), Nanos(times.iter().sum()));
            prop_assert_eq!(distribution.max(), Nanos(times[times.len() - 1]));
            for share in [0.01, 0.5, 0.99, 1.0] {
                let rank = ((share * times.len() as f64).ceil() as usize).max(1) - 1;
                let (exact, found) = (times[rank], distribution.quantile(share).0);
                prop_assert!(found >= exact && found <= exact + (exact / 8).max(16));
            }
        }

        #[test]
        fn what_is_told_of_it_makes_it_again_and_its_changes_add_up(
            first in prop::collection::vec(any::<u64>().prop_map(|time| time >> 16), 0..50),
            then in prop::collection::vec(any::<u64>().prop_map(|time| time >> 16), 0..50),
        ) {
            let before = distribution(&first);
            let now = distribution(&[first, then.clone()].concat());
            let told: Vec<_> = now.buckets().collect();
            prop_assert_eq!(&Distribution::of(&told, now.sum(), now.max()), &now);
            let since = now.since(&before).unwrap();
            prop_assert_eq!(since.count(), then.len() as u64);
            prop_assert_eq!(since.sum(), Nanos(then.iter().sum()));
            let mut again = before.clone();
            again += &since;
            prop_assert_eq!(&again, &now);
            prop_assert!(then.is_empty() || before.since(&now).is_none());
        }

        #[test]
        fn octaves_hold_everything_once(times in prop::collection::vec(any::<u64>(), 0..100)) {
            let octaves = distribution(&times).octaves();
            let mut low = 0;
            for (end, count) in octaves {
                let high = end.map_or(u64::MAX, |end| end.0);
                let here = times.iter().filter(|time| **time >= low && **time < high);
                let last = end.is_none() && times.contains(&u64::MAX);
                prop_assert!(last || here.count() as u64 == count);
                low = high;
            }
        }
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        let none = Distribution::default();
        assert_eq!((none.count(), none.quantile(0.99)), (0, Nanos::ZERO));
    }
}
