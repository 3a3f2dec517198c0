//! Which block devices are drives of this server, and which of them are one and the same drive.

use crate::sys::Sys;

/// Where Linux has its block devices.
pub const BLOCKS: &str = "sys/block";

/// SCSI device types that are disks: direct access, simplified, host-managed zones (SPC-6).
const DISKS: [u8; 3] = [0, 14, 20];
/// Block devices that are no drives, or parts of one: optical, floppy, flash of the board, memory.
const NO_DRIVES: [&str; 5] = ["sr", "scd", "fd", "mtdblock", "pmem"];
/// Whose media a management controller offers from elsewhere, as a disk on USB.
const VIRTUAL: [&str; 6] = ["ami", "aten", "idrac", "insyde", "peppercon", "openbmc"];

/// Whether a block device is a drive: with hardware behind it, and no medium that is put in and
/// taken out or that a management controller pretends.
pub(crate) fn is_drive(sys: &Sys, name: &str) -> bool {
    let text = |file: &str| {
        let text = sys.text(format!("{BLOCKS}/{name}/{file}"));
        text.unwrap_or_default().to_ascii_lowercase()
    };
    let (vendor, model) = (text("device/vendor"), text("device/model"));
    let kind = text("device/type");
    // An SD card is one, an eMMC is none.
    let is_disk = kind != "sd" && kind.parse().map_or(true, |kind: u8| DISKS.contains(&kind));
    // Ports that the firmware calls external make disks of libata removable (ata_scsiop_inq_std).
    let is_removable = text("removable") == "1" && vendor != "ata";
    // A worn-out NVMe drive can only be read, and is one still.
    let is_medium = text("ro") == "1" && !name.starts_with("nvme");
    let target = std::fs::read_link(sys.path(format!("{BLOCKS}/{name}"))).unwrap_or_default();
    let is_usb = target.to_string_lossy().contains("/usb");
    let is_virtual = model.contains("virtual") && (is_usb || VIRTUAL.contains(&&*vendor))
        || model.contains("gadget");
    // The boot areas of an eMMC are in it.
    let is_part = name.starts_with("mmcblk") && (name.contains("boot") || name.contains("rpmb"));
    let numbered = |kind: &str| {
        name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    has_hardware(sys, name)
        && is_disk
        && !(is_removable || is_medium || is_virtual || is_part)
        && !NO_DRIVES.iter().any(|kind| numbered(kind))
}

/// What volumes of RAID controllers say of their vendor, which is then no maker of disks.
const CONTROLLERS: [&str; 9] =
    ["LSI", "AVAGO", "BROADCOM", "Adaptec", "ASR", "Areca", "3ware", "AMCC", "Promise"];
/// Words in what they say of their model.
const VOLUMES: [&str; 5] = [" PERC", "RAID", " LOGICAL VOLUME", " DELLBOSS", " MR9"];

/// Whether a SCSI disk is a volume of a RAID controller and no disk: by the level that the driver
/// tells (`hpsa`, `smartpqi`), else by vendor and model.
pub(crate) fn is_volume(sys: &Sys, name: &str) -> bool {
    let text = |file: &str| sys.text(format!("{BLOCKS}/{name}/device/{file}")).ok();
    if let Some(level) = text("raid_level") {
        return level != "N/A";
    }
    let vendor = text("vendor").unwrap_or_default();
    let model = format!(" {}", text("model").unwrap_or_default().to_ascii_uppercase());
    name.starts_with("sd")
        && (CONTROLLERS.iter().any(|one| vendor.eq_ignore_ascii_case(one))
            || VOLUMES.iter().any(|word| model.contains(word)))
}

/// Whether there is a device behind a block device: md, dm, loop, zram, zvol, nbd, drbd and bcache
/// have none. The kernel puts those below `devices/virtual/block`, and NVMe namespaces with several
/// paths below `devices/virtual/nvme-subsystem`. Images of Ceph have a device of their own, on a
/// bus without hardware (`drivers/block/rbd.c`).
pub(crate) fn has_hardware(sys: &Sys, name: &str) -> bool {
    let folder = format!("{BLOCKS}/{name}");
    let target = std::fs::read_link(sys.path(&folder)).unwrap_or_default();
    let is_virtual = |place: &str| target.to_string_lossy().contains(place);
    !is_virtual("devices/virtual/block/")
        && !is_virtual("devices/rbd/")
        && sys.link(format!("{folder}/device/subsystem")).as_deref() != Some("rbd")
        && sys.has(format!("{folder}/device"))
}

/// What a block device says of who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// World-wide: `naa.`, `eui.`, `t10.` of SCSI, `eui.`, `uuid.`, `nvme.` of NVMe.
    pub(crate) wwid: Option<String>,
    /// The maker's.
    serial: Option<String>,
    /// Where it is plugged in.
    pub(crate) address: Option<String>,
    /// The map of device-mapper multipath that it is a path of.
    map: Option<String>,
    /// The NVMe subsystem.
    subsystem: Option<String>,
    /// What it holds.
    bytes: u64,
}

