//! `ebb sim --list`: what there is to choose from.

use std::io::{self, Write};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::out;
use ebb_policy::reactor;
use ebb_policy::registry::ENTRIES;
use ebb_trace::generate::BUILTIN;
use ebb_twin::{Profile, reactor as polled};

use super::plan::FORETOLD;
use super::polled::CLAIRVOYANT;

#[derive(Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
struct Item {
    name: &'static str,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    /// Of a policy: the controls that it sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    sets: Option<Vec<String>>,
    /// Of a policy or scheduler: the parameters that may be stated after its name; absent without
    /// any.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    takes: &'static [&'static str],
}

#[derive(Serialize, JsonSchema)]
#[schemars(title = "ebb sim --list --json", extend("additionalProperties" = true))]
struct Lists {
    #[schemars(extend("const" = 1))]
    schema: u32,
    policies: Vec<Item>,
    /// Policies that know the load, to tell what was possible.
    #[schemars(default)]
    bounds: Vec<Item>,
    /// Of reactors: policies of polled servers.
    #[schemars(default)]
    schedulers: Vec<Item>,
    profiles: Vec<Item>,
    #[schemars(default)]
    polled_profiles: Vec<Item>,
    workloads: Vec<Item>,
}

fn item(name: &'static str, summary: String) -> Item {
    Item { name, summary, source: None, sets: None, takes: &[] }
}

/// Prints the policies, profiles and workloads.
pub fn print(json: bool) -> Result<()> {
    let lists = Lists {
        schema: ebb_record::summary::SCHEMA,
        policies: ENTRIES
            .iter()
            .map(|entry| Item {
                sets: Some(entry.owns.iter().map(ToString::to_string).collect()),
                takes: entry.takes,
                ..item(entry.name, entry.summary.to_owned())
            })
            .collect(),
        bounds: FORETOLD
            .iter()
            .chain(&[(
                CLAIRVOYANT,
                "on polled servers: the fewest cores that keep busy polling's p99",
            )])
            .map(|(name, about)| item(name, (*about).to_owned()))
            .collect(),
        schedulers: reactor::ENTRIES
            .iter()
            .map(|entry| Item { takes: entry.takes, ..item(entry.name, entry.summary.to_owned()) })
            .collect(),
        profiles: Profile::names()
            .map(|name| Ok(item(name, Profile::load(name)?.summary)))
            .collect::<Result<_>>()?,
        polled_profiles: polled::Profile::names()
            .filter_map(|name| Some((name, polled::Profile::find(name)?)))
            .map(|(name, profile)| Ok(item(name, profile?.summary)))
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
        part(
            &mut to,
            "Best known (--policy, alone): the best plan found for a load that is known beforehand",
            &lists.bounds,
        )?;
        writeln!(to)?;
        part(&mut to, "Servers (--profile, or a TOML file)", &lists.profiles)?;
        writeln!(to)?;
        part(&mut to, "Polled servers (--profile, or a TOML file)", &lists.polled_profiles)?;
        writeln!(to)?;
        part(&mut to, "Schedulers (--policy, on polled servers)", &lists.schedulers)?;
        writeln!(to)?;
        part(&mut to, "Workloads (--workload, or a TOML file)", &lists.workloads)?;
    }
    Ok(to.flush()?)
}

fn part(to: &mut impl Write, heading: &str, items: &[Item]) -> io::Result<()> {
    writeln!(to, "{heading}:")?;
    let width = items.iter().map(|item| item.name.len()).max().unwrap_or(0);
    for Item { name, summary, source, sets, takes } in items {
        match source {
            Some(source) => writeln!(to, "  {name:<width$} {summary} [{source}]")?,
            None => writeln!(to, "  {name:<width$} {summary}")?,
        }
        if let Some(sets) = sets.as_deref().filter(|sets| !sets.is_empty()) {
            writeln!(to, "  {:<width$}   sets {}", "", sets.join(", "))?;
        }
        if !takes.is_empty() {
            writeln!(to, "  {:<width$}   takes {}", "", takes.join(", "))?;
        }
    }
    Ok(())
}

#[cfg(test)]
crate::schema::written!("list-1", Lists);
