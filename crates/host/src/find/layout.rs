//! The machine in the terms of policies: which cores, frequency domains, drives, fans and sensors
//! the parts of its [`Topology`] are.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use ebb_policy::live::limitable;
use ebb_policy::topology::UNKNOWN;
use ebb_policy::units::{Celsius, Hertz, Nanos, Watts};
use ebb_policy::{
    Control, CoreRole, DriveSpec, FanSpec, GroupSpec, PowerStateSpec, Steward, Topology,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find::cpus::{Cpu, Policy};
use crate::find::drives::Drive;
use crate::find::fans::{Fans, StatedFan};
use crate::find::jobs::{self, StatedJob, Yielding};
use crate::find::machine::Machine;
use crate::nvme::{Cap, Identity};
use crate::sys::cpu_list;

/// How long drives have to say what they are before anything is controlled: they may be busy.
const IDENTIFY: Duration = Duration::from_secs(3);
/// Frequencies of a driver that takes any are offered in such steps.
const STEP: Hertz = Hertz(100e6);
/// A fan is not slowed below this duty unless the operator says that it turns there: what daemons
/// for fans start from.
pub const MIN_DUTY: f64 = 0.2;

/// Most that a hard disk draws at work, rounded up: those of 15,000 turns a minute stated some
/// 16 W, today's with two actuators some 14 W.
const DISK: Watts = Watts(20.0);
/// Most that a drive bay is specified for: 25 W (SFF-8639, PCI Express SFF-8639 Module).
const BAY: Watts = Watts(25.0);

/// One group of cores as the operator states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// What they do.
    pub role: CoreRole,
    /// Their CPUs; a core belongs to the group of its first.
    pub cpus: Vec<u16>,
}

/// The controls of jobs.
const JOBS: [Control; 3] = [Control::JobShare, Control::JobSocket, Control::Admit];

/// What becomes of the CPUs of a parked core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParkBy {
    /// No task of any control group may use them.
    #[default]
    Cpuset,
    /// They are taken offline.
    Offline,
}

/// What the operator states of the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    /// Core groups; one of all cores where there are none.
    pub groups: Vec<Group>,
    /// CPUs that `ebb serve` runs its reactors on: theirs alone.
    pub reactors: Vec<u16>,
    /// Whether their frequency is set as their scheduler asks.
    pub paces_reactors: bool,
    /// Cores of each group that are never parked.
    pub min_cores: u16,
    /// Smallest duty at which all fans turn.
    pub min_duty: f64,
    /// How cores are parked.
    pub park_by: ParkBy,
    /// The fans; those that are found where there are none.
    pub fans: Vec<StatedFan>,
    /// Whether frequencies may be raised above the ceilings found.
    pub raise_limits: bool,
    /// Control groups that are jobs.
    pub jobs: Vec<StatedJob>,
    /// Control groups whose CPU time and rates a budget of the whole server may limit.
    pub throttle: Vec<String>,
    /// Further ones, for which nobody waits.
    pub best_effort: Vec<String>,
    /// Hosts of an `ebb serve` for which nobody waits.
    pub best_effort_hosts: Vec<String>,
    /// The most that drives without power states draw, by model or identity.
    pub drive_watts: BTreeMap<String, Watts>,
    /// Whether the operator holds the drives' power limit: no policy sets it then.
    pub holds_drive_power: bool,
    /// The same of the packages' power limit.
    pub holds_package_power: bool,
    /// Who counts users' requests in place of the kernel, such as an `ebb serve`.
    pub served: Option<String>,
}

impl Default for Stated {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            reactors: Vec::new(),
            paces_reactors: false,
            min_cores: 1,
            min_duty: MIN_DUTY,
            park_by: ParkBy::default(),
            fans: Vec::new(),
            raise_limits: false,
            jobs: Vec::new(),
            throttle: Vec::new(),
            best_effort: Vec::new(),
            best_effort_hosts: Vec::new(),
            drive_watts: BTreeMap::new(),
            holds_drive_power: false,
            holds_package_power: false,
            served: None,
        }
    }
}

