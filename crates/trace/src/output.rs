//! Files that are written: whole or not at all, and never in place of something else.
//!
//! A regular file, or a new one, is made beside its name and takes the name when it is complete:
//! whatever goes wrong, what stood there before is still whole. Anything else by that name (a
//! device, a pipe, a symbolic link) is written through and stays what it is.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file being written; without [`OutputFile::finish`] a regular one does not appear.
pub struct OutputFile(Kind);

enum Kind {
    /// Beside its name, which it takes in the end.
    Whole { to: BufWriter<NamedTempFile>, name: PathBuf },
    /// Where it goes at once.
    Through(BufWriter<File>),
}

impl OutputFile {
    /// Opens `path` for writing.
    ///
    /// # Errors
    /// When it is a directory or cannot be opened, or nothing can be made in its folder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let before = match fs::symlink_metadata(path) {
            Ok(before) => Some(before),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if before.as_ref().is_some_and(|before| !before.is_file()) {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            return Ok(Self(Kind::Through(BufWriter::new(file))));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let made = tempfile::Builder::new()
            .prefix(".ebb-")
            .suffix(".partial")
            // Less the process's mask, as of any new file.
            .permissions(Permissions::from_mode(before.map_or(0o666, |before| before.mode())))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            // Without the temporary name, which says nothing to anybody.
            .map_err(|error| io::Error::from(error.kind()))?;
        Ok(Self(Kind::Whole { to: BufWriter::new(made), name: path.to_owned() }))
    }

    /// Standard output.
    ///
    /// # Errors
    /// When it is closed.
    pub fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self(Kind::Through(BufWriter::new(file))))
    }

    /// Ends the file: what was written is on disk, under its name.
    ///
    /// # Errors
    /// When something could not be written.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            Kind::Whole { to, name } => {
                let made = to.into_inner().map_err(io::IntoInnerError::into_error)?;
                made.as_file().sync_all()?;
                made.persist(name).map_err(|error| error.error)?;
                Ok(())
            }
            Kind::Through(mut to) => {
                to.flush()?;
                // Pipes and devices have nothing to synchronise, and say so by an error.
                if to.get_ref().metadata()?.is_file() { to.get_ref().sync_all() } else { Ok(()) }
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Whole { to, .. } => to.write(data),
            Kind::Through(to) => to.write(data),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Whole { to, .. } => to.flush(),
            Kind::Through(to) => to.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    fn put(path: &Path, text: &str) -> io::Result<()> {
        let mut file = OutputFile::create(path)?;
        file.write_all(text.as_bytes())?;
        file.finish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(name)
            .map(|name| name.into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        put(&path, "old").unwrap();
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        put(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["file"], "nothing half-written stays");
    }

    #[test]
    fn permissions_stay_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        put(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        put(&path, "new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn links_are_written_through_even_to_what_is_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        symlink("target", &link).unwrap();
        for text in ["first", "second and longer", "third"] {
            put(&link, text).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
        }
    }

    #[test]
    fn pipes_and_devices_stay_what_they_are() {
        use rustix::fs::{CWD, Mode, mkfifoat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        put(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        put(Path::new("/dev/null"), "gone").unwrap();
        assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = put(folder.path(), "text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
