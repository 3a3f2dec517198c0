//! What a drive is by its place among all devices: a disk, a volume, another machine's, none.

use ebb_host::{Host, Stated};
use ebb_policy::Control;

use crate::tree::Tree;

const HBA: &str = "pci0000:00/0000:00:01.0/0000:01:00.0";
const SATA: &str = "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0";

fn server() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 4, 1);
    tree
}

/// The `unit` of a target of a controller, without a port of its own.
fn bare(host: u16, channel: u16, target: u16) -> String {
    let place = format!("{HBA}/host{host}/target{host}:{channel}:{target}");
    format!("{place}/{host}:{channel}:{target}:0")
}

/// What each drive counts with in a budget, by name.
fn most(tree: &Tree) -> Vec<(String, Option<f64>)> {
    let host = Host::new(tree.machine(), &Stated::default(), &[Control::PowerState]).unwrap();
    let drives = host.layout().drives.iter();
    drives.map(|one| (one.drive.name.clone(), one.most().map(|(most, _)| most.0))).collect()
}

fn devices(tree: &Tree) -> Vec<Vec<String>> {
    tree.machine().drives.into_iter().map(|drive| drive.devices).collect()
}

/// LIO's loopback, `scsi_debug` and `nvme-loop` show a drive of this server a second time, or
/// memory.
#[test]
fn what_loops_back_is_no_drive() {
    let tree = server();
    tree.scsi("sda", SATA, "ATA", "ST18000NM000J-2T");
    tree.scsi("sdb", "pseudo_0/adapter0/host8/target8:0:0/8:0:0:0", "Linux", "scsi_debug");
    let loopback = "tcm_loop_0/tcm_loop_adapter_0/host9/target9:0:1/9:0:1:0";
    tree.scsi("sdc", loopback, "LIO-ORG", "FILEIO");
    tree.nvme(0, "SAMSUNG MZQL23T8HCLS", "A").nvme(1, "Linux", "B");
    let names = || {
        let drives = tree.machine().drives.into_iter();
        drives.map(|drive| drive.name).collect::<Vec<_>>().join(" ")
    };
    tree.put("sys/class/nvme/nvme1/transport", "loop");
    assert_eq!(names(), "nvme0n1 sda");
    tree.put("sys/class/nvme/nvme1/transport", "tcp");
    assert_eq!(names(), "nvme0n1 nvme1n1 sda");
    // Below devices/virtual are namespaces of several paths, and what has no hardware.
    for (number, place) in
        ["nvme-subsystem/nvme-subsys2/nvme2n1", "misc/x/nvme3n1"].into_iter().enumerate()
    {
        let (number, name) = (number as u16 + 2, place.rsplit('/').next().unwrap());
        tree.nvme(number, "SAMSUNG MZQL23T8HCLS", name);
        let (own, there) = (format!("sys/block/{name}"), format!("sys/devices/virtual/{place}"));
        std::fs::create_dir_all(tree.path().join(&there)).unwrap();
        std::fs::rename(tree.path().join(&own), tree.path().join(&there)).unwrap();
        tree.link(&own, &format!("../devices/virtual/{place}"));
    }
    assert_eq!(names(), "nvme0n1 nvme1n1 nvme2n1 sda");
}

/// By the bus of the guest or the maker of the controller, whatever the disk calls itself.
#[test]
fn a_cloud_s_disk_is_virtual() {
    let tree = server();
    let virtio = "pci0000:00/0000:00:03.0/virtio0/host0/target0:0:1/0:0:1:0";
    let hyper_v = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/MSFT1000:00/f8b3781a/host1/1:0:0:0";
    tree.scsi("sda", virtio, "Google", "PersistentDisk");
    tree.scsi("sdb", hyper_v, "X", "Disk");
    tree.scsi("sdc", "vio/30000064/host2/target2:0:1/2:0:1:0", "AIX", "VDASD");
    // An emulated controller of LSI.
    tree.scsi("sdd", &bare(3, 0, 0), "X", "Disk").marks("sdd", "naa.6000c29a", "1");
    tree.put(&format!("sys/devices/{HBA}/vendor"), "0x1000")
        .put(&format!("sys/devices/{HBA}/subsystem_vendor"), "0x15ad");
    for (number, vendor, subsystem) in
        [(0, "0x1ded", "0x1ded"), (1, "0xfb5d", "0x0000"), (2, "0x144d", "0x1d0f")]
    {
        tree.nvme(number, "Elastic Block Storage", "A");
        let folder = format!("sys/class/nvme/nvme{number}/device");
        tree.put(&format!("{folder}/vendor"), vendor)
            .put(&format!("{folder}/subsystem_vendor"), subsystem);
    }
    // Samsung made the last one, for a cloud.
    let bay = |(name, most): &(String, Option<f64>)| most.is_some().then(|| name.clone());
    assert_eq!(most(&tree).iter().filter_map(bay).collect::<Vec<_>>(), ["nvme2n1"]);
    assert!(tree.machine().drives.iter().all(|drive| !drive.rotational && !drive.is_volume));
}

