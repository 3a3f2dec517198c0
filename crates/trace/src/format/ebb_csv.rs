//! Ebb's own CSV: every field of a request, nothing lost, readable by any tool.

use std::num::NonZeroU64;

use super::field::{self, Columns, Line, LineParser, Reason, shown};
use crate::request::{Op, Request};

/// The first line, which names the columns.
pub(crate) const HEADING: &str = "at_ns,op,offset,bytes,device,stream,latency_ns";

/// `1500,R,4096,8192,0,7,250000`; the operations are R, W, F (flush) and T (trim); the latency is
/// empty where none was recorded.
#[derive(Default)]
pub(crate) struct EbbCsv {
    heading: bool,
}

impl LineParser for EbbCsv {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        if !self.heading {
            if !Columns::commas(line).eq(Columns::commas(HEADING.as_bytes())) {
                return Err(format!("the file begins with '{}', not '{HEADING}'", shown(line)));
            }
            self.heading = true;
            return Ok(Line::Header);
        }
        let mut columns = Columns::commas(line);
        let at = columns.unsigned("at_ns")?;
        let op = match columns.want("op")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"F" => Op::Flush,
            b"T" => Op::Trim,
            text => return Err(format!("op is '{}', not R, W, F or T", shown(text))),
        };
        let offset = columns.unsigned("offset")?;
        let size = columns.unsigned("bytes")?;
        let device = field::device(columns.unsigned("device")?, "device")?;
        let stream = field::stream(columns.unsigned("stream")?, "stream")?;
        let latency = match columns.want("latency_ns")? {
            b"" => 0,
            text => field::unsigned(text, "latency_ns")?,
        };
        columns.end()?;
        let request = field::request(at, op, offset, size)?;
        let recorded_latency = NonZeroU64::new(latency);
        Ok(Line::Request(Request { device, stream, recorded_latency, ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("0,X,0,512,0,0,", "op is 'X', not R, W, F or T"),
            ("0,R,0,512,0,0", "column 'latency_ns' is missing"),
            ("0,R,0,512,0,4294967296,", "stream is too large: '4294967296'"),
        ] {
            let mut parser = EbbCsv::default();
            assert_eq!(parser.line(HEADING.as_bytes()), Ok(Line::Header));
            assert_eq!(parser.line(line.as_bytes()), Err(said.to_owned()));
        }
        assert!(EbbCsv::default().line(b"0,R,0,512,0,0,").unwrap_err().contains(HEADING));
    }
}
