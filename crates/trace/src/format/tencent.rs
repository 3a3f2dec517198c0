//! Tencent CBS (Zhang et al., ATC'20; SNIA IOTTA 27917): as published, and replayed on a drive.

use std::num::NonZeroU64;

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::msr::one_is_read;
use super::names::Names;
use crate::request::{Op, Request};

/// `1538323200,12910952,128,0,1063`: seconds, first sector, sectors (512 B), 0 for a read and 1
/// for a write, volume. Whole seconds only: see [`crate::transform::spread`].
#[derive(Default)]
pub(crate) struct Tencent {
    volumes: Names,
}

impl LineParser for Tencent {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        let at = field::ticks(columns.unsigned("timestamp")?, "timestamp", 1_000_000_000)?;
        let offset = field::sectors(columns.unsigned("offset")?, "offset")?;
        let size = field::sectors(columns.unsigned("size")?, "size")?;
        let op = match columns.want("type")? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            text => return Err(format!("type is '{}', not 0 (read) or 1 (write)", shown(text))),
        };
        let volume = columns.want("volume")?;
        let stream = field::stream(field::unsigned(volume, "volume")?, "volume")?;
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { device: self.volumes.number(&[volume])?, stream, ..request }))
    }
}

/// `0.000,104,1,4096,42414080,0.097,4096`: arrival in the trace in ms (whole seconds, not used),
/// measured latency in us, 1 for a read and 0 for a write, size, offset, submission in ms, bytes
/// done. Rows stand in order of completion.
///
/// The offset is taken in bytes, as the replayer that wrote the file takes it, since the latencies
/// belong to what the drive was asked for. The original counts in sectors, and probably its numbers
/// went through unchanged but for an alignment to 4096: the placement on the cloud volume is then
/// 512 times as wide, and neither unit shows where a request went on after another (checked: starts
/// at an earlier end are as frequent as starts one block beside it).
pub(crate) struct TencentReplay;

impl LineParser for TencentReplay {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        field::time(columns.want("arrival time")?, "arrival time", 1_000_000)?;
        let latency = field::ticks(columns.unsigned("latency")?, "latency", 1_000)?;
        let op = one_is_read(columns.want("type")?)?;
        let size = columns.unsigned("size")?;
        let offset = columns.unsigned("offset")?;
        let at = field::time(columns.want("submission time")?, "submission time", 1_000_000)?;
        let done = columns.unsigned("bytes done")?;
        columns.end()?;
        if done != size {
            return Err(format!("only {done} of {size} bytes were done: a failed request"));
        }
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { recorded_latency: NonZeroU64::new(latency), ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    #[test]
    fn raw_volumes_are_numbered_as_they_appear() {
        let mut parser = Tencent::default();
        let mut read = |line: &[u8]| match parser.line(line) {
            Ok(Line::Request(request)) => request,
            other => panic!("{other:?}"),
        };
        let first = read(b"1538323200,12910952,128,0,1063");
        assert_eq!((first.op, first.device, first.stream), (Op::Read, 0, 1063));
        assert_eq!((first.offset, first.bytes), (12_910_952 * 512, 65_536));
        let second = read(b"1538323200,6338688,8,1,1088");
        assert_eq!((second.op, second.device, second.stream), (Op::Write, 1, 1088));
    }

    #[test]
    fn a_replayed_row_counts_from_its_submission() {
        let line = b"54000.000,3672,1,4096,4907008,54022.602,4096";
        let Line::Request(request) = TencentReplay.line(line).unwrap() else { panic!() };
        assert_eq!((request.at, request.op), (Nanos(54_022_602_000), Op::Read));
        assert_eq!(request.recorded_latency.unwrap().get(), 3_672_000);
        assert_eq!(request.offset, 4_907_008);
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("1,0,8,R,1", "type is 'R', not 0 (read) or 1 (write)"),
            ("1,0,8,0,-1", "volume is negative: '-1'"),
            ("99999999999,0,8,0,1", "timestamp is too large: '99999999999'"),
        ] {
            assert_eq!(Tencent::default().line(line.as_bytes()), Err(said.to_owned()));
        }
        for (line, said) in [
            ("0.0,1,1,4096,0,0.1,512", "only 512 of 4096 bytes were done: a failed request"),
            ("0.0,-1,1,4096,0,0.1,4096", "latency is negative: '-1'"),
        ] {
            assert_eq!(TencentReplay.line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
