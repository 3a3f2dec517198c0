//! The output of `biosnoop` (BCC, libbpf-tools) and of `iosnoop` (perf-tools).

use std::num::NonZeroU64;

use jiff::civil::Date;

use super::field::{self, Columns, Line, LineParser, Lost, Reason, Unknown, shown};
use super::names::Names;
use crate::request::{Op, Request};
use crate::times;

/// `0.000004 supervise 1950 xvda1 W 13092560 4096 0.74`: seconds, command, process, disk, type,
/// sector (512 B), bytes, latency in milliseconds, and what else the heading names.
///
/// A line is printed, and its time taken, when the request completes: the arrival is that time
/// less the latency and the time in the queue. A command may contain blanks, so the columns behind
/// it are counted from the right.
pub(crate) struct Biosnoop {
    columns: Vec<Column>,
    /// As the heading has them.
    names: Vec<String>,
    disks: Names,
    unknown: Unknown,
    lost: Lost,
    /// A heading or a row was there: `^C` alone is the end of many programs.
    begun: bool,
    /// The last time of day, and days since the first.
    clock: (u64, u64),
    /// Requests whose time in the queue is not known.
    unqueued: u64,
    /// Those of a disk that have no whole sectors.
    partial: u64,
}

/// What a column holds; times with their unit in nanoseconds, 0 for a time of day.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Start(u64),
    End(u64),
    Command,
    Process,
    Disk,
    Kind,
    Sector,
    Bytes,
    Latency(u64),
    /// The time in the queue, which belongs to the latency.
    Queue(u64),
    Other,
}

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

impl Default for Biosnoop {
    /// What BCC prints without options.
    fn default() -> Self {
        let names = ["TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "LAT(ms)"];
        let columns = names.map(|name| column(name.as_bytes()).unwrap_or(Column::Other));
        Self {
            columns: columns.into(),
            names: names.map(str::to_owned).into(),
            disks: Names::default(),
            unknown: Unknown::default(),
            lost: Lost::default(),
            begun: false,
            clock: (0, 0),
            unqueued: 0,
            partial: 0,
        }
    }
}

impl LineParser for Biosnoop {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        // perf-tools' iosnoop begins and ends so; BCC's histograms and tops with other words.
        let is_end = line == b"^C" && self.begun;
        if line.starts_with(b"Tracing block I/O") || line == b"Ending tracing..." || is_end {
            return Ok(Line::Header);
        }
        // On standard error, which may be in the file as well.
        if self.lost.says(line) {
            return Ok(Line::Other);
        }
        let mut fields: Vec<&[u8]> = Columns::blanks(line).collect();
        let is_heading = |name: &&[u8]| matches!(*name, b"DISK" | b"DEV" | b"BYTES" | b"COMM");
        if fields.iter().filter(|name| is_heading(name)).count() > 1 {
            self.columns = heading(&fields)?;
            self.names = fields.iter().map(|name| shown(name)).collect();
            self.begun = true;
            return Ok(Line::Header);
        }
        let day = self.take_date(&mut fields);
        let row = self.row(&fields, day)?;
        self.begun = true;
        // Without a disk's name a column is missing: the process stands there.
        let no_disk = row.disk.filter(|disk| disk.iter().all(u8::is_ascii_digit));
        if no_disk.is_none() {
            self.complete(&fields, 0)?;
        }
        let process = match no_disk.or(row.process) {
            Some(process) => field::stream(field::unsigned(process, "PID")?, "PID")?,
            None => 0,
        };
        if !row.kind.iter().all(u8::is_ascii_uppercase) {
            return Err(format!("T is '{}', not R, W, D or F", shown(row.kind)));
        }
        let size = field::unsigned(row.bytes, "BYTES")?;
        // Nor is there data of a disk, if nobody asked for it or it is no whole sector.
        if no_disk.is_some() && (row.command == b"?" || !size.is_multiple_of(512)) {
            return Ok(Line::Other);
        }
        let op = match kind(row.kind, size) {
            Ok(Some(op)) => op,
            Ok(None) => return Ok(Line::Other),
            Err(()) => return self.unknown.count(row.kind, "T", "R, W, D or F"),
        };
        let offset = match op {
            Op::Flush => 0,
            _ => field::sectors(field::unsigned(row.sector, "SECTOR")?, "SECTOR")?,
        };
        let request = field::request(row.at, op, offset, size)?;
        self.partial += u64::from(!size.is_multiple_of(512));
        let disk = row.disk.filter(|_| no_disk.is_none()).unwrap_or_default();
        let device = self.disks.number(&[disk])?;
        let recorded_latency = NonZeroU64::new(row.latency);
        Ok(Line::Request(Request { device, stream: process, recorded_latency, ..request }))
    }

