//! `ebb trace`: look into, convert and rate block-I/O traces.

mod convert;
mod head;
mod info;
mod pressure;

use std::io::{self, Write};

use anyhow::Result;
use indicatif::ProgressBar;

use ebb_trace::{Request, Source, TraceError};

use crate::args::{Files, TraceCommand};
use crate::input::{FileReport, Traces, Watch};
use crate::progress::Progress;

/// Runs the command.
pub fn run(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Head(args) => head::run(args),
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Pressure(args) => pressure::run(args),
    }
}

/// Opens the traces of a command, with a count of requests on the terminal.
fn open(input: &Files) -> Result<(Box<dyn Source>, Watch)> {
    let traces = Traces::new(input.files.clone(), input.reading, input.changes.clone())?;
    let (source, watch) = traces.open(None)?;
    let bar = Progress::new(input.quiet).bar("reading", None);
    Ok((Box::new(Counted { source, bar }), watch))
}

/// Counts what passes.
struct Counted {
    source: Box<dyn Source>,
    bar: ProgressBar,
}

impl Source for Counted {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let before = batch.len();
        let filled = self.source.fill(batch);
        self.bar.inc((batch.len() - before) as u64);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{:.2} M requests", self.bar.position() as f64 / 1e6));
        }
        if filled.is_err() || batch.len() == before {
            self.bar.finish_and_clear();
        }
        filled
    }
}

/// Tells what was passed over.
fn skipped(to: &mut impl Write, files: &[FileReport]) -> io::Result<()> {
    for file in files {
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
