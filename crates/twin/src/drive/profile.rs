//! What one drive model can do and what it draws, as read from a TOML `[drive]` table.

use ebb_policy::units::{Bytes, Joules, Nanos, Watts};
use ebb_policy::{DriveSpec, PowerStateSpec, ladder};
use serde::{Deserialize, Serialize};

use crate::drive_file::{DriveFile, DriveHeat};

/// One drive model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveProfile {
    /// Short name, as used in server profiles.
    pub name: String,
    /// Where the numbers come from, in one line.
    pub source: String,
    /// User capacity.
    pub capacity: Bytes,
    /// Flash units that work at the same time.
    pub parallelism: Parallelism,
    /// Write buffer and power regulation.
    pub controller: Controller,
    /// Cost of reads.
    pub read: ReadCost,
    /// Cost of writes.
    pub write: WriteCost,
    /// Power that does not belong to single operations.
    pub power: BasePower,
    /// NVMe power states, fastest first.
    pub states: Vec<State>,
    /// Takes a power limit (NVMe Base 2.3, Feature 23h).
    #[serde(default)]
    pub power_limit: bool,
    /// Autonomous idle states, shallowest first.
    #[serde(default)]
    pub idle: Vec<Idle>,
    /// Garbage collection.
    pub gc: GcProfile,
    /// What heat does to it; needed in servers with temperatures.
    pub heat: Option<DriveHeat>,
}

/// Flash units (dies, or planes that read on their own) and how data stripes over them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallelism {
    /// Units that can read at the same time; a power of two.
    pub units: u32,
    /// Bytes that one unit reads at once; a power of two.
    pub page: Bytes,
}

/// Controller facts that concern reads and writes alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// How far work may run ahead of the energy that the power state allows. Far below the
    /// 10 s over which NVMe defines active power.
    pub regulation: Nanos,
    /// Write buffer.
    pub buffer: Bytes,
    /// The buffer survives power loss, so a flush has nothing to wait for.
    pub power_loss_protection: bool,
}

/// What a read costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCost {
    /// Controller time per command: the inverse of the most commands per second.
    pub command: Nanos,
    /// Link or channel bytes per second, whichever saturates first.
    pub per_second: Bytes,
    /// Time to sense one page.
    pub latency: Nanos,
    /// Width of the uniform spread on top of `latency`: lower, middle and upper pages differ.
    pub spread: Nanos,
    /// Time to serve from a page already in a unit's register.
    pub register: Nanos,
    /// Longest wait for a program operation in the way to be suspended.
    pub suspend: Nanos,
    /// Faster sensing of small reads, where the flash has it.
    #[serde(default)]
    pub partial: Option<Partial>,
    /// Energy per command, page sensing included.
    pub energy_per_command: Joules,
    /// Energy per 10^9 bytes.
    pub energy_per_gb: Joules,
}

/// Partial-page sensing: reads shorter than `below` take `latency`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partial {
    /// Shortest read that needs whole pages.
    pub below: Bytes,
    /// Time to sense a part of a page.
    pub latency: Nanos,
    /// Width of the uniform spread on top of `latency`.
    pub spread: Nanos,
}

/// What a write costs, up to the flash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCost {
    /// Controller time per command: the inverse of the most commands per second.
    pub command: Nanos,
    /// Link bytes per second into the buffer.
    pub per_second: Bytes,
    /// Bytes per second that all units together program.
    pub program_per_second: Bytes,
    /// Time until the buffer acknowledges.
    pub latency: Nanos,
    /// Width of the uniform spread on top of `latency`.
    pub spread: Nanos,
    /// Energy per command.
    pub energy_per_command: Joules,
    /// Energy per 10^9 bytes, transfer and program together.
    pub energy_per_gb: Joules,
}

/// Power beside the operations' own: it rises from `ready` to `active` while the power of the
/// operations rises from 0 to `knee`, and stays there (docs/models/ssd.md, "Base power").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasePower {
    /// With nothing to do, before any idle state.
    pub ready: Watts,
    /// With the controller fully awake.
    pub active: Watts,
    /// Power of operations from which on the controller never rests.
    pub knee: Watts,
}

