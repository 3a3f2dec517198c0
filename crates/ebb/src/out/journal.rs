//! How important a line is, for systemd's journal where that reads it (`man 3 sd-daemon`).

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::fs::fstat;

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// What failed.
    Error,
    /// What needs somebody to look.
    Warning,
    /// What an operator should know.
    Notice,
    /// What has changed.
    Info,
    /// All else.
    Debug,
}

/// Whether the journal reads standard output, and standard error.
static READS: OnceLock<[bool; 2]> = OnceLock::new();

impl Priority {
    /// What a line on standard output begins with; nothing where a person reads it.
    pub fn mark(self) -> &'static str {
        self.of(0)
    }

    /// The same of standard error.
    pub fn mark_error(self) -> &'static str {
        self.of(1)
    }

    fn of(self, stream: usize) -> &'static str {
        let reads = READS.get_or_init(|| [is_read(&io::stdout()), is_read(&io::stderr())]);
        match self {
            _ if !reads[stream] => "",
            Self::Error => "<3>",
            Self::Warning => "<4>",
            Self::Notice => "<5>",
            Self::Info => "<6>",
            Self::Debug => "<7>",
        }
    }
}

/// Whether `stream` is the one that systemd has connected to its journal.
fn is_read(stream: &impl AsFd) -> bool {
    let Ok(told) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(stream).is_ok_and(|stat| told == format!("{}:{}", stat.st_dev, stat.st_ino))
}
