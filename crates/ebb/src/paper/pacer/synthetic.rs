//! PACER's evaluation (Figs. 6, 7, 10-19, Table I), paper against twin.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_trace::Op;
use ebb_trace::generate::{self, WorkloadSpec};
use ebb_twin::Outcome;

use super::drive::{Load, idle_power, measure};
use super::lab::{Experiment, Lab, Shown, Steer};
use super::report::Report;
use crate::progress::Progress;
use crate::server::Server;

/// The evaluation's default (§V).
const PLF: f64 = 0.2;
/// Shares of cores or of the highest frequency in the sweeps of Figs. 6 and 7.
const SHARES: [f64; 8] = [1.0, 0.9, 0.8, 0.7, 0.63, 0.5, 0.4, 0.3];
const ALL: Steer = Steer::Hold { cores: 1.0, frequency: 1.0 };

/// Everything an experiment of this paper needs.
struct Pacer {
    lab: Lab,
    duration: Nanos,
    report: Report,
}

/// Repeats the evaluation.
pub fn evaluate(duration: Nanos, seed: u64, progress: Progress) -> Result<Report> {
    let lab = Lab { server: Server::load("dorado-6000")?, seed, progress };
    let mut this = Pacer { lab, duration, report: Report::default() };
    this.components()?;
    this.sweeps()?;
    this.tolerance()?;
    this.patterns()?;
    this.parts()?;
    this.burst()?;
    this.trace()?;
    this.training()?;
    Ok(this.report)
}

/// Requests per joule, relative.
fn efficiency(of: &Outcome, over: &Outcome) -> f64 {
    (of.iops() / of.mean_power().0) / (over.iops() / over.mean_power().0)
}
fn slower(of: &Outcome, over: &Outcome) -> f64 {
    of.mean_latency() / over.mean_latency()
}
fn tail(of: &Outcome, over: &Outcome) -> f64 {
    let p99 = |outcome: &Outcome| outcome.latency.value_at_quantile(0.99) as f64;
    p99(of) / p99(over)
}

impl Pacer {
    fn experiment(&self, steer: Steer, workload: WorkloadSpec) -> Experiment {
        let (duration, warmup) = (Some(self.duration), Nanos(self.duration.0 / 3));
        Experiment { steer, plf: PLF, ssd_budget: None, workload, duration, warmup }
    }

    /// A workload at a share of the most the server does of it.
    fn pressed(&self, name: &str, pressure: f64) -> Result<WorkloadSpec> {
        let workload = generate::by_name(name)?;
        let maximum = self.lab.maximum(&workload)?;
        Ok(workload.with_rate(pressure * maximum))
    }

    /// Table I, Observation 1, the rate at full pressure.
    fn components(&mut self) -> Result<()> {
        let Some(drive) = self.lab.server.profile.drive() else { return Ok(()) };
        let second = Nanos::from_secs(1);
        let load = |rate| Load { op: Op::Read, bytes: 8192, random: true, depth: 256, rate };
        let most = measure(&drive, 0, load(None), second, second).bytes_per_second;
        for (share, paper) in [(1.0, 13.3), (0.5, 11.7), (0.1, 10.5)] {
            let rate = (share < 1.0).then_some(share * most);
            let twin = measure(&drive, 0, load(rate), second, second).power;
            let quantity = format!("SSD at {:.0} % load, W", share * 100.0);
            self.report.calibrated("Table I", &quantity, paper, twin.0);
        }
        let idle0 = idle_power(&drive, Nanos::from_micros(2), Nanos::from_micros(100));
        let idle1 = idle_power(&drive, Nanos::from_millis(1), second);
        self.report.calibrated("Table I", "SSD in Idle-0, W", 6.8, idle0.0);
        self.report.calibrated("Table I", "SSD in Idle-1, W", 5.9, idle1.0);

        let rand_rw = generate::by_name("rand-rw")?;
        let maximum = self.lab.maximum(&rand_rw)?;
        self.report.calibrated(
            "§III-B1",
            "IOPS at 100 % pressure, thousands",
            600.0,
            maximum / 1e3,
        );
        let light = rand_rw.clone().with_rate(0.1 * maximum);
        let runs = self.lab.all(
            "Observation 1",
            &[self.experiment(ALL, light), self.experiment(ALL, rand_rw.saturating())],
        )?;
        let share = |shown: &Shown| {
            let energy = shown.outcome.energy;
            100.0 * ((energy.cpu + energy.ssd) / energy.total())
        };
        self.report.calibrated(
            "Obs. 1",
            "CPU and SSD of the total, 10 % load, %",
            49.0,
            share(&runs[0]),
        );
        self.report.calibrated(
            "Obs. 1",
            "CPU and SSD of the total, full load, %",
            60.0,
            share(&runs[1]),
        );
        let total = runs[0].outcome.mean_power().0;
        let drives = f64::from(self.lab.server.profile.drives.count);
        let saves = |to: f64| 100.0 * drives * (8.5 - to) / total;
        self.report.calibrated("Table I", "whole server saved by Idle-0, %", 6.7, saves(idle0.0));
        self.report.calibrated("Table I", "whole server saved by Idle-1, %", 10.3, saves(idle1.0));
        Ok(())
    }

