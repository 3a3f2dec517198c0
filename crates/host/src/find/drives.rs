//! Drives: who they are and what they did
//! (`Documentation/ABI/stable/sysfs-block`, `Documentation/admin-guide/iostats.rst`).

use std::collections::{BTreeMap, BTreeSet};

use ebb_policy::units::Nanos;

use crate::find::identity::{BLOCKS, Marks, is_drive, is_volume, transport, unplaced};
use crate::sys::{Absent, Sys};

/// One drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Its name today, such as `nvme0n1`.
    pub name: String,
    /// All block devices that it is: its namespaces or logical units, the paths of a disk that has
    /// several.
    pub devices: Vec<String>,
    /// How many devices it is to those who use it: namespaces and logical units, but not paths.
    pub namespaces: u32,
    /// The block devices that count what it does: its paths where it has several to choose from
    /// (SCSI, NVMe multipath), of which some kernels count nothing else (seen on Linux 6.1).
    pub counted: Vec<String>,
    /// What it is called, as no other drive that is there: model and serial number, or the
    /// world-wide name; `None` where it has neither.
    pub id: Option<String>,
    /// What it is saved as, whatever other drives are there: who it is, and where it is plugged in.
    /// One that is plugged in elsewhere is another one, but to `ebb restore`.
    pub saved: Option<String>,
    /// What it says of who and where it is.
    marks: Marks,
    /// Its model.
    pub model: String,
    /// Whether it is a hard disk.
    pub rotational: bool,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Whether it is a volume of a RAID controller: how many disks it has, nobody says.
    pub is_volume: bool,
    /// The controller of an NVMe namespace, such as `nvme0`.
    pub controller: Option<String>,
    /// How it is reached: an NVMe controller by `pcie`, `tcp`, `rdma`, `fc`, a SCSI disk by `usb`,
    /// `iscsi`, `fc`, where it is not a bus of the server; `virtual` of a guest's.
    pub transport: Option<String>,
}

impl Drive {
    /// All drives: whole devices with hardware behind them, no partitions, loops or arrays.
    #[must_use]
    pub fn found(sys: &Sys) -> Vec<Self> {
        let (paths, names): (Vec<_>, Vec<_>) =
            sys.names(BLOCKS).into_iter().partition(|name| head_of(name).is_some());
        let found = names.into_iter().filter_map(|name| Self::named(sys, name, &paths));
        together(found.collect())
    }

    /// One block device, with what it says of who it is.
    fn named(sys: &Sys, name: String, paths: &[String]) -> Option<(Self, Marks)> {
        let folder = format!("{BLOCKS}/{name}");
        if !is_drive(sys, &name) {
            return None;
        }
        let is_own = |path: &&String| head_of(path).as_ref() == Some(&name);
        let mut counted: Vec<_> = paths.iter().filter(is_own).cloned().collect();
        if counted.is_empty() {
            counted.push(name.clone());
        }
        let model = sys.text(format!("{folder}/device/model")).unwrap_or_default();
        let sectors: u64 = sys.number(format!("{folder}/size")).ok().filter(|size| *size > 0)?;
        // Sectors of 512 bytes, whatever the device's own are.
        let bytes = sectors.saturating_mul(512);
        let controller = sys.numbered(format!("{folder}/device"), "nvme").into_iter().next();
        let controller = controller.or_else(|| controller_of(&name));
        let transport = transport(sys, &name, controller.as_deref());
        // NVMe that the kernel offers to itself, from a drive that counts already.
        if transport.as_deref() == Some("loop") {
            return None;
        }
        let marks = Marks::found(sys, &name, controller.as_deref(), bytes);
        let id = marks.id(&model, controller.is_some());
        let mut drive = Self {
            saved: id.as_ref().map(|id| marks.at(id)),
            marks: marks.clone(),
            id,
            model,
            rotational: sys.number::<u8>(format!("{folder}/queue/rotational")).ok()? == 1,
            bytes,
            is_volume: is_volume(sys, &name),
            controller,
            transport,
            devices: vec![name.clone()],
            namespaces: 1,
            counted,
            name,
        };
        // What a guest is told of a virtual disk is the default, and none of it turns here.
        drive.rotational &= !drive.is_virtual();
        drive.is_volume &= !drive.is_remote() && !drive.is_virtual();
        Some((drive, marks))
    }