/// What the operator states that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// No such CPU, or not online.
    #[error("group {group} names CPU {cpu}, which is not online")]
    NoCpu {
        /// The group, from 1.
        group: usize,
        /// The CPU.
        cpu: u16,
    },
    /// Two groups have one core.
    #[error("CPU {cpu} is in two groups: name each core once")]
    Twice {
        /// The CPU.
        cpu: u16,
    },
    /// A group without cores.
    #[error("group {group} has no cores: name at least one first CPU of a core")]
    Empty {
        /// The group, from 1.
        group: usize,
    },
    /// A CPU of the reactors that is not there.
    #[error("CPU {cpu} is not online")]
    NoReactor {
        /// The CPU.
        cpu: u16,
    },
    /// A core that reactors and a group claim.
    #[error(
        "CPU {cpu} is in group {group}, and its core belongs to ebb serve (machine.reactors): a \
         core has one owner"
    )]
    Claimed {
        /// The group, from 1.
        group: usize,
        /// The CPU.
        cpu: u16,
    },
    /// The reactors have all cores.
    #[error("ebb serve has all cores that any task may use: leave policies one at least")]
    NoneLeft,
    /// A group to hold back that Ebb is a part of.
    #[error("\"{group}\" has this process in it, which would hold itself back: name another group")]
    Own {
        /// The group.
        group: String,
        /// The key that names it.
        key: &'static str,
    },
}

impl Impossible {
    /// The key of the configuration that it stands under.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Own { key, .. } => key,
            Self::NoReactor { .. } | Self::NoneLeft => "machine.reactors",
            _ => "machine.groups",
        }
    }
}

/// One physical core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Its CPUs.
    pub cpus: Vec<u16>,
    /// Its socket.
    pub socket: u16,
}

/// One drive.
#[derive(Debug, Clone, PartialEq)]
pub struct DriveParts {
    /// What the kernel says of it.
    pub drive: Drive,
    /// What its controller says of itself, where we may ask.
    pub identity: Option<Identity>,
    /// The most that it draws, as the operator states it.
    pub stated: Option<Watts>,
}

impl DriveParts {
    /// Its power states. A drive that has none is one with a single state, of the most that it can
    /// draw: so it counts in a budget.
    fn states(&self) -> Vec<PowerStateSpec> {
        match (self.most(), &self.identity) {
            (Some((max_power, _)), _) => {
                let (entry, exit) = (Nanos::ZERO, Nanos::ZERO);
                vec![PowerStateSpec { max_power, operational: true, entry, exit }]
            }
            (None, Some(identity)) => self.cap().states(identity),
            (None, None) => Vec::new(),
        }
    }

    /// How its cap is set.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.identity.as_ref().map_or(Cap::State, Cap::of)
    }

    /// What it is saved as where control groups can be limited there: `io.max` is of one device.
    #[must_use]
    pub fn rated(&self) -> Option<&String> {
        self.drive.saved.as_ref().filter(|_| self.drive.devices.len() == 1)
    }

    /// What an operator should know where they cannot.
    #[must_use]
    pub fn rates_remark(&self) -> Option<String> {
        let Drive { name, id, devices, .. } = &self.drive;
        (devices.len() > 1).then(|| {
            format!(
                "{} is {}: io.max limits a single block device, so no control group's rates are \
                 limited there",
                id.as_ref().unwrap_or(name),
                devices.join(", ")
            )
        })
    }

    /// What an operator should know of where it says that it gets too hot.
    #[must_use]
    pub fn heat_remark(&self) -> Option<String> {
        let identity = self.identity.as_ref().filter(|identity| identity.hottest().is_none())?;
        Some(format!(
            "{} warns at {:.0} °C by its firmware, which is no limit of a drive: {:.0} °C counts",
            self.drive.id.as_ref().unwrap_or(&self.drive.name),
            identity.warning?.0,
            DriveSpec::LIMIT.0
        ))
    }

    /// What an operator should know of power states that cannot be.
    #[must_use]
    pub fn absurd_remark(&self) -> Option<String> {
        let remark = self.identity.as_ref()?.absurd_remark()?;
        Some(format!("{}: {remark}", self.drive.id.as_ref().unwrap_or(&self.drive.name)))
    }

    /// What an operator should know of its cap.
    #[must_use]
    pub fn limit_remark(&self) -> Option<String> {
        let Cap::Limit(limits) = self.cap() else { return None };
        let (most, least) = (limits.first()?, limits.last()?);
        Some(format!(
            "{} is capped by its power limit: states 0 to {} are limits of {most} to {least}",
            self.drive.id.as_ref().unwrap_or(&self.drive.name),
            limits.len() - 1
        ))
    }

    /// What counts for it in a budget where no power state says so, and what says so; `None` of a
    /// drive with power states, of one that another machine feeds, and of a volume of disks that
    /// nobody has counted ([`Self::is_unknown`]).
    #[must_use]
    pub fn most(&self) -> Option<(Watts, &'static str)> {
        let states =
            self.identity.as_ref().map(|identity| &identity.states[..]).unwrap_or_default();
        let says = states.first().is_some_and(|state| state.operational && state.max_power.0 > 0.0);
        let fed_elsewhere = self.drive.is_remote() || self.drive.is_virtual();
        match (self.stated, self.drive.rotational) {
            _ if says => None,
            (Some(stated), _) => Some((stated, "by machine.drive_watts")),
            _ if fed_elsewhere || self.drive.is_volume => None,
            (_, true) => Some((DISK, "above the data sheets of hard disks")),
            (_, false) => Some((BAY, "what a drive bay supplies")),
        }
    }

    /// Whether it has not said what it is.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.drive.controller.is_some() && self.identity.is_none()
    }

    /// Whether nobody knows what it draws: a volume of a RAID controller.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.drive.is_volume && self.stated.is_none()
    }
}

