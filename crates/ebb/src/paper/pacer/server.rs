//! The server without a policy: Table I, Observation 1, Figs. 6 and 7.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::Op;
use ebb_trace::generate::{self, WorkloadSpec};
use ebb_twin::Outcome;
use ebb_twin::drive::DriveProfile;

use super::super::drive::{Load, idle_power, measure, wake_latency};
use super::super::lab::{Experiment, Shown, Steer};
use super::super::report::Report;
use super::super::study::Study;
use super::{USUAL, efficiency, pressed, served, slower, tail};

/// Shares of cores or of the highest frequency in the sweeps of Figs. 6 and 7.
const SHARES: [f64; 8] = [1.0, 0.9, 0.8, 0.7, 0.63, 0.5, 0.4, 0.3];
const ALL: Steer = Steer::Hold { cores: 1.0, frequency: 1.0 };
/// The guard lets cores be parked over a few periods only; all is steady after that.
const SWEEP: Nanos = Nanos::from_secs(12);
const SECOND: Nanos = Nanos::from_secs(1);

/// Table I: one SSD, and what its idle states save of the whole server at the typical load.
pub fn table_1(study: &mut Study) -> Result<()> {
    let Some(drive) = study.lab.server.profile.drive() else { return Ok(()) };
    let (idle0, idle1) = ssd(&drive, &mut study.report)?;
    let light = pressed(&study.lab, "rand-rw", 0.1)?;
    let light = study.experiment(ALL, light, study.length(USUAL));
    let runs = study.lab.all("Table I", &[light])?;
    let total = runs[0].outcome.mean_power().0;
    let drives = f64::from(study.lab.server.profile.drives.count);
    let saves = |to: f64| 100.0 * drives * (drive.power.ready.0 - to) / total;
    let report = &mut study.report;
    report.row("table-1/saved-0", saves(idle0))?;
    report.row("table-1/saved-1", saves(idle1))
}

/// The SSD by itself; gives the watts of its two idle states.
fn ssd(drive: &DriveProfile, report: &mut Report) -> Result<(f64, f64)> {
    let load = |rate| Load { op: Op::Read, bytes: 8192, random: true, depth: 256, rate };
    let most = measure(drive, 0, load(None), SECOND, SECOND).bytes_per_second;
    let loaded = |share: f64| {
        let rate = (share < 1.0).then_some(share * most);
        measure(drive, 0, load(rate), SECOND, SECOND).power.0
    };
    let ready = idle_power(drive, Nanos::ZERO, Nanos::from_micros(1)).0;
    let idle0 = idle_power(drive, Nanos::from_micros(2), Nanos::from_micros(100)).0;
    let idle1 = idle_power(drive, Nanos::from_millis(1), SECOND).0;
    for (twin, watts, relative) in [
        (loaded(1.0), "table-1/ssd-100", "table-1/ssd-100-over"),
        (loaded(0.5), "table-1/ssd-50", "table-1/ssd-50-over"),
        (loaded(0.1), "table-1/ssd-10", "table-1/ssd-10-over"),
        (idle0, "table-1/idle-0", "table-1/idle-0-over"),
        (idle1, "table-1/idle-1", "table-1/idle-1-over"),
    ] {
        report.row(watts, twin)?;
        report.row(relative, twin / ready)?;
    }
    report.row("table-1/ssd-0", ready)?;
    let wake = |idle| wake_latency(drive, idle).micros();
    report.row("table-1/wake-0", wake(Nanos::from_micros(100)))?;
    report.row("table-1/wake-1", wake(Nanos::from_millis(10)))?;
    Ok((idle0, idle1))
}

/// Observation 1 and the rates at 10 % and full pressure (§III-B1).
pub fn observation_1(study: &mut Study) -> Result<()> {
    let rand_rw = generate::by_name("rand-rw")?;
    let maximum = study.lab.maximum(&rand_rw)?;
    let loads = [rand_rw.clone().with_rate(0.1 * maximum), rand_rw.saturating()];
    let duration = study.length(USUAL);
    let experiments = loads.map(|load| study.experiment(ALL, load, duration));
    let runs = study.lab.all("Observation 1", &experiments)?;
    let report = &mut study.report;
    let light = runs[0].outcome.iops() / 1e3;
    report.row("pressure/light", light)?;
    report.row("pressure/full", maximum / 1e3)?;
    let share = |shown: &Shown| {
        let energy = shown.outcome.energy;
        100.0 * ((energy.cpu + energy.ssd) / energy.total())
    };
    report.row("observation-1/light", share(&runs[0]))?;
    report.row("observation-1/full", share(&runs[1]))
}

