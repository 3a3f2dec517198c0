//! Folders and files that tell root what to write: they are root's own, or the user's who runs
//! Ebb, and nobody else can change them.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::fs::{fstat, fsync, openat, renameat, stat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::capability::Capability;
use crate::sys::{LONGEST, open_plain, too_long};

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system does not let us.
    #[error("{}: {source}{}", .path.display(), hint(.source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is not what Ebb writes.
    #[error(
        "{}: {reason}; what was found is lost: 'ebb restore --leave safe' sets fans to full speed, \
         and a restart of the machine resets most of the rest; then remove the file",
        .path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version wrote it, and knows what it says.
    #[error(
        "{}: has schema {schema}, which a newer version of ebb wrote: restore with that version",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        schema: u32,
    },
    /// Others than root and us could have written it.
    #[error("{}: {wrong}; {remedy}", .path.display())]
    Unsafe {
        /// The file or folder.
        path: PathBuf,
        /// Who could.
        wrong: String,
        /// What to do.
        remedy: String,
    },
    /// Another Ebb acts on the machine.
    #[error(
        "{}: another ebb acts on this machine; stop it first (systemctl stop ebb)",
        .path.display()
    )]
    Busy {
        /// What is locked.
        path: PathBuf,
    },
}

fn hint(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!("; {}", Capability::DacOverride.remedy()),
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            ": a symbolic link in place of a file of ebb is not followed; put the file there".into()
        }
        _ => String::new(),
    }
}

/// Whom a file must belong to, and who else may write it: nobody.
fn check(path: &Path, stat: &Stat) -> Result<(), StateError> {
    let unsafe_ = |wrong: String, remedy: String| StateError::Unsafe {
        path: path.to_owned(),
        wrong,
        remedy: format!("{remedy} {}", path.display()),
    };
    let us = geteuid().as_raw();
    if stat.st_uid != 0 && stat.st_uid != us {
        let wrong =
            format!("it belongs to user {}, who could have Ebb write anything", stat.st_uid);
        return Err(unsafe_(wrong, format!("check what it says, then chown {us}")));
    }
    // A user's group is often the user's alone.
    let others = if us == 0 { 0o022 } else { 0o002 };
    if stat.st_mode & others != 0 {
        let wrong = format!("others may write it (mode {:03o})", stat.st_mode & 0o777);
        return Err(unsafe_(wrong, "check what it says, then chmod go-w".to_owned()));
    }
    Ok(())
}

fn io(path: &Path) -> impl Fn(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { path: path.clone(), source }
}

/// Whether the file `path`, if there is one, can be changed or replaced by root and by us alone.
///
/// # Errors
/// Who else can, and what to do.
pub fn is_ours(path: &Path) -> Result<(), StateError> {
    match stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => check(path, &stat)?,
        _ => return Ok(()),
    }
    // Where a link is, and where it leads to.
    let here = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let file = fs::canonicalize(path).map_err(io(path))?;
    let folders = [fs::canonicalize(here).ok(), file.parent().map(Path::to_owned)];
    folders.into_iter().flatten().try_for_each(|folder| {
        let Ok(mut stat) = stat(&folder) else { return Ok(()) };
        // In one like /tmp nobody replaces what is another's.
        if Mode::from_raw_mode(stat.st_mode).contains(Mode::SVTX) {
            stat.st_mode &= !0o022;
        }
        check(&folder, &stat)
    })
}

/// The folder `path`, which must be ours.
///
/// # Errors
/// Where it cannot be opened, is a link, or others may write in it.
pub fn folder(path: &Path) -> Result<OwnedFd, StateError> {
    // A slash at the end would have a link followed.
    let path: PathBuf = path.components().collect();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, &path, flags, Mode::empty());
    let opened = opened.map_err(|error| match fs::read_link(&path) {
        Ok(to) => StateError::Unsafe {
            path: path.clone(),
            wrong: "it is a link".to_owned(),
            remedy: format!("name the folder that it leads to: {}", to.display()),
        },
        Err(_) => io(&path)(error.into()),
    })?;
    check(&path, &fstat(&opened).map_err(|error| io(&path)(error.into()))?)?;
    Ok(opened)
}

/// The same; it is made where it is not there.
///
/// # Errors
/// Where it cannot be made or used.
pub fn make(path: &Path) -> Result<OwnedFd, StateError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    match made {
        // A link, say; what it is the next one tells.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io(path)(error)),
        _ => folder(path),
    }
}

/// What `name` in `folder`, whose path is `path`, says; `None` where it is not there.
///
/// # Errors
/// Where it cannot be read, is no file, or others may write it.
pub fn read(folder: &OwnedFd, path: &Path, name: &str) -> Result<Option<Vec<u8>>, StateError> {
    let path = path.join(name);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(folder, name, flags, Mode::empty()).map_err(io::Error::from);
    let file = match opened.and_then(|fd| open_plain(fd.into())) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io(&path))?,
    };
    check(&path, &fstat(&file).map_err(|error| io(&path)(error.into()))?)?;
    let mut bytes = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(io(&path))?;
    if read as u64 > LONGEST {
        return Err(io(&path)(too_long()));
    }
    Ok(Some(bytes))
}

/// Puts `text` on disk as `name` in `folder`, whole or not at all.
///
/// # Errors
/// Where it cannot be written; what was there is still there.
pub fn put(folder: &OwnedFd, name: &str, text: &[u8]) -> io::Result<()> {
    discard(folder, name)?;
    let new = unfinished(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, &*new, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text)?;
    file.sync_all()?;
    renameat(folder, &*new, folder, name)?;
    Ok(fsync(folder)?)
}

/// Removes `name` from `folder`, if it is there, and what was not finished of it.
///
/// # Errors
/// Where it cannot be removed.
pub fn remove(folder: &OwnedFd, name: &str) -> io::Result<()> {
    discard(folder, name)?;
    unlink(folder, name)
}

/// Removes what somebody who was killed had not finished of `name`.
///
/// # Errors
/// Where it cannot be removed.
pub fn discard(folder: &OwnedFd, name: &str) -> io::Result<()> {
    unlink(folder, &unfinished(name))
}

fn unlink(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(fsync(folder)?),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a file is called until it is whole.
fn unfinished(name: &str) -> String {
    format!("{name}.new")
}
