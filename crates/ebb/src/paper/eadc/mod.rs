//! EADC's evaluation (Figs. 3-8 and 10, Tables IV-VI), paper against twin.

mod disks;
mod heat;
mod policies;

use anyhow::Result;

use ebb_policy::cooling::Curve;
use ebb_policy::units::Nanos;
use ebb_trace::generate::WorkloadSpec;

use super::fits;
use super::lab::{Experiment, Steer};
use super::study::{Part, Study};
use crate::characterise::{Step, Sweep, curve_of};
use crate::server::Server;

/// Length of a run whose server must reach a steady temperature.
pub const USUAL: Nanos = Nanos::from_secs(600);
/// At each fan speed of a sweep (§V-B: "at least 20 seconds").
const PAUSE: Nanos = Nanos::from_secs(20);
/// The server of Figs. 5 and 10 with the most cooling.
pub const SERVER: &str = "eadc-e6";

/// The evaluation's parts, in the paper's order.
pub const PARTS: &[Part] = &[
    Part { figures: &["3", "8"], run: heat::leakage_and_fans },
    Part { figures: &["4"], run: heat::headroom },
    Part { figures: &["5"], run: disks::fan_sweep },
    Part { figures: &["6"], run: disks::rack },
    Part { figures: &["7"], run: disks::longer },
    Part { figures: &["10"], run: policies::compared },
    Part { figures: &["fit"], run: |study| fits::add(&mut study.report, "eadc") },
];

/// Goes on with this server.
fn choose(study: &mut Study, name: &str) -> Result<()> {
    study.lab.server = Server::load(name)?;
    Ok(())
}

/// What the disks of the present server do at each fan speed, and the curve through it.
fn characterise(study: &Study) -> Result<(Vec<Step>, Curve)> {
    let lab = &study.lab;
    let sweep = Sweep {
        step: 0.1,
        pause: study.steady(PAUSE),
        seed: lab.seed,
        threads: lab.threads,
        progress: &lab.progress,
    };
    let steps = sweep.run(&lab.server)?;
    let curve = curve_of(&steps)?;
    Ok((steps, curve))
}

/// A run from start to end of `workload`, all of it counted.
fn whole(study: &Study, steer: Steer, workload: WorkloadSpec, length: Option<Nanos>) -> Experiment {
    let experiment = study.experiment(steer, workload, USUAL);
    Experiment { duration: length, warmup: Nanos::ZERO, ..experiment }
}
