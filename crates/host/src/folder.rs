//! One folder of the kernel, held open: what is read and written in it stays in it, whatever names
//! and links say, and stays with the device, whatever is numbered anew meanwhile.
//!
//! Only links that the kernel itself has made (`/sys/class`, `/sys/block`) are followed, once, when
//! the folder is opened. From there on no link is followed and no `..` is taken.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2};
use rustix::io::Errno;

use crate::sys::{Absent, Driver, Sys, open_plain, read_text, settable};

/// Where folders with settings are, below the root. On a machine the last two have links alone; a
/// copy of its files may have folders there.
const ROOTS: [&str; 4] = ["sys/devices", "sys/fs/cgroup", "sys/class", "sys/block"];

/// Types of the file systems that settings are in (`include/uapi/linux/magic.h`): sysfs, cgroup2.
const KERNELS: [u64; 2] = [0x6265_6572, 0x6367_7270];

/// Files are opened so: a link is no file, and a pipe keeps nobody.
const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A folder that is held open.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
    driver: Option<Driver>,
}

impl Folder {
    /// The folder `path` below the root of `sys`.
    ///
    /// # Errors
    /// Where there is none, or it is not one that settings can be in.
    pub fn open(sys: &Sys, path: &str) -> Result<Self, Absent> {
        let named = sys.path(path);
        let failed = |error: io::Error| Absent::new(named.clone(), &error);
        let refused = |error: String| Absent::Failed {
            path: named.clone(),
            error: format!("refused: {error}"),
        };
        let root = fs::canonicalize(sys.path("")).map_err(failed)?;
        let real = fs::canonicalize(&named).map_err(failed)?;
        let below = real
            .strip_prefix(&root)
            .ok()
            .filter(|below| ROOTS.iter().any(|root| below.starts_with(root)));
        let Some(below) = below else {
            return Err(refused(format!("it leads to {}", real.display())));
        };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, &root, folder, Mode::empty()).map_err(|error| failed(error.into()))?;
        let fd = beneath(fd.as_fd(), below, OFlags::DIRECTORY | OFlags::CLOEXEC);
        let fd = fd.map_err(|error| failed(error.into()))?;
        if !sys.is_fixture() {
            let kind = fstatfs(&fd).map_err(|error| failed(error.into()))?.f_type as u64;
            if !KERNELS.contains(&kind) {
                return Err(refused("it is neither in sysfs nor in cgroup2".to_owned()));
            }
        }
        Ok(Self { fd, path: named, driver: sys.driver() })
    }

    /// Whether `path` below the root of `sys` leads here now.
    #[must_use]
    pub fn is_at(&self, sys: &Sys, path: &str) -> bool {
        let (Ok(here), Ok(there)) = (fstat(&self.fd), rustix::fs::stat(sys.path(path))) else {
            return false;
        };
        (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    }

    /// The text of `file`, without white space around it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn text(&self, file: &str) -> Result<String, Absent> {
        let opened = self.file(file, OFlags::RDONLY)?;
        read_text(opened).map_err(|error| self.absent(file, &error))
    }

    /// Writes `text` in one piece, as the kernel's files want it; none is made where there is none.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&self, file: &str, text: &str) -> Result<(), Absent> {
        let driven = self.driver.map(|driver| driver(&self.path.join(file), text));
        let driven = driven.transpose().map_err(|error| self.absent(file, &error))?;
        let text = driven.as_deref().unwrap_or(text);
        // Truncated, for tests: a fixture keeps what is beyond the text, the kernel has no such.
        let mut opened = self.file(file, OFlags::WRONLY | OFlags::TRUNC)?;
        opened.write_all(text.as_bytes()).map_err(|error| self.absent(file, &error))
    }

    /// Whether `file` can be read and written at all.
    ///
    /// # Errors
    /// What it lacks.
    pub fn settable(&self, file: &str) -> Result<(), Absent> {
        let opened = beneath(self.fd.as_fd(), Path::new(file), OFlags::PATH | OFlags::CLOEXEC);
        match opened.and_then(fstat) {
            Ok(stat) => settable(self.path.join(file), stat.st_mode),
            Err(error) => Err(self.absent(file, &error.into())),
        }
    }

    /// Whether `file` is there, readable or not.
    #[must_use]
    pub fn has(&self, file: &str) -> bool {
        beneath(self.fd.as_fd(), Path::new(file), OFlags::PATH | OFlags::CLOEXEC).is_ok()
    }

    fn file(&self, file: &str, how: OFlags) -> Result<File, Absent> {
        let opened = beneath(self.fd.as_fd(), Path::new(file), how | PLAIN);
        let opened = opened.map_err(io::Error::from).and_then(|fd| open_plain(fd.into()));
        opened.map_err(|error| self.absent(file, &error))
    }

    /// Why `file` of it has no value, or did not take one.
    fn absent(&self, file: &str, error: &io::Error) -> Absent {
        Absent::new(self.path.join(file), error)
    }
}

/// Opens `path` beneath `folder`, without following a link.
fn beneath(folder: BorrowedFd, path: &Path, how: OFlags) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(folder, path, how, Mode::empty(), within) {
        // Not before Linux 5.6, nor where a sandbox does not know it.
        Err(Errno::NOSYS | Errno::PERM) => walked(folder, path, how),
        opened => opened,
    }
}

