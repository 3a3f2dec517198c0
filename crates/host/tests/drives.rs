//! Which drives are found, and by what name, as people have reported it.

use ebb_host::{Contest, Held, Host, Leave, Report, State, Stated};
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::Watts;
use ebb_policy::{Control, Outcome, Plant, Request, Signals};

use crate::acting::Bench;
use crate::tree::{Tree, amd};

struct Disk<'a> {
    name: &'a str,
    files: &'a [(&'a str, &'a str)],
}

/// A machine with these block devices.
fn with(disks: &[Disk]) -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 2, 1);
    let mut lines = String::new();
    for Disk { name, files } in disks {
        let folder = format!("sys/block/{name}");
        tree.put(&format!("{folder}/size"), 35_156_656_128_u64)
            .put(&format!("{folder}/queue/rotational"), 1)
            .put(&format!("{folder}/stat"), "1000 0 8000 500 0 0 0 0 0 100 500")
            .put(&format!("{folder}/device/uevent"), "");
        for (file, text) in *files {
            tree.put(&format!("{folder}/{file}"), text);
        }
        lines += &format!("8 0 {name} 1000 0 8000 500 0 0 0 0 0 100 500\n");
    }
    tree.put("proc/diskstats", lines);
    tree
}

fn ids(tree: &Tree) -> Vec<String> {
    let id = |drive: &ebb_host::Drive| drive.id.clone().unwrap_or_else(|| drive.name.clone());
    tree.machine().drives.iter().map(id).collect()
}

#[test]
fn media_are_no_drives() {
    let tree = with(&[
        Disk {
            name: "sda",
            files: &[("device/model", "Virtual disk"), ("device/wwid", "naa.6c29f")],
        },
        Disk { name: "sr0", files: &[("device/type", "5"), ("removable", "1")] },
        Disk { name: "sr1", files: &[("device/model", "Virtual CDROM0")] },
        Disk { name: "fd0", files: &[("removable", "1")] },
        Disk { name: "sdb", files: &[("device/vendor", "SanDisk"), ("removable", "1")] },
        Disk {
            name: "sdc",
            files: &[("device/vendor", "AMI"), ("device/model", "Virtual HDisk0")],
        },
        Disk { name: "sdd", files: &[("device/type", "7")] },
        Disk { name: "sde", files: &[("device/model", "LUN 00 Media 0"), ("ro", "1")] },
        Disk { name: "sdf", files: &[("device/model", "File-Stor Gadget")] },
        Disk { name: "pmem0", files: &[] },
        Disk { name: "sdg", files: &[("size", "0")] },
        // A port that takes drives in while it runs; a host-managed disk.
        Disk { name: "sdh", files: &[("device/vendor", "ATA     "), ("removable", "1")] },
        Disk { name: "sdi", files: &[("device/type", "20")] },
        Disk { name: "nvme0n1", files: &[("ro", "1"), ("device/serial", "S1")] },
        Disk { name: "mmcblk0", files: &[("device/type", "MMC"), ("device/cid", "150100424")] },
        Disk { name: "mmcblk0boot0", files: &[] },
        Disk { name: "mmcblk1", files: &[("device/type", "SD")] },
    ]);
    let names: Vec<_> = tree.machine().drives.iter().map(|drive| drive.name.clone()).collect();
    assert_eq!(names, ["mmcblk0", "nvme0n1", "sda", "sdh", "sdi"]);
}

