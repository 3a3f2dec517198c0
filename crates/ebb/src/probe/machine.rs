//! `ebb probe`: what this machine can sense and steer.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use ebb_cli::text::printable_lines;
use ebb_cli::{out, usage};
use ebb_host::{Found, Machine, Report, Sys};

use super::draft;
use crate::run::config::Config;

/// Options of `ebb probe`.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Use a copy of a machine's sys and proc under this folder.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Also write this machine as a profile for `ebb sim`, with its drives' power states in files
    /// beside it; missing values are assumed.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Measure the processors' power for the profile: a few seconds as they are, a few with all
    /// cores busy.
    #[arg(long, requires = "profile")]
    measure: bool,
    /// Configuration that names fans and jobs [default: /etc/ebb/ebb.toml, if there is one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON (docs/json-schema/probe-1.json).
    #[arg(long)]
    json: bool,
}

impl MachineArgs {
    /// The machine.
    pub fn machine(&self) -> Result<Machine> {
        Machine::found(Sys::new(&self.root)).map_err(|absent| {
            usage(format!("{absent}; --root names a folder with sys and proc in it"))
        })
    }
}

/// Looks and prints; nothing is changed, and no drive is woken.
pub fn run(args: &MachineArgs) -> Result<()> {
    let machine = args.machine()?;
    let config = Config::load(args.config.as_deref())?;
    let report = Report::new(&machine, &config.stated()?);
    match args.json {
        true => out::json(&report)?,
        // What a drive calls itself is not for the terminal to act on.
        false => out::print(printable_lines(&text(&report)))?,
    }
    args.profile.as_ref().map_or(Ok(()), |file| draft::write(&machine, file, args.measure))
}

fn text(report: &Report) -> String {
    let Report { cpus, cores, sockets, signals, controls, policies, conflicts, .. } = report;
    let mut text = format!("CPUs {cpus}, cores {cores}, sockets {sockets}. Nothing was changed.\n");
    text.extend(report.apart.iter().map(|apart| format!("{apart}\n")));
    for (title, found) in [("Signals", signals), ("Controls", controls)] {
        let _ = write!(text, "\n{title}\n{}\n{}", table(found), absent(found));
    }
    text.push_str("\nPolicies\n");
    for fit in policies {
        let verdict = match (&fit.lacks[..], &fit.without[..]) {
            ([], []) => "could run".to_owned(),
            ([], without) => format!("could run, without {}", without.join(", ")),
            (lacks, _) => format!("cannot: no {}", lacks.join(", no ")),
        };
        let _ = writeln!(text, "  {:<12} {verdict}", fit.policy);
    }
    if !conflicts.is_empty() {
        text.push_str("\nOthers that set the same\n");
    }
    for one in conflicts {
        let _ = writeln!(text, "  {} sets {}: {}", one.who(), one.sets, one.remedy);
    }
    text
}

/// What can be used, with its value now.
fn table(found: &[Found]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for one in found.iter().filter(|one| one.missing.is_none()) {
        let value = one.value.map_or_else(
            || "there".to_owned(),
            |value| {
                let digits = format!("{value:.6}");
                let digits = digits.trim_end_matches('0').trim_end_matches('.');
                // A count needs no unit.
                let unit = if one.unit == "1" { "" } else { one.unit };
                format!("{digits} {unit}")
            },
        );
        let of = one.of.clone().unwrap_or_default();
        table.add_row([one.name.to_owned(), of, value, one.path.clone().unwrap_or_default()]);
    }
    table
}

/// What cannot be used, by reason.
fn absent(found: &[Found]) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for one in found {
        let Some(reason) = &one.missing else { continue };
        let name =
            one.of.as_ref().map_or(one.name.to_owned(), |of| format!("{} of {of}", one.name));
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let line =
        |(reason, names): (&str, Vec<String>)| format!("  no {}: {reason}\n", names.join(", "));
    reasons.into_iter().map(line).collect()
}
