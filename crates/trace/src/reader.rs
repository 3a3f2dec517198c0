//! A trace as a [`Source`]: order, normalised time, and what to do with malformed records.

use std::io;
use std::num::NonZeroU64;

use ebb_policy::units::Nanos;

use crate::format::{Fault, Format, Line, Records, in_sectors};
use crate::order::Order;
use crate::request::{LONGEST, LONGEST_SAID, Op, Request, Source, TraceError};

/// Requests that one call of [`Source::fill`] appends at most.
pub const BATCH: usize = 4096;
/// Rows that are later than this behind the latest are told: writers that keep an order are late by
/// the time that a buffer of one processor waits, which is a second in ETW (`FlushTimer`) and less
/// in blktrace and BPF tools.
const LATE: u64 = 5_000_000_000;
/// Reasons that [`Skipped`] keeps.
const REASONS: usize = 5;

/// What a reader passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Malformed records; only a lenient reader goes on after one.
    pub malformed: u64,
    /// The first few of them: number of the line or record, and what was wrong with it.
    pub reasons: Vec<(u64, String)>,
    /// Well-formed records that are not requests: other events, calls that moved no data.
    pub ignored: u64,
}

/// Reads one trace, in order of arrival, the first request at 0.
///
/// Rows of formats that are written at completion or by several writers are put in order within a
/// window of 65,536 records; in any other format time running backwards is malformed.
pub struct Reader {
    file: String,
    format: Format,
    records: Box<dyn Records>,
    lenient: bool,
    waiting: Order,
    /// First and latest instant handed out, on the trace's own clock.
    first: Option<Nanos>,
    latest: Nanos,
    /// Least and greatest instant read.
    span: Option<(Nanos, Nanos)>,
    /// The latest arrival and the latest completion read.
    last: (u64, u64),
    /// The same above a heading or totals that came once more.
    above: Option<(u64, u64)>,
    /// The most that a row was late.
    late: u64,
    /// Requests read so far.
    read: u64,
    ended: bool,
    skipped: Skipped,
    /// Reads, writes and trims of 0 bytes, among those ignored.
    empty: u64,
    /// The format was not named but detected.
    detected: bool,
    /// And by custom it counts bytes of a block device.
    bytes_in_doubt: bool,
}

impl Reader {
    pub(crate) fn new(
        file: String,
        format: Format,
        records: Box<dyn Records>,
        lenient: bool,
    ) -> Self {
        Self {
            file,
            format,
            records,
            lenient,
            waiting: Order::default(),
            first: None,
            latest: Nanos::ZERO,
            span: None,
            last: (0, 0),
            above: None,
            late: 0,
            read: 0,
            ended: false,
            skipped: Skipped::default(),
            empty: 0,
            detected: false,
            bytes_in_doubt: false,
        }
    }

    /// The same of a format that nobody named: its units are in doubt.
    pub(crate) fn detected(self) -> Self {
        let bytes_in_doubt = self.format.columns().is_some_and(|all| all.contains("size:bytes"));
        Self { detected: true, bytes_in_doubt, ..self }
    }

