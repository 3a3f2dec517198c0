//! The one record type, and the two ways requests come: by the clock or by completion.

use std::num::NonZeroU64;

use ebb_policy::units::Nanos;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Read data.
    Read = 0,
    /// Write data.
    Write = 1,
    /// Make earlier writes durable; no data.
    Flush = 2,
    /// Deallocate a range.
    Trim = 3,
}

impl Op {
    /// Bytes of data that a request for `bytes` moves between host and device.
    #[inline]
    #[must_use]
    pub const fn data(self, bytes: u32) -> u32 {
        match self {
            Self::Read | Self::Write => bytes,
            Self::Flush | Self::Trim => 0,
        }
    }
}

/// One block-I/O request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it arrives, since the start of its trace.
    pub at: Nanos,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Volume or drive as numbered by the trace.
    pub device: u16,
    /// What it does.
    pub op: Op,
    /// Client, job or connection it belongs to; requests of one stream go to one core.
    pub stream: u32,
    /// Latency recorded with the trace, if it has one, in nanoseconds.
    pub recorded_latency: Option<NonZeroU64>,
}

impl Request {
    /// Bytes of data that it moves; none for flushes and trims, whatever range they are for.
    #[inline]
    #[must_use]
    pub const fn data_bytes(&self) -> u32 {
        self.op.data(self.bytes)
    }
}

/// The longest time from the first request of a trace to any other: no trace is longer, and sums
/// of times stay far from what 64 bits hold.
pub const LONGEST: Nanos = Nanos::from_secs(100 * 365 * 86_400);
/// The same for messages.
pub const LONGEST_SAID: &str = "100 years";

/// Why a trace could not be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("{file}: {source}")]
    Io {
        /// Path as given.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A record that is not one.
    #[error("{file}:{line}: {reason}")]
    Malformed {
        /// Path as given.
        file: String,
        /// Line, or record for binary formats, counted from 1.
        line: u64,
        /// What is wrong with it and what was expected.
        reason: String,
    },
    /// No request arrives within the times that were asked for.
    #[error("no request arrives {}", ends(from, to, latest))]
    NothingLeft {
        /// Where the cut begins.
        from: Nanos,
        /// Where it ends.
        to: Nanos,
        /// The latest arrival that was seen.
        latest: Nanos,
    },
    /// A trace is slowed down too much.
    #[error(
        "at {rate:e} times its rate the request at {at} would come after more than {LONGEST_SAID}, \
         which is as long as a trace may last: choose a larger factor"
    )]
    TooSlow {
        /// The factor.
        rate: f64,
        /// When the request arrives in the trace.
        at: Nanos,
    },
    /// The format could not be told, or does not exist.
    #[error("{file}: {reason}")]
    Format {
        /// Path as given.
        file: String,
        /// What was looked for, and how to name a format.
        reason: String,
    },
}

impl TraceError {
    /// The same once more, for somebody else.
    #[must_use]
    pub fn again(&self) -> Self {
        match self {
            Self::Io { file, source } => {
                let source = std::io::Error::new(source.kind(), source.to_string());
                Self::Io { file: file.clone(), source }
            }
            Self::Malformed { file, line, reason } => {
                Self::Malformed { file: file.clone(), line: *line, reason: reason.clone() }
            }
            Self::NothingLeft { from, to, latest } => {
                Self::NothingLeft { from: *from, to: *to, latest: *latest }
            }
            Self::TooSlow { rate, at } => Self::TooSlow { rate: *rate, at: *at },
            Self::Format { file, reason } => {
                Self::Format { file: file.clone(), reason: reason.clone() }
            }
        }
    }
}

/// Where requests are instead.
fn ends(from: &Nanos, to: &Nanos, latest: &Nanos) -> String {
    let latest_s = latest.seconds();
    if latest < from {
        format!("at or after {from}: the last one arrives at {latest_s:.3} s")
    } else if latest < to {
        format!("between {from} and {to}: the trace has no requests")
    } else {
        format!("between {from} and {to}: one arrives at {latest_s:.3} s, after that time")
    }
}

/// A part of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadPart {
    /// The first of its streams; the next part's come after them.
    pub first: u32,
    /// Whether nobody waits for it: it may be slowed to save watts before all others.
    pub best_effort: bool,
}

/// An open loop: requests come by the clock, whatever the server does.
pub trait Source: Send {
    /// Appends the next requests to `batch`, in time order (a few thousand at a time, so that
    /// memory stays flat); appends nothing at the end.
    ///
    /// # Errors
    /// When the input is unreadable or malformed.
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError>;

    /// The parts of the load, by their streams; none where it has no parts.
    fn parts(&self) -> Vec<LoadPart> {
        Vec::new()
    }
}

/// A closed loop: each slot sends its next request when its last one completed.
pub trait Closed: Send {
    /// How many requests can be outstanding at once.
    fn slots(&self) -> u32;

    /// The next request of `slot`, whose last one completed at `now`; `None` ends the slot. Its
    /// `at` is when it was to be sent. In the future (think time, an idle phase) it is sent then;
    /// in the past it has waited for a free slot (an arrival by a rate) and is sent at once.
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request>;

    /// The parts of the load, by their streams; none where it has no parts.
    fn parts(&self) -> Vec<LoadPart> {
        Vec::new()
    }
}

/// Where the requests of a run come from.
pub enum Workload {
    /// By the clock.
    Open(Box<dyn Source>),
    /// By completion.
    Closed(Box<dyn Closed>),
}

impl Workload {
    /// The parts of the load, by their streams; none where it has no parts.
    #[must_use]
    pub fn parts(&self) -> Vec<LoadPart> {
        match self {
            Self::Open(source) => source.parts(),
            Self::Closed(clients) => clients.parts(),
        }
    }
}
