//! Why a runtime could not start.

use std::io;
use std::path::PathBuf;

use super::wait::Unavailable;

/// Why a runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No CPU was given.
    #[error("no CPU to run on: name at least one, the main core first")]
    NoCpu,
    /// One CPU twice.
    #[error("cpu {cpu} is named twice: give each reactor a CPU of its own")]
    Twice {
        /// The CPU.
        cpu: usize,
    },
    /// The process may not run there.
    #[error(
        "cpu {cpu} is not among those this process may run on ({allowed}): \
         choose from these, or widen its cpuset or affinity"
    )]
    NotAllowed {
        /// The CPU.
        cpu: usize,
        /// Those allowed, as a list such as `0-3,8`.
        allowed: String,
    },
    /// No such CPU.
    #[error("cpu {cpu} does not exist: {} does not have it", root.display())]
    NoSuchCpu {
        /// The CPU.
        cpu: usize,
        /// Where CPUs are described.
        root: PathBuf,
    },
    /// Too many threads or CPUs to number.
    #[error("{count} {what}: at most {} are possible", u16::MAX)]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// A file could not be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of sysfs says nonsense.
    #[error("{}: '{text}' is not a list of CPUs such as 0-3,8", file.display())]
    Topology {
        /// The file.
        file: PathBuf,
        /// What it says.
        text: String,
    },
    /// The CPU lacks an instruction.
    #[error("{0}; leave the choice to Ebb or choose futex")]
    Unavailable(#[from] Unavailable),
    /// The system refused a resource.
    #[error("cannot {what} for cpu {cpu}")]
    Refused {
        /// What was to be done.
        what: &'static str,
        /// The CPU.
        cpu: usize,
        /// Why.
        source: io::Error,
    },
}
