//! Where things can be set: by names that outlive a restart, from one list of all that Ebb ever
//! sets and of what each takes. What is not on the list is neither saved nor set nor set back,
//! whatever a file with saved values says.

use std::mem::discriminant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find::chips::shown;
use crate::find::identity::unplaced;
use crate::nvme::{POWER_LIMIT_BITS, POWER_STATE_BITS};
use crate::sys::cpus;

/// Where the unified hierarchy of control groups is (`Documentation/admin-guide/cgroup-v2.rst`).
pub const CGROUPS: &str = "sys/fs/cgroup";

/// The file of an NVMe controller's device with the longest wake-up that is tolerated, which the
/// kernel makes the drive's table of transitions from (Feature 0Ch; `nvme_configure_apst` in
/// `drivers/nvme/host/core.c`).
pub const TOLERANCE: &str = "power/pm_qos_latency_tolerance_us";

/// More than a file of the kernel says or takes at once: a page.
const LONGEST: usize = 4096;

/// Where something is set, by a name that stays when devices are numbered anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
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
    /// A file of the device of a disk.
    Disk {
        /// What identifies the disk.
        disk: String,
        /// The file, such as `power/control`.
        file: String,
    },
    /// Whether the root control group hands a controller on to its children.
    Controller {
        /// Such as `cpuset`.
        name: String,
    },
    /// The list of CPUs that the tasks of a control group may use.
    Cpuset {
        /// Its path below the root.
        group: String,
    },
    /// Most bytes a second that the tasks of a control group read and write of a disk (`io.max`).
    Rates {
        /// Its path below the root.
        group: String,
        /// What identifies the disk.
        disk: String,
    },
    /// The CPUs that are offline (`Documentation/core-api/cpu_hotplug.rst`).
    Offline,
    /// The NVMe power state of a drive (NVMe Base, Feature 02h).
    PowerState {
        /// Model and serial number of its controller.
        drive: String,
    },
    /// The longest wake-up of the idle states that the kernel lets a drive enter by itself (APST):
    /// `pm_qos_latency_tolerance_us` of its controller.
    IdleWake {
        /// Model and serial number of its controller.
        drive: String,
    },
    /// The NVMe power limit of a drive (NVMe Base 2.3, Feature 23h).
    PowerLimit {
        /// Model and serial number of its controller.
        drive: String,
    },
    /// The long-term power limit of a processor package, whose number changes as packages come and
    /// go (`Documentation/power/powercap/powercap.rst`).
    PackagePower {
        /// Such as `intel-rapl`.
        control_type: String,
        /// Such as `package-0`.
        package: String,
    },
}

/// What a place takes.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// A number from 0 to this.
    Number(u64),
    /// Milliseconds; negative ones turn it off.
    Signed,
    /// Microseconds, or `n/a` (`Documentation/ABI/testing/sysfs-devices-power`).
    Latency,
    /// Microseconds, `any` or `auto` (`Documentation/power/pm_qos_interface.rst`).
    Tolerance,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A name, such as a governor's.
    Name,
    /// CPUs, such as `0-3,8`, or none.
    Cpus,
    /// CPUs as bits, such as `ff,ffffffff`.
    Mask,
    /// `default` and a number.
    Weight,
    /// Microseconds, or `max`, of a period in microseconds.
    Quota,
    /// Bytes a second, or `max`, such as `rbps=max wbps=1048576`.
    Rates,
}

use Takes::{Cpus, Latency, Mask, Name, Number, Quota, Rates, Signed, Tolerance, Weight, Word};

/// Files at paths that do not change. `#` is a number, `*` any name, `**` one or more names.
const FILES: [(&str, Takes); 10] = [
    ("sys/devices/system/cpu/cpufreq/policy#/scaling_min_freq", Number(u64::MAX)),
    ("sys/devices/system/cpu/cpufreq/policy#/scaling_max_freq", Number(u64::MAX)),
    ("sys/devices/system/cpu/cpufreq/policy#/scaling_governor", Name),
    ("sys/devices/system/cpu/cpufreq/policy#/energy_performance_preference", Name),
    ("sys/devices/system/cpu/cpu#/power/pm_qos_resume_latency_us", Latency),
    ("sys/devices/virtual/workqueue/cpumask", Mask),
    ("sys/fs/cgroup/**/cpu.weight", Number(10_000)),
    ("sys/fs/cgroup/**/cpu.max", Quota),
    ("sys/fs/cgroup/**/io.weight", Weight),
    ("sys/fs/cgroup/**/cgroup.freeze", Number(1)),
];

/// Files of chips (`Documentation/hwmon/sysfs-interface.rst`).
const CHIPS: [(&str, Takes); 2] = [("pwm#", Number(255)), ("pwm#_enable", Number(255))];

