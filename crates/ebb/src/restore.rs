//! `ebb restore`: everything back to what it was before Ebb came.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use ebb_host::{Leave, Machine, RestoreOutcome, Restored, State, Sys};
use serde::Serialize;

use crate::exit::usage;
use crate::out;

/// Where originals are kept.
pub const STATE: &str = "/var/lib/ebb";

/// Options of `ebb restore`.
///
/// Sets everything that `ebb run --apply` has set back to what was found before it: in order, past
/// failures, read back. Doing it again does no harm. What fails stays saved for the next time.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Folder with the saved originals.
    #[arg(long, value_name = "DIR", default_value = STATE)]
    state: PathBuf,
    /// A copy of a machine's sys and proc under this folder.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// What to leave everywhere, instead of the configuration's choice: the original settings
    /// (restore), or harmless ones (safe: all cores, no caps, full fans).
    #[arg(long, value_name = "WHAT", value_parser = leave)]
    leave: Option<Leave>,
    /// Print JSON (docs/json-schema/restore-1.json).
    #[arg(long)]
    json: bool,
}

fn leave(text: &str) -> Result<Leave, String> {
    match text {
        "restore" => Ok(Leave::Restore),
        "safe" => Ok(Leave::Safe),
        _ => Err("write restore or safe".to_owned()),
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    restored: &'a [Restored],
}

/// Sets it back and tells.
pub fn run(args: &RestoreArgs) -> Result<()> {
    if !args.state.is_dir() {
        return tell(&[], args.json);
    }
    let machine =
        Machine::found(Sys::new(&args.root)).map_err(|absent| usage(absent.to_string()))?;
    let state = State::take(&args.state)?;
    let done = ebb_host::restore(&machine, &state, args.leave)?;
    tell(&done, args.json)?;
    verdict(&done)
}

/// The same of who acts on the machine, told on standard error.
pub fn all(machine: &Machine, state: &State, leave: Option<Leave>) -> Result<()> {
    let done = ebb_host::restore(machine, state, leave).context("cannot set everything back")?;
    for one in &done {
        if let Some(line) = line(one) {
            out::note(line);
        }
    }
    verdict(&done)
}

fn tell(done: &[Restored], json: bool) -> Result<()> {
    if json {
        return out::json(&Report { schema: 1, restored: done });
    }
    if done.is_empty() {
        return out::print("nothing to restore\n");
    }
    let lines: String = done.iter().filter_map(line).map(|line| line + "\n").collect();
    let count = |is: fn(&RestoreOutcome) -> bool| done.iter().filter(|d| is(&d.outcome)).count();
    let set = count(|outcome| matches!(outcome, RestoreOutcome::Restored { .. }));
    let were = count(|outcome| matches!(outcome, RestoreOutcome::Already));
    out::print(format_args!(
        "{lines}{set} of {} restored, {were} already had their original value\n",
        done.len()
    ))
}

/// What happened to a place; nothing to say of one that is as it was to be.
fn line(restored: &Restored) -> Option<String> {
    let Restored { place, to, outcome } = restored;
    let to = to.as_deref().unwrap_or_default();
    Some(match outcome {
        RestoreOutcome::Already | RestoreOutcome::Kept => return None,
        RestoreOutcome::Restored { from } => format!("{place}: '{from}' -> '{to}'"),
        RestoreOutcome::Restarted => format!("{place}: reset by the restart of the machine"),
        RestoreOutcome::Gone { reason } => format!("{place}: no longer present ({reason})"),
        RestoreOutcome::Failed { reason } => format!("{place}: NOT restored to '{to}': {reason}"),
    })
}

fn verdict(done: &[Restored]) -> Result<()> {
    let failed = done.iter().filter(|one| matches!(one.outcome, RestoreOutcome::Failed { .. }));
    match failed.count() {
        0 => Ok(()),
        failed => bail!(
            "{failed} of {} could not be restored and stay saved: fix the causes above, then run \
             'ebb restore' again",
            done.len()
        ),
    }
}
