//! What is replayed against: found, checked, opened.
//!
//! Nothing is written to what holds anything without the explicit word, and nothing at all to what
//! is in use. The word is the target's name, so that it cannot be said by habit.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, SeekFrom as Seeking, StatxFlags, fallocate, fcntl_getfl,
    fcntl_setfl, ioctl_blksszget, major, minor, seek, statvfs, statx,
};
use rustix::io::Errno;

use ebb_cli::{Unwritten, usage};
use ebb_host::{Claim, Sys, signature};
use ebb_policy::units::Bytes;

use super::content::{self, STAMP};

/// What a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A folder, in which a file is made.
    Folder,
    /// A regular file.
    File,
    /// A block device of this name, such as `sdb1`.
    Device(String),
}

/// A target that was looked at.
#[derive(Debug, Clone)]
pub struct Place {
    /// As given.
    pub given: PathBuf,
    /// Where links lead.
    path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Its size; of a folder, the room in it.
    pub bytes: u64,
}

/// How to open it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Bytes needed of a file that is made.
    pub bytes: u64,
    /// Whether anything is written.
    pub writes: bool,
    /// The explicit word.
    pub destroy: Option<&'a str>,
    /// Through the page cache.
    pub buffered: bool,
    /// Leave the file that is made.
    pub keep: bool,
}

/// A target ready for requests.
#[derive(Debug)]
pub struct Target {
    /// It.
    pub file: Arc<File>,
    /// Bytes of it.
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this.
    pub block: u64,
    /// Whether the page cache is out of the way.
    pub direct: bool,
    /// Whether it has just been made, and holds nothing that could be read.
    pub fresh: bool,
    /// The file that was made and is kept.
    pub kept: Option<PathBuf>,
    /// What people have to know of it.
    pub notes: Vec<String>,
}

