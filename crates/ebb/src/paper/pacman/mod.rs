//! PACMAN's evaluation (Figs. 1-9, Table I), paper against twin.

use anyhow::Result;

use ebb_policy::ssd::Predictor;
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::Op;
use ebb_trace::generate::{self, WorkloadSpec};
use ebb_twin::Outcome;
use ebb_twin::drive::DriveProfile;

use super::drive::{Load, measure};
use super::lab::{Experiment, Lab, Shown, Steer};
use super::report::Report;
use crate::progress::Progress;
use crate::server::Server;

/// 14 W for each of 16 drives (§VI-A).
const BUDGET: Watts = Watts(224.0);
const GB: f64 = 1e9;
const SECOND: Nanos = Nanos::from_secs(1);

struct Pacman {
    lab: Lab,
    duration: Nanos,
    report: Report,
}

/// Repeats the evaluation.
pub fn evaluate(duration: Nanos, seed: u64, progress: Progress) -> Result<Report> {
    let lab = Lab { server: Server::load("asg-1115s")?, seed, progress };
    let mut this = Pacman { lab, duration, report: Report::default() };
    this.components();
    this.servers()?;
    this.idle_ratios()?;
    this.rocksdb()?;
    Ok(this.report)
}

/// Bytes per second of some drives.
fn rate(outcome: &Outcome, first: u16, count: u16) -> f64 {
    let drives = outcome.drives.iter().skip(first.into()).take(count.into());
    drives.map(|drive| drive.bytes as f64).sum::<f64>() / outcome.span.seconds()
}
/// Mean power of some drives.
fn watts(outcome: &Outcome, first: u16, count: u16) -> f64 {
    let drives = outcome.drives.iter().skip(first.into()).take(count.into());
    drives.map(|drive| drive.energy.0).sum::<f64>() / outcome.span.seconds()
}
fn percent(of: f64, over: f64) -> f64 {
    100.0 * (of / over - 1.0)
}

impl Pacman {
    fn experiment(&self, policy: &'static str, workload: WorkloadSpec) -> Experiment {
        let (steer, duration) = (Steer::Policy(policy), Some(self.duration));
        let (ssd_budget, warmup) = (Some(BUDGET), Nanos::ZERO);
        Experiment { steer, plf: 0.2, ssd_budget, workload, duration, warmup }
    }

    /// Table I and Figs. 1-3: the parts of the server, one drive by itself.
    fn components(&mut self) {
        let profile = &self.lab.server.profile;
        let Some(drive) = profile.drive() else { return };
        let cores: f64 = profile.stage.iter().map(|stage| f64::from(stage.cores)).sum();
        let cpu = profile.cpu.uncore + (profile.cpu.core_static + profile.cpu.core_dynamic) * cores;
        let spec = drive.spec();
        let array = |ps| spec.cap(ps).0 * f64::from(profile.drives.count);
        let report = &mut self.report;
        report.calibrated("Table I", "CPU at its peak, W", 210.0, cpu.0);
        report.calibrated("Table I", "16 SSDs at their peak, W", 400.0, array(0));
        report.calibrated("Fig. 2", "16 SSDs capped in PS3, W", 224.0, array(3));
        let sequential =
            Load { op: Op::Write, bytes: 131_072, random: false, depth: 32, rate: None };
        let by_state: Vec<_> =
            (0..5).map(|ps| measure(&drive, ps, sequential, SECOND, SECOND)).collect();
        report.calibrated(
            "Fig. 1",
            "sequential write in PS0, GB/s",
            7.3,
            by_state[0].bytes_per_second / GB,
        );
        report.calibrated(
            "Fig. 1",
            "sequential write in PS3, GB/s",
            2.3,
            by_state[3].bytes_per_second / GB,
        );
        let points = |value: fn(&super::drive::Measured) -> f64| {
            by_state.iter().enumerate().map(|(ps, m)| (ps as f64, value(m))).collect::<Vec<_>>()
        };
        report.curve(
            "Fig. 1",
            "sequential write over power state, GB/s".into(),
            &points(|m| m.bytes_per_second / GB),
        );
        report.curve("Fig. 1", "power over power state, W".into(), &points(|m| m.power.0));
        self.characteristics(&drive);
    }

