//! The output of `biosnoop` (BCC).

use std::num::NonZeroU64;

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::names::Names;
use crate::request::{Op, Request};

/// `0.000004 supervise 1950 xvda1 W 13092560 4096 0.74`: seconds, command, process, disk, type,
/// sector (512 B), bytes, with `-Q` milliseconds in the queue, latency in milliseconds.
///
/// A line is printed, and its time taken, when the request completes: the arrival is that time
/// less the latency. A command may contain blanks, so the columns are counted from the right.
#[derive(Default)]
pub(crate) struct Biosnoop {
    disks: Names,
    queue_column: bool,
}

/// Completion times start near 0, arrivals may lie before: everything is moved by a day.
const LEAD: u64 = 86_400_000_000_000;
const MILLI: u64 = 1_000_000;

impl LineParser for Biosnoop {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let line = line.trim_ascii();
        if line.starts_with(b"TIME(s)") {
            self.queue_column = memchr::memmem::find(line, b"QUE(ms)").is_some();
            return match memchr::memmem::find(line, b"LAT(ms)") {
                Some(_) => Ok(Line::Header),
                None => Err("the heading has no column LAT(ms)".to_owned()),
            };
        }
        let mut time = Columns::blanks(line);
        let done = field::time(time.want("TIME(s)")?, "TIME(s)", 1_000_000_000)?;
        let mut right = line.rsplit(|byte| matches!(byte, b' ' | b'\t')).filter(|c| !c.is_empty());
        let mut want = |name: &str| {
            right
                .next()
                .ok_or_else(|| format!("column '{name}' is missing, counted from the right"))
        };
        let mut latency = field::time(want("LAT(ms)")?, "LAT(ms)", MILLI)?;
        if self.queue_column {
            latency = latency.saturating_add(field::time(want("QUE(ms)")?, "QUE(ms)", MILLI)?);
        }
        let size = field::unsigned(want("BYTES")?, "BYTES")?;
        let sector = want("SECTOR")?;
        let kind = want("T")?;
        let disk = want("DISK")?;
        let process = field::stream(field::unsigned(want("PID")?, "PID")?, "PID")?;
        want("COMM")?;
        let Some(op) = kind_of(kind, size)? else { return Ok(Line::Other) };
        let offset = match op {
            Op::Flush => 0,
            _ => field::sectors(field::unsigned(sector, "SECTOR")?, "SECTOR")?,
        };
        let at = done
            .checked_add(LEAD)
            .and_then(|done| done.checked_sub(latency))
            .ok_or_else(|| "time and latency do not fit together".to_owned())?;
        let request = field::request(at, op, offset, size)?;
        let device = self.disks.number(&[disk])?;
        let recorded_latency = NonZeroU64::new(latency);
        Ok(Line::Request(Request { device, stream: process, recorded_latency, ..request }))
    }
}

/// R, W, D (discard) or F, in newer versions followed by flags; no bytes is a flush.
fn kind_of(text: &[u8], size: u64) -> Result<Option<Op>, Reason> {
    let op = match text.first() {
        Some(b'R') => Op::Read,
        Some(b'W') => Op::Write,
        Some(b'D') => Op::Trim,
        Some(b'F') => Op::Flush,
        _ => return Err(format!("T is '{}', not R, W, D or F", shown(text))),
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
        assert_eq!(request.at.0, LEAD + 1_469_000 - 1_240_000);
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
    fn no_bytes_is_a_flush() {
        let line = "2.0 jbd2/sda 7 sda W 18446744073709551615 0 0.5";
        assert_eq!(read(&mut Biosnoop::default(), line).op, Op::Flush);
        assert_eq!(Biosnoop::default().line(b"2.0 x 7 sda R 8 0 0.5"), Ok(Line::Other));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("x supervise 1 sda W 8 4096 0.7", "TIME(s) is not a number: 'x'"),
            ("1.0 supervise 1 sda Q 8 4096 0.7", "T is 'Q', not R, W, D or F"),
            ("1.0 sda W 8 4096 0.7", "PID"),
            ("1.0 supervise 1 sda W 8 4096 NaN", "LAT(ms) is not a number: 'NaN'"),
            ("1.0 supervise 1 sda W 8 4096 99999999999", "do not fit together"),
            ("TIME(s) COMM PID", "no column LAT(ms)"),
        ] {
            let reason = Biosnoop::default().line(line.as_bytes()).unwrap_err();
            assert!(reason.contains(said), "{reason}");
        }
    }
}
