//! `ebb trace`: look into, convert and rate block-I/O traces.

mod args;
mod convert;
mod head;
mod info;
mod pressure;

use std::io::{self, Write};

use anyhow::Result;
use ebb_trace::{Request, Source, TraceError};

use ebb_cli::input::{FileReport, Traces, Watch};
use ebb_cli::progress::{Progress, Track};
use ebb_cli::{Interrupted, interrupt};

use args::Files;
pub use args::TraceCommand;

/// Runs the command.
pub fn run(command: &TraceCommand) -> Result<()> {
    interrupt::watch()?;
    let done = match command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Head(args) => head::run(args),
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Pressure(args) => pressure::run(args),
    };
    // Reading ends by an error then, which says nothing more.
    if interrupt::asked() { done.map_err(|_| Interrupted.into()) } else { done }
}

/// Opens the traces of a command, with what was read on the terminal.
fn open(input: &Files) -> Result<(Box<dyn Source>, Watch)> {
    let traces = Traces::new(input.files.clone(), input.reading, input.changes.clone())?;
    let (source, watch) = traces.open(None)?;
    let track = Track::trace(&Progress::new(input.quiet), "reading", &watch);
    Ok((Box::new(Counted { source, track, count: 0 }), watch))
}

/// Counts what passes, and ends where somebody asks for it.
struct Counted {
    source: Box<dyn Source>,
    track: Track,
    count: u64,
}

impl Source for Counted {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        if interrupt::asked() {
            let source = io::ErrorKind::Interrupted.into();
            return Err(TraceError::Io { file: "reading".to_owned(), source });
        }
        let before = batch.len();
        let filled = self.source.fill(batch);
        self.count += (batch.len() - before) as u64;
        self.track.read(self.count);
        if filled.is_err() || batch.len() == before {
            self.track.finish();
        }
        filled
    }
}

/// Tells what was passed over.
fn skipped(to: &mut impl Write, files: &[FileReport]) -> io::Result<()> {
    for file in files {
        for note in &file.notes {
            writeln!(to, "{}: {note}", file.file)?;
        }
        if file.ignored > 0 {
            writeln!(to, "{}: {} records that are not requests", file.file, file.ignored)?;
        }
        if file.malformed > 0 {
            writeln!(to, "{}: {} malformed records passed over:", file.file, file.malformed)?;
        }
        for (line, reason) in &file.reasons {
            writeln!(to, "  {}:{line}: {reason}", file.file)?;
        }
    }
    Ok(())
}