    fn notes(&self) -> Vec<String> {
        let unqueued = (self.unqueued > 0).then(|| {
            format!("{} requests have no time in the queue, which counts as 0", self.unqueued)
        });
        let partial = (self.partial > 0).then(|| {
            format!(
                "{} requests have no whole sectors: commands that pass through move such data",
                self.partial
            )
        });
        let unknown = self.unknown.note("types").into_iter().chain(self.lost.note());
        unknown.chain(unqueued).chain(partial).collect()
    }
}

/// The fields of a row by what they are.
#[derive(Default)]
struct Row<'a> {
    at: u64,
    latency: u64,
    command: &'a [u8],
    process: Option<&'a [u8]>,
    disk: Option<&'a [u8]>,
    kind: &'a [u8],
    sector: &'a [u8],
    bytes: &'a [u8],
}

impl Biosnoop {
    /// Refuses rows of too few fields, but for `less`, or of more than a command explains.
    fn complete(&self, fields: &[&[u8]], less: usize) -> Result<(), Reason> {
        let (there, wanted) = (fields.len(), self.columns.len());
        let may_have_more = self.columns.contains(&Column::Command);
        if there + less < wanted || (there > wanted && !may_have_more) {
            return Err(format!("{there} columns, not {wanted}"));
        }
        Ok(())
    }

    /// Takes a date that stands before a time of day out of a row: days since 1970.
    fn take_date(&self, fields: &mut Vec<&[u8]>) -> Option<u64> {
        let is_time = |column: &Column| matches!(column, Column::Start(_) | Column::End(_));
        let at = self.columns.iter().position(is_time)?;
        let date = fields.get(at).filter(|text| text.contains(&b'-') || text.contains(&b'/'))?;
        fields.get(at + 1).filter(|text| text.contains(&b':'))?;
        let date = times::date(std::str::from_utf8(date).ok()?, true)?.ok()?;
        fields.remove(at);
        let days = date.duration_since(Date::constant(1970, 1, 1)).as_hours() / 24;
        u64::try_from(days).ok()
    }

    fn row<'a>(&mut self, fields: &[&'a [u8]], day: Option<u64>) -> Result<Row<'a>, Reason> {
        self.complete(fields, 1)?;
        let mut row = Row::default();
        let (mut start, mut end) = (None, None);
        let command = self.columns.iter().position(|column| *column == Column::Command);
        let count = self.columns.len();
        for index in 0..count {
            let place = match command {
                Some(command) if index > command => fields.len().checked_sub(count - index),
                _ => Some(index),
            };
            let text = place.and_then(|place| fields.get(place)).copied().unwrap_or_default();
            match self.columns[index] {
                Column::Start(unit) => start = Some(self.time(text, unit, day)?),
                Column::End(unit) => end = Some(self.time(text, unit, day)?),
                Column::Queue(_) if is_unknown(text) => self.unqueued += 1,
                Column::Latency(unit) | Column::Queue(unit) => {
                    let time = field::time(text, &self.names[index], unit)?;
                    row.latency = row.latency.saturating_add(time);
                }
                Column::Process => row.process = Some(text),
                Column::Disk => row.disk = Some(text),
                Column::Kind => row.kind = text,
                Column::Sector => row.sector = text,
                Column::Bytes => row.bytes = text,
                Column::Command => row.command = text,
                Column::Other => {}
            }
        }
        row.at = match (start, end) {
            (Some(start), _) => field::arrival(start, 0)?,
            (None, end) => field::arrival(end.unwrap_or_default(), row.latency)?,
        };
        Ok(row)
    }

    /// A time, or a time of day, which begins anew at midnight.
    fn time(&mut self, text: &[u8], unit: u64, day: Option<u64>) -> Result<u64, Reason> {
        if unit > 0 && !text.contains(&b':') {
            return field::time(text, "TIME(s)", unit);
        }
        let mut parts = text.split(|byte| *byte == b':');
        let mut next = |unit| field::time(parts.next().unwrap_or_default(), "TIME", unit);
        let (hours, minutes, seconds) = (next(3600 * SECOND)?, next(60 * SECOND)?, next(SECOND)?);
        let at = hours.saturating_add(minutes).saturating_add(seconds);
        if parts.next().is_some() || at >= DAY {
            return Err(format!("TIME is '{}', not a time of day", shown(text)));
        }
        if let Some(day) = day {
            return Ok(day.saturating_mul(DAY).saturating_add(at));
        }
        let (last, days) = self.clock;
        self.clock = (at, if at + DAY / 2 < last { days + 1 } else { days });
        Ok(self.clock.1.saturating_mul(DAY).saturating_add(at))
    }
}

