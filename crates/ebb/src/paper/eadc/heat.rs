//! Figs. 3, 4 and 8: leakage against fan power, and what is left below the limit.

use anyhow::{Context, Result};

use ebb_policy::cooling::Curve;
use ebb_policy::sense::EMERGENCY;
use ebb_policy::units::{Celsius, Nanos};
use ebb_trace::generate;
use ebb_twin::ThermalTotals;

use super::super::lab::{Climate, Shown, Steer};
use super::super::report::Report;
use super::super::study::Study;
use super::{characterise, choose, whole};

/// The server of these experiments.
const SERVER: &str = "eadc-lab";
/// Fan duties of the sweeps.
const DUTIES: [f64; 11] = [0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Air at the inlet, °C: from cool to what vendors allow (Table III).
const INLETS: [f64; 4] = [15.0, 20.0, 25.0, 30.0];

/// One fan speed's steady state at full load: socket, fan power, leakage.
#[derive(Clone, Copy)]
struct Steady {
    celsius: f64,
    fans: f64,
    leakage: f64,
    rpm: f64,
    /// Fan duty.
    duty: f64,
}

impl Steady {
    /// What is left to the emergency threshold, K (§IV-A).
    fn headroom(&self) -> f64 {
        EMERGENCY.0 - self.celsius
    }
}

/// Fig. 3: at 100 % utilisation, the sum of leakage and fan power over temperature. Fig. 8: all
/// that temperature dictates, and the temperature that EADC finds by itself.
pub fn leakage_and_fans(study: &mut Study) -> Result<()> {
    choose(study, SERVER)?;
    let steady = sweep(study, "Fig. 3")?;
    let over = |value: fn(&Steady) -> f64| -> Vec<_> {
        steady.iter().map(|at| (at.celsius, value(at))).collect()
    };
    let report = &mut study.report;
    let series = |what: &str| format!("{what}, W, over the hottest socket, °C");
    report.curve("Fig. 3", series("fans"), &over(|at| at.fans));
    report.curve("Fig. 3", series("leakage"), &over(|at| at.leakage));
    report.curve("Fig. 3", series("fans and leakage"), &over(|at| at.fans + at.leakage));
    let best = steady
        .iter()
        .min_by(|a, b| (a.fans + a.leakage).total_cmp(&(b.fans + b.leakage)))
        .copied()
        .context("no fan speed keeps the server running at full load")?;
    report.row("fig-3/celsius", best.celsius)?;
    report.row("fig-3/rpm", best.rpm)?;
    let (_, curve) = characterise(study)?;
    normalised(&mut study.report, &steady, &curve);
    found_on_line(study)
}

/// Fig. 8: "y-axis the normalized values for various parameters", here as shares of the most.
fn normalised(report: &mut Report, steady: &[Steady], disks: &Curve) {
    let mut add = |what: &str, of: &dyn Fn(&Steady) -> f64| {
        let most = steady.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let points: Vec<_> = steady.iter().map(|at| (at.celsius, of(at) / most)).collect();
        report.curve(
            "Fig. 8",
            format!("{what}, of the most, over the hottest socket, °C"),
            &points,
        );
    };
    add("fans", &|at| at.fans);
    add("leakage", &|at| at.leakage);
    add("fans and leakage", &|at| at.fans + at.leakage);
    add("head-room", &Steady::headroom);
    add("vibration (fan speed)", &|at| at.rpm);
    add("disk throughput", &|at| disks.throughput(at.duty));
}

/// Long enough for EADC's search, which takes its time for each step.
const SETTLED: Nanos = Nanos::from_secs(1800);

/// Where EADC keeps a loaded server whose disks are idle.
fn found_on_line(study: &mut Study) -> Result<()> {
    let workload = generate::by_name("eadc-loadgen")?;
    let length = Some(study.length(SETTLED));
    let runs = study.lab.all("Fig. 8", &[whole(study, Steer::Policy("eadc"), workload, length)])?;
    let run = &runs[0];
    let last = run.weather.len() - run.weather.len() / 4;
    let late = &run.weather[last.min(run.weather.len().saturating_sub(1))..];
    let mean = late.iter().map(|at| at.celsius).sum::<f64>() / late.len().max(1) as f64;
    study.report.row("fig-8/celsius", mean)
}

/// Fig. 4: head-room below the emergency threshold by fan speed, for several inlets.
pub fn headroom(study: &mut Study) -> Result<()> {
    for inlet in INLETS {
        choose(study, SERVER)?;
        if let Some(thermal) = &mut study.lab.server.profile.thermal {
            thermal.inlet = Celsius(inlet);
        }
        let steady = sweep(study, "Fig. 4")?;
        let points: Vec<_> = steady.iter().map(|at| (at.celsius, at.headroom())).collect();
        let series = format!("head-room, K, over the hottest socket, °C; inlet {inlet} °C");
        study.report.curve("Fig. 4", series, &points);
    }
    Ok(())
}

/// Full load at each duty. A server that gets too hot at a duty has no steady state there.
fn sweep(study: &Study, label: &str) -> Result<Vec<Steady>> {
    let workload = generate::by_name("eadc-loadgen")?;
    let length = Some(study.length(super::USUAL));
    let experiments = DUTIES.map(|duty| whole(study, Steer::Fans(duty), workload.clone(), length));
    let runs = study.lab.all(label, &experiments)?;
    Ok(runs.iter().filter_map(steady).collect())
}

fn steady(run: &Shown) -> Option<Steady> {
    let ThermalTotals { socket_throttled, .. } = run.outcome.thermal?;
    if socket_throttled.seconds() > 0.0 {
        return None;
    }
    let last = run.weather.last()?;
    let Climate { celsius, fans, leakage, rpm, duty, .. } = *last;
    Some(Steady { celsius, fans, leakage, rpm, duty })
}
