//! `ebb paper`: each figure and table of a paper's evaluation, paper against twin.

mod drive;
mod eadc;
mod fits;
mod kind;
mod lab;
mod pacer;
mod pacman;
#[cfg(test)]
mod page;
mod report;
mod results;
mod sandman;
mod span;
mod stated;
mod storage_servers;
mod study;
mod verdict;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use ebb_cli::progress::Progress;
use ebb_cli::{Interrupted, interrupt, out, usage};
use ebb_policy::units::Nanos;

use crate::server::Server;
use lab::Lab;
use report::Report;
use sandman::here::{self, HereArgs};
use stated::Stated;
use study::{Part, Study, Wanted};

/// PACMAN decides every five seconds and PACER learns for as long.
const SHORTEST: Nanos = Nanos::from_secs(10);

/// A paper whose evaluation can be repeated in the twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// PACER: cores and frequency under a latency SLA (Figs. 6, 7, 10-19, Table I).
    Pacer,
    /// PACMAN: SSD power caps under a budget (Figs. 1-9, Table I).
    Pacman,
    /// EADC: fans, vibration, leakage and disks (Figs. 3-8, 10).
    Eadc,
    /// Sandman: polled threads on as few cores as the load needs (slides).
    Sandman,
    /// Energy-efficient storage servers: small Arm servers in place of a PC (Figs. 1-4).
    StorageServers,
}

/// A file in a paper's folder.
macro_rules! of_study {
    ($paper:expr, $file:literal) => {
        match $paper {
            Paper::Pacer => include_str!(concat!("../../../../studies/pacer/", $file)),
            Paper::Pacman => include_str!(concat!("../../../../studies/pacman/", $file)),
            Paper::Eadc => include_str!(concat!("../../../../studies/eadc/", $file)),
            Paper::Sandman => include_str!(concat!("../../../../studies/sandman/", $file)),
            Paper::StorageServers => {
                include_str!(concat!("../../../../studies/storage-servers/", $file))
            }
        }
    };
}

/// Options of `ebb paper`.
#[derive(Debug, Args)]
pub struct PaperArgs {
    /// The paper to repeat
    #[arg(value_enum)]
    name: Paper,
    /// Run the figures again, but those that take longest; without it, rows are those of an earlier
    /// run, without curves
    #[arg(long, conflicts_with = "here")]
    run: bool,
    /// Run only this figure, such as 16 or table-1; repeatable [default: all]
    #[arg(long = "figure", value_name = "NAME")]
    figures: Vec<String>,
    /// Run all figures, also those that take longest
    #[arg(long, conflicts_with = "here")]
    full: bool,
    /// Simulated time of each run, except runs that are steady sooner [default: 90 s for pacer,
    /// with a day of 30 min and trainings of 5 min; 60 s for pacman]. With --here: counted time of
    /// each point, after a warm-up of half as long [default: 4 s]
    #[arg(long, value_name = "DURATION")]
    duration: Option<Nanos>,
    /// Seed of everything random; with this or --duration, figures are run [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Concurrent runs; the results are the same for any number [default: all cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON: {"rows": [...], "curves": [...]}
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    here: HereArgs,
}

impl PaperArgs {
    fn wanted(&self) -> Wanted<'_> {
        Wanted { figures: &self.figures, full: self.full }
    }

    /// Whether anything is run: kept rows are of no other figures, lengths and seeds.
    fn runs(&self) -> bool {
        let other = self.duration.is_some() || self.seed.is_some();
        self.run || self.full || !self.figures.is_empty() || other
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

impl Paper {
    /// Its folder in `studies`, and its name on the command line.
    fn study(self) -> &'static str {
        match self {
            Self::Pacer => "pacer",
            Self::Pacman => "pacman",
            Self::Eadc => "eadc",
            Self::Sandman => "sandman",
            Self::StorageServers => "storage-servers",
        }
    }

    /// What it states.
    fn stated(self) -> &'static str {
        of_study!(self, "stated.toml")
    }

    /// What came out of it.
    fn results(self) -> &'static str {
        of_study!(self, "results.json")
    }

    /// All that is kept of it.
    fn kept(self) -> Result<Report> {
        let mut report = self.report()?;
        results::add(&mut report, self.results())?;
        fits::add(&mut report, self.study())?;
        Ok(report)
    }

    /// The usual length of a run, for people.
    fn length(self) -> String {
        match self {
            Self::Pacer => pacer::USUAL.to_string(),
            Self::Pacman => pacman::USUAL.to_string(),
            Self::Eadc => eadc::USUAL.to_string(),
            Self::Sandman => "0.3 s to 20 s".to_owned(),
            Self::StorageServers => storage_servers::LENGTH.to_owned(),
        }
    }

    /// A report of it, with nothing run yet.
    fn report(self) -> Result<Report> {
        let stated = Stated::read(self.stated());
        let place = || format!("studies/{}/stated.toml", self.study());
        Ok(Report::new(stated.with_context(place)?))
    }

    /// Figures that take longest.
    fn long(self) -> &'static [&'static str] {
        match self {
            Self::Pacer => pacer::LONG,
            Self::Pacman => pacman::LONG,
            Self::Sandman => sandman::LONG,
            Self::Eadc | Self::StorageServers => &[],
        }
    }
}