/// A disk behind two expanders, and one beside it.
#[test]
fn the_paths_of_a_disk_are_one_drive() {
    let wwid = [("device/model", "HUS728T8TAL4204"), ("device/wwid", "naa.5000cca0bb7ca048")];
    let path = |name| Disk { name, files: &wwid };
    let other = Disk { name: "sda", files: &[("device/wwid", "naa.5000c500d5f1a2b3")] };
    let tree = with(&[other, path("sdb"), path("sdc"), path("sdd"), path("sde")]);
    assert_eq!(ids(&tree), ["naa.5000c500d5f1a2b3", "naa.5000cca0bb7ca048"]);
    let machine = tree.machine();
    assert_eq!(machine.drives[1].devices, ["sdb", "sdc", "sdd", "sde"]);
    assert_eq!(machine.drives[1].counters(&machine.sys).unwrap().reads, 4000);
    let report = Report::new(&machine, &Stated::default());
    let read = report.signals.iter().filter(|one| one.name == "drive_read_bytes");
    assert_eq!(
        read.map(|one| one.value).collect::<Vec<_>>(),
        [Some(4_096_000.0), Some(16_384_000.0)]
    );
    let mut host = Host::new(machine, &Stated::default(), Control::ALL).unwrap();
    assert_eq!(host.topology().drives.len(), 2);
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    let line = |name: &str| format!("8 0 {name} 1010 0 8080 500 0 0 0 0 0 100 500\n");
    tree.put("proc/diskstats", ["sda", "sdb", "sdc", "sdd", "sde"].map(line).concat());
    host.sense(&mut signals);
    let read = signals.drives.iter().map(|drive| drive.read_bytes);
    assert_eq!(read.collect::<Vec<_>>(), [Some(80 * 512), Some(4 * 80 * 512)]);
    assert_eq!(signals.io.completed, Some(50));
}

/// Old kernels and arrays say no world-wide name; the map above them does.
#[test]
fn the_paths_of_a_map_are_one_drive() {
    let path = |name| Disk { name, files: &[("holders/dm-0/name", "")] };
    let tree = with(&[path("sda"), path("sdb"), Disk { name: "sdc", files: &[] }]);
    tree.put("sys/block/dm-0/dm/uuid", "mpath-36001405a1");
    assert_eq!(tree.machine().drives.iter().map(|d| d.devices.len()).collect::<Vec<_>>(), [2, 1]);
    // Volumes above one disk say nothing of that.
    tree.put("sys/block/dm-0/dm/uuid", "LVM-abc");
    assert_eq!(tree.machine().drives.len(), 3);
}

#[test]
fn two_drives_never_share_a_name() {
    let nvme = |name, wwid| {
        let files = [("device/model", "X"), ("device/serial", "0123"), ("wwid", wwid)];
        (name, files)
    };
    let ids_of = |all: &[(&str, [(&str, &str); 3])]| {
        let disks: Vec<_> = all.iter().map(|(name, files)| Disk { name, files }).collect();
        let tree = with(&disks);
        for (number, (name, _)) in all.iter().enumerate() {
            let controller = name.strip_suffix("n1").unwrap();
            let address = format!("0000:0{number}:00.0");
            tree.put(&format!("sys/class/nvme/{controller}/address"), address);
        }
        ids(&tree)
    };
    assert_eq!(ids_of(&[nvme("nvme0n1", "eui.1")]), ["X 0123"]);
    let two = [nvme("nvme0n1", "eui.1"), nvme("nvme1n1", "eui.2")];
    assert_eq!(ids_of(&two), ["eui.1", "eui.2"]);
    // A name that is made of the serial number is no better.
    let made = "nvme.144d-30313233-58-00000001";
    let two = [nvme("nvme0n1", made), nvme("nvme1n1", made)];
    assert_eq!(
        ids_of(&two),
        [format!("{made} at 0000:00:00.0"), format!("{made} at 0000:01:00.0")]
    );
    // One drive by two ports, without native multipath.
    assert_eq!(ids_of(&[nvme("nvme0n1", "eui.1"), nvme("nvme1n1", "eui.1")]), ["X 0123"]);
    // With a made name its subsystem tells, which has two controllers then.
    for (second, expected) in [("1", 2), ("2", 1)] {
        let disks = two.each_ref().map(|(name, files)| Disk { name, files });
        let tree = with(&disks);
        for (controller, number) in [("nvme0", "1"), ("nvme1", second)] {
            let class = format!("sys/class/nvme/{controller}");
            tree.put(&format!("{class}/subsysnqn"), "nqn.2014.08.org.nvmexpress:144d144d0123 X")
                .put(&format!("{class}/cntlid"), number);
        }
        assert_eq!(tree.machine().drives.len(), expected, "controllers 1 and {second}");
    }

    let disk = |name, serial| {
        let own = [("device/vendor", "ATA"), ("device/wwid", "t10.ATA     X"), ("serial", serial)];
        (name, own)
    };
    for serials in [["", ""], ["A", "B"], ["000", "000"]] {
        let all = [disk("sda", serials[0]), disk("sdb", serials[1])];
        let disks: Vec<_> = all.iter().map(|(name, files)| Disk { name, files }).collect();
        let ids = ids(&with(&disks));
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
    }
    let same = [("device/wwid", "naa.5000000000000001"), ("device/vpd_pg80", "\0\u{1}\0$A")];
    let other = [("device/wwid", "naa.5000000000000001"), ("device/vpd_pg80", "\0\u{1}\0$B")];
    let tree = with(&[Disk { name: "sda", files: &same }, Disk { name: "sdb", files: &other }]);
    assert_eq!(tree.machine().drives.len(), 2, "their serial numbers belie the name");
    let blank =
        [("device/model", "X"), ("device/serial", "    "), ("wwid", "eui.0025385b71b0a1c2")];
    assert_eq!(ids(&with(&[Disk { name: "nvme0n1", files: &blank }])), ["eui.0025385b71b0a1c2"]);
}

