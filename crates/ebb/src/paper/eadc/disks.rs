//! Figs. 5, 6 and 7: what vibration costs the disks, and what that costs everybody.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::generate;

use super::super::lab::{Experiment, Steer};
use super::super::study::Study;
use super::{PAUSE, SERVER, characterise, choose, whole};

/// Fan duty of the experiment on the shake table (§V-B).
const HELD: f64 = 0.5;
/// Amplitudes of the rack's vibration, relative to the server's own fans at full speed.
const RACK: [f64; 6] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5];
/// Fan duties of Fig. 7.
const DUTIES: [f64; 6] = [0.3, 0.5, 0.6, 0.7, 0.85, 1.0];

/// Fig. 5: disk throughput over fan speed.
pub fn fan_sweep(study: &mut Study) -> Result<()> {
    choose(study, SERVER)?;
    let (steps, curve) = characterise(study)?;
    let points: Vec<_> = steps.iter().map(|step| (100.0 * step.duty, step.throughput)).collect();
    let report = &mut study.report;
    report.curve("Fig. 5", "share of the disks' throughput over fan duty, %".into(), &points);
    let at = |duty| 100.0 * curve.throughput(duty);
    report.row("fig-5/at-40", at(0.4))?;
    report.row("fig-5/at-full", at(1.0))
}

/// Fig. 6: disk throughput over vibration from outside, fans at half speed.
pub fn rack(study: &mut Study) -> Result<()> {
    let workload = generate::by_name("eadc-io")?;
    let mut points = Vec::new();
    for amplitude in RACK {
        choose(study, SERVER)?;
        if let Some(vibration) = &mut study.lab.server.profile.vibration {
            vibration.external = amplitude;
        }
        let pause = study.steady(PAUSE);
        let run = whole(study, Steer::Fans(HELD), workload.clone(), Some(pause));
        let run = Experiment { warmup: Nanos(pause.0 / 2), ..run };
        let outcome = &study.lab.all("Fig. 6", &[run])?[0].outcome;
        points.push((amplitude, outcome.bytes as f64 / outcome.span.seconds() * 1e-6));
    }
    let series = "MB/s over the rack's vibration, relative to full fan speed".to_owned();
    study.report.curve("Fig. 6", series, &points);
    Ok(())
}

/// Fig. 7: time and energy of a fixed piece of work over the throughput that the fans leave.
pub fn longer(study: &mut Study) -> Result<()> {
    choose(study, SERVER)?;
    let workload = generate::by_name("eadc-update")?;
    let experiments = DUTIES.map(|duty| whole(study, Steer::Fans(duty), workload.clone(), None));
    let runs = study.lab.all("Fig. 7", &experiments)?;
    // Each run: throughput of the disks, time and energy, relative to the slowest fans.
    let of = |run: &super::super::lab::Shown| {
        let seconds = run.outcome.span.seconds();
        let bytes: u64 = run.outcome.jobs.iter().map(|job| job.disk_bytes).sum();
        (bytes as f64 / seconds, seconds, run.outcome.energy.total().0)
    };
    let (rate, seconds, joules) = of(&runs[0]);
    let relative: Vec<_> =
        runs.iter().map(of).map(|(r, s, j)| (1.0 - r / rate, s / seconds, j / joules)).collect();
    let loss = |value: fn(&(f64, f64, f64)) -> f64| -> Vec<_> {
        relative.iter().map(|at| (100.0 * at.0, value(at))).collect()
    };
    let report = &mut study.report;
    let longer = loss(|at| at.1);
    report.curve("Fig. 7", "time, x, over loss of throughput, %".into(), &longer);
    report.curve("Fig. 7", "energy, x, over loss of throughput, %".into(), &loss(|at| at.2));
    if let Some(twin) = between(&longer, 20.0) {
        report.row("fig-7/longer", twin)?;
    }
    Ok(())
}

/// The value at `x` on straight lines between points whose x rises.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let pair = points.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&x))?;
    let (from, to) = (pair[0], pair[1]);
    Some(from.1 + (to.1 - from.1) * (x - from.0) / (to.0 - from.0).max(f64::MIN_POSITIVE))
}
