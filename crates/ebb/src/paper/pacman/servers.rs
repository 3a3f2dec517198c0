//! PACMAN under fio's four servers and under RocksDB: Figs. 5, 7, 8 and 9.

use anyhow::Result;

use ebb_policy::ssd::Predictor;
use ebb_policy::units::{Bytes, Watts};
use ebb_trace::generate::{self, PartDevices};
use ebb_twin::Outcome;

use super::super::lab::{Experiment, Shown};
use super::super::report::Report;
use super::super::study::Study;
use super::{percent, policy, rate, watts};

const POLICIES: [&str; 5] = ["sspc", "pacman", "pacman-mean", "pacman-ema", "pacman-plus"];

/// Figs. 5, 8 (fio) and 9: four servers on a quarter of the drives each.
pub fn fio(study: &mut Study) -> Result<()> {
    let workload = generate::by_name("fio-servers")?;
    let of = |name| policy(study, name, &workload);
    let experiments = POLICIES.into_iter().map(of).collect::<Result<Vec<_>>>()?;
    let runs = study.lab.all("Figs. 5, 8, 9", &experiments)?;
    let all = study.lab.server.profile.drives.count;
    let (sspc, pacman) = (&runs[0].outcome, &runs[1].outcome);
    let faster = percent(rate(pacman, 0, all), rate(sspc, 0, all));
    let hungrier = percent(watts(pacman, 0, all), watts(sspc, 0, all));
    let efficiency = percent(1.0 + faster / 100.0, 1.0 + hungrier / 100.0);
    let report = &mut study.report;
    report.row("fig-5a/sspc", watts(sspc, 0, all))?;
    report.row("fig-5a/pacman", watts(pacman, 0, all))?;
    report.row("fig-5b/throughput", faster)?;
    report.row("fig-5b/power", hungrier)?;
    report.row("fig-5b/by-power", efficiency)?;
    report.row("fig-5b/by-cap", faster)?;
    for part in workload.parts(all) {
        server(report, &part, &runs)?;
        if part.name == "vdi" {
            report.row("fig-8/vdi", over_others(&part, &runs))?;
        }
    }
    estimates(report, &runs[1]);
    Ok(())
}

/// Figs. 5(c), 5(d) and 8: one of the four servers.
fn server(report: &mut Report, part: &PartDevices, runs: &[Shown]) -> Result<()> {
    let name = &part.name;
    let of = |value: fn(&Outcome, u16, u16) -> f64, index: usize| {
        let value = |run: &Shown| value(&run.outcome, part.first, part.count);
        value(&runs[index]) / value(&runs[0])
    };
    let (power, throughput) = match name.as_str() {
        "mail" => ("fig-5c/mail", "fig-5d/mail"),
        "vdi" => ("fig-5c/vdi", "fig-5d/vdi"),
        "media" => ("fig-5c/media", "fig-5d/media"),
        _ => ("fig-5c/web", "fig-5d/web"),
    };
    // The text calls the web server's similar, and has percent of the others.
    let more = of(watts, 1);
    report.row(power, if name == "web" { more } else { percent(more, 1.0) })?;
    report.row(throughput, of(rate, 1))?;
    let points: Vec<_> = (1..runs.len()).map(|index| (index as f64, of(rate, index))).collect();
    let series = format!("{name}: throughput over SSPC of 1 Stat, 2 Mean, 3 EMA, 4 pacman-plus");
    report.curve("Fig. 8", series, &points);
    Ok(())
}

/// Fig. 8: what the statistical predictor gains over the better of the other two, in percent.
fn over_others(part: &PartDevices, runs: &[Shown]) -> f64 {
    let of = |index: usize| rate(&runs[index].outcome, part.first, part.count);
    percent(of(1), of(2).max(of(3)))
}

