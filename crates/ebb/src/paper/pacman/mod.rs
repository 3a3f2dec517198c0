//! PACMAN's evaluation (Figs. 1-9, Table I), paper against twin.

mod idle;
mod parts;
mod servers;

use anyhow::Result;

use ebb_policy::units::{Nanos, Watts};
use ebb_trace::generate::WorkloadSpec;
use ebb_twin::Outcome;

use super::fits;
use super::lab::{Experiment, Steer};
use super::study::{Part, Study};

/// Length of most runs.
pub const USUAL: Nanos = Nanos::from_secs(60);

/// Figures whose runs take longest.
pub const LONG: &[&str] = &["5", "6", "7"];

/// The evaluation's parts, in the paper's order.
pub const PARTS: &[Part] = &[
    Part { figures: &["table-1", "2"], run: parts::table_1 },
    Part { figures: &["1"], run: parts::states },
    Part { figures: &["3"], run: parts::characteristics },
    Part { figures: &["5", "8", "9"], run: servers::fio },
    Part { figures: &["6"], run: idle::ratios },
    Part { figures: &["7", "8"], run: servers::rocksdb },
    Part { figures: &["fit"], run: |study| fits::add(&mut study.report, "pacman") },
];

const GB: f64 = 1e9;

/// An experiment of the usual length with this policy, under the budget (14 W for each of 16
/// drives, §VI-A), counted as a whole.
fn policy(study: &Study, name: &'static str, workload: &WorkloadSpec) -> Result<Experiment> {
    let steer = Steer::Policy(name);
    let experiment = study.experiment(steer, workload.clone(), study.length(USUAL));
    let budget = Watts(study.report.stated.span("fig-2/capped")?.middle);
    Ok(Experiment { ssd_budget: Some(budget), warmup: Nanos::ZERO, ..experiment })
}

/// Bytes per second of some drives.
fn rate(outcome: &Outcome, first: u16, count: u16) -> f64 {
    let drives = outcome.drives.iter().skip(first.into()).take(count.into());
    drives.map(|drive| drive.bytes as f64).sum::<f64>() / outcome.span.seconds()
}
/// Mean power of some drives.
fn watts(outcome: &Outcome, first: u16, count: u16) -> f64 {
    let drives = outcome.drives.iter().skip(first.into()).take(count.into());
    drives.map(|drive| drive.energy.0).sum::<f64>() / outcome.span.seconds()
}
fn percent(of: f64, over: f64) -> f64 {
    100.0 * (of / over - 1.0)
}
