//! A regular file or a block device, through io_uring.

use std::fs::{File, OpenOptions, TryLockError, remove_file};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_policy::units::Bytes;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, statx};
use rustix::io::{Errno, retry_on_intr};

use super::{Channel, Device, Error, Geometry, larger};

mod atomic;
mod channel;
mod errno;
mod kernel;
mod queue;
mod ring;

pub use channel::{FileChannel, Medium};
pub use kernel::{Call, Kernel};
pub use queue::{Answer, FileQueue};
use ring::Ring;

const REFUSED: &str = "io_uring is what file devices run on: allow it with \
     'sysctl kernel.io_uring_disabled=0' and in the container's seccomp profile";

/// What to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// Bytes to use from its start; all of it where absent.
    pub size: Option<u64>,
    /// Make a sparse file of `size` where there is none.
    pub create: bool,
    /// Take room on the disk for all of it, so that no write to it lacks any.
    pub allocate: bool,
    /// Bytes in a block.
    pub block_size: u32,
    /// Open it even if it is a member of an array, which writes to it destroy.
    pub overwrite: bool,
}

/// A file or block device, held by this process alone.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<File>,
    medium: Arc<Medium>,
    path: PathBuf,
    description: String,
    /// It was not there before.
    created: bool,
}

impl FileDevice {
    /// Opens it, past the page cache where the file system lets us.
    ///
    /// # Errors
    /// When it is missing, too small, in use, cannot be written, or io_uring is refused.
    pub fn open(options: &FileOptions) -> Result<Self, Error> {
        let created = options.create && !options.path.exists();
        if created {
            create(&options.path, options.size)?;
        }
        let opened = Self::open_existing(options);
        if created && opened.is_err() {
            let _ = remove_file(&options.path);
        }
        opened.map(|device| Self { created, ..device })
    }

    fn open_existing(options: &FileOptions) -> Result<Self, Error> {
        let path = &options.path;
        let (file, direct) = open(path)?;
        let block = options.block_size;
        let direct = direct && alignment(&file, path, block)?;
        let length = (&file).seek(SeekFrom::End(0)).map_err(Error::system(
            path,
            "cannot find its end",
            "is it a disk or a file?",
        ))?;
        let size = options.size.unwrap_or(length);
        if size > length || size < u64::from(block) {
            let (size, length) = (Bytes(size.max(block.into())), Bytes(length));
            let reason = format!("holds {length}, not {size}; make it longer or ask for less");
            return Err(Error::unfit(path, reason));
        }
        if options.allocate {
            allocate(&file, path, size)?;
        }
        let file = Arc::new(file);
        Ring::new(1, file.clone()).map_err(Error::system(
            path,
            "cannot set up io_uring",
            REFUSED,
        ))?;
        let geometry = Geometry { block_size: block, blocks: size / u64::from(block) };
        let torn = atomic::warning(block, atomic::unit(&file, Path::new(atomic::SYSFS)));
        let how = if direct { "O_DIRECT" } else { "through the page cache: no O_DIRECT here" };
        Ok(Self {
            file,
            medium: Arc::new(Medium::new(geometry)),
            path: path.clone(),
            description: format!("{}: io_uring, {how}{torn}", path.display()),
            created: false,
        })
    }

    /// The file, if opening it created it.
    pub(super) fn created(&self) -> Option<&Path> {
        self.created.then_some(&self.path)
    }
}

