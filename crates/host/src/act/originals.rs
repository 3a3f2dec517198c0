//! What everything was set to before Ebb came: on disk before the first write, and not replaced by
//! a later start, whose values would be Ebb's own.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use crate::act::knob::Place;
use crate::act::tasks::Bound;

/// Version of the file.
const SCHEMA: u32 = 1;
/// Names in the state folder.
const FILE: &str = "originals.json";
const NEW: &str = "originals.json.new";
const LOCK: &str = "lock";

/// What is left in a place when Ebb ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leave {
    /// What was found.
    #[default]
    Restore,
    /// What can do no harm: all cores, no caps, full fans.
    Safe,
    /// What Ebb set last.
    Keep,
}

/// One place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Where.
    pub place: Place,
    /// What was found.
    pub found: String,
    /// What can do no harm there.
    pub safe: String,
    /// What to leave.
    pub leave: Leave,
}

impl Original {
    /// What to set it to at the end; `None` to leave it alone.
    #[must_use]
    pub fn last(&self, leave: Option<Leave>) -> Option<&str> {
        match leave.unwrap_or(self.leave) {
            Leave::Restore => Some(&self.found),
            Leave::Safe => Some(&self.safe),
            Leave::Keep => None,
        }
    }
}

/// All places, in the order in which they are set back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Originals {
    schema: u32,
    /// The start of the machine in which they were found (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// Each.
    pub originals: Vec<Original>,
    /// Tasks that are to be bound to their CPUs again once no partition keeps them from these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Bound>,
}

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system does not let us.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is not what Ebb writes.
    #[error(
        "{}: {reason}; if nothing of Ebb is to be undone on this machine, remove the file",
        .path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another Ebb works with it.
    #[error(
        "{}: another ebb acts on this machine; stop it first (systemctl stop ebb)",
        .path.display()
    )]
    Busy {
        /// The lock.
        path: PathBuf,
    },
}

/// The folder with the originals, for this process alone while it lives.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    lock: Option<File>,
}

