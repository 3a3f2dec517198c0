//! Fig. 6: some drives idle, VDI on the others.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::generate::{self, DriveShare, Share};
use ebb_twin::Outcome;

use super::super::lab::{Experiment, Shown};
use super::super::report::Report;
use super::super::study::Study;
use super::{GB, percent, policy, rate, watts};

/// Drives that are idle: 0, 13, 31, 50 and 75 % of 16.
const IDLE: [u16; 5] = [0, 2, 5, 8, 12];
/// Four control phases take a drive from the lowest cap to the highest; the last third counts.
const LENGTH: Nanos = Nanos::from_secs(32);

/// SSPC and PACMAN by idle drives.
pub fn ratios(study: &mut Study) -> Result<()> {
    let all = study.lab.server.profile.drives.count;
    let length = study.steady(LENGTH);
    let mut experiments = Vec::new();
    for count in IDLE {
        let mut workload = generate::by_name("vdi-busy")?;
        for job in &mut workload.jobs {
            let to = Share(f64::from(all - count) / f64::from(all));
            job.drives = DriveShare { from: Share(0.0), to };
        }
        for name in ["sspc", "pacman"] {
            let (duration, warmup) = (Some(length), Nanos(length.0 / 16 * 11));
            let steady = policy(study, name, &workload)?;
            experiments.push(Experiment { duration, warmup, ..steady });
        }
    }
    let runs = study.lab.all("Fig. 6", &experiments)?;
    let pairs: Vec<_> = runs.chunks(2).collect();
    for (index, policy) in [(0, "SSPC"), (1, "PACMAN")] {
        let mut curve = |what: &str, value: &dyn Fn(&Outcome) -> f64| {
            let point = |(idle, pair): (&u16, &&[Shown])| {
                (100.0 * f64::from(*idle) / f64::from(all), value(&pair[index].outcome))
            };
            let points: Vec<_> = IDLE.iter().zip(&pairs).map(point).collect();
            let series = format!("{policy}: {what} over idle drives, %");
            study.report.curve("Fig. 6(a)", series, &points);
        };
        curve("GB/s", &|outcome| rate(outcome, 0, all) / GB);
        curve("W", &|outcome| watts(outcome, 0, all));
    }
    rows(&mut study.report, &pairs, all)
}

/// The numbers that the text states.
fn rows(report: &mut Report, pairs: &[&[Shown]], all: u16) -> Result<()> {
    let gains = |index: usize| {
        let (sspc, pacman) = (&pairs[index][0].outcome, &pairs[index][1].outcome);
        let faster = percent(rate(pacman, 0, all), rate(sspc, 0, all));
        (faster, percent(watts(pacman, 0, all), watts(sspc, 0, all)))
    };
    let level = |index: usize| rate(&pairs[index][1].outcome, 0, all) / GB;
    // Whatever the depth of fio's queues, which the paper does not state: 2 to 64 give the same.
    let levels = ["fig-6a/idle-0", "fig-6a/idle-13", "fig-6a/idle-31", "fig-6a/idle-50"];
    for (index, row) in levels.into_iter().enumerate() {
        report.row(row, level(index))?;
    }
    let (faster, hungrier) = gains(0);
    report.row("fig-6a/throughput", 1.0 + faster / 100.0)?;
    report.row("fig-6a/power", 1.0 + hungrier / 100.0)?;
    let some =
        ["fig-6b/throughput-13", "fig-6b/power-13", "fig-6b/by-power-13", "fig-6b/by-cap-13"];
    let more =
        ["fig-6b/throughput-31", "fig-6b/power-31", "fig-6b/by-power-31", "fig-6b/by-cap-31"];
    for (index, rows) in [(1, some), (2, more)] {
        let (faster, hungrier) = gains(index);
        let efficiency = percent(1.0 + faster / 100.0, 1.0 + hungrier / 100.0);
        for (row, twin) in rows.into_iter().zip([faster, hungrier, efficiency, faster]) {
            report.row(row, twin)?;
        }
    }
    Ok(())
}