impl Place {
    /// Looks at `given`.
    ///
    /// # Errors
    /// What is not there, or neither a file, a block device nor a folder.
    pub fn look(given: &Path, sys: &Sys) -> Result<Self> {
        let name = given.display();
        let wrong = |error: &io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "run as root, or name what you may read",
                _ => "name a file, a block device or a folder",
            };
            usage(format!("{name}: {error}; {remedy}"))
        };
        let path = given.canonicalize().map_err(|error| wrong(&error))?;
        let metadata = path.metadata().map_err(|error| wrong(&error))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            let room = statvfs(&path).context(format!("cannot ask for room in {name}"))?;
            let bytes = room.f_bavail.saturating_mul(room.f_frsize);
            return Ok(Self { given: given.into(), path, kind: Kind::Folder, bytes });
        }
        if kind.is_file() {
            let bytes = metadata.len();
            return Ok(Self { given: given.into(), path, kind: Kind::File, bytes });
        }
        if !kind.is_block_device() {
            return Err(usage(format!("{name} is neither a file, a block device nor a folder")));
        }
        let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
        let device = Claim::device(sys, major, minor).ok_or_else(|| {
            usage(format!("{name}: the kernel knows no block device {major}:{minor}; name another"))
        })?;
        let opened = File::open(&path).and_then(|mut file| file.seek(SeekFrom::End(0)));
        let bytes = opened.map_err(|error| wrong(&error))?;
        Ok(Self { given: given.into(), path, kind: Kind::Device(device), bytes })
    }

    /// What it is called in what is printed.
    pub fn name(&self) -> String {
        self.given.display().to_string()
    }

    /// Whether the name given leads elsewhere.
    fn link(&self) -> Option<String> {
        let is_link = self.given.symlink_metadata().is_ok_and(|given| given.is_symlink());
        is_link.then(|| format!("{} leads to {}", self.name(), self.path.display()))
    }

    /// Opens it; everything is checked before.
    ///
    /// # Errors
    /// What must not be written to, what is too small, what the system refuses.
    pub fn open(&self, wanted: &Wanted<'_>, sys: &Sys) -> Result<Target> {
        if let (Some(word), false) = (wanted.destroy, self.is_named(wanted.destroy)) {
            let (name, last) = (self.name(), self.last());
            return Err(usage(format!(
                "--destroy {word} names another target than {name}; if that is meant, write \
                 --destroy {last}"
            )));
        }
        let (file, fresh, kept) = match &self.kind {
            Kind::Folder => self.make(wanted)?,
            Kind::File => self.open_file(wanted, sys)?,
            Kind::Device(device) => (self.open_device(device, wanted, sys)?, false, None),
        };
        let mut notes: Vec<String> = self.link().into_iter().collect();
        let direct = !wanted.buffered && direct(&file);
        match (direct, wanted.buffered) {
            (true, _) => {}
            (false, true) => notes.push("through the page cache, as asked (--buffered)".to_owned()),
            (false, false) => notes.push(format!(
                "{}: no O_DIRECT here, so through the page cache: latencies may be the memory's",
                self.name()
            )),
        }
        let bytes = (&file).seek(SeekFrom::End(0))?;
        let block = if direct { block(&file) } else { 1 };
        Ok(Target { file: Arc::new(file), bytes, block, direct, fresh, kept, notes })
    }

    /// The last part of the path where links lead.
    fn last(&self) -> String {
        let last = self.path.file_name().unwrap_or(self.path.as_os_str());
        last.to_string_lossy().into_owned()
    }

    /// Whether the word names this target: itself, not a link to it.
    fn is_named(&self, word: Option<&str>) -> bool {
        word.is_some_and(|word| word == self.last() || Path::new(word) == self.path)
    }

    /// A file in the folder: without a name, so that it goes with the process however that ends,
    /// or with one, to be kept.
    fn make(&self, wanted: &Wanted<'_>) -> Result<(File, bool, Option<PathBuf>)> {
        let folder = self.name();
        if wanted.bytes > self.bytes / 20 * 19 {
            let (needed, room) = (Bytes(wanted.bytes), Bytes(self.bytes));
            return Err(usage(format!(
                "{folder}: the requests need a file of {needed}, there is room for {room}; use \
                 less with --size SIZE (and --beyond wrap for a trace), or name another folder"
            )));
        }
        let unwritten = || Unwritten(folder.clone());
        let (file, kept) = match wanted.keep {
            false => (tempfile::tempfile_in(&self.path).with_context(unwritten)?, None),
            true => {
                let path = self.path.join(format!("ebb-replay-{}.data", std::process::id()));
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
                (file.with_context(unwritten)?, Some(path))
            }
        };
        reserve(&file, wanted.bytes).with_context(unwritten)?;
        Ok((file, true, kept))
    }

    fn open_file(&self, wanted: &Wanted<'_>, sys: &Sys) -> Result<(File, bool, Option<PathBuf>)> {
        let name = self.name();
        let file = OpenOptions::new()
            .read(true)
            .write(wanted.writes)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&self.path)
            .map_err(|error| usage(format!("cannot open {name}: {error}")))?;
        if wanted.writes {
            let path = self.path.to_string_lossy();
            if let Some(user) = Claim::of_file(sys, &path) {
                return Err(usage(format!(
                    "{name} is {user}; stop that first, or name another file"
                )));
            }
            if file.try_lock().is_err() {
                let reason = "is locked by another program; stop that first";
                return Err(usage(format!("{name} {reason}")));
            }
            if !self.is_named(wanted.destroy) && !holds_nothing_foreign(&file)? {
                let last = self.last();
                return Err(usage(format!(
                    "{name} holds data that is not a replay's, which writes would destroy; name a \
                     folder to replay in a file of its own, or add --destroy {last}"
                )));
            }
        }
        let fresh = self.bytes == 0;
        if fresh && !wanted.writes {
            return Err(usage(format!(
                "{name} is empty: there is nothing to read; name a folder to read a file made there"
            )));
        }
        if fresh {
            reserve(&file, wanted.bytes).with_context(|| Unwritten(name))?;
        }
        Ok((file, fresh, None))
    }

    fn open_device(&self, device: &str, wanted: &Wanted<'_>, sys: &Sys) -> Result<File> {
        let name = self.name();
        if wanted.writes {
            let held = File::open(&self.path).and_then(|file| signature(&file, self.bytes));
            let held = held.map_err(|error| usage(format!("cannot read {name}: {error}")))?;
            let claims = Claim::found(sys, device);
            may_write(&name, device, &claims, held, self.link(), self.is_named(wanted.destroy))?;
        }
        // With O_EXCL the kernel refuses what is mounted or part of something else (open(2)).
        let exclusive = if wanted.writes { OFlags::EXCL } else { OFlags::empty() };
        let file = OpenOptions::new()
            .read(true)
            .write(wanted.writes)
            .custom_flags((OFlags::NOFOLLOW | exclusive).bits() as i32)
            .open(&self.path)
            .map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::BUSY) => usage(format!(
                    "{name} is in use by the kernel or another program; stop that first"
                )),
                _ => usage(format!("cannot open {name}: {error}")),
            })?;
        let (found, opened) = (self.path.metadata()?, file.metadata()?);
        if found.rdev() != opened.rdev() {
            return Err(usage(format!("{name} became another device meanwhile; try again")));
        }
        Ok(file)
    }
}

