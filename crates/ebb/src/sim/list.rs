//! `ebb sim --list`: what there is to choose from.

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;

use ebb_policy::registry::ENTRIES;
use ebb_trace::generate::BUILTIN;
use ebb_twin::Profile;

#[derive(Serialize)]
struct Item {
    name: &'static str,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
}

#[derive(Serialize)]
struct Lists {
    schema: u32,
    policies: Vec<Item>,
    profiles: Vec<Item>,
    workloads: Vec<Item>,
}

/// Prints the policies, profiles and workloads.
pub fn print(json: bool) -> Result<()> {
    let lists = Lists {
        schema: super::summary::SCHEMA,
        policies: ENTRIES
            .iter()
            .map(|entry| Item { name: entry.name, summary: entry.summary.to_owned(), source: None })
            .collect(),
        profiles: Profile::names()
            .map(|name| Ok(Item { name, summary: Profile::load(name)?.summary, source: None }))
            .collect::<Result<_>>()?,
        workloads: BUILTIN
            .iter()
            .map(|workload| Item {
                name: workload.name,
                summary: workload.summary.to_owned(),
                source: Some(workload.source),
            })
            .collect(),
    };
    let mut to = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut to, &lists)?;
        writeln!(to)?;
    } else {
        part(&mut to, "Policies (--policy; a+b runs two together)", &lists.policies)?;
        writeln!(to)?;
        part(&mut to, "Servers (--profile, or a TOML file)", &lists.profiles)?;
        writeln!(to)?;
        part(&mut to, "Workloads (--workload, or a TOML file)", &lists.workloads)?;
    }
    Ok(to.flush()?)
}

fn part(to: &mut impl Write, heading: &str, items: &[Item]) -> io::Result<()> {
    writeln!(to, "{heading}:")?;
    let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0);
    for Item { name, summary, source } in items {
        match source {
            Some(source) => writeln!(to, "  {name:<width$} {summary} [{source}]")?,
            None => writeln!(to, "  {name:<width$} {summary}")?,
        }
    }
    Ok(())
}
