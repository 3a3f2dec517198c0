//! `ebb paper sandman --here`: the same experiments on this machine's cores, measured.
//!
//! The target runs on some cores and the engine of `ebb load` on others, both in this process and
//! talking over loopback. Schedulers take turns at every load, round after round, and are compared
//! with busy polling of the same round only.

mod cases;
mod cores;
mod point;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use ebb_cli::progress::Progress;
use ebb_cli::{out, usage};
use ebb_policy::units::Nanos;

use super::super::study::{Wanted, choose};
use crate::probe::wake::cpu_model;
use crate::serve::energy;

use cases::{Case, Pace, Plan};
use point::{Lab, Point};
use report::{Machine, Report};

/// Long enough for a burst of a second, and for rest before it.
const USUAL: Nanos = Nanos::from_secs(4);
/// A load of less tells nothing at all.
const SHORTEST: Nanos = Nanos::from_millis(50);
/// Busy polling, which the others are compared with.
const BASE: &str = "static";
/// The schedulers compared. The governor is busy polling here: nobody sets
/// the frequencies it asks for.
const SCHEDULERS: [&str; 6] = [BASE, "interrupt", "dynamic", "hybrid", "sandman", "sandman-plus"];

/// Options of `ebb paper sandman --here`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measured here")]
pub struct HereArgs {
    /// Measure the experiments on this machine instead of simulating them. Uses its cores for about
    /// twenty minutes
    #[arg(long)]
    pub here: bool,
    /// CPUs of the target, such as 0-1,4 [default: the first half of the physical cores]
    #[arg(long, value_name = "LIST", requires = "here")]
    cores: Option<String>,
    /// CPUs of the load [default: the others]
    #[arg(long, value_name = "LIST", requires = "here")]
    load_cores: Option<String>,
    /// Number of turns of each scheduler at each load
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "here",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Block trace to replay in real time [default: the first Tencent trace in EBB_DATA]
    #[arg(long, value_name = "FILE", requires = "here")]
    trace: Option<PathBuf>,
    /// TOML file with the power of a core by state, for modelled energy [default: all-flash]
    #[arg(long, value_name = "FILE", requires = "here")]
    power_profile: Option<PathBuf>,
    /// Folder of RAPL's energy counters [default: /sys/class/powercap]
    #[arg(long, value_name = "FOLDER", requires = "here")]
    powercap: Option<PathBuf>,
}

/// What every experiment of `ebb paper` can be told.
pub struct Common<'a> {
    pub figures: &'a [String],
    pub duration: Option<Nanos>,
    pub seed: u64,
    pub quiet: bool,
    pub json: bool,
}

/// Measures and prints.
pub fn run(args: &HereArgs, common: &Common<'_>) -> Result<()> {
    let duration = common.duration.unwrap_or(USUAL);
    if duration < SHORTEST {
        return Err(usage(format!("--duration {duration}: at least {SHORTEST} are needed")));
    }
    let (target, load) = cores::divide(args.cores.as_deref(), args.load_cores.as_deref())?;
    let mut plan = Plan { trace: trace(args), ..Plan::default() };
    let wanted = Wanted { figures: common.figures, full: true };
    for part in choose(cases::PARTS, &[], wanted)? {
        (part.run)(&mut plan)?;
    }
    let lab = Lab {
        target,
        load,
        duration,
        seed: common.seed,
        profile: energy::profile(args.power_profile.as_deref())?,
        powercap: args.powercap.clone(),
    };
    // Told once, not before each of hundreds of points.
    drop(crate::serve::rapl(lab.powercap.as_deref()));
    let points = rounds(&lab, args.rounds, &plan.cases, &Progress::new(common.quiet))?;
    let machine = Machine {
        cpu_model: cpu_model(Path::new("/proc/cpuinfo")),
        target_cpus: lab.target,
        load_cpus: lab.load,
        rounds: args.rounds,
        duration_s: duration.seconds(),
        seed: common.seed,
    };
    let report = Report::new(machine, points, plan.left_out);
    match common.json {
        true => out::json(&report),
        false => out::print(report.text()),
    }
}

/// The block trace to replay, if there is one.
fn trace(args: &HereArgs) -> Option<PathBuf> {
    args.trace.clone().or_else(|| super::cloud::traces().into_iter().next())
}

/// Each scheduler at each load, so often.
fn rounds(lab: &Lab, rounds: u16, cases: &[Case], progress: &Progress) -> Result<Vec<Point>> {
    let all = usize::from(rounds) * cases.len() * SCHEDULERS.len();
    let bar = progress.bar("measuring here", Some(all as u64));
    let mut points = Vec::new();
    for round in 0..usize::from(rounds) {
        let mut maxima = [None; 2];
        for case in cases {
            // What may be asked for is what busy polling does at most, found anew in each round.
            let most = &mut maxima[usize::from(case.raid)];
            if let (Pace::Share(_) | Pace::Bursts, None) = (&case.pace, &most) {
                bar.set_message(format!("round {} of {rounds}: the maximum", round + 1));
                *most = Some(lab.most(case.raid)?);
            }
            let most = most.unwrap_or_default();
            let mut turn = SCHEDULERS;
            turn.rotate_left(round % SCHEDULERS.len());
            for scheduler in turn {
                let of =
                    format!("round {} of {rounds}: {}, {}", round + 1, case.figure, case.label);
                bar.set_message(format!("{of}, {scheduler}"));
                let measured = lab.measure(case, scheduler, round, most);
                let what = || format!("{}, {}, {scheduler}", case.figure, case.label);
                points.extend(measured.with_context(what)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(points)
}