/// Files of disks (`Documentation/ABI/testing/sysfs-devices-power`, `sysfs-block-device`).
const DISKS: [(&str, Takes); 3] = [
    ("power/control", Word(&["auto", "on"])),
    ("power/autosuspend_delay_ms", Signed),
    ("scsi_disk/*/manage_runtime_start_stop", Number(1)),
];

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path } => write!(f, "/{path}"),
            Self::Chip { chip, device, file } => write!(f, "{file} of {}", shown(chip, &[device])),
            Self::Disk { disk, file } => write!(f, "{file} of {disk}"),
            Self::Controller { name } => write!(f, "the {name} controller in /{CGROUPS}"),
            Self::Cpuset { group } => write!(f, "/{CGROUPS}/{group}/cpuset.cpus"),
            Self::Rates { group, disk } => write!(f, "/{CGROUPS}/{group}/io.max of {disk}"),
            Self::Offline => write!(f, "the CPUs that are offline"),
            Self::PowerState { drive } => write!(f, "the power state of {drive}"),
            Self::IdleWake { drive } => write!(f, "{TOLERANCE} of {drive}"),
            Self::PowerLimit { drive } => write!(f, "the power limit of {drive}"),
            Self::PackagePower { control_type, package } => {
                write!(f, "the power limit of {package} ({control_type})")
            }
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
    pub const HOLDS: [&str; 5] =
        ["package_power", "drive_power", "cpu_latency", "energy_preference", "disk_standby"];

    /// The key of `[hold]` that is set there.
    #[must_use]
    pub fn hold(&self) -> &'static str {
        let [package, drive, latency, energy, standby] = Self::HOLDS;
        match self {
            Self::PowerLimit { .. } => drive,
            Self::PackagePower { .. } => package,
            Self::File { path } if path.ends_with("/pm_qos_resume_latency_us") => latency,
            Self::File { path } if path.ends_with("/energy_performance_preference") => energy,
            _ => standby,
        }
    }

    /// Whether it is a setting of control groups, which their manager may begin anew at any time:
    /// systemd takes away at a daemon-reload what it has not set.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        match self {
            Self::File { path } => path.starts_with(CGROUPS) && path.ends_with("/cpu.max"),
            other => {
                matches!(other, Self::Cpuset { .. } | Self::Controller { .. } | Self::Rates { .. })
            }
        }
    }

    /// Whether it holds tasks still: whatever else is to be set back, they go on first.
    #[must_use]
    pub fn freezes(&self) -> bool {
        matches!(self, Self::File { path } if path.ends_with("/cgroup.freeze"))
    }

    /// Whether Linux may forget what tasks are bound to when it is set.
    #[must_use]
    pub fn unbinds(&self) -> bool {
        matches!(self, Self::Cpuset { .. } | Self::Controller { .. } | Self::Offline)
    }

    /// What the drive that it is of is saved as.
    #[must_use]
    pub fn drive(&self) -> Option<&str> {
        match self {
            Self::Disk { disk: drive, .. }
            | Self::Rates { disk: drive, .. }
            | Self::PowerState { drive }
            | Self::IdleWake { drive }
            | Self::PowerLimit { drive } => Some(drive),
            _ => None,
        }
    }

    /// Whether it is in a drive.
    #[must_use]
    pub fn is_drive(&self) -> bool {
        matches!(self, Self::PowerState { .. } | Self::PowerLimit { .. })
    }

    /// Whether it is called `name`, or is one of the device that is.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let device = match self {
            Self::Chip { chip, .. } => chip,
            Self::PackagePower { package, .. } => package,
            other => other.drive().unwrap_or_default(),
        };
        [device, unplaced(device)].contains(&name) || self.to_string() == name
    }

    /// Whether it ends with what it belongs to: a control group, or the kernel's view of a drive,
    /// that comes back begins anew.
    #[must_use]
    pub fn ends_with_its_owner(&self) -> bool {
        self.is_of_a_group() || matches!(self, Self::Disk { .. } | Self::IdleWake { .. })
    }

    /// Whether it is a file of a control group, which goes with the group and with its controller.
    #[must_use]
    pub fn is_of_a_group(&self) -> bool {
        match self {
            Self::File { path } => path.starts_with(CGROUPS),
            other => matches!(other, Self::Cpuset { .. } | Self::Rates { .. }),
        }
    }

    /// Whether it is a limit of a frequency domain, none of whose files can be used while all of
    /// its CPUs are offline.
    #[must_use]
    pub fn is_frequency(&self) -> bool {
        matches!(self, Self::File { path } if path.contains("/cpufreq/"))
    }

    /// Whether it is set by the same control as another one.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        let file = |place: &Self| match place {
            Self::File { path } => path.rsplit_once('/').map(|(_, file)| file.to_owned()),
            _ => None,
        };
        discriminant(self) == discriminant(other) && file(self) == file(other)
    }

    /// Whether what it says is what somebody has written, and not what a driver or firmware makes
    /// of it, as of fans and drives.
    #[must_use]
    pub fn is_as_written(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Rates { .. } | Self::Cpuset { .. })
    }

    /// The duty of the fan whose mode it is.
    #[must_use]
    pub fn duty(&self) -> Option<Self> {
        let Self::Chip { chip, device, file } = self else { return None };
        let file = file.strip_suffix("_enable")?.to_owned();
        Some(Self::Chip { chip: chip.clone(), device: device.clone(), file })
    }

    /// What to do where it does not take back what was found.
    #[must_use]
    pub fn stuck(&self) -> Option<&'static str> {
        self.duty().map(|_| {
            "its driver shows this mode and does not take it: the fan is at full speed until the \
             machine is restarted or the driver is loaded anew (modprobe -r, then modprobe); after \
             that run 'ebb restore'"
        })
    }

    /// Whether it is on the list.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.takes().is_some()
    }

    /// Whether it is on the list and takes `value`.
    #[must_use]
    pub fn can_be(&self, value: &str) -> bool {
        value.len() <= LONGEST && self.takes().is_some_and(|takes| takes.fits(value))
    }

    fn takes(&self) -> Option<Takes> {
        let of = |rows: &[(&str, Takes)], path: &str| {
            rows.iter().find(|(row, _)| is_like(row, path)).map(|(_, takes)| *takes)
        };
        match self {
            Self::File { path } => of(&FILES, path),
            Self::Chip { file, .. } => of(&CHIPS, file),
            Self::Disk { file, .. } => of(&DISKS, file),
            Self::Controller { name } => (name == "cpuset").then_some(Word(&["on", "off"])),
            Self::Cpuset { group } => group.split('/').all(is_name).then_some(Cpus),
            Self::Rates { group, .. } => group.split('/').all(is_name).then_some(Rates),
            Self::Offline => Some(Cpus),
            Self::PowerState { .. } => Some(Number(POWER_STATE_BITS.into())),
            Self::IdleWake { .. } => Some(Tolerance),
            Self::PowerLimit { .. } => Some(Number(POWER_LIMIT_BITS.into())),
            Self::PackagePower { .. } => Some(Number(u64::MAX)),
        }
    }
}

