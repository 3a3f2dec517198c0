//! The files that `ebb sim` writes: time series, decisions, the report.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ebb_cli::args::command_line;
use ebb_cli::{Unwritten, output, usage};
use ebb_record::report::{self, About};
use ebb_record::{Columns, Recorded, Summary, series};

use super::plan::Plan;
use super::run::RunResult;
use super::truth;

/// Name of the report in its folder.
const PAGE: &str = "index.html";

/// Where the series goes, and in which form.
pub struct Target<'a> {
    path: &'a Path,
    parquet: bool,
}

impl<'a> Target<'a> {
    /// The form follows from the ending; pipes and devices without one get CSV.
    pub fn new(path: &'a Path) -> Result<Self> {
        output::check("--timeseries", path)?;
        let ending = path.extension().and_then(|ending| ending.to_str());
        let parquet = match ending {
            Some("parquet") => true,
            Some("csv") => false,
            None if path.exists() && !path.is_file() => false,
            _ => {
                return Err(usage(format!(
                    "--timeseries {}: the name must end in .csv or .parquet",
                    path.display()
                )));
            }
        };
        Ok(Self { path, parquet })
    }

    /// Writes the rows of all runs, in the order of the policies.
    pub fn write(&self, plan: &Plan, summary: &Summary, results: &mut [RunResult]) -> Result<()> {
        let columns = columns(plan);
        let about = about(plan);
        let budget = summary.ssd_budget_watts.map(|watts| format!("{watts} W"));
        let mut metadata = vec![
            ("ebb.version", about.version.to_owned()),
            ("ebb.command", about.command),
            ("ebb.simulated", "true".to_owned()),
            ("ebb.profile", summary.profile.clone()),
            ("ebb.workload", summary.workload.clone()),
            ("ebb.policies", plan.policies.join(",")),
            ("ebb.seed", plan.seed.to_string()),
            ("ebb.plf", summary.plf.to_string()),
        ];
        metadata.extend(budget.map(|budget| ("ebb.ssd_budget", budget)));
        output::write(self.path, |to| {
            let written = match self.parquet {
                true => series::parquet(to, &columns, &metadata, recorded(results)),
                false => series::csv(to, &columns, recorded(results)),
            };
            Ok(written?)
        })
    }
}

fn columns(plan: &Plan) -> Columns {
    let topology = &plan.server.topology;
    Columns::new(topology, truth::columns(topology))
}

fn recorded(results: &mut [RunResult]) -> impl Iterator<Item = &mut Recorded> {
    results.iter_mut().map(|result| &mut result.recorded)
}

/// Writes the decisions of all runs, in their order.
pub fn decisions(path: &Path, results: &mut [RunResult]) -> Result<()> {
    output::write(path, |to| Ok(recorded(results).try_for_each(|run| run.log.lines(to))?))
}

/// Writes the page into `folder` and returns its path. The page appears under its name only when
/// it is complete.
pub fn page(
    folder: &Path,
    plan: &Plan,
    summary: &Summary,
    results: &mut [RunResult],
) -> Result<PathBuf> {
    let page = folder.join(PAGE);
    fs::create_dir_all(folder).with_context(|| Unwritten(page.display().to_string()))?;
    let (topology, columns) = (&plan.server.topology, columns(plan));
    output::write(&page, |to| {
        let runs = recorded(results);
        Ok(report::write(to, &about(plan), topology, &columns, summary, runs)?)
    })?;
    Ok(page)
}

fn about(plan: &Plan) -> About {
    About {
        version: env!("CARGO_PKG_VERSION"),
        command: command_line(),
        made_unix_s: made(),
        profile_summary: plan.server.profile.summary.clone(),
        warmup_s: plan.warmup.seconds(),
    }
}

/// Now, or what reproducible builds say in its place.
fn made() -> u64 {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()))
}
