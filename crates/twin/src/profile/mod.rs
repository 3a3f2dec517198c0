//! A server as data: what it has, what work costs on it, what it draws.
//!
//! A profile is TOML; every constant in the shipped ones has its source beside it. Numbers
//! marked *calibrated* were set from a published component figure, *assumed* from judgement;
//! none was chosen for a headline result (see `docs/profiles.md`).

mod base;
mod check;
mod error;
mod heat;
mod magnitude;
mod model;

use std::path::PathBuf;

use serde::Deserialize;

use ebb_policy::units::{Bytes, Hertz, Nanos, Watts};
use ebb_policy::{CoreRole, DriveSpec, GroupSpec, Limitable, PowerModel, RequestWork, Topology};

use crate::drive::DriveProfile;
use crate::fan::Fans;
use crate::thermal::Thermal;
use crate::vibration::Vibration;

pub(crate) use base::join;
pub use error::ProfileError;
pub use model::DriveModel;

/// A storage server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name on the command line.
    pub name: String,
    /// Another profile, shipped or a file beside this one, that holds what this one does not set.
    pub base: Option<String>,
    /// One line for people.
    pub summary: String,
    /// Time a request spends outside the server's own stages (fabric and client), per request.
    pub fabric_latency: Nanos,
    /// What clients and network carry at most; without limit when absent.
    pub network: Option<Network>,
    /// Processors.
    pub cpu: Cpu,
    /// The stages a request passes, in order; each is one core group.
    pub stage: Vec<Stage>,
    /// Read cache and write-back buffer; none when absent.
    pub cache: Option<Cache>,
    /// How volumes lie on the drives.
    pub layout: Layout,
    /// The drives.
    pub drives: Drives,
    /// Background work; none when absent.
    pub background: Option<Background>,
    /// Cores that run jobs; the server takes none when absent.
    pub jobs: Option<JobCores>,
    /// Memory, network, fans and the rest.
    pub board: Board,
    /// Power supply.
    pub psu: Psu,
    /// Heat; temperatures are not modelled when absent.
    pub thermal: Option<Thermal>,
    /// Fans; a constant power ([`Board::fans`]) when absent. Goes with [`Profile::thermal`].
    pub fans: Option<Fans>,
    /// Vibration; none when absent.
    pub vibration: Option<Vibration>,
    /// The drive model, once it is found.
    #[serde(skip)]
    model: Option<DriveModel>,
}

/// The way between clients and server: a connection to each volume, then a link that all share.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Bytes per second that the link carries each way.
    pub link: Bytes,
    /// Time that each request takes of the link beside its bytes: the inverse is the most requests
    /// per second.
    pub request: Nanos,
    /// Mean time that each request takes of its volume's connection, one after the other.
    pub connection: Nanos,
    /// Coefficient of variation of that time.
    #[serde(default)]
    pub variation: f64,
}

/// Processors: frequencies, power, and how a core without work waits.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Frequencies of a core, ascending.
    pub frequencies: Vec<Hertz>,
    /// Power of the packages outside the cores, all sockets together; always drawn.
    pub uncore: Watts,
    /// What the packages draw beyond that at the highest frequency; it falls as the dynamic power
    /// of a core does.
    #[serde(default)]
    pub uncore_dynamic: Watts,
    /// What the packages draw less while [`Cpu::quota`] has all cores of the stages stand still.
    #[serde(default)]
    pub stopped_saving: Watts,
    /// Static power of a core that is on.
    pub core_static: Watts,
    /// Dynamic power of a busy core at the highest frequency.
    pub core_dynamic: Watts,
    /// Dynamic power falls with frequency to this power: 1 at constant voltage (PACER §V),
    /// towards 3 where voltage scales along.
    pub frequency_exponent: f64,
    /// Dynamic power of a polling core without work, as a share of a busy one's.
    pub poll_share: f64,
    /// How a core without work waits.
    pub wait: Wait,
    /// Idle states by rising target residency; used by `wait = "sleep"`.
    #[serde(default)]
    pub idle_states: Vec<IdleState>,
    /// Power of a parked core.
    pub parked: Watts,
    /// Time until a core taken back from parking serves work; it draws active power meanwhile.
    pub unpark_latency: Nanos,
    /// Time a core stands still while its frequency changes.
    pub frequency_latency: Nanos,
    /// Who chooses the frequency below what is asked for; that of `performance` when absent.
    #[serde(default)]
    pub governor: Governor,
    /// Share of a core's time at the highest frequency that waits for memory and does not stretch
    /// at lower ones; that of the thermal model, or 0, when `None`.
    pub uncore_share: Option<f64>,
    /// Limit of the packages' power, all together (RAPL): frequencies stay where all cores busy
    /// would keep it. None when absent.
    pub power_limit: Option<Watts>,
    /// What the packages draw at that limit, as a share of it: controllers stay a little below.
    #[serde(default = "all")]
    pub limit_share: f64,
    /// Time until a new limit of the packages' power is kept; 150 ms when absent.
    #[serde(default = "limit_latency")]
    pub limit_latency: Nanos,
    /// CPU time that the stages have together, in cores (the bandwidth of a control group, which
    /// stops all its threads for the rest of each period). No limit when absent.
    pub quota: Option<f64>,
    /// Length of the quota's period: 100 ms, as the kernel has it, when absent.
    #[serde(default = "hundred_ms")]
    pub quota_period: Nanos,
    /// Service that each of these stops costs in the long run: cores go on at a quarter of their
    /// pace and come back to it within some times this.
    #[serde(default)]
    pub resume: Nanos,
    /// Probability with which a core goes on with any of the requests that wait for it, rather
    /// than with the oldest.
    #[serde(default)]
    pub random_order: f64,
}

