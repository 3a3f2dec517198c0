//! Small files of the kernel, under a root that is `/` on a server and a fixture in tests.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use ebb_policy::cpus::text as cpu_list;
use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::capability::Capability;
use crate::patience::Silence;

/// The most that is read of a file: `/proc/stat` of the largest machines has half of it.
pub(crate) const LONGEST: u64 = 4 << 20;

/// Why there is no value, or why one was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// The kernel has no such file: no such device, or no driver for it.
    #[error("{}: not there", .0.display())]
    Missing(PathBuf),
    /// We may not read it.
    #[error("{}: not permitted; {}", .0.display(), Capability::DacOverride.remedy())]
    Denied(PathBuf),
    /// The device has left while it was used, or what it is part of rests: a CPU that is offline.
    #[error("{}: not to be reached now: {error}", .path.display())]
    Away {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: String,
    },
    /// The driver or the device did not answer.
    #[error("{}: {error}", .path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: String,
    },
    /// Its file system is mounted read-only.
    #[error("{}: it is mounted read-only", .0.display())]
    ReadOnly(PathBuf),
    /// It has not answered yet.
    #[error("{}: {silence}", .path.display())]
    Silent {
        /// The device.
        path: PathBuf,
        /// For how long.
        silence: Silence,
    },
    /// What it says is not what it should be.
    #[error("{}: '{text}' is not {expected}", .path.display())]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// The start of what it says.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Absent {
    pub(crate) fn new(path: PathBuf, error: &io::Error) -> Self {
        if Errno::from_io_error(error) == Some(Errno::NODEV) {
            return Self::Away { path, error: error.to_string() };
        }
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::Missing(path),
            ErrorKind::PermissionDenied => Self::Denied(path),
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            _ => Self::Failed { path, error: error.to_string() },
        }
    }

    /// What to do about it, where the text does not say so.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        matches!(self, Self::ReadOnly(_)).then_some(READ_ONLY)
    }

    /// Whether there is nothing to ask now.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Away { .. })
    }
}

/// The kernel's files under a root.
#[derive(Debug, Clone)]
pub struct Sys {
    root: PathBuf,
    driver: Option<Driver>,
}

/// What a driver makes of a text that is written to a file: what the file says then, or why it is
/// not taken. On a copy of a machine's files, which takes everything by itself.
pub type Driver = fn(&Path, &str) -> io::Result<String>;

impl Default for Sys {
    fn default() -> Self {
        Self::new("/")
    }
}

const READ_ONLY: &str =
    "it is mounted read-only, as in most containers: run ebb on the host, or mount it read-write";

