//! `ebb sim`: policies side by side over the same requests, in the digital twin.

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

use std::io::{self, Write};

use anyhow::{Result, anyhow};

use crate::args::SimArgs;
use crate::exit::check_folder;
use crate::out;
use crate::progress::Progress;
use plan::Plan;
use run::{Keep, RunResult};
use summary::Summary;

pub use maximum::maximum;
pub use plan::whole_periods;
pub use run::in_parallel;

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<()> {
    let output = &args.output;
    if output.list {
        return list::print(output.json);
    }
    if let Some(path) = &output.decisions {
        check_folder("--decisions", path)?;
    }
    let progress = Progress::new(output.quiet);
    let mut plan = Plan::new(args)?;
    let series = output.timeseries.as_deref().map(timeseries::Target::new).transpose()?;
    plan.measure(&progress)?;
    let keep = Keep {
        rows: series.is_some() || output.report.is_some(),
        decisions: output.decisions.is_some(),
    };
    let mut results = run::run_all(&plan, &progress, output.threads, keep)?;
    let summary = Summary::new(&plan, &results);
    if let Some(target) = series {
        target.write(&plan, &mut results)?;
    }
    if let Some(path) = &output.decisions {
        decisions::write(path, &mut results)?;
    }
    let page = match &output.report {
        Some(folder) => Some(report::write(folder, &plan, &summary, &mut results)?),
        None => None,
    };
    if output.json {
        out::json(&summary)?;
    } else {
        let shown = Shown { plan: &plan, summary: &summary, results: &results };
        shown.print(&mut out::stdout(), output.quiet, page.as_deref())?;
    }
    let told = |run: &RunResult| Some(format!("{}: {}", run.policy, run.outcome.trip?));
    let tripped: Vec<_> = results.iter().filter_map(told).collect();
    if tripped.is_empty() { Ok(()) } else { Err(anyhow!(tripped.join("; "))) }
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
