//! PACER on a day of a storage server and on MLPerf Storage: Figs. 17-19, Observation 3.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::generate::{self, Rate, ShapeSpec};
use ebb_twin::Outcome;

use super::super::lab::{Experiment, Shown};
use super::super::study::Study;
use super::{IDLE_DRIVES, efficiency, farthest, policy, served, slower, tail};

/// A day squeezed into half an hour: its six peaks last 15 s each.
const DAY: Nanos = Nanos::from_secs(1800);
/// As long as the paper ran it: few requests, slow to learn from.
const TRAINING: Nanos = Nanos::from_secs(300);

/// Figs. 17 and 18: the real trace. PACER's is not public; the twin takes a day of the same
/// shape (Figs. 3 and 5).
pub fn day(study: &mut Study) -> Result<()> {
    let mut workload = generate::by_name("diurnal")?;
    let maximum = study.lab.maximum(&workload)?;
    let day = study.length(DAY);
    for part in &mut workload.arrivals {
        part.rate = Rate::Iops(0.03 * maximum);
        if let ShapeSpec::Day { length, .. } = &mut part.shape {
            *length = day;
        }
    }
    let policies = ["native", "ondemand", "pacer", "pacer-plus"];
    let experiments = policies.map(|name| Experiment {
        duration: Some(day),
        warmup: Nanos::ZERO,
        ..policy(study, name, &workload)
    });
    let runs = study.lab.all("Figs. 17, 18", &experiments)?;
    let low = 100.0 * time_below(0.1 * maximum, &runs[0]);
    let report = &mut study.report;
    report.row("observation-3/low", low)?;
    let [native, ondemand, pacer] = [0, 1, 2].map(|index| &runs[index].outcome);
    for (policy, run) in policies.iter().zip(&runs).skip(1) {
        let series = format!("{policy}: 1 mean latency, 2 p99, 3 IOPS/W");
        let of = &run.outcome;
        let (slower, tail) = (slower(of, native), tail(of, native));
        let points = [(1.0, slower), (2.0, tail), (3.0, efficiency(of, native))];
        report.curve("Figs. 17, 18", series, &points);
    }
    report.row("fig-17/pacer", slower(pacer, native))?;
    report.row("fig-17/ondemand", slower(ondemand, native))?;
    report.row("fig-17/iops", farthest([served(pacer, native), served(ondemand, native)]))?;
    report.row("fig-18/pacer", efficiency(pacer, native))?;
    report.row("fig-18/ondemand", efficiency(ondemand, native))?;
    report.row("fig-18/over-ondemand", efficiency(pacer, ondemand))
}

/// Share of the time in control periods in which fewer requests per second arrived than `limit`.
fn time_below(limit: f64, run: &Shown) -> f64 {
    let (mut below, mut before) = (0.0, 0.0);
    for (at, arrived) in &run.arrived {
        let length = at - before;
        below += if (*arrived as f64) < limit * length { length } else { 0.0 };
        before = *at;
    }
    below / before
}

/// Fig. 19: MLPerf Storage.
pub fn training(study: &mut Study) -> Result<()> {
    // Saved by PACER, with idle drives and by ondemand; native's power over PACER's; throughput.
    let unet = [
        "fig-19/unet-pacer",
        "fig-19/unet-apst",
        "fig-19/unet-ondemand",
        "abstract/unet",
        "fig-19/unet-served",
        "fig-19/unet-served-ondemand",
    ];
    let bert = [
        "fig-19/bert-pacer",
        "fig-19/bert-apst",
        "fig-19/bert-ondemand",
        "abstract/bert",
        "fig-19/bert-served",
        "fig-19/bert-served-ondemand",
    ];
    for (name, rows) in [("3d-unet", unet), ("bert", bert)] {
        let workload = generate::by_name(name)?;
        let policies = ["native", "ondemand", "pacer", IDLE_DRIVES];
        let experiments = policies.map(|name| Experiment {
            duration: Some(study.length(TRAINING)),
            warmup: Nanos::ZERO,
            ..policy(study, name, &workload)
        });
        let runs = study.lab.all("Fig. 19", &experiments)?;
        let [native, ondemand, pacer, idle] = [0, 1, 2, 3].map(|index| &runs[index].outcome);
        let less = |of: &Outcome| native.mean_power() / of.mean_power();
        let saved = |of: &Outcome| 100.0 * (1.0 - 1.0 / less(of));
        let found = [
            saved(pacer),
            saved(idle),
            saved(ondemand),
            less(pacer),
            served(pacer, native),
            served(ondemand, native),
        ];
        for (row, twin) in rows.into_iter().zip(found) {
            study.report.row(row, twin)?;
        }
    }
    Ok(())
}