    /// Figs. 6 and 7: frequency and active cores, one at a time, at 10 % and 100 % pressure.
    fn sweeps(&mut self) -> Result<()> {
        let light = self.pressed("rand-rw", 0.1)?;
        let full = generate::by_name("rand-rw")?.saturating();
        let slow = |share| Steer::Hold { cores: 1.0, frequency: share };
        let few = |share| Steer::Hold { cores: share, frequency: 1.0 };
        self.sweep("Fig. 6", "frequency, 10 % pressure", slow, &light)?;
        let runs = self.sweep("Fig. 6", "frequency, 100 % pressure", slow, &full)?;
        let at = |runs: &[Shown], value: fn(&Outcome, &Outcome) -> f64, share: f64| {
            let run = SHARES.iter().zip(runs).find(|(x, _)| **x == share);
            run.map_or(f64::NAN, |(_, run)| value(&run.outcome, &runs[0].outcome))
        };
        let report = &mut self.report;
        let quantity = "mean latency at 30 % frequency, full pressure, x";
        report.validated("Fig. 6", quantity, 2.5, at(&runs, slower, 0.3));
        let quantity = "IOPS/W at 30 % frequency, full pressure, x";
        report.validated("Fig. 6", quantity, 0.5, at(&runs, efficiency, 0.3));
        let runs = self.sweep("Fig. 7", "active cores, 10 % pressure", few, &light)?;
        let report = &mut self.report;
        let quantity = "IOPS/W with 63 % of cores, 10 % pressure, x";
        report.validated("Fig. 7", quantity, 1.18, at(&runs, efficiency, 0.63));
        let quantity = "mean latency with 63 % of cores, 10 % pressure, x";
        report.validated("Fig. 7", quantity, 1.0, at(&runs, slower, 0.63));
        self.sweep("Fig. 7", "active cores, 100 % pressure", few, &full)?;
        Ok(())
    }

    /// One control at each of [`SHARES`], with its curves relative to the first.
    fn sweep(
        &mut self,
        figure: &'static str,
        what: &str,
        steer: fn(f64) -> Steer,
        workload: &WorkloadSpec,
    ) -> Result<Vec<Shown>> {
        // The guard lets cores be parked over a few periods only.
        let (duration, warmup) = (Some(Nanos::from_secs(12)), Nanos::from_secs(4));
        let experiments = SHARES.map(|share| Experiment {
            duration,
            warmup,
            ..self.experiment(steer(share), workload.clone())
        });
        let runs = self.lab.all(figure, &experiments)?;
        let mut curve = |series: &str, value: fn(&Outcome, &Outcome) -> f64| {
            let value = |run: &Shown| value(&run.outcome, &runs[0].outcome);
            let points: Vec<_> = SHARES.into_iter().zip(runs.iter().map(value)).collect();
            self.report.curve(figure, format!("{series} over share of {what}"), &points);
        };
        curve("mean latency", slower);
        curve("p99 latency", tail);
        curve("IOPS", |of, over| of.iops() / over.iops());
        curve("IOPS/W", efficiency);
        Ok(runs)
    }