/// Whether a device may be written to.
///
/// # Errors
/// Names the device, the reason and the remedy.
fn may_write(
    name: &str,
    device: &str,
    claims: &[Claim],
    held: Option<&str>,
    link: Option<String>,
    named: bool,
) -> Result<()> {
    if let Some(claim) = claims.iter().find(|claim| claim.is_use()) {
        let remedy = claim.remedy();
        return Err(usage(format!("{name}: nothing is written to it: {claim}; {remedy}")));
    }
    if named {
        return Ok(());
    }
    let claim = claims.first().map(ToString::to_string);
    let held = held.map(|what| format!("/dev/{device} holds {what}"));
    let Some(reason) = held.or(claim).or(link) else { return Ok(()) };
    Err(usage(format!(
        "{name}: nothing is written to it: {reason}; name another device, or, if all of it may be \
         lost, add --destroy {device}"
    )))
}

/// Whether a file has no data at all, or that of an earlier replay.
fn holds_nothing_foreign(file: &File) -> io::Result<bool> {
    let at = match seek(file, Seeking::Data(0)) {
        Ok(at) => at,
        Err(Errno::NXIO) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let mut stamp = [0; STAMP];
    Ok(file.read_exact_at(&mut stamp, at).is_ok() && content::is_own(&stamp, at))
}

/// Room for `bytes`, so that a full disk is told before the replay.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        done => Ok(done?),
    }
}

/// Puts the page cache out of the way, where the file system lets us.
fn direct(file: &File) -> bool {
    fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT)).is_ok()
}

