//! Trace files as one source of requests, changed as the options say.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Result;

use ebb_policy::units::{Bytes, Nanos};
pub use ebb_record::parts::FileReport;
use ebb_trace::files::Patient;
use ebb_trace::transform::{cut, fold, merge, rate, repeat, spread};
use ebb_trace::{
    OpenOptions, Reader, Request, STDIN, Skipped, Source, TraceError, check_start, files, open,
    open_file,
};

use crate::args::{Changes, Reading};
use crate::flow::Flow;
use crate::interrupt;
use crate::text::printable;
use crate::{Unwritten, usage};

/// Devices to fold a trace onto, and the capacity of each.
pub type Volumes = (u16, Bytes);

/// Traces and how to read and change them; opened anew for each run.
pub struct Traces {
    files: Vec<TraceFile>,
    reading: Reading,
    changes: Changes,
    /// What can be read only once, for all readers together.
    flow: Option<Flow<Watch>>,
}

/// A trace as named.
struct TraceFile {
    name: PathBuf,
    /// A copy of what can be read only once; it has no name, and so ends with the process.
    copy: Option<File>,
}

impl TraceFile {
    fn shown(&self) -> String {
        match self.name == Path::new(STDIN) {
            true => "standard input".to_owned(),
            false => printable(&self.name.display().to_string()),
        }
    }

    /// The file for reading; `None` for standard input.
    fn file(&self) -> io::Result<Option<File>> {
        match &self.copy {
            // Each reader has a place of its own in it.
            Some(copy) => File::open(format!("/proc/self/fd/{}", copy.as_raw_fd())).map(Some),
            None if self.name == Path::new(STDIN) => Ok(None),
            None => files::open(&self.name).map(Some),
        }
    }

    /// Whether it can be read only once.
    fn is_pipe(&self) -> bool {
        match self.name == Path::new(STDIN) {
            true => true,
            // What is not there is told when it is opened.
            false => self.name.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir()),
        }
    }

    /// Copies what is no regular file, so that it can be read again and again.
    fn keep(&mut self, options: &OpenOptions) -> Result<()> {
        let name = self.shown();
        let unread = |source| TraceError::Io { file: name.clone(), source };
        let mut from = match self.file().map_err(unread)? {
            Some(file) => match file.metadata().map_err(unread)?.file_type() {
                kind if kind.is_file() || kind.is_dir() => return Ok(()),
                _ => Patient(file),
            },
            None => Patient::stdin().map_err(unread)?,
        };
        let mut buffer = vec![0; HEAD];
        let mut filled = read_full(&mut from, &mut buffer).map_err(unread)?;
        if filled == HEAD {
            check_start(&name, buffer.clone(), options)?;
        }
        let folder = std::env::temp_dir();
        let unwritten = |error: io::Error| {
            let folder = folder.display();
            anyhow::Error::from(error).context(Unwritten(format!(
                "a copy of {name}, which is read more than once, to {folder} (set TMPDIR to a \
                 folder with more room, or name a file)"
            )))
        };
        let mut copy = tempfile::tempfile().map_err(unwritten)?;
        while filled > 0 {
            copy.write_all(&buffer[..filled]).map_err(unwritten)?;
            filled = read_full(&mut from, &mut buffer).map_err(unread)?;
        }
        self.copy = Some(copy);
        Ok(())
    }
}

/// Bytes of a pipe that show whether it is worth a copy: more than any line has.
const HEAD: usize = 256 << 10;

/// Reads until `buffer` is full or nothing comes any more.
fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        match from.read(&mut buffer[filled..])? {
            0 => return Ok(filled),
            read => filled += read,
        }
    }
}

/// What became of the files; complete when the source has been read to its end.
#[derive(Clone, Default)]
pub struct Watch {
    reports: Arc<Mutex<Vec<FileReport>>>,
    /// Files of known size, which share their position with what reads them.
    sizes: Arc<Mutex<Vec<(File, u64)>>>,
}

impl Watch {
    /// What is known by now.
    pub fn reports(&self) -> Vec<FileReport> {
        self.reports.lock().map(|reports| reports.clone()).unwrap_or_default()
    }

    /// How much of all files was read, 0 to 1; `None` where the size of one is not known.
    pub fn share_read(&self) -> Option<f64> {
        let sizes = self.sizes.lock().ok()?;
        if sizes.len() < self.reports.lock().ok()?.len() {
            return None;
        }
        let (mut read, mut all) = (0, 0);
        for (file, size) in sizes.iter() {
            let mut file = file; // `&File` seeks
            read += file.stream_position().ok()?.min(*size);
            all += size;
        }
        (all > 0).then(|| read as f64 / all as f64)
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
        if files.iter().filter(|file| *file == Path::new(STDIN)).count() > 1 {
            return Err(usage("standard input (-) is named twice: it can be read only once"));
        }
        let files = files.into_iter().map(|name| TraceFile { name, copy: None }).collect();
        Ok(Self { files, reading, changes, flow: None })
    }

