//! Who uses a block device: what has to be looked at before anything is written to one.

use std::fmt;

use crate::sys::Sys;

/// Where Linux has all block devices, partitions among them.
const ROOT: &str = "sys/class/block";

/// A use of a block device, or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is mounted.
    Mounted {
        /// The device or partition.
        device: String,
        /// Where.
        at: String,
    },
    /// It is swapped to.
    Swap {
        /// The device or partition.
        device: String,
    },
    /// It is part of another device: an array, a volume group, an encrypted device.
    Held {
        /// The device or partition.
        device: String,
        /// The other device.
        by: String,
    },
    /// It has partitions.
    Partition {
        /// The device.
        device: String,
        /// One of them.
        partition: String,
    },
}

impl Claim {
    /// Whether it is in use now; what merely holds data is not.
    #[must_use]
    pub fn is_use(&self) -> bool {
        !matches!(self, Self::Partition { .. })
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Mounted { at, .. } => format!("unmount it first: umount {at}"),
            Self::Swap { device } => format!("stop that first: swapoff /dev/{device}"),
            Self::Held { by, .. } => format!("stop /dev/{by} first, or name another device"),
            Self::Partition { .. } => "name another device, or the partition itself".to_owned(),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { device, at } => write!(f, "/dev/{device} is mounted at {at}"),
            Self::Swap { device } => write!(f, "/dev/{device} is used for swap"),
            Self::Held { device, by } => write!(f, "/dev/{device} is part of /dev/{by}"),
            Self::Partition { device, partition } => {
                write!(f, "/dev/{device} has partitions, such as /dev/{partition}")
            }
        }
    }
}

impl Claim {
    /// All uses of the block device `name`, such as `sda` or `nvme0n1p2`, and of its partitions.
    #[must_use]
    pub fn found(sys: &Sys, name: &str) -> Vec<Self> {
        let mounts = sys.text("proc/self/mountinfo").unwrap_or_default();
        let swaps = sys.text("proc/swaps").unwrap_or_default();
        let parts = partitions(sys, name);
        let mut claims = Vec::new();
        for device in std::iter::once(name).chain(parts.iter().map(String::as_str)) {
            let number = sys.text(format!("{ROOT}/{device}/dev")).ok();
            let at = mounts.lines().filter_map(|line| mounted(line, device, number.as_deref()));
            let device = || device.to_owned();
            claims.extend(at.map(|at| Self::Mounted { device: device(), at }));
            let is_swap = |line: &str| line.split_whitespace().next() == Some(&dev(&device()));
            claims.extend(swaps.lines().any(is_swap).then(|| Self::Swap { device: device() }));
            let holders = sys.names(format!("{ROOT}/{}/holders", device()));
            claims.extend(holders.into_iter().map(|by| Self::Held { device: device(), by }));
        }
        let first = parts.into_iter().next();
        claims
            .extend(first.map(|partition| Self::Partition { device: name.to_owned(), partition }));
        claims
    }

    /// What the file `path` is to the kernel, where it is more than a file.
    #[must_use]
    pub fn of_file(sys: &Sys, path: &str) -> Option<String> {
        let swaps = sys.text("proc/swaps").unwrap_or_default();
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(path)) {
            return Some("used for swap".to_owned());
        }
        let backs = |name: &String| {
            sys.text(format!("{ROOT}/{name}/loop/backing_file")).is_ok_and(|file| file == path)
        };
        let device = sys.names(ROOT).into_iter().find(backs)?;
        Some(format!("what /dev/{device} stands on"))
    }

    /// The block device with these numbers, such as `sda`; `None` where the kernel knows none.
    #[must_use]
    pub fn device(sys: &Sys, major: u32, minor: u32) -> Option<String> {
        let wanted = format!("{major}:{minor}");
        let is_it =
            |name: &String| sys.text(format!("{ROOT}/{name}/dev")).is_ok_and(|n| n == wanted);
        sys.names(ROOT).into_iter().find(is_it)
    }
}

fn dev(name: &str) -> String {
    format!("/dev/{name}")
}

fn partitions(sys: &Sys, name: &str) -> Vec<String> {
    let folder = format!("{ROOT}/{name}");
    // Its number; attributes of the device are files, and have no such thing below them.
    let is_one = |part: &String| sys.number::<u32>(format!("{folder}/{part}/partition")).is_ok();
    sys.names(&folder).into_iter().filter(is_one).collect()
}

