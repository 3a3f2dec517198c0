//! The table of system power, stable loads, and stable loads on RAID-5.

use anyhow::Result;

use ebb_policy::units::Nanos;
use ebb_twin::reactor::{Energy, Load, Profile, Shown};

use super::super::report::Report;
use super::super::span::Span;
use super::lab::{CONFIGURATIONS, LINUX, Lab, SANDMAN, SPDK, Trial};
use super::{Study, percent};

/// Requests per second of the stable loads; the slides' axes have no numbers.
const RATES: [f64; 4] = [50e3, 200e3, 800e3, 2.4e6];
/// The same on RAID-5, whose writes cost several commands.
const RAID_RATES: [f64; 3] = [50e3, 200e3, 800e3];
/// Share of writes there (assumed).
const RAID_WRITES: f64 = 0.3;
/// What more than all cores can serve.
const OVERLOAD: f64 = 9.5e6;
const SECOND: Nanos = Nanos::from_secs(1);

fn steady(rate: f64, writes: f64) -> Load {
    Load::Steps { steps: vec![(SECOND, rate)], writes }
}

/// The table "System Idle, Light Load, Peak Load" under busy polling.
pub fn table(study: &mut Study) -> Result<()> {
    let idle = ["power/idle-cpu", "power/idle-ssd", "power/idle-others", "power/idle-system"];
    let light = ["power/light-cpu", "power/light-ssd", "power/light-others", "power/light-system"];
    let peak = ["power/peak-cpu", "power/peak-ssd", "power/peak-others", "power/peak-system"];
    let states = [(idle, 0.0, LINUX), (light, 20e3, SPDK), (peak, OVERLOAD, SPDK)];
    let loads = states.map(|(_, rate, _)| move || steady(rate, 0.0));
    let trial = |(load, (_, _, index)): (_, &([&str; 4], f64, usize))| Trial {
        configuration: CONFIGURATIONS[*index],
        load,
        raid: false,
        coarse: SECOND,
        duration: Nanos::from_millis(150),
        warmup: Nanos::from_millis(50),
    };
    let loads = loads.iter().map(|load| load as &(dyn Fn() -> Load + Sync));
    let trials: Vec<_> = loads.zip(&states).map(trial).collect();
    let runs = study.lab.all("power", &trials)?;
    for ((rows, ..), shown) in states.iter().zip(&runs) {
        let Energy { cpu, ssd, others } = shown.energy;
        let parts = [cpu, ssd, others, shown.energy.total()].map(|part| (part / shown.span).0);
        for (row, watts) in rows.iter().zip(parts) {
            study.report.row(row, watts)?;
        }
    }
    Ok(())
}

/// All configurations at all rates: `[configuration][rate]`.
fn grid(lab: &Lab, label: &str, rates: &[f64], writes: f64, raid: bool) -> Result<Vec<Vec<Shown>>> {
    let loads: Vec<_> = rates.iter().map(|rate| move || steady(*rate, writes)).collect();
    let mut trials = Vec::new();
    for configuration in CONFIGURATIONS {
        for (load, rate) in loads.iter().zip(rates) {
            trials.push(trial(configuration, load, *rate, raid));
        }
    }
    let mut runs = lab.all(label, &trials)?.into_iter();
    let rows = CONFIGURATIONS.iter().map(|_| runs.by_ref().take(rates.len()).collect());
    Ok(rows.collect())
}

/// A stable load looks the same at any time scale: the coarse period is shortened to 40,000
/// requests, and 20 periods bring even the governor's steps to rest.
fn trial<'a>(
    configuration: super::lab::Configuration,
    load: &'a (dyn Fn() -> Load + Sync),
    rate: f64,
    raid: bool,
) -> Trial<'a> {
    let coarse = Nanos::from_seconds((40e3 / rate).clamp(0.02, 1.0));
    let (warmup, duration) = (Nanos(20 * coarse.0), Nanos(25 * coarse.0));
    Trial { configuration, load, raid, coarse, duration, warmup }
}

