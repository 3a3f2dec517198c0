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
    let experiments = POLICIES.map(|name| policy(study, name, &workload));
    let runs = study.lab.all("Figs. 5, 8, 9", &experiments)?;
    let all = study.lab.server.profile.drives.count;
    let (sspc, pacman) = (&runs[0].outcome, &runs[1].outcome);
    let faster = percent(rate(pacman, 0, all), rate(sspc, 0, all));
    let hungrier = percent(watts(pacman, 0, all), watts(sspc, 0, all));
    let efficiency = percent(1.0 + faster / 100.0, 1.0 + hungrier / 100.0);
    let report = &mut study.report;
    report.as_stated("Fig. 5(a)", "drive power under SSPC, W", 140.0, watts(sspc, 0, all));
    report.as_stated("Fig. 5(a)", "drive power under PACMAN, W", 160.0, watts(pacman, 0, all));
    report.as_stated("Fig. 5(b)", "PACMAN's throughput over SSPC, %", 41.0, faster);
    report.as_stated("Fig. 5(b)", "PACMAN's power over SSPC, %", 14.0, hungrier);
    report.as_stated("Fig. 5(b)", "PACMAN's efficiency by power over SSPC, %", 24.0, efficiency);
    report.as_stated("Fig. 5(b)", "PACMAN's efficiency by cap over SSPC, %", 41.0, faster);
    for part in workload.parts(all) {
        server(report, &part, &runs);
        if part.name == "vdi" {
            best_predictor(report, "vdi", 13.0, &part, &runs);
        }
    }
    estimates(report, &runs[1]);
    Ok(())
}

/// Figs. 5(c), 5(d) and 8: one of the four servers.
fn server(report: &mut Report, part: &PartDevices, runs: &[Shown]) {
    let name = &part.name;
    let of = |value: fn(&Outcome, u16, u16) -> f64, index: usize| {
        let value = |run: &Shown| value(&run.outcome, part.first, part.count);
        value(&runs[index]) / value(&runs[0])
    };
    // Power over SSPC in % (the text calls the web server's similar), and throughput.
    let (power, throughput) = match name.as_str() {
        "mail" => (Some(11.0), 1.2),
        "vdi" => (Some(36.0), 2.4),
        "media" => (Some(5.0), 1.15),
        _ => (None, 1.0),
    };
    let (quantity, stated, twin) = match power {
        Some(stated) => ("power over SSPC, %", stated, percent(of(watts, 1), 1.0)),
        None => ("power over SSPC (similar), x", 1.0, of(watts, 1)),
    };
    report.as_stated("Fig. 5(c)", &format!("{name}: {quantity}"), stated, twin);
    let quantity = format!("{name}: throughput over SSPC, x");
    report.as_stated("Fig. 5(d)", &quantity, throughput, of(rate, 1));
    let points: Vec<_> = (1..runs.len()).map(|index| (index as f64, of(rate, index))).collect();
    let series = format!("{name}: throughput over SSPC of 1 Stat, 2 Mean, 3 EMA, 4 pacman-plus");
    report.curve("Fig. 8", series, &points);
}

/// Fig. 8: what the statistical predictor gains over the better of the other two.
fn best_predictor(
    report: &mut Report,
    name: &str,
    stated: f64,
    part: &PartDevices,
    runs: &[Shown],
) {
    let of = |index: usize| rate(&runs[index].outcome, part.first, part.count);
    let quantity = format!("Stat's throughput over the best other, {name}, %");
    report.as_stated("Fig. 8", &quantity, stated, percent(of(1), of(2).max(of(3))));
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
    let experiments =
        POLICIES.map(|name| Experiment { duration: None, ..policy(study, name, &workload) });
    let runs = study.lab.all("Figs. 7, 8", &experiments)?;
    let all = study.lab.server.profile.drives.count;
    let (sspc, pacman) = (&runs[0].outcome, &runs[1].outcome);
    let hungrier = percent(watts(pacman, 0, all), watts(sspc, 0, all));
    let faster = percent(rate(pacman, 0, all), rate(sspc, 0, all));
    let earlier = sspc.span.seconds() - pacman.span.seconds();
    let report = &mut study.report;
    report.as_stated("Fig. 7(a)", "drive power over SSPC, %", 5.0, hungrier);
    report.as_stated("Fig. 7(a)", "finished earlier than SSPC, s", 54.0, earlier);
    report.as_stated("Fig. 7(b)", "efficiency by cap over SSPC, %", 11.0, faster);
    for part in workload.parts(all).iter().filter(|part| part.name == "sst-256-2") {
        best_predictor(report, "SST_256_2", 12.0, part, &runs);
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
            experiments.push(Experiment { duration: None, ..policy(study, name, &workload) });
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