/// Repeats the evaluation, or reads what was kept of it, and prints it.
pub fn run(args: &PaperArgs) -> Result<()> {
    if args.here.here {
        return measure(args);
    }
    let report = if args.runs() { repeat(args)? } else { args.name.kept()? };
    let interrupted = report.interrupted;
    show(args, &report)?;
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

fn repeat(args: &PaperArgs) -> Result<Report> {
    interrupt::watch()?;
    let mut report = match args.name {
        Paper::Pacer => evaluate(args, "dorado-6000", pacer::PARTS)?,
        Paper::Pacman => evaluate(args, "asg-1115s", pacman::PARTS)?,
        Paper::Eadc => evaluate(args, eadc::SERVER, eadc::PARTS)?,
        Paper::Sandman => sleep(args)?,
        Paper::StorageServers => replace(args)?,
    };
    if !args.full && args.figures.is_empty() {
        results::add(&mut report, args.name.results())?;
    }
    Ok(report)
}

fn show(args: &PaperArgs, report: &Report) -> Result<()> {
    if args.json {
        return out::json(report);
    }
    let mark = if report.interrupted { "INTERRUPTED: partial results.\n" } else { "" };
    let length = args.duration.map_or_else(|| args.name.length(), |length| length.to_string());
    let left_out = match args.runs() {
        true => study::left_out(args.name.long(), args.wanted()),
        false => "Nothing was run: --run runs the figures again, with curves; --full also those \
                  that take\n  longest.\n"
            .to_owned(),
    };
    out::print(format_args!(
        "{}\n{mark}{}Simulated: every twin number comes from the digital twin, {length} a run, \
         seed {}.\n\
         Policies meet the hardware's own throttling; the guard's thermal limits are off.\n\
         calibrated: the number set a constant of the model. as stated: machine and load as in\n  \
         the text; open values are assumed, nothing is fitted.\n\
         {}\
         studies/{}/README.md explains every deviation.\n",
        report.text(),
        left_out,
        args.seed(),
        report.reading(),
        args.name.study()
    ))
}

/// Sandman's experiments on this machine.
fn measure(args: &PaperArgs) -> Result<()> {
    if args.name != Paper::Sandman {
        return Err(usage("--here: only sandman's experiments can be measured on this machine"));
    }
    if args.threads.is_some() {
        return Err(usage("--threads: points are measured one after another; see --cores"));
    }
    let PaperArgs { figures, duration, quiet, json, .. } = args;
    let (duration, seed, quiet, json) = (*duration, args.seed(), *quiet, *json);
    here::run(&args.here, &here::Common { figures, duration, seed, quiet, json })
}

/// An evaluation on a storage server.
fn evaluate(args: &PaperArgs, server: &str, parts: &[Part]) -> Result<Report> {
    let parts = study::choose(parts, args.name.long(), args.wanted())?;
    if let Some(duration) = args.duration.filter(|duration| *duration < SHORTEST) {
        return Err(usage(format!("--duration {duration}: policies need at least {SHORTEST}")));
    }
    let lab = Lab {
        server: Server::load(server)?,
        seed: args.seed(),
        threads: args.threads,
        progress: Progress::new(args.quiet),
    };
    let mut study = Study { lab, duration: args.duration, report: args.name.report()? };
    study.report.interrupted = study::run(&parts, &mut study)?;
    Ok(study.report)
}

/// Sandman's, on a polled target.
fn sleep(args: &PaperArgs) -> Result<Report> {
    let parts = study::choose(sandman::PARTS, args.name.long(), args.wanted())?;
    without_duration(args, "the length of sandman's runs follows from its bursts and periods")?;
    let (report, progress) = (args.name.report()?, Progress::new(args.quiet));
    let mut study = sandman::Study::new(report, args.seed(), args.threads, progress)?;
    study.report.interrupted = study::run(&parts, &mut study)?;
    Ok(study.report)
}

/// That of the storage servers.
fn replace(args: &PaperArgs) -> Result<Report> {
    let parts = study::choose(storage_servers::PARTS, args.name.long(), args.wanted())?;
    without_duration(args, "storage-servers' runs end with their bytes")?;
    let (report, progress) = (args.name.report()?, Progress::new(args.quiet));
    let mut study = storage_servers::Study::new(report, args.seed(), args.threads, progress);
    study.report.interrupted = study::run(&parts, &mut study)?;
    Ok(study.report)
}

fn without_duration(args: &PaperArgs, why: &str) -> Result<()> {
    let Some(duration) = args.duration else { return Ok(()) };
    Err(usage(format!("--duration {duration}: {why}; leave it out")))
}
