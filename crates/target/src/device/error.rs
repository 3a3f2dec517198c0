//! Why a device could not be had.

use std::io;
use std::path::{Path, PathBuf};

/// Why a device could not be opened, made or assembled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not describe a device.
    #[error("namespace '{spec}': {reason}")]
    Spec {
        /// The text.
        spec: String,
        /// What is wrong with it and what to write instead.
        reason: String,
    },
    /// The system refused.
    #[error("{}: {what}: {source}; {remedy}", path.display())]
    System {
        /// The file or device, or the name of what stands for it.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// What is there cannot be used as asked.
    #[error("{}: {reason}", path.display())]
    Unfit {
        /// The file or device, or the name of what stands for it.
        path: PathBuf,
        /// What is wrong with it and what to do.
        reason: String,
    },
}

impl Error {
    pub(super) fn system(
        path: impl AsRef<Path>,
        what: &'static str,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::System { path, what, remedy, source }
    }

    pub(super) fn unfit(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Unfit { path: path.as_ref().to_owned(), reason: reason.into() }
    }
}
