//! What users wait for: the drives, and the CPUs before and behind them.
//!
//! An operating system counts the time of requests at the drives. Parking and slowing cores delays
//! what is above: tasks wait for a CPU, and take longer once they have one. So to the mean latency
//! at the drives is added, for each request that was completed,
//!
//! ```text
//! (Σ run_delay + Σ busy · (1 − f / f_found)) / completed
//! ```
//!
//! summed over the CPUs of the groups that serve I/O. `f` is the ceiling that Ebb has set and
//! `f_found` the one it found. Under native the second term is zero and the first is part of the
//! baseline as well. What work would take at `f_found` is in neither, so that a loss is rather
//! overstated. Nobody tells whose tasks wait: batch work on these CPUs counts as well.

use crate::units::Nanos;
use crate::{Origin, Signal, Signals, Source};

const LATENCIES: [Signal; 3] =
    [Signal::LatencyMean, Signal::ReadLatencyMean, Signal::WriteLatencyMean];

/// Adds the CPUs' part, `lost` in ns by all requests of the period together, to latencies that are
/// those at the drives; where it is not known they are unknown.
pub fn add_cpus(signals: &mut Signals, lost: Option<f64>) {
    let completed = signals.io.completed.filter(|completed| *completed > 0);
    // No request has waited for longer than there was time.
    let most = signals.period.0 as f64;
    let part = completed.zip(lost).map(|(n, lost)| Nanos((lost / n as f64).min(most) as u64));
    let io = &mut signals.io;
    for mean in [&mut io.mean_latency, &mut io.reads.mean_latency, &mut io.writes.mean_latency] {
        // Without the CPUs' part it would be another quantity.
        *mean = mean.zip(part).map(|(drives, part)| drives + part);
    }
    let modelled = Source { age: Nanos::ZERO, origin: Origin::Modelled };
    LATENCIES.iter().for_each(|of| signals.sources.set(*of, 0, modelled));
}
