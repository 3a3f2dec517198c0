//! How a place is found on this machine, read and written.

mod taken;

use ebb_nvme::feature;

use crate::act::groups;
use crate::act::place::TOLERANCE;
pub use crate::act::place::{CGROUPS, Place};
use crate::find::chips;
use crate::find::drives::Drive;
use crate::find::energy::Zone;
use crate::find::hwmon::{Chip, is_of};
use crate::find::machine::Machine;
use crate::folder::Folder;
use crate::nvme::{Admin, POWER_LIMIT_BITS, POWER_STATE_BITS, Patient};
use crate::sys::{Absent, Sys, cpu_list, cpus};

pub use taken::{Set, Taken};

/// Where the CPUs of a machine are.
const CPUS: &str = "sys/devices/system/cpu";
/// The controllers that the root control group hands on.
const CONTROLLERS: &str = "cgroup.subtree_control";
/// A control group's file of rates (`Documentation/admin-guide/cgroup-v2.rst`).
pub(super) const RATES: &str = "io.max";

/// The manual mode of a fan (`Documentation/hwmon/sysfs-interface.rst`), and how its file ends.
pub(super) const MANUAL: &str = "1";
const MODE: &str = "_enable";

/// A place that was found on this machine.
#[derive(Debug)]
pub struct Knob {
    at: At,
}

#[derive(Debug)]
enum At {
    /// A file of a device; whether it is a frequency limit.
    File(Device, String, bool),
    /// The weight that devices without one of their own have.
    Weight(Device, String),
    Controller(Folder, String),
    Cpuset(Folder, String),
    Offline(Folder),
    /// The rates of a disk in a control group's file.
    Rates(Device, Folder, String),
    /// The bits of a feature of a drive that are its value.
    Feature(Patient, u8, u32),
}

impl Knob {
    /// Finds `place`.
    ///
    /// # Errors
    /// Where there is no such device now ([`Absent::Missing`]), or it is no place that Ebb sets.
    pub fn find(machine: &Machine, place: &Place) -> Result<Self, Absent> {
        let sys = &machine.sys;
        if !place.is_listed() {
            let error = "not a place that Ebb sets".to_owned();
            return Err(Absent::Failed { path: place.to_string().into(), error });
        }
        let at = match place {
            Place::File { path } => {
                let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
                let device = Device::open(machine, Name::Path(folder.to_owned()))?;
                match file {
                    "io.weight" => At::Weight(device, file.to_owned()),
                    _ => At::File(device, file.to_owned(), place.is_frequency()),
                }
            }
            Place::Chip { chip, device, file } => {
                let name = Name::Chip(chip.clone(), device.clone());
                At::File(Device::open(machine, name)?, file.clone(), false)
            }
            Place::Disk { disk, file } => {
                At::File(Device::open(machine, Name::Disk(disk.clone()))?, file.clone(), false)
            }
            Place::IdleWake { drive } => {
                let device = Device::open(machine, Name::Controller(drive.clone()))?;
                At::File(device, TOLERANCE.to_owned(), false)
            }
            Place::Controller { name } => At::Controller(Folder::open(sys, CGROUPS)?, name.clone()),
            Place::Cpuset { group } => return Self::cpuset(sys, group),
            Place::Rates { group, disk } => {
                let device = Device::open(machine, Name::Disk(disk.clone()))?;
                At::Rates(device, Folder::open(sys, CGROUPS)?, format!("{group}/{RATES}"))
            }
            Place::Offline => At::Offline(Folder::open(sys, CPUS)?),
            Place::PowerState { drive } => At::Feature(
                controller(machine, drive)?,
                feature::POWER_MANAGEMENT,
                POWER_STATE_BITS,
            ),
            Place::PowerLimit { drive } => {
                At::Feature(controller(machine, drive)?, feature::POWER_LIMIT, POWER_LIMIT_BITS)
            }
            Place::PackagePower { control_type, package } => {
                let name = Name::Package(control_type.clone(), package.clone());
                let zone = one_package(sys, control_type, package)?;
                let file = zone.limit(sys).ok_or_else(|| Absent::Missing(zone.folder.into()))?;
                At::File(Device::open(machine, name)?, file, false)
            }
        };
        Ok(Self { at })
    }

