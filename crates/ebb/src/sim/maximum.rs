//! The most a server can do of a workload: the denominator of PACER's I/O pressure (§III-A3).

use anyhow::Result;

use ebb_cli::progress::Progress;
use ebb_cli::usage;
use ebb_policy::cpu::Native;
use ebb_policy::units::Nanos;
use ebb_trace::generate::WorkloadSpec;
use ebb_twin::{Run, Unobserved};

use crate::server::Server;

/// Simulated before measuring, so that queues, caches and write buffers fill.
const WARMUP: Nanos = Nanos::from_secs(2);
/// Simulated while measuring.
const MEASURED: Nanos = Nanos::from_secs(2);

/// Requests per second that `server` reaches under native when clients send as fast as they can.
pub fn maximum(
    server: &Server,
    spec: &WorkloadSpec,
    seed: u64,
    progress: &Progress,
) -> Result<f64> {
    let bar = progress.bar("maximum", None);
    let workload = spec.clone().saturating().build(&server.context(spec, seed))?;
    let run = Run {
        duration: Some(WARMUP + MEASURED),
        warmup: WARMUP,
        ..Run::of(&server.profile, Box::new(Native), workload, seed)
    };
    let outcome = ebb_twin::run(run, &mut Unobserved)?;
    bar.finish_and_clear();
    if outcome.requests == 0 {
        return Err(usage(format!(
            "workload '{}' completes nothing within {WARMUP} to {}: its maximum, of which a \
             pressure is a share, cannot be measured; give a rate in IOPS",
            spec.name,
            WARMUP + MEASURED
        )));
    }
    Ok(outcome.iops())
}