/// What libbpf-tools print where a request did not wait in a queue, and others for no value.
fn is_unknown(text: &[u8]) -> bool {
    let negative = || std::str::from_utf8(text).ok()?.parse().ok().map(|n: f64| n == -1.0);
    matches!(text, b"" | b"-" | b"N/A") || negative() == Some(true)
}

/// The columns that a heading names.
fn heading(names: &[&[u8]]) -> Result<Vec<Column>, Reason> {
    let columns = names.iter().map(|name| column(name)).collect::<Result<Vec<_>, _>>()?;
    let has = |wanted: fn(&Column) -> bool| columns.iter().any(wanted);
    let latency = has(|column| matches!(column, Column::Latency(_)));
    let end = has(|column| matches!(column, Column::End(_)));
    let needed = [
        (has(|column| *column == Column::Kind), "T"),
        (has(|column| *column == Column::Sector), "SECTOR"),
        (has(|column| *column == Column::Bytes), "BYTES"),
        (end || has(|column| matches!(column, Column::Start(_))), "TIME(s)"),
        (latency || has(|column| matches!(column, Column::Start(_))), "LAT(ms)"),
    ];
    match needed.iter().find(|(there, _)| !there) {
        Some((_, name)) => Err(format!(
            "the heading has no column {name}: a request needs its time, type, sector and bytes \
             (BCC's biosnoop prints them, and iosnoop -s)"
        )),
        None => Ok(columns),
    }
}

fn column(name: &[u8]) -> Result<Column, Reason> {
    let unit = match name.iter().position(|byte| *byte == b'(').map(|at| &name[at..]) {
        Some(b"(s)") => Some(SECOND),
        Some(b"(ms)") => Some(1_000_000),
        Some(b"(us)") => Some(1_000),
        Some(b"(ns)") => Some(1),
        _ => None,
    };
    let bare = name.split(|byte| *byte == b'(').next().unwrap_or_default();
    Ok(match (bare, unit) {
        (b"TIME" | b"TIMESTAMP" | b"DATE/TIME", unit) => Column::End(unit.unwrap_or(0)),
        (b"STARTs", _) => Column::Start(SECOND),
        (b"ENDs", _) => Column::End(SECOND),
        (b"COMM", _) => Column::Command,
        (b"PID" | b"TID", _) => Column::Process,
        (b"DISK" | b"DEV", _) => Column::Disk,
        (b"T" | b"TYPE", _) => Column::Kind,
        (b"SECTOR" | b"BLOCK", _) => Column::Sector,
        (b"BYTES", _) => Column::Bytes,
        (b"LATms", _) => Column::Latency(1_000_000),
        (b"LAT", Some(unit)) => Column::Latency(unit),
        (b"QUE", Some(unit)) => Column::Queue(unit),
        (b"LAT" | b"QUE", None) => {
            return Err(format!("column {} has no unit, such as (ms)", shown(name)));
        }
        _ => Column::Other,
    })
}

