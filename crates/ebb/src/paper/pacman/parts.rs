//! The parts of PACMAN's server, one drive by itself: Table I, Figs. 1-3.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::Op;
use ebb_twin::drive::DriveProfile;

use super::super::drive::{Load, Measured, measure};
use super::super::study::Study;
use super::GB;

const SECOND: Nanos = Nanos::from_secs(1);

/// Table I, the power states (§VI-A) and Fig. 2: sums of the profile's constants.
pub fn table_1(study: &mut Study) -> Result<()> {
    let profile = &study.lab.server.profile;
    let Some(drive) = profile.drive() else { return Ok(()) };
    let cores: f64 = profile.stage.iter().map(|stage| f64::from(stage.cores)).sum();
    let cpu = profile.cpu.uncore + (profile.cpu.core_static + profile.cpu.core_dynamic) * cores;
    let spec = drive.spec();
    let count = f64::from(profile.drives.count);
    let array = |ps| spec.cap(ps).0 * count;
    let report = &mut study.report;
    report.row("table-1/cpu", cpu.0)?;
    report.row("table-1/ssds", array(0))?;
    report.row("more/ssds", spec.cap(0).0 * 32.0)?;
    for (ps, row) in (0..).zip(["caps/ps0", "caps/ps1", "caps/ps2", "caps/ps3", "caps/ps4"]) {
        report.row(row, spec.cap(ps).0)?;
    }
    let saved = array(0) - array(3);
    report.row("fig-2/capped", array(3))?;
    report.row("fig-2/saved", saved)?;
    report.row("fig-2/added", (saved / spec.cap(3).0).floor())
}

/// Fig. 1: sequential writes in each power state.
pub fn states(study: &mut Study) -> Result<()> {
    let Some(drive) = study.lab.server.profile.drive() else { return Ok(()) };
    let spec = drive.spec();
    let load = Load { op: Op::Write, bytes: 131_072, random: false, depth: 32, rate: None };
    let by_state: Vec<_> = (0..5).map(|ps| measure(&drive, ps, load, SECOND, SECOND)).collect();
    let rate = |ps: usize| by_state[ps].bytes_per_second / GB;
    let report = &mut study.report;
    report.row("fig-1/ps0", rate(0))?;
    report.row("fig-1/ps3", rate(3))?;
    report.row("fig-1/lost", rate(0) - rate(3))?;
    report.row("fig-1/cap", spec.cap(0).0 - spec.cap(3).0)?;
    let points = |value: fn(&Measured) -> f64| {
        by_state.iter().enumerate().map(|(ps, m)| (ps as f64, value(m))).collect::<Vec<_>>()
    };
    let series = "sequential write over power state, GB/s";
    report.curve("Fig. 1", series.into(), &points(|m| m.bytes_per_second / GB));
    report.curve("Fig. 1", "power over power state, W".into(), &points(|m| m.power.0));
    Ok(())
}

/// Fig. 3: power over throughput by pattern; collection parts the two.
pub fn characteristics(study: &mut Study) -> Result<()> {
    let Some(drive) = study.lab.server.profile.drive() else { return Ok(()) };
    let mut curves = Vec::new();
    for (name, op, bytes, random) in [
        ("sequential read", Op::Read, 131_072, false),
        ("random read", Op::Read, 4096, true),
        ("sequential write", Op::Write, 131_072, false),
    ] {
        let load = |rate| Load { op, bytes, random, depth: 512, rate };
        let most = measure(&drive, 0, load(None), SECOND, SECOND).bytes_per_second;
        let point = |share: f64| {
            let m = measure(&drive, 0, load(Some(share * most)), SECOND, SECOND);
            (m.bytes_per_second / GB, m.power.0)
        };
        let points = [0.1, 0.25, 0.5, 0.75, 0.95].map(point);
        study.report.curve("Fig. 3(a)", format!("{name}: power over GB/s, W"), &points);
        curves.push(points);
    }
    study.report.row("fig-3a/patterns", at_like_power(&curves))?;
    collection(study, &drive)
}

/// The most over the least throughput, at the highest power that all curves of (GB/s, W) reach.
fn at_like_power(curves: &[[(f64, f64); 5]]) -> f64 {
    let most = |curve: &[(f64, f64); 5]| curve.iter().map(|point| point.1).fold(0.0, f64::max);
    let power = curves.iter().map(most).fold(f64::INFINITY, f64::min);
    let rates = curves.iter().filter_map(|curve| {
        let pair = curve.windows(2).find(|pair| pair[0].1 <= power && power <= pair[1].1)?;
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        Some(x0 + (x1 - x0) * (power - y0) / (y1 - y0))
    });
    let (least, most) =
        rates.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    most / least
}

/// Fig. 3(b): random writes on a drive with all of its spare flash free, and with none.
fn collection(study: &mut Study, drive: &DriveProfile) -> Result<()> {
    let write = Load { op: Op::Write, bytes: 4096, random: true, depth: 64, rate: None };
    let with = |free, settle| {
        let mut drive = drive.clone();
        (drive.gc.filled, drive.gc.free) = (1.0, free);
        measure(&drive, 0, write, settle, SECOND)
    };
    let (fresh, collecting) = (with(1.0, Nanos::from_millis(100)), with(0.0, SECOND));
    let report = &mut study.report;
    report.row("fig-3b/before", fresh.bytes_per_second / GB)?;
    report.row("fig-3b/before-watts", fresh.power.0)?;
    report.row("fig-3b/collecting", collecting.bytes_per_second / GB)?;
    report.row("fig-3b/collecting-watts", collecting.power.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_compared_at_the_power_all_of_them_reach() {
        let line = |slope: f64| [0.0, 1.0, 2.0, 3.0, 4.0].map(|x| (x, slope * x));
        let ratio = at_like_power(&[line(1.0), line(2.0), line(5.0)]);
        assert!((ratio - 5.0).abs() < 1e-9, "{ratio}");
    }
}