impl Takes {
    fn fits(self, value: &str) -> bool {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten()
        };
        match self {
            Number(most) => number(value).is_some_and(|number| number <= most),
            Signed => number(value.strip_prefix('-').unwrap_or(value)).is_some(),
            Latency => value == "n/a" || number(value).is_some(),
            Tolerance => {
                let most = i32::MAX as u64;
                ["any", "auto"].contains(&value) || number(value).is_some_and(|us| us <= most)
            }
            Word(words) => words.contains(&value),
            Name => {
                let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
                !value.is_empty() && value.bytes().all(is_plain)
            }
            Cpus => cpus(value).is_some(),
            Mask => !value.is_empty() && value.bytes().all(|b| b.is_ascii_hexdigit() || b == b','),
            Quota => value.split_once(' ').is_some_and(|(quota, period)| {
                (quota == "max" || number(quota).is_some()) && number(period).is_some()
            }),
            Rates => {
                let rate = |text: &str, key: &str| {
                    let rate = text.strip_prefix(key);
                    rate.is_some_and(|rate| rate == "max" || number(rate).is_some())
                };
                let both = value.split_once(' ');
                both.is_some_and(|(read, write)| rate(read, "rbps=") && rate(write, "wbps="))
            }
            Weight => number(value.strip_prefix("default ").unwrap_or(value)).is_some(),
        }
    }
}

/// Whether `path` is one of those that `row` stands for.
fn is_like(row: &str, path: &str) -> bool {
    fn of(row: &[&str], path: &[&str]) -> bool {
        match (row, path) {
            (["**", rest @ ..], [name, more @ ..]) => {
                is_name(name) && (of(rest, more) || of(row, more))
            }
            ([step, rest @ ..], [name, more @ ..]) => {
                is_name(name) && is_step(step, name) && of(rest, more)
            }
            (row, path) => row.is_empty() && path.is_empty(),
        }
    }
    of(&row.split('/').collect::<Vec<_>>(), &path.split('/').collect::<Vec<_>>())
}

/// Whether `name` is what one step of a row stands for.
fn is_step(step: &str, name: &str) -> bool {
    match step.split_once('#') {
        None => step == "*" || step == name,
        Some((before, after)) => {
            let number = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            number.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
        }
    }
}

