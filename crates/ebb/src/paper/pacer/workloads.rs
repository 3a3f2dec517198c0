//! PACER on a day of a storage server and on MLPerf Storage: Figs. 17-19, Observation 3.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::generate::{self, Rate, ShapeSpec};
use ebb_twin::Outcome;

use super::super::lab::{Experiment, Shown};
use super::super::study::Study;
use super::{IDLE_DRIVES, efficiency, policy, served, similar, slower, tail};

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
    report.calibrated("Obs. 3", "time under 10 % pressure, %", 95.0, low);
    let [native, ondemand, pacer] = [0, 1, 2].map(|index| &runs[index].outcome);
    for (policy, run) in policies.iter().zip(&runs).skip(1) {
        let series = format!("{policy}: 1 mean latency, 2 p99, 3 IOPS/W");
        let of = &run.outcome;
        let (slower, tail) = (slower(of, native), tail(of, native));
        let points = [(1.0, slower), (2.0, tail), (3.0, efficiency(of, native))];
        report.curve("Figs. 17, 18", series, &points);
    }
    report.stress("Fig. 17", "mean latency of PACER, x", 1.19, slower(pacer, native));
    report.stress("Fig. 17", "mean latency of ondemand, x", 1.26, slower(ondemand, native));
    similar(report, "Fig. 17", [served(pacer, native), served(ondemand, native)]);
    report.stress("Fig. 18", "IOPS/W of PACER, x", 1.23, efficiency(pacer, native));
    report.stress("Fig. 18", "IOPS/W of ondemand, x", 1.02, efficiency(ondemand, native));
    let quantity = "IOPS/W of PACER over ondemand, x";
    report.stress("Fig. 18", quantity, 1.21, efficiency(pacer, ondemand));
    Ok(())
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
    // Power of PACER and ondemand below native's, %, and native's over PACER's.
    for (name, pacer_saves, ondemand_saves, gain) in
        [("3d-unet", 13.0, 2.0, 1.15), ("bert", 22.0, 2.5, 1.28)]
    {
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
        let report = &mut study.report;
        let quantity = format!("power saved by PACER, {name}, %");
        report.as_stated("Fig. 19", &quantity, pacer_saves, saved(pacer));
        let quantity = format!("power saved by {IDLE_DRIVES}, {name}, %");
        report.as_stated("Fig. 19", &quantity, pacer_saves, saved(idle));
        let quantity = format!("power saved by ondemand, {name}, %");
        report.as_stated("Fig. 19", &quantity, ondemand_saves, saved(ondemand));
        let quantity = format!("power of native over PACER's, {name}, x");
        report.as_stated("Abstract", &quantity, gain, less(pacer));
        for (policy, of) in [("PACER", pacer), ("ondemand", ondemand)] {
            let quantity = format!("throughput under {policy}, {name}, x");
            report.as_stated("Fig. 19", &quantity, 1.0, served(of, native));
        }
    }
    Ok(())
}
