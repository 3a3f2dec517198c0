//! PACER on vdbench's patterns: Figs. 10-16.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::generate;
use ebb_twin::Outcome;

use super::super::lab::{Experiment, Shown};
use super::super::study::Study;
use super::{
    IDLE_DRIVES, efficiency, farthest, geometric_mean, policy, pressed, served, slower, tail,
};

/// The evaluation's tolerated loss where it names no other (§V).
const PLF: f64 = 0.2;
const PRESSURES: [f64; 4] = [0.05, 0.1, 0.2, 0.4];
const FACTORS: [f64; 3] = [0.1, 0.2, 0.3];

/// Figs. 10 and 11: tolerated loss against pressure.
pub fn tolerance(study: &mut Study) -> Result<()> {
    let rand_rw = generate::by_name("rand-rw")?;
    let maximum = study.lab.maximum(&rand_rw)?;
    let mut experiments = Vec::new();
    for pressure in PRESSURES {
        let workload = rand_rw.clone().with_rate(pressure * maximum);
        experiments.push(policy(study, "native", &workload));
        for plf in FACTORS {
            experiments.push(Experiment { plf, ..policy(study, "pacer", &workload) });
        }
    }
    let runs = study.lab.all("Figs. 10, 11", &experiments)?;
    let rows: Vec<_> = runs.chunks(1 + FACTORS.len()).collect();
    for (index, plf) in FACTORS.iter().enumerate() {
        let mut curve = |figure, series: &str, value: fn(&Outcome, &Outcome) -> f64| {
            let point = |(x, runs): (&f64, &&[Shown])| {
                (*x, value(&runs[index + 1].outcome, &runs[0].outcome))
            };
            let points: Vec<_> = PRESSURES.iter().zip(&rows).map(point).collect();
            study.report.curve(figure, format!("{series} over pressure, plf {plf}"), &points);
        };
        curve("Fig. 10", "mean latency", slower);
        curve("Fig. 10", "p99 latency", tail);
        curve("Fig. 11", "IOPS/W", efficiency);
    }
    tolerance_rows(study, &rows)
}

/// The numbers of Figs. 10 and 11; `rows` are native and PACER by factor, a pressure each.
fn tolerance_rows(study: &mut Study, rows: &[&[Shown]]) -> Result<()> {
    let report = &mut study.report;
    let (native, pacer) = (&rows[1][0].outcome, &rows[1][2].outcome);
    let saved = 100.0 * (1.0 - pacer.mean_power() / native.mean_power());
    report.row("tolerance/latency", slower(pacer, native))?;
    report.row("tolerance/saved", saved)?;
    let each = |value: fn(&Outcome, &Outcome) -> f64| {
        rows.iter().flat_map(move |runs| {
            let of = move |(plf, run): (f64, &Shown)| (plf, value(&run.outcome, &runs[0].outcome));
            FACTORS.into_iter().zip(&runs[1..]).map(of)
        })
    };
    let kept = each(slower).filter(|(plf, slower)| *slower <= 1.0 + plf).count();
    let all = each(slower).count();
    report.row("fig-10/within", 100.0 * kept as f64 / all as f64)?;
    report.row("fig-10/iops", farthest(each(served).map(|(_, ratio)| ratio)))
}

/// Figs. 12 and 13: access patterns, at the typical pressure.
pub fn patterns(study: &mut Study) -> Result<()> {
    let names = ["rand-r", "rand-w", "seq-r", "seq-w", "rand-rw"];
    let policies = ["native", "ondemand", "pacer", IDLE_DRIVES];
    let mut experiments = Vec::new();
    for name in names {
        let workload = pressed(&study.lab, name, 0.1)?;
        experiments.extend(policies.map(|name| policy(study, name, &workload)));
    }
    let runs = study.lab.all("Figs. 12, 13", &experiments)?;
    let rows: Vec<_> = runs.chunks(policies.len()).collect();
    let report = &mut study.report;
    let each = |index: usize, value: fn(&Outcome, &Outcome) -> f64| {
        rows.iter().map(move |runs| value(&runs[index].outcome, &runs[0].outcome))
    };
    for (index, policy, row) in [
        (1, "ondemand", "fig-13/ondemand"),
        (2, "pacer", "fig-13/pacer"),
        (3, IDLE_DRIVES, "fig-13/pacer-apst"),
    ] {
        report.row(row, geometric_mean(each(index, efficiency)))?;
        for (name, runs) in names.iter().zip(&rows) {
            let series = format!("{policy} on {name}: 1 mean latency, 2 p99, 3 IOPS/W");
            let points = bars(&runs[index].outcome, &runs[0].outcome);
            report.curve("Figs. 12, 13", series, &points);
        }
    }
    for (index, row) in [(2, "fig-12/within"), (3, "fig-12/within-apst")] {
        let kept = each(index, slower).filter(|slower| *slower <= 1.0 + PLF).count();
        report.row(row, 100.0 * kept as f64 / names.len() as f64)?;
    }
    let over = rows.iter().map(|runs| tail(&runs[2].outcome, &runs[1].outcome));
    report.row("fig-12/tail", geometric_mean(over))?;
    report.row("fig-12/iops", farthest(each(1, served).chain(each(2, served))))
}