    /// Figs. 10 and 11: tolerated loss against pressure.
    fn tolerance(&mut self) -> Result<()> {
        let pressures = [0.05, 0.1, 0.2, 0.4];
        let factors = [0.1, 0.2, 0.3];
        let maximum = self.lab.maximum(&generate::by_name("rand-rw")?)?;
        let mut experiments = Vec::new();
        for pressure in pressures {
            let workload = generate::by_name("rand-rw")?.with_rate(pressure * maximum);
            experiments.push(self.experiment(Steer::Policy("native"), workload.clone()));
            for plf in factors {
                let pacer = self.experiment(Steer::Policy("pacer"), workload.clone());
                experiments.push(Experiment { plf, ..pacer });
            }
        }
        let runs = self.lab.all("Figs. 10, 11", &experiments)?;
        let rows: Vec<_> = runs.chunks(1 + factors.len()).collect();
        for (index, plf) in factors.iter().enumerate() {
            let mut curve = |figure, series: &str, value: fn(&Outcome, &Outcome) -> f64| {
                let point = |(x, runs): (&f64, &&[Shown])| {
                    (*x, value(&runs[index + 1].outcome, &runs[0].outcome))
                };
                let points: Vec<_> = pressures.iter().zip(&rows).map(point).collect();
                self.report.curve(figure, format!("{series} over pressure, plf {plf}"), &points);
            };
            curve("Fig. 10", "mean latency", slower);
            curve("Fig. 10", "p99 latency", tail);
            curve("Fig. 11", "IOPS/W", efficiency);
        }
        let (native, pacer) = (&rows[1][0].outcome, &rows[1][2].outcome);
        let saved = 100.0 * (1.0 - pacer.mean_power() / native.mean_power());
        self.report.validated(
            "§V-A1",
            "largest mean latency, plf 0.2, 10 % pressure, x",
            1.15,
            slower(pacer, native),
        );
        self.report.validated("§V-A1", "power saved, plf 0.2, 10 % pressure, %", 20.0, saved);
        let kept = |index: usize, plf: f64| {
            rows.iter()
                .filter(|runs| slower(&runs[index + 1].outcome, &runs[0].outcome) <= 1.0 + plf)
                .count()
        };
        let all: usize = factors.iter().enumerate().map(|(index, plf)| kept(index, *plf)).sum();
        let of = pressures.len() * factors.len();
        self.report.validated(
            "Fig. 10",
            "runs whose mean latency stays within plf, %",
            100.0,
            100.0 * all as f64 / of as f64,
        );
        Ok(())
    }

