//! Other programs that set what Ebb sets.

use serde::Serialize;

use crate::sys::Sys;

/// Names of processes (the kernel keeps 15 characters), what they set, and what to do.
const KNOWN: &[(&str, &str, &str)] = &[
    ("tuned", "governors, idle states and power of devices", "systemctl disable --now tuned"),
    ("thermald", "frequency and power limits by temperature", "systemctl disable --now thermald"),
    (
        "power-profiles-",
        "governors and energy preferences",
        "systemctl disable --now power-profiles-daemon",
    ),
    ("auto-cpufreq", "governors and frequencies", "systemctl disable --now auto-cpufreq"),
    ("fancontrol", "fans", "systemctl disable --now fancontrol"),
    ("fan2go", "fans", "systemctl disable --now fan2go"),
    ("hddfancontrol", "fans", "systemctl disable --now hddfancontrol"),
    (
        "irqbalance",
        "interrupts, which wake parked cores",
        "IRQBALANCE_BANNED_CPULIST in its settings",
    ),
];

/// A program that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Its name.
    pub program: &'static str,
    /// Its process.
    pub pid: u32,
    /// What it sets.
    pub sets: &'static str,
    /// What to do before Ebb sets the same.
    pub remedy: &'static str,
}

/// All that run.
#[must_use]
pub fn found(sys: &Sys) -> Vec<Conflict> {
    let pids = sys.numbered("proc", "").into_iter();
    let conflict = |pid: String| {
        let name = sys.text(format!("proc/{pid}/comm")).ok()?;
        let (program, sets, remedy) = *KNOWN.iter().find(|(known, ..)| *known == name)?;
        Some(Conflict { program, pid: pid.parse().ok()?, sets, remedy })
    };
    pids.filter_map(conflict).collect()
}