/// R, W, D (discard) or F, in newer versions followed by flags; no bytes is a flush.
fn kind(text: &[u8], size: u64) -> Result<Option<Op>, ()> {
    let op = match text.first() {
        Some(b'R') => Op::Read,
        Some(b'W') => Op::Write,
        Some(b'D') => Op::Trim,
        Some(b'F') => Op::Flush,
        _ => return Err(()),
    };
    Ok(match (op, size) {
        (Op::Write | Op::Flush, 0) => Some(Op::Flush),
        (Op::Flush, _) => Some(Op::Write),
        (_, 0) => None,
        _ => Some(op),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Source, open_bytes};

    fn read(parser: &mut Biosnoop, line: &str) -> Request {
        match parser.line(line.as_bytes()) {
            Ok(Line::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arrival_is_completion_less_latency() {
        let line = "0.001469    supervise      1956   xvda1   W 13092440   4096       1.24";
        let request = read(&mut Biosnoop::default(), line);
        assert_eq!(request.at.0, field::LEAD + 1_469_000 - 1_240_000);
        assert_eq!((request.offset, request.bytes), (13_092_440 * 512, 4096));
        assert_eq!((request.op, request.stream), (Op::Write, 1956));
        assert_eq!(request.recorded_latency.unwrap().get(), 1_240_000);
    }

    #[test]
    fn queue_time_belongs_to_the_latency() {
        let mut parser = Biosnoop::default();
        let heading = b"TIME(s)  COMM  PID  DISK  T  SECTOR  BYTES  QUE(ms)  LAT(ms)";
        assert_eq!(parser.line(heading), Ok(Line::Header));
        let request = read(&mut parser, "1.0 Chrome IO Thr 7 sda R 8 4096 0.5 1.5");
        assert_eq!((request.recorded_latency.unwrap().get(), request.stream), (2_000_000, 7));
    }

    #[test]
    fn columns_are_those_of_the_heading() {
        let lines = [
            ("TIME(s) COMM PID DISK T SECTOR BYTES P LAT(ms)", "1.0 a b 7 sda R 8 4096 S 0.5"),
            ("TIME(s) TID COMM DISK T SECTOR BYTES LAT(us)", "1.0 7 a b sda R 8 4096 500"),
            ("TIME COMM PID DISK T SECTOR BYTES LAT(ms)", "00:00:01.0 a 7 sda R 8 4096 0.5"),
            ("STARTs ENDs COMM PID TYPE DEV BLOCK BYTES LATms", "0.9995 1 a b 7 RS 8,0 8 4096 0.5"),
        ];
        for (heading, line) in lines {
            let mut parser = Biosnoop::default();
            assert_eq!(parser.line(heading.as_bytes()), Ok(Line::Header), "{heading}");
            let request = read(&mut parser, line);
            assert_eq!((request.at.0, request.stream), (field::LEAD + 999_500_000, 7), "{heading}");
            assert_eq!((request.op, request.offset, request.bytes), (Op::Read, 4096, 4096));
            assert_eq!(request.recorded_latency.unwrap().get(), 500_000);
        }
    }

    #[test]
    fn a_time_in_the_queue_may_be_unknown() {
        let mut parser = Biosnoop::default();
        let heading = b"TIMESTAMP COMM PID DISK T SECTOR BYTES QUE(ms) LAT(ms)";
        assert_eq!(parser.line(heading), Ok(Line::Header));
        for unknown in ["-1.000", "-", "N/A"] {
            let line = format!("17:58:57.814 a b 7 sda WSM 8 4096 {unknown} 0.5");
            assert_eq!(read(&mut parser, &line).recorded_latency.unwrap().get(), 500_000);
        }
        assert_eq!(parser.notes(), ["3 requests have no time in the queue, which counts as 0"]);
        let reason = parser.line(b"17:58:57.814 a 7 sda R 8 4096 -2 0.5").unwrap_err();
        assert!(reason.starts_with("QUE(ms) is negative"), "{reason}");
        let dated = read(&mut parser, "2026-06-25 09:57:11.5 a b 7 sda R 8 4096 0.5 0");
        let next = read(&mut parser, "2026-06-26 09:57:11.5 a 7 sda R 8 4096 0.5 0");
        assert_eq!(next.at.0 - dated.at.0, DAY);
    }

    #[test]
    fn days_of_a_clock_go_on() {
        let mut parser = Biosnoop::default();
        let mut at = |time| read(&mut parser, &format!("{time} a 7 sda R 8 4096 0")).at.0;
        let first = at("23:59:59.5");
        assert_eq!(at("00:00:01") - first, 1_500_000_000);
    }

    #[test]
    fn rows_without_a_disk_and_unknown_types_are_passed_over() {
        let mut parser = Biosnoop::default();
        for line in ["0.0 ? 0 R 0 8 2.00", "0.0 x y 0 R 0 8 2.00", "0.0 x 7 sda U 0 8 2.00"] {
            assert_eq!(parser.line(line.as_bytes()), Ok(Line::Other), "{line}");
        }
        assert_eq!(parser.notes(), ["rows of unknown types were passed over: 1 × U"]);
        // Who asked for data is known, if not of which disk.
        let request = read(&mut parser, "0.0 dd 24852 W 8 4096 1.00");
        assert_eq!((request.stream, request.bytes), (24_852, 4096));
    }

    #[test]
    fn rows_behind_lost_events_are_put_in_order() {
        let text = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.0 a 1 sda R 8 4096 0.5\n\
                    2.0 a 1 sda R 16 4096 0.5\nPossibly lost 12 samples\n\
                    1.9999 a 1 sda R 24 4096 0.5\n";
        let mut all = Vec::new();
        let reader = open_bytes("t", text.as_bytes().to_vec(), &OpenOptions::default());
        reader.unwrap().fill(&mut all).unwrap();
        assert_eq!(
            all.iter().map(|request| request.offset).collect::<Vec<_>>(),
            [4096, 12288, 8192]
        );
    }

    #[test]
    fn what_was_lost_is_told() {
        let mut parser = Biosnoop::default();
        assert!(parser.line(b"^C").is_err(), "at the end alone");
        for line in ["Possibly lost 12 samples", "lost 3 events on CPU #2", "Lost 5 events"] {
            assert!(
                matches!(parser.line(line.as_bytes()), Ok(Line::Header | Line::Other)),
                "{line}"
            );
        }
        let notes = parser.notes();
        assert!(notes.len() == 1 && notes[0].starts_with("20 events were lost"), "{notes:?}");
        assert!(parser.line(b"lost 7 sda R 8 4096 0.5 x").is_err());
        let request = read(&mut parser, "1.0 lost 7 sda R 8 4096 0.5");
        assert_eq!((request.stream, parser.notes().len()), (7, 1));
        assert_eq!(parser.line(b"^C"), Ok(Line::Header));
    }

    #[test]
    fn no_bytes_is_a_flush() {
        let line = "2.0 jbd2/sda 7 sda W 18446744073709551615 0 0.5";
        assert_eq!(read(&mut Biosnoop::default(), line).op, Op::Flush);
        assert_eq!(Biosnoop::default().line(b"2.0 x 7 sda R 8 0 0.5"), Ok(Line::Other));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("x supervise 1 sda W 8 4096 0.7", "TIME(s) is not a number: 'x'"),
            ("1.0 supervise 1 sda 8 8 4096 0.7", "T is '8', not R, W, D or F"),
            ("1.0 x sda W 8 4096 0.7", "7 columns, not 8"),
            ("1.0 x 7 sda W 8 40", "T is 'sda', not R, W, D or F"),
            ("1.0 x y sda W 8 4096 0.7", "PID is not a whole number: 'y'"),
            ("1.0 sda W 8 4096 0.7", "6 columns, not 8"),
            ("1.0 supervise 1 sda W 8 4096 NaN", "LAT(ms) is not a number: 'NaN'"),
            ("1.0 supervise 1 sda W 8 4096 99999999999", "do not fit together"),
            ("TIME(s) COMM PID DISK T SECTOR BYTES", "no column LAT(ms)"),
            ("TIME(ms) DISK COMM PID LAT(ms)", "no column T"),
            ("TIME(s) COMM PID DISK T SECTOR BYTES LAT", "LAT has no unit"),
            ("COMM PID TYPE DEV BLOCK BYTES LATms", "no column TIME(s)"),
        ] {
            let reason = Biosnoop::default().line(line.as_bytes()).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