/// Where a line of `/proc/self/mountinfo` (proc(5)) mounts the device. Btrfs and others have
/// numbers of their own there, so the source counts, too.
fn mounted(line: &str, device: &str, number: Option<&str>) -> Option<String> {
    let (mount, system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let (numbers, at) = (fields.next()?, fields.nth(1)?);
    let source = system.split(' ').nth(1);
    let is_it = Some(numbers) == number || source == Some(&dev(device));
    is_it.then(|| at.replace("\\040", " "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tree with `sdb` of two partitions and `sdc` without.
    fn tree() -> (tempfile::TempDir, Sys) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/class/block/sdb/dev", "8:16\n");
        write("sys/class/block/sdc/dev", "8:32\n");
        for (part, number) in [("sdb1", "8:17\n"), ("sdb2", "8:18\n")] {
            for root in ["sys/class/block/sdb/", "sys/class/block/"] {
                write(&format!("{root}{part}/partition"), "1\n");
                write(&format!("{root}{part}/dev"), number);
            }
        }
        write("proc/self/mountinfo", "22 1 253:0 / / rw - ext4 /dev/vda rw\n");
        write("proc/swaps", "Filename Type Size Used Priority\n");
        let sys = Sys::new(folder.path());
        (folder, sys)
    }

    #[test]
    fn a_device_that_nobody_uses_has_no_claim() {
        let (_folder, sys) = tree();
        assert_eq!(Claim::found(&sys, "sdc"), []);
        assert_eq!(Claim::device(&sys, 8, 18).as_deref(), Some("sdb2"));
        assert_eq!(Claim::device(&sys, 9, 18), None);
    }

    #[test]
    fn a_disk_with_partitions_says_so_and_a_partition_stands_alone() {
        let (_folder, sys) = tree();
        let claims = Claim::found(&sys, "sdb");
        assert!(matches!(&claims[..], [Claim::Partition { partition, .. }] if partition == "sdb1"));
        assert!(!claims[0].is_use());
        assert_eq!(Claim::found(&sys, "sdb1"), []);
    }

    #[test]
    fn mounts_are_found_by_number_and_by_source_on_the_disk_and_its_partitions() {
        let (folder, sys) = tree();
        let mounts = "22 1 253:0 / / rw - ext4 /dev/vda rw\n\
                      30 22 8:18 / /mnt/a\\040b rw shared:1 - xfs /dev/root rw\n\
                      31 22 0:40 /sub /srv rw - btrfs /dev/sdc rw\n";
        fs::write(folder.path().join("proc/self/mountinfo"), mounts).unwrap();
        let at = |device: &str, at: &str| Claim::Mounted { device: device.into(), at: at.into() };
        assert_eq!(Claim::found(&sys, "sdb2"), [at("sdb2", "/mnt/a b")]);
        assert_eq!(Claim::found(&sys, "sdb")[0], at("sdb2", "/mnt/a b"));
        assert_eq!(Claim::found(&sys, "sdb1"), []);
        assert_eq!(Claim::found(&sys, "sdc"), [at("sdc", "/srv")]);
        let claim = at("sdc", "/srv");
        assert!(claim.is_use() && claim.remedy().contains("umount /srv"));
    }

    #[test]
    fn files_that_the_kernel_uses_are_found() {
        let (folder, sys) = tree();
        fs::write(folder.path().join("proc/swaps"), "Filename\n/srv/swap file 1 0 -2\n").unwrap();
        let device = folder.path().join("sys/class/block/loop3/loop");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("backing_file"), "/srv/disk.img\n").unwrap();
        let of = |path: &str| Claim::of_file(&sys, path);
        assert_eq!(of("/srv/swap").as_deref(), Some("used for swap"));
        assert_eq!(of("/srv/disk.img").as_deref(), Some("what /dev/loop3 stands on"));
        assert_eq!(of("/srv/other"), None);
    }

    #[test]
    fn swap_and_holders_are_found() {
        let (folder, sys) = tree();
        fs::write(folder.path().join("proc/swaps"), "Filename\n/dev/sdb2 partition 1 0 -2\n")
            .unwrap();
        fs::create_dir_all(folder.path().join("sys/class/block/sdc/holders/md0")).unwrap();
        assert_eq!(Claim::found(&sys, "sdb2"), [Claim::Swap { device: "sdb2".into() }]);
        let claims = Claim::found(&sys, "sdc");
        assert_eq!(claims, [Claim::Held { device: "sdc".into(), by: "md0".into() }]);
        assert!(claims[0].is_use() && claims[0].to_string() == "/dev/sdc is part of /dev/md0");
    }
}
