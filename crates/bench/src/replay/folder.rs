//! The folder of a run: all from which its numbers can be computed again.
//!
//! | file | what it is |
//! |---|---|
//! | `config.json` | what was asked for, versions, target, machine, meters |
//! | `planned.parquet` | the requests with their due times: a trace |
//! | `issued-N.parquet` | repeat N: the requests as they were issued, with latencies: a trace |
//! | `samples.csv` | every sample of every meter, on the clock of the repeats |
//! | `repeats.jsonl` | the results of each repeat, a line each, written when it ends |
//! | `report.json` | what `--json` prints |

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use ebb_cli::args::command_line;
use ebb_cli::{Unwritten, output, usage};
use ebb_trace::{Format, write};

use super::energy::{Clock, Curve, Sampler};
use super::list::List;
use super::machine;
use super::plan::{Plan, What};
use super::report::{Repeat, Report, TargetReport};
use super::tally::Issued;

/// A run's folder.
pub struct Folder {
    path: PathBuf,
}

/// What stands in `config.json`.
#[derive(Serialize)]
struct Config<'a> {
    schema: u32,
    ebb: &'a str,
    command: String,
    start_unix_s: f64,
    replay: &'a What,
    requests: &'a super::requests::Loaded,
    target: TargetReport,
    machine: &'a machine::About,
    meters: Vec<MeterConfig>,
}

#[derive(Serialize)]
struct MeterConfig {
    meter: &'static str,
    of: String,
    accuracy: Option<String>,
}

/// Refuses a folder that holds something: runs are not mixed.
///
/// # Errors
/// Which one.
pub fn check(path: &Path) -> Result<()> {
    output::check_folder("--output", path)?;
    let used = path.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    if used {
        let name = path.display();
        return Err(usage(format!("--output {name} is not empty: name a new folder for each run")));
    }
    Ok(())
}

impl Folder {
    /// Makes it, with what is known before the first repeat.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(
        path: &Path,
        plan: &Plan,
        filled: bool,
        machine: &machine::About,
        sampler: &Sampler,
    ) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| Unwritten(path.display().to_string()))?;
        let this = Self { path: path.into() };
        let meters = sampler.meters().map(|about| MeterConfig {
            meter: about.name,
            of: about.of.clone(),
            accuracy: about.accuracy.map(|accuracy| accuracy.to_string()),
        });
        let config = Config {
            schema: 1,
            ebb: env!("CARGO_PKG_VERSION"),
            command: command_line(),
            start_unix_s: sampler.clock.unix,
            replay: &plan.what,
            requests: &plan.requests.loaded,
            target: TargetReport::new(plan, filled),
            machine,
            meters: meters.collect(),
        };
        this.json("config.json", &config)?;
        this.trace("planned.parquet", List::planned(&plan.requests.streams))?;
        Ok(this)
    }

    /// Adds a repeat.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn repeat(
        &self,
        plan: &Plan,
        repeat: &Repeat,
        issued: &[Vec<Issued>],
        sampler: &Sampler,
    ) -> Result<()> {
        let name = format!("issued-{}.parquet", repeat.repeat);
        self.trace(&name, List::issued(&plan.requests.streams, issued))?;
        self.samples(sampler)?;
        let path = self.path.join("repeats.jsonl");
        let mut line = serde_json::to_vec(repeat)?;
        line.push(b'\n');
        let mut to = OpenOptions::new().append(true).create(true).open(&path);
        to.as_mut()
            .map_err(|error| std::io::Error::from(error.kind()))
            .and_then(|to| to.write_all(&line))
            .with_context(|| Unwritten(path.display().to_string()))
    }

    /// Writes the whole report.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&self, report: &Report) -> Result<()> {
        self.json("report.json", report)
    }

    fn json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        output::write(&self.path.join(name), |to| {
            serde_json::to_writer_pretty(&mut *to, value)?;
            Ok(writeln!(to)?)
        })
    }

    fn samples(&self, sampler: &Sampler) -> Result<()> {
        let Clock { unix, .. } = sampler.clock;
        output::write(&self.path.join("samples.csv"), |to| {
            writeln!(to, "meter,t_s,unix_s,watts,joules")?;
            for (about, curve) in sampler.curves() {
                let power = matches!(curve, Curve::Power(_));
                for point in curve.points() {
                    let (at, value) = (point.at, point.value);
                    write!(to, "{},{at:.6},{:.6},", about.name, unix + at)?;
                    match power {
                        true => writeln!(to, "{value},")?,
                        false => writeln!(to, ",{value}")?,
                    }
                }
            }
            Ok(())
        })
    }

    fn trace(&self, name: &str, mut all: List) -> Result<()> {
        let path = self.path.join(name);
        let written = write(&mut all, &path, Format::Parquet);
        written.map(|_| ()).with_context(|| Unwritten(path.display().to_string()))
    }
}
