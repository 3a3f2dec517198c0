//! Arrivals at the target: an open loop, random at given rates or from a trace.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use ebb_policy::units::Nanos;
use ebb_trace::{Op, Request, Source, TraceError};

/// Bytes of a request of [`Load::Steps`].
const BLOCK: u32 = 4096;

/// What arrives.
pub enum Load {
    /// A Poisson stream over all threads whose rate changes in steps.
    Steps {
        /// Length and requests per second of each step, in order; then the next round begins.
        steps: Vec<(Nanos, f64)>,
        /// Share of writes.
        writes: f64,
    },
    /// A trace: each of its devices belongs to one thread.
    Trace(Box<dyn Source>),
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arrival {
    pub at: Nanos,
    pub thread: u16,
    pub write: bool,
    pub bytes: u32,
}

/// What the arrivals of a run with this seed are drawn from, and nothing else.
pub(super) fn arrivals_rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed ^ 0xa771_7a15)
}

/// The requests of a load in order of time.
pub(super) enum Arrivals {
    Steps { steps: Vec<(Nanos, f64)>, writes: f64, step: usize, ends: Nanos, at: f64 },
    Trace { source: Box<dyn Source>, batch: Vec<Request>, next: usize },
}

impl Arrivals {
    pub fn new(load: Load) -> Self {
        match load {
            Load::Steps { steps, writes } => {
                let ends = steps.first().map_or(Nanos::ZERO, |step| step.0);
                Self::Steps { steps, writes, step: 0, ends, at: 0.0 }
            }
            Load::Trace(source) => Self::Trace { source, batch: Vec::new(), next: 0 },
        }
    }

    /// The next request before `until`; none when there is none.
    pub fn next(
        &mut self,
        until: Nanos,
        threads: u16,
        rng: &mut Pcg64Mcg,
    ) -> Result<Option<Arrival>, TraceError> {
        match self {
            Self::Steps { steps, writes, step, ends, at } => {
                if steps.iter().all(|(length, _)| *length == Nanos::ZERO) {
                    return Ok(None);
                }
                loop {
                    let rate = steps[*step % steps.len()].1;
                    let gap = -(1.0 - rng.random::<f64>()).ln() / rate * 1e9;
                    let (next, end) = (*at + gap, ends.0 as f64);
                    if next < end {
                        *at = next;
                        let at = Nanos(next as u64);
                        let thread = rng.random_range(0..threads);
                        let write = *writes > 0.0 && rng.random::<f64>() < *writes;
                        let arrival = Arrival { at, thread, write, bytes: BLOCK };
                        return Ok((at < until).then_some(arrival));
                    }
                    if *ends >= until {
                        return Ok(None);
                    }
                    // A Poisson stream has no memory: begin anew where the rate changes.
                    *at = end;
                    *step += 1;
                    *ends += steps[*step % steps.len()].0;
                }
            }
            Self::Trace { source, batch, next } => {
                if *next == batch.len() {
                    batch.clear();
                    *next = 0;
                    source.fill(batch)?;
                }
                let Some(request) = batch.get(*next) else { return Ok(None) };
                *next += 1;
                let Request { at, device, op, .. } = *request;
                let bytes = request.data_bytes();
                let (thread, write) = (device % threads, op != Op::Read);
                Ok((at < until).then_some(Arrival { at, thread, write, bytes }))
            }
        }
    }
}

/// Tells each arrival of a run with this seed: when, of which thread, and whether it writes.
///
/// # Errors
/// An unreadable trace.
pub fn arrivals(
    load: Load,
    until: Nanos,
    threads: u16,
    seed: u64,
    mut tell: impl FnMut(Nanos, u16, bool),
) -> Result<(), TraceError> {
    let (mut arrivals, mut rng) = (Arrivals::new(load), arrivals_rng(seed));
    while let Some(Arrival { at, thread, write, .. }) = arrivals.next(until, threads, &mut rng)? {
        tell(at, thread, write);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_the_rates_they_state() {
        let second = Nanos::from_secs(1);
        let steps = vec![(second, 10_000.0), (second, 0.0), (second, 50_000.0)];
        let mut arrivals = Arrivals::new(Load::Steps { steps, writes: 0.25 });
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let (mut counts, mut writes, mut last) = ([0_u32; 4], 0, Nanos::ZERO);
        while let Some(arrival) = arrivals.next(Nanos::from_secs(4), 8, &mut rng).unwrap() {
            assert!(arrival.at >= last && arrival.thread < 8);
            last = arrival.at;
            counts[last.seconds() as usize] += 1;
            writes += u32::from(arrival.write);
        }
        let near =
            |count: u32, expected: f64| (f64::from(count) - expected).abs() < 5.0 * expected.sqrt();
        assert!(near(counts[0], 1e4) && counts[1] == 0 && near(counts[2], 5e4), "{counts:?}");
        assert!(near(counts[3], 1e4) && near(writes, 17_500.0), "{counts:?} {writes}");
    }
}