    /// Figs. 12 and 13: access patterns, at the typical pressure.
    fn patterns(&mut self) -> Result<()> {
        let names = ["rand-r", "rand-w", "seq-r", "seq-w", "rand-rw"];
        let mut experiments = Vec::new();
        for name in names {
            let workload = self.pressed(name, 0.1)?;
            for policy in ["native", "ondemand", "pacer"] {
                experiments.push(self.experiment(Steer::Policy(policy), workload.clone()));
            }
        }
        let runs = self.lab.all("Figs. 12, 13", &experiments)?;
        let rows: Vec<_> = runs.chunks(3).collect();
        for (index, policy) in [(1, "ondemand"), (2, "pacer")] {
            let gains: Vec<f64> = rows
                .iter()
                .map(|runs| efficiency(&runs[index].outcome, &runs[0].outcome))
                .collect();
            let mean = (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
            let paper = if policy == "pacer" { 1.18 } else { 1.02 };
            let quantity = format!("IOPS/W of {policy}, geometric mean over patterns, x");
            self.report.validated("Fig. 13", &quantity, paper, mean);
            for (name, runs) in names.iter().zip(&rows) {
                let (of, over) = (&runs[index].outcome, &runs[0].outcome);
                let series = format!("{policy} on {name}: 1 mean latency, 2 p99, 3 IOPS/W");
                let points =
                    [(1.0, slower(of, over)), (2.0, tail(of, over)), (3.0, efficiency(of, over))];
                self.report.curve("Figs. 12, 13", series, &points);
            }
        }
        Ok(())
    }

    /// Figs. 14 and 15: the parts of PACER one by one.
    fn parts(&mut self) -> Result<()> {
        let workload = self.pressed("rand-rw", 0.1)?;
        let policies = ["native", "ondemand", "pacer-freq", "pacer-cores", "pacer"];
        let experiments: Vec<_> = policies
            .iter()
            .map(|policy| self.experiment(Steer::Policy(policy), workload.clone()))
            .collect();
        let runs = self.lab.all("Figs. 14, 15", &experiments)?;
        let base = &runs[0].outcome;
        for (policy, run) in policies.iter().zip(&runs).skip(1) {
            let of = &run.outcome;
            let points =
                [(1.0, slower(of, base)), (2.0, tail(of, base)), (3.0, efficiency(of, base))];
            let series = format!("{policy}: 1 mean latency, 2 p99, 3 IOPS/W");
            self.report.curve("Figs. 14, 15", series, &points);
        }
        self.report.validated(
            "Fig. 15",
            "IOPS/W of ondemand, x",
            1.02,
            efficiency(&runs[1].outcome, base),
        );
        Ok(())
    }

    /// Fig. 16: a burst from 3 % pressure to saturation with 32 KiB.
    fn burst(&mut self) -> Result<()> {
        let maximum = self.lab.maximum(&generate::by_name("rand-rw")?)?;
        let mut workload = generate::by_name("burst")?;
        for job in &mut workload.jobs {
            job.rate = generate::Rate::Iops(0.03 * maximum);
        }
        let start = workload.jobs.iter().flat_map(|job| &job.stages).map(|stage| stage.start).max();
        let start = start.unwrap_or_default();
        let (duration, warmup) = (Some(start + Nanos::from_secs(15)), start);
        let experiments = ["native", "pacer"].map(|policy| Experiment {
            duration,
            warmup,
            ..self.experiment(Steer::Policy(policy), workload.clone())
        });
        let runs = self.lab.all("Fig. 16", &experiments)?;
        let cores = runs[1].active.iter();
        let low = cores.clone().filter(|(at, _)| *at <= start.seconds()).map(|(_, n)| *n).min();
        let all = runs[1].active.iter().map(|(_, n)| *n).max();
        let back = cores.clone().find(|(at, n)| *at > start.seconds() && Some(*n) == all);
        if let (Some((at, _)), true) = (back, low < all) {
            let reaction = [(start.seconds(), at - start.seconds())];
            self.report.curve("Fig. 16", "seconds until all cores are back".into(), &reaction);
        }
        for (run, policy) in runs.iter().zip(["native", "pacer"]) {
            let burst: Vec<_> =
                run.latency.iter().copied().filter(|(at, _)| *at > start.seconds() - 2.0).collect();
            self.report.curve(
                "Fig. 16",
                format!("mean latency of {policy} over seconds, us"),
                &burst,
            );
        }
        self.report.validated(
            "Fig. 16",
            "IOPS in the burst over native, x",
            1.0,
            runs[1].outcome.iops() / runs[0].outcome.iops(),
        );
        self.report.validated(
            "Fig. 16",
            "p99 in the burst over native, x",
            1.0,
            tail(&runs[1].outcome, &runs[0].outcome),
        );
        Ok(())
    }

    /// Figs. 17 and 18: the real trace. PACER's is not public; the twin takes a day of the same
    /// shape (Figs. 3 and 5), squeezed into half an hour: its six peaks last 15 s each.
    fn trace(&mut self) -> Result<()> {
        let maximum = self.lab.maximum(&generate::by_name("diurnal")?)?;
        let mut workload = generate::by_name("diurnal")?;
        let day = Nanos::from_secs(1800);
        for part in &mut workload.arrivals {
            part.rate = generate::Rate::Iops(0.03 * maximum);
            if let generate::ShapeSpec::Day { length, .. } = &mut part.shape {
                *length = day;
            }
        }
        let experiments = ["native", "ondemand", "pacer"].map(|policy| Experiment {
            duration: Some(day),
            warmup: Nanos::ZERO,
            ..self.experiment(Steer::Policy(policy), workload.clone())
        });
        let runs = self.lab.all("Figs. 17, 18", &experiments)?;
        let [native, ondemand, pacer] = [0, 1, 2].map(|index| &runs[index].outcome);
        let report = &mut self.report;
        report.validated("Fig. 17", "mean latency of PACER, x", 1.19, slower(pacer, native));
        report.validated("Fig. 17", "mean latency of ondemand, x", 1.26, slower(ondemand, native));
        report.validated("Fig. 18", "IOPS/W of PACER, x", 1.23, efficiency(pacer, native));
        report.validated("Fig. 18", "IOPS/W of ondemand, x", 1.02, efficiency(ondemand, native));
        report.validated(
            "Fig. 18",
            "IOPS/W of PACER over ondemand, x",
            1.21,
            efficiency(pacer, ondemand),
        );
        Ok(())
    }

    /// Fig. 19: MLPerf Storage, as long as the paper ran it: few requests, slow to learn from.
    fn training(&mut self) -> Result<()> {
        let duration = Some(self.duration.max(Nanos::from_secs(300)));
        for (name, stated_pacer, stated_ondemand) in [("3d-unet", 13.0, 2.0), ("bert", 22.0, 2.5)] {
            let experiments = ["native", "ondemand", "pacer"]
                .map(|policy| {
                    generate::by_name(name).map(|workload| Experiment {
                        duration,
                        warmup: Nanos::ZERO,
                        ..self.experiment(Steer::Policy(policy), workload)
                    })
                })
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?;
            let runs = self.lab.all("Fig. 19", &experiments)?;
            let [native, ondemand, pacer] = [0, 1, 2].map(|index| &runs[index].outcome);
            let saved = |of: &Outcome| 100.0 * (1.0 - of.mean_power() / native.mean_power());
            let report = &mut self.report;
            report.validated(
                "Fig. 19",
                &format!("power saved by PACER, {name}, %"),
                stated_pacer,
                saved(pacer),
            );
            report.validated(
                "Fig. 19",
                &format!("power saved by ondemand, {name}, %"),
                stated_ondemand,
                saved(ondemand),
            );
            report.validated(
                "Fig. 19",
                &format!("throughput under PACER, {name}, x"),
                1.0,
                pacer.iops() / native.iops(),
            );
        }
        Ok(())
    }
}
