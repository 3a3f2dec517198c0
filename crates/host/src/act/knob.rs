//! What can be set on a machine: where it is by a name that outlives a restart, how it is read and
//! written.

use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::act::groups::{self, CGROUPS};
use crate::find::hwmon::Chip;
use crate::find::machine::Machine;
use crate::nvme::{Admin, POWER_LIMIT, POWER_MANAGEMENT, Patient};
use crate::sys::{Absent, Sys, cpu_list, cpus};

/// Where its CPUs are.
const CPUS: &str = "sys/devices/system/cpu";

/// Where something is set, by a name that stays when devices are numbered anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Place {
    /// A file of the kernel whose path does not change.
    File {
        /// Below the root, such as `sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq`.
        path: String,
    },
    /// A file of a sensor chip, whose number changes from start to start.
    Chip {
        /// The driver's name, such as `nct6798`.
        chip: String,
        /// Its device, such as `nct6775.656`; empty where it has none.
        device: String,
        /// The file, such as `pwm1_enable`.
        file: String,
    },
    /// Whether the root control group hands a controller on to its children.
    Controller {
        /// Such as `cpuset`.
        name: String,
    },
    /// The list of CPUs that the tasks of a control group may use.
    Cpuset {
        /// The group's name, directly below the root.
        group: String,
    },
    /// The CPUs that are offline (`Documentation/core-api/cpu_hotplug.rst`).
    Offline,
    /// The NVMe power state of a drive (NVMe Base, Feature 02h).
    PowerState {
        /// Model and serial number of its controller.
        drive: String,
    },
    /// The NVMe power limit of a drive (NVMe Base 2.3, Feature 23h).
    PowerLimit {
        /// Model and serial number of its controller.
        drive: String,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path } => write!(f, "/{path}"),
            Self::Chip { chip, device, file } => write!(f, "{file} of {chip} ({device})"),
            Self::Controller { name } => write!(f, "the {name} controller in /{CGROUPS}"),
            Self::Cpuset { group } => write!(f, "/{CGROUPS}/{group}/cpuset.cpus"),
            Self::Offline => write!(f, "the CPUs that are offline"),
            Self::PowerState { drive } => write!(f, "the power state of {drive}"),
            Self::PowerLimit { drive } => write!(f, "the power limit of {drive}"),
        }
    }
}

impl Place {
    /// Whether its value can outlive a restart of the machine: the chips of boards often keep
    /// theirs, and so may a drive that stays powered. The kernel's own settings begin anew.
    #[must_use]
    pub fn survives_reboot(&self) -> bool {
        matches!(self, Self::Chip { .. }) || self.is_drive()
    }

    /// The keys of `[hold]`.
    pub const HOLDS: [&str; 4] = ["package_power", "drive_power", "cpu_latency", "disk_standby"];

    /// The key of `[hold]` that is set there.
    #[must_use]
    pub fn hold(&self) -> &'static str {
        let [package, drive, latency, standby] = Self::HOLDS;
        match self {
            Self::PowerLimit { .. } => drive,
            Self::File { path } if path.contains("/powercap/") => package,
            Self::File { path } if path.ends_with("/pm_qos_resume_latency_us") => latency,
            _ => standby,
        }
    }

    /// Whether it is a setting of control groups, which their manager may begin anew at any time:
    /// systemd takes away at a daemon-reload what it has not set.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        matches!(self, Self::Cpuset { .. } | Self::Controller { .. })
    }

    /// Whether Linux may forget what tasks are bound to when it is set.
    #[must_use]
    pub fn unbinds(&self) -> bool {
        self.is_managed() || *self == Self::Offline
    }

    /// Whether what was set goes with what it was set in.
    #[must_use]
    pub fn goes(&self) -> bool {
        self.is_drive() || matches!(self, Self::Cpuset { .. })
    }

    /// Whether `found` can have been set there: all that drivers take but text is a number.
    #[must_use]
    pub fn fits(&self, found: &str) -> bool {
        let numeric = match self {
            Self::Chip { .. } => true,
            Self::File { path } => path.contains("/cpufreq/"),
            _ => false,
        };
        !numeric || found.parse::<u64>().is_ok()
    }

    /// Whether it is in a drive, which forgets it without power.
    #[must_use]
    pub fn is_drive(&self) -> bool {
        matches!(self, Self::PowerState { .. } | Self::PowerLimit { .. })
    }
}

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
    File(String),
    Chip(ChipFile),
    Controller(String),
    Cpuset(String),
    Offline,
    /// The bits of a feature of a drive that are its value.
    Feature(Patient, u8, u32),
}

