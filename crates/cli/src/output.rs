//! Files that commands write: checked before long work is done for them, and written by
//! [`OutputFile`] alone.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ebb_trace::OutputFile;

use crate::{Unwritten, usage};

/// `file` in the folder that a service has by systemd: the first, where its unit names several.
pub fn in_service(folders: &OsStr, file: &str) -> Option<PathBuf> {
    let first = std::env::split_paths(folders).next();
    first.filter(|folder| !folder.as_os_str().is_empty()).map(|folder| folder.join(file))
}

/// Refuses a file that cannot be written: its folder does not exist, or it is a folder itself.
///
/// # Errors
/// Which option names it, and why it cannot be.
pub fn check(option: &str, path: &Path) -> Result<()> {
    let name = path.display();
    if path.is_dir() {
        return Err(usage(format!("{option} {name} is a folder: name a file in it")));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            let folder = folder.display();
            Err(usage(format!("{option} {name}: there is no folder {folder}; make it first")))
        }
        _ => Ok(()),
    }
}

/// Refuses a folder to write into that is something else.
///
/// # Errors
/// Which option names it.
pub fn check_folder(option: &str, path: &Path) -> Result<()> {
    let name = path.display();
    let is_other = path.exists() && !path.is_dir();
    if is_other { Err(usage(format!("{option} {name} is no folder: name one"))) } else { Ok(()) }
}

/// Refuses files to write of which one is also read, or written twice.
///
/// # Errors
/// Which options name the same file.
pub fn apart(read: &[PathBuf], written: &[(&str, &Path)]) -> Result<()> {
    // A device can be all of them at once.
    let place = |path: &Path| path.canonicalize().ok().filter(|path| path.is_file());
    for (index, (option, path)) in written.iter().enumerate() {
        let Some(to) = place(path) else { continue };
        let name = path.display();
        if read.iter().any(|file| place(file).is_some_and(|from| from == to)) {
            return Err(usage(format!("{option} {name} is also read: name another file")));
        }
        let earlier = &written[..index];
        if let Some((other, _)) = earlier.iter().find(|(_, path)| place(path) == Some(to.clone())) {
            return Err(usage(format!("{other} and {option} are both {name}: name two files")));
        }
    }
    Ok(())
}

/// Writes the file `path`, whole or not at all where it is a regular one.
///
/// # Errors
/// When it cannot be written, or `fill` fails.
pub fn write(path: &Path, fill: impl FnOnce(&mut OutputFile) -> Result<()>) -> Result<()> {
    let written = || -> Result<()> {
        let mut file = OutputFile::create(path)?;
        fill(&mut file)?;
        Ok(file.finish()?)
    };
    written().with_context(|| Unwritten(path.display().to_string()))
}

/// Whether what is written to `path` goes where standard output goes.
pub fn is_stdout(path: &Path) -> bool {
    let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let own = std::fs::metadata("/dev/stdout").map(place);
    own.is_ok_and(|own| path.metadata().is_ok_and(|to| place(to) == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_of_a_service_is_its_own() {
        let of = |folders: &str| in_service(OsStr::new(folders), "run.sock");
        for folders in ["/run/ebb", "/run/ebb:/run/other"] {
            assert_eq!(of(folders), Some(PathBuf::from("/run/ebb/run.sock")));
        }
        assert_eq!(of(""), None);
    }
}
