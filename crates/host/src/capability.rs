//! What the kernel lets only some processes do, and which of that this process may
//! (capabilities(7)).

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

/// One that Ebb needs for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Reading and writing the kernel's files that are root's.
    DacOverride,
    /// Admin commands of NVMe drives.
    SysAdmin,
    /// Binding other users' tasks to CPUs.
    SysNice,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DacOverride, Self::SysAdmin, Self::SysNice];

    /// As the kernel and systemd call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
        }
    }

    /// What it is needed for.
    #[must_use]
    pub const fn what_for(self) -> &'static str {
        match self {
            Self::DacOverride => "the kernel's files that are root's",
            Self::SysAdmin => "admin commands of NVMe drives",
            Self::SysNice => "tasks of others that are bound to CPUs",
        }
    }

    /// Whether this thread has it. Where the kernel does not say, it may.
    #[must_use]
    pub fn is_there(self) -> bool {
        let effective = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
        effective.contains(match self {
            Self::DacOverride => CapabilitySet::DAC_OVERRIDE,
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
            Self::SysNice => CapabilitySet::SYS_NICE,
        })
    }

    /// What to do about a refusal: nobody is told to get what they have.
    #[must_use]
    pub fn remedy(self) -> String {
        remedy(self.name(), self.is_there(), geteuid().is_root())
    }
}

fn remedy(name: &str, is_there: bool, is_root: bool) -> String {
    match (is_there, is_root) {
        (true, _) => format!("{name} is there, so the kernel refuses it to everybody here"),
        (_, true) => format!("this root lacks {name}: give it to the container or the unit"),
        _ => format!("run as root, or with {name} (AmbientCapabilities= of systemd)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_for() {
        assert!(remedy("CAP_X", false, false).contains("run as root, or with CAP_X"));
        for (is_there, is_root) in [(true, false), (true, true), (false, true)] {
            assert!(!remedy("CAP_X", is_there, is_root).contains("as root"));
        }
        // As /proc/self/status has it, bit by bit (include/uapi/linux/capability.h).
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        for (one, bit) in Capability::ALL.into_iter().zip([1, 21, 23]) {
            assert_eq!(one.is_there(), mask & 1 << bit != 0, "{one:?}");
        }
    }
}
