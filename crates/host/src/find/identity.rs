//! Which block devices are drives of this server, and which of them are one and the same drive.

use crate::sys::Sys;

/// Where Linux has its block devices.
pub const BLOCKS: &str = "sys/block";
/// Where it has NVMe controllers.
const CLASS: &str = "sys/class/nvme";

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
    // A worn-out drive can only be read, and is one still.
    let wwid = text("device/wwid");
    let is_makers = MAKERS.iter().any(|maker| wwid.starts_with(&maker.to_ascii_lowercase()));
    let is_medium = text("ro") == "1" && !name.starts_with("nvme") && !is_makers;
    let is_usb = place(sys, name).contains("/usb");
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

/// World-wide names of disks: those of a maker's device, while volumes have longer ones of their
/// controller, `naa.6` (SPC-6, designation descriptors), or none.
const MAKERS: [&str; 4] = ["naa.5", "naa.2", "eui.", "t10.ATA"];

/// Whether a SCSI disk on a bus of the server is a volume of a RAID controller and no disk: by the
/// level that the driver tells (`hpsa`, `smartpqi`), else by where it is. Disks have ports, of
/// libata or of the SAS transport. What hangs on a controller without one is made by it, unless
/// its name is a disk's that the controller hands on (`megaraid_sas`, `aacraid`). Controllers that
/// are a disk on SATA or USB themselves say what they are in the model.
pub(crate) fn is_volume(sys: &Sys, name: &str) -> bool {
    let text = |file: &str| sys.text(format!("{BLOCKS}/{name}/device/{file}")).ok();
    if let Some(level) = text("raid_level") {
        return level != "N/A";
    }
    let place = place(sys, name);
    let has_port = ["/ata", "/end_device-", "/usb"].iter().any(|port| place.contains(port));
    let vendor = text("vendor").unwrap_or_default();
    let handed_on = ["ATA", "NVMe"].contains(&vendor.trim())
        || text("wwid").is_some_and(|wwid| MAKERS.iter().any(|maker| wwid.starts_with(maker)));
    let is_made = place.contains("/pci") && !has_port && !handed_on;
    let model = text("model").unwrap_or_default().to_ascii_uppercase();
    name.starts_with("sd") && (is_made || model.contains("RAID") || model.ends_with(" VD"))
}

/// Roots of devices that are in memory or in a file, and of images of Ceph.
const MADE: [&str; 3] = ["devices/pseudo_", "devices/tcm_loop_", "devices/rbd/"];

/// Whether there is a device behind a block device: md, dm, loop, zram, zvol, nbd, drbd and bcache
/// have none. The kernel puts what has none below `devices/virtual`, with NVMe namespaces of
/// several paths and those over a network. `scsi_debug`, LIO's loopback and images of Ceph have a
/// root of their own.
pub(crate) fn has_hardware(sys: &Sys, name: &str) -> bool {
    let (folder, place) = (format!("{BLOCKS}/{name}"), place(sys, name));
    let is_virtual = place.contains("devices/virtual/") && !place.contains("/nvme-");
    !is_virtual
        && !MADE.iter().any(|root| place.contains(root))
        && sys.link(format!("{folder}/device/subsystem")).as_deref() != Some("rbd")
        && sys.has(format!("{folder}/device"))
}

/// Where a block device is among all devices; nothing where that is not told.
fn place(sys: &Sys, name: &str) -> String {
    let target = std::fs::read_link(sys.path(format!("{BLOCKS}/{name}"))).unwrap_or_default();
    target.to_string_lossy().into_owned()
}

/// Buses that a hypervisor has for its guests: virtio, Hyper-V's by both of its names, Xen,
/// PowerVM.
const GUEST_BUSES: [&str; 6] = ["/virtio", "/VMBUS:", "/MSFT1000:", "/vbd-", "/vscsi-", "/vio/"];
/// PCI vendors of controllers that are a hypervisor's or a cloud's: Red Hat (virtio, QEMU), VMware,
/// which also say so of the controllers of others that they emulate; VirtualBox, Xen, bhyve,
/// Microsoft, Amazon, Alibaba, Google.
const HYPERVISORS: [&str; 10] = [
    "0x1af4", "0x1b36", "0x15ad", "0x80ee", "0x5853", "0xfb5d", "0x1414", "0x1d0f", "0x1ded",
    "0x1ae0",
];
/// What virtual disks say of vendor or model first where their controller is one of the machine's
/// chipset, or is not known.
const NAMES: [&str; 8] =
    ["QEMU", "VBOX", "ORCL-VBOX", "VMware", "Msft", "MSFT NVMe", "Amazon E", "nvme_card"];