impl State {
    /// Takes `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// Where it cannot be used, or another process has it.
    pub fn take(folder: &Path) -> Result<Self, StateError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            |source| StateError::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        let path = folder.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(io(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // What one that was killed had not finished.
                let _ = fs::remove_file(folder.join(NEW));
                Ok(Self { folder: folder.to_owned(), lock: Some(lock) })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Busy { path }),
            Err(error) => Err(io(&path)(error.into())),
        }
    }

    /// Runs `start`, whose processes have the folder too, until the last of them is gone: one that
    /// sets everything back after this one was killed is not overtaken by another Ebb.
    ///
    /// # Errors
    /// Where the lock cannot be handed on.
    pub fn shared_with<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        let Some(lock) = &self.lock else { return Ok(start()) };
        fcntl_setfd(lock, FdFlags::empty())?;
        let started = start();
        fcntl_setfd(lock, FdFlags::CLOEXEC)?;
        Ok(started)
    }

    /// `folder`, which the supervisor of this process has taken.
    #[must_use]
    pub fn shared(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), lock: None }
    }

    /// What was saved; `None` where there is nothing to set back.
    ///
    /// # Errors
    /// Where the file cannot be read, or is not what Ebb writes.
    pub fn load(&self) -> Result<Option<Originals>, StateError> {
        let path = self.folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Io { path, source }),
        };
        match serde_json::from_str::<Originals>(&text) {
            Ok(originals) if originals.schema == SCHEMA => Ok(Some(originals)),
            Ok(Originals { schema, .. }) => {
                let reason = format!("has schema {schema}, this version reads {SCHEMA}");
                Err(StateError::Broken { path, reason })
            }
            Err(error) => Err(StateError::Broken { path, reason: error.to_string() }),
        }
    }

    /// Puts `found` on disk beside what is there already, which stays as it is.
    /// Returns what is on disk now. Nothing may be set before this has returned.
    ///
    /// # Errors
    /// Where it cannot be written: the disk is full, say. What was there is still there.
    pub fn save(&self, boot: &str, found: Vec<Original>) -> Result<Originals, StateError> {
        let mut all = self.load()?.unwrap_or_default();
        // Of an earlier start only what outlives one is still to be set back.
        if all.boot != boot {
            all.originals.retain(|original| original.place.survives_reboot());
            all.tasks.clear();
        }
        (all.schema, all.boot) = (SCHEMA, boot.to_owned());
        for original in found {
            match all.originals.iter_mut().find(|known| known.place == original.place) {
                // What is to be left there is today's choice.
                Some(known) => known.leave = original.leave,
                None => all.originals.push(original),
            }
        }
        self.write(&all)?;
        Ok(all)
    }

    /// Puts `place` on disk as it is `now`, in place of what was found there before; without, it is
    /// somebody else's, and not on disk any more: no end sets it back.
    ///
    /// # Errors
    /// Where it cannot be written; what was there is still there.
    pub fn save_one(
        &self,
        boot: &str,
        place: &Place,
        now: Option<&Original>,
    ) -> Result<(), StateError> {
        let mut all = self.load()?.unwrap_or_default();
        (all.schema, all.boot) = (SCHEMA, boot.to_owned());
        match (all.originals.iter().position(|known| known.place == *place), now) {
            (Some(at), Some(now)) => all.originals[at] = now.clone(),
            (None, Some(now)) => all.originals.push(now.clone()),
            (Some(at), None) => drop(all.originals.remove(at)),
            (None, None) => return Ok(()),
        }
        if all.tasks.is_empty() { self.keep(&all) } else { self.write(&all) }
    }

    /// Puts `tasks` on disk in place of those there.
    ///
    /// # Errors
    /// Where they cannot be written; what was there is still there.
    pub fn save_tasks(&self, tasks: &[Bound]) -> Result<(), StateError> {
        let mut all = self.load()?.unwrap_or_default();
        (all.schema, all.tasks) = (SCHEMA, tasks.to_vec());
        self.write(&all)
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Forgets a place that is not there any more.
    ///
    /// # Errors
    /// Where that cannot be written; what was there is still there.
    pub fn forget(&self, place: &Place) -> Result<(), StateError> {
        let Some(mut all) = self.load()? else { return Ok(()) };
        all.originals.retain(|original| original.place != *place);
        self.write(&all)
    }

    /// The same folder for a part of this process.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::shared(&self.folder)
    }

    /// Keeps only what could not be set back; without any, the file goes.
    ///
    /// # Errors
    /// Where it cannot be written or removed.
    pub fn keep(&self, all: &Originals) -> Result<(), StateError> {
        if !all.originals.is_empty() {
            return self.write(all);
        }
        let path = self.folder.join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StateError::Io { path, source }),
            Ok(()) => self.sync_folder(),
        }
    }

    fn write(&self, all: &Originals) -> Result<(), StateError> {
        let path = self.folder.join(FILE);
        let new = self.folder.join(NEW);
        let written = || {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&mut file, all)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        written().map_err(|source| StateError::Io { path: path.clone(), source })?;
        self.sync_folder()
    }

    fn sync_folder(&self) -> Result<(), StateError> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| StateError::Io { path: self.folder.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original(name: &str, found: &str) -> Original {
        Original {
            place: Place::File { path: name.to_owned() },
            found: found.to_owned(),
            safe: "max".to_owned(),
            leave: Leave::Restore,
        }
    }

    fn chip(found: &str) -> Original {
        let [chip, device, file] = ["nct6798", "nct6775.656", "pwm1_enable"].map(str::to_owned);
        Original { place: Place::Chip { chip, device, file }, ..original("", found) }
    }

    #[test]
    fn a_later_start_does_not_replace_what_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::take(folder.path()).unwrap();
        assert_eq!(state.load().unwrap(), None);
        state.save("a", vec![original("x", "1")]).unwrap();
        // Killed, started again: what it finds now is its own.
        let found = vec![original("x", "7"), original("y", "2")];
        let all = state.save("a", found).unwrap();
        assert_eq!(all.originals, [original("x", "1"), original("y", "2")]);
        assert_eq!(state.load().unwrap(), Some(all));
    }

    #[test]
    fn what_a_restart_has_reset_is_found_anew() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::take(folder.path()).unwrap();
        state.save("a", vec![original("x", "1"), chip("2")]).unwrap();
        let all = state.save("b", vec![original("x", "3"), chip("1")]).unwrap();
        assert_eq!(all.originals, [chip("2"), original("x", "3")]);
    }

    #[test]
    fn what_a_kill_left_half_written_goes() {
        let folder = tempfile::tempdir().unwrap();
        State::take(folder.path()).unwrap().save("a", vec![original("x", "1")]).unwrap();
        fs::write(folder.path().join(NEW), "{\"sche").unwrap();
        let state = State::take(folder.path()).unwrap();
        assert!(!folder.path().join(NEW).exists());
        assert_eq!(state.load().unwrap().unwrap().originals, [original("x", "1")]);
    }

    #[test]
    fn there_is_one_owner_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = State::take(folder.path()).unwrap();
        assert!(matches!(State::take(folder.path()), Err(StateError::Busy { .. })));
        drop(first);
        assert!(State::take(folder.path()).is_ok());
    }

    #[test]
    fn who_was_started_has_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::take(folder.path()).unwrap();
        let mut cat = std::process::Command::new("cat");
        let cat = cat.stdin(std::process::Stdio::piped());
        let mut child = state.shared_with(|| cat.spawn()).unwrap().unwrap();
        drop(state);
        assert!(matches!(State::take(folder.path()), Err(StateError::Busy { .. })));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(State::take(folder.path()).is_ok());
    }

    #[test]
    fn what_is_no_such_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::take(folder.path()).unwrap();
        for text in ["", "{", "{\"schema\":9,\"boot\":\"\",\"originals\":[]}", "[1]"] {
            fs::write(folder.path().join(FILE), text).unwrap();
            let error = state.save("a", vec![original("x", "1")]).unwrap_err().to_string();
            assert!(error.contains("originals.json: "), "{error}");
            assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), text);
        }
    }

    #[test]
    fn when_all_is_set_back_the_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::take(folder.path()).unwrap();
        let mut all = state.save("a", vec![original("x", "1"), original("y", "2")]).unwrap();
        all.originals.pop();
        state.keep(&all).unwrap();
        assert_eq!(state.load().unwrap(), Some(all.clone()));
        all.originals.clear();
        state.keep(&all).unwrap();
        state.keep(&all).unwrap();
        assert_eq!(state.load().unwrap(), None);
    }
}
