//! What comes and goes while Ebb runs: whether anything did, and which part is which when it is
//! back. A part is known by who it is, not by its name of today.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use crate::find::drives::Drive;
use crate::find::hwmon::{CHIPS, Chip};
use crate::find::identity::BLOCKS;
use crate::sys::Sys;

/// The CPUs that are online.
pub const ONLINE: &str = "sys/devices/system/cpu/online";

/// The folder of a chip that has gone: there is never one of this name.
const NOWHERE: &str = "sys/class/hwmon/gone";

/// What the kernel lists, in a few numbers: others as soon as anything comes, goes, is numbered
/// anew, or was away for a moment (the kernel gives each of its folders a number of its own).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Glance {
    /// CPUs online.
    pub cpus: u64,
    /// Block devices.
    pub drives: u64,
    /// Chips.
    pub chips: u64,
    /// Energy counters.
    pub zones: u64,
}

impl Glance {
    /// Of `sys`, now.
    #[must_use]
    pub fn of(sys: &Sys) -> Self {
        let mut cpus = DefaultHasher::new();
        sys.text(ONLINE).ok().hash(&mut cpus);
        Self {
            cpus: cpus.finish(),
            drives: listed(sys, BLOCKS),
            chips: listed(sys, CHIPS),
            zones: listed(sys, "sys/class/powercap"),
        }
    }
}

/// What is in a folder, in whatever order.
fn listed(sys: &Sys, folder: &str) -> u64 {
    let entries = std::fs::read_dir(sys.path(folder)).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let mut hasher = DefaultHasher::new();
        (entry.file_name(), entry.ino()).hash(&mut hasher);
        hasher.finish()
    };
    entries.map(one).fold(0, u64::wrapping_add)
}

/// What tells one coming of a device from the next, and from one under another name; 0 where it is
/// not there.
fn stamp(sys: &Sys, path: &str) -> u64 {
    let Ok(file) = std::fs::symlink_metadata(sys.path(path)) else { return 0 };
    let mut hasher = DefaultHasher::new();
    (path, file.ino()).hash(&mut hasher);
    hasher.finish().max(1)
}

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// It has left.
    Left,
    /// It is back.
    Back,
    /// It is there, but under another name, or it was away for a moment.
    Another,
}

/// A part that changed: which one of all, and how.
pub type Changed = (usize, Became);

/// What a part was, by its stamp, and is.
fn became(before: &mut u64, now: u64) -> Option<Became> {
    let before = std::mem::replace(before, now);
    match (before, now) {
        _ if before == now => None,
        (_, 0) => Some(Became::Left),
        (0, _) => Some(Became::Back),
        _ => Some(Became::Another),
    }
}

/// When each chip of a list came.
#[derive(Debug)]
pub struct Chips(Vec<u64>);

impl Chips {
    /// Of `chips`, which are there.
    #[must_use]
    pub fn new(sys: &Sys, chips: &[Chip]) -> Self {
        Self(chips.iter().map(|chip| stamp(sys, &chip.folder)).collect())
    }

    /// Brings `chips` up to date, each in its place: one that has gone measures and steers nothing,
    /// new ones come last.
    pub fn follow(&mut self, sys: &Sys, chips: &mut Vec<Chip>) -> Vec<Changed> {
        assert_eq!(self.0.len(), chips.len(), "one stamp for each chip");
        let mut now = Chip::found(sys);
        let mut changed = Vec::new();
        for (at, chip) in chips.iter_mut().enumerate() {
            let same = |one: &Chip| (&one.name, &one.device) == (&chip.name, &chip.device);
            // Of several that nothing tells apart, the one in its place.
            let found = now.iter().position(|one| same(one) && one.folder == chip.folder);
            *chip = match found.or_else(|| now.iter().position(same)) {
                Some(found) => now.remove(found),
                None => gone(chip),
            };
            changed.extend(became(&mut self.0[at], stamp(sys, &chip.folder)).map(|it| (at, it)));
        }
        self.0.extend(now.iter().map(|chip| stamp(sys, &chip.folder)));
        chips.extend(now);
        changed
    }
}

/// A chip without anything in it.
fn gone(chip: &Chip) -> Chip {
    Chip {
        folder: NOWHERE.to_owned(),
        name: chip.name.clone(),
        of: chip.of,
        device: chip.device.clone(),
        temperatures: Vec::new(),
        fans: Vec::new(),
        pwms: Vec::new(),
        powers: Vec::new(),
    }
}

/// Whether a file is one of a chip that has gone.
pub(crate) fn is_gone(path: &str) -> bool {
    path.starts_with(NOWHERE)
}

/// When each drive of a list came.
#[derive(Debug)]
pub struct Drives(Vec<u64>);

impl Drives {
    /// Of `drives`, which are there.
    #[must_use]
    pub fn new<'a>(sys: &Sys, drives: impl Iterator<Item = &'a Drive>) -> Self {
        Self(drives.map(|drive| Self::stamp(sys, drive)).collect())
    }

    fn stamp(sys: &Sys, drive: &Drive) -> u64 {
        stamp(sys, &format!("{BLOCKS}/{}", drive.name))
    }

    /// Brings one drive up to date with those that are there `now`.
    pub fn follow(
        &mut self,
        sys: &Sys,
        at: usize,
        drive: &mut Drive,
        now: &[Drive],
    ) -> Option<Became> {
        let found = now.iter().find(|one| is_same(one, drive));
        if let Some(found) = found {
            drive.clone_from(found);
        } else {
            (drive.controller, drive.counted) = (None, Vec::new());
        }
        became(&mut self.0[at], found.map_or(0, |drive| Self::stamp(sys, drive)))
    }

    /// Whether a drive is there.
    #[must_use]
    pub fn has(&self, at: usize) -> bool {
        self.0[at] != 0
    }
}

/// Whether two are one drive: by what it is saved as, else, where that is not known, by its name.
pub fn is_same(one: &Drive, other: &Drive) -> bool {
    one.saved == other.saved && (one.saved.is_some() || one.name == other.name)
}
