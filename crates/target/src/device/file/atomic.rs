//! What a disk keeps whole when power goes while it writes.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{fstatvfs, major, minor};

/// Where Linux describes block devices, by number.
pub(super) const SYSFS: &str = "/sys/dev/block";

/// The most bytes, aligned, that the disk below `file` writes whole or not at all, where the
/// kernel knows: the disk's physical block (`physical_block_size` in the kernel's
/// `Documentation/ABI/stable/sysfs-block`; of NVMe the atomic write unit, too), and no more than
/// the file system keeps together.
pub(super) fn unit(file: &File, sysfs: &Path) -> Option<u64> {
    let meta = file.metadata().ok()?;
    let device = meta.file_type().is_block_device();
    let number = if device { meta.rdev() } else { meta.dev() };
    let folder = sysfs.join(format!("{}:{}", major(number), minor(number)));
    let physical = physical(&folder)?;
    let together = if device { u64::MAX } else { fstatvfs(file).ok()?.f_frsize };
    Some(physical.min(together))
}

/// Of a disk, or of the disk that a partition is on.
fn physical(folder: &Path) -> Option<u64> {
    let queues: [PathBuf; 2] = [folder.join("queue"), folder.join("../queue")];
    let text = |queue: &PathBuf| std::fs::read_to_string(queue.join("physical_block_size")).ok();
    queues.iter().find_map(text)?.trim().parse().ok()
}

/// What to tell people of blocks of this size.
pub(super) fn warning(block: u32, unit: Option<u64>) -> String {
    match unit {
        Some(unit) if unit >= block.into() => String::new(),
        Some(unit) => {
            format!("; a loss of power may tear its blocks: the disk writes {unit} B whole")
        }
        None => "; whether a loss of power may tear its blocks is not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_as_good_as_its_disk_and_a_file_as_its_file_system() {
        let sysfs = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert_eq!(unit(&file, sysfs.path()), None);
        let number = file.metadata().unwrap().dev();
        let place = sysfs.path().join(format!("{}:{}", major(number), minor(number)));
        let frsize = fstatvfs(&file).unwrap().f_frsize;
        let disk = place.parent().unwrap().join("queue");
        for (queue, size) in [(&disk, "512\n"), (&place.join("queue"), "1073741824\n")] {
            std::fs::create_dir_all(queue).unwrap();
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(queue.join("physical_block_size"), size).unwrap();
            assert_eq!(
                unit(&file, sysfs.path()),
                size.trim().parse().ok().map(|s: u64| s.min(frsize))
            );
        }
    }

    #[test]
    fn people_are_told_only_what_they_must_do_without() {
        assert_eq!(warning(4096, Some(4096)), "");
        assert!(warning(4096, Some(512)).contains("512 B"));
        assert!(warning(512, None).contains("not known"));
    }
}
