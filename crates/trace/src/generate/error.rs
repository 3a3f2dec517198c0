//! What can be wrong with a workload.

use crate::request::TraceError;

/// Why a workload cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// No built-in workload has this name.
    #[error("unknown workload '{name}': give a TOML file or one of {}", names.join(", "))]
    Unknown {
        /// As given.
        name: String,
        /// The names there are.
        names: Vec<&'static str>,
    },
    /// A field that contradicts another, the server, or sense.
    #[error("workload '{workload}', {field}: {reason}")]
    Invalid {
        /// The workload's name.
        workload: String,
        /// Which part and field.
        field: String,
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// A TOML file that is none, or not of this form.
    #[error("{file}: {reason}")]
    Toml {
        /// Path as given.
        file: String,
        /// Line, column and what was expected.
        reason: String,
    },
    /// An input file of the workload.
    #[error(transparent)]
    Input(#[from] TraceError),
}

/// Where in a workload something stands, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) workload: &'a str,
    pub(super) part: &'a str,
}

impl Place<'_> {
    pub(super) fn wrong(self, field: &str, reason: impl Into<String>) -> GenerateError {
        let field = match self.part {
            "" => field.to_owned(),
            part => format!("{part}.{field}"),
        };
        GenerateError::Invalid { workload: self.workload.to_owned(), field, reason: reason.into() }
    }

    /// An error unless `good`.
    pub(super) fn need(self, good: bool, field: &str, reason: &str) -> Result<(), GenerateError> {
        if good { Ok(()) } else { Err(self.wrong(field, reason)) }
    }
}
