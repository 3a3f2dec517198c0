//! What can go wrong between a host and its target.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use ebb_nvme::Status;
use ebb_nvme::pdu::Fatal;

/// Why an association or a queue cannot go on.
#[derive(Debug, Error)]
pub enum Error {
    /// No connection could be made.
    #[error("{address}: cannot connect: {source}; is a target listening there?")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The socket failed.
    #[error("the connection broke: {0}")]
    Socket(#[from] io::Error),
    /// The target closed the connection without saying why.
    #[error("the target closed the connection")]
    Closed,
    /// No answer came.
    #[error("no answer to {command} within {after:?}")]
    Timeout {
        /// What was asked.
        command: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The target sent what it must not.
    #[error("the target broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The target ended the connection with a terminate request (TCP Figure 19).
    #[error("the target ended the connection: {} (information {information:#x})", fatal(.status))]
    Terminated {
        /// FES.
        status: u16,
        /// FEI.
        information: u32,
    },
    /// A command of the set-up failed.
    #[error("{command} failed: {}", words(.status))]
    Failed {
        /// Which.
        command: &'static str,
        /// How.
        status: Status,
    },
    /// The target does not take us for who we say we are.
    #[error("the target refused to authenticate this host: {0}; is the key the right one?")]
    Unauthenticated(&'static str),
    /// It did not show that it is the target.
    #[error("the target failed to authenticate itself: {0}; is its key the right one?")]
    Untrusted(&'static str),
    /// There is no TLS with it.
    #[error("no TLS with the target: {0}; is the key the right one, and does it offer TLS?")]
    Insecure(io::Error),
    /// The target cannot do what is needed.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Whether the connection is gone or unusable, so that connecting again may help.
    #[must_use]
    pub const fn is_connection(&self) -> bool {
        !matches!(
            self,
            Self::Failed { .. }
                | Self::Unauthenticated(_)
                | Self::Untrusted(_)
                | Self::Insecure(_)
                | Self::Unsupported(_)
        )
    }
}

/// How a target broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// A PDU that is not one, or not one for us.
    #[error("{0}")]
    Frame(#[from] Fatal),
    /// An answer or data for a command that is not outstanding.
    #[error("command identifier {0:#06x} is not outstanding")]
    UnknownCommand(u16),
    /// Data or a request for data for a command that has none in this direction.
    #[error("command {0:#06x} transfers no data in this direction")]
    Direction(u16),
    /// Data that does not continue where the last ended.
    #[error("data of command {cid:#06x} at offset {found} instead of {expected}")]
    Offset {
        /// Which command.
        cid: u16,
        /// Where it should go on.
        expected: usize,
        /// What the target stated.
        found: usize,
    },
    /// A transfer beyond the command's data, or of another length than its PDU.
    #[error("{length} bytes at offset {offset} of command {cid:#06x}, which has {total}")]
    Length {
        /// Which command.
        cid: u16,
        /// Where the transfer begins.
        offset: usize,
        /// Its length as stated.
        length: usize,
        /// Bytes of the command's data.
        total: usize,
    },
    /// The data digest is wrong.
    #[error(
        "data digest {received:#010x} of command {cid:#06x}, but its data has {expected:#010x}"
    )]
    DataDigest {
        /// Which command.
        cid: u16,
        /// Digest of what was received.
        expected: u32,
        /// Digest that came with it.
        received: u32,
    },
    /// A second request for data while one of the same command is being answered: MAXR2T is 1.
    #[error("a second R2T for command {0:#06x} while one is outstanding")]
    TooManyRequests(u16),
    /// A command reported done before all of its data went over.
    #[error("command {cid:#06x} answered after {moved} of {total} bytes of data")]
    Early {
        /// Which command.
        cid: u16,
        /// Bytes that went over.
        moved: usize,
        /// Bytes of the command's data.
        total: usize,
    },
}

impl Violation {
    /// What to put into the terminate request that ends the connection.
    #[must_use]
    pub const fn fatal(self) -> Fatal {
        match self {
            Self::Frame(fatal) => fatal,
            Self::UnknownCommand(_) => Fatal::InvalidHeaderField(8),
            Self::Offset { .. } | Self::Length { .. } => Fatal::OutOfRange,
            Self::TooManyRequests(_) => Fatal::LimitExceeded,
            Self::Direction(_) | Self::DataDigest { .. } | Self::Early { .. } => Fatal::Sequence,
        }
    }
}

fn words(status: &Status) -> String {
    describe(*status)
}

fn fatal(status: &u16) -> &'static str {
    match status {
        1 => "invalid PDU header field",
        2 => "PDU sequence error",
        3 => "header digest error",
        4 => "data transfer out of range",
        5 => "data transfer limit exceeded",
        6 => "unsupported parameter",
        _ => "for a reason unknown",
    }
}

/// A status in words, with its type and code as the specification numbers them.
#[must_use]
pub fn describe(status: Status) -> String {
    let words = match (status.kind, status.code) {
        (0, 0x00) => "success",
        (0, 0x01) => "invalid command opcode",
        (0, 0x02) => "invalid field in command",
        (0, 0x04) => "data transfer error",
        (0, 0x06) => "internal error",
        (0, 0x07) => "abort requested",
        (0, 0x0b) => "invalid namespace or format",
        (0, 0x0c) => "command sequence error",
        (0, 0x0f) => "data SGL length invalid",
        (0, 0x11) => "SGL descriptor type invalid",
        (0, 0x16) => "SGL offset invalid",
        (0, 0x80) => "LBA out of range",
        (0, 0x81) => "capacity exceeded",
        (0, 0x82) => "namespace not ready",
        (1, 0x80) => "incompatible format or conflicting attributes",
        (1, 0x81) => "controller busy",
        (1, 0x82) => "invalid parameters or read-only range",
        (1, 0x84) => "host not allowed",
        (1, 0x91) => "authentication required",
        (2, 0x80) => "write fault",
        (2, 0x81) => "unrecovered read error",
        (2, 0x85) => "compare failure",
        _ => "status",
    };
    format!("{words} (type {:#x}, code {:#04x})", status.kind, status.code)
}