/// The three bars of a run in the paper's figures.
fn bars(of: &Outcome, over: &Outcome) -> [(f64, f64); 3] {
    [(1.0, slower(of, over)), (2.0, tail(of, over)), (3.0, efficiency(of, over))]
}

/// Figs. 14 and 15: the parts of PACER one by one.
pub fn adaptors(study: &mut Study) -> Result<()> {
    let workload = pressed(&study.lab, "rand-rw", 0.1)?;
    let policies = ["native", "ondemand", "pacer-freq", "pacer-cores", "pacer", "pacer-plus"];
    let experiments = policies.map(|name| policy(study, name, &workload));
    let runs = study.lab.all("Figs. 14, 15", &experiments)?;
    let base = &runs[0].outcome;
    let report = &mut study.report;
    for (policy, run) in policies.iter().zip(&runs).skip(1) {
        let series = format!("{policy}: 1 mean latency, 2 p99, 3 IOPS/W");
        report.curve("Figs. 14, 15", series, &bars(&run.outcome, base));
    }
    report.row("fig-15/ondemand", efficiency(&runs[1].outcome, base))?;
    report.row("fig-14/iops", farthest(runs[1..5].iter().map(|run| served(&run.outcome, base))))
}

/// Fig. 16: a burst from 3 % pressure to saturation with 32 KiB.
pub fn burst(study: &mut Study) -> Result<()> {
    let maximum = study.lab.maximum(&generate::by_name("rand-rw")?)?;
    let mut workload = generate::by_name("burst")?;
    for job in &mut workload.jobs {
        job.rate = generate::Rate::Iops(0.03 * maximum);
    }
    let start = workload.jobs.iter().flat_map(|job| &job.stages).map(|stage| stage.start).max();
    let start = start.unwrap_or_default();
    let (duration, warmup) = (Some(start + study.steady(Nanos::from_secs(15))), start);
    let policies = ["native", "pacer", "pacer-plus"];
    let experiments =
        policies.map(|name| Experiment { duration, warmup, ..policy(study, name, &workload) });
    let runs = study.lab.all("Fig. 16", &experiments)?;
    for (run, policy) in runs.iter().zip(policies) {
        let burst: Vec<_> =
            run.latency.iter().copied().filter(|(at, _)| *at > start.seconds() - 2.0).collect();
        let series = format!("mean latency of {policy} over seconds, us");
        study.report.curve("Fig. 16", series, &burst);
    }
    let report = &mut study.report;
    for (run, policy) in runs.iter().zip(policies).skip(1) {
        if let Some(seconds) = back(run, start) {
            let series = format!("seconds until {policy} has all cores back");
            report.curve("Fig. 16", series, &[(start.seconds(), seconds)]);
        }
    }
    let (native, pacer) = (&runs[0].outcome, &runs[1].outcome);
    report.row("fig-16/iops", served(pacer, native))?;
    report.row("fig-16/tail", tail(pacer, native))
}

/// How long after `start` all cores are active again; `None` where none were parked.
fn back(run: &Shown, start: Nanos) -> Option<f64> {
    let cores = run.active.iter();
    let before = cores.clone().filter(|(at, _)| *at <= start.seconds()).map(|(_, n)| *n).min();
    let all = cores.clone().map(|(_, n)| *n).max();
    let (at, _) = cores.clone().find(|(at, n)| *at > start.seconds() && Some(*n) == all)?;
    (before < all).then_some(at - start.seconds())
}
