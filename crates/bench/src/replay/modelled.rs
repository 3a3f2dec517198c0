//! Energy of a server that is not there: the twin serves the same requests, when they were issued.

use anyhow::{Context, Result};

use ebb_policy::Limits;
use ebb_policy::cpu::Native;
use ebb_policy::units::Nanos;
use ebb_trace::Workload;
use ebb_trace::transform::fold;
use ebb_twin::Profile;
use ebb_twin::{Run, Unobserved, run};

use super::list::List;
use super::plan::Plan;
use super::repeat::Done;
use super::report::EnergyReport;

/// What `server` would draw, without any policy, for what `done` has issued.
///
/// Its mean power over the counted requests is taken for the counted time here, though it may serve
/// them sooner or later than what they were replayed against.
///
/// # Errors
/// Requests that the server cannot serve.
pub fn energy(server: &Profile, name: &str, plan: &Plan, done: &Done) -> Result<EnergyReport> {
    let seconds = done.end.duration_since(done.counted).as_secs_f64();
    let bytes = done.tally.requests.bytes();
    let issued = List::issued(&plan.requests.streams, &done.issued);
    let (devices, capacity) = server.volumes();
    let source = fold(issued, "the replay", devices, capacity)?;
    let workload = Workload::Open(Box::new(source));
    let job = Run {
        limits: Limits::without_heat(),
        duration: Some(Nanos((done.end - done.start).as_nanos() as u64)),
        warmup: Nanos(plan.manner.warmup.as_nanos() as u64),
        ..Run::of(server, Box::new(Native), workload, plan.manner.seed)
    };
    let outcome = run(job, &mut Unobserved).with_context(|| format!("--meter-profile {name}"))?;
    let span = outcome.span.seconds();
    let watts = (span > 0.0).then(|| outcome.energy.total().0 / span);
    Ok(EnergyReport::modelled(name, watts, seconds, bytes))
}
