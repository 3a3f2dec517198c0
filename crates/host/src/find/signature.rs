//! What a disk or image holds, by the marks that file systems, arrays and partition tables leave
//! on it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A mark at a fixed place: where from the start, its bytes, whose it is. From the formats' own
/// definitions in the kernel (`include/uapi/linux/magic.h` and the file systems' headers), UEFI
/// 2.10 section 5.3 for GPT, and the on-disk descriptions of LUKS, LVM2, ZFS and APFS.
const MARKS: [(u64, &[u8], &str); 36] = [
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT1", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    (0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "bcachefs"),
    (0x1_0034, b"ReIsEr", "a ReiserFS file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (0x1_0000, b"\x01\x16\x19\x70", "a GFS2 file system"),
    (0x2000, b"OCFSV2", "an OCFS2 file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (0, b"hsqs", "a squashfs file system"),
    (0x400, b"H+", "an HFS+ file system"),
    (0x400, b"HX", "an HFS+ file system"),
    (32, b"NXSB", "an APFS container"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0x8001, b"BEA01", "a UDF file system"),
    (4096 - 10, b"SWAPSPACE2", "swap space"),
    (4096 - 10, b"SWAP-SPACE", "swap space"),
    (16_384 - 10, b"SWAPSPACE2", "swap space"),
    (65_536 - 10, b"SWAPSPACE2", "swap space"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0x4000, b"SKUL\xba\xbe", "an encrypted volume (LUKS)"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a Linux array (md)"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux array (md)"),
    (0, b"bluestore block device", "a Ceph OSD"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
];
/// The same from the end.
const LAST_MARKS: [(u64, &[u8], &str); 4] = [
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (1024, b"Intel Raid ISM Cfg Sig. ", "a member of an Intel array"),
    (512, b"\xde\x11\xde\x11", "a member of a DDF array"),
];
/// Of ZFS: uberblocks from 128 KiB to 256 KiB, one at least each KiB, of either byte order.
const ZFS: [&[u8]; 2] = [b"\x0c\xb1\xba\x00\0\0\0\0", b"\0\0\0\0\x00\xba\xb1\x0c"];
const ZFS_AT: std::ops::Range<u64> = 128 << 10..256 << 10;
/// Of a boot sector or a partition table of the old kind; looked for last, since others have it.
const BOOT: (u64, &[u8], &str) = (510, b"\x55\xaa", "a partition table or boot sector");
/// What is looked through for other data, at either end.
const EDGE: usize = 1 << 20;

/// What `device`, of `bytes`, holds: `None` where its first and last MiB are nothing but zeros.
///
/// # Errors
/// When it cannot be read.
pub fn signature(device: &File, bytes: u64) -> io::Result<Option<&'static str>> {
    let head = read(device, 0, bytes.min(EDGE as u64))?;
    let from = bytes.saturating_sub(EDGE as u64);
    let tail = read(device, from, bytes - from)?;
    if head.iter().chain(&tail).all(|byte| *byte == 0) {
        return Ok(None);
    }
    let first = |marks: &[(u64, &[u8], &'static str)]| {
        let is_there = |(at, mark, _): &&(u64, &[u8], &'static str)| {
            head.get(*at as usize..).is_some_and(|rest| rest.starts_with(mark))
        };
        marks.iter().find(is_there).map(|(_, _, what)| *what)
    };
    let last = || {
        let is_there = |(back, mark, _): &&(u64, &[u8], &'static str)| {
            let at = tail.len().checked_sub(*back as usize);
            at.is_some_and(|at| tail[at..].starts_with(mark))
        };
        LAST_MARKS.iter().find(is_there).map(|(_, _, what)| *what)
    };
    let zfs = || {
        let uberblocks = ZFS_AT.step_by(1024).filter_map(|at| head.get(at as usize..));
        let mut uberblocks =
            uberblocks.filter(|rest| ZFS.iter().any(|mark| rest.starts_with(mark)));
        uberblocks.next().map(|_| "a member of a ZFS pool")
    };
    let found = first(&MARKS).or_else(zfs).or_else(|| md_at_end(&tail, bytes)).or_else(last);
    Ok(found.or_else(|| first(&[BOOT])).or(Some("data of an unknown kind")))
}

/// Linux arrays with their superblock at the end: version 0.90 in the last whole 64 KiB but one,
/// 1.0 at least 8 KiB from the end on a 4 KiB boundary (md(4)).
fn md_at_end(tail: &[u8], bytes: u64) -> Option<&'static str> {
    let old = (bytes & !0xffff).checked_sub(0x1_0000);
    let new = bytes.checked_sub(0x2000).map(|at| at & !0xfff);
    let start = bytes - tail.len() as u64;
    let is_there = |at: u64| {
        let at = at.checked_sub(start).map(|at| at as usize);
        at.and_then(|at| tail.get(at..)).is_some_and(|rest| rest.starts_with(b"\xfc\x4e\x2b\xa9"))
    };
    let found = old.into_iter().chain(new).any(is_there);
    found.then_some("a member of a Linux array (md)")
}

fn read(device: &File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    device.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 8 << 20;

    fn image(at: u64, mark: &[u8]) -> Option<&'static str> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(mark, at).unwrap();
        signature(&file, SIZE).unwrap()
    }

    #[test]
    fn every_mark_is_found_where_it_belongs() {
        for (at, mark, what) in MARKS.iter().chain([&BOOT]) {
            assert_eq!(image(*at, mark), Some(*what), "{at}");
        }
        for (back, mark, what) in LAST_MARKS {
            assert_eq!(image(SIZE - back, mark), Some(what));
        }
        for mark in ZFS {
            assert_eq!(image(130 << 10, mark), Some("a member of a ZFS pool"));
        }
        for at in [SIZE - 0x2000, SIZE - 0x1_0000] {
            assert_eq!(image(at, b"\xfc\x4e\x2b\xa9"), Some("a member of a Linux array (md)"));
        }
    }

    #[test]
    fn zeros_are_nothing_and_anything_else_is_something() {
        assert_eq!(image(0, b""), None);
        assert_eq!(image(100_000, b"x"), Some("data of an unknown kind"));
        assert_eq!(image(SIZE - 1, b"x"), Some("data of an unknown kind"));
        let small = tempfile::tempfile().unwrap();
        small.write_all_at(b"x", 3).unwrap();
        assert_eq!(signature(&small, 4).unwrap(), Some("data of an unknown kind"));
        assert_eq!(signature(&small, 3).unwrap(), None);
        assert!(signature(&small, 4096).is_err(), "shorter than it should be");
    }
}
