//! Traces of a virtual-desktop storage (Lee et al., SYSTOR'17; SNIA IOTTA 4928).

use std::num::NonZeroU64;

use super::alibaba::read_or_write;
use super::field::{self, Columns, Line, LineParser, Reason};
use super::names::Names;
use crate::request::Request;

const SECOND: u64 = 1_000_000_000;

/// `1455592061.106302,0.000114,R,0,125116776448,8192`: seconds of the arrival, seconds until the
/// answer, R or W, logical unit, offset in bytes, size in bytes. The response may be empty; a row
/// without a type is another command.
#[derive(Default)]
pub(crate) struct Systor {
    units: Names,
}

impl LineParser for Systor {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        let at = field::time(columns.want("timestamp")?, "timestamp", SECOND)?;
        let response = match columns.want("response")? {
            b"" => 0,
            text => field::time(text, "response", SECOND)?,
        };
        let op = match columns.want("type")? {
            b"" => None,
            text => Some(read_or_write(text)?),
        };
        let unit = columns.want("LUN")?;
        field::unsigned(unit, "LUN")?;
        let offset = columns.want("offset")?;
        let size = columns.want("size")?;
        columns.end()?;
        let Some(op) = op else { return Ok(Line::Other) };
        let offset = field::unsigned(offset, "offset")?;
        let request = field::request(at, op, offset, field::unsigned(size, "size")?)?;
        let device = self.units.number(&[unit])?;
        let (stream, recorded_latency) = (u32::from(device), NonZeroU64::new(response));
        Ok(Line::Request(Request { device, stream, recorded_latency, ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    #[test]
    fn responses_and_types_may_be_missing() {
        let mut parser = Systor::default();
        let line = b"1455592061.106302,0.000114,W,3,125116776448,8192";
        let Line::Request(request) = parser.line(line).unwrap() else { panic!() };
        assert_eq!((request.op, request.offset, request.bytes), (Op::Write, 125_116_776_448, 8192));
        assert_eq!(request.recorded_latency.unwrap().get(), 114_000);
        let Ok(Line::Request(request)) = parser.line(b"1455592061.2,,R,3,0,512") else { panic!() };
        assert_eq!(request.recorded_latency, None);
        assert_eq!(parser.line(b"1455592061.2,0.1,,3,,"), Ok(Line::Other));
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("1.0,0.1,R,0,0", "column 'size' is missing"),
            ("1.0,0.1,X,0,0,512", "type is 'X', not R or W"),
            ("1.0,0.1,R,0,0,512,1", "a column too many: '1'"),
            ("1.0,0.1,R,0,,512", "offset is empty"),
        ] {
            assert_eq!(Systor::default().line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