/// Two disks and an NVMe drive that may not be asked share a budget with one that has states.
#[test]
fn drives_without_power_states_count_with_the_most_they_can_draw() {
    let tree = amd();
    tree.nvme(0, "fake", "a").nvme(3, "silent", "b");
    let host = Host::new(tree.with_drives(), &Stated::default(), &[Control::PowerState]).unwrap();
    let topology = host.topology();
    let caps: Vec<_> = topology.drives.iter().map(|drive| drive.cap(0).0).collect();
    assert_eq!(caps, [25.0, 25.0, 20.0, 20.0]);
    assert_eq!(topology.lowest_drive_budget(), Watts(9.0 + 25.0 + 20.0 + 20.0));
    let said = host.layout().drives.iter().map(|parts| parts.most().is_some());
    assert_eq!(said.collect::<Vec<_>>(), [false, true, true, true]);
    let budget = |watts| Settings { ssd_budget: Some(Watts(watts)), ..Settings::default() };
    let error = registry::make("pacman", topology, &budget(60.0)).err().unwrap().to_string();
    assert!(error.contains("74"), "{error}");
    // 80 W leave 15 W to the drive that can be capped.
    let mut policy = registry::make("pacman", topology, &budget(80.0)).unwrap();
    let mut request = Request::new(topology);
    policy.step(&Signals::new(topology), &mut request);
    assert_eq!(request.power_state.get(0), Some(1));
    // What no policy caps is left as it is.
    let host = Host::new(tree.with_drives(), &Stated::default(), &[Control::FanDuty]).unwrap();
    assert!(host.topology().drives.iter().all(|drive| drive.states.is_empty()));
}