    /// Fig. 3: power over throughput by pattern; collection parts the two.
    fn characteristics(&mut self, drive: &DriveProfile) {
        for (name, op, bytes, random) in [
            ("sequential read", Op::Read, 131_072, false),
            ("random read", Op::Read, 4096, true),
            ("sequential write", Op::Write, 131_072, false),
        ] {
            let load = |rate| Load { op, bytes, random, depth: 512, rate };
            let most = measure(drive, 0, load(None), SECOND, SECOND).bytes_per_second;
            let point = |share: f64| {
                let m = measure(drive, 0, load(Some(share * most)), SECOND, SECOND);
                (m.bytes_per_second / GB, m.power.0)
            };
            let points: Vec<_> = [0.1, 0.25, 0.5, 0.75, 0.95].map(point).to_vec();
            self.report.curve("Fig. 3(a)", format!("{name}: power over GB/s, W"), &points);
        }
        let write = Load { op: Op::Write, bytes: 4096, random: true, depth: 64, rate: None };
        let with = |free| {
            let mut drive = drive.clone();
            (drive.gc.filled, drive.gc.free) = (1.0, free);
            drive
        };
        let fresh = measure(&with(1.0), 0, write, Nanos::from_millis(100), SECOND);
        let collecting = measure(&with(0.0), 0, write, SECOND, SECOND);
        let report = &mut self.report;
        report.calibrated(
            "Fig. 3(b)",
            "random write before collection, GB/s",
            6.5,
            fresh.bytes_per_second / GB,
        );
        report.calibrated(
            "Fig. 3(b)",
            "random write in collection, GB/s",
            1.0,
            collecting.bytes_per_second / GB,
        );
        report.calibrated("Fig. 3(b)", "power in collection (20-24), W", 22.0, collecting.power.0);
    }

    /// Figs. 5, 8 (FIO) and 9: four servers on a quarter of the drives each.
    fn servers(&mut self) -> Result<()> {
        let workload = generate::by_name("fio-servers")?;
        let policies = ["sspc", "pacman", "pacman-mean", "pacman-ema", "pacman-plus"];
        let experiments = policies.map(|policy| self.experiment(policy, workload.clone()));
        let runs = self.lab.all("Figs. 5, 8, 9", &experiments)?;
        let all = self.lab.server.profile.drives.count;
        let (sspc, pacman) = (&runs[0].outcome, &runs[1].outcome);
        let gain = |value: fn(&Outcome, u16, u16) -> f64| {
            percent(value(pacman, 0, all), value(sspc, 0, all))
        };
        let (faster, hungrier) = (gain(rate), gain(watts));
        let report = &mut self.report;
        report.validated("Fig. 5(a)", "drive power under SSPC, W", 140.0, watts(sspc, 0, all));
        report.validated("Fig. 5(a)", "drive power under PACMAN, W", 160.0, watts(pacman, 0, all));
        report.validated("Fig. 5(b)", "PACMAN's throughput over SSPC, %", 41.0, faster);
        report.validated("Fig. 5(b)", "PACMAN's power over SSPC, %", 14.0, hungrier);
        let efficiency = 100.0 * ((1.0 + faster / 100.0) / (1.0 + hungrier / 100.0) - 1.0);
        report.validated(
            "Fig. 5(b)",
            "PACMAN's efficiency by power over SSPC, %",
            24.0,
            efficiency,
        );
        report.validated("Fig. 5(b)", "PACMAN's efficiency by cap over SSPC, %", 41.0, faster);
        let parts = workload.parts(all);
        for (name, power, throughput) in [
            ("mail", Some(11.0), 1.2),
            ("vdi", Some(36.0), 2.4),
            ("media", Some(5.0), 1.15),
            ("web", None, 1.0),
        ] {
            let Some(part) = parts.iter().find(|part| part.name == name) else { continue };
            let of = |value: fn(&Outcome, u16, u16) -> f64, outcome: &Outcome| {
                value(outcome, part.first, part.count)
            };
            if let Some(stated) = power {
                let twin = percent(of(watts, pacman), of(watts, sspc));
                report.validated("Fig. 5(c)", &format!("{name}: power over SSPC, %"), stated, twin);
            }
            let twin = of(rate, pacman) / of(rate, sspc);
            report.validated(
                "Fig. 5(d)",
                &format!("{name}: throughput over SSPC, x"),
                throughput,
                twin,
            );
            let point =
                |(x, run): (usize, &Shown)| (x as f64, of(rate, &run.outcome) / of(rate, sspc));
            let points: Vec<_> = runs.iter().enumerate().skip(1).map(point).collect();
            let series =
                format!("{name}: throughput over SSPC of 1 Stat, 2 Mean, 3 EMA, 4 pacman-plus");
            report.curve("Fig. 8", series, &points);
        }
        if let Some(vdi) = parts.iter().find(|part| part.name == "vdi") {
            let of = |index: usize| rate(&runs[index].outcome, vdi.first, vdi.count);
            let others = of(2).max(of(3));
            report.validated(
                "Fig. 8",
                "Stat's throughput over the best other, vdi, %",
                13.0,
                percent(of(1), others),
            );
        }
        self.estimates(&runs[1]);
        Ok(())
    }

