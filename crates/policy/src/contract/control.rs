//! The table's half of controls. A control is one row of [`controls!`]: the row makes its column in
//! [`crate::Request`] and [`crate::InForce`], its name in logs and JSON and its line of the docs.
//! What is left to write is what the guard does to it and what a plant makes of it.

use super::row::{Aggregation, Domain, Unit};
use super::topology::{Limitable, PowerState, Topology};
use super::units::{Hertz, Nanos, Watts};

/// The family of policies that steers a control; its folder in `crates/policy/src`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steward {
    /// `cpu/`
    Cpu,
    /// `ssd/`
    Ssd,
    /// `cooling/`
    Cooling,
    /// `server/`
    Server,
}

impl Steward {
    /// As in tables for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Ssd => "ssd",
            Self::Cooling => "cooling",
            Self::Server => "server",
        }
    }
}

/// How requests of two owners for one control combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// They do not: two owners are refused at the start.
    Exclusive,
    /// The lower value is the more restrictive one and wins.
    Lowest,
    /// The higher value is the more restrictive one and wins.
    Highest,
}

impl Combine {
    /// As in tables for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Exclusive => "one owner",
            Self::Lowest => "lowest",
            Self::Highest => "highest",
        }
    }

    /// The value in force of two that are asked for; one that is no number never wins.
    pub(super) fn of<T: Setting>(self, a: T, b: T) -> T {
        let lower = a.number() <= b.number() || b.number().is_nan();
        if lower == (self == Self::Highest) { b } else { a }
    }
}

/// What the table says of a control.
#[derive(Debug, Clone, Copy)]
pub struct ControlRow {
    /// Name in logs and JSON, with the unit where it has one.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Unit.
    pub unit: Unit,
    /// What it is there once for.
    pub domain: Domain,
    /// How the values of all parts become one.
    pub aggregation: Aggregation,
    /// Who steers it.
    pub steward: Steward,
    /// How two owners' requests combine.
    pub combine: Combine,
    /// What released means.
    pub released: &'static str,
    /// One line of description.
    pub text: &'static str,
}

/// How background work (flushing, garbage collection, scrubbing) may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundMode {
    /// At the plant's own modest rate, beside users' I/O.
    #[default]
    Normal,
    /// At full speed, to finish and let the server rest (PACER §IV-D).
    Race,
}

/// What a control can be set to.
pub trait Setting: Copy + PartialEq + std::fmt::Debug {
    /// As a number in the control's unit.
    fn number(self) -> f64;
}

macro_rules! settings {
    ($($type:ty: $value:ident => $number:expr;)*) => {
        $(impl Setting for $type {
            fn number(self) -> f64 {
                let $value = self;
                $number
            }
        })*
    };
}

settings! {
    u16: value => f64::from(value);
    PowerState: value => f64::from(value);
    f64: value => value;
    bool: value => f64::from(u8::from(value));
    Hertz: value => value.0;
    Nanos: value => value.seconds();
    Watts: value => value.0;
    BackgroundMode: value => f64::from(value as u8);
}

