//! `ebb paper`: each figure and table of a paper's evaluation, paper against twin.

mod drive;
mod hold;
mod lab;
mod pacer;
mod pacman;
mod report;

use anyhow::Result;
use clap::{Args, ValueEnum};

use ebb_policy::units::Nanos;

use crate::exit::usage;
use crate::progress::Progress;

/// PACMAN decides every five seconds and PACER learns for as long.
const SHORTEST: Nanos = Nanos::from_secs(10);

/// A paper whose evaluation can be repeated in the twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// PACER: cores and frequency under a latency SLA (Figs. 6, 7, 10-19, Table I).
    Pacer,
    /// PACMAN: SSD power caps under a budget (Figs. 1-9, Table I).
    Pacman,
}

/// Options of `ebb paper`.
#[derive(Debug, Args)]
pub struct PaperArgs {
    /// Whose evaluation to repeat
    #[arg(value_enum)]
    name: Paper,
    /// Simulated time of most runs [default: 90 s for pacer, 60 s for pacman; PACER ran 5 min]
    #[arg(long, value_name = "DURATION")]
    duration: Option<Nanos>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON: {"rows": [...], "curves": [...]}
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    quiet: bool,
}

/// Repeats the evaluation and prints it.
pub fn run(args: &PaperArgs) -> Result<()> {
    let default = match args.name {
        Paper::Pacer => Nanos::from_secs(90),
        Paper::Pacman => Nanos::from_secs(60),
    };
    let duration = args.duration.unwrap_or(default);
    if duration < SHORTEST {
        return Err(usage(format!("--duration {duration}: policies need at least {SHORTEST}")));
    }
    let report = match args.name {
        Paper::Pacer => pacer::evaluate(duration, args.seed, Progress::new(args.quiet))?,
        Paper::Pacman => pacman::evaluate(duration, args.seed, Progress::new(args.quiet))?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    println!("{}", report.text());
    println!(
        "Simulated: every twin number comes from the digital twin, {} a run, seed {}.\n\
         calibrated: the number set a constant of the profile. validated: it is only compared.\n\
         docs/papers.md explains every deviation.",
        duration, args.seed
    );
    Ok(())
}