impl Cpu {
    /// Power of the packages outside the cores at `frequency`.
    #[must_use]
    pub fn uncore_at(&self, frequency: Hertz) -> Watts {
        self.uncore + self.uncore_dynamic * self.scaled(frequency)
    }

    /// Dynamic power at `frequency`, as a share of that at the highest.
    fn scaled(&self, frequency: Hertz) -> f64 {
        let highest = self.frequencies.last().map_or(frequency.0, |f| f.0);
        (frequency.0 / highest).powf(self.frequency_exponent)
    }

    /// Dynamic power of a busy core at `frequency`.
    #[must_use]
    pub fn dynamic(&self, frequency: Hertz) -> Watts {
        self.core_dynamic * self.scaled(frequency)
    }
}

/// A frequency governor of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Governor {
    /// The highest that is allowed, all the time.
    #[default]
    Performance,
    /// By how busy the cores are (`engine/governor.rs`).
    Schedutil,
}

/// How a core without work waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Polls: no wake-up latency, dynamic power of [`Cpu::poll_share`].
    Poll,
    /// Sleeps: falls through the idle states, pays their exit latency.
    Sleep,
}

/// One idle state of a core.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Name, such as `C6`.
    pub name: String,
    /// Idle time after which the core is in this state.
    pub after: Nanos,
    /// Time to wake from it.
    pub exit: Nanos,
    /// Power of the core in it.
    pub power: Watts,
}

/// One stage of the I/O path and the core group that serves it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What the stage does.
    pub role: CoreRole,
    /// The socket that its cores are on, of those in [`Profile::thermal`]; spread over all of
    /// them when absent.
    pub socket: Option<u16>,
    /// Cores in its group.
    pub cores: u16,
    /// Cores that must stay active.
    #[serde(default = "one")]
    pub min_cores: u16,
    /// Cycles of one read.
    pub read_cycles: f64,
    /// Cycles of one write.
    pub write_cycles: f64,
    /// Further cycles per KiB moved.
    pub cycles_per_kib: f64,
    /// Time that a request takes longer for each further active core of the stage: they wait for
    /// one another's cache lines and for memory, at any frequency.
    #[serde(default)]
    pub contention: Nanos,
    /// Coefficient of variation of the cycles from request to request.
    #[serde(default)]
    pub variation: f64,
}

const fn hundred_ms() -> Nanos {
    Nanos::from_millis(100)
}

const fn limit_latency() -> Nanos {
    Nanos::from_millis(150)
}

const fn all() -> f64 {
    1.0
}

const fn one() -> u16 {
    1
}

/// Global cache.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Bytes of read cache.
    pub size: Bytes,
    /// Bytes per cached block, a power of two.
    pub block: Bytes,
    /// Battery-backed memory from which writes are acknowledged, to be flushed later to a
    /// log-structured array; 0 writes through, in place.
    pub write_buffer: Bytes,
}

/// How volumes lie on the drives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Redundancy.
    pub raid: Raid,
    /// Consecutive bytes on one drive.
    #[serde(default = "default_chunk")]
    pub chunk: Bytes,
}

const fn default_chunk() -> Bytes {
    Bytes(64 * 1024)
}

/// Redundancy of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Raid {
    /// Each device of the workload is one drive.
    None,
    /// Striped with one parity.
    Raid5,
    /// Striped with two parities.
    Raid6,
}

impl Raid {
    /// Drives' worth of parity per stripe.
    #[must_use]
    pub fn parity(self) -> usize {
        match self {
            Self::None => 0,
            Self::Raid5 => 1,
            Self::Raid6 => 2,
        }
    }
}