    /// Whether it can be read and set at all, by anybody.
    ///
    /// # Errors
    /// What its file lacks.
    pub fn settable(&mut self, sys: &Sys) -> Result<(), Absent> {
        match &mut self.at {
            At::File(device, file, _) | At::Weight(device, file) => {
                device.here(sys)?.settable(file)
            }
            At::Rates(_, groups, file) => groups.settable(file),
            _ => Ok(()),
        }
    }

    /// The file `path` of a control group.
    ///
    /// # Errors
    /// Where there is no such group.
    pub fn of_group(sys: &Sys, path: &str) -> Result<Self, Absent> {
        let (folder, file) = path.rsplit_once('/').unwrap_or((CGROUPS, path));
        let name = Name::Path(folder.to_owned());
        let (path, folder) = name.open(sys, &[], &[])?;
        Ok(Self { at: At::File(Device { name, path, folder }, file.to_owned(), false) })
    }

    /// The list of CPUs of a control group.
    ///
    /// # Errors
    /// Where there are no control groups.
    pub fn cpuset(sys: &Sys, group: &str) -> Result<Self, Absent> {
        Ok(Self { at: At::Cpuset(Folder::open(sys, CGROUPS)?, group.to_owned()) })
    }

    /// What it is set to.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn read(&mut self, sys: &Sys) -> Result<String, Absent> {
        match &mut self.at {
            At::File(device, file, _) => device.here(sys)?.text(file),
            At::Weight(device, file) => {
                let text = device.here(sys)?.text(file)?;
                let line = text.lines().find(|line| line.starts_with("default"));
                let expected = "a default weight";
                let line = line.ok_or_else(|| sys.nonsense(CGROUPS, &text, expected));
                line.map(str::to_owned)
            }
            At::Controller(groups, name) => {
                let on = groups.text(CONTROLLERS)?;
                let on = on.split_whitespace().any(|one| one == name);
                Ok(if on { "on" } else { "off" }.to_owned())
            }
            At::Cpuset(groups, group) => match groups.text(&format!("{group}/cpuset.cpus")) {
                // Without the controller nothing is restricted.
                Err(Absent::Missing(_)) if groups.has(group) => Ok(String::new()),
                list => list,
            },
            At::Offline(all) => offline(sys, all).map(|cpus| cpu_list(&cpus)),
            At::Rates(device, groups, file) => {
                let number = device.number(sys)?;
                Ok(rates(&groups.text(file)?, &number))
            }
            At::Feature(drive, feature, bits) => {
                drive.feature(*feature).map(|value| (value & *bits).to_string())
            }
        }
    }

    /// Whether what is written comes true later, by one of the kernel's workers, and what is read
    /// until then is what was written before: limits of frequencies (Linux 5.3 on).
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(&self.at, At::File(.., true))
    }

    /// Sets it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&mut self, sys: &Sys, value: &str) -> Result<(), Absent> {
        match &mut self.at {
            At::File(device, file, _) | At::Weight(device, file) => {
                device.here(sys)?.write(file, value)
            }
            At::Controller(groups, name) => {
                groups::are_safe(sys)?;
                let sign = if value == "on" { '+' } else { '-' };
                groups.write(CONTROLLERS, &format!("{sign}{name}"))
            }
            At::Cpuset(groups, group) => set_cpuset(sys, groups, group, value),
            At::Offline(all) => set_offline(sys, all, value),
            At::Rates(device, groups, file) => {
                let number = device.number(sys)?;
                groups.write(file, &format!("{number} {value}"))
            }
            At::Feature(drive, feature, bits) => {
                let value: u32 = value.parse().map_err(|_| sys.nonsense("", value, "a number"))?;
                // A workload hint stays (NVMe Base 2.1, Figure 386).
                let others = drive.feature(*feature)? & !*bits;
                drive.set_feature(*feature, others | value & *bits)
            }
        }
    }
}

/// What a device is called, whatever its number is.
#[derive(Debug)]
enum Name {
    /// It has no number: this is its folder.
    Path(String),
    /// A chip and the device that it is of.
    Chip(String, String),
    /// A disk.
    Disk(String),
    /// The controller of an NVMe drive.
    Controller(String),
    /// A zone of a processor package, by control type and name.
    Package(String, String),
}

/// A device whose folder is held open: what has its number by now is not touched.
#[derive(Debug)]
struct Device {
    name: Name,
    path: String,
    folder: Folder,
}

