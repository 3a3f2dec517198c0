//! Exit codes and how errors are told: 1 the work failed, 2 wrong usage or input.

use std::path::Path;
use std::process::ExitCode;

use ebb_dataplane::reactor;
use ebb_policy::registry::PolicyError;
use ebb_policy::units::UnitError;
use ebb_trace::TraceError;
use ebb_trace::generate::GenerateError;
use ebb_trace::transform::InvalidOption;
use ebb_twin::{ProfileError, TwinError};

use crate::out;

/// What was asked for cannot be: the message says what would be valid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The work failed for a reason outside the input, such as a full disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {0}")]
pub struct Unwritten(pub String);

/// Refuses a file to write whose folder does not exist, before long work is done for it.
pub fn check_folder(option: &str, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => Err(usage(format!(
            "{option} {}: there is no folder {}; make it first",
            path.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// An error that what was asked for cannot be.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Tells `error` on standard error and gives its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    out::note(format_args!("error: {}", message(error)));
    ExitCode::from(code(error))
}

/// The chain of causes in one line each, without repeating what an outer one already says.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn code(error: &anyhow::Error) -> u8 {
    // Contexts are reached by `downcast_ref`, causes by the chain.
    let failed = error.downcast_ref::<Unwritten>().is_some();
    let wrong = error.downcast_ref::<Usage>().is_some() || error.chain().any(is_input);
    if wrong && !failed { 2 } else { 1 }
}

fn is_input(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<Usage>()
        || cause.is::<ProfileError>()
        || cause.is::<PolicyError>()
        || cause.is::<TraceError>()
        || cause.is::<GenerateError>()
        || cause.is::<InvalidOption>()
        || cause.is::<UnitError>()
        || cause.downcast_ref().is_some_and(|error| !matches!(error, TwinError::Trip(_)))
        || is_cpu(cause)
}

/// CPUs that cannot be used; that the system refuses threads or files is a failure.
fn is_cpu(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = cause.downcast_ref::<reactor::Error>();
    error.is_some_and(|error| !matches!(error, reactor::Error::Refused { .. }))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use ebb_policy::units::{Celsius, Nanos};
    use ebb_twin::Trip;
    use std::io;

    use super::*;

    #[test]
    fn wrong_input_is_2_whatever_context_it_has() {
        let error = anyhow::Error::from(Usage("no".into())).context("while trying");
        assert_eq!(code(&error), 2);
        assert_eq!(message(&error), "while trying: no");
    }

    #[test]
    fn a_server_that_gets_too_hot_failed_at_its_work() {
        let (at, temperature) = (Nanos::from_secs(7), Celsius(96.0));
        let trip = TwinError::Trip(Trip { socket: 0, at, temperature });
        assert_eq!(code(&anyhow::Error::from(trip).context("policy dlb")), 1);
        let setup = TwinError::Setup("no cores".into());
        assert_eq!(code(&anyhow::Error::from(setup)), 2);
    }

    #[test]
    fn a_full_disk_is_1_even_where_the_trace_writer_reports_it() {
        let full = TraceError::Io { file: "x".into(), source: io::Error::other("disk full") };
        assert_eq!(code(&anyhow::Error::from(full).context(Unwritten("x".into()))), 1);
        let plain: Result<(), _> = Err(io::Error::other("disk full"));
        assert_eq!(code(&plain.context("somewhere").unwrap_err()), 1);
    }
}