/// One NVMe power state descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// `MP`: sustained maximum power.
    pub max_power: Watts,
    /// Serves I/O (`NOPS` cleared).
    #[serde(default = "yes")]
    pub operational: bool,
    /// `ENLAT`: longest time to enter.
    pub entry: Nanos,
    /// `EXLAT`: longest time to leave.
    pub exit: Nanos,
}

fn yes() -> bool {
    true
}

/// An idle state that the drive enters by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// Idle time after which it is entered.
    pub after: Nanos,
    /// Power in it.
    pub power: Watts,
    /// Delay of the command that ends it.
    pub wake: Nanos,
}

/// Garbage collection and the state of the flash at the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GcProfile {
    /// Flash beyond the user capacity that collection can use, as a share of the capacity.
    pub over_provisioning: f64,
    /// Share of the spare flash still free when collection starts beside writes.
    pub high: f64,
    /// Share of the spare flash still free when every write pays for its own space.
    pub low: f64,
    /// Bytes per second that collection moves when it has all units for itself.
    pub copy_per_second: Bytes,
    /// Energy per 10^9 bytes moved.
    pub energy_per_gb: Joules,
    /// Idle time after which background collection starts.
    pub idle_delay: Nanos,
    /// Share of `copy_per_second` that background collection uses.
    pub background_share: f64,
    /// Share of the spare flash that background collection keeps free.
    pub background_target: f64,
    /// Share of the user capacity that holds valid data at the start.
    pub filled: f64,
    /// Share of the spare flash that is free at the start; the rest is scattered garbage.
    pub free: f64,
}

impl DriveFile for DriveProfile {
    const TABLE: &'static str = "drive";
    const SHIPPED: &'static [(&'static str, &'static str)] = &[
        ("pm1743", include_str!("../../profiles/drives/pm1743.toml")),
        ("dorado-ssd", include_str!("../../profiles/drives/dorado-ssd.toml")),
        ("pass-nvme", include_str!("../../profiles/drives/pass-nvme.toml")),
        ("client-m2", include_str!("../../profiles/drives/client-m2.toml")),
        ("samsung-840", include_str!("../../profiles/drives/samsung-840.toml")),
        ("samsung-980-pro", include_str!("../../profiles/drives/samsung-980-pro.toml")),
        ("toshiba-hg6-128", include_str!("../../profiles/drives/toshiba-hg6-128.toml")),
        ("generic-nvme", include_str!("../../profiles/drives/generic-nvme.toml")),
    ];

    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self) -> Result<(), String> {
        self.check_shape()?;
        self.check_costs()?;
        self.check_power()?;
        self.check_gc()?;
        DriveHeat::check(self.heat.as_ref())
    }
}

impl DriveProfile {
    /// The power states, as policies see them.
    #[must_use]
    pub fn spec(&self) -> DriveSpec {
        let state = |state: &State| PowerStateSpec {
            max_power: state.max_power,
            operational: state.operational,
            entry: state.entry,
            exit: state.exit,
        };
        let limit = self.heat.as_ref().and_then(|heat| heat.throttle);
        DriveSpec {
            id: None,
            states: self.states.iter().map(state).collect(),
            limit,
            idle_wakes: self.idle.iter().map(|step| step.wake).collect(),
            rotational: false,
        }
    }

    /// The drive as policies set it: the steps of its power limit, if it takes one, are its states.
    pub(crate) fn in_steps(self) -> Self {
        let own = self.spec().states;
        let Some(limits) = self.power_limit.then(|| ladder::limits(&own)).flatten() else {
            return self;
        };
        let state = |spec: PowerStateSpec| {
            let PowerStateSpec { max_power, operational, entry, exit } = spec;
            State { max_power, operational, entry, exit }
        };
        let states = ladder::states(&limits, &own).into_iter().map(state).collect();
        Self { states, ..self }
    }

    /// Adds to the power states those idle states that it has no descriptors of: as it tells a host
    /// which ones it may be allowed to enter.
    pub fn describe_idle(&mut self) {
        if self.states.iter().all(|state| state.operational) {
            let state = |idle: &Idle| State {
                max_power: idle.power,
                operational: false,
                entry: Nanos::ZERO,
                exit: idle.wake,
            };
            self.states.extend(self.idle.iter().map(state));
        }
    }