/// What direct I/O has to be aligned to; 4 KiB where nobody tells.
fn block(file: &File) -> u64 {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told = told.filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let told = told.map(|stat| stat.stx_dio_offset_align).filter(|align| *align > 0);
    let told = told.or_else(|| ioctl_blksszget(file).ok());
    told.map_or(content::BLOCK, u64::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn wanted(writes: bool, destroy: Option<&str>) -> Wanted<'_> {
        Wanted { bytes: 8192, writes, destroy, buffered: false, keep: false }
    }

    fn look(path: &Path) -> Place {
        Place::look(path, &Sys::default()).unwrap()
    }

    fn refused(place: &Place, wanted: &Wanted<'_>) -> String {
        place.open(wanted, &Sys::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_file_with_foreign_data_is_written_to_only_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let place = look(&path);
        let error = refused(&place, &wanted(true, None));
        assert!(error.contains("precious") && error.contains("--destroy precious"), "{error}");
        let error = refused(&place, &wanted(true, Some("other")));
        assert!(error.contains("names another target"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"data");
        for (writes, word) in [(false, None), (true, Some("precious")), (true, path.to_str())] {
            assert!(place.open(&wanted(writes, word), &Sys::default()).is_ok(), "{word:?}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"data", "opening alone changes nothing");
    }

    #[test]
    fn an_empty_a_sparse_and_an_own_file_may_be_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        assert!(refused(&look(&path), &wanted(false, None)).contains("is empty"));
        let target = look(&path).open(&wanted(true, None), &Sys::default()).unwrap();
        assert_eq!((target.fresh, target.bytes), (true, 8192), "made as long as needed");
        drop(target);
        let mut block = [7; 4096];
        content::stamp(&mut block, 4096);
        file.write_all_at(&block, 4096).unwrap();
        assert!(look(&path).open(&wanted(true, None), &Sys::default()).is_ok());
        file.write_all_at(b"x", 0).unwrap();
        assert!(refused(&look(&path), &wanted(true, None)).contains("not a replay's"));
    }

    #[test]
    fn a_file_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        file.lock().unwrap();
        assert!(refused(&look(&path), &wanted(true, None)).contains("locked by another"));
    }

    #[test]
    fn what_is_no_target_is_refused_and_links_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let look_at = |path: &str| Place::look(Path::new(path), &Sys::default());
        let error = look_at("/dev/null").unwrap_err().to_string();
        assert!(error.contains("/dev/null is neither"), "{error}");
        assert!(look_at("/no/such").unwrap_err().to_string().contains("name a file"));
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "data").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let target = look(&link).open(&wanted(false, None), &Sys::default()).unwrap();
        assert!(target.notes[0].ends_with("/file"), "{:?}", target.notes);
        // The word is what the link leads to.
        assert!(refused(&look(&link), &wanted(true, Some("link"))).contains("names another"));
    }

    #[test]
    fn a_file_in_a_folder_goes_unless_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let place = look(folder.path());
        let target = place.open(&wanted(true, None), &Sys::default()).unwrap();
        assert_eq!((target.bytes, target.fresh, count()), (8192, true, 0));
        let keep = Wanted { keep: true, ..wanted(true, None) };
        let kept = place.open(&keep, &Sys::default()).unwrap().kept.unwrap();
        assert!(kept.exists() && count() == 1);
        let huge = Wanted { bytes: u64::MAX, ..wanted(true, None) };
        assert!(refused(&place, &huge).contains("--size SIZE"));
    }

    #[test]
    fn devices_are_written_to_when_nobody_uses_them_and_they_are_blank_or_named() {
        let says = |claims: &[Claim], held, link: Option<&str>, named| {
            let link = link.map(str::to_owned);
            let told = may_write("/dev/x", "sdb", claims, held, link, named);
            told.map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        assert_eq!(says(&[], None, None, false), "");
        let xfs = says(&[], Some("an XFS file system"), None, false);
        assert!(xfs.contains("/dev/x") && xfs.contains("an XFS file system"), "{xfs}");
        assert!(xfs.contains("--destroy sdb"), "{xfs}");
        assert_eq!(says(&[], Some("an XFS file system"), None, true), "");
        let link = says(&[], None, Some("/dev/x leads to /dev/sdb"), false);
        assert!(link.contains("leads to /dev/sdb") && link.contains("--destroy sdb"), "{link}");
        let parts = [Claim::Partition { device: "sdb".into(), partition: "sdb1".into() }];
        assert!(says(&parts, None, None, false).contains("has partitions, such as /dev/sdb1"));
        assert_eq!(says(&parts, None, None, true), "");
        // No word helps against a use.
        let mounted = [Claim::Mounted { device: "sdb1".into(), at: "/srv".into() }];
        for named in [false, true] {
            let told = says(&mounted, None, None, named);
            assert!(told.contains("mounted at /srv") && told.contains("umount /srv"), "{told}");
        }
    }
}
