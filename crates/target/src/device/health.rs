//! How a device is that can do without a part of itself.

use std::fmt;

/// A part that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Its file or device.
    pub name: String,
    /// What it could not do.
    pub why: &'static str,
}

/// A part that is being rebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilding {
    /// Its file or device.
    pub name: String,
    /// Stripes that it holds.
    pub done: u64,
    /// All stripes.
    pub of: u64,
    /// Another part cannot be read; the rebuild stands still but for a try now and then.
    pub stuck: bool,
}

/// The parts of a device that are not as they should be.
///
/// Its text says what is wrong and what to do; it changes when the state does, not with the
/// progress of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// In the order in which they failed.
    pub failed: Vec<Failed>,
    /// The one that is being rebuilt.
    pub rebuilding: Option<Rebuilding>,
    /// Too much has failed: nothing is written any more.
    pub read_only: bool,
    /// Parts that have not answered for seconds.
    pub silent: Vec<String>,
}

impl Health {
    /// Whether a further failure would lose data.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty() || self.rebuilding.is_some() || self.read_only
    }

    /// Whether there is nothing to say of it.
    #[must_use]
    pub fn is_well(&self) -> bool {
        !self.is_degraded() && self.silent.is_empty()
    }

    fn redundancy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_degraded() {
            return write!(f, "whole: any one member may fail");
        }
        let failed: Vec<String> =
            self.failed.iter().map(|one| format!("{} ({})", one.name, one.why)).collect();
        let failed = failed.join(" and ");
        if self.read_only {
            return write!(
                f,
                "read-only: too many members failed: {failed}; repair them, then restart"
            );
        }
        if !failed.is_empty() {
            return write!(
                f,
                "degraded: without {failed}; one more failure loses data: restart with a good \
                 device in its place and ',rebuild'"
            );
        }
        match &self.rebuilding {
            Some(Rebuilding { name, stuck: true, .. }) => write!(
                f,
                "degraded: the rebuild of {name} stands still, as another member cannot be read; \
                 copy the data elsewhere"
            ),
            Some(Rebuilding { name, .. }) => {
                write!(
                    f,
                    "degraded: rebuilding {name}; one more failure loses data until it is done"
                )
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redundancy(f)?;
        if !self.silent.is_empty() {
            let names = self.silent.join(" and ");
            write!(f, "; {names} has not answered for seconds: if it hangs, take it away")?;
        }
        Ok(())
    }
}