impl Device {
    fn open(machine: &Machine, name: Name) -> Result<Self, Absent> {
        let (path, folder) = name.open(&machine.sys, &machine.chips, &machine.drives)?;
        Ok(Self { name, path, folder })
    }

    /// Its folder. One that has left may have come back, with another number.
    fn here(&mut self, sys: &Sys) -> Result<&Folder, Absent> {
        if !self.folder.is_at(sys, &self.path) {
            (self.path, self.folder) = self.name.open(sys, &[], &[])?;
        }
        Ok(&self.folder)
    }

    /// The number of the block device that a disk is, such as `259:0`.
    fn number(&mut self, sys: &Sys) -> Result<String, Absent> {
        self.here(sys)?;
        let disk = self.path.rsplit_once('/').map_or(&*self.path, |(disk, _)| disk);
        sys.text(format!("{disk}/dev"))
    }
}

/// What `io.max` says of the rates of device `number`; a device without a limit has no line.
fn rates(text: &str, number: &str) -> String {
    let of = |line: &&str| line.split_ascii_whitespace().next() == Some(number);
    let line = text.lines().find(of).unwrap_or_default();
    let one = |key: &str| {
        let found = line.split_ascii_whitespace().find(|field| field.starts_with(key));
        found.map_or_else(|| format!("{key}max"), str::to_owned)
    };
    format!("{} {}", one("rbps="), one("wbps="))
}

impl Name {
    /// The path of the folder and the folder, by what is `known` or, where that is another's by
    /// now, by what is found.
    fn open(
        &self,
        sys: &Sys,
        chips: &[Chip],
        drives: &[Drive],
    ) -> Result<(String, Folder), Absent> {
        match self {
            Self::Path(path) => Ok((path.clone(), Folder::open(sys, path)?)),
            Self::Chip(name, device) => {
                let known = one_chip(sys, chips, name, device);
                missing_or(known, || one_chip(sys, &Chip::found(sys), name, device))
            }
            Self::Disk(id) => one_drive(sys, drives, id, |disk| {
                let path = format!("sys/block/{}/device", disk.name);
                let folder = Folder::open(sys, &path)?;
                let is_it = folder.is_at(sys, &path);
                if is_it { Ok((path, folder)) } else { Err(Absent::Missing(id.into())) }
            }),
            Self::Controller(id) => one_drive(sys, drives, id, |drive| {
                let gone = || Absent::Missing(id.into());
                let path = drive.controller_folder().ok_or_else(gone)?;
                Ok((path.clone(), Folder::open(sys, &path)?))
            }),
            Self::Package(control_type, package) => {
                let path = one_package(sys, control_type, package)?.folder;
                let folder = Folder::open(sys, &path)?;
                // Its number may have become another's meanwhile.
                match one_package(sys, control_type, package)?.folder == path {
                    true if folder.is_at(sys, &path) => Ok((path, folder)),
                    _ => Err(Absent::Missing(package.into())),
                }
            }
        }
    }
}

/// What is known; what is found `anew` where it is missing.
fn missing_or<T>(
    known: Result<T, Absent>,
    anew: impl FnOnce() -> Result<T, Absent>,
) -> Result<T, Absent> {
    if matches!(known, Err(Absent::Missing(_))) { anew() } else { known }
}

/// The one of `chips` that has this name, and its folder.
fn one_chip(
    sys: &Sys,
    chips: &[Chip],
    name: &str,
    device: &str,
) -> Result<(String, Folder), Absent> {
    let shown = || chips::shown(name, &[device]).into();
    // The version before saved the kernel's name of a device on I²C.
    let is_it = |one: &&Chip| {
        let own = one.device.as_deref().unwrap_or_default();
        one.name == name && (own == device || is_of(sys, &one.folder, device))
    };
    let mut found = chips.iter().filter(is_it);
    let chip = found.next().ok_or_else(|| Absent::Missing(shown()))?;
    if found.next().is_some() {
        let error = "two chips have this name".to_owned();
        return Err(Absent::Failed { path: shown(), error });
    }
    let folder = Folder::open(sys, &chip.folder)?;
    if chip.is_there(sys) && folder.is_at(sys, &chip.folder) {
        return Ok((chip.folder.clone(), folder));
    }
    Err(Absent::Missing(shown()))
}