    /// The format that was named or detected.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The file as it was named.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What was passed over so far.
    #[must_use]
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// What to know of how the requests came about: units taken, rows that are not arrivals.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let units = self.format.units().filter(|_| self.detected).map(|units| {
            let name = self.format;
            format!("read as {name}: {units}; --format or --columns for other units")
        });
        let tick = self.format.tick().map(|tick| {
            format!(
                "its clock has whole ticks of {tick}: requests of one are spread evenly over it, \
                 when they came in it is not known"
            )
        });
        let empty = (self.empty > 0).then(|| {
            format!(
                "{} reads, writes and trims of 0 bytes were passed over: they move nothing",
                self.empty
            )
        });
        // Darshan lists rank by rank.
        let is_late = self.late > LATE && self.format != Format::Darshan;
        let late = is_late.then(|| {
            format!(
                "rows are up to {:.1} s earlier than rows above them, and were put in order: if \
                 its clock was set or these are several runs, split the file there",
                self.late as f64 * 1e-9
            )
        });
        let notes = units.into_iter().chain(tick).chain(self.records.notes());
        notes.chain(empty).chain(late).collect()
    }

    /// Takes the next record into `batch` or the window; `false` at the end.
    fn step(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
        let fault = match self.records.next() {
            Ok(None) => return self.end().map(|()| false),
            Ok(Some(Line::Header)) => {
                self.above = (self.read > 0).then_some(self.last);
                return Ok(true);
            }
            Ok(Some(Line::Other)) => {
                self.skipped.ignored += 1;
                return Ok(true);
            }
            // A transfer length of 0 is no error (SBC-4, 5.15).
            Ok(Some(Line::Request(request))) if request.bytes == 0 && request.op != Op::Flush => {
                self.skipped.ignored += 1;
                self.empty += 1;
                return Ok(true);
            }
            Ok(Some(Line::Request(request))) if self.bytes_in_doubt && !in_sectors(&request) => {
                return Err(self.no_bytes(&request));
            }
            Ok(Some(Line::Request(request)))
                if self
                    .above
                    .is_some_and(|(at, end)| request.at.0 <= at && done(&request) <= end) =>
            {
                return Err(self.another_run(&request));
            }
            Ok(Some(Line::Request(request))) => match self.accept(request, batch) {
                Ok(()) => return Ok(true),
                Err(reason) => Fault::Record(reason),
            },
            Err(fault) => fault,
        };
        match fault {
            Fault::Record(reason) => self.malformed(reason).map(|()| true),
            Fault::File(reason) => Err(TraceError::Format { file: self.file.clone(), reason }),
            Fault::Stream(source) => Err(self.broken(&source)),
        }
    }

    /// A trace has at least one request: whoever gives an empty one meant another file.
    fn end(&self) -> Result<(), TraceError> {
        if self.read > 0 {
            return Ok(());
        }
        let Skipped { malformed, ignored, reasons } = &self.skipped;
        let mut reason = "there is no request in it".to_owned();
        if *ignored > 0 {
            reason.push_str(&format!("; {ignored} records are of another kind"));
        }
        if self.empty > 0 {
            reason.push_str(&format!(", {} of them of size 0", self.empty));
        }
        if let Some((line, first)) = reasons.first() {
            reason.push_str(&format!("; {malformed} are malformed, the first at {line}: {first}"));
        }
        Err(TraceError::Format { file: self.file.clone(), reason })
    }

    #[cold]
    fn no_bytes(&self, request: &Request) -> TraceError {
        let (format, Request { offset, bytes, .. }) = (self.format, request);
        let sectors = format.columns().unwrap_or_default().replace("bytes", "sectors");
        let reason = format!(
            "offset {offset} and size {bytes} are no whole sectors, as if they were not in bytes, \
             as {format} has them: state the units, as in --columns {sectors}, name another \
             format (--format disksim, mqsim), or confirm bytes with --format {format}"
        );
        let line = self.records.position();
        TraceError::Malformed { file: self.file.clone(), line, reason }
    }

    #[cold]
    fn another_run(&self, request: &Request) -> TraceError {
        let above = self.above.map_or(0.0, |above| lateness(request, above) as f64 * 1e-9);
        let reason = format!(
            "another run begins here, {above:.3} s before the end of the one above: split the file \
             at the heading or totals between them"
        );
        let line = self.records.position();
        TraceError::Malformed { file: self.file.clone(), line, reason }
    }

    fn accept(&mut self, request: Request, batch: &mut Vec<Request>) -> Result<(), String> {
        if self.first.is_some() && request.at < self.latest {
            return Err(self.backwards(request.at));
        }
        let (least, greatest) = self.span.unwrap_or((request.at, request.at));
        let span = (least.min(request.at), greatest.max(request.at));
        if span.1 - span.0 > LONGEST {
            return Err(self.apart(request.at));
        }
        self.span = Some(span);
        self.late = self.late.max(lateness(&request, self.last));
        self.last = (self.last.0.max(request.at.0), self.last.1.max(done(&request)));
        self.read += 1;
        let window = self.format.window();
        if window == 0 {
            self.hand_out(request, batch);
            return Ok(());
        }
        self.waiting.push(request);
        if self.waiting.len() > window
            && let Some(earliest) = self.waiting.pop()
        {
            self.hand_out(earliest, batch);
        }
        Ok(())
    }

    fn hand_out(&mut self, request: Request, batch: &mut Vec<Request>) {
        let first = *self.first.get_or_insert(request.at);
        self.latest = request.at;
        batch.push(Request { at: request.at - first, ..request });
    }

    #[cold]
    fn backwards(&self, at: Nanos) -> String {
        let first = self.first.unwrap_or_default();
        let since = |at: Nanos| (i128::from(at.0) - i128::from(first.0)) as f64 * 1e-9;
        let (now, before) = (since(at), since(self.latest));
        let window = match self.format.window() {
            0 => String::new(),
            window => format!(", and no {window} records around it put that in order"),
        };
        format!(
            "time runs backwards: {now:.9} s after {before:.9} s (since the first request)\
             {window}; sort the file by time first"
        )
    }

    #[cold]
    fn apart(&self, at: Nanos) -> String {
        let (least, greatest) = self.span.unwrap_or_default();
        let (side, apart) = match at > greatest {
            true => ("after", at - least),
            false => ("before", greatest - at),
        };
        let years = apart.seconds() / (365.0 * 86_400.0);
        format!(
            "it arrives {years:.0} years {side} another request: \
             a trace lasts {LONGEST_SAID} at most"
        )
    }

    #[cold]
    fn malformed(&mut self, reason: String) -> Result<(), TraceError> {
        let line = self.records.position();
        if !self.lenient {
            let reason = format!("{reason} (--lenient passes over such records)");
            return Err(TraceError::Malformed { file: self.file.clone(), line, reason });
        }
        self.skipped.malformed += 1;
        if self.skipped.reasons.len() < REASONS {
            self.skipped.reasons.push((line, reason));
        }
        Ok(())
    }

    #[cold]
    fn broken(&self, source: &io::Error) -> TraceError {
        let text = format!("{}, after {} requests were read", told(source), self.read);
        TraceError::Io { file: self.file.clone(), source: io::Error::new(source.kind(), text) }
    }
}