/// The drives: how many, of which model, how deep their queues are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// Number of drives.
    pub count: u16,
    /// Name of a shipped drive model, or a TOML file of one (beside the profile).
    pub model: String,
    /// Power states that another drive declares, in place of the model's.
    pub power_states: Option<Declared>,
    /// What the port of each SSD carries, where that is less than the SSD's own link.
    pub port: Option<Port>,
    /// The longest wake-up of the idle states that SSDs are found to enter; all of the model's
    /// when `None`.
    pub idle_wake: Option<Nanos>,
    /// The most that the host sends to each drive; no limit when absent.
    pub limit: Option<RateLimit>,
    /// Commands outstanding at one drive; more wait in the host.
    #[serde(default = "default_depth")]
    pub queue_depth: u32,
}

/// Power states as a drive declares them: a table with one state a row, such as the columns
/// `model,ps,operational,max_power_w,entry_lat_us,exit_lat_us,…` of a collection of descriptors.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// CSV file, relative to the profile.
    pub file: PathBuf,
    /// The drive in it.
    pub model: String,
}

/// Bytes per second through the port of a drive: the host adapter's, not the drive's.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// To the host.
    pub read: Bytes,
    /// To the drive.
    pub write: Bytes,
}

/// A rate that the host keeps for each drive, whatever the drive could do.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Commands per second; no limit when absent.
    pub iops: Option<f64>,
    /// Bytes per second; no limit when absent.
    pub bytes: Option<Bytes>,
}

const fn default_depth() -> u32 {
    1024
}

/// Background work that competes for the cores of the last stage and for the drives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Bytes of one task: read, worked on, written.
    pub task: Bytes,
    /// Cycles of one task on a core of the last stage.
    pub task_cycles: f64,
    /// Work that arises whatever users do (scrubbing, telemetry), bytes per second.
    pub steady: Bytes,
    /// Work that each byte written by users causes (file-system garbage collection), bytes.
    pub per_written_byte: f64,
    /// Tasks running at once in normal mode.
    pub normal_tasks: u32,
    /// Tasks running at once when racing to idle.
    pub race_tasks: u32,
}

/// Cores that run jobs, and how jobs share them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCores {
    /// Jobs that can be there at once; more wait outside.
    pub slots: u16,
    /// CPU time that a job loses when it moves to another socket, its caches cold.
    pub migration: Nanos,
    /// Groups of cores, one per socket.
    pub cores: Vec<JobGroup>,
}

/// Cores of one socket that run jobs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobGroup {
    /// The socket.
    pub socket: u16,
    /// Cores.
    pub cores: u16,
}

/// Components that are not steered: constant power, memory and network also per byte moved.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// Memory without traffic.
    pub memory: Watts,
    /// Memory per GB/s of users' I/O.
    #[serde(default)]
    pub memory_per_gbps: Watts,
    /// Bytes a second that drives read from memory and write to it, all together: of all modules by
    /// their data sheet. No limit when absent.
    #[serde(default)]
    pub memory_bandwidth: Option<Bytes>,
    /// Network adapters without traffic.
    pub nic: Watts,
    /// Network adapters per GB/s of users' I/O.
    #[serde(default)]
    pub nic_per_gbps: Watts,
    /// Fans at a fixed speed; 0 W where [`Profile::fans`] models them.
    pub fans: Watts,
    /// Everything else on the board.
    pub other: Watts,
    /// How old the power of the whole server is when its meter tells it; 0 when absent.
    #[serde(default)]
    pub meter_lag: Nanos,
    /// Time of which that meter tells the mean; the control period where it is longer.
    #[serde(default)]
    pub meter_window: Nanos,
}

/// Power supply: efficiency against load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Psu {
    /// Rated output of the supplies that share the load.
    pub rated: Watts,
    /// Points (share of rated output, efficiency), by rising load; straight lines between.
    pub efficiency: Vec<(f64, f64)>,
}

impl Profile {
    /// The model of the drives; `None` only for a profile that was not checked.
    #[must_use]
    pub fn model(&self) -> Option<&DriveModel> {
        self.model.as_ref()
    }

    /// The model of the drives where they are SSDs.
    #[must_use]
    pub fn drive(&self) -> Option<DriveProfile> {
        match &self.model {
            Some(DriveModel::Ssd(drive)) => Some(drive.clone()),
            _ => None,
        }
    }

    /// The same server with SSDs of this model, which must be valid
    /// ([`crate::DriveFile::validate`]).
    #[must_use]
    pub fn with_drive(self, drive: DriveProfile) -> Self {
        Self { model: Some(DriveModel::Ssd(drive)), ..self }
    }

    /// Sockets with a temperature of their own.
    #[must_use]
    pub fn sockets(&self) -> u16 {
        self.thermal.as_ref().map_or(0, |thermal| thermal.socket.rows.len() as u16)
    }