impl Knob {
    /// Finds `place`.
    ///
    /// # Errors
    /// Where there is no such device any more.
    pub fn find(machine: &Machine, place: &Place) -> Result<Self, Absent> {
        let at = match place {
            Place::File { path } => At::File(path.clone()),
            Place::Chip { chip, device, file } => {
                let [chip, device, file] = [chip, device, file].map(String::clone);
                let mut at = ChipFile { chip, device, file, folder: String::new() };
                at.find(&machine.chips)?;
                At::Chip(at)
            }
            Place::Controller { name } => At::Controller(name.clone()),
            Place::Cpuset { group } => return Ok(Self::cpuset(group)),
            Place::Offline => At::Offline,
            Place::PowerState { drive } | Place::PowerLimit { drive } => {
                let is_it = |one: &&crate::find::drives::Drive| one.id.as_ref() == Some(drive);
                let found = machine.drives.iter().find(is_it);
                let controller = found.and_then(|drive| drive.controller.as_ref());
                let gone = || Absent::Missing(drive.into());
                let controller = machine.open_nvme(controller.ok_or_else(gone)?)?;
                match place {
                    Place::PowerState { .. } => At::Feature(controller, POWER_MANAGEMENT, 0x1f),
                    _ => At::Feature(controller, POWER_LIMIT, 0x3_ffff),
                }
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
            At::File(path) => sys.settable(path),
            At::Chip(file) => sys.settable(file.path(sys)?),
            _ => Ok(()),
        }
    }

    /// The list of CPUs of a control group.
    #[must_use]
    pub fn cpuset(group: &str) -> Self {
        Self { at: At::Cpuset(group.to_owned()) }
    }

    /// What it is set to.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn read(&mut self, sys: &Sys) -> Result<String, Absent> {
        match &mut self.at {
            At::File(path) => sys.text(path),
            At::Chip(file) => sys.text(file.path(sys)?),
            At::Controller(name) => {
                sys.text(format!("{CGROUPS}/cgroup.subtree_control"))?;
                Ok(if groups::is_on(sys, name) { "on" } else { "off" }.to_owned())
            }
            At::Cpuset(group) => match sys.text(format!("{CGROUPS}/{group}/cpuset.cpus")) {
                // Without the controller nothing is restricted.
                Err(Absent::Missing(_)) if sys.has(format!("{CGROUPS}/{group}")) => {
                    Ok(String::new())
                }
                list => list,
            },
            At::Offline => offline(sys).map(|cpus| cpu_list(&cpus)),
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
        matches!(&self.at, At::File(path) if path.contains("/cpufreq/"))
    }

    /// Sets it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&mut self, sys: &Sys, value: &str) -> Result<(), Absent> {
        match &mut self.at {
            At::File(path) => sys.write(path, value),
            At::Chip(file) => sys.write(file.path(sys)?, value),
            At::Controller(name) => {
                groups::are_safe(sys)?;
                let sign = if value == "on" { '+' } else { '-' };
                sys.write(format!("{CGROUPS}/cgroup.subtree_control"), &format!("{sign}{name}"))
            }
            At::Cpuset(group) => set_cpuset(sys, group, value),
            At::Offline => set_offline(sys, value),
            At::Feature(drive, feature, _) => {
                let value = value.parse().map_err(|_| sys.nonsense("", value, "a number"))?;
                drive.set_feature(*feature, value)
            }
        }
    }
}

/// A file of a chip. The number in the chip's folder is another chip's once drivers were loaded
/// anew, so the folder is asked whose it is each time.
#[derive(Debug)]
struct ChipFile {
    chip: String,
    device: String,
    file: String,
    folder: String,
}

impl ChipFile {
    /// Its path.
    fn path(&mut self, sys: &Sys) -> Result<String, Absent> {
        let base = self.folder.strip_suffix("/device").unwrap_or(&self.folder);
        let name = sys.text(format!("{base}/name"));
        let name = name.or_else(|_| sys.text(format!("{base}/device/name"))).ok();
        let device = sys.link(format!("{base}/device")).unwrap_or_default();
        if name.as_ref() != Some(&self.chip) || device != self.device {
            self.find(&Chip::found(sys))?;
        }
        Ok(format!("{}/{}", self.folder, self.file))
    }

    fn find(&mut self, chips: &[Chip]) -> Result<(), Absent> {
        let is_it = |chip: &&Chip| {
            chip.name == self.chip && chip.device.as_deref().unwrap_or_default() == self.device
        };
        let found = chips.iter().find(is_it);
        let gone = || Absent::Missing(format!("{} ({})", self.chip, self.device).into());
        self.folder = found.ok_or_else(gone)?.folder.clone();
        Ok(())
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
fn set_cpuset(sys: &Sys, group: &str, list: &str) -> Result<(), Absent> {
    groups::is_safe(sys, group)?;
    let file = format!("{CGROUPS}/{group}/cpuset.cpus");
    if !list.is_empty() {
        return sys.write(file, list);
    }
    // The controller may have gone on for others meanwhile: then Linux takes the list from no
    // group that has tasks (`validate_change`, ENOSPC).
    let error = match sys.write(&file, "\n") {
        Err(Absent::Failed { error, .. }) => error,
        result => return result,
    };
    sys.write(&file, &cpu_list(&sys.cpus(format!("{CGROUPS}/cpuset.cpus.effective"))?))?;
    let error = format!("{error}; it has all CPUs now, which means the same");
    Err(Absent::Failed { path: sys.path(file), error })
}

/// Whether a CPU is online; the CPUs that can never be offline do not have it.
#[must_use]
pub fn online(cpu: u16) -> String {
    format!("{CPUS}/cpu{cpu}/online")
}

/// The CPUs that are offline.
fn offline(sys: &Sys) -> Result<Vec<u16>, Absent> {
    let mut all = Vec::new();
    for name in sys.numbered(CPUS, "cpu") {
        let Ok(cpu) = name["cpu".len()..].parse() else { continue };
        match sys.text(online(cpu)) {
            Ok(is) if is == "0" => all.push(cpu),
            Ok(_) | Err(Absent::Missing(_)) => {}
            Err(absent) => return Err(absent),
        }
    }
    Ok(all)
}

/// Takes `list` offline, and no others.
fn set_offline(sys: &Sys, list: &str) -> Result<(), Absent> {
    let wanted = cpus(list).ok_or_else(|| sys.nonsense("", list, "a list of CPUs"))?;
    let is = offline(sys)?;
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
        let set = sys.write(online(cpu), to);
        done = done.and(set);
    }
    done
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
}
