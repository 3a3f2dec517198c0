//! What a plant has: core groups, frequencies, drives with their power states, sockets, fans.

use serde::{Deserialize, Serialize};

pub use super::power::{LEAST_PERIOD, LEAST_RATE, LEAST_TIME, PowerModel, RequestWork};
use super::units::{Celsius, Hertz, Nanos, Watts};

/// The task of a core group (PACER §IV-E).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreRole {
    /// Incoming requests, data services, cache look-up: PACER's "Normal" group.
    FrontEnd,
    /// Logical to physical address translation: PACER's "KV" group.
    KeyValue,
    /// RAID and the I/O to the drives: PACER's "RV" group.
    ResourceVolume,
    /// Cores that run jobs, not users' I/O (EADC §V-A); no latency tells how many they need.
    Compute,
}

impl CoreRole {
    /// Its name in columns and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FrontEnd => "front_end",
            Self::KeyValue => "key_value",
            Self::ResourceVolume => "resource_volume",
            Self::Compute => "compute",
        }
    }
}

/// One group of cores that serve the same tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// What the group does.
    pub role: CoreRole,
    /// Cores in the group.
    pub cores: u16,
    /// Cores that must always stay active (at least one).
    pub min_cores: u16,
    /// The socket that the cores are on, below [`Topology::sockets`]; `None` when they are spread
    /// or nobody knows.
    pub socket: Option<u16>,
}

/// An NVMe power state number: 0 is the fastest (NVMe Base, Power State Descriptors).
pub type PowerState = u8;

/// One NVMe power state descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PowerStateSpec {
    /// `MP`: sustained maximum power in this state.
    pub max_power: Watts,
    /// Whether the drive serves I/O in this state (`NOPS` cleared).
    pub operational: bool,
    /// `ENLAT`: longest time to enter.
    pub entry: Nanos,
    /// `EXLAT`: longest time to leave.
    pub exit: Nanos,
}

/// One drive and its power states, most power first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DriveSpec {
    /// What stays the same when it moves to another slot or the server restarts, such as its
    /// serial number and namespace; `None` when nobody knows.
    pub id: Option<String>,
    /// Descriptors indexed by power state number.
    pub states: Vec<PowerStateSpec>,
    /// The hottest that it may be: where it slows itself down (NVMe: `WCTEMP`, or TMT1), or its
    /// maker's operating limit; `None` when nobody knows.
    pub limit: Option<Celsius>,
    /// Wake-ups of the idle states that it enters by itself (NVMe: `EXLAT` of non-operational
    /// states); empty where it has none or nobody knows them.
    pub idle_wakes: Vec<Nanos>,
    /// Whether it is a hard disk, which fans can shake (Linux: `queue/rotational`).
    pub rotational: bool,
}

impl DriveSpec {
    /// The limit of drives of which nobody knows it: what makers of nearline disks state for
    /// operation (Seagate Exos X18 data sheet). Enterprise SSDs bear more.
    pub const LIMIT: Celsius = Celsius(60.0);

    /// The hottest that it may be.
    #[must_use]
    pub fn hottest(&self) -> Celsius {
        self.limit.unwrap_or(Self::LIMIT)
    }
    /// The operational states, fastest first; a policy never leaves them.
    #[must_use]
    pub fn operational(&self) -> &[PowerStateSpec] {
        let end = self.states.iter().position(|s| !s.operational).unwrap_or(self.states.len());
        &self.states[..end]
    }
    /// The power cap of state `ps`; of the deepest operational one beyond the end.
    #[must_use]
    pub fn cap(&self, ps: PowerState) -> Watts {
        let states = self.operational();
        let index = usize::from(ps).min(states.len().saturating_sub(1));
        states.get(index).map_or(Watts(0.0), |state| state.max_power)
    }
}

/// One fan, or several that share a PWM signal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FanSpec {
    /// Smallest PWM duty at which it still turns reliably, 0 to 1.
    pub min_duty: f64,
    /// Power at duty 1.
    pub max_power: Watts,
}

/// What of a plant can be limited to keep a budget of the whole server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limitable {
    /// Cores that take work.
    pub cores: bool,
    /// Frequencies.
    pub frequencies: bool,
    /// Power of the processor packages.
    pub packages: bool,
    /// CPU time.
    pub time: bool,
    /// Rates of drives.
    pub rates: bool,
    /// The rate of work that nobody waits for.
    #[serde(default)]
    pub best_effort: bool,
}

impl Default for Limitable {
    fn default() -> Self {
        Self {
            cores: true,
            frequencies: true,
            packages: true,
            time: true,
            rates: true,
            best_effort: true,
        }
    }
}

/// Stands for the frequency of cores where nothing says or steers it, and is shown to nobody.
pub const UNKNOWN: Hertz = Hertz(1.0);

