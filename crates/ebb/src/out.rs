//! What commands print.
//!
//! A reader that leaves early (`ebb .. | head`) changes nothing but what is printed: the rest of
//! the output is dropped, files are written, servers serve on, and the exit code tells how the
//! work went. `println!` and its kin would panic, so the lints forbid them.

use std::fmt::Display;
use std::io::{self, ErrorKind, StdoutLock, Write};

use anyhow::Result;
use serde::Serialize;

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
    let _ = writeln!(io::stderr(), "{text}");
}
