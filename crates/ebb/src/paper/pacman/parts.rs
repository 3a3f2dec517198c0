//! The parts of PACMAN's server, one drive by itself: Table I, Figs. 1-3.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::Op;
use ebb_twin::drive::DriveProfile;

use super::super::drive::{Load, Measured, measure};
use super::super::study::Study;
use super::{BUDGET, GB};

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
    report.calibrated("Table I", "CPU at its peak, W", 210.0, cpu.0);
    report.calibrated("Table I", "16 SSDs at their peak, W", 400.0, array(0));
    report.calibrated("§II-A", "32 SSDs at their peak, W", 800.0, spec.cap(0).0 * 32.0);
    for (ps, stated) in (0..).zip([25.0, 21.0, 18.0, 14.0, 9.0]) {
        report.calibrated("§VI-A", &format!("SSD's cap in PS{ps}, W"), stated, spec.cap(ps).0);
    }
    let saved = array(0) - array(3);
    report.calibrated("Fig. 2", "16 SSDs capped in PS3, W", BUDGET.0, array(3));
    report.calibrated("Fig. 2", "saved by PS3, W", 176.0, saved);
    let more = (saved / spec.cap(3).0).floor();
    report.calibrated("Fig. 2", "SSDs that could be added in PS3", 12.0, more);
    Ok(())
}

/// Fig. 1: sequential writes in each power state.
pub fn states(study: &mut Study) -> Result<()> {
    let Some(drive) = study.lab.server.profile.drive() else { return Ok(()) };
    let spec = drive.spec();
    let load = Load { op: Op::Write, bytes: 131_072, random: false, depth: 32, rate: None };
    let by_state: Vec<_> = (0..5).map(|ps| measure(&drive, ps, load, SECOND, SECOND)).collect();
    let rate = |ps: usize| by_state[ps].bytes_per_second / GB;
    let report = &mut study.report;
    report.calibrated("Fig. 1", "sequential write in PS0, GB/s", 7.3, rate(0));
    report.calibrated("Fig. 1", "sequential write in PS3, GB/s", 2.3, rate(3));
    report.calibrated("Fig. 1", "lost from PS0 to PS3 (about), GB/s", 5.0, rate(0) - rate(3));
    let watts = spec.cap(0).0 - spec.cap(3).0;
    report.calibrated("Fig. 1", "cap lowered from PS0 to PS3, W", 11.0, watts);
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
    let quantity = "throughput of one pattern over another's at like power (2 or more), x";
    study.report.calibrated("Fig. 3(a)", quantity, 2.0, at_like_power(&curves));
    collection(study, &drive);
    Ok(())
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
fn collection(study: &mut Study, drive: &DriveProfile) {
    let write = Load { op: Op::Write, bytes: 4096, random: true, depth: 64, rate: None };
    let with = |free, settle| {
        let mut drive = drive.clone();
        (drive.gc.filled, drive.gc.free) = (1.0, free);
        measure(&drive, 0, write, settle, SECOND)
    };
    let (fresh, collecting) = (with(1.0, Nanos::from_millis(100)), with(0.0, SECOND));
    let report = &mut study.report;
    for (when, rate, measured) in
        [("before collection", 6.5, fresh), ("in collection", 1.0, collecting)]
    {
        let twin = measured.bytes_per_second / GB;
        report.calibrated("Fig. 3(b)", &format!("random write {when}, GB/s"), rate, twin);
        let quantity = format!("power {when} (20-24), W");
        report.calibrated("Fig. 3(b)", &quantity, 22.0, measured.power.0);
    }
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
