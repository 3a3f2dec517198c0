//! Bursts of a second, and which part of Sandman does what for them.

use anyhow::Result;

use ebb_policy::reactor::Parts;
use ebb_policy::units::Nanos;
use ebb_twin::reactor::{Load, Shown, Software};

use super::lab::{CONFIGURATIONS, Configuration, SANDMAN, SPDK, Steer, Trial};
use super::{Study, percent};

/// Rest, then a burst of a second (slides); not a whole number of coarse periods together, so that
/// bursts fall differently into them. The rates are assumed.
const CYCLE: [(Nanos, f64); 2] =
    [(Nanos::from_millis(3600), 50e3), (Nanos::from_millis(1000), 1.6e6)];
const LENGTH: Nanos = Nanos::from_millis(4600);
/// Where the curves are read.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

fn bursts() -> Load {
    Load::Steps { steps: CYCLE.to_vec(), writes: 0.0 }
}

/// One cycle, after one that is not counted.
fn trial<'a>(study: &Study, configuration: Configuration) -> Trial<'a> {
    Trial {
        configuration,
        load: &bursts,
        raid: false,
        coarse: study.lab.profile.coarse,
        duration: Nanos(2 * LENGTH.0),
        warmup: LENGTH,
    }
}

fn run(study: &Study, label: &str, configurations: &[Configuration]) -> Result<Vec<Shown>> {
    let trials: Vec<_> = configurations.iter().map(|one| trial(study, *one)).collect();
    study.lab.all(label, &trials)
}

fn curves(study: &mut Study, figure: &'static str, of: &[Configuration], runs: &[Shown]) {
    for (configuration, shown) in of.iter().zip(runs) {
        let points = QUANTILES.map(|q| (100.0 * q, shown.quantile(q)));
        let series = format!("{}: latency, us, by percentile", configuration.label);
        study.report.curve(figure, series, &points);
    }
    let watts = runs.iter().enumerate().map(|(index, shown)| (index as f64, shown.power().0));
    let series = "W, by configuration in their order".into();
    study.report.curve(figure, series, &watts.collect::<Vec<_>>());
}

/// Bursty workloads.
pub fn configurations(study: &mut Study) -> Result<()> {
    let runs = run(study, "bursts", &CONFIGURATIONS)?;
    curves(study, "Bursts", &CONFIGURATIONS, &runs);
    for (row, quantile) in [("bursts/tail", 0.99), ("bursts/far-tail", 0.999)] {
        let over = percent(runs[SANDMAN].quantile(quantile), runs[SPDK].quantile(quantile));
        study.report.row(row, over)?;
    }
    let trial = trial(study, CONFIGURATIONS[SPDK]);
    study.shares(["bursts/known", "bursts/sandman", "bursts/plus"], &trial, &runs)
}

/// Sandman's parts, one after another.
pub fn ablation(study: &mut Study) -> Result<()> {
    let none = Parts { doze: false, siblings: false, bursts: false };
    let with = |label, parts| Configuration {
        label,
        steer: Steer::Sandman(parts),
        software: Software::Target,
    };
    let steps = [
        CONFIGURATIONS[SPDK],
        with("consolidation every second", none),
        with("and shallow sleep", Parts { doze: true, ..none }),
        with("and burst detection", Parts { doze: true, bursts: true, ..none }),
        with("and siblings together: Sandman", Parts::ALL),
    ];
    let runs = run(study, "ablation", &steps)?;
    curves(study, "Ablation", &steps, &runs);
    Ok(())
}
