//! PACER's evaluation (Figs. 6, 7, 10-19, Table I, Observations), paper against twin.

mod server;
mod synthetic;
mod workloads;

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::generate::{self, WorkloadSpec};
use ebb_twin::Outcome;

use super::fits;
use super::lab::{Experiment, Lab, Steer};
use super::study::{Part, Study};

/// Length of most runs.
pub const USUAL: Nanos = Nanos::from_secs(90);

/// Figures whose runs take longest.
pub const LONG: &[&str] = &["7", "10", "12", "14", "17"];

/// The evaluation's parts, in the paper's order.
pub const PARTS: &[Part] = &[
    Part { figures: &["table-1"], run: server::table_1 },
    Part { figures: &["observation-1"], run: server::observation_1 },
    Part { figures: &["6"], run: server::frequency },
    Part { figures: &["7"], run: server::cores },
    Part { figures: &["10", "11"], run: synthetic::tolerance },
    Part { figures: &["12", "13"], run: synthetic::patterns },
    Part { figures: &["14", "15"], run: synthetic::adaptors },
    Part { figures: &["16"], run: synthetic::burst },
    Part { figures: &["observation-3", "17", "18"], run: workloads::day },
    Part { figures: &["19"], run: workloads::training },
    Part { figures: &["fit"], run: |study| fits::add(&mut study.report, "pacer") },
];

/// PACER with the drives' idle states within `plf`. Table I has their saving, Observation 5 wants
/// them used; whether the evaluated PACER did, while Native has "no power-saving strategies", the
/// text does not say.
const IDLE_DRIVES: &str = "pacer+apst";

/// An experiment of the usual length with this policy.
fn policy(study: &Study, name: &'static str, workload: &WorkloadSpec) -> Experiment {
    study.experiment(Steer::Policy(name), workload.clone(), study.length(USUAL))
}

/// A workload at a share of the most the server does of it.
fn pressed(lab: &Lab, name: &str, pressure: f64) -> Result<WorkloadSpec> {
    let workload = generate::by_name(name)?;
    let maximum = lab.maximum(&workload)?;
    Ok(workload.with_rate(pressure * maximum))
}

/// Requests per joule, relative.
fn efficiency(of: &Outcome, over: &Outcome) -> f64 {
    (of.iops() / of.mean_power().0) / (over.iops() / over.mean_power().0)
}
/// Requests per second, relative.
fn served(of: &Outcome, over: &Outcome) -> f64 {
    of.iops() / over.iops()
}
/// Mean latency, relative.
fn slower(of: &Outcome, over: &Outcome) -> f64 {
    of.mean_latency() / over.mean_latency()
}
/// p99 latency, relative.
fn tail(of: &Outcome, over: &Outcome) -> f64 {
    let p99 = |outcome: &Outcome| outcome.latency.value_at_quantile(0.99) as f64;
    p99(of) / p99(over)
}
fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value.ln();
        count += 1.0;
    }
    f64::exp(sum / count)
}

/// The ratio farthest from 1.
fn farthest(ratios: impl IntoIterator<Item = f64>) -> f64 {
    let farthest = ratios.into_iter().max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
    farthest.unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_ratio_is_found_on_either_side() {
        assert_eq!(farthest([1.0, 0.5, 1.9]), 0.5);
        assert_eq!(farthest([1.0, 0.6, 1.9]), 1.9);
    }

    #[test]
    fn ratios_are_averaged_geometrically() {
        assert!((geometric_mean([0.5, 2.0]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean([1.0, 4.0]) - 2.0).abs() < 1e-12);
    }
}
