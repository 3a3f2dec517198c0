//! What a server tells on standard error while it runs, as far as its log level goes.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use ebb_cli::out::{self, Priority};

/// How important a message is; less important ones are not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// What failed.
    Error,
    /// What needs somebody to look: a stalled device, a host that failed to authenticate itself.
    Warning,
    /// What has changed.
    Info,
    /// Every request of `ebb ctl`.
    Debug,
}

impl Level {
    const ALL: [Self; 4] = [Self::Error, Self::Warning, Self::Info, Self::Debug];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    fn priority(self) -> Priority {
        match self {
            Self::Error => Priority::Error,
            Self::Warning => Priority::Warning,
            Self::Info => Priority::Info,
            Self::Debug => Priority::Debug,
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Tells what is as important as `level` from now on.
pub fn set(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// What is told.
pub fn level() -> Level {
    let level = LEVEL.load(Ordering::Relaxed);
    Level::ALL.into_iter().find(|one| *one as u8 == level).unwrap_or(Level::Info)
}

/// Tells `text`, if it is as important as what is told.
pub fn tell(level: Level, text: impl Display) {
    if is_told(level) {
        out::tell(level.priority(), text);
    }
}

/// Whether it is as important as what is told.
pub fn is_told(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}
