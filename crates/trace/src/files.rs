//! Files that are read: traces, and the text beside them.
//!
//! Nothing that is read may keep a program from ending: a pipe that nobody writes to, a device
//! without end. [`File::open`] and a plain `read` would.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// The longest text that describes a server, a workload, an experiment.
const MOST_TEXT: u64 = 16 << 20;
/// How long a pipe is waited for between two looks at whether to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

static ASKED: OnceLock<fn() -> bool> = OnceLock::new();

/// From now on reading fails once `asked` says that somebody wants the program to end.
pub fn stop_when(asked: fn() -> bool) {
    // Said twice, it is said.
    let _ = ASKED.set(asked);
}

/// Opens a file for [`Patient`] reading; a named pipe without waiting for its writer.
///
/// # Errors
/// What the system says.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Reads a file, however long that takes, until it is asked to stop.
#[derive(Debug)]
pub struct Patient(pub File);

impl Patient {
    /// Standard input.
    ///
    /// # Errors
    /// When it is closed.
    pub fn stdin() -> io::Result<Self> {
        Ok(Self(File::from(io::stdin().as_fd().try_clone_to_owned()?)))
    }
}

impl Read for Patient {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if ASKED.get().is_some_and(|asked| asked()) {
                return Err(io::Error::other("interrupted"));
            }
            let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut wanted, Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.0.read(to) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                read => return read,
            }
        }
    }
}

/// Opens a file beside a trace or a profile, such as a table: a regular file, or a pipe or device
/// of as much as a text may have.
///
/// # Errors
/// When it is a directory or cannot be opened.
pub fn open_beside(path: impl AsRef<Path>) -> io::Result<Box<dyn Read + Send>> {
    let file = open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory, not a file"));
    }
    let (is_file, file) = (kind.is_file(), Patient(file));
    Ok(match is_file {
        true => Box::new(file),
        false => Box::new(Limited { from: file, left: MOST_TEXT }),
    })
}

/// The text of a file: a configuration, a profile, a workload.
///
/// # Errors
/// When it cannot be read, is longer than 16 MiB or no UTF-8.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    let from = open_beside(path)?;
    Limited { from, left: MOST_TEXT }.read_to_string(&mut text)?;
    Ok(text)
}

/// Fails where there is more.
struct Limited<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let reason = "longer than 16 MiB: not a file of this kind";
            io::Error::new(io::ErrorKind::FileTooLarge, reason)
        })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn text_is_of_a_file_or_a_pipe_and_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, pipe, long, odd] =
            ["plain", "pipe", "long", "odd"].map(|name| folder.path().join(name));
        std::fs::write(&plain, "a = 1").unwrap();
        assert_eq!(text(&plain).unwrap(), "a = 1");
        File::create(&long).unwrap().set_len(1 << 40).unwrap();
        assert!(text(&long).unwrap_err().to_string().contains("longer than 16 MiB"));
        std::fs::write(&odd, b"\xff").unwrap();
        assert!(text(&odd).unwrap_err().to_string().contains("UTF-8"));
        assert!(text("/dev/zero").unwrap_err().to_string().contains("longer than 16 MiB"));
        assert_eq!(text("/dev/null").unwrap(), "");
        assert!(text(folder.path()).unwrap_err().to_string().contains("a directory"));
        // A writer that comes late and writes in pieces.
        mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                std::thread::sleep(std::time::Duration::from_millis(150));
                let mut to = OpenOptions::new().write(true).open(pipe).unwrap();
                to.write_all(b"b = ").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(150));
                to.write_all(b"2").unwrap();
            }
        });
        assert_eq!(text(&pipe).unwrap(), "b = 2");
        writer.join().unwrap();
    }
}
