//! `ebb sim`: policies side by side over the same requests, in the digital twin.

mod advice;
mod args;
mod change;
mod experiment;
mod files;
mod hindsight;
mod levers;
mod list;
mod maximum;
mod options;
mod outcome;
mod parts;
mod plan;
mod polled;
mod recorded;
mod run;
mod sampled;
mod sampling;
mod steady;
mod summary;
mod table;
mod truth;
mod what_if;
mod whole;

use std::env;
use std::io::{self, Write};

use anyhow::{Result, anyhow};
use clap::ArgMatches;
use ebb_record::Summary;
use ebb_record::recorder::Keep;
use ebb_record::summary::Experiment;

use ebb_cli::progress::Progress;
use ebb_cli::{Interrupted, interrupt, out, output};
use plan::Plan;
use run::{Results, RunResult};

pub use args::SimArgs;
pub use maximum::maximum;
pub use plan::whole_periods;

/// The names of the bounds, which stand where a policy does.
pub fn bounds() -> impl Iterator<Item = &'static str> {
    plan::FORETOLD.iter().map(|(name, _)| *name).chain([polled::CLAIRVOYANT])
}

/// Runs the command, given as `matches` of `command`; what an experiment says counts where they do
/// not.
pub fn run(args: SimArgs, command: &clap::Command, matches: &ArgMatches) -> Result<()> {
    let sim = matches.subcommand_matches("sim").unwrap_or(matches);
    if let Some(folder) = &args.recorded {
        recorded::check(&args, command.find_subcommand("sim").unwrap_or(command), sim)?;
        let (profile, json) = (args.profile.as_deref(), args.output.json);
        return match args.policies.first() {
            Some(policy) => what_if::run(folder, policy, profile, json),
            None => recorded::run(folder, json),
        };
    }
    let Some(path) = &args.experiment else { return simulate(&args, None) };
    let (args, experiment) = experiment::read(command, env::args_os(), sim, path)?;
    simulate(&args, Some(experiment))
}

fn simulate(args: &SimArgs, experiment: Option<Experiment>) -> Result<()> {
    let output = &args.output;
    if output.list {
        return list::print(output.json);
    }
    if let Some(profile) = polled::server(args)? {
        return polled::simulate(args, &profile, experiment);
    }
    if let Some(path) = &output.decisions {
        output::check("--decisions", path)?;
    }
    if let Some(folder) = &output.report {
        output::check_folder("--report", folder)?;
    }
    let series = output.timeseries.as_deref().map(files::Target::new).transpose()?;
    let written = [("--timeseries", &output.timeseries), ("--decisions", &output.decisions)];
    let written = written.iter().filter_map(|(option, path)| Some((*option, path.as_deref()?)));
    output::apart(&args.trace.files, &written.collect::<Vec<_>>())?;
    interrupt::watch()?;
    let progress = Progress::new(output.quiet);
    let mut plan = Plan::new(args)?;
    plan.measure(&progress)?;
    plan.draw(args.sampled)?;
    let keep = Keep {
        rows: series.is_some() || output.report.is_some(),
        decisions: output.decisions.is_some(),
    };
    let Results { done: mut results, unfinished } =
        run::run_all(&plan, &progress, output.threads, keep)?;
    let interrupted = !unfinished.is_empty();
    let summary = Summary { experiment, ..summary::new(&plan, &results, unfinished) };
    if let Some(target) = series {
        target.write(&plan, &summary, &mut results)?;
    }
    if let Some(path) = &output.decisions {
        files::decisions(path, &mut results)?;
    }
    let page = match &output.report {
        Some(folder) => Some(files::page(folder, &plan, &summary, &mut results)?),
        None => None,
    };
    if output.json {
        out::json(&summary)?;
    } else {
        let shown = Shown { plan: &plan, summary: &summary, results: &results };
        shown.print(&mut out::stdout(), output.quiet, page.as_deref())?;
    }
    let told = |run: &RunResult| Some(format!("{}: {}", run.recorded.policy, run.outcome.trip?));
    let tripped: Vec<_> = results.iter().filter_map(told).collect();
    if !tripped.is_empty() {
        return Err(anyhow!(tripped.join("; ")));
    }
    if interrupted { Err(Interrupted.into()) } else { Ok(()) }
}

/// What people see.
struct Shown<'a> {
    plan: &'a Plan,
    summary: &'a Summary,
    results: &'a [RunResult],
}

impl Shown<'_> {
    fn print(
        &self,
        to: &mut impl Write,
        quiet: bool,
        page: Option<&std::path::Path>,
    ) -> io::Result<()> {
        table::verdicts(to, self.summary)?;
        if self.plan.example && !quiet {
            writeln!(to, "{}\n", options::EXAMPLE_INTRODUCTION)?;
        }
        table::heading(to, self.plan, self.summary)?;
        table::print(to, self.summary)?;
        table::notes(to, self.summary, self.results)?;
        if let Some(page) = page {
            writeln!(to, "Report: {}", page.display())?;
        }
        if self.plan.example && !quiet {
            writeln!(to, "\n{}", options::EXAMPLE_NEXT)?;
        }
        Ok(())
    }
}
