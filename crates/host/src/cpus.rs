//! Cores, their sockets, frequencies and idle states
//! (`Documentation/ABI/testing/sysfs-devices-system-cpu`).

use ebb_policy::units::{Hertz, Nanos};

use crate::sys::{Absent, Sys};

/// Where Linux describes them.
const ROOT: &str = "sys/devices/system/cpu";

/// One logical CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    /// Its number.
    pub number: u16,
    /// Its socket, counted from 0 in the order of the kernel's numbers.
    pub socket: u16,
    /// All CPUs of its core, itself included.
    pub siblings: Vec<u16>,
    /// Its frequency domain, an index into [`Cpus::policies`].
    pub policy: Option<usize>,
    /// Its idle states, shallowest first.
    pub idle: Vec<IdleState>,
}

/// One idle state of a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// The driver's name, such as `C1E`.
    pub name: String,
    /// Longest time to leave it.
    pub exit: Nanos,
    /// Time in it after which it has paid.
    pub residency: Nanos,
    /// Whether somebody has switched it off.
    pub disabled: bool,
}

/// One frequency domain (cpufreq).
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its folder, below the root.
    pub folder: String,
    /// The CPUs that share it.
    pub cpus: Vec<u16>,
    /// The driver and the governor found.
    pub driver: String,
    /// See above.
    pub governor: String,
    /// What the hardware can do.
    pub lowest: Hertz,
    /// See above.
    pub highest: Hertz,
    /// The single frequencies, ascending; empty where the driver takes any in between.
    pub steps: Vec<Hertz>,
}

/// The processors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cpus {
    /// Those online, by number.
    pub cpus: Vec<Cpu>,
    /// Frequency domains.
    pub policies: Vec<Policy>,
    /// Sockets.
    pub sockets: u16,
}

impl Cpus {
    /// Those of this machine.
    ///
    /// # Errors
    /// Where the kernel does not say which CPUs are online.
    pub fn found(sys: &Sys) -> Result<Self, Absent> {
        let online = sys.cpus(format!("{ROOT}/online"))?;
        let policies: Vec<_> = sys
            .numbered(format!("{ROOT}/cpufreq"), "policy")
            .iter()
            .filter_map(|name| policy(sys, &format!("{ROOT}/cpufreq/{name}")).ok())
            .collect();
        let package = |cpu: u16| {
            // -1 where the firmware does not say.
            let file = format!("{ROOT}/cpu{cpu}/topology/physical_package_id");
            sys.number::<i64>(file).unwrap_or(0).max(0)
        };
        let mut packages: Vec<_> = online.iter().map(|cpu| package(*cpu)).collect();
        packages.sort_unstable();
        packages.dedup();
        let cpus = online.iter().map(|cpu| {
            let (number, package) = (*cpu, package(*cpu));
            let socket = packages.binary_search(&package).unwrap_or(0) as u16;
            let siblings = siblings(sys, number);
            let policy = policies.iter().position(|policy| policy.cpus.contains(&number));
            Cpu { number, socket, siblings, policy, idle: idle_states(sys, number) }
        });
        Ok(Self { cpus: cpus.collect(), policies, sockets: packages.len() as u16 })
    }

    /// Physical cores: the CPUs that are the first of theirs.
    pub fn cores(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.siblings.first() == Some(&cpu.number))
    }
}

/// The CPUs of the core of `cpu`; itself alone where the kernel does not say.
fn siblings(sys: &Sys, cpu: u16) -> Vec<u16> {
    let names = ["core_cpus_list", "thread_siblings_list"]; // the second up to Linux 5.2
    let read = |name| sys.cpus(format!("{ROOT}/cpu{cpu}/topology/{name}")).ok();
    let together = names.into_iter().find_map(read);
    together.filter(|cpus| cpus.contains(&cpu)).unwrap_or_else(|| vec![cpu])
}

fn policy(sys: &Sys, folder: &str) -> Result<Policy, Absent> {
    let hertz = |khz: u64| Hertz(khz as f64 * 1e3);
    let read = |name: &str| sys.number(format!("{folder}/{name}")).map(hertz);
    let named = |name: &str| sys.text(format!("{folder}/{name}")).unwrap_or_default();
    let listed = named("scaling_available_frequencies");
    let mut steps: Vec<_> =
        listed.split_whitespace().filter_map(|khz| khz.parse().ok()).map(hertz).collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Words, not a list with commas.
    let cpus = sys.text(format!("{folder}/related_cpus"))?;
    Ok(Policy {
        cpus: cpus.split_whitespace().filter_map(|cpu| cpu.parse().ok()).collect(),
        driver: named("scaling_driver"),
        governor: named("scaling_governor"),
        lowest: read("cpuinfo_min_freq")?,
        highest: read("cpuinfo_max_freq")?,
        steps,
        folder: folder.to_owned(),
    })
}

fn idle_states(sys: &Sys, cpu: u16) -> Vec<IdleState> {
    let folder = format!("{ROOT}/cpu{cpu}/cpuidle");
    let state = |name: &String| {
        let file = |what: &str| format!("{folder}/{name}/{what}");
        let micros = |what: &str| sys.number(file(what)).map(Nanos::from_micros);
        Some(IdleState {
            name: sys.text(file("name")).ok()?,
            exit: micros("latency").ok()?,
            residency: micros("residency").unwrap_or_default(),
            disabled: sys.number::<u8>(file("disable")).is_ok_and(|disable| disable != 0),
        })
    };
    sys.numbered(&folder, "state").iter().filter_map(state).collect()
}
