//! `ebb restore`: everything back to what it was before Ebb came.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use clap::Args;
use ebb_host::{
    Leave, Lock, Machine, Restoration, RestoreOutcome, Restored, State, Sys, full_speed, remembered,
};
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::{out, usage};

/// Where originals are kept.
pub const STATE: &str = "/var/lib/ebb";

/// Options of `ebb restore`.
///
/// Sets everything that `ebb run --apply` has set back to what was found before it: in order, past
/// failures, read back. Doing it again does no harm. What fails stays saved for the next time, and
/// so does what has to wait for a device that is not there now.
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
    /// Give up the saved original of a setting or a device that will not come back, by the name
    /// that is printed, instead of restoring anything; may be repeated.
    #[arg(long, value_name = "PLACE|DEVICE", conflicts_with_all = ["leave", "json"])]
    forget: Vec<String>,
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

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb restore --json")]
struct Report<'a> {
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// Each place that was saved, in the order in which they were set back.
    restored: &'a [Restored],
    /// Why what is left could not be put on disk; absent where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    unrecorded: Option<String>,
    /// Why what an Ebb has left could not be read: there is more to restore; absent where all was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
}

/// Sets it back and tells.
pub fn run(args: &RestoreArgs) -> Result<()> {
    let sys = Sys::new(&args.root);
    let (folders, lost) = folders(&sys, &args.state)?;
    let mut done = Restoration::default();
    let mut unread: Vec<_> = lost.map(|lost| anyhow!(lost)).into_iter().collect();
    let is_blind = args.leave == Some(Leave::Safe) && !unread.is_empty();
    if !folders.is_empty() || is_blind {
        let machine = Machine::found(sys).map_err(|absent| usage(absent.to_string()))?;
        let _lock = Lock::take(&machine.sys)?;
        if !args.forget.is_empty() {
            return args.forget.iter().try_for_each(|name| forget(&folders, name));
        }
        for folder in folders {
            let one =
                State::open(&folder).and_then(|it| ebb_host::restore(&machine, &it, args.leave));
            match one {
                Ok(one) => done.add(one),
                // One that is broken is no reason to leave what is in the other one.
                Err(error) => unread.push(error.into()),
            }
        }
        if args.leave == Some(Leave::Safe) && !unread.is_empty() {
            done.places.extend(full_speed(&machine));
        }
    }
    tell(&done, &unread, args.json)?;
    let verdict = verdict(&done);
    unread.into_iter().next().map_or(verdict, Err)
}

/// The folders with originals of this machine: `state`, and that of an Ebb which acted with
/// another one. What says where that was, if it is not there.
pub fn folders(sys: &Sys, state: &Path) -> Result<(Vec<PathBuf>, Option<String>)> {
    let mut all = Vec::from_iter(state.symlink_metadata().is_ok().then(|| state.to_owned()));
    let Some(other) = elsewhere(sys, state)? else { return Ok((all, None)) };
    if other.is_dir() {
        all.push(other);
        return Ok((all, None));
    }
    let other = other.display();
    let lost = format!(
        "an ebb that acted on this machine has left its originals in {other}, which is not there: \
         mount it and run 'ebb restore --state {other}'"
    );
    Ok((all, Some(lost)))
}

/// The folder with originals of this machine that is not `state`.
fn elsewhere(sys: &Sys, state: &Path) -> Result<Option<PathBuf>> {
    let own = state.canonicalize().ok();
    Ok(remembered(sys)?.filter(|other| Some(other) != own.as_ref()))
}

/// Sets back what an Ebb has left that acted with another state folder than `state`.
///
/// # Errors
/// Where that folder still has originals: what is found now would not be what was found first.
pub fn others(machine: &Machine, state: &Path) -> Result<()> {
    let Some(other) = elsewhere(&machine.sys, state)? else { return Ok(()) };
    let remedy = || {
        let other = other.display();
        format!(
            "another ebb has left originals of this machine in {other}; run 'ebb restore --state \
             {other}' first, or act with --state {other}"
        )
    };
    ensure!(other.is_dir(), "{}: it is not there", remedy());
    let left = State::open(&other)?;
    all(machine, &left, None).with_context(remedy)?;
    ensure!(left.load()?.is_none(), remedy());
    Ok(())
}

/// The same of who acts on the machine, told on standard error.
pub fn all(machine: &Machine, state: &State, leave: Option<Leave>) -> Result<()> {
    let done = ebb_host::restore(machine, state, leave).context("cannot set everything back")?;
    for one in &done.places {
        if let Some(line) = line(one) {
            out::note(line);
        }
    }
    verdict(&done)
}

fn forget(folders: &[PathBuf], name: &str) -> Result<()> {
    let mut saved = Vec::new();
    for folder in folders {
        let state = State::open(folder)?;
        let gone = state.give_up(name)?;
        if !gone.is_empty() {
            return gone
                .iter()
                .try_for_each(|place| out::print(format_args!("{place}: forgotten\n")));
        }
        let all = state.load()?.unwrap_or_default();
        saved.extend(all.originals.iter().map(|original| format!("\n  {}", original.place)));
    }
    Err(usage(format!("nothing is saved of '{name}'; saved are:{}", saved.concat())))
}

fn tell(done: &Restoration, unread: &[Error], json: bool) -> Result<()> {
    let places = &done.places;
    if json {
        let unrecorded = done.unrecorded.as_ref().map(ToString::to_string);
        let unread = unread.iter().map(ToString::to_string).collect();
        return out::json(&Report { schema: 1, restored: places, unrecorded, unread });
    }
    if places.is_empty() {
        return match unread {
            [] => out::print("nothing to restore\n"),
            // What there is nobody knows.
            _ => Ok(()),
        };
    }
    let lines: String = places.iter().filter_map(line).map(|line| line + "\n").collect();
    let set = done.count(|outcome| {
        matches!(outcome, RestoreOutcome::Restored { .. } | RestoreOutcome::Limited { .. })
    });
    let were = done.count(|outcome| matches!(outcome, RestoreOutcome::Already));
    out::print(format_args!(
        "{lines}{set} of {} restored, {were} already had their original value\n",
        places.len()
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
        RestoreOutcome::Pending { reason } => format!("{place} waits for its device: {reason}"),
        RestoreOutcome::Limited { from, reason } => {
            format!("{place}: '{from}' -> '{to}', {reason}")
        }
        RestoreOutcome::Failed { reason, .. } => {
            format!("{place}: NOT restored to '{to}': {reason}")
        }
    })
}

/// What there is to do.
///
/// # Errors
/// Where a setting of a device that is there could not be set back.
fn verdict(done: &Restoration) -> Result<()> {
    if let Some(error) = &done.unrecorded {
        out::note(format_args!(
            "what is left cannot be recorded: {error}; until it can, 'ebb restore' sets the same \
             values again"
        ));
    }
    let all = done.places.len();
    let waits = done.count(|outcome| matches!(outcome, RestoreOutcome::Pending { .. }));
    if waits > 0 {
        out::note(format_args!(
            "{waits} of {all} wait for their device and stay saved: run 'ebb restore' when it is \
             back, or 'ebb restore --forget NAME' if it does not come back"
        ));
    }
    done.remedies().into_iter().for_each(out::note);
    match done.count(|outcome| matches!(outcome, RestoreOutcome::Failed { .. })) {
        0 => Ok(()),
        failed => bail!(
            "{failed} of {all} could not be restored and stay saved: fix the causes above, then \
             run 'ebb restore' again"
        ),
    }
}

#[cfg(test)]
crate::schema::written!("restore-1", Report<'static>);