/// Which part of the machine each part of the topology is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Cores of each group; those that are parked last come first.
    pub groups: Vec<Vec<Core>>,
    /// CPUs of the cores that `ebb serve` owns: no policy sets anything of them.
    pub reactors: BTreeSet<u16>,
    /// Whether their frequency is set as their scheduler asks.
    pub paces_reactors: bool,
    /// How they are parked.
    pub park_by: ParkBy,
    /// Drives.
    pub drives: Vec<DriveParts>,
    /// Whether frequencies may be raised above the ceilings found.
    pub raise_limits: bool,
    /// Fans, and those that are left alone.
    pub fans: Fans,
    /// Sensors of each socket, chip and input: the hottest is its temperature.
    pub sockets: Vec<Vec<(usize, String)>>,
    /// Control groups that are jobs, whether they are there now or not.
    pub jobs: Vec<StatedJob>,
    /// Control groups whose CPU time and rates may be limited.
    pub throttle: Vec<Yielding>,
    /// Hosts of an `ebb serve` for which nobody waits.
    pub hosts: Vec<String>,
    /// Whether the packages' power may be limited.
    pub limits_packages: bool,
}

impl Stated {
    /// Whether a group of cores has this CPU.
    pub(crate) fn names(&self, cpu: u16) -> bool {
        self.groups.iter().any(|group| group.cpus.contains(&cpu))
    }

    /// The groups that a budget of the whole server may hold back.
    fn yielding(&self) -> impl Iterator<Item = Yielding> {
        let of = |best_effort| move |group: &String| Yielding { group: group.clone(), best_effort };
        self.throttle.iter().map(of(false)).chain(self.best_effort.iter().map(of(true)))
    }
}

impl Layout {
    /// Of `machine`, with what `owned` controls need and no more: nothing that no policy steers is
    /// left to the guard.
    ///
    /// # Errors
    /// What is stated and cannot be.
    pub fn new(
        machine: &Machine,
        stated: &Stated,
        owned: &[Control],
    ) -> Result<(Self, Topology), Impossible> {
        let owns = |control| owned.contains(&control);
        let reactors = reactors(machine, stated)?;
        let groups = groups(machine, stated, &reactors)?;
        let mut drives = drives(machine);
        for parts in &mut drives {
            let names = [Some(&parts.drive.model), parts.drive.id.as_ref()].into_iter().flatten();
            let mut most = names.filter_map(|name| stated.drive_watts.get(name));
            parts.stated = most.next_back().copied();
            if let Some(identity) = &mut parts.identity {
                identity.limits_power &= !stated.holds_drive_power;
            }
        }
        let steers_fans = owns(Control::FanDuty);
        let fans = if steers_fans { Fans::found(machine, &stated.fans) } else { Fans::default() };
        let steers_heat = owns(Control::FanDuty) || owns(Control::FrequencyCap);
        let sockets = if steers_heat { machine.socket_sensors() } else { Vec::new() };
        let (park_by, raise_limits) = (stated.park_by, stated.raise_limits);
        let steers_jobs = JOBS.into_iter().any(owns);
        let jobs = if steers_jobs { stated.jobs.clone() } else { Vec::new() };
        // The guard's own setting for a budget of the server has all of its levers.
        let budgets = owned.iter().any(|control| control.row().steward == Steward::Server);
        let limits_packages = budgets && !stated.holds_package_power;
        let throttle = if budgets { stated.yielding().collect() } else { Vec::new() };
        let hosts = if budgets { stated.best_effort_hosts.clone() } else { Vec::new() };
        let of_jobs = jobs.iter().map(|job| (&job.group, "job"));
        let key =
            |of: &Yielding| if of.best_effort { "machine.best_effort" } else { "machine.throttle" };
        let all = of_jobs.chain(throttle.iter().map(|of| (&of.group, key(of))));
        if let Some((group, key)) = jobs::own(&machine.sys, all) {
            return Err(Impossible::Own { group: group.clone(), key });
        }
        let paces_reactors = stated.paces_reactors;
        let layout = Self {
            groups,
            reactors,
            paces_reactors,
            park_by,
            raise_limits,
            drives,
            fans,
            sockets,
            jobs,
            throttle,
            hosts,
            limits_packages,
        };
        let topology = layout.topology(machine, stated, owns(Control::PowerState));
        Ok((layout, topology))
    }

