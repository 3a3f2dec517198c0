//! `ebb verify`: is everything as it was set, while `ebb run` acts; is everything as it was found,
//! otherwise. Nothing is changed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use ebb_cli::{out, text, usage};
use ebb_host::{Lock, Machine, State, Sys, Verified, compare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::restore;
use crate::rpc::{RUN, client};

/// Options of `ebb verify`.
///
/// While `ebb run --apply` acts, it is asked to read back everything that it has set. Otherwise
/// what an earlier run has saved, and not set back, is compared with what the machine says now.
/// Nothing is changed. Exit code 1: something is otherwise.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The control socket of `ebb run`, as given to it with --control.
    #[arg(long, value_name = "PATH", default_value = RUN)]
    socket: PathBuf,
    /// Folder with the saved originals.
    #[arg(long, value_name = "DIR", default_value = restore::STATE)]
    state: PathBuf,
    /// A copy of a machine's sys and proc under this folder.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// Print JSON (docs/json-schema/verify-1.json).
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ebb verify --json")]
pub struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// What the settings were compared with.
    #[schemars(extend("enum" = ["set", "found"]))]
    with: String,
    /// Settings that are so.
    compared: usize,
    /// Settings that were not read: their drive sleeps, or it would take too long.
    unread: usize,
    differing: Vec<Differing>,
}

/// A place that is otherwise.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Differing {
    place: String,
    text: String,
}

impl Report {
    /// Of what was compared `with` what was set or found.
    pub fn new(with: &str, verified: Verified) -> Self {
        let Verified { compared, unread, differing } = verified;
        let differs =
            |one: ebb_host::Notice| Differing { place: one.place.to_string(), text: one.text };
        let differing = differing.into_iter().map(differs).collect();
        Self { schema: 1, with: with.to_owned(), compared, unread, differing }
    }
}

/// Compares, and tells.
pub fn run(args: &VerifyArgs) -> Result<()> {
    let sys = Sys::new(&args.root);
    let report = match client::answers(&args.socket) {
        true => client::call(&args.socket, "verify", &json!({}))?,
        false => found(args, sys)?,
    };
    if args.json {
        out::json(&report)?;
    } else {
        out::print(words(&report))?;
    }
    match report.differing.len() {
        0 => Ok(()),
        1 => bail!("1 setting is not as it was {}", report.with),
        many => bail!("{many} settings are not as they were {}", report.with),
    }
}

/// Compares with what was found, where nobody acts.
fn found(args: &VerifyArgs, sys: Sys) -> Result<Report> {
    let (folders, lost) = restore::folders(&sys, &args.state)?;
    if let Some(lost) = lost {
        bail!(lost);
    }
    let machine = Machine::found(sys).map_err(|absent| usage(absent.to_string()))?;
    let mut all = Verified::default();
    if folders.is_empty() {
        return Ok(Report::new("found", all));
    }
    if Lock::take(&machine.sys).is_err() {
        let socket = args.socket.display();
        bail!(
            "an ebb acts on this machine, and it alone knows what it has set, but it has no socket \
             at {socket}: start it with --control, or name its socket with --socket"
        );
    }
    for folder in folders {
        let one = compare(&machine, &State::open(&folder)?)?;
        all.compared += one.compared;
        all.differing.extend(one.differing);
    }
    Ok(Report::new("found", all))
}

fn words(report: &Report) -> String {
    let Report { with, compared, unread, differing, .. } = report;
    let lines = differing.iter().map(|Differing { place, text }| {
        format!("{}: {}\n", text::printable(place), text::printable(text))
    });
    let mut told: String = lines.collect();
    told += &match (*compared, &**with) {
        (0, "found") if differing.is_empty() => {
            "nothing is set by Ebb: everything is as it was found\n".to_owned()
        }
        (compared, with) => format!("{compared} settings are as they were {with}\n"),
    };
    if *unread > 0 {
        told += &format!("{unread} were not read: their drive sleeps, or it would take too long\n");
    }
    told
}

#[cfg(test)]
crate::schema::written!("verify-1", Report);
