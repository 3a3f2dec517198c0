//! Exit codes and how errors are told: 1 the work failed, 2 wrong usage or input, 3 a server ended
//! without its devices, 130 interrupted.

use std::process::ExitCode;

use ebb_cli::text::printable;
use ebb_cli::{Interrupted, Unwritten, Usage, out};
use ebb_policy::PolicyError;
use ebb_policy::units::UnitError;
use ebb_target::reactor;
use ebb_trace::TraceError;
use ebb_trace::generate::GenerateError;
use ebb_trace::transform::InvalidOption;
use ebb_twin::{ProfileError, TwinError};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A server has ended and not all of its namespaces were flushed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}; the server has ended without. What was acknowledged as durable is on the device: writes \
     before a Flush that succeeded, and those with Force Unit Access. Others may be lost"
)]
pub struct Unflushed(pub String);

/// Tells `error` on standard error and gives its exit code; `asked` says that somebody asked for
/// the end.
pub fn report(error: &anyhow::Error, asked: bool) -> ExitCode {
    // Reading ends by an error then, which says nothing more.
    let ended = anyhow::Error::from(Interrupted);
    let error = if asked && error.chain().any(is_input) { &ended } else { error };
    out::tell(out::Priority::Error, format_args!("error: {}", shown(&message(error))));
    ExitCode::from(code(error))
}

/// A message as a terminal may get it: whatever stands in names is printable, and lines of files
/// that it quotes are short.
fn shown(message: &str) -> String {
    const MOST: usize = 160;
    let quoted = |line: &str| {
        line.split_once('|').is_some_and(|(before, _)| {
            before.ends_with(' ') && before.chars().all(|c| c == ' ' || c.is_ascii_digit())
        })
    };
    let line = |line: &str| match line.char_indices().nth(MOST) {
        Some((end, _)) if quoted(line) => printable(&line[..end]) + "…",
        _ => printable(line),
    };
    message.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The chain of causes in one line each, without repeating what an outer one already says.
pub fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // A file that was just named is not named again.
        let cause = match cause.split_once(": ") {
            Some((name, rest)) if text.ends_with(name) => rest,
            _ => &cause,
        };
        if !text.contains(cause) {
            text.push_str(": ");
            text.push_str(cause);
        }
    }
    if let Some(meant) = error.chain().find_map(meant) {
        text.push_str(&format!("; did you mean '{meant}'?"));
    }
    text.push_str(&out_of_files(&text).unwrap_or_default());
    text
}

/// What to do where the system has no more file descriptors, for this process or for all. It is
/// known by its words: much of what reports it keeps these alone.
fn out_of_files(text: &str) -> Option<String> {
    let is = |error: Errno| text.contains(&format!("(os error {})", error.raw_os_error()));
    if is(Errno::MFILE) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        return Some(format!(
            "; the limit is {limit} open files: raise it (ulimit -n, LimitNOFILE= of the unit)"
        ));
    }
    let all = "; the machine has as many open as it may: raise fs.file-max, or end what has them";
    is(Errno::NFILE).then(|| all.to_owned())
}

/// The known name nearest to one that is not.
fn meant(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(PolicyError::Unknown { name, valid }) = cause.downcast_ref() {
        return nearest(name, valid.split(", "));
    }
    if let Some(ProfileError::Unknown { name, valid }) = cause.downcast_ref() {
        return nearest(name, valid.split(", "));
    }
    if let Some(GenerateError::Unknown { name, names }) = cause.downcast_ref() {
        return nearest(name, names.iter().copied());
    }
    None
}

/// The one of `names` that `name` is most like, if it is like any: two letters exchanged, left out
/// or too many in five.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let likeness = |other: &&str| strsim::normalized_damerau_levenshtein(name, other);
    let like = names.filter(|other| likeness(other) > 0.6);
    let best = like.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    best.map(str::to_owned)
}

/// Whether what was asked for cannot be.
pub fn is_usage(error: &anyhow::Error) -> bool {
    code(error) == 2
}

fn code(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<Interrupted>()) {
        return 130; // 128 and the number of SIGINT, as shells have it
    }
    if error.is::<Unflushed>() {
        return 3;
    }
    // Contexts are reached by `downcast_ref`, causes by the chain.
    let failed = error.downcast_ref::<Unwritten>().is_some()
        || error.chain().any(|cause| out_of_files(&cause.to_string()).is_some());
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
    use ebb_cli::usage;
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
    fn what_is_told_is_printable_and_quotes_little() {
        let line = format!("5 | a = \"{}\"", "x".repeat(100_000));
        let told = shown(&format!("x\u{1b}[31m.toml: no\n  |\n{line}\n  | \t^^^\nsays \u{7}"));
        assert!(told.starts_with("x\\u{1b}[31m.toml: no\n  |\n5 | a = \"xxx"), "{told}");
        assert!(told.ends_with("xxx…\n  | \t^^^\nsays \\u{7}") && told.len() < 300, "{told}");
    }

    #[test]
    fn a_file_is_named_once() {
        let folder = TraceError::Io { file: "adir".into(), source: io::Error::other("a folder") };
        let error = anyhow::Error::from(folder).context(Unwritten("adir".into()));
        assert_eq!(message(&error), "cannot write adir: a folder");
    }

    #[test]
    fn the_nearest_name_is_offered_and_no_stranger() {
        let names = || ["native", "pacer", "pacer-plus", "pacman"].into_iter();
        assert_eq!(nearest("pacr", names()).as_deref(), Some("pacer"));
        assert_eq!(nearest("pacmann", names()).as_deref(), Some("pacman"));
        assert_eq!(nearest("xyz", names()), None);
        let unknown = GenerateError::Unknown { name: "wbe".into(), names: vec!["mail", "web"] };
        assert!(message(&unknown.into()).ends_with("; did you mean 'web'?"));
    }

    #[test]
    fn an_interruption_has_the_code_of_shells() {
        assert_eq!(code(&anyhow::Error::from(Interrupted).context("policy pacer")), 130);
    }

    #[test]
    fn a_server_that_ends_without_a_device_says_so_by_its_code_and_what_it_means() {
        let error = anyhow::Error::from(Unflushed("namespace 2 is stalled".into()));
        assert_eq!(code(&error), 3);
        assert!(message(&error).contains("acknowledged as durable is on the device"));
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
    fn without_descriptors_the_work_fails_and_the_limit_is_said() {
        for (errno, said) in [(Errno::MFILE, "ulimit -n"), (Errno::NFILE, "fs.file-max")] {
            let source = io::Error::from(errno);
            // Whether the cause is there or its words alone, of whatever was to be read.
            let words = usage(format!("/sys/x: {source}"));
            let trace = TraceError::Io { file: "x".into(), source };
            for error in [words, anyhow::Error::from(trace).context("reading")] {
                assert!(message(&error).contains(said), "{error:?}");
                assert_eq!(code(&error), 1, "{error:?}");
            }
        }
    }

    #[test]
    fn a_full_disk_is_1_even_where_the_trace_writer_reports_it() {
        let full = TraceError::Io { file: "x".into(), source: io::Error::other("disk full") };
        assert_eq!(code(&anyhow::Error::from(full).context(Unwritten("x".into()))), 1);
        let plain: Result<(), _> = Err(io::Error::other("disk full"));
        assert_eq!(code(&plain.context("somewhere").unwrap_err()), 1);
    }
}