    /// Fig. 9: what PACMAN expected against what a drive then drew.
    fn estimates(&mut self, shown: &Shown) {
        let window = 10; // p_interval / m_interval
        let drives = shown.drive_watts.first().map_or(0, Vec::len);
        let (mut over, mut count, mut excess) = (0u32, 0u32, 0.0);
        for drive in 0..drives {
            let history: Vec<_> =
                shown.drive_watts.iter().map(|all| all.get(drive).copied()).collect();
            for pair in history.chunks_exact(window).collect::<Vec<_>>().windows(2) {
                let Some(estimate) = Predictor::STATISTICAL.estimate(pair[0]) else { continue };
                let next: Watts = pair[1].iter().flatten().copied().sum();
                let difference = (estimate - next * (1.0 / window as f64)).0;
                over += u32::from(difference > 0.0);
                excess += difference;
                count += 1;
            }
        }
        let points = [
            (1.0, 100.0 * f64::from(over) / f64::from(count.max(1))),
            (2.0, excess / f64::from(count.max(1))),
        ];
        let series =
            "estimates: 1 % that were too high (conservative), 2 mean excess, W".to_owned();
        self.report.curve("Fig. 9", series, &points);
    }

    /// Fig. 6: some drives idle, VDI on the others.
    fn idle_ratios(&mut self) -> Result<()> {
        let all = self.lab.server.profile.drives.count;
        let mut experiments = Vec::new();
        let idle = [0u16, 2, 5, 8, 12];
        for count in idle {
            let mut workload = generate::by_name("vdi-busy")?;
            for job in &mut workload.jobs {
                let to = generate::Share(f64::from(all - count) / f64::from(all));
                job.drives = generate::DriveShare { from: generate::Share(0.0), to };
            }
            for policy in ["sspc", "pacman"] {
                // Four control phases take a drive from the lowest cap to the highest.
                let (duration, warmup) = (Some(Nanos::from_secs(32)), Nanos::from_secs(22));
                let steady = self.experiment(policy, workload.clone());
                experiments.push(Experiment { duration, warmup, ..steady });
            }
        }
        let runs = self.lab.all("Fig. 6", &experiments)?;
        let pairs: Vec<_> = runs.chunks(2).collect();
        for (index, policy) in [(0, "SSPC"), (1, "PACMAN")] {
            let mut curve = |what: &str, value: &dyn Fn(&Outcome) -> f64| {
                let point = |(idle, pair): (&u16, &&[Shown])| {
                    (100.0 * f64::from(*idle) / f64::from(all), value(&pair[index].outcome))
                };
                let points: Vec<_> = idle.iter().zip(&pairs).map(point).collect();
                self.report.curve(
                    "Fig. 6(a)",
                    format!("{policy}: {what} over idle drives, %"),
                    &points,
                );
            };
            curve("GB/s", &|outcome| rate(outcome, 0, all) / GB);
            curve("W", &|outcome| watts(outcome, 0, all));
        }
        self.idle_rows(&pairs, all);
        Ok(())
    }