/// Volumes hang on their controller, disks on a port. Disks that a controller hands on have a
/// disk's name.
#[test]
fn a_volume_is_known_by_its_place() {
    let tree = server();
    let all = [
        ("Intel", "RMS3CC080", "naa.600605b0"),
        ("HPE", "MR416i-p Gen10+", "naa.600605b3"),
        ("ASR8805", "LogicalDrv 0", ""),
        ("HPT", "DISK_0_0", "naa.600000004"),
        ("HUAWEI", "SR760", "naa.600000010"),
        ("ATA", "ST18000NM000J-2T", "naa.5000c500d5f1a2b4"),
        ("SEAGATE", "ST16000NM002G", "naa.5000c500d5f1a2b5"),
        ("NVMe", "SAMSUNG MZWLR3T8", "eui.36344830"),
    ];
    for (at, (vendor, model, wwid)) in all.iter().enumerate() {
        let name = format!("sd{}", char::from(b'a' + at as u8));
        tree.scsi(&name, &bare(0, 2, at as u16), vendor, model).marks(&name, wwid, &name);
    }
    let port = format!("{HBA}/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0");
    tree.scsi("sdi", &port, "SEAGATE", "ST14000NM0001").marks("sdi", "naa.6000c500a7", "i");
    tree.scsi("sdj", SATA, "ATA", "ThinkSystem M.2 VD").marks("sdj", "naa.600000007", "j");
    // What is another machine's is no controller's here.
    let lun = "pci0000:00/0000:00:05.0/host7/rport-7:0-0/target7:0:0/7:0:0:1";
    tree.scsi("sdk", lun, "Promise", "VTrak RAID").marks("sdk", "naa.600000008", "k");
    tree.scsi("dasda", "css0/0.0.0001/0.0.0190", "IBM", "3390");
    let drives = tree.machine().drives;
    let volumes = drives.iter().filter(|drive| drive.is_volume).map(|drive| &*drive.name);
    assert_eq!(volumes.collect::<Vec<_>>(), ["sda", "sdb", "sdc", "sdd", "sde", "sdj"]);
    let counted = most(&tree).into_iter().filter_map(|(name, most)| most.map(|_| name));
    assert_eq!(counted.collect::<Vec<_>>(), ["sdf", "sdg", "sdh", "sdi"]);
}

/// USB bridges and cheap SSDs say of all of them one filler.
#[test]
fn where_a_drive_has_one_path_two_are_two() {
    let tree = server();
    for (name, place, wwid) in [
        ("sda", "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/6:0:0:0", "naa.500a0b1c2d3e4f50"),
        ("sdb", "pci0000:00/0000:00:14.0/usb2/2-2/2-2:1.0/host7/7:0:0:0", "naa.500a0b1c2d3e4f50"),
        ("sdc", "pci0000:00/0000:00:17.0/ata1/host0/0:0:0:0", "naa.500a0b1c2d3e4f51"),
        ("sdd", "pci0000:00/0000:00:17.0/ata2/host1/1:0:0:0", "naa.500a0b1c2d3e4f51"),
        ("sde", "pci0/host8/port-8:0/end_device-8:0/8:0:0:0", "naa.5000000000000000"),
        ("sdf", "pci0/host9/port-9:0/end_device-9:0/9:0:0:0", "naa.5000000000000000"),
    ] {
        tree.scsi(name, place, "JMicron", "Tech")
            .put(&format!("sys/block/{name}/device/wwid"), wwid);
    }
    assert_eq!(devices(&tree).len(), 6);
    // A LUN that has grown, which one of its two paths has not seen yet.
    let tree = server();
    for (name, host) in [("sda", 7), ("sdb", 8)] {
        let place = format!("pci0/host{host}/rport-{host}:0-0/target{host}:0:0/{host}:0:0:1");
        tree.scsi(name, &place, "PURE", "FlashArray").marks(name, "naa.624a937", "S1");
    }
    tree.put("sys/block/sdb/size", 4096);
    assert_eq!(devices(&tree), [["sda", "sdb"]]);
}

/// One disk with two actuators is two logical units of one target.
#[test]
fn a_disk_with_two_actuators_is_one_drive() {
    let target = |host: u16| {
        format!("{HBA}/host{host}/port-{host}:0/end_device-{host}:0/target{host}:0:0/{host}:0:0")
    };
    let tree = server();
    for (name, host, unit) in [("sda", 0, 0), ("sdb", 0, 1), ("sdc", 1, 0), ("sdd", 1, 1)] {
        let wwid = format!("naa.6000c500a7b5d4bf000{unit}000000000000");
        let place = format!("{}:{unit}", target(host));
        tree.scsi(name, &place, "SEAGATE", "ST14000NM0001").marks(name, &wwid, "ZKX00A1B");
    }
    let drive = &tree.machine().drives[0];
    assert_eq!((drive.devices.len(), drive.namespaces), (4, 2), "two units by two paths");
    assert_eq!(most(&tree), [("sda".to_owned(), Some(20.0))]);
    // Two disks behind one bridge are two, and so are two volumes of an array.
    for way in ["usb2/2-1/2-1:1.0/host0/target0:0:0", "host7/rport-7:0-0/target0:0:0"] {
        let tree = server();
        for (name, unit) in [("sda", 0), ("sdb", 1)] {
            let place = format!("pci0000:00/0000:00:14.0/{way}/0:0:0:{unit}");
            tree.scsi(name, &place, "X", "Y").marks(name, &format!("naa.6000{unit}"), "1");
        }
        assert_eq!(devices(&tree).len(), 2, "{way}");
    }
}