/// The drive that is saved as `name`, by what is `known` or by what is found, and what `open` opens
/// of it.
fn one_drive<T>(
    sys: &Sys,
    known: &[Drive],
    name: &str,
    open: impl Fn(&Drive) -> Result<T, Absent>,
) -> Result<T, Absent> {
    let gone = || Absent::Missing(name.into());
    let one = |drives: &[Drive]| {
        let found = drives.iter().find(|drive| drive.saved.as_deref() == Some(name));
        let drive = found.ok_or_else(gone)?;
        let opened = open(drive)?;
        // Whoever has its name by now is not asked.
        if drive.is_there(sys) { Ok(opened) } else { Err(gone()) }
    };
    missing_or(one(known), || one(&Drive::found(sys)))
}

/// The controller of an NVMe drive.
fn controller(machine: &Machine, id: &str) -> Result<Patient, Absent> {
    one_drive(&machine.sys, &machine.drives, id, |drive| {
        let gone = || Absent::Missing(id.into());
        machine.open_nvme(drive.controller.as_deref().ok_or_else(gone)?)
    })
}

/// The zone of a package of one control type.
fn one_package(sys: &Sys, control_type: &str, package: &str) -> Result<Zone, Absent> {
    let mut found = Zone::named(sys, control_type, package);
    let shown = || format!("{package} ({control_type})").into();
    match (found.pop(), found.pop()) {
        (Some(zone), None) => Ok(zone),
        (None, _) => Err(Absent::Missing(shown())),
        _ => {
            let error = "two zones have this name".to_owned();
            Err(Absent::Failed { path: shown(), error })
        }
    }
}

/// Gives a control group its list of CPUs. Looked at first: never one of which the kernel could
/// crash.
fn set_cpuset(sys: &Sys, groups: &Folder, group: &str, list: &str) -> Result<(), Absent> {
    groups::is_safe(sys, group)?;
    let file = format!("{group}/cpuset.cpus");
    if !list.is_empty() {
        return groups.write(&file, list);
    }
    // The controller may have gone on for others meanwhile: then Linux takes the list from no
    // group that has tasks (`validate_change`, ENOSPC).
    let error = match groups.write(&file, "\n") {
        Err(Absent::Failed { error, .. }) => error,
        result => return result,
    };
    groups.write(&file, &cpu_list(&sys.cpus(format!("{CGROUPS}/cpuset.cpus.effective"))?))?;
    let error = format!("{error}; it has all CPUs now, which means the same");
    Err(Absent::Failed { path: sys.path(format!("{CGROUPS}/{file}")), error })
}

/// Whether a CPU is online; the CPUs that can never be offline do not have it.
#[must_use]
pub fn online(cpu: u16) -> String {
    format!("{CPUS}/cpu{cpu}/online")
}

/// The CPUs that are offline.
fn offline(sys: &Sys, cpus: &Folder) -> Result<Vec<u16>, Absent> {
    let mut all = Vec::new();
    for name in sys.numbered(CPUS, "cpu") {
        let Ok(cpu) = name["cpu".len()..].parse() else { continue };
        match cpus.text(&format!("{name}/online")) {
            Ok(is) if is == "0" => all.push(cpu),
            Ok(_) | Err(Absent::Missing(_)) => {}
            Err(absent) => return Err(absent),
        }
    }
    Ok(all)
}

/// Takes `list` offline, and no others.
fn set_offline(sys: &Sys, all: &Folder, list: &str) -> Result<(), Absent> {
    let wanted = cpus(list).ok_or_else(|| sys.nonsense("", list, "a list of CPUs"))?;
    let is = offline(sys, all)?;
    let back = is.iter().filter(|cpu| !wanted.contains(cpu)).map(|cpu| (*cpu, "1"));
    let mut gone: Vec<_> =
        wanted.iter().filter(|cpu| !is.contains(cpu)).map(|cpu| (*cpu, "0")).collect();
    let mut done = Ok(());
    if !gone.is_empty() {
        done = groups::may_unplug(sys);
        gone.retain(|_| done.is_ok());
    }
    // All are tried: one that cannot come back is no reason to leave another one away.
    for (cpu, to) in back.chain(gone) {
        let set = all.write(&format!("cpu{cpu}/online"), to);
        done = done.and(set);
    }
    done
}
