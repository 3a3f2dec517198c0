//! Windows event traces as xperf dumps them: Microsoft's production servers and benchmarks
//! (Kavalanekar et al., IISWC'08; SNIA IOTTA 130, 149, 158).

use std::num::NonZeroU64;

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::names::Names;
use crate::request::{Op, Request};

/// `DiskRead, 1009, System ( 4), 88, 0xfffffa80, 0x02b1c9f000, 0x00001000, 382, 0, ...`: event,
/// microseconds, process, thread, packet, offset and size in bytes and hexadecimal, microseconds
/// that it took, disk. An event is written at its end, so the arrival is its time less those.
///
/// Before the events stand headings, one a kind of event, from `BeginHeader` to `EndHeader`.
#[derive(Default)]
pub(crate) struct Etw {
    disks: Names,
    /// A heading came, so that any other event is known for what it is.
    known: bool,
}

const MICRO: u64 = 1_000;

impl LineParser for Etw {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        let event = columns.want("event")?;
        let op = match event {
            b"BeginHeader" | b"EndHeader" => {
                self.known = true;
                return Ok(Line::Header);
            }
            b"DiskRead" => Op::Read,
            b"DiskWrite" => Op::Write,
            b"DiskFlush" => Op::Flush,
            _ if self.known => return Ok(Line::Other),
            _ => return Err(format!("'{}' begins no event trace of Windows", shown(line))),
        };
        let time = columns.want("TimeStamp")?;
        if time == b"TimeStamp" {
            self.known = true;
            return Ok(Line::Header);
        }
        let done = field::ticks(field::unsigned(time, "TimeStamp")?, "TimeStamp", MICRO)?;
        for name in ["Process Name", "ThreadID", "IrpPtr"] {
            columns.want(name)?;
        }
        let (offset, size) = match op {
            Op::Flush => (0, 0),
            _ => (hex(&mut columns, "ByteOffset")?, hex(&mut columns, "IOSize")?),
        };
        let latency = field::ticks(columns.unsigned("ElapsedTime")?, "ElapsedTime", MICRO)?;
        let disk = columns.want("DiskNum")?;
        field::unsigned(disk, "DiskNum")?;
        let at = field::arrival(done, latency)?;
        let request = field::request(at, op, offset, size)?;
        let device = self.disks.number(&[disk])?;
        self.known = true;
        let (stream, recorded_latency) = (u32::from(device), NonZeroU64::new(latency));
        Ok(Line::Request(Request { device, stream, recorded_latency, ..request }))
    }
}

fn hex(columns: &mut Columns<'_>, name: &str) -> Result<u64, Reason> {
    let text = columns.want(name)?;
    let digits = std::str::from_utf8(text).ok().and_then(|text| text.strip_prefix("0x"));
    let value = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    value.ok_or_else(|| format!("{name} is '{}', not a number such as 0x1000", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_disks_are_requests() {
        let text = "BeginHeader\n\
          DiskRead,  TimeStamp, Process Name ( PID), ThreadID,  IrpPtr, ByteOffset, IOSize\n\
          FileIoRead,  TimeStamp,  Process Name ( PID)\n\
          EndHeader\n\
          OS Version: 6.0.6001, Trace Size: 8192KB\n\
          DiskReadInit,  1000, System (   4),  88, 0xfffffa800c5b2d40\n\
          DiskRead,  1382, System (   4),  88, 0xfffffa800c5b2d40, 0x02b1c9f000, 0x00001000, 382, \
          1, 0x060043, 155, Normal, 0, 0xfffffa8008dbb9d0, \"C:\\a, b\"\n\
          DiskFlush, 1500, x ( 5), 9, 0xff, 100, 1, 0x0, 90, Normal";
        let (mut parser, mut requests) = (Etw::default(), Vec::new());
        for line in text.lines() {
            if let Line::Request(r) = parser.line(line.trim().as_bytes()).unwrap() {
                requests.push((r.at.0 - field::LEAD, r.op, r.offset, r.bytes, r.device));
            }
        }
        let read = (1_000_000, Op::Read, 0x02_b1c9_f000, 4096, 0);
        assert_eq!(requests, [read, (1_400_000, Op::Flush, 0, 0, 0)]);
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("Mark, 5", "'Mark, 5' begins no event trace of Windows"),
            ("DiskRead, 1.5, x", "TimeStamp is not a whole number: '1.5'"),
            (
                "DiskRead, 5, x, 1, 0x0, 4096, 0x200",
                "ByteOffset is '4096', not a number such as 0x1000",
            ),
            ("DiskRead, 5, x, 1, 0x0, 0x0, 0x200", "column 'ElapsedTime' is missing"),
        ] {
            assert_eq!(Etw::default().line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