/// Whether `text` can be the name of a file in a folder.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && c != '/';
    !["", ".", ".."].contains(&text) && text.len() <= 255 && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(path: &str) -> Place {
        Place::File { path: path.to_owned() }
    }

    fn chip(file: &str) -> Place {
        let [chip, device, file] = ["nct6798", "nct6775.656", file].map(str::to_owned);
        Place::Chip { chip, device, file }
    }

    fn rates(group: &str) -> Place {
        Place::Rates { group: group.to_owned(), disk: "any".to_owned() }
    }

    fn package() -> Place {
        let [control_type, package] = ["intel-rapl", "package-0"].map(str::to_owned);
        Place::PackagePower { control_type, package }
    }

    const LIMIT: &str = "sys/devices/system/cpu/cpufreq/policy12/scaling_max_freq";

    #[test]
    fn what_is_on_the_list_takes_what_the_kernel_has_there() {
        for (place, value, other) in [
            (file(LIMIT), "3400000", "fast"),
            (file(&LIMIT.replace("max_freq", "governor")), "schedutil", "a b"),
            (package(), "150000000", "-1"),
            (file("sys/devices/system/cpu/cpu7/power/pm_qos_resume_latency_us"), "n/a", ""),
            (file("sys/fs/cgroup/system.slice/a b.service/cpu.weight"), "100", "10001"),
            (file("sys/fs/cgroup/backup.slice/io.weight"), "default 100", "8:0 100"),
            (file("sys/fs/cgroup/backup.slice/cpu.max"), "max 100000", "max"),
            (file("sys/fs/cgroup/backup.slice/cpu.max"), "5000 100000", "-1 100000"),
            (file("sys/fs/cgroup/a.slice/b.service/cgroup.freeze"), "1", "2"),
            (file("sys/devices/virtual/workqueue/cpumask"), "ff,ffffffff", "0-3"),
            (chip("pwm12"), "255", "256"),
            (chip("pwm1_enable"), "5", "5\n6"),
            (Place::Offline, "", "x"),
            (Place::Cpuset { group: "system.slice".to_owned() }, "0-3,8", "8-3"),
            (rates("a.slice/b.service"), "rbps=max wbps=1048576", "rbps=max"),
            (rates("a.slice"), "rbps=0 wbps=max", "rbps=1 wbps=-1"),
            (Place::PowerState { drive: "any".to_owned() }, "31", "32"),
            (Place::IdleWake { drive: "any".to_owned() }, "100000", "-1"),
            (Place::IdleWake { drive: "any".to_owned() }, "auto", "2147483648"),
        ] {
            assert!(place.is_listed() && place.can_be(value), "{place}: {value}");
            assert!(!place.can_be(other), "{place}: {other}");
        }
    }

    #[test]
    fn nothing_else_is_on_it() {
        let (etc, up) = ("/etc/passwd", "sys/fs/cgroup/../../../etc/cpu.weight");
        for path in ["", "/", etc, "etc/passwd", "sys/../etc/passwd", up, &format!("/{LIMIT}")] {
            assert!(!file(path).is_listed(), "{path}");
        }
        let wrong = ["policy12", "policy", "policy1x", "policy1/..", "policy-1"];
        for policy in &wrong[1..] {
            assert!(!file(&LIMIT.replace(wrong[0], policy)).is_listed(), "{policy}");
        }
        assert!(!file("sys/fs/cgroup/cpu.weight").is_listed(), "the root group has none");
        for name in ["../../../../../x", "pwm1/x", "pwm", "temp1_input", "pwm1_enable2", "fan1"] {
            assert!(!chip(name).is_listed(), "{name}");
        }
        for group in ["", "..", "../x", "a//b", "a/../b"] {
            assert!(!Place::Cpuset { group: group.to_owned() }.is_listed(), "{group}");
            assert!(!rates(group).is_listed(), "{group}");
        }
        assert!(!Place::Controller { name: "memory".to_owned() }.is_listed());
    }

    proptest! {
        /// Whatever a file with saved values names: what is listed leads nowhere else.
        #[test]
        fn what_is_listed_stays_below_sys(
            steps in proptest::collection::vec(
                prop_oneof![
                    "[a-z.0-9]{0,8}", Just("..".to_owned()), Just("sys".to_owned()),
                    Just("fs/cgroup".to_owned()), Just("class/powercap".to_owned()),
                    Just("cpu.weight".to_owned()), Just("constraint_0_power_limit_uw".to_owned()),
                ],
                0..8,
            ),
        ) {
            let path = steps.join("/");
            if file(&path).is_listed() {
                prop_assert!(path.starts_with("sys/"));
                prop_assert!(path.split('/').all(|step| !["", ".", ".."].contains(&step)));
            }
        }
    }
}