/// When a request was answered, as far as that is known.
fn done(request: &Request) -> u64 {
    let latency = request.recorded_latency.map_or(0, NonZeroU64::get);
    request.at.0.saturating_add(latency)
}

/// How much earlier a request is than the latest arrival and completion above it: rows are in order
/// of one of them.
fn lateness(request: &Request, (arrival, completion): (u64, u64)) -> u64 {
    arrival.saturating_sub(request.at.0).min(completion.saturating_sub(done(request)))
}

/// What an error of a stream means, and what to do where that is known.
pub(crate) fn told(error: &io::Error) -> String {
    let text = error.to_string();
    if text.contains("too much memory") {
        return "packed with zstd --long, which takes more memory to unpack than Ebb uses: zstd \
                -dc --long=31 FILE | ebb … -"
            .to_owned();
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("the file ends early (truncated?): {text}"),
        _ if text.contains("incomplete") => format!("the file ends early (truncated?): {text}"),
        _ => text,
    }
}

impl Source for Reader {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let (empty, full) = (batch.len(), batch.len() + BATCH);
        // What is there is given before more is waited for.
        while !self.ended && batch.len() < full && (batch.len() == empty || self.records.is_ready())
        {
            match self.step(batch) {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(error) => {
                    // Nothing more comes, neither from the file nor from the window.
                    self.ended = true;
                    self.waiting.clear();
                    return Err(error);
                }
            }
        }
        while self.ended
            && batch.len() < full
            && let Some(earliest) = self.waiting.pop()
        {
            self.hand_out(earliest, batch);
        }
        Ok(())
    }
}