impl Sys {
    /// Those under `root`, which has folders `sys`, `proc` and `dev`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), driver: None }
    }

    /// The same with a driver behind its settings, for tests.
    #[must_use]
    pub fn driven(self, driver: Driver) -> Self {
        Self { driver: Some(driver), ..self }
    }

    pub(crate) fn driver(&self) -> Option<Driver> {
        self.driver.filter(|_| self.is_fixture())
    }

    /// Where `path`, such as `sys/class/hwmon`, is.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file without white space around it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn text(&self, path: impl AsRef<Path>) -> Result<String, Absent> {
        let path = self.path(path);
        let read = open(&path).and_then(read_text);
        read.map_err(|error| Absent::new(path, &error))
    }

    /// Writes `text` in one piece, as the kernel's files want it; none is made where there is none.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<(), Absent> {
        let path = self.path(path);
        // Truncated, for tests: a fixture keeps what is beyond the text, the kernel has no such.
        let opened = OpenOptions::new().write(true).truncate(true).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Absent::new(path, &error))
    }

    /// The number in a file.
    ///
    /// # Errors
    /// Why there is none.
    pub fn number<T: FromStr>(&self, path: impl AsRef<Path>) -> Result<T, Absent> {
        let text = self.text(&path)?;
        text.parse().map_err(|_| self.nonsense(path, &text, "a number"))
    }

    /// The CPUs in a file, such as `0-3,8`.
    ///
    /// # Errors
    /// Why there are none.
    pub fn cpus(&self, path: impl AsRef<Path>) -> Result<Vec<u16>, Absent> {
        let text = self.text(&path)?;
        cpus(&text).ok_or_else(|| self.nonsense(path, &text, "a list of CPUs"))
    }

    /// The CPUs that a task is bound to, ascending, online or not.
    ///
    /// # Errors
    /// Where there is no such task.
    pub(crate) fn bound(&self, task: &str) -> Result<Vec<u16>, Absent> {
        let path = format!("proc/{task}/status");
        let text = self.text(&path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.and_then(|list| cpus(list.trim()))
            .ok_or_else(|| self.nonsense(path, &text, "the status of a task"))
    }

    /// The CPUs that a task may run on at this very moment, ascending: of those that it is bound
    /// to, the ones that are online by now.
    ///
    /// # Errors
    /// Where there is no such task.
    pub(crate) fn affinity(&self, task: &str) -> Result<Vec<u16>, Absent> {
        if self.is_fixture() {
            let mut bound = self.bound(task)?;
            if let Ok(online) = self.cpus("sys/devices/system/cpu/online") {
                bound.retain(|cpu| online.contains(cpu));
            }
            return Ok(bound);
        }
        let set = sched_getaffinity(Some(self.task(task)?));
        let set = set
            .map_err(|error| Absent::new(self.path(format!("proc/{task}")), &task_error(error)))?;
        Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u16).collect())
    }

    /// Binds a task to `cpus`.
    ///
    /// # Errors
    /// Where there is none any more, or we may not.
    pub(crate) fn bind(&self, task: &str, cpus: &[u16]) -> Result<(), Absent> {
        if self.is_fixture() {
            let line = format!("Cpus_allowed_list:\t{}\n", cpu_list(cpus));
            return self.write(format!("proc/{task}/status"), &line);
        }
        let mut set = CpuSet::new();
        let within = cpus.iter().map(|cpu| usize::from(*cpu)).filter(|cpu| *cpu < CpuSet::MAX_CPU);
        within.for_each(|cpu| set.set(cpu));
        match sched_setaffinity(Some(self.task(task)?), &set) {
            Ok(()) => Ok(()),
            Err(Errno::PERM) => Err(Absent::Failed {
                path: self.path(format!("proc/{task}")),
                error: format!("not permitted; {}", Capability::SysNice.remedy()),
            }),
            Err(error) => Err(Absent::new(self.path(format!("proc/{task}")), &task_error(error))),
        }
    }

    /// Whether it is a copy of a machine's files.
    pub(crate) fn is_fixture(&self) -> bool {
        self.root != Path::new("/")
    }

    fn task(&self, number: &str) -> Result<Pid, Absent> {
        let pid = number.parse().ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| self.nonsense("proc", number, "a task"))
    }

    /// That `text` of `path` is not `expected`.
    pub(crate) fn nonsense(
        &self,
        path: impl AsRef<Path>,
        text: &str,
        expected: &'static str,
    ) -> Absent {
        let text = text.chars().take(40).collect();
        Absent::Nonsense { path: self.path(path), text, expected }
    }

    /// The names in a folder, those with numbers in them by number; none where it is not there.
    #[must_use]
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| by_number(name));
        names
    }

    /// The names of the folders in a folder, links left out.
    #[must_use]
    pub fn folders(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<_> =
            folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The names in a folder that are `prefix` and a number, by number.
    #[must_use]
    pub fn numbered(&self, path: impl AsRef<Path>, prefix: &str) -> Vec<String> {
        let is_one = |name: &String| {
            let number = name.strip_prefix(prefix);
            number.is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        self.names(path).into_iter().filter(is_one).collect()
    }

    /// Whether a file can be read and written at all.
    ///
    /// # Errors
    /// What it lacks.
    pub fn settable(&self, path: impl AsRef<Path>) -> Result<(), Absent> {
        let path = self.path(path);
        match path.metadata() {
            Ok(metadata) => settable(path, metadata.mode()),
            Err(error) => Err(Absent::new(path, &error)),
        }
    }

    /// Whether we may write to a file.
    #[must_use]
    pub fn is_writable(&self, path: impl AsRef<Path>) -> bool {
        access(self.path(path), Access::WRITE_OK) == Ok(())
    }

    /// What to do about a file that is not writable.
    #[must_use]
    pub fn remedy(&self, path: impl AsRef<Path>) -> String {
        if access(self.path(path), Access::WRITE_OK) == Err(Errno::ROFS) {
            return READ_ONLY.to_owned();
        }
        // Root is refused by the driver alone: it lets nobody write the file.
        Capability::DacOverride.remedy()
    }

    /// Whether a file is there, readable or not.
    #[must_use]
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        access(self.path(path), Access::EXISTS) != Err(Errno::NOENT)
    }

    /// The last part of what a link points to.
    #[must_use]
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }
}

/// Whether a file of this mode can be read and written at all. One without the bits of either is
/// refused to root as well (`kernfs_fop_open`).
pub(crate) fn settable(path: PathBuf, mode: u32) -> Result<(), Absent> {
    let error = match (mode & 0o444, mode & 0o222) {
        (0, _) => "can be written only: nobody could set it back, root included",
        (_, 0) => "can be read only: the driver lets nobody set it, root included",
        _ => return Ok(()),
    };
    Err(Absent::Failed { path, error: error.to_owned() })
}

/// Opens a regular file for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    open_plain(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

/// `file` where it is a regular one: what else there is, a pipe say, may keep its reader for ever.
pub(crate) fn open_plain(file: File) -> io::Result<File> {
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::other("not a regular file")),
    }
}

/// That a file has more than is read of one.
pub(crate) fn too_long() -> io::Error {
    io::Error::other(format!("longer than {LONGEST} bytes"))
}

/// The text of `file` without white space around it.
pub(crate) fn read_text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    if file.take(LONGEST + 1).read_to_end(&mut bytes)? as u64 > LONGEST {
        return Err(too_long());
    }
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// A task that has ended is one that is not there.
fn task_error(error: Errno) -> io::Error {
    if error == Errno::SRCH { ErrorKind::NotFound.into() } else { error.into() }
}

/// A name for sorting: digits by their value.
pub(crate) fn by_number(name: &str) -> (String, u64, String) {
    let at = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (prefix, rest) = name.split_at(at);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (prefix.to_owned(), rest[..end].parse().unwrap_or(u64::MAX), rest[end..].to_owned())
}

/// CPUs as the kernel writes them, such as `0-3,8`; `None` where the text is no such list.
#[must_use]
pub fn cpus(text: &str) -> Option<Vec<u16>> {
    ebb_policy::cpus::list(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_value_says_why() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("odd"), "12 apples\n").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let sys = Sys::new(folder.path());
        let says = |name: &str| sys.number::<u64>(name).unwrap_err().to_string();
        assert!(says("none").ends_with("/none: not there"), "{}", says("none"));
        assert!(says("odd").ends_with("/odd: '12 apples' is not a number"), "{}", says("odd"));
        assert!(says("folder").contains("/folder: Is a directory"), "{}", says("folder"));
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu2", "cpu0", "cpufreq", "cpuidle", "cpu", "cpu1x"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(Sys::new(folder.path()).numbered("", "cpu"), ["cpu0", "cpu2", "cpu10"]);
    }
}