/// The same, one folder after the other.
fn walked(folder: BorrowedFd, path: &Path, how: OFlags) -> Result<OwnedFd, Errno> {
    let steps: Vec<_> = path.components().collect();
    if !steps.iter().all(|step| matches!(step, Component::Normal(_))) {
        return Err(Errno::XDEV);
    }
    let Some((last, folders)) = steps.split_last() else { return Err(Errno::NOENT) };
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for step in folders {
        let here = at.as_ref().map_or(folder, AsFd::as_fd);
        at = Some(openat(here, step.as_os_str(), through, Mode::empty())?);
    }
    let here = at.as_ref().map_or(folder, AsFd::as_fd);
    openat(here, last.as_os_str(), how | OFlags::NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A chip as the kernel has it, with links inside that lead out.
    fn tree() -> (tempfile::TempDir, Sys) {
        let root = tempfile::tempdir().unwrap();
        let chip = root.path().join("sys/devices/platform/nct6775.656/hwmon/hwmon3");
        fs::create_dir_all(&chip).unwrap();
        fs::create_dir_all(root.path().join("sys/class/hwmon")).unwrap();
        fs::write(root.path().join("secret"), "keep").unwrap();
        fs::write(chip.join("pwm1"), "120\n").unwrap();
        symlink("../../../../../../secret", chip.join("pwm2")).unwrap();
        symlink("../../nct6775.656", chip.join("device")).unwrap();
        symlink(
            "../../devices/platform/nct6775.656/hwmon/hwmon3",
            root.path().join("sys/class/hwmon/hwmon3"),
        )
        .unwrap();
        let sys = Sys::new(root.path());
        (root, sys)
    }

    #[test]
    fn what_is_in_it_is_read_and_written_and_nothing_else() {
        let (root, sys) = tree();
        let chip = Folder::open(&sys, "sys/class/hwmon/hwmon3").unwrap();
        chip.write("pwm1", "77").unwrap();
        assert_eq!(chip.text("pwm1").as_deref(), Ok("77"));
        for out in ["pwm2", "../../../../../../secret", "/secret", "device/hwmon/hwmon3/pwm1", ""] {
            assert!(chip.write(out, "OVERWRITTEN").is_err(), "{out}");
            assert!(chip.text(out).is_err(), "{out}");
        }
        assert_eq!(fs::read_to_string(root.path().join("secret")).unwrap(), "keep");
    }

    #[test]
    fn old_kernels_are_walked_through_and_confine_the_same() {
        let (_root, sys) = tree();
        let chip = Folder::open(&sys, "sys/class/hwmon/hwmon3").unwrap();
        let opens = |path: &str| walked(chip.fd.as_fd(), Path::new(path), OFlags::RDONLY).is_ok();
        assert!(opens("pwm1"));
        for out in ["pwm2", "../hwmon3/pwm1", "/etc/hostname", "device/hwmon/hwmon3/pwm1", "", "."]
        {
            assert!(!opens(out), "{out}");
        }
    }

    #[test]
    fn folders_that_no_setting_is_in_are_refused() {
        let (root, sys) = tree();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        symlink("../../etc", root.path().join("sys/class/out")).unwrap();
        symlink("/etc", root.path().join("sys/class/far")).unwrap();
        for out in ["etc", "sys/class/out", "sys/class/far", "sys/../etc", "/etc", "sys"] {
            let error = Folder::open(&sys, out).unwrap_err().to_string();
            assert!(error.contains("refused"), "{out}: {error}");
        }
        assert!(matches!(Folder::open(&sys, "sys/class/none"), Err(Absent::Missing(_))));
        // On a machine only the kernel's own file systems will do.
        assert!(Folder::open(&Sys::default(), "sys/class").is_ok());
    }

    #[test]
    fn a_pipe_and_a_file_without_end_keep_nobody() {
        let (root, sys) = tree();
        let chip = Folder::open(&sys, "sys/class/hwmon/hwmon3").unwrap();
        let path = root.path().join("sys/class/hwmon/hwmon3/pwm4");
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
        assert!(chip.text("pwm4").is_err() && sys.text("sys/class/hwmon/hwmon3/pwm4").is_err());
        fs::File::create(path.with_file_name("pwm5")).unwrap().set_len(1 << 40).unwrap();
        assert!(chip.text("pwm5").unwrap_err().to_string().contains("longer than"));
    }

    #[test]
    fn it_stays_with_its_device() {
        let (root, sys) = tree();
        let (class, name) = ("sys/class/hwmon/hwmon3", "sys/devices/platform/nct6775.656/hwmon/");
        let chip = Folder::open(&sys, class).unwrap();
        assert!(chip.is_at(&sys, class));
        let path = |number: u8| root.path().join(format!("{name}hwmon{number}"));
        fs::rename(path(3), path(9)).unwrap();
        fs::create_dir_all(path(3)).unwrap();
        fs::write(path(3).join("pwm1"), "200").unwrap();
        assert!(!chip.is_at(&sys, class));
        chip.write("pwm1", "5").unwrap();
        assert_eq!(fs::read_to_string(path(3).join("pwm1")).unwrap(), "200");
    }
}
