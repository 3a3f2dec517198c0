//! The trace format of the Storage Performance Council, as in the UMass repository.

use super::alibaba::read_or_write;
use super::field::{self, Columns, Line, LineParser, Reason};
use crate::request::Request;

/// `0,20941264,8192,W,0.551706`: application-specific unit, logical block (512 B), size in
/// bytes, R or W, seconds. The format allows further columns; they are not used.
pub(crate) struct Spc;

impl LineParser for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Line, Reason> {
        let mut columns = Columns::commas(line);
        let device = field::device(columns.unsigned("ASU")?, "ASU")?;
        let offset = field::sectors(columns.unsigned("LBA")?, "LBA")?;
        let size = columns.unsigned("size")?;
        let op = read_or_write(columns.want("opcode")?)?;
        let time = columns.want("timestamp")?;
        let at = field::time(time, "timestamp", 1_000_000_000)?;
        if !time.contains(&b'.') {
            // What follows might be its fraction behind a decimal comma.
            columns.end()?;
        }
        let request = field::request(at, op, offset, size)?;
        Ok(Line::Request(Request { device, stream: u32::from(device), ..request }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use ebb_policy::units::Nanos;

    #[test]
    fn blocks_are_sectors_and_sizes_bytes() {
        for line in [&b"3,20941264,8192,w,0.551706"[..], b"3,20941264,8192,W,0.551706,17,x"] {
            let Line::Request(request) = Spc.line(line).unwrap() else { panic!() };
            assert_eq!((request.at, request.op), (Nanos(551_706_000), Op::Write));
            assert_eq!((request.offset, request.bytes), (20_941_264 * 512, 8192));
            assert_eq!(request.device, 3);
        }
    }

    #[test]
    fn faults_are_named() {
        for (line, said) in [
            ("0,1,512,W,-0.5", "timestamp is negative: '-0.5'"),
            ("0,1,512,W", "column 'timestamp' is missing"),
            ("0,1,512,W,0,551706", "a column too many: '551706'"),
        ] {
            assert_eq!(Spc.line(line.as_bytes()), Err(said.to_owned()));
        }
    }
}