    /// What the server has, as policies see it.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.model().map(|model| self.topology_of(model)).unwrap_or_default()
    }

    /// The same, when the drive model is at hand.
    pub(crate) fn topology_of(&self, model: &DriveModel) -> Topology {
        let groups = self.stages_and_jobs().map(|stage| GroupSpec {
            role: stage.role,
            cores: stage.cores,
            min_cores: stage.min_cores,
            socket: stage.socket,
        });
        let bays = self.thermal.as_ref().and_then(|thermal| thermal.drive.heat.as_ref());
        let mut drive = model.spec();
        drive.limit = bays.and_then(|heat| heat.throttle).or(drive.limit);
        let drives: Vec<DriveSpec> = vec![drive; usize::from(self.drives.count)];
        Topology {
            groups: groups.collect(),
            frequencies: self.cpu.frequencies.clone(),
            drives,
            sockets: self.sockets(),
            throttle: self.thermal.as_ref().map(|thermal| thermal.emergency.at),
            fans: self.fans.iter().flat_map(|fans| vec![fans.spec(); fans.count.into()]).collect(),
            jobs: self.jobs.as_ref().map_or(0, |jobs| jobs.slots),
            power: Some(self.power(model)),
            limitable: Limitable::default(),
        }
    }

    /// What a server as this one draws, part by part, if it has so many drives instead; `None`
    /// where their model is unknown.
    #[must_use]
    pub fn power_with(&self, drives: u16) -> Option<PowerModel> {
        let mut other = self.clone();
        other.drives.count = drives;
        Some(other.power(self.model()?))
    }

    /// What the server draws, part by part.
    fn power(&self, model: &DriveModel) -> PowerModel {
        let (cpu, board) = (&self.cpu, &self.board);
        let work = self.stages_and_jobs().map(|stage| RequestWork {
            cycles: stage.write_cycles.max(stage.read_cycles),
            per_byte: stage.cycles_per_kib / 1024.0,
            contention: stage.contention.seconds(),
        });
        let (ready, [read, write]) = model.demand();
        let blown = |fans: &Fans| fans.spec().max_power * f64::from(fans.count);
        let fans = self.fans.as_ref().map_or(board.fans, blown);
        let rest = board.memory + board.nic + board.other + fans;
        let rest = rest + ready * f64::from(self.drives.count);
        let traffic = (board.memory_per_gbps + board.nic_per_gbps).0;
        let most = model.spec().cap(0) - ready + Watts(traffic * 1e-9 * model.link().0 as f64);
        PowerModel {
            uncore: cpu.uncore,
            uncore_dynamic: cpu.uncore_dynamic,
            stopped_saving: cpu.stopped_saving,
            core_static: cpu.core_static,
            core_dynamic: cpu.core_dynamic,
            parked: cpu.parked,
            exponent: cpu.frequency_exponent,
            rest,
            fans: self.fans.as_ref().map_or(Watts(0.0), blown),
            resting: (ready - model.least()) * f64::from(self.drives.count),
            read: (read.0 + traffic) * 1e-9,
            write: (write.0 + traffic) * 1e-9,
            most_traffic: most * f64::from(self.drives.count),
            efficiency: self.psu.efficiency(rest + cpu.uncore),
            resume: cpu.resume.seconds(),
            meter_window: board.meter_window,
            work: work.collect(),
        }
    }

    /// Share of a core's time at the highest frequency that does not stretch at lower ones.
    pub(crate) fn uncore_share(&self) -> f64 {
        let thermal = || self.thermal.as_ref().map(|thermal| thermal.emergency.uncore_share);
        self.cpu.uncore_share.or_else(thermal).unwrap_or(0.0)
    }

    /// The core groups: the stages, then the cores that run jobs, which serve no requests.
    pub(crate) fn stages_and_jobs(&self) -> impl Iterator<Item = Stage> {
        let jobs = self.jobs.iter().flat_map(|jobs| &jobs.cores).map(|group| Stage {
            role: CoreRole::Compute,
            cores: group.cores,
            min_cores: 1,
            // Sockets are told apart where the profile gives them temperatures.
            socket: Some(group.socket).filter(|socket| *socket < self.sockets()),
            read_cycles: 0.0,
            write_cycles: 0.0,
            cycles_per_kib: 0.0,
            contention: Nanos::ZERO,
            variation: 0.0,
        });
        self.stage.iter().cloned().chain(jobs)
    }

    /// The volumes that requests can address: their number and the bytes of each. Without RAID
    /// each drive is one, else the array is one.
    #[must_use]
    pub fn volumes(&self) -> (u16, Bytes) {
        let drive = self.model().map_or(0, |model| usable(model.capacity().0));
        match self.layout.raid {
            Raid::None => (self.drives.count, Bytes(drive)),
            raid => {
                let data = u64::from(self.drives.count) - raid.parity() as u64;
                (1, Bytes(drive * data))
            }
        }
    }
}

/// Bytes of a drive that are used: whole MiB.
pub(crate) fn usable(capacity: u64) -> u64 {
    capacity >> 20 << 20
}
