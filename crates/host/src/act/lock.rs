//! One Ebb acts on a machine at a time, whatever its state folder is; and the next one knows where
//! the last one's originals are.
//!
//! The lock is `flock(2)` on a folder that only root can open: nobody else can keep a restore from
//! being done, a read-only disk is no hindrance, and it ends with the last process that has it,
//! however that ends. It is none of a socket's name, of which each network namespace has its own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, Stat, fchmod, flock, fstat, stat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use crate::act::owned::{self, StateError};
use crate::sys::Sys;

/// Below the root: in memory on any machine, and gone with its start.
const FOLDER: &str = "run/ebb";
/// In it, the state folder with the originals of this machine.
const STATE: &str = "state";

/// That no other Ebb acts on this machine.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
}

impl Lock {
    /// Takes the machine.
    ///
    /// # Errors
    /// Where another process has it.
    pub fn take(sys: &Sys) -> Result<Self, StateError> {
        loop {
            let (path, fd) = folder(sys)?;
            let io = |error: Errno| StateError::Io { path: path.clone(), source: error.into() };
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(StateError::Busy { path }),
                Err(error) => return Err(io(error)),
            }
            // One that was removed meanwhile locks nobody out.
            let here = fstat(&fd).map_err(io)?;
            let is_it = |there: Stat| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino);
            if stat(&path).is_ok_and(is_it) {
                return Ok(Self { fd });
            }
        }
    }

    /// Runs `start`, whose processes have the machine too, until the last of them is gone: one
    /// that sets everything back after this one was killed is not overtaken by another Ebb.
    ///
    /// # Errors
    /// Where the lock cannot be handed on.
    pub fn shared_with<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        fcntl_setfd(&self.fd, FdFlags::empty())?;
        let started = start();
        fcntl_setfd(&self.fd, FdFlags::CLOEXEC)?;
        Ok(started)
    }
}

/// The folder that is locked. Of a copy of a machine's files it is the copy itself, in which
/// nothing is made.
fn folder(sys: &Sys) -> Result<(PathBuf, OwnedFd), StateError> {
    let root = sys.path("");
    let whole = || {
        let opened = File::open(&root);
        let opened = opened.map_err(|source| StateError::Io { path: root.clone(), source });
        Ok((root.clone(), opened?.into()))
    };
    if sys.is_fixture() {
        return whole();
    }
    let path = sys.path(FOLDER);
    match owned::make(&path) {
        Ok(folder) => {
            // What others cannot open they cannot lock.
            let _ = fchmod(&folder, Mode::RWXU);
            Ok((path, folder))
        }
        // A container without one; all that act in it are in it.
        Err(StateError::Io { source, .. })
            if [ErrorKind::ReadOnlyFilesystem, ErrorKind::NotFound].contains(&source.kind()) =>
        {
            whole()
        }
        Err(error) => Err(error),
    }
}

/// The folder that has originals of this machine, by the last Ebb that acted since its start.
///
/// # Errors
/// Where that cannot be told.
pub fn remembered(sys: &Sys) -> Result<Option<PathBuf>, StateError> {
    let path = sys.path(FOLDER);
    let folder = match owned::folder(&path) {
        Err(StateError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        folder => folder?,
    };
    let text = owned::read(&folder, &path, STATE)?;
    let state = text.map(|text| PathBuf::from(OsString::from_vec(text)));
    Ok(state.filter(|state| state.is_absolute()))
}

/// Keeps in mind that `state` has originals of this machine.
///
/// # Errors
/// Where that cannot be kept: without it another state folder would hide them.
pub(crate) fn remember(sys: &Sys, state: &Path) -> Result<(), StateError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        |source| StateError::Io { path, source }
    };
    let text = fs::canonicalize(state).map_err(at(state))?.into_os_string().into_vec();
    let path = sys.path(FOLDER);
    let folder = owned::make(&path)?;
    owned::put(&folder, STATE, &text).map_err(at(&path.join(STATE)))
}

/// Forgets it, where it is no other than `state`.
pub(crate) fn forget(sys: &Sys, state: &Path) {
    let path = sys.path(FOLDER);
    let Ok(folder) = owned::folder(&path) else { return };
    match remembered(sys) {
        Ok(known) if known.is_none() || known == fs::canonicalize(state).ok() => {}
        _ => return,
    }
    let _ = owned::remove(&folder, STATE);
    if sys.is_fixture() {
        // A copy is left as it was.
        let _ = fs::remove_dir(&path);
        let _ = path.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn machine() -> (tempfile::TempDir, Sys) {
        let root = tempfile::tempdir().unwrap();
        let sys = Sys::new(root.path());
        (root, sys)
    }

    #[test]
    fn there_is_one_owner_of_a_machine_at_a_time() {
        let (root, sys) = machine();
        let first = Lock::take(&sys).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(".", &link).unwrap();
        for same in [sys.clone(), Sys::new(root.path().join(".")), Sys::new(link)] {
            assert!(matches!(Lock::take(&same), Err(StateError::Busy { .. })));
        }
        let (_other, other) = machine();
        assert!(Lock::take(&other).is_ok());
        drop(first);
        assert!(Lock::take(&sys).is_ok());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing is made in a copy");
    }

    #[test]
    fn who_was_started_has_it_too() {
        let (_root, sys) = machine();
        let lock = Lock::take(&sys).unwrap();
        let mut cat = Command::new("cat");
        let cat = cat.stdin(Stdio::piped());
        let mut child = lock.shared_with(|| cat.spawn()).unwrap().unwrap();
        drop(lock);
        assert!(matches!(Lock::take(&sys), Err(StateError::Busy { .. })));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(Lock::take(&sys).is_ok());
    }

    #[test]
    fn where_the_originals_are_is_kept_in_mind_until_they_are_gone() {
        let ((root, sys), state) = (machine(), tempfile::tempdir().unwrap());
        assert_eq!(remembered(&sys).unwrap(), None);
        remember(&sys, state.path()).unwrap();
        assert_eq!(remembered(&sys).unwrap(), Some(state.path().canonicalize().unwrap()));
        forget(&sys, root.path());
        assert!(remembered(&sys).unwrap().is_some(), "another's");
        forget(&sys, state.path());
        assert_eq!(remembered(&sys).unwrap(), None);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "a copy is left as it was");
    }
}
