//! What can be set on a machine: where it is by a name that outlives a restart, how it is read and
//! written.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::nvme::{Admin, POWER_MANAGEMENT, Patient};
use crate::sys::{Absent, Sys};

/// Where the unified hierarchy of control groups is (`Documentation/admin-guide/cgroup-v2.rst`).
pub const CGROUPS: &str = "sys/fs/cgroup";

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
    /// A partition of CPUs on which nothing runs, by its control group.
    Partition {
        /// The group's name.
        group: String,
    },
    /// The NVMe power state of a drive (NVMe Base, Feature 02h).
    PowerState {
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
            Self::Partition { group } => write!(f, "the CPU partition /{CGROUPS}/{group}"),
            Self::PowerState { drive } => write!(f, "the power state of {drive}"),
        }
    }
}

impl Place {
    /// Whether its value can outlive a restart of the machine: the chips of boards often keep
    /// theirs, and so may a drive that stays powered. The kernel's own settings begin anew.
    #[must_use]
    pub fn survives_reboot(&self) -> bool {
        matches!(self, Self::Chip { .. } | Self::PowerState { .. })
    }
}

/// A place that was found on this machine.
#[derive(Debug)]
pub struct Knob {
    at: At,
}

#[derive(Debug)]
enum At {
    File(String),
    Controller(String),
    Partition(String),
    PowerState(Patient),
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
                let is_it = |one: &&crate::hwmon::Chip| {
                    one.name == *chip && one.device.as_deref().unwrap_or_default() == device
                };
                let found = machine.chips.iter().find(is_it);
                let gone = || Absent::Missing(format!("{chip} ({device})").into());
                At::File(format!("{}/{file}", found.ok_or_else(gone)?.folder))
            }
            Place::Controller { name } => At::Controller(name.clone()),
            Place::Partition { group } => At::Partition(format!("{CGROUPS}/{group}")),
            Place::PowerState { drive } => {
                let is_it = |one: &&crate::drives::Drive| one.id.as_ref() == Some(drive);
                let found = machine.drives.iter().find(is_it);
                let controller = found.and_then(|drive| drive.controller.as_ref());
                let gone = || Absent::Missing(drive.into());
                At::PowerState(machine.open_nvme(controller.ok_or_else(gone)?)?)
            }
        };
        Ok(Self { at })
    }

    /// What it is set to.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn read(&mut self, sys: &Sys) -> Result<String, Absent> {
        match &mut self.at {
            At::File(path) => sys.text(path),
            At::Controller(name) => {
                let on = sys.text(format!("{CGROUPS}/cgroup.subtree_control"))?;
                let on = on.split_whitespace().any(|one| one == name);
                Ok(if on { "on" } else { "off" }.to_owned())
            }
            At::Partition(folder) => partition(sys, folder),
            At::PowerState(drive) => {
                drive.feature(POWER_MANAGEMENT).map(|value| (value & 0x1f).to_string())
            }
        }
    }

    /// Sets it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&mut self, sys: &Sys, value: &str) -> Result<(), Absent> {
        match &mut self.at {
            At::File(path) => sys.write(path, value),
            At::Controller(name) => {
                let sign = if value == "on" { '+' } else { '-' };
                sys.write(format!("{CGROUPS}/cgroup.subtree_control"), &format!("{sign}{name}"))
            }
            At::Partition(folder) => set_partition(sys, folder, value),
            At::PowerState(drive) => {
                let state = value.parse().map_err(|_| sys.nonsense("", value, "a power state"))?;
                drive.set_feature(POWER_MANAGEMENT, state)
            }
        }
    }
}

/// The CPUs that the partition keeps from everybody; none where it is not there. One that the
/// kernel calls invalid keeps none, and the text says why.
fn partition(sys: &Sys, folder: &str) -> Result<String, Absent> {
    match sys.text(format!("{folder}/cpuset.cpus.partition")) {
        Err(Absent::Missing(_)) => Ok(String::new()),
        Ok(kind) if kind == "root" || kind == "isolated" => {
            sys.text(format!("{folder}/cpuset.cpus"))
        }
        Ok(kind) if kind == "member" => Ok(String::new()),
        other => other,
    }
}

/// Keeps `cpus` from everybody: an empty partition, whose CPUs no task and no other group can use.
fn set_partition(sys: &Sys, folder: &str, cpus: &str) -> Result<(), Absent> {
    let kind = format!("{folder}/cpuset.cpus.partition");
    if cpus.is_empty() {
        if !sys.has(folder) {
            return Ok(());
        }
        sys.write(&kind, "member")?;
        // With that the CPUs are back; a folder that somebody has put a task in can stay.
        let _ = sys.remove_folder(folder);
        return Ok(());
    }
    if !sys.has(folder) {
        sys.make_folder(folder)?;
    }
    sys.write(format!("{folder}/cpuset.cpus"), cpus)?;
    match sys.text(&kind)?.as_str() {
        "root" => Ok(()),
        _ => sys.write(&kind, "root"),
    }
}