fn create(path: &Path, size: Option<u64>) -> Result<(), Error> {
    let Some(size) = size else {
        return Err(Error::unfit(path, "does not exist; say how large to create it with size=.."));
    };
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let fill = |file: File| {
        file.set_len(size)?;
        file.sync_all()?;
        // Its name, too, must survive a loss of power.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    let made = file.and_then(|file| fill(file).inspect_err(|_| _ = remove_file(path)));
    made.map_err(Error::system(path, "cannot create it", "choose a place that can be written"))
}

/// Gives the first `bytes` of a regular file room on the disk, where they have none; what they hold
/// stays. A loss of power may undo it, and the next opening does it again.
fn allocate(file: &File, path: &Path, bytes: u64) -> Result<(), Error> {
    let meta = file.metadata().map_err(Error::system(path, "cannot look at it", "try again"))?;
    if !meta.is_file() {
        return Ok(());
    }
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) if meta.blocks() * 512 >= bytes => Ok(()),
        Err(Errno::OPNOTSUPP) => {
            let reason = "is sparse, and its file system cannot allocate what it lacks; give a \
                          copy made by 'cp --sparse=never', or a new file of written zeros";
            Err(Error::unfit(path, reason))
        }
        Err(error) => {
            let (what, remedy) = ("cannot allocate all of it", "make room for it");
            Err(Error::system(path, what, remedy)(error.into()))
        }
    }
}

/// Locks the file for this process. A process that was killed holds its lock until the kernel has
/// ended the requests it left in its rings, so a lock that goes away by itself is waited for.
fn lock(file: &File, path: &Path) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                let reason = "is in use by another namespace or process; stop that first";
                return Err(Error::unfit(path, reason));
            }
            Err(TryLockError::Error(error)) => {
                let remedy = "use a file system that has locks";
                return Err(Error::system(path, "cannot lock it", remedy)(error));
            }
        }
    }
}

/// Opens and locks; tells whether the page cache is out of the way.
fn open(path: &Path) -> Result<(File, bool), Error> {
    let remedy = "give an existing file or block device that may be written, or add ',create'";
    let meta = std::fs::metadata(path).map_err(Error::system(path, "cannot find it", remedy))?;
    let device = meta.file_type().is_block_device();
    if !device && !meta.is_file() {
        return Err(Error::unfit(path, "is neither a file nor a block device"));
    }
    let open = |flags: OFlags| {
        // For a block device, O_EXCL fails while it is mounted or part of something else.
        let flags = flags | if device { OFlags::EXCL } else { OFlags::empty() };
        OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path)
    };
    let (file, direct) = match open(OFlags::DIRECT) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => (open(OFlags::empty()), false),
        file => (file, true),
    };
    let file = file.map_err(Error::system(path, "cannot open it for writing", remedy))?;
    lock(&file, path)?;
    Ok((file, direct))
}

/// Whether direct I/O of blocks of this size is possible at all.
fn alignment(file: &File, path: &Path, block: u32) -> Result<bool, Error> {
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(true); // Before Linux 6.1 nobody tells.
    };
    let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    if told && stat.stx_dio_offset_align > block {
        let least = Bytes(stat.stx_dio_offset_align.into());
        return Err(Error::unfit(path, format!("has blocks of {least}; add ',block={least}'")));
    }
    Ok(!told || stat.stx_dio_offset_align > 0)
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }
    fn describe(&self) -> String {
        self.description.clone()
    }
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let blocks = larger(geometry, bytes).map_err(|why| Error::unfit(&self.path, why))?;
        let fails = |what, remedy| Error::system(&self.path, what, remedy);
        let meta =
            self.file.metadata().map_err(fails("cannot look at it", "is it still there?"))?;
        let length = (&*self.file).seek(SeekFrom::End(0));
        let length = length.map_err(fails("cannot find its end", "is it a disk or a file?"))?;
        if length < bytes {
            if !meta.is_file() {
                let reason =
                    format!("holds {}, not {}; grow it first", Bytes(length), Bytes(bytes));
                return Err(Error::unfit(&self.path, reason));
            }
            let grown = self.file.set_len(bytes).and_then(|()| self.file.sync_all());
            grown.map_err(fails("cannot make it longer", "make room, or ask for less"))?;
        }
        self.medium.grow(blocks);
        Ok(())
    }
    fn open(&self) -> io::Result<Box<dyn Channel>> {
        let ring = Ring::new(channel::DEPTH, self.file.clone())?;
        Ok(Box::new(FileChannel::new(ring, self.medium.clone())))
    }
}