impl Marks {
    pub(crate) fn found(sys: &Sys, name: &str, controller: Option<&str>, bytes: u64) -> Self {
        let text = |file: &str| {
            let text = sys.text(format!("{BLOCKS}/{name}/{file}")).ok()?;
            // Vital product data begins with four bytes that are no text (SPC-6).
            let header = if file.ends_with("vpd_pg80") { 4 } else { 0 };
            let text: String = text.chars().skip(header).filter(|c| !c.is_control()).collect();
            Some(text.trim().to_owned()).filter(|text| says_something(text))
        };
        let first = |files: &[&str]| files.iter().find_map(|file| text(file));
        let class = |file: &str| sys.text(format!("sys/class/nvme/{}/{file}", controller?)).ok();
        Self {
            wwid: first(&["wwid", "device/wwid", "device/cid"]),
            serial: first(&["device/serial", "serial", "device/vpd_pg80"]),
            address: match controller {
                Some(controller) => address(sys, controller),
                None => sys.link(format!("{BLOCKS}/{name}/device")),
            },
            map: map(sys, name),
            subsystem: class("subsysnqn"),
            bytes,
        }
    }

    /// What the drive is called: model and serial number of an NVMe drive, the world-wide name of
    /// another.
    pub(crate) fn id(&self, model: &str, is_nvme: bool) -> Option<String> {
        let serial = self.serial.as_ref().map(|serial| format!("{model} {serial}"));
        let serial = serial.map(|id| id.trim().to_owned());
        if is_nvme { serial.or(self.wwid.clone()) } else { self.wwid.clone().or(serial) }
    }

    /// A name, with where it is plugged in.
    pub(crate) fn at(&self, name: &str) -> String {
        self.address.as_ref().map_or_else(|| name.to_owned(), |at| format!("{name}{AT}{at}"))
    }

    /// Whether they say the same of who and where it is.
    pub(crate) fn say_as(&self, other: &Self) -> bool {
        let all = |one: &Self| [one.wwid.clone(), one.serial.clone(), one.address.clone()];
        all(self) == all(other)
    }

    /// Whether two block devices are paths of one drive: its world-wide name tells, unless another
    /// mark belies it, as with drives that were all given one name. SATA disks have one path, and
    /// a name made of model and serial number (`t10.ATA`, `nvme.`) is no better than those.
    pub(crate) fn are_one(&self, other: &Self) -> bool {
        let differ = |of: fn(&Self) -> &Option<String>| {
            of(self).as_ref().zip(of(other).as_ref()).is_some_and(|(a, b)| a != b)
        };
        if self.map.is_some() && self.map == other.map {
            return true;
        }
        let made = ["t10.ATA", "nvme."];
        let is_world_wide = |name: &&String| !made.iter().any(|made| name.starts_with(made));
        self.wwid.as_ref().filter(is_world_wide).is_some()
            && self.wwid == other.wwid
            && self.bytes == other.bytes
            && !differ(|marks| &marks.serial)
            && !differ(|marks| &marks.map)
            && !differ(|marks| &marks.subsystem)
    }
}

/// What stands between what a device is called and where it is plugged in.
pub(crate) const AT: &str = " at ";

/// A name without where it is plugged in.
pub(crate) fn unplaced(name: &str) -> &str {
    name.rsplit_once(AT).map_or(name, |(name, _)| name)
}

/// Where a controller is: of one over a network not how it is reached from here, which the kernel
/// says only while it is (`nvmf_get_address`, `nvme_tcp_get_address`).
fn address(sys: &Sys, controller: &str) -> Option<String> {
    let text = sys.text(format!("sys/class/nvme/{controller}/address")).ok()?;
    let is_own = |part: &&str| !part.starts_with("host_") && !part.starts_with("src_addr");
    Some(text.split(',').filter(is_own).collect::<Vec<_>>().join(","))
}

/// Whether a mark is more than filler.
fn says_something(mark: &str) -> bool {
    let own = mark.split_once('.').map_or(mark, |(_, own)| own);
    own.chars().any(|c| c.is_alphanumeric() && c != '0')
}

/// The multipath map above a block device.
fn map(sys: &Sys, name: &str) -> Option<String> {
    let holders = sys.names(format!("{BLOCKS}/{name}/holders")).into_iter();
    let uuid = |holder: String| sys.text(format!("{BLOCKS}/{holder}/dm/uuid")).ok();
    holders.filter_map(uuid).find(|uuid| uuid.starts_with("mpath-"))
}
