//! MSR Cambridge (Narayanan et al., FAST'08; SNIA IOTTA 388): the raw CSV and the cut form.

use std::num::NonZeroU64;

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::names::Names;
use crate::request::{Op, Request};

/// A Windows file time and a response time count 100 ns.
const TICK: u64 = 100;

/// `128166372003061629,hm,0,Read,383496192,32768,413`: file time, host, disk, type, offset in
/// bytes, size in bytes, response time.
#[derive(Default)]
pub(crate) struct Msr {
    disks: Names,
}

impl LineParser for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        let at = field::ticks(columns.unsigned("timestamp")?, "timestamp", TICK)?;
        let host = columns.want("host")?;
        let disk = columns.want("disk")?;
        let op = match columns.want("type")? {
            text if text.eq_ignore_ascii_case(b"read") => Op::Read,
            text if text.eq_ignore_ascii_case(b"write") => Op::Write,
            text => return Err(format!("type is '{}', not Read or Write", shown(text))),
        };
        let offset = columns.unsigned("offset")?;
        let size = columns.unsigned("size")?;
        let response = field::ticks(columns.unsigned("response time")?, "response time", TICK)?;
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        let device = self.disks.number(&[host, disk])?;
        Ok(Line::Request(Request {
            device,
            stream: u32::from(device),
            recorded_latency: NonZeroU64::new(response),
            ..request
        }))
    }
}

/// `22.810 0 2205343744 4096 1`: milliseconds, device, offset in bytes, size in bytes, 1 for a
/// read and 0 for a write. The form of the Heimdall artifact (EuroSys'25).
pub(crate) struct MsrCut;

impl LineParser for MsrCut {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::blanks(line);
        let at = field::time(columns.want("arrival time")?, "arrival time", 1_000_000)?;
        let device = field::device(columns.unsigned("device")?, "device")?;
        let offset = columns.unsigned("offset")?;
        let size = columns.unsigned("size")?;
        let op = one_is_read(columns.want("type")?)?;
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { device, stream: u32::from(device), ..request }))
    }
}

/// The type column shared by the replayers' formats.
pub(crate) fn one_is_read(text: &[u8]) -> Result<Op, Reason> {
    match text {
        b"1" => Ok(Op::Read),
        b"0" => Ok(Op::Write),
        _ => Err(format!("type is '{}', not 1 (read) or 0 (write)", shown(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    #[test]
    fn a_raw_line_has_latency_in_hundreds_of_nanoseconds() {
        let line = b"128172299571726563,prxy,0,Write,1105182720,512,2072";
        let Line::Request(request) = Msr::default().line(line).unwrap() else { panic!() };
        assert_eq!(request.at, Nanos(12_817_229_957_172_656_300));
        assert_eq!((request.offset, request.bytes, request.op), (1_105_182_720, 512, Op::Write));
        assert_eq!(request.recorded_latency.unwrap().get(), 207_200);
    }

    #[test]
    fn a_cut_line_has_milliseconds() {
        let Line::Request(request) = MsrCut.line(b"22.810 0 2205343744 4096 1").unwrap() else {
            panic!()
        };
        assert_eq!((request.at, request.op), (Nanos(22_810_000), Op::Read));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("1,prxy,0,Trim,0,512,1", "type is 'Trim', not Read or Write"),
            ("1,prxy,0,Read,0,-512,1", "size is negative: '-512'"),
            ("1,prxy,0,Read,0,512", "column 'response time' is missing"),
            ("1,prxy,0,Read,0,512,1,9", "a column too many: '9'"),
            ("999999999999999999,p,0,Read,0,512,1", "timestamp is too large: '999999999999999999'"),
        ] {
            assert_eq!(Msr::default().line(line.as_bytes()), Err(said.to_owned()));
        }
        for (line, said) in [
            ("0.1 0 0 4096 2", "type is '2', not 1 (read) or 0 (write)"),
            ("NaN 0 0 4096 1", "arrival time is not a number: 'NaN'"),
            ("0.1 70000 0 4096 1", "device is too large: '70000'; at most 65535 is possible"),
        ] {
            assert_eq!(MsrCut.line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
