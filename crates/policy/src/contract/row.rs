//! What rows of signals and of controls have in common.

use super::class::QosClass;
use super::topology::Topology;

/// The unit of a value, SI where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// The number of one of several things, from 0.
    Index,
    /// So many a second.
    PerSecond,
    /// A share, 0 to 1.
    Share,
    /// Yes or no.
    Flag,
    /// One of a few named ways; numbered from 0.
    Mode,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// Hertz.
    Hertz,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
    /// Revolutions per minute, as tachometers have it.
    Rpm,
}

impl Unit {
    /// As in tables for people.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Count => "1",
            Self::Index => "number",
            Self::PerSecond => "1/s",
            Self::Share => "0 to 1",
            Self::Flag => "yes/no",
            Self::Mode => "mode",
            Self::Bytes => "B",
            Self::BytesPerSecond => "B/s",
            Self::Seconds => "s",
            Self::Hertz => "Hz",
            Self::Watts => "W",
            Self::Celsius => "°C",
            Self::Rpm => "rpm",
        }
    }
}

/// What a signal or control is there once for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The server.
    Server,
    /// Each processor socket.
    Socket,
    /// Each core group.
    CoreGroup,
    /// Each drive.
    Drive,
    /// Each fan, or several that share a signal.
    Fan,
    /// Each slot for a job.
    Job,
    /// Each class of jobs.
    Class,
}

impl Domain {
    /// How many of them `topology` has.
    #[must_use]
    pub fn count(self, topology: &Topology) -> usize {
        match self {
            Self::Server => 1,
            Self::Socket => usize::from(topology.sockets),
            Self::CoreGroup => topology.groups.len(),
            Self::Drive => topology.drives.len(),
            Self::Fan => topology.fans.len(),
            Self::Job => usize::from(topology.jobs),
            Self::Class => QosClass::ALL.len(),
        }
    }

    /// As in tables for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Socket => "socket",
            Self::CoreGroup => "core group",
            Self::Drive => "drive",
            Self::Fan => "fan",
            Self::Job => "job",
            Self::Class => "class",
        }
    }

    /// The name of the one at `index` by its place, such as `drive3`; `None` for the server.
    /// [`super::names::Names`] has better ones.
    #[must_use]
    pub fn part(self, index: u16) -> Option<String> {
        Some(match self {
            Self::Server => return None,
            Self::Socket => format!("socket{index}"),
            Self::CoreGroup => format!("group{index}"),
            Self::Drive => format!("drive{index}"),
            Self::Fan => format!("fan{index}"),
            Self::Job => format!("job{index}"),
            Self::Class => QosClass::ALL.get(usize::from(index)).map(QosClass::name)?.to_owned(),
        })
    }
}

/// How the values of all parts become one for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// There is no such value.
    None,
}

impl Aggregation {
    /// As in tables for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Min => "min",
            Self::None => "–",
        }
    }
}