/// What a plant has. Fixed for a run; policies are made from it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Core groups; signals and controls follow this order.
    pub groups: Vec<GroupSpec>,
    /// Frequencies a core can run at, ascending, never empty.
    pub frequencies: Vec<Hertz>,
    /// Drives; drive signals and controls follow this order.
    pub drives: Vec<DriveSpec>,
    /// Processor sockets with a temperature of their own; 0 when unknown.
    pub sockets: u16,
    /// Temperature at which the sockets slow down by themselves; `None` when unknown.
    pub throttle: Option<Celsius>,
    /// Fans; fan signals and controls follow this order.
    pub fans: Vec<FanSpec>,
    /// Slots for jobs (work that is not users' I/O); 0 when there are none.
    pub jobs: u16,
    /// What the server draws, part by part; `None` when nobody knows.
    pub power: Option<PowerModel>,
    /// What of it can be limited to keep a budget of the whole server.
    pub limitable: Limitable,
}

impl Topology {
    /// Those that are known: none where nothing says or steers them.
    #[must_use]
    pub fn known_frequencies(&self) -> &[Hertz] {
        if self.frequencies == [UNKNOWN] { &[] } else { &self.frequencies }
    }

    /// The lowest frequency.
    #[must_use]
    pub fn min_frequency(&self) -> Hertz {
        self.frequencies.first().copied().unwrap_or_default()
    }
    /// The highest frequency.
    #[must_use]
    pub fn max_frequency(&self) -> Hertz {
        self.frequencies.last().copied().unwrap_or_default()
    }
    /// The smallest duty at which every fan turns.
    #[must_use]
    pub fn min_duty(&self) -> f64 {
        self.fans.iter().map(|fan| fan.min_duty).fold(0.0, f64::max)
    }
    /// The slowest available frequency that is at least `wanted`, else the highest.
    #[must_use]
    pub fn frequency_at_least(&self, wanted: Hertz) -> Hertz {
        self.frequencies.iter().copied().find(|f| *f >= wanted).unwrap_or(self.max_frequency())
    }
    /// The groups that serve users' I/O, by index. The others run jobs, and no latency says how
    /// many of their cores are needed, or how fast.
    pub fn io_groups(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups.len()).filter(|group| self.serves_io(*group))
    }
    /// Whether `group` serves users' I/O.
    #[must_use]
    pub fn serves_io(&self, group: usize) -> bool {
        self.groups[group].role != CoreRole::Compute
    }
    /// The least that the server can be held to, at the wall, where it is known what it draws: one
    /// core or as many as must be, at the lowest frequency, for next to no time and with next to no
    /// traffic, where those can be limited.
    #[must_use]
    pub fn least_power(&self) -> Option<Watts> {
        let model = self.power.as_ref()?;
        let count = |io: bool, of: &dyn Fn(&GroupSpec) -> u16| -> f64 {
            let groups = (0..self.groups.len()).filter(|g| self.serves_io(*g) == io);
            groups.map(|g| f64::from(of(&self.groups[g]))).sum()
        };
        let Limitable { cores: parks, frequencies: slows, time, rates, .. } = self.limitable;
        let on = count(true, &|group| if parks { group.min_cores.max(1) } else { group.cores });
        let parked = count(true, &|group| group.cores) - on;
        let jobs = count(false, &|group| group.cores);
        let share = if slows { self.min_frequency() / self.max_frequency() } else { 1.0 };
        let least_time = LEAST_TIME / on.max(LEAST_TIME);
        let time = if time { least_time } else { 1.0 };
        let serving = model.packages(on, parked, share, time);
        let packages = serving + (model.core_static + model.core_dynamic) * jobs;
        let rate = LEAST_RATE * self.drives.len() as f64;
        let (rate, unlimited) = match rates {
            true => (rate, Watts(0.0)),
            false => (0.0, self.most_traffic(model, parks, slows)),
        };
        Some(model.wall(packages + unlimited, rate, rate))
    }
    /// The most that traffic draws where nothing limits it but the drives, and the cores that are
    /// left at the lowest frequency, as far as these can be limited.
    fn most_traffic(&self, model: &PowerModel, parks: bool, slows: bool) -> Watts {
        let frequency = if slows { self.min_frequency() } else { self.max_frequency() };
        let bytes = |group: usize| {
            let spec = &self.groups[group];
            let cores = if parks { spec.min_cores.max(1) } else { spec.cores };
            let cost = model.work.get(group).map_or(0.0, |work| work.per_byte);
            if cost > 0.0 { f64::from(cores) * frequency.0 / cost } else { f64::INFINITY }
        };
        let served = self.io_groups().map(bytes).fold(f64::INFINITY, f64::min);
        Watts((served * model.read.max(model.write)).min(model.most_traffic.0))
    }
    /// The lowest sum of drive caps that the power states allow.
    #[must_use]
    pub fn lowest_drive_budget(&self) -> Watts {
        self.drives.iter().map(|d| d.cap(PowerState::MAX)).sum()
    }
}