    /// Whether it is still this drive that has its name.
    pub(crate) fn is_there(&self, sys: &Sys) -> bool {
        let now = Self::named(sys, self.name.clone(), &[]);
        now.is_some_and(|(now, marks)| {
            now.id.is_some() && marks.say_as(&self.marks) && now.controller == self.controller
        })
    }

    /// Whether it may be what was saved as `name`, by all but where it is plugged in.
    fn may_be(&self, name: &str) -> bool {
        let own = [self.id.as_ref(), self.saved.as_ref(), self.marks.wwid.as_ref()];
        own.into_iter().flatten().any(|own| [name, unplaced(name)].contains(&unplaced(own)))
    }

    /// The file of its counters, the first of them where it has several.
    #[must_use]
    pub fn counters_file(&self) -> String {
        format!("{BLOCKS}/{}/stat", self.counted.first().unwrap_or(&self.name))
    }

    /// Whether it is reached over a network.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.transport.as_deref(), Some("tcp" | "rdma" | "fc" | "iscsi"))
    }

    /// Whether it is a hypervisor's: virtio, Xen, a virtual SCSI or ATA disk.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.transport.as_deref() == Some("virtual")
    }

    /// Whether it is on a bus of the server, SATA or SAS, and no disk on USB, iSCSI or Fibre
    /// Channel, which also are SCSI disks to the kernel.
    #[must_use]
    pub fn is_sata_or_sas(&self) -> bool {
        self.name.starts_with("sd") && self.transport.is_none()
    }

    /// The folder of its controller's device, of an NVMe drive.
    #[must_use]
    pub fn controller_folder(&self) -> Option<String> {
        Some(format!("sys/class/nvme/{}", self.controller.as_ref()?))
    }

    /// Where the kernel says whether it has stopped a hard disk.
    #[must_use]
    pub fn runtime_file(&self) -> Option<String> {
        self.rotational.then(|| format!("{BLOCKS}/{}/device/power/runtime_status", self.name))
    }

    /// Its counters.
    ///
    /// # Errors
    /// Why there are none.
    pub fn counters(&self, sys: &Sys) -> Result<Counters, Absent> {
        let mut sum = Counters::default();
        for name in &self.counted {
            let file = format!("{BLOCKS}/{name}/stat");
            let text = sys.text(&file)?;
            let counters = Counters::parse(text.split_whitespace());
            sum =
                sum.plus(&counters.ok_or_else(|| sys.nonsense(file, &text, "a line of counters"))?);
        }
        Ok(sum)
    }
}

/// Calls drives as they were saved that are plugged in elsewhere since, or that an earlier version
/// saved by less: where of the `names` that are not there one, and of the drives that have none of
/// the names one, can be meant. What two could be is neither.
pub(crate) fn recall<'a>(drives: &mut [Drive], names: impl IntoIterator<Item = &'a str>) {
    let names: BTreeSet<_> = names.into_iter().collect();
    let is = |drive: &Drive, name: &str| drive.saved.as_deref() == Some(name);
    let (there, lost): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| drives.iter().any(|drive| is(drive, name)));
    for name in &lost {
        let is_other = |other: &&&str| unplaced(other) == unplaced(name) && *other != name;
        let mut could = drives
            .iter_mut()
            .filter(|drive| drive.may_be(name) && !there.iter().any(|taken| is(drive, taken)));
        if let (Some(drive), None, None) = (could.next(), could.next(), lost.iter().find(is_other))
        {
            drive.saved = Some((*name).to_owned());
        }
    }
}

/// Another name for a drive that shares its own.
type Naming = fn(&str, &Drive, &Marks) -> Option<String>;

