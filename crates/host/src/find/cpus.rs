//! Cores, their sockets, frequencies and idle states
//! (`Documentation/ABI/testing/sysfs-devices-system-cpu`).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ebb_policy::units::{Hertz, Nanos};

use crate::sys::{Absent, Sys, cpu_list};

/// Where Linux describes them.
const ROOT: &str = "sys/devices/system/cpu";

/// No processor that is found here is slower at its best, and none runs faster: a driver that says
/// so, such as in MHz for kHz, is not believed.
const POSSIBLE: RangeInclusive<f64> = 100e6..=100e9;

/// What to do about a domain that says nonsense.
const DOMAIN: &str = "this domain is left alone: the kernel takes that from the firmware, which \
                      may have an update";

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
    /// Its folder, below the root.
    pub folder: String,
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
    /// The highest that whoever set `scaling_max_freq` allows.
    pub ceiling: Hertz,
    /// The single frequencies, ascending; empty where the driver takes any in between.
    pub steps: Vec<Hertz>,
}

impl Policy {
    /// Why a ceiling could not be taken back whatever happens: of a CPU that goes offline and comes
    /// back, the governor `userspace` takes the frequency that it has then for the one that was
    /// chosen (`cpufreq_userspace_policy_start`).
    #[must_use]
    pub fn set_by_hand(&self) -> Option<&'static str> {
        (self.governor == "userspace").then_some(
            "its governor is userspace, so another program chooses the frequency, and a CPU that \
             goes offline would lose that choice; choose another governor, such as schedutil",
        )
    }
}

/// The architecture, for what to advise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arch {
    /// Intel's, AMD's.
    X86,
    /// Arm's, of 64 bits.
    Arm,
    /// Another, or nothing here tells.
    #[default]
    Other,
}

impl Arch {
    /// By what the kernel's files say, since those of another machine may be looked at: the name of
    /// the architecture (`proc/sys/kernel/arch`, since Linux 6.1), else the first lines of
    /// `proc/cpuinfo`, else the drivers that only one of them has.
    fn found(sys: &Sys, policies: &[Policy]) -> Self {
        let text = |path: &str| sys.text(path).unwrap_or_default();
        let (name, info) = (text("proc/sys/kernel/arch"), text("proc/cpuinfo"));
        let has = |file: &str| sys.has(format!("{ROOT}/cpu0/{file}"));
        let drivers = |known: &[&str]| policies.iter().any(|one| known.contains(&&*one.driver));
        let x86 = ["acpi-cpufreq", "intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp"];
        if name.starts_with("x86")
            || info.contains("vendor_id")
            || has("microcode")
            || drivers(&x86)
        {
            Self::X86
        } else if ["aarch64", "arm"].iter().any(|arm| name.starts_with(arm))
            || info.contains("CPU implementer")
            || has("regs/identification/midr_el1")
            || drivers(&["cppc_cpufreq", "scmi", "scpi-cpufreq", "vexpress-spc"])
        {
            Self::Arm
        } else {
            Self::Other
        }
    }
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
    /// Their architecture.
    pub arch: Arch,
    /// Frequency domains that cannot be steered, by their folders, and why.
    pub left: Vec<(String, String)>,
    /// CPUs online that are not anybody's: isolated (`isolcpus=`), or of a partition.
    pub apart: Vec<u16>,
    /// Those of them that are isolated.
    pub isolated: Vec<u16>,
}

