//! What commands print.
//!
//! A reader that leaves early (`ebb .. | head`) changes nothing but what is printed: the rest of
//! the output is dropped, files are written, servers serve on, and the exit code tells how the
//! work went. `println!` and its kin would panic, so the lints forbid them.

//! Who controls a machine waits for no reader at all: see [`detach`].

mod journal;
mod queue;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, StdoutLock, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

pub use journal::{Field, Journal, Priority};
use queue::Queue;

use crate::text::printable_lines;

/// At the end of the process its log is waited for so long.
const LAST: Duration = Duration::from_secs(1);

/// Standard output and standard error of a process that waits for no reader.
static DETACHED: OnceLock<[Queue; 2]> = OnceLock::new();

/// Standard output.
pub struct Out {
    to: StdoutLock<'static>,
    is_read: bool,
}

/// Standard output, for this thread alone until it is dropped.
pub fn stdout() -> Out {
    Out { to: io::stdout().lock(), is_read: true }
}

impl Out {
    /// Whether anybody may still read it: what is made only to be shown can end here.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    fn told<T>(&mut self, result: io::Result<T>, dropped: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_read = false;
                Ok(dropped)
            }
            Err(error) => {
                let text = format!("cannot write standard output: {error}");
                Err(io::Error::new(error.kind(), text))
            }
            done => done,
        }
    }
}

impl Write for Out {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.to.write(data);
        self.told(written, data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        self.told(flushed, ())
    }
}

/// Prints `text`.
///
/// # Errors
/// When it cannot be written, for a full disk, say.
pub fn print(text: impl Display) -> Result<()> {
    let mut to = stdout();
    write!(to, "{text}")?;
    Ok(to.flush()?)
}

/// Prints `value` as JSON.
///
/// # Errors
/// As of [`print()`].
pub fn json(value: &impl Serialize) -> Result<()> {
    print(format_args!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Prints a line on standard error, if anybody reads that.
pub fn note(text: impl Display) {
    tell(Priority::Notice, text);
}

/// The same of what is as important as `priority`. Names in it may be a stranger's.
pub fn tell(priority: Priority, text: impl Display) {
    let mark = priority.mark_error();
    // Each line of it has its own.
    let text = printable_lines(&text.to_string()).replace('\n', &format!("\n{mark}"));
    let text = mark.to_owned() + &text;
    let Some([_, errors]) = DETACHED.get() else {
        let _ = writeln!(io::stderr(), "{text}");
        return;
    };
    if let Some(lost) = errors.lost() {
        errors.say(format!(
            "{lost} lines were lost so far: the log is read too slowly, or its disk is full\n"
        ));
    }
    errors.say(format!("{text}\n"));
}

/// From now on [`say`] and [`note`] wait for nobody: a reader that stalls, a full pipe or a full
/// disk lose lines, which are counted, and nothing else.
///
/// # Errors
/// Where there is no thread to be had.
pub fn detach() -> io::Result<()> {
    let file = |stream: &dyn AsFd| stream.as_fd().try_clone_to_owned().map(File::from);
    let queues = [
        Queue::new("standard output", file(&io::stdout())?)?,
        Queue::new("standard error", file(&io::stderr())?)?,
    ];
    DETACHED.get_or_init(|| queues);
    Ok(())
}

/// Prints whole lines, in a process that is detached without waiting for their reader.
pub fn say(lines: String) {
    match DETACHED.get() {
        Some([output, _]) => output.say(lines),
        None => drop(stdout().write_all(lines.as_bytes())),
    }
}

/// How many lines of [`say`] were lost so far, where that is news.
pub fn lost() -> Option<u64> {
    DETACHED.get().and_then(|[output, _]| output.lost())
}

/// Before the process ends: waits a little for what is still to be written.
pub fn finish() {
    let Some([output, errors]) = DETACHED.get() else { return };
    let deadline = Instant::now() + LAST;
    if let Some(text) = output.finish(deadline) {
        errors.say(text + "\n");
    }
    // Nobody is left to be told of what was lost here.
    errors.finish(deadline.max(Instant::now() + LAST / 4));
}