    fn check_shape(&self) -> Result<(), String> {
        let Parallelism { units, page } = self.parallelism;
        if !units.is_power_of_two() || units > 1 << 16 {
            let valid = "must be a power of two up to 65536";
            return Err(format!("parallelism.units = {units} {valid}"));
        }
        if !page.0.is_power_of_two() || !(512..=1 << 24).contains(&page.0) {
            let valid = "must be a power of two from 512 B to 16 MiB";
            return Err(format!("parallelism.page = {page} {valid}"));
        }
        if self.capacity.0 < page.0 {
            return Err("capacity must be at least one page".to_owned());
        }
        let regulation = self.controller.regulation;
        if !(Nanos::from_micros(100)..=Nanos::from_secs(1)).contains(&regulation) {
            let valid = "must lie between 100 us and 1 s, well inside the 10 s of NVMe's ACTP";
            return Err(format!("controller.regulation = {regulation} {valid}"));
        }
        Ok(())
    }

    fn check_costs(&self) -> Result<(), String> {
        for (key, rate) in [
            ("read.per_second", self.read.per_second),
            ("write.per_second", self.write.per_second),
            ("write.program_per_second", self.write.program_per_second),
            ("gc.copy_per_second", self.gc.copy_per_second),
        ] {
            if rate.0 < 1_000_000 {
                return Err(format!("{key} = {rate} must be at least 1 MB"));
            }
        }
        for (key, energy) in [
            ("read.energy_per_command", self.read.energy_per_command),
            ("read.energy_per_gb", self.read.energy_per_gb),
            ("write.energy_per_command", self.write.energy_per_command),
            ("write.energy_per_gb", self.write.energy_per_gb),
            ("gc.energy_per_gb", self.gc.energy_per_gb),
        ] {
            if energy.0 < 0.0 {
                return Err(format!("{key} = {energy} must not be negative"));
            }
        }
        Ok(())
    }

    fn check_power(&self) -> Result<(), String> {
        let BasePower { ready, active, knee } = self.power;
        if ready.0 <= 0.0 || active < ready || knee.0 <= 0.0 {
            return Err("power: need 0 < ready <= active and knee > 0".to_owned());
        }
        if !(1..=32).contains(&self.states.len()) || !self.states[0].operational {
            return Err("states: NVMe has 1 to 32, the first operational".to_owned());
        }
        for (ps, pair) in self.states.windows(2).enumerate() {
            if pair[1].operational && !pair[0].operational || pair[1].max_power > pair[0].max_power
            {
                let next = ps + 1;
                let valid = "sort by max_power, operational ones first";
                return Err(format!("states: {next} follows {ps} wrongly; {valid}"));
            }
        }
        for (ps, state) in self.states.iter().enumerate().filter(|(_, s)| s.operational) {
            if state.max_power <= ready {
                let power = state.max_power;
                let valid = format!("must exceed power.ready = {ready}");
                return Err(format!("states: max_power {power} of {ps} {valid}"));
            }
        }
        let mut last = (Nanos::ZERO, ready);
        for idle in &self.idle {
            if idle.after < last.0 || idle.power > last.1 || idle.power.0 < 0.0 {
                return Err("idle: sort by `after`; power must fall from power.ready".to_owned());
            }
            last = (idle.after, idle.power);
        }
        Ok(())
    }

    fn check_gc(&self) -> Result<(), String> {
        let gc = &self.gc;
        let share = |key: &str, value: f64, most: f64| {
            let valid = value > 0.0 && value <= most;
            let message = || format!("gc.{key} = {value} must lie in 0 (exclusive) to {most}");
            if valid { Ok(()) } else { Err(message()) }
        };
        share("over_provisioning", gc.over_provisioning, 10.0)?;
        share("high", gc.high, 1.0)?;
        share("low", gc.low, gc.high)?;
        share("background_share", gc.background_share, 1.0)?;
        share("background_target", gc.background_target, 1.0)?;
        share("free", gc.free, 1.0)?;
        if !(0.0..=1.0).contains(&gc.filled) {
            return Err(format!("gc.filled = {} must lie in 0 to 1", gc.filled));
        }
        if gc.low >= gc.high {
            return Err("gc.low must be below gc.high".to_owned());
        }
        Ok(())
    }
}