impl Cpus {
    /// Those of this machine.
    ///
    /// # Errors
    /// Where the kernel does not say which CPUs are online.
    pub fn found(sys: &Sys) -> Result<Self, Absent> {
        let mut online = sys.cpus(format!("{ROOT}/online"))?;
        online.sort_unstable();
        online.dedup();
        if online.is_empty() {
            return Err(sys.nonsense(format!("{ROOT}/online"), "", "a list of CPUs"));
        }
        let cores = cores(sys, &online);
        let (mut policies, mut left) = (Vec::new(), Vec::new());
        for name in sys.numbered(format!("{ROOT}/cpufreq"), "policy") {
            let folder = format!("{ROOT}/cpufreq/{name}");
            match policy(sys, &folder) {
                Ok(policy) => policies.push(policy),
                Err(_) if rests(sys, &folder) => {}
                Err(absent) => left.push((folder, format!("{absent}; {DOMAIN}"))),
            }
        }
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
            let siblings = cores[&number].clone();
            let policy = policies.iter().position(|policy| policy.cpus.contains(&number));
            Cpu { number, socket, siblings, policy, idle: idle_states(sys, number) }
        });
        let arch = Arch::found(sys, &policies);
        let (cpus, sockets) = (cpus.collect(), packages.len() as u16);
        let mut apart = online;
        let shared = shared(sys, &apart);
        apart.retain(|cpu| !shared.contains(cpu));
        let isolated = isolated(sys);
        Ok(Self { cpus, policies, sockets, arch, left, apart, isolated })
    }

    /// Cores on which any task may run.
    pub fn shared_cores(&self) -> impl Iterator<Item = &Cpu> {
        self.cores().filter(|core| !self.is_apart(core))
    }

    /// Whether no CPU of its core is anybody's.
    fn is_apart(&self, cpu: &Cpu) -> bool {
        cpu.siblings.iter().all(|cpu| self.apart.contains(cpu))
    }

    /// What an operator should know of the others, but those that `machine.groups` names.
    #[must_use]
    pub fn apart_remark(&self, named: impl Fn(u16) -> bool) -> Option<String> {
        let is_named = |cpu: &Cpu| cpu.siblings.iter().any(|cpu| named(*cpu));
        let apart = self.cpus.iter().filter(|cpu| self.is_apart(cpu) && !is_named(cpu));
        let apart = apart.map(|cpu| cpu.number);
        let (isolated, of_groups): (Vec<_>, Vec<_>) =
            apart.partition(|cpu| self.isolated.contains(cpu));
        let kinds = [(isolated, "isolated (isolcpus=)"), (of_groups, "of a cpuset partition")];
        let kinds = kinds.iter().filter(|(cpus, _)| !cpus.is_empty());
        let kinds = kinds.map(|(cpus, why)| match &cpus[..] {
            [one] => format!("CPU {one} is {why}"),
            several => format!("CPUs {} are {why}", cpu_list(several)),
        });
        let kinds: Vec<_> = kinds.collect();
        (!kinds.is_empty()).then(|| {
            format!(
                "{}: their cores are not counted, and no policy sets anything of them unless \
                 machine.groups names them",
                kinds.join(", ")
            )
        })
    }

    /// What becomes of ceilings below what the hardware can do, where there are any.
    #[must_use]
    pub fn ceilings(&self, raises: bool) -> Option<String> {
        let lowered = self.policies.iter().filter(|policy| policy.ceiling < policy.highest);
        let least = lowered.clone().min_by(|a, b| a.ceiling.0.total_cmp(&b.ceiling.0))?;
        let count = lowered.count();
        let (ceiling, highest) = (least.ceiling.0 / 1e9, least.highest.0 / 1e9);
        let fate = match raises {
            true => "machine.raise_limits lets policies raise it",
            false => "it is kept, unless machine.raise_limits = true",
        };
        Some(format!(
            "{count} frequency domains have a ceiling below what they can do ({ceiling:.2} of \
             {highest:.2} GHz): {fate}"
        ))
    }

    /// Physical cores: the CPUs that are the first of theirs.
    pub fn cores(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.siblings.first() == Some(&cpu.number))
    }
}

/// Those of `online` that any task may use: the kernel balances no load on isolated ones, and those
/// of a partition are its own. All, where that would be none.
#[must_use]
pub fn shared(sys: &Sys, online: &[u16]) -> Vec<u16> {
    let isolated = isolated(sys);
    let groups = sys.cpus("sys/fs/cgroup/cpuset.cpus.effective").ok();
    let groups = groups.filter(|cpus| !cpus.is_empty());
    let is_shared = |cpu: &u16| {
        !isolated.contains(cpu) && groups.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    };
    let shared: Vec<_> = online.iter().copied().filter(is_shared).collect();
    if shared.is_empty() { online.to_vec() } else { shared }
}

