//! Classes of jobs.

use serde::{Deserialize, Serialize};

use super::units::Nanos;

/// How much a request matters (EADC Table I), the most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QosClass {
    /// No data may be lost.
    Critical,
    /// Minutes of data may be.
    Vital,
    /// Hours.
    Sensitive,
    /// A day.
    #[default]
    Noncritical,
}

impl QosClass {
    /// Every class, the one that matters most first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::Vital, Self::Sensitive, Self::Noncritical];

    /// Its name in files and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Vital => "vital",
            Self::Sensitive => "sensitive",
            Self::Noncritical => "noncritical",
        }
    }

    /// The time to recover that the class is promised, the RTO of EADC Table I. The table lists
    /// five times of recovery and on what medium each class reaches them; that the classes take
    /// the rows in order, the last one the rest, is assumed. Where a row has a range
    /// (12 to 24 h), its end is what is promised.
    #[must_use]
    pub const fn recovery_time(self) -> Nanos {
        Nanos::from_secs(match self {
            Self::Critical => 30 * 60,
            Self::Vital => 2 * 3600,
            Self::Sensitive => 24 * 3600,
            Self::Noncritical => 7 * 24 * 3600,
        })
    }

    /// The longest time between two backups that the class is promised, the RPO of the same rows;
    /// none for `Critical`, whose 0 minutes no backup from time to time can keep.
    #[must_use]
    pub const fn recovery_point(self) -> Option<Nanos> {
        Some(Nanos::from_secs(match self {
            Self::Critical => return None,
            Self::Vital => 15 * 60,
            Self::Sensitive => 6 * 3600,
            Self::Noncritical => 24 * 3600,
        }))
    }
}