/// Hands the rows of all controls to a macro: kind, column, type, what it is when released (of
/// the part `index` of a `Topology`, where that is known), and the rest of the row.
macro_rules! controls {
    ($use:ident) => {
        $use! {
            /// Cores that take new work; the others finish theirs and park.
            ActiveCores active_cores: u16,
            |topology, index| Some(topology.groups[index].cores),
            {
                name: "active_cores",
                title: "active cores",
                unit: Unit::Count,
                domain: Domain::CoreGroup,
                aggregation: Aggregation::Sum,
                steward: Steward::Cpu,
                combine: Combine::Exclusive,
                released: "all cores of the group",
                text: "Cores that take new work; the others finish theirs and park.",
            }
            /// Frequency of the active cores.
            Frequency frequency: Hertz,
            |topology, _| Some(topology.max_frequency()),
            {
                name: "frequency_hz",
                title: "core frequency",
                unit: Unit::Hertz,
                domain: Domain::CoreGroup,
                aggregation: Aggregation::Mean,
                steward: Steward::Cpu,
                combine: Combine::Exclusive,
                released: "as the governor found has it; in the twin the highest",
                text: "Frequency of the active cores, below the ceiling of their socket.",
            }
            /// Requests for each active core of a group at which all cores of all groups come back.
            Recall recall: u16,
            |_, _| None,
            {
                name: "recall",
                title: "recall of parked cores",
                unit: Unit::Count,
                domain: Domain::CoreGroup,
                aggregation: Aggregation::Min,
                steward: Steward::Cpu,
                combine: Combine::Lowest,
                released: "never",
                text: "Requests per active core at which all groups come back at full speed.",
            }
            /// NVMe power state.
            PowerState power_state: PowerState,
            |_, _| Some(0),
            {
                name: "power_state",
                title: "drive power states",
                unit: Unit::Index,
                domain: Domain::Drive,
                aggregation: Aggregation::None,
                steward: Steward::Ssd,
                combine: Combine::Highest,
                released: "as found: state 0, uncapped",
                text: "NVMe power state: its maximum power is the drive's cap.",
            }
            /// Longest wake-up of the idle states that a drive may enter by itself.
            IdleWake idle_wake: Nanos,
            |_, _| None,
            {
                name: "idle_wake_seconds",
                title: "drive idle states",
                unit: Unit::Seconds,
                domain: Domain::Drive,
                aggregation: Aggregation::Max,
                steward: Steward::Ssd,
                combine: Combine::Lowest,
                released: "as found",
                text: "Longest wake-up of idle states that the drive may enter by itself (APST).",
            }
            /// How background work may run.
            Background background: BackgroundMode,
            |_, _| Some(BackgroundMode::Normal),
            {
                name: "background",
                title: "background work",
                unit: Unit::Mode,
                domain: Domain::Server,
                aggregation: Aggregation::None,
                steward: Steward::Cpu,
                combine: Combine::Exclusive,
                released: "at the server's own rate",
                text: "Flushing, collection, scrubbing: 0 at their own rate, 1 at full speed.",
            }
            /// PWM duty of a fan.
            FanDuty fan_duty: f64,
            |_, _| None,
            {
                name: "fan_duty",
                title: "fans",
                unit: Unit::Share,
                domain: Domain::Fan,
                aggregation: Aggregation::Mean,
                steward: Steward::Cooling,
                combine: Combine::Exclusive,
                released: "the board's own control",
                text: "PWM duty.",
            }
            /// Frequency ceiling of a socket.
            FrequencyCap frequency_cap: Hertz,
            |topology, _| Some(topology.max_frequency()),
            {
                name: "frequency_cap_hz",
                title: "frequency ceilings",
                unit: Unit::Hertz,
                domain: Domain::Socket,
                aggregation: Aggregation::Min,
                steward: Steward::Cooling,
                combine: Combine::Lowest,
                released: "no ceiling",
                text: "Most that the cores of the socket run at, whatever their group asks for.",
            }
            /// Share of the time for which a job may run.
            JobShare job_share: f64,
            |_, _| Some(1.0),
            {
                name: "job_share",
                title: "job shares",
                unit: Unit::Share,
                domain: Domain::Job,
                aggregation: Aggregation::Mean,
                steward: Steward::Cooling,
                combine: Combine::Lowest,
                released: "all of the time",
                text: "Share of the time for which the job may run (EADC §VI-B).",
            }
            /// The socket that a job runs on.
            JobSocket job_socket: u16,
            |_, _| None,
            {
                name: "job_socket",
                title: "job placement",
                unit: Unit::Index,
                domain: Domain::Job,
                aggregation: Aggregation::None,
                steward: Steward::Cooling,
                combine: Combine::Exclusive,
                released: "where the operating system's scheduler likes",
                text: "The socket that the job runs on.",
            }
            /// Whether waiting jobs of a class may start.
            Admit admit: bool,
            |_, _| Some(true),
            {
                name: "admit",
                title: "admission",
                unit: Unit::Flag,
                domain: Domain::Class,
                aggregation: Aggregation::None,
                steward: Steward::Cooling,
                combine: Combine::Lowest,
                released: "all are admitted",
                text: "Whether waiting jobs of the class may start.",
            }
            /// Most cores of a group that take new work.
            CoreLimit core_limit: u16,
            |topology, index| Some(topology.groups[index].cores),
            {
                name: "core_limit",
                title: "limits of cores",
                unit: Unit::Count,
                domain: Domain::CoreGroup,
                aggregation: Aggregation::Sum,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "all cores of the group",
                text: "Most cores of the group that take new work, whatever `active_cores` asks.",
            }
            /// Highest frequency of a group's cores.
            FrequencyLimit frequency_limit: Hertz,
            |topology, _| Some(topology.max_frequency()),
            {
                name: "frequency_limit_hz",
                title: "limits of frequency",
                unit: Unit::Hertz,
                domain: Domain::CoreGroup,
                aggregation: Aggregation::Min,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "no limit",
                text: "Highest frequency of the group's cores, whatever `frequency_hz` asks.",
            }
            /// Power limit of the processor packages.
            PackageLimit package_limit: Watts,
            |_, _| None,
            {
                name: "package_limit_watts",
                title: "power limit of the packages",
                unit: Unit::Watts,
                domain: Domain::Server,
                aggregation: Aggregation::None,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "as found",
                text: "Most that the processor packages draw, all together (RAPL).",
            }
            /// CPU time that the cores that serve I/O have together.
            CpuTime cpu_time: f64,
            |_, _| None,
            {
                name: "cpu_time",
                title: "CPU time",
                unit: Unit::Count,
                domain: Domain::Server,
                aggregation: Aggregation::None,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "as found",
                text: "CPU time of the cores that serve I/O, in cores: then they stand still.",
            }
            /// Period of the CPU time.
            CpuPeriod cpu_period: Nanos,
            |_, _| None,
            {
                name: "cpu_period_seconds",
                title: "period of the CPU time",
                unit: Unit::Seconds,
                domain: Domain::Server,
                aggregation: Aggregation::None,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "as found",
                text: "Period within which `cpu_time` is used up.",
            }
            /// Most that is read from a drive.
            ReadRate read_rate: f64,
            |_, _| None,
            {
                name: "read_rate",
                title: "limits of reads",
                unit: Unit::BytesPerSecond,
                domain: Domain::Drive,
                aggregation: Aggregation::Sum,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "no limit",
                text: "Most bytes a second that are read from the drive.",
            }
            /// Most that is written to a drive.
            WriteRate write_rate: f64,
            |_, _| None,
            {
                name: "write_rate",
                title: "limits of writes",
                unit: Unit::BytesPerSecond,
                domain: Domain::Drive,
                aggregation: Aggregation::Sum,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "no limit",
                text: "Most bytes a second that are written to the drive.",
            }
            /// Most that is moved of work that nobody waits for.
            BestEffortRate best_effort_rate: f64,
            |_, _| None,
            {
                name: "best_effort_rate",
                title: "limit of best-effort work",
                unit: Unit::BytesPerSecond,
                domain: Domain::Server,
                aggregation: Aggregation::None,
                steward: Steward::Server,
                combine: Combine::Lowest,
                released: "no limit",
                text: "Most bytes a second of work that nobody waits for, all drives together.",
            }
        }
    };
}
pub(super) use controls;

