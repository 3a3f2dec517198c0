//! What machine a replay ran on, as far as results depend on it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{major, minor};
use schemars::JsonSchema;
use serde::Serialize;

use ebb_host::{Claim, Machine, Sys};

use super::target::Kind;

/// A machine.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct About {
    /// Kernel release.
    pub kernel: Option<String>,
    /// Model of the processors.
    pub cpu: Option<String>,
    /// CPUs online.
    pub cpus: usize,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Driver, governor and limits.
    pub frequencies: Vec<String>,
    /// The drive below the target.
    pub drive: Option<Drive>,
    /// The file system of the target.
    pub file_system: Option<String>,
}

/// A drive.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Drive {
    /// Its name, such as `nvme0n1`.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Whether it is a hard disk; `None` of what is no drive.
    pub rotational: Option<bool>,
    /// Its I/O scheduler.
    pub scheduler: Option<String>,
    /// Its NVMe controller.
    pub controller: Option<String>,
}

impl About {
    /// This machine, with `file` of this kind as the target.
    pub fn new(machine: Option<&Machine>, sys: &Sys, file: &File, kind: &Kind) -> Self {
        let text = |path: &str| sys.text(path).ok();
        let field = |file: &str, name: &str| {
            let text = text(file)?;
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field("proc/meminfo", "MemTotal");
        let memory = memory.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        let cpu = ["model name", "Processor", "Hardware", "CPU implementer"];
        let cpu = cpu.into_iter().find_map(|name| field("proc/cpuinfo", name));
        Self {
            kernel: text("proc/sys/kernel/osrelease"),
            cpu,
            cpus: machine.map_or(0, |machine| machine.cpus.cpus.len()),
            memory_bytes: memory.map(|kib| kib * 1024),
            frequencies: machine.map(frequencies).unwrap_or_default(),
            drive: device(sys, file, kind).map(|name| drive(machine, sys, name)),
            file_system: (!matches!(kind, Kind::Device(_)))
                .then(|| file_system(sys, file))
                .flatten(),
        }
    }
}

fn frequencies(machine: &Machine) -> Vec<String> {
    let line = |policy: &ebb_host::Policy| {
        let limit = |name: &str| machine.sys.number::<f64>(format!("{}/{name}", policy.folder));
        let limits = ["scaling_min_freq", "scaling_max_freq"].map(limit);
        let [Ok(low), Ok(high)] = limits else { return policy.governor.clone() };
        format!(
            "{}: {} from {:.2} to {:.2} GHz",
            policy.driver,
            policy.governor,
            low * 1e-6,
            high * 1e-6
        )
    };
    let mut lines: Vec<_> = machine.cpus.policies.iter().map(line).collect();
    lines.dedup();
    lines
}

/// The block device that a target is or lies on.
fn device(sys: &Sys, file: &File, kind: &Kind) -> Option<String> {
    if let Kind::Device(name) = kind {
        return Some(name.clone());
    }
    let number = file.metadata().ok()?.dev();
    Claim::device(sys, major(number), minor(number))
}

/// The drive with this block device or partition of it.
fn drive(machine: Option<&Machine>, sys: &Sys, device: String) -> Drive {
    let whole = sys.names("sys/block").into_iter();
    let name = whole.into_iter().find(|disk| sys.has(format!("sys/block/{disk}/{device}")));
    let name = name.unwrap_or(device);
    let is_it = |drive: &&ebb_host::Drive| drive.devices.contains(&name);
    let known = machine.and_then(|machine| machine.drives.iter().find(is_it));
    let queue = |file: &str| sys.text(format!("sys/block/{name}/queue/{file}")).ok();
    Drive {
        model: known.map(|drive| drive.model.clone()).unwrap_or_default(),
        rotational: queue("rotational").map(|text| text == "1"),
        scheduler: queue("scheduler").map(|text| chosen(&text).to_owned()),
        controller: known.and_then(|drive| drive.controller.clone()),
        name,
    }
}

/// The one in brackets of `none [mq-deadline]`.
fn chosen(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(chosen, _)| chosen)
}

/// Kind and options of the file system that holds `file`, by `/proc/self/mountinfo` (proc(5)).
fn file_system(sys: &Sys, file: &File) -> Option<String> {
    let number = file.metadata().ok()?.dev();
    let number = format!("{}:{}", major(number), minor(number));
    let mounts = sys.text("proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    let (_, system) = line.split_once(" - ")?;
    let mut fields = system.split(' ');
    let (kind, _, options) = (fields.next()?, fields.next()?, fields.next()?);
    Some(format!("{kind} ({options})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_in_force_is_told() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }
}
