//! `ebb sim`: policies side by side over the same requests, in the digital twin.

mod args;
mod decisions;
mod heat;
mod jobs;
mod list;
mod maximum;
mod options;
mod plan;
mod record;
mod report;
mod run;
mod spool;
mod summary;
mod table;
mod timeseries;
mod verdict;

use std::io::{self, Write};

use anyhow::{Result, anyhow};

use crate::exit::Interrupted;
use crate::interrupt;
use crate::out;
use crate::output;
use crate::progress::Progress;
use plan::Plan;
use run::{Keep, Results, RunResult};
use summary::Summary;

pub use args::SimArgs;
pub use maximum::maximum;
pub use plan::whole_periods;

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<()> {
    let files = &args.output;
    if files.list {
        return list::print(files.json);
    }
    if let Some(path) = &files.decisions {
        output::check("--decisions", path)?;
    }
    if let Some(folder) = &files.report {
        output::check_folder("--report", folder)?;
    }
    let series = files.timeseries.as_deref().map(timeseries::Target::new).transpose()?;
    let written = [("--timeseries", &files.timeseries), ("--decisions", &files.decisions)];
    let written = written.iter().filter_map(|(option, path)| Some((*option, path.as_deref()?)));
    output::apart(&args.trace.files, &written.collect::<Vec<_>>())?;
    interrupt::watch()?;
    let progress = Progress::new(files.quiet);
    let mut plan = Plan::new(args)?;
    plan.measure(&progress)?;
    let keep = Keep {
        rows: series.is_some() || files.report.is_some(),
        decisions: files.decisions.is_some(),
    };
    let Results { done: mut results, unfinished } =
        run::run_all(&plan, &progress, files.threads, keep)?;
    let interrupted = !unfinished.is_empty();
    let summary = Summary::new(&plan, &results, unfinished);
    if let Some(target) = series {
        target.write(&plan, &mut results)?;
    }
    if let Some(path) = &files.decisions {
        decisions::write(path, results.iter_mut().map(|result| result.log.take_file()))?;
    }
    let page = match &files.report {
        Some(folder) => Some(report::write(folder, &plan, &summary, &mut results)?),
        None => None,
    };
    if files.json {
        out::json(&summary)?;
    } else {
        let shown = Shown { plan: &plan, summary: &summary, results: &results };
        shown.print(&mut out::stdout(), files.quiet, page.as_deref())?;
    }
    let told = |run: &RunResult| Some(format!("{}: {}", run.policy, run.outcome.trip?));
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