/// Puts together what is one drive: the namespaces of a controller, the logical units and the paths
/// of a disk. Two that are left with one name, for their maker gave them one serial number, get
/// their world-wide names, or are told apart by where they are.
fn together(found: Vec<(Drive, Marks)>) -> Vec<Drive> {
    let mut all: Vec<(Drive, Vec<Marks>)> = Vec::new();
    for (drive, marks) in found {
        let is_disk = drive.is_sata_or_sas() && !drive.is_volume;
        let is_namespace = |other: &Drive, its: &[Marks]| match &drive.controller {
            Some(_) => other.controller == drive.controller,
            None => is_disk && its.iter().any(|one| one.are_parts(&marks)),
        };
        let is_path = |known: &[Marks]| known.iter().any(|one| one.are_one(&marks));
        let one = all.iter().position(|(one, its)| is_path(its) || is_namespace(one, its));
        let Some((known, its)) = one.map(|at| &mut all[at]) else {
            all.push((drive, vec![marks]));
            continue;
        };
        if !is_path(its) {
            known.namespaces += drive.namespaces;
        }
        known.devices.extend(drive.devices);
        known.counted.extend(drive.counted);
        its.push(marks);
    }
    // By one pass after the other, until no two have one name.
    let names: [Naming; 3] = [
        |_, _, marks| marks.wwid.clone(),
        |id, _, marks| marks.address.as_ref().map(|address| format!("{id} at {address}")),
        |id, drive, _| Some(format!("{id} at {}", drive.name)),
    ];
    for name in names {
        let mut same = BTreeMap::<String, usize>::new();
        for id in all.iter().filter_map(|(drive, _)| drive.id.clone()) {
            *same.entry(id).or_default() += 1;
        }
        for (drive, marks) in &mut all {
            let new = drive
                .id
                .as_ref()
                .filter(|id| same[*id] > 1)
                .map(|id| name(id, drive, &marks[0]).unwrap_or_else(|| id.clone()));
            drive.id = new.or(drive.id.take());
        }
    }
    let mut all: Vec<_> = all.into_iter().map(|(drive, _)| drive).collect();
    for at in 0..all.len() {
        // Of those that do not even say where they are.
        let same = |other: &Drive| other.saved == all[at].saved;
        if all.iter().filter(|other| same(other)).count() > 1 {
            all[at].saved = all[at].id.clone();
        }
    }
    let ids: BTreeSet<_> = all.iter().filter_map(|drive| drive.id.as_ref()).collect();
    debug_assert_eq!(ids.len(), all.iter().filter(|drive| drive.id.is_some()).count());
    all
}

/// `nvme0n1` of its path `nvme0c2n1`; `None` of what is no path.
fn head_of(name: &str) -> Option<String> {
    let (subsystem, path) = name.strip_prefix("nvme")?.split_once('c')?;
    let (_, namespace) = path.split_once('n')?;
    Some(format!("nvme{subsystem}n{namespace}"))
}

/// `nvme0` of `nvme0n1`.
fn controller_of(name: &str) -> Option<String> {
    let number = name.strip_prefix("nvme")?.split_once('n')?.0;
    number.parse::<u32>().ok().map(|number| format!("nvme{number}"))
}

/// The field of what is under way.
const UNDER_WAY: usize = 8;

/// Requests under way; `None` of what the kernel says where its counter went below 0, as a number
/// of 32 bits or of 64, with a sign or without.
pub(crate) fn under_way(text: &str) -> Option<u64> {
    text.parse().ok().filter(|count| *count < 1 << 31)
}

/// What a drive did since it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that all reads took together.
    pub read_time: Nanos,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that all writes took together.
    pub write_time: Nanos,
    /// Requests under way; 0 where that was miscounted.
    pub in_flight: u64,
    /// Whether the kernel says of those what cannot be.
    pub miscounted: bool,
    /// Time with any request under way.
    pub busy: Nanos,
}