/// A number of a run.
type Value = fn(&Shown) -> f64;

fn curves(report: &mut Report, figure: &'static str, rates: &[f64], grid: &[Vec<Shown>]) {
    let values: [(&str, Value); 4] = [
        ("W", |shown| shown.power().0),
        ("median, us", |shown| shown.quantile(0.5)),
        ("p99, us", |shown| shown.quantile(0.99)),
        ("p99.9, us", |shown| shown.quantile(0.999)),
    ];
    for (what, value) in values {
        for (configuration, runs) in CONFIGURATIONS.iter().zip(grid) {
            let points = rates.iter().zip(runs).map(|(rate, shown)| (rate / 1e3, value(shown)));
            let series = format!("{}: {what} over kIOPS", configuration.label);
            report.curve(figure, series, &points.collect::<Vec<_>>());
        }
    }
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// How much more Sandman's p99 is than busy polling's, at the worst rate.
fn slower(grid: &[Vec<Shown>]) -> f64 {
    let pairs = grid[SANDMAN].iter().zip(&grid[SPDK]);
    most(pairs.map(|(ours, polled)| percent(ours.quantile(0.99), polled.quantile(0.99))))
}

/// How much more power a configuration draws than busy polling, rate by rate.
fn drawn(grid: &[Vec<Shown>], index: usize) -> impl Iterator<Item = f64> {
    let pairs = grid[index].iter().zip(&grid[SPDK]);
    pairs.map(|(ours, polled)| percent(ours.power().0, polled.power().0))
}

/// How much less it draws, at the best rate.
fn saved(grid: &[Vec<Shown>], index: usize) -> f64 {
    most(drawn(grid, index).map(|more| -more))
}

/// Stable workloads at different rates.
pub fn loads(study: &mut Study) -> Result<()> {
    let grid = grid(&study.lab, "stable loads", &RATES, 0.0, false)?;
    curves(&mut study.report, "Stable loads", &RATES, &grid);
    study.report.row("stable/tail", slower(&grid))?;
    study.report.range("stable/linux", Span::exact(most(drawn(&grid, LINUX))))
}

/// The flash array configured with RAID-5.
pub fn raid(study: &mut Study) -> Result<()> {
    let grid = grid(&study.lab, "RAID-5", &RAID_RATES, RAID_WRITES, true)?;
    curves(&mut study.report, "RAID-5", &RAID_RATES, &grid);
    study.report.row("raid-5/saved", saved(&grid, SANDMAN))?;
    study.report.row("raid-5/tail", slower(&grid))?;
    let ours: Vec<_> = (0..CONFIGURATIONS.len()).map(|i| (i as f64, saved(&grid, i))).collect();
    let series = "power below busy polling's, up to, %, by configuration in their order";
    study.report.curve("RAID-5", series.into(), &ours);
    depth(study)
}

/// What the saving depends on most: the power of a core in shallow sleep.
fn depth(study: &mut Study) -> Result<()> {
    let rate = RAID_RATES[0];
    let load = move || steady(rate, RAID_WRITES);
    let watts = |doze: f64| {
        let mut profile: Profile = study.lab.profile.clone();
        profile.power.core_doze.0 = doze;
        let trials = [SPDK, SANDMAN].map(|index| trial(CONFIGURATIONS[index], &load, rate, true));
        let runs = study.lab.on(&profile, "shallow sleep", &trials)?;
        Ok((doze, -percent(runs[1].power().0, runs[0].power().0)))
    };
    let power = &study.lab.profile.power;
    let depths = [power.core_c6.0, power.core_c1.0, power.core_doze.0];
    let points = depths.into_iter().map(watts).collect::<Result<Vec<_>>>()?;
    let series = "Sandman's saving, %, over W of a core in shallow sleep above C6 (50 kIOPS)";
    study.report.curve("RAID-5", series.into(), &points);
    Ok(())
}
