//! Trace files as one source of requests, changed as the options say.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use serde::Serialize;

use ebb_policy::units::Nanos;
use ebb_trace::transform::{cut, fold, merge, rate, spread};
use ebb_trace::{Format, OpenOptions, Reader, Request, Skipped, Source, TraceError, open};

use crate::args::{Changes, Reading};
use crate::exit::usage;
use crate::server::Server;

/// Traces and how to read and change them; opened anew for each run.
pub struct Traces {
    files: Vec<PathBuf>,
    reading: Reading,
    changes: Changes,
}

/// What became of one file while it was read.
#[derive(Debug, Clone, Serialize)]
pub struct FileReport {
    /// The file as named.
    pub file: String,
    /// Its format, named or detected.
    pub format: String,
    /// Malformed records that were passed over.
    pub malformed: u64,
    /// The first of them: line or record, and what was wrong.
    pub reasons: Vec<(u64, String)>,
    /// Well-formed records that are not requests.
    pub ignored: u64,
}

/// What became of the files; complete when the source has been read to its end.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<Vec<FileReport>>>);

impl Watch {
    /// What is known by now.
    pub fn reports(&self) -> Vec<FileReport> {
        self.0.lock().map(|reports| reports.clone()).unwrap_or_default()
    }
}

impl Traces {
    /// Traces of the command line.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn new(files: Vec<PathBuf>, reading: Reading, changes: Changes) -> Result<Self> {
        if let Some(factor) = changes.rate_scale
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(usage(format!(
                "--rate-scale {factor}: a factor above 0 is needed, such as 2 for twice as fast"
            )));
        }
        if let (from, Some(to)) = (changes.from.unwrap_or_default(), changes.to)
            && to <= from
        {
            return Err(usage(format!("--to {to} must come after --from {from}")));
        }
        Ok(Self { files, reading, changes })
    }

    /// The files as named, for headings.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.display().to_string()).collect()
    }

    /// Opens the files, folded onto `server` if one is given.
    pub fn open(&self, server: Option<&Server>) -> Result<(Box<dyn Source>, Watch)> {
        let watch = Watch::default();
        let mut sources = Vec::new();
        for file in &self.files {
            sources.push(self.open_one(file, &watch)?);
        }
        let mut source = match (sources.pop(), sources.is_empty()) {
            (Some(only), true) => only,
            (last, _) => {
                sources.extend(last);
                Box::new(merge(sources))
            }
        };
        let (from, to) = (self.changes.from.unwrap_or_default(), self.changes.to);
        if from > Nanos::ZERO || to.is_some() {
            source = Box::new(cut(source, from, to.unwrap_or(Nanos(u64::MAX)))?);
        }
        if let Some(factor) = self.changes.rate_scale {
            source = Box::new(rate(source, factor)?);
        }
        if let Some(server) = server {
            let (devices, capacity) = server.volumes();
            source = Box::new(fold(source, &self.names().join(", "), devices, capacity)?);
        }
        Ok((source, watch))
    }

    fn open_one(&self, file: &PathBuf, watch: &Watch) -> Result<Box<dyn Source>> {
        let options = OpenOptions { format: self.reading.format, lenient: self.reading.lenient };
        let reader = open(file, &options)?;
        let (name, format) = (reader.file().to_owned(), reader.format());
        let report = FileReport {
            file: name.clone(),
            format: format.to_string(),
            malformed: 0,
            reasons: Vec::new(),
            ignored: 0,
        };
        let mut index = 0;
        if let Ok(mut reports) = watch.0.lock() {
            index = reports.len();
            reports.push(report);
        }
        let watched = Watched { reader, index, watch: watch.clone() };
        if format == Format::Tencent {
            // Its clock has whole seconds: without this, each second begins with a burst.
            return Ok(Box::new(spread(watched, &name, Nanos::from_secs(1))?));
        }
        Ok(Box::new(watched))
    }
}

/// A reader whose account of skipped records can be seen from outside.
struct Watched {
    reader: Reader,
    index: usize,
    watch: Watch,
}

impl Source for Watched {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let filled = self.reader.fill(batch);
        let Skipped { malformed, reasons, ignored } = self.reader.skipped();
        if *malformed + *ignored > 0
            && let Ok(mut reports) = self.watch.0.lock()
            && let Some(report) = reports.get_mut(self.index)
        {
            (report.malformed, report.ignored) = (*malformed, *ignored);
            report.reasons.clone_from(reasons);
        }
        filled
    }
}