/// Fig. 9: what PACMAN expected against what a drive then drew.
fn estimates(report: &mut Report, shown: &Shown) {
    let window = 10; // p_interval / m_interval
    let drives = shown.drive_watts.first().map_or(0, Vec::len);
    let (mut over, mut count, mut excess) = (0u32, 0u32, 0.0);
    for drive in 0..drives {
        let history: Vec<_> = shown.drive_watts.iter().map(|all| all.get(drive).copied()).collect();
        for pair in history.chunks_exact(window).collect::<Vec<_>>().windows(2) {
            let Some(estimate) = Predictor::STATISTICAL.estimate(pair[0]) else { continue };
            let next: Watts = pair[1].iter().flatten().copied().sum();
            let difference = (estimate - next * (1.0 / window as f64)).0;
            over += u32::from(difference > 0.0);
            excess += difference;
            count += 1;
        }
    }
    let count = f64::from(count.max(1));
    let points = [(1.0, 100.0 * f64::from(over) / count), (2.0, excess / count)];
    let series = "estimates: 1 % that were too high (conservative), 2 mean excess, W".to_owned();
    report.curve("Fig. 9", series, &points);
}

/// Figs. 7 and 8 (RocksDB): four instances insert a fixed amount of data, however long it takes.
pub fn rocksdb(study: &mut Study) -> Result<()> {
    let workload = generate::by_name("rocksdb")?;
    let whole = |name| anyhow::Ok(Experiment { duration: None, ..policy(study, name, &workload)? });
    let experiments = POLICIES.into_iter().map(whole).collect::<Result<Vec<_>>>()?;
    let runs = study.lab.all("Figs. 7, 8", &experiments)?;
    let all = study.lab.server.profile.drives.count;
    let (sspc, pacman) = (&runs[0].outcome, &runs[1].outcome);
    let hungrier = percent(watts(pacman, 0, all), watts(sspc, 0, all));
    let faster = percent(rate(pacman, 0, all), rate(sspc, 0, all));
    let earlier = sspc.span.seconds() - pacman.span.seconds();
    let report = &mut study.report;
    report.row("fig-7a/power", hungrier)?;
    report.row("fig-7a/earlier", earlier)?;
    report.row("fig-7b/by-cap", faster)?;
    for part in workload.parts(all).iter().filter(|part| part.name == "sst-256-2") {
        report.row("fig-8/sst-256-2", over_others(part, &runs))?;
    }
    let spans = runs.iter().map(|run| run.outcome.span.seconds());
    let points: Vec<_> = spans.enumerate().map(|(index, span)| (index as f64, span)).collect();
    let series =
        "seconds to insert all data: 0 SSPC, 1 Stat, 2 Mean, 3 EMA, 4 pacman-plus".to_owned();
    report.curve("Figs. 7, 8", series, &points);
    offered(study)
}

/// Fig. 7 over the rate at which each instance is offered data, which the text does not state.
fn offered(study: &mut Study) -> Result<()> {
    let rates = [300, 600, 900, 1200, 2400];
    let mut experiments = Vec::new();
    for rate in rates {
        let mut workload = generate::by_name("rocksdb")?;
        for instance in &mut workload.rocksdb {
            instance.offer = Bytes(rate * 1_000_000);
        }
        for name in ["sspc", "pacman", "pacman-plus"] {
            experiments.push(Experiment { duration: None, ..policy(study, name, &workload)? });
        }
    }
    let runs = study.lab.all("Fig. 7 over offered rates", &experiments)?;
    for (index, name) in [(1, "PACMAN"), (2, "pacman-plus")] {
        let earlier = |three: &[Shown]| {
            let [sspc, other] = [&three[0], &three[index]].map(|run| run.outcome.span.seconds());
            100.0 * (1.0 - other / sspc)
        };
        let points = rates.iter().zip(runs.chunks(3));
        let points: Vec<_> = points.map(|(rate, three)| (*rate as f64, earlier(three))).collect();
        let series = format!("{name} done earlier than SSPC, %, over MB/s offered to an instance");
        study.report.curve("Fig. 7", series, &points);
    }
    Ok(())
}