/// Those that the kernel balances no load on. Those of `nohz_full=` alone are not among them: it
/// gives them tasks as it does others.
fn isolated(sys: &Sys) -> Vec<u16> {
    sys.cpus(format!("{ROOT}/isolated")).unwrap_or_default()
}

/// The CPUs of each one's core, itself included: those that the kernel says, as far as they are
/// online and of no other core.
fn cores(sys: &Sys, online: &[u16]) -> BTreeMap<u16, Vec<u16>> {
    let mut cores = BTreeMap::new();
    for cpu in online {
        if cores.contains_key(cpu) {
            continue;
        }
        let names = ["core_cpus_list", "thread_siblings_list"]; // the second up to Linux 5.2
        let read = |name| sys.cpus(format!("{ROOT}/cpu{cpu}/topology/{name}")).ok();
        let said = names.into_iter().find_map(read).unwrap_or_default();
        let is_free = |one: &u16| online.binary_search(one).is_ok() && !cores.contains_key(one);
        let mut core: Vec<u16> = said.into_iter().filter(is_free).chain([*cpu]).collect();
        core.sort_unstable();
        core.dedup();
        core.iter().for_each(|one| drop(cores.insert(*one, core.clone())));
    }
    cores
}

/// Whether all CPUs of a frequency domain are offline: none of its files can be read.
fn rests(sys: &Sys, folder: &str) -> bool {
    let cpus = sys.text(format!("{folder}/related_cpus"));
    matches!(cpus, Err(Absent::Failed { .. } | Absent::Away { .. }))
}

fn policy(sys: &Sys, folder: &str) -> Result<Policy, Absent> {
    let hertz = |khz: u64| Hertz(khz as f64 * 1e3);
    let read = |name: &str| sys.number(format!("{folder}/{name}")).map(hertz);
    let named = |name: &str| sys.text(format!("{folder}/{name}")).unwrap_or_default();
    // Those of boost are in a list of their own, or in none.
    let listed = named("scaling_available_frequencies") + " " + &named("scaling_boost_frequencies");
    let mut steps: Vec<_> =
        listed.split_whitespace().filter_map(|khz| khz.parse().ok()).map(hertz).collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    steps.dedup();
    let (lowest, highest) = (read("cpuinfo_min_freq")?, read("cpuinfo_max_freq")?);
    if lowest == Hertz(0.0) {
        // Seen with tables of CPPC without a lowest frequency.
        return Err(sys.nonsense(format!("{folder}/cpuinfo_min_freq"), "0", "a frequency"));
    }
    if lowest > highest || !POSSIBLE.contains(&highest.0) {
        let text = format!("{lowest} to {highest}");
        return Err(sys.nonsense(folder, &text, "a range of frequencies"));
    }
    steps.retain(|step| (lowest..=highest).contains(step));
    // What boost reaches is in no list of acpi-cpufreq, and is the highest all the same.
    if steps.last().is_some_and(|last| *last < highest) {
        steps.push(highest);
    }
    // Words, not a list with commas.
    let cpus = sys.text(format!("{folder}/related_cpus"))?;
    Ok(Policy {
        cpus: cpus.split_whitespace().filter_map(|cpu| cpu.parse().ok()).collect(),
        driver: named("scaling_driver"),
        governor: named("scaling_governor"),
        ceiling: read("scaling_max_freq").map_or(highest, |most| most.max(lowest).min(highest)),
        lowest,
        highest,
        steps,
        folder: folder.to_owned(),
    })
}

fn idle_states(sys: &Sys, cpu: u16) -> Vec<IdleState> {
    let folder = format!("{ROOT}/cpu{cpu}/cpuidle");
    let state = |name: &String| {
        let folder = format!("{folder}/{name}");
        let file = |what: &str| format!("{folder}/{what}");
        let micros =
            |what: &str| sys.number::<u32>(file(what)).map(|n| Nanos::from_micros(n.into()));
        Some(IdleState {
            name: sys.text(file("name")).ok()?,
            exit: micros("latency").ok()?,
            residency: micros("residency").unwrap_or_default(),
            disabled: sys.number::<u8>(file("disable")).is_ok_and(|disable| disable != 0),
            folder,
        })
    };
    sys.numbered(&folder, "state").iter().filter_map(state).collect()
}
