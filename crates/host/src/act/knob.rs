//! How a place is found on this machine, read and written.

use std::thread;
use std::time::Duration;

use crate::act::groups;
use crate::act::place::TOLERANCE;
pub use crate::act::place::{CGROUPS, Place};
use crate::find::chips;
use crate::find::drives::Drive;
use crate::find::energy::Zone;
use crate::find::hwmon::{Chip, is_of};
use crate::find::machine::Machine;
use crate::folder::Folder;
use crate::nvme::{
    Admin, POWER_LIMIT, POWER_LIMIT_BITS, POWER_MANAGEMENT, POWER_STATE_BITS, Patient,
};
use crate::sys::{Absent, Sys, cpu_list, cpus};

/// Where the CPUs of a machine are.
const CPUS: &str = "sys/devices/system/cpu";
/// The controllers that the root control group hands on.
const CONTROLLERS: &str = "cgroup.subtree_control";
/// A control group's file of rates (`Documentation/admin-guide/cgroup-v2.rst`).
pub(super) const RATES: &str = "io.max";

/// The manual mode of a fan (`Documentation/hwmon/sysfs-interface.rst`), and how its file ends.
pub(super) const MANUAL: &str = "1";
const MODE: &str = "_enable";

/// The first nap of who waits for the kernel; each is twice as long as the one before, up to
/// [`LONGEST_NAP`].
const NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(20);

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
            Place::PowerState { drive } => {
                At::Feature(controller(machine, drive)?, POWER_MANAGEMENT, POWER_STATE_BITS)
            }
            Place::PowerLimit { drive } => {
                At::Feature(controller(machine, drive)?, POWER_LIMIT, POWER_LIMIT_BITS)
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

    /// Whether it is a fan's mode, `set` to manual, that reads 0 (none) while the duty is 255, as
    /// some drivers show the manual mode (`reg_to_pwm_enable` of nct6775, `pwm_mode` of it87).
    pub fn is_manual(&mut self, sys: &Sys, set: &str, read: &str) -> bool {
        let At::File(device, file, _) = &mut self.at else { return false };
        if (set, read) != (MANUAL, "0") {
            return false;
        }
        let Some(duty) = file.strip_suffix(MODE) else { return false };
        let read = device.here(sys).and_then(|folder| folder.text(duty));
        read.is_ok_and(|duty| duty == "255")
    }

    /// Whether it is the duty of a fan that its chip steers, which is nobody else's to set.
    pub fn is_steered(&mut self, sys: &Sys) -> bool {
        let At::File(device, file, _) = &mut self.at else { return false };
        if !file.starts_with("pwm") || file.ends_with(MODE) {
            return false;
        }
        let mode = device.here(sys).and_then(|folder| folder.text(&format!("{file}{MODE}")));
        mode.is_ok_and(|mode| mode.parse::<u32>().is_ok_and(|mode| mode > 1))
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

    /// Sets it, unless `is_right` says that it is so already; returns what it was before, and what
    /// is read back. What the kernel does later is waited for, out of `patience`.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn set(
        &mut self,
        sys: &Sys,
        value: &str,
        is_right: impl Fn(&str) -> bool,
        patience: &mut Duration,
    ) -> Result<(String, String), Absent> {
        let before = self.read(sys)?;
        let late = self.is_late();
        if before == value && !late {
            return Ok((before.clone(), before));
        }
        self.write(sys, value)?;
        let mut none = Duration::ZERO;
        let patience = if late { patience } else { &mut none };
        Ok((before, settled(|| self.read(sys), is_right, patience)?))
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

/// What `read` says once `is_right`, or when all of `patience` has gone.
fn settled(
    mut read: impl FnMut() -> Result<String, Absent>,
    is_right: impl Fn(&str) -> bool,
    patience: &mut Duration,
) -> Result<String, Absent> {
    let mut nap = NAP;
    loop {
        let is = read()?;
        if is_right(&is) || patience.is_zero() {
            return Ok(is);
        }
        let length = nap.min(*patience);
        thread::sleep(length);
        *patience -= length;
        nap = (nap * 2).min(LONGEST_NAP);
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

/// Whether what was read back is what was written, as far as drivers round: a fan's chip to a few
/// steps, a processor to its own frequencies.
pub(super) fn is_near(written: &str, read: &str) -> bool {
    let numbers = (written.parse::<f64>(), read.parse::<f64>());
    let (Ok(written), Ok(read)) = numbers else { return written == read };
    let coarse = written >= 16.0;
    written == read || coarse && (written - read).abs() <= (0.02 * written).max(4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_true_later_is_waited_for_but_not_for_ever() {
        let mut reads = 0;
        let mut late = || {
            reads += 1;
            Ok(if reads < 4 { "2400000" } else { "2000000" }.to_owned())
        };
        let mut patience = Duration::from_secs(60);
        let is = settled(&mut late, |is| is == "2000000", &mut patience).unwrap();
        assert_eq!((is.as_str(), patience), ("2000000", Duration::from_millis(60_000 - 7)));
        let mut patience = Duration::from_millis(5);
        let is = settled(|| Ok("1".to_owned()), |is| is == "2", &mut patience).unwrap();
        assert_eq!((is.as_str(), patience), ("1", Duration::ZERO));
    }

    #[test]
    fn a_value_that_is_rounded_is_the_value() {
        for (written, read, near) in
            [("128", "127", true), ("128", "120", false), ("2000000", "1990000", true)]
        {
            assert_eq!(is_near(written, read), near, "{written} {read}");
        }
        assert!(!is_near("3", "2"), "a power state is not rounded");
        assert!(is_near("4-7", "4-7") && !is_near("4-7", "root invalid"));
    }
}