impl Counters {
    /// The fields of `/sys/block/*/stat`, or those of `/proc/diskstats` after the name; later
    /// kernels have more of them.
    pub(crate) fn parse<'a>(text: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut fields, mut miscounted, mut text) = ([0_u64; 10], false, text);
        for (at, field) in fields.iter_mut().enumerate() {
            let text = text.next()?;
            if at != UNDER_WAY {
                *field = text.parse().ok()?;
                continue;
            }
            text.parse::<i128>().ok()?;
            let counted = under_way(text);
            (*field, miscounted) = (counted.unwrap_or_default(), counted.is_none());
        }
        let time = |millis: u64| millis.checked_mul(1_000_000).map(Nanos);
        let [reads, _, read, read_ms, writes, _, written, write_ms, in_flight, busy_ms] = fields;
        Some(Self {
            reads,
            read_bytes: read.checked_mul(512)?,
            read_time: time(read_ms)?,
            writes,
            written_bytes: written.checked_mul(512)?,
            write_time: time(write_ms)?,
            in_flight,
            miscounted,
            busy: time(busy_ms)?,
        })
    }

    /// What two block devices of one drive did together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let time = |a: Nanos, b: Nanos| Nanos(a.0.saturating_add(b.0));
        Self {
            reads: self.reads.saturating_add(other.reads),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            read_time: time(self.read_time, other.read_time),
            writes: self.writes.saturating_add(other.writes),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
            write_time: time(self.write_time, other.write_time),
            in_flight: self.in_flight.saturating_add(other.in_flight),
            miscounted: self.miscounted || other.miscounted,
            busy: time(self.busy, other.busy),
        }
    }

    /// What it did since `before`; `None` where a counter went back: another drive took the name,
    /// or it was reset.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let time = |now: Nanos, then: Nanos| now.0.checked_sub(then.0).map(Nanos);
        Some(Self {
            reads: self.reads.checked_sub(before.reads)?,
            read_bytes: self.read_bytes.checked_sub(before.read_bytes)?,
            read_time: time(self.read_time, before.read_time)?,
            writes: self.writes.checked_sub(before.writes)?,
            written_bytes: self.written_bytes.checked_sub(before.written_bytes)?,
            write_time: time(self.write_time, before.write_time)?,
            in_flight: self.in_flight,
            miscounted: self.miscounted,
            busy: time(self.busy, before.busy)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counters_are_those_of_the_documentation() {
        let text = "  7 1 1024 12  9 2 4096 30  3  41 44 0 0 0 0 5 6";
        let counters = Counters::parse(text.split(' ').filter(|f| !f.is_empty())).unwrap();
        assert_eq!((counters.reads, counters.read_bytes), (7, 1024 * 512));
        assert_eq!((counters.writes, counters.written_bytes), (9, 4096 * 512));
        assert_eq!((counters.in_flight, counters.busy), (3, Nanos::from_millis(41)));
        for count in ["-1", "4294967295", "4294967290", "18446744073709551615"] {
            let counters =
                Counters::parse(text.replace("  3 ", &format!(" {count} ")).split_whitespace());
            let counters = counters.unwrap();
            assert_eq!((counters.in_flight, counters.miscounted), (0, true), "{count}");
            assert_eq!((counters.writes, counters.busy), (9, Nanos::from_millis(41)));
        }
        for wrong in [
            "",
            "1 2 3",
            "1 2 3 4 5 6 7 8 9 x",
            "1 2 3 4 5 6 7 8 -1 x",
            "1 2 3 4 5 6 -7 8 9 10",
            "1 2 99999999999999999999 4 5 6 7 8 9 10",
        ] {
            assert_eq!(Counters::parse(wrong.split_whitespace()), None, "{wrong}");
        }
    }

    #[test]
    fn a_path_belongs_to_its_head() {
        assert_eq!(head_of("nvme0c2n1").as_deref(), Some("nvme0n1"));
        assert_eq!(head_of("nvme10c0n12").as_deref(), Some("nvme10n12"));
        for other in ["nvme0n1", "sdc", "nvme0", "mmcblk0"] {
            assert_eq!(head_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_counter_that_goes_back_is_another_drive_s() {
        let before = Counters { reads: 10, writes: 5, ..Counters::default() };
        let after = Counters { reads: 12, writes: 4, ..Counters::default() };
        assert_eq!(after.since(&before), None);
        let after = Counters { writes: 6, in_flight: 2, ..after };
        assert_eq!(after.since(&before).map(|d| (d.reads, d.writes, d.in_flight)), Some((2, 1, 2)));
    }

    proptest! {
        #[test]
        fn no_line_panics(text in "[0-9 a-z\\-]{0,200}") {
            let _ = Counters::parse(text.split_whitespace());
        }
    }
}