/// How many disks a volume has, nobody says: it has no figure until the operator states one.
#[test]
fn a_volume_of_a_raid_controller_is_no_disk() {
    let tree = Tree::new();
    tree.cpus(1, 2, 1);
    for (at, (name, vendor, model)) in [
        ("sda", "DELL", "PERC H730P Mini"),
        ("sdb", "AVAGO", "MR9361-8i"),
        ("sdc", "HPE", "LOGICAL VOLUME"),
        ("sdd", "ATA", "DELLBOSS VD"),
        ("sde", "ATA", "SUPERCAP SSD"),
        ("sdf", "HP", "EG0600FBDBU"),
    ]
    .into_iter()
    .enumerate()
    {
        let place = format!("pci0000:00/0000:00:01.0/host0/target0:2:{at}/0:2:{at}:0");
        tree.scsi(name, &place, vendor, model).marks(name, &format!("naa.6{at}"), name);
    }
    tree.put("sys/block/sdf/device/raid_level", "N/A");
    let most = |stated: &Stated| -> Vec<_> {
        let host = Host::new(tree.machine(), stated, &[Control::PowerState]).unwrap();
        let drives = &host.layout().drives;
        drives.iter().map(|one| one.most().map(|(most, _)| most.0)).collect()
    };
    let disk = Some(20.0);
    assert_eq!(most(&Stated::default()), [None, None, None, None, disk, disk]);
    let stated = [("PERC H730P Mini".to_owned(), Watts(96.0))].into();
    let stated = Stated { drive_watts: stated, ..Stated::default() };
    assert_eq!(most(&stated)[..2], [Some(96.0), None]);
}

/// A hypervisor's drive draws nothing here, NVMe or not.
#[test]
fn a_virtual_drive_does_not_count() {
    let tree = amd();
    for (number, model) in
        ["Amazon Elastic Block Store", "nvme_card-pd", "QEMU NVMe Ctrl"].iter().enumerate()
    {
        tree.nvme(number as u16, model, "a");
    }
    assert!(tree.machine().drives.iter().take(3).all(ebb_host::Drive::is_virtual));
}

#[test]
fn a_drive_s_nonsense_is_absent_and_named() {
    let tree = crate::tree::intel();
    tree.put("proc/diskstats", "");
    let drives = tree.with_drives();
    tree.put("dev/nvme0-watts", 6553.5);
    tree.put("dev/nvme1-watts", 11.5);
    let mut host = Host::new(drives, &Stated::default(), Control::ALL).unwrap();
    let mut signals = Signals::new(host.topology());
    host.sense(&mut signals);
    assert_eq!((signals.drives[0].power, signals.drives[1].power), (None, Some(Watts(11.5))));
    let said: Vec<_> = host.notices().into_iter().map(|notice| notice.text).collect();
    assert!(said.len() == 1 && said[0].contains("6553.5"), "{said:?}");
}

#[test]
fn a_disk_keeps_its_chip() {
    let tree = amd();
    let machine = tree.machine();
    let chip = machine.drive_chip(&machine.drives[0]).unwrap();
    assert_eq!((chip.name.as_str(), chip.device.as_deref()), ("drivetemp", Some("0:0:0:0")));
}

/// What somebody has capped a drive to is a limit as any other: no policy raises it unasked.
#[test]
fn a_power_state_found_is_kept_as_limits_are() {
    let capped = |raise_limits: bool| {
        let tree = amd();
        tree.nvme(0, "fake", "a");
        let stated = Stated { raise_limits, ..Stated::default() };
        let host = Host::new(tree.with_drives(), &stated, Control::ALL).unwrap();
        tree.put("dev/nvme0", 1);
        let mut bench = Bench { tree, state: tempfile::tempdir().unwrap(), host };
        let state = State::open(bench.state.path()).unwrap();
        let held = Held::default();
        bench.host.act(Control::ALL, held, |_| Leave::Restore, Contest::Yield, &state).unwrap();
        let seen = [0, 2, 1].map(|asked| {
            let mut request = bench.request();
            request.power_state.ask(0, asked, "test:");
            assert_eq!(bench.apply(&request).of(Control::PowerState, 0), Outcome::Done);
            bench.tree.get("dev/nvme0")
        });
        drop(state);
        bench.restore();
        (seen, bench.tree.get("dev/nvme0"))
    };
    assert_eq!(capped(false), (["1", "2", "1"].map(str::to_owned), "1".to_owned()));
    assert_eq!(capped(true), (["0", "2", "1"].map(str::to_owned), "1".to_owned()));
}