    /// Whether all CPUs of a frequency domain are of the reactors' cores.
    #[must_use]
    pub fn is_reactors(&self, policy: &Policy) -> bool {
        policy.cpus.iter().all(|cpu| self.reactors.contains(cpu))
    }

    /// What an operator should know of the reactors' cores.
    #[must_use]
    pub fn reactor_remark(&self, policies: &[Policy]) -> Option<String> {
        let has = |policy: &&Policy| policy.cpus.iter().any(|cpu| self.reactors.contains(cpu));
        let shared = policies.iter().filter(has).filter(|policy| !self.is_reactors(policy));
        let cpus: Vec<_> = shared.flat_map(|policy| policy.cpus.iter().copied()).collect();
        (self.paces_reactors && !cpus.is_empty()).then(|| {
            format!(
                "CPUs {} share a frequency, and not all of them are of machine.reactors: it is not \
                 set",
                cpu_list(&cpus)
            )
        })
    }

    /// What an operator should know of the jobs.
    #[must_use]
    pub fn job_remarks(&self, topology: &Topology) -> Vec<String> {
        let line = |(slot, job): (usize, &StatedJob)| {
            let name = if job.name.is_empty() { String::new() } else { format!("{}: ", job.name) };
            format!("job{slot} is {name}{} ({})", job.group, job.class.name())
        };
        let mut remarks: Vec<_> = self.jobs.iter().enumerate().map(line).collect();
        let apart = topology.groups.iter().any(|group| group.role == CoreRole::Compute);
        if !remarks.is_empty() && !apart {
            remarks.push(
                "jobs share their cores with users' I/O, so what heats each socket is misjudged: \
                 state the jobs' cores in [[machine.groups]] with role = \"compute\""
                    .to_owned(),
            );
        }
        remarks
    }

    fn topology(&self, machine: &Machine, stated: &Stated, caps: bool) -> Topology {
        let role =
            |group: usize| stated.groups.get(group).map_or(CoreRole::ResourceVolume, |g| g.role);
        let group = |(index, cores): (usize, &Vec<Core>)| {
            let sockets: BTreeSet<_> = cores.iter().map(|core| core.socket).collect();
            let cores = cores.len() as u16;
            GroupSpec {
                role: role(index),
                cores,
                min_cores: stated.min_cores.clamp(1, cores),
                // Of sockets whose temperature nobody reads there is none.
                socket: sockets
                    .first()
                    .copied()
                    .filter(|s| sockets.len() == 1 && usize::from(*s) < self.sockets.len()),
            }
        };
        let drive = |parts: &DriveParts| DriveSpec {
            id: parts.drive.id.clone(),
            states: if caps { parts.states() } else { Vec::new() },
            limit: parts.identity.as_ref().and_then(Identity::hottest),
            idle_wakes: parts.identity.as_ref().map_or_else(Vec::new, Identity::idle_wakes),
            rotational: parts.drive.rotational,
        };
        let any = |kind| self.throttle.iter().any(|of| of.best_effort == kind);
        let fan = FanSpec { min_duty: stated.min_duty, max_power: Watts(0.0) };
        let throttles = self.sockets.iter().flatten().map(|(chip, input)| {
            let chip = &machine.chips[*chip];
            chip.throttle(&machine.sys, input)
        });
        Topology {
            groups: self.groups.iter().enumerate().map(group).collect(),
            frequencies: frequencies(&machine.cpus.policies, stated.raise_limits),
            drives: self.drives.iter().map(drive).collect(),
            sockets: self.sockets.len() as u16,
            throttle: throttles.flatten().reduce(Celsius::min),
            fans: vec![fan; self.fans.fans.len()],
            jobs: self.jobs.len() as u16,
            power: None,
            limitable: limitable(any(false), any(true) || !self.hosts.is_empty()),
        }
    }
}