/// How a drive is reached that is on no bus of the server: an NVMe controller by what it says, a
/// SCSI disk by `usb`, `iscsi`, `fc`; `virtual` of a guest's.
pub(crate) fn transport(sys: &Sys, name: &str, controller: Option<&str>) -> Option<String> {
    let folder = format!("{BLOCKS}/{name}");
    let place = place(sys, name);
    let has = |parts: &[&str]| parts.iter().any(|part| place.contains(part));
    let owner = controller.map_or(folder.clone(), |own| format!("{CLASS}/{own}"));
    let is_of = |file: &str, known: &[&str]| {
        pci(sys, &format!("{owner}/device"), file).is_some_and(|vendor| known.contains(&&*vendor))
    };
    let says = ["vendor", "model"].map(|file| sys.text(format!("{folder}/device/{file}")).ok());
    let is_named = |said: &String| NAMES.iter().any(|known| said.starts_with(known));
    // The disks of mainframes (DASD) are an array's behind channels of theirs.
    let ways = [("/usb", "usb"), ("/session", "iscsi"), ("/rport-", "fc"), ("/css0/", "fc")];
    let is_virtual = ["vd", "xvd"].iter().any(|prefix| name.starts_with(prefix))
        || has(&GUEST_BUSES)
        || is_of("vendor", &HYPERVISORS)
        || is_of("subsystem_vendor", &HYPERVISORS[..3])
        || says.iter().flatten().any(is_named);
    match controller {
        _ if is_virtual => Some("virtual".to_owned()),
        Some(controller) => sys.text(format!("{CLASS}/{controller}/transport")).ok(),
        None => Some(ways.iter().find(|(part, _)| has(&[part]))?.1.to_owned()),
    }
}

/// What a file of the PCI function that a device is part of says, such as `0x144d`.
fn pci(sys: &Sys, device: &str, file: &str) -> Option<String> {
    let root = &sys.path("").canonicalize().ok()?;
    let device = sys.path(device).canonicalize().ok()?;
    let mut above = device.ancestors().map_while(|above| above.strip_prefix(root).ok());
    above.find_map(|above| sys.text(above.join(file)).ok().filter(|text| text.starts_with("0x")))
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
    /// Which of its controllers it is.
    port: Option<String>,
    /// What it holds.
    bytes: u64,
    /// Whether it is where a drive has one path alone: on SATA, on USB.
    alone: bool,
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
            port: class("cntlid"),
            bytes,
            alone: ["/ata", "/usb"].iter().any(|port| place(sys, name).contains(port)),
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
    /// mark belies it, as with drives that were all given one name. A name made of model and serial
    /// number (`t10.ATA`, `nvme.`), or one without its maker, is no better than those.
    pub(crate) fn are_one(&self, other: &Self) -> bool {
        let differ = |of: fn(&Self) -> &Option<String>| {
            of(self).as_ref().zip(of(other).as_ref()).is_some_and(|(a, b)| a != b)
        };
        if self.map.is_some() && self.map == other.map {
            return true;
        }
        let made = ["t10.ATA", "nvme.", "naa.5000000"];
        // A made name has the namespace in it: controllers of one subsystem share that.
        let are_ports = self.subsystem.is_some()
            && self.subsystem == other.subsystem
            && differ(|marks| &marks.port);
        let is_world_wide =
            |name: &&String| are_ports || !made.iter().any(|made| name.starts_with(made));
        // One path may not have seen yet that the drive has grown.
        let is_alike = self.bytes == other.bytes || self.is_serial(other);
        self.wwid.as_ref().filter(is_world_wide).is_some()
            && self.wwid == other.wwid
            && is_alike
            && !(self.alone || other.alone)
            && !differ(|marks| &marks.serial)
            && !differ(|marks| &marks.map)
            && !differ(|marks| &marks.subsystem)
    }

    /// Whether both say one serial number.
    fn is_serial(&self, other: &Self) -> bool {
        self.serial.is_some() && self.serial == other.serial
    }

    /// Whether two disks on a bus of the server are parts of one, such as its two actuators:
    /// logical units of one target, with one serial number.
    pub(crate) fn are_parts(&self, other: &Self) -> bool {
        let target = |marks: &Self| Some(marks.address.as_ref()?.rsplit_once(':')?.0.to_owned());
        let own = target(self);
        own.is_some() && own == target(other) && self.is_serial(other) && self.bytes == other.bytes
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