    /// The same for so many runs side by side, each of which opens it once: what can be read only
    /// once is read once, for all. `again` says that a run opens it more than once: then it is
    /// copied to a temporary file.
    pub fn for_runs(mut self, runs: usize, again: bool) -> Result<Self> {
        if !self.files.iter().any(TraceFile::is_pipe) {
            return Ok(self);
        }
        if again {
            for file in &mut self.files {
                file.keep(&self.reading.options())?;
            }
        } else {
            self.flow = Some(Flow::new(runs));
        }
        Ok(self)
    }

    /// Whether its readers have to run side by side.
    pub fn flows(&self) -> bool {
        self.flow.is_some()
    }

    /// A run will not open it any more.
    pub fn go_on(&self) {
        if let Some(flow) = &self.flow {
            flow.go_on();
        }
    }

    /// Whether it can be opened, without reading it.
    pub fn check(&self, onto: Option<Volumes>) -> Result<()> {
        match &self.flow {
            Some(flow) => flow.begin(|| self.open_all(onto)).map(|_| ()),
            None => self.open_all(onto).map(|_| ()),
        }
    }

    /// The files as named, for headings.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(TraceFile::shown).collect()
    }

    /// How long they last, where the options say.
    pub fn length(&self) -> Option<Nanos> {
        let length = self.changes.to?.saturating_sub(self.changes.from.unwrap_or_default());
        Some(Nanos((length.0 as f64 / self.changes.rate_scale.unwrap_or(1.0)) as u64))
    }

    /// Opens the files, folded onto devices if such are given.
    pub fn open(&self, onto: Option<Volumes>) -> Result<(Box<dyn Source>, Watch)> {
        let Some(flow) = &self.flow else { return self.open_all(onto) };
        let watch = flow.begin(|| self.open_all(onto))?;
        Ok((flow.reader(), watch))
    }

    /// The same without end, again and again.
    pub fn open_again(self: &Arc<Self>, onto: Option<Volumes>) -> Result<(Box<dyn Source>, Watch)> {
        let (first, watch) = self.open(onto)?;
        let traces = Arc::clone(self);
        let open = move || match traces.open_all(onto) {
            Ok((source, _)) => Ok(source),
            Err(error) => Err(error.downcast::<TraceError>().unwrap_or_else(|error| {
                let (file, source) = (traces.names().join(", "), io::Error::other(error));
                TraceError::Io { file, source }
            })),
        };
        Ok((Box::new(repeat(first, open)), watch))
    }

    /// When the last request comes, and how many there are, by reading them all; `None` where they
    /// can be read only once, or cannot be.
    pub fn extent(&self) -> Option<(Nanos, u64)> {
        if self.flows() {
            return None;
        }
        let (mut source, _) = self.open_all(None).ok()?;
        let (mut batch, mut extent) = (Vec::new(), None);
        loop {
            interrupt::leave_if_asked();
            source.fill(&mut batch).ok()?;
            let Some(request) = batch.last() else { return extent };
            let before = extent.map_or(0, |(_, count)| count);
            extent = Some((request.at, before + batch.len() as u64));
            batch.clear();
        }
    }

    fn open_all(&self, onto: Option<Volumes>) -> Result<(Box<dyn Source>, Watch)> {
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
        if let Some((devices, capacity)) = onto {
            source = Box::new(fold(source, &self.names().join(", "), devices, capacity)?);
        }
        Ok((source, watch))
    }

    fn open_one(&self, trace: &TraceFile, watch: &Watch) -> Result<Box<dyn Source>> {
        let options = self.reading.options();
        let name = trace.shown();
        let io = |source| TraceError::Io { file: name.clone(), source };
        let reader = match trace.file().map_err(io)? {
            Some(file) => {
                let known = file.metadata().ok().filter(|metadata| metadata.is_file());
                let same = known.and_then(|known| Some((file.try_clone().ok()?, known.len())));
                if let (Some(same), Ok(mut sizes)) = (same, watch.sizes.lock()) {
                    sizes.push(same);
                }
                open_file(&name, file, &options)?
            }
            None => open(STDIN, &options)?,
        };
        let (name, format) = (reader.file().to_owned(), reader.format());
        let report = FileReport {
            file: name.clone(),
            format: format.to_string(),
            malformed: 0,
            reasons: Vec::new(),
            ignored: 0,
            notes: reader.notes(),
        };
        let mut index = 0;
        if let Ok(mut reports) = watch.reports.lock() {
            index = reports.len();
            reports.push(report);
        }
        let watched = Watched { reader, index, watch: watch.clone() };
        if let Some(tick) = format.tick() {
            // Without this, each second begins with a burst.
            return Ok(Box::new(spread(watched, &name, tick)?));
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
        let notes = self.reader.notes();
        if (*malformed + *ignored > 0 || !notes.is_empty())
            && let Ok(mut reports) = self.watch.reports.lock()
            && let Some(report) = reports.get_mut(self.index)
        {
            (report.malformed, report.ignored) = (*malformed, *ignored);
            report.reasons.clone_from(reasons);
            report.notes = notes;
        }
        filled
    }
}
