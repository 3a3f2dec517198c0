//! Writing a server's configuration: here, with the rights of who asks, as the server need not be
//! able to.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use ebb_cli::usage;

use crate::serve::control::replies::Configuration;

/// Options of `ebb ctl save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    /// Where to; a file that is there is kept beside it, with .old after its name [default: the
    /// file that the server was started from].
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Replace a file that the server was not started from too.
    #[arg(long)]
    force: bool,
}

/// Writes what the server told; says what was done.
pub fn run(args: &SaveArgs, told: Configuration) -> Result<String> {
    let own = told.path.as_ref().map(Path::new);
    let Some(path) = args.path.as_deref().or(own) else {
        return Err(usage(
            "the server was started without --config; say where to: ebb ctl save PATH",
        ));
    };
    let name = path.display();
    let before = fs::symlink_metadata(path).ok();
    let is_own = || own.is_some_and(|own| path.canonicalize().is_ok_and(|path| path == own));
    if before.is_some() && !args.force && !is_own() {
        return Err(usage(format!("{name} is there; give another name, or --force to replace it")));
    }
    // A link's file, not the link.
    let path = if before.is_some() { path.canonicalize()? } else { path.to_owned() };
    let kept =
        write(&path, told.toml.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    let kept = kept.map(|kept| format!("; the one before is {}", kept.display()));
    Ok(format!("{name} was written{}", kept.unwrap_or_default()))
}

/// Writes a file that is there as a whole or not at all; where the one before is kept.
fn write(path: &Path, bytes: &[u8]) -> Result<Option<PathBuf>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".ebb-save").tempfile_in(folder)?;
    new.write_all(bytes)?;
    let mut kept = None;
    if let Ok(before) = fs::metadata(path) {
        // It stays as readable as it was, for the server at least.
        new.as_file().set_permissions(before.permissions())?;
        let (new_owner, owner) = (new.as_file().metadata()?, (before.uid(), before.gid()));
        if owner != (new_owner.uid(), new_owner.gid()) {
            std::os::unix::fs::fchown(new.as_file(), Some(owner.0), Some(owner.1))?;
        }
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        let old = PathBuf::from(old);
        let mut copy = tempfile::Builder::new().prefix(".ebb-save").tempfile_in(folder)?;
        std::io::copy(&mut File::open(path)?, copy.as_file_mut())?;
        copy.as_file().set_permissions(before.permissions())?;
        copy.as_file().sync_all()?;
        copy.persist(&old)?;
        kept = Some(old);
    }
    new.as_file().sync_all()?;
    new.persist(path)?;
    File::open(folder)?.sync_all()?;
    Ok(kept)
}
