//! `ebb sim --list`: what there is to choose from.

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;

use ebb_policy::registry::ENTRIES;
use ebb_trace::generate::BUILTIN;
use ebb_twin::Profile;

use crate::out;

#[derive(Serialize)]
struct Item {
    name: &'static str,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    /// Of a policy: the controls that it sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    sets: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Lists {
    schema: u32,
    policies: Vec<Item>,
    profiles: Vec<Item>,
    workloads: Vec<Item>,
}

fn item(name: &'static str, summary: String) -> Item {
    Item { name, summary, source: None, sets: None }
}

/// Prints the policies, profiles and workloads.
pub fn print(json: bool) -> Result<()> {
    let lists = Lists {
        schema: ebb_record::summary::SCHEMA,
        policies: ENTRIES
            .iter()
            .map(|entry| Item {
                name: entry.name,
                summary: entry.summary.to_owned(),
                source: None,
                sets: Some(entry.owns.iter().map(ToString::to_string).collect()),
            })
            .collect(),
        profiles: Profile::names()
            .map(|name| Ok(item(name, Profile::load(name)?.summary)))
            .collect::<Result<_>>()?,
        workloads: BUILTIN
            .iter()
            .map(|workload| Item {
                source: Some(workload.source),
                ..item(workload.name, workload.summary.to_owned())
            })
            .collect(),
    };
    let mut to = out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut to, &lists)?;
        writeln!(to)?;
    } else {
        part(
            &mut to,
            "Policies (--policy; a+b runs those together that set different controls)",
            &lists.policies,
        )?;
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
    for Item { name, summary, source, sets } in items {
        match source {
            Some(source) => writeln!(to, "  {name:<width$} {summary} [{source}]")?,
            None => writeln!(to, "  {name:<width$} {summary}")?,
        }
        if let Some(sets) = sets.as_deref().filter(|sets| !sets.is_empty()) {
            writeln!(to, "  {:<width$}   sets {}", "", sets.join(", "))?;
        }
    }
    Ok(())
}