    /// The numbers that Fig. 6's text states; `pairs` are SSPC and PACMAN by idle drives.
    fn idle_rows(&mut self, pairs: &[&[Shown]], all: u16) {
        let gains = |index: usize| {
            let (sspc, pacman) = (&pairs[index][0].outcome, &pairs[index][1].outcome);
            let faster = percent(rate(pacman, 0, all), rate(sspc, 0, all));
            (faster, percent(watts(pacman, 0, all), watts(sspc, 0, all)))
        };
        let report = &mut self.report;
        let level = |index: usize| rate(&pairs[index][1].outcome, 0, all) / GB;
        // The depth of fio's queues, which the paper does not state, was inferred from this level.
        report.calibrated("Fig. 6(a)", "throughput, no drive idle (38-40), GB/s", 39.0, level(0));
        for (index, share) in [(1, 13), (2, 31), (3, 50)] {
            let quantity = format!("throughput of PACMAN, {share} % idle (38-40), GB/s");
            report.validated("Fig. 6(a)", &quantity, 39.0, level(index));
        }
        report.validated(
            "Fig. 6(a)",
            "PACMAN's throughput over SSPC, none idle, x",
            1.0,
            1.0 + gains(0).0 / 100.0,
        );
        for (index, share, stated) in [(1, 13, (13.0, 5.0, 7.0)), (2, 31, (43.0, 14.0, 26.0))] {
            let (faster, hungrier) = gains(index);
            report.validated(
                "Fig. 6(b)",
                &format!("throughput over SSPC, {share} % idle, %"),
                stated.0,
                faster,
            );
            report.validated(
                "Fig. 6(b)",
                &format!("power over SSPC, {share} % idle, %"),
                stated.1,
                hungrier,
            );
            let efficiency = percent(1.0 + faster / 100.0, 1.0 + hungrier / 100.0);
            let quantity = format!("efficiency by power over SSPC, {share} % idle, %");
            report.validated("Fig. 6(b)", &quantity, stated.2, efficiency);
        }
    }

    /// Figs. 7 and 8 (RocksDB): four instances insert a fixed amount of data.
    fn rocksdb(&mut self) -> Result<()> {
        let workload = generate::by_name("rocksdb")?;
        let policies = ["sspc", "pacman", "pacman-mean", "pacman-ema", "pacman-plus"];
        let experiments = policies.map(|policy| Experiment {
            duration: None,
            ..self.experiment(policy, workload.clone())
        });
        let runs = self.lab.all("Figs. 7, 8", &experiments)?;
        let all = self.lab.server.profile.drives.count;
        let (sspc, pacman) = (&runs[0].outcome, &runs[1].outcome);
        let report = &mut self.report;
        report.validated(
            "Fig. 7(a)",
            "drive power over SSPC, %",
            5.0,
            percent(watts(pacman, 0, all), watts(sspc, 0, all)),
        );
        report.validated(
            "Fig. 7(a)",
            "finished earlier than SSPC, s",
            54.0,
            sspc.span.seconds() - pacman.span.seconds(),
        );
        report.validated(
            "Fig. 7(b)",
            "efficiency by cap over SSPC, %",
            11.0,
            percent(rate(pacman, 0, all), rate(sspc, 0, all)),
        );
        let points: Vec<_> = runs
            .iter()
            .enumerate()
            .map(|(x, run)| (x as f64, run.outcome.span.seconds()))
            .collect();
        if let Some(part) = workload.parts(all).iter().find(|part| part.name == "sst-256-2") {
            let of = |index: usize| rate(&runs[index].outcome, part.first, part.count);
            let gain = percent(of(1), of(2).max(of(3)));
            let quantity = "Stat's throughput over the best other, SST_256_2, %";
            report.validated("Fig. 8", quantity, 12.0, gain);
        }
        let series =
            "seconds to insert all data: 0 SSPC, 1 Stat, 2 Mean, 3 EMA, 4 pacman-plus".to_owned();
        report.curve("Figs. 7, 8", series, &points);
        Ok(())
    }
}
