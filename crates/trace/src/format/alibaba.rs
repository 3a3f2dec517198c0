//! Alibaba block traces (Li et al., IISWC'20).

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use super::names::Names;
use crate::request::{Op, Request};

/// `419,W,5613568,4096,1577808144360767`: device, R or W, offset in bytes, size in bytes,
/// microseconds.
#[derive(Default)]
pub(crate) struct Alibaba {
    devices: Names,
}

impl LineParser for Alibaba {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        let device = columns.want("device")?;
        let stream = field::stream(field::unsigned(device, "device")?, "device")?;
        let op = read_or_write(columns.want("type")?)?;
        let offset = columns.unsigned("offset")?;
        let size = columns.unsigned("size")?;
        let at = field::ticks(columns.unsigned("timestamp")?, "timestamp", 1_000)?;
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { device: self.devices.number(&[device])?, stream, ..request }))
    }
}

/// A type column of one letter.
pub(crate) fn read_or_write(text: &[u8]) -> Result<Op, Reason> {
    match text {
        b"R" | b"r" => Ok(Op::Read),
        b"W" | b"w" => Ok(Op::Write),
        _ => Err(format!("type is '{}', not R or W", shown(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::units::Nanos;

    #[test]
    fn a_line_has_microseconds_last() {
        let line = b"419,W,5613568,4096,1577808144360767";
        let Line::Request(request) = Alibaba::default().line(line).unwrap() else { panic!() };
        assert_eq!(request.at, Nanos(1_577_808_144_360_767_000));
        assert_eq!((request.op, request.device, request.stream), (Op::Write, 0, 419));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("0,X,0,4096,1", "type is 'X', not R or W"),
            ("0,R,0,4096,1.5", "timestamp is not a whole number: '1.5'"),
            (
                "0,R,18446744073709551615,4096,1",
                "offset 18446744073709551615 plus size 4096 is beyond 2^64 bytes",
            ),
        ] {
            assert_eq!(Alibaba::default().line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