macro_rules! kinds {
    ($($(#[$text:meta])* $kind:ident $column:ident: $type:ty, |$($arg:pat_param),*| $found:expr,
       { $($field:ident: $value:expr,)* })*) => {
        /// A control, whatever part it is of.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Control {
            $($(#[$text])* $kind,)*
        }

        impl Control {
            /// Every control, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Its row.
            #[must_use]
            pub const fn row(self) -> &'static ControlRow {
                match self {
                    $(Self::$kind => &ControlRow { $($field: $value,)* },)*
                }
            }
        }
    };
}
controls!(kinds);

impl Control {
    /// Whether it sets how many cores take work, or how fast they run.
    #[must_use]
    pub const fn is_of_cores(self) -> bool {
        self.parks() || matches!(self, Self::Frequency | Self::FrequencyCap | Self::FrequencyLimit)
    }

    /// Whether it sets how many cores take work.
    #[must_use]
    pub const fn parks(self) -> bool {
        matches!(self, Self::ActiveCores | Self::CoreLimit)
    }

    /// Whether the plant has what it sets, where not every plant does.
    #[must_use]
    pub fn is_in(self, topology: &Topology) -> bool {
        let Limitable { cores, frequencies, packages, time, rates, best_effort } =
            topology.limitable;
        match self {
            Self::CoreLimit => cores,
            Self::FrequencyLimit => frequencies,
            Self::PackageLimit => packages,
            Self::CpuTime | Self::CpuPeriod => time,
            Self::ReadRate | Self::WriteRate => rates,
            Self::BestEffortRate => best_effort,
            _ => true,
        }
    }
}

impl std::fmt::Display for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().title)
    }
}