/// Fig. 6: the frequency of all cores.
pub fn frequency(study: &mut Study) -> Result<()> {
    let slow = |share| Steer::Hold { cores: 1.0, frequency: share };
    let light = pressed(&study.lab, "rand-rw", 0.1)?;
    sweep(study, "Fig. 6", "frequency, 10 % pressure", slow, &light)?;
    let full = generate::by_name("rand-rw")?.saturating();
    let runs = sweep(study, "Fig. 6", "frequency, 100 % pressure", slow, &full)?;
    let report = &mut study.report;
    report.row("fig-6/latency", at(&runs, slower, 0.3))?;
    report.row("fig-6/efficiency", at(&runs, efficiency, 0.3))
}

/// Fig. 7: the number of active cores.
pub fn cores(study: &mut Study) -> Result<()> {
    let few = |share| Steer::Hold { cores: share, frequency: 1.0 };
    let light = pressed(&study.lab, "rand-rw", 0.1)?;
    let runs = sweep(study, "Fig. 7", "active cores, 10 % pressure", few, &light)?;
    let report = &mut study.report;
    report.row("fig-7/efficiency", at(&runs, efficiency, 0.63))?;
    report.row("fig-7/latency", at(&runs, slower, 0.63))?;
    report.row("fig-7/tail", at(&runs, tail, 0.63))?;
    report.row("fig-7/knee", knee(&runs))?;
    let full = generate::by_name("rand-rw")?.saturating();
    let runs = sweep(study, "Fig. 7", "active cores, 100 % pressure", few, &full)?;
    study.report.row("fig-7/tail-full", at(&runs, tail, 0.63))
}

/// A relative value of a sweep at one of [`SHARES`].
fn at(runs: &[Shown], value: fn(&Outcome, &Outcome) -> f64, share: f64) -> f64 {
    let run = SHARES.iter().zip(runs).find(|(x, _)| **x == share);
    run.map_or(f64::NAN, |(_, run)| value(&run.outcome, &runs[0].outcome))
}

/// The share of the cores below which the mean latency is above that with all by more than 2 %,
/// the least that a figure shows; linear between the [`SHARES`].
fn knee(runs: &[Shown]) -> f64 {
    let excess = |run: &Shown| slower(&run.outcome, &runs[0].outcome) - 1.02;
    let points: Vec<_> = SHARES.into_iter().zip(runs.iter().map(excess)).collect();
    let crossing = points.windows(2).find(|pair| pair[1].1 > 0.0);
    crossing.map_or(f64::NAN, |pair| {
        let [(more, before), (fewer, after)] = [pair[0], pair[1]];
        more + (fewer - more) * before / (before - after)
    })
}

/// One control at each of [`SHARES`], with its curves relative to the first.
fn sweep(
    study: &mut Study,
    figure: &'static str,
    what: &str,
    steer: fn(f64) -> Steer,
    workload: &WorkloadSpec,
) -> Result<Vec<Shown>> {
    let duration = study.steady(SWEEP);
    let experiments: [Experiment; SHARES.len()] =
        SHARES.map(|share| study.experiment(steer(share), workload.clone(), duration));
    let runs = study.lab.all(figure, &experiments)?;
    let mut curve = |series: &str, value: fn(&Outcome, &Outcome) -> f64| {
        let value = |run: &Shown| value(&run.outcome, &runs[0].outcome);
        let points: Vec<_> = SHARES.into_iter().zip(runs.iter().map(value)).collect();
        study.report.curve(figure, format!("{series} over share of {what}"), &points);
    };
    curve("mean latency", slower);
    curve("p99 latency", tail);
    curve("IOPS", served);
    curve("IOPS/W", efficiency);
    Ok(runs)
}
