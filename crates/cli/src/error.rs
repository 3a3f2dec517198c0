//! Errors by which a command ends, whatever it is.

/// What was asked for cannot be: the message says what would be valid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The work failed for a reason outside the input, such as a full disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {0}")]
pub struct Unwritten(pub String);

/// Somebody asked the work to end before it was done.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// An error that what was asked for cannot be.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}