/// All CPUs of the cores that reactors run on: what is set of one is set of its sibling.
fn reactors(machine: &Machine, stated: &Stated) -> Result<BTreeSet<u16>, Impossible> {
    let mut all = BTreeSet::new();
    for cpu in &stated.reactors {
        let found = machine.cpus.cpus.iter().find(|one| one.number == *cpu);
        all.extend(&found.ok_or(Impossible::NoReactor { cpu: *cpu })?.siblings);
    }
    Ok(all)
}

/// Cores by group, those of the last socket first: a socket without active cores rests as a whole.
fn groups(
    machine: &Machine,
    stated: &Stated,
    reactors: &BTreeSet<u16>,
) -> Result<Vec<Vec<Core>>, Impossible> {
    let core = |cpu: &Cpu| Core { cpus: cpu.siblings.clone(), socket: cpu.socket };
    let order = |mut cores: Vec<Core>| {
        cores.sort_by_key(|core| (core.socket, core.cpus.clone()));
        cores
    };
    if stated.groups.is_empty() {
        let free = machine.cpus.shared_cores().filter(|cpu| !reactors.contains(&cpu.number));
        let all = order(free.map(core).collect());
        return if all.is_empty() { Err(Impossible::NoneLeft) } else { Ok(vec![all]) };
    }
    let mut taken = BTreeSet::new();
    let mut groups = Vec::new();
    for (index, group) in stated.groups.iter().enumerate() {
        for cpu in &group.cpus {
            if !machine.cpus.cpus.iter().any(|one| one.number == *cpu) {
                return Err(Impossible::NoCpu { group: index + 1, cpu: *cpu });
            }
            if !taken.insert(*cpu) {
                return Err(Impossible::Twice { cpu: *cpu });
            }
            if reactors.contains(cpu) {
                return Err(Impossible::Claimed { group: index + 1, cpu: *cpu });
            }
        }
        let cores = machine.cpus.cores().filter(|cpu| group.cpus.contains(&cpu.number));
        let cores = order(cores.map(core).collect());
        if cores.is_empty() {
            return Err(Impossible::Empty { group: index + 1 });
        }
        groups.push(cores);
    }
    Ok(groups)
}

/// How many cores policies have; where what is stated cannot be, as if nothing was.
pub(crate) fn cores(machine: &Machine, stated: &Stated) -> usize {
    let groups = reactors(machine, stated).and_then(|its| groups(machine, stated, &its));
    let count = |groups: Vec<Vec<Core>>| groups.iter().map(Vec::len).sum();
    groups.map_or_else(|_| machine.cpus.shared_cores().count(), count)
}

/// Drives, with what their controllers say of themselves.
pub(crate) fn drives(machine: &Machine) -> Vec<DriveParts> {
    let parts = |(drive, identity): (&Drive, Option<Identity>)| DriveParts {
        drive: drive.clone(),
        identity,
        stated: None,
    };
    let identities = identities(machine, machine.drives.iter(), IDENTIFY);
    machine.drives.iter().zip(identities).map(parts).collect()
}

/// What the controllers of `drives` say of themselves within `patience`. All are asked at once, so
/// that one that is slow keeps nobody waiting for another.
pub(crate) fn identities<'a>(
    machine: &Machine,
    drives: impl Iterator<Item = &'a Drive>,
    patience: Duration,
) -> Vec<Option<Identity>> {
    let asked = drives.map(|drive| {
        let opened = machine.open_nvme(drive.controller.as_ref()?).ok()?;
        Builder::new().spawn(move || opened.identify_within(patience).ok()).ok()
    });
    let asked: Vec<Option<JoinHandle<_>>> = asked.collect();
    asked.into_iter().map(|asked| asked?.join().ok()?).collect()
}

/// Frequencies that cores can run at, ascending, up to the highest ceiling found, or up to what the
/// hardware can do where ceilings may be raised; one, unknown, where nothing steers them.
fn frequencies(policies: &[Policy], raise: bool) -> Vec<Hertz> {
    let most = |policy: &Policy| if raise { policy.highest } else { policy.ceiling };
    let widest = policies.iter().max_by(|a, b| most(a).0.total_cmp(&most(b).0));
    let Some(policy) = widest else { return vec![UNKNOWN] };
    let most = most(policy);
    let mut steps = policy.steps.clone();
    if steps.is_empty() {
        let count = ((policy.highest - policy.lowest) / STEP).floor() as usize;
        steps = (0..=count).map(|n| policy.lowest + STEP * n as f64).collect();
    }
    steps.retain(|step| *step < most);
    steps.push(most);
    steps
}
